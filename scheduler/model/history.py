"""Ended attempts in columns: what estimates of run times and failures are made from.

A history is a value: it never changes, and a longer one is made from it at the cost of copying its
columns. Names (boards, families, kinds) are numbered once and shared by all that grew from one
beginning; numbers are only ever added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.model.benchmark import BenchmarkType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LOAD_OF_VARIANT = re.compile(r"(\d{1,8}\.\d{3})s-", re.ASCII)

_Name = TypeVar("_Name", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind:
    """What a run is called in the history: all that its run time depends on but the board.

    Attributes:
        nb_inference: Runs that were asked for.
        variant: As in `edgeyard.scheduler.model.decision.PendingBenchmark`.
    """

    engine: str
    benchmark_type: BenchmarkType
    model_sha256: str | None
    nb_inference: int = 20
    variant: str = ""

    @property
    def load_s(self) -> float:
        """Seconds that its load lasts at least, whatever the board, as its variant states."""
        stated = _LOAD_OF_VARIANT.match(self.variant)
        return float(stated[1]) if stated else 0.0


def with_load(load_s: float, digest: str) -> str:
    """Return the variant of a run whose load lasts so long, from which `RunKind` reads it."""
    return f"{load_s:.3f}s-{digest}" if load_s > 0 else digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One ended attempt.

    Attributes:
        run_s: Of its task; None when it never started.
        failure: Category of its failure; None: it led to a result.
        loading_s: From its placement to the start of its task; None when it never started.
        comparable: Whether its number is comparable; None: nothing was judged.
        energy_j: Energy of its run, joules, above 0; None: not known.
        wait_s: From its submission to the start of its task; None when it never started.
        seq: Number of its outcome in the store; 0: it is not stored.
        replaces: Number of an earlier outcome that it takes the place of; 0: of none.
    """

    benchmark_id: str
    user_id: str
    target_uid: str
    family: str
    kind: RunKind
    run_s: float | None
    failure: str | None
    ended_at: datetime
    loading_s: float | None = None
    comparable: bool | None = None
    energy_j: float | None = None
    wait_s: float | None = None
    seq: int = 0
    replaces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRunColumns:
    """Ended attempts in columns as they are stored, each of the same length, oldest first.

    Attributes:
        kinds: Engine, benchmark type, model's hash, runs that were asked for, and variant.
        run_s: None for what never started.
        ended_us: Microseconds since 1970.
        replaces: As in `PastRun`; None and 0: of none.
        loading_s: None for what never started.
        verdicts: On the measured numbers; None: there is none.
        energy_j: None where it is not known.
        wait_s: None for what never started.
    """

    boards: Sequence[str]
    families: Sequence[str]
    kinds: Sequence[tuple[str, str, str | None, int, str]]
    users: Sequence[str]
    failures: Sequence[str | None]
    run_s: Sequence[float | None]
    ended_us: Sequence[int]
    benchmark_ids: Sequence[str]
    seqs: Sequence[int]
    replaces: Sequence[int | None]
    loading_s: Sequence[float | None]
    verdicts: Sequence[str | None]
    energy_j: Sequence[float | None]
    wait_s: Sequence[float | None]

    def __len__(self) -> int:
        return len(self.seqs)


class NameIndex(Generic[_Name]):
    """Names and their numbers, from 0 in the order in which they came; only ever grows."""

    def __init__(self) -> None:
        self.names: list[_Name] = []
        self._number_of: dict[_Name, int] = {}

    def add(self, name: _Name) -> int:
        """Return the number of a name; a new name gets the next number."""
        number = self._number_of.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number

    def add_all(self, names: Sequence[_Name]) -> NDArray[np.int32]:
        """Return the numbers of names; new names get the next numbers."""
        for name in dict.fromkeys(names):
            self.add(name)
        known = self._number_of
        return np.fromiter(map(known.__getitem__, names), dtype=np.int32, count=len(names))

    def of(self, names: Iterable[_Name]) -> NDArray[np.int64]:
        """Return the numbers of names; -1 for one that is unknown."""
        return np.fromiter(map(self._number_of.get, names, repeat(-1)), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Names:
    boards: NameIndex[str]
    families: NameIndex[str]
    kinds: NameIndex[RunKind]
    users: NameIndex[str]
    failures: NameIndex[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Columns:
    """Shape (runs,) each; numbers of names, -1 for none; seconds and joules, NaN for none.

    Attributes:
        comparable: 1 and 0 for numbers that are comparable and that are not; -1: none was judged.
    """

    boards: NDArray[np.int32]
    families: NDArray[np.int32]
    kinds: NDArray[np.int32]
    users: NDArray[np.int32]
    failures: NDArray[np.int32]
    run_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    benchmark_ids: NDArray[np.object_]
    seqs: NDArray[np.int64]
    replaces: NDArray[np.int64]
    loading_s: NDArray[np.float64]
    comparable: NDArray[np.int8]
    energy_j: NDArray[np.float64]
    wait_s: NDArray[np.float64]


COMPARABLE = "comparable"
"""The verdict on a number that others may be compared with."""

_SETTLED = 100
_FIELDS = fields(_Columns)


class History(Sequence[PastRun]):
    """Ended attempts, in the order in which their ends were committed.

    Safe to read on any thread; one thread makes longer ones.
    """

    def __init__(self, runs: Iterable[PastRun] | PastRunColumns = ()) -> None:
        self.names = _Names(NameIndex(), NameIndex(), NameIndex(), NameIndex(), NameIndex())
        self.columns = _columns(self.names, runs)
        self._derived: dict[Callable[[History], object], object] = {}
        self._settled: History | None = None

    def extended(
        self,
        runs: Sequence[PastRun] | PastRunColumns,
        *,
        max_runs: int | None = None,
        since: datetime | None = None,
    ) -> History:
        """Return this history with later runs at its end; itself where nothing changes.

        Args:
            runs: To be added, oldest first.
            max_runs: Keep the last ones up to this many, or up to one per cent more.
            since: Drop those at the beginning that ended earlier, once they are one per cent.
        """
        drop = 0
        if since is not None and len(self):
            young = self.columns.ended_s >= _seconds(since)
            drop = int(np.argmax(young)) if young.any() else len(self)
        if max_runs is not None:
            drop = max(drop, len(self) + len(runs) - max_runs)
        if drop < len(self) // _SETTLED:
            drop = 0  # what is fitted to the settled runs is fitted anew with each that goes
        if not runs and drop <= 0:
            return self
        longer = self._of(_joined(self.columns, _columns(self.names, runs), max(drop, 0)))
        if drop <= 0:
            longer._settled = self.settled
        return longer

    def between(self, first: int, last: int) -> History:
        """Return the runs whose numbers are within [first, last]; runs have ascending numbers."""
        start = int(np.searchsorted(self.columns.seqs, first))
        end = int(np.searchsorted(self.columns.seqs, last, side="right"))
        if (start, end) == (0, len(self)):
            return self.current()
        taken = {each.name: getattr(self.columns, each.name)[start:end] for each in _FIELDS}
        return self._of(_Columns(**taken)).current()

    def current(self) -> History:
        """Return this history without the runs that others of it replace."""
        replaced = self.columns.replaces[self.columns.replaces > 0]
        counts = ~np.isin(self.columns.seqs, replaced)
        if not len(replaced) or counts.all():
            return self
        kept = {each.name: getattr(self.columns, each.name)[counts] for each in _FIELDS}
        return self._of(_Columns(**kept))

    @property
    def settled(self) -> History:
        """Return all but the newest runs, of which up to one per cent is left out.

        What is fitted to it need not be fitted again for every run that ends. It depends on
        nothing but the runs; of fewer than 200 none is left out.
        """
        length = len(self) - len(self) % max(len(self) // _SETTLED, 1)
        if length == len(self):
            self._settled = None  # else each would keep the one before it
            return self
        if self._settled is None or len(self._settled) != length:
            first = {each.name: getattr(self.columns, each.name)[:length] for each in _FIELDS}
            self._settled = self._of(_Columns(**first))
        return self._settled

    def _of(self, columns: _Columns) -> History:
        found = History.__new__(History)
        found.names, found.columns = self.names, columns
        found._derived, found._settled = {}, None
        return found

    def derived(self, make: Callable[[History], _T]) -> _T:
        """Return ``make(self)``, made once: what is summed up of it lives as long as it does."""
        if make not in self._derived:
            self._derived[make] = make(self)
        return self._derived[make]  # type: ignore[return-value]  # of what `make` returned

    def __getstate__(self) -> tuple[_Names, _Columns]:
        """Return the state without what is derived: that is made again where it is needed."""
        return self.names, self.columns

    def __setstate__(self, state: tuple[_Names, _Columns]) -> None:
        self.names, self.columns = state
        self._derived, self._settled = {}, None

    def __len__(self) -> int:
        return len(self.columns.run_s)

    @overload
    def __getitem__(self, index: int) -> PastRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PastRun]: ...
    def __getitem__(self, index: int | slice) -> PastRun | Sequence[PastRun]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        names, columns = self.names, self.columns
        failure, run_s = int(columns.failures[index]), float(columns.run_s[index])
        loading_s, comparable = float(columns.loading_s[index]), int(columns.comparable[index])
        energy_j, wait_s = float(columns.energy_j[index]), float(columns.wait_s[index])
        return PastRun(
            benchmark_id=columns.benchmark_ids[index],
            user_id=names.users.names[columns.users[index]],
            target_uid=names.boards.names[columns.boards[index]],
            family=names.families.names[columns.families[index]],
            kind=names.kinds.names[columns.kinds[index]],
            run_s=None if np.isnan(run_s) else run_s,
            failure=None if failure < 0 else names.failures.names[failure],
            ended_at=EPOCH + timedelta(seconds=float(columns.ended_s[index])),
            loading_s=None if np.isnan(loading_s) else loading_s,
            comparable=None if comparable < 0 else comparable == 1,
            energy_j=None if np.isnan(energy_j) else energy_j,
            wait_s=None if np.isnan(wait_s) else wait_s,
            seq=int(columns.seqs[index]),
            replaces=int(columns.replaces[index]),
        )

    def __iter__(self) -> Iterator[PastRun]:
        return (self[index] for index in range(len(self)))


def _columns(names: _Names, runs: Iterable[PastRun] | PastRunColumns) -> _Columns:
    if isinstance(runs, PastRunColumns):
        return _numbered(names, runs)
    runs = tuple(runs)
    rows = [
        (
            names.boards.add(run.target_uid),
            names.families.add(run.family),
            names.kinds.add(run.kind),
            names.users.add(run.user_id),
            -1 if run.failure is None else names.failures.add(run.failure),
        )
        for run in runs
    ]
    numbers = np.array(rows, dtype=np.int32).reshape(-1, 5).T.copy()
    return _Columns(
        boards=numbers[0],
        families=numbers[1],
        kinds=numbers[2],
        users=numbers[3],
        failures=numbers[4],
        run_s=np.array([np.nan if run.run_s is None else run.run_s for run in runs], np.float64),
        ended_s=np.array([_seconds(run.ended_at) for run in runs], np.float64),
        benchmark_ids=np.array([run.benchmark_id for run in runs], dtype=np.object_),
        seqs=np.array([run.seq for run in runs], dtype=np.int64),
        replaces=np.array([run.replaces for run in runs], dtype=np.int64),
        loading_s=np.array([run.loading_s for run in runs], np.float64),
        comparable=np.array(
            [-1 if run.comparable is None else run.comparable for run in runs], np.int8
        ),
        energy_j=np.array([run.energy_j for run in runs], np.float64),
        wait_s=np.array([run.wait_s for run in runs], np.float64),
    )


def _numbered(names: _Names, runs: PastRunColumns) -> _Columns:
    """Return it from stored columns: an object is made for each kind, none for each run."""
    kind_of = {
        kind: RunKind(
            engine=kind[0],
            benchmark_type=BenchmarkType(kind[1]),
            model_sha256=kind[2],
            nb_inference=kind[3],
            variant=kind[4],
        )
        for kind in dict.fromkeys(runs.kinds)
    }
    number_of_kind = {kind: names.kinds.add(found) for kind, found in kind_of.items()}
    number_of_failure: dict[str | None, int] = {
        name: -1 if name is None else names.failures.add(name)
        for name in dict.fromkeys(runs.failures)
    }
    count = len(runs)
    return _Columns(
        boards=names.boards.add_all(runs.boards),
        families=names.families.add_all(runs.families),
        kinds=np.fromiter(map(number_of_kind.__getitem__, runs.kinds), np.int32, count),
        users=names.users.add_all(runs.users),
        failures=np.fromiter(map(number_of_failure.__getitem__, runs.failures), np.int32, count),
        run_s=np.array(runs.run_s, np.float64),
        ended_s=np.array(runs.ended_us, np.int64) / 1e6,
        benchmark_ids=np.array(runs.benchmark_ids, dtype=np.object_),
        seqs=np.array(runs.seqs, dtype=np.int64),
        replaces=np.array([each or 0 for each in runs.replaces], dtype=np.int64),
        loading_s=np.array(runs.loading_s, np.float64),
        comparable=np.array(
            [-1 if each is None else each == COMPARABLE for each in runs.verdicts], np.int8
        ),
        energy_j=np.array(runs.energy_j, np.float64),
        wait_s=np.array(runs.wait_s, np.float64),
    )


def _joined(first: _Columns, second: _Columns, drop: int) -> _Columns:
    return _Columns(
        boards=np.concatenate((first.boards, second.boards))[drop:],
        families=np.concatenate((first.families, second.families))[drop:],
        kinds=np.concatenate((first.kinds, second.kinds))[drop:],
        users=np.concatenate((first.users, second.users))[drop:],
        failures=np.concatenate((first.failures, second.failures))[drop:],
        run_s=np.concatenate((first.run_s, second.run_s))[drop:],
        ended_s=np.concatenate((first.ended_s, second.ended_s))[drop:],
        benchmark_ids=np.concatenate((first.benchmark_ids, second.benchmark_ids))[drop:],
        seqs=np.concatenate((first.seqs, second.seqs))[drop:],
        replaces=np.concatenate((first.replaces, second.replaces))[drop:],
        loading_s=np.concatenate((first.loading_s, second.loading_s))[drop:],
        comparable=np.concatenate((first.comparable, second.comparable))[drop:],
        energy_j=np.concatenate((first.energy_j, second.energy_j))[drop:],
        wait_s=np.concatenate((first.wait_s, second.wait_s))[drop:],
    )


def _seconds(at: datetime) -> float:
    return (at - EPOCH).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedNumber:
    """A comparable number of a run, one of several of the same work.

    Attributes:
        workload: Digest of what was measured.
        value: Of the run's primary metric, above 0.
        error: Its standard error, relative to it, as far as its own run can know it.
    """

    benchmark_id: str
    target_uid: str
    workload: str
    value: float
    error: float
