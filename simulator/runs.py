"""What one simulation gives, whatever the world: columns of jobs, of occupancy, and over time.

A run is saved as one ``.npz`` file without pickled objects, written to a temporary file that then
replaces the target.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import InvalidInput, reason_of
from edgeyard.simulator.schedules import Schedule

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Texts = NDArray[np.str_]

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, EXPIRED = range(6)
STATUSES = ("pending", "running", "completed", "failed", "cancelled", "expired")
"""Names of the numbers in `JobColumns.status`; the first two only in a run that was stopped."""

ENDED, STOPPED, LOST, FAULTED, PREEMPTED = range(5)
ATTEMPT_ENDS = ("ended", "stopped", "lost", "failed", "preempted")
"""Names of the numbers in `OccupancyColumns.how`: how an attempt ended. It led to a result; its
benchmark was cancelled or expired; it was lost with its host or its board; it failed; it gave its
board to a more urgent one."""

NO_BOARD = -1
_FORM = 2
_UNREADABLE = (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What NumPy raises for files that are no archives of arrays."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobColumns:
    """All jobs in order of their submission; shape (jobs,) each.

    Attributes:
        job: Ids.
        user: Names.
        submit_s: Seconds of virtual time.
        start_s: Start of the last attempt; NaN: it had none.
        end_s: When it reached its terminal status; NaN: not yet.
        board: Board (or first node) of the last attempt, a row of `SimulatedRun.boards`; -1: none.
        status: A place in `STATUSES`.
        attempts: How many it had.
        preemptions: How many of them were preempted.
        deadline_s: Seconds of virtual time; NaN: it has none.
        procs: Boards (or processors) that it holds while it runs.
    """

    job: Texts
    user: Texts
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    board: Integers
    status: Integers
    attempts: Integers
    preemptions: Integers
    deadline_s: Floats
    procs: Integers

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OccupancyColumns:
    """Who held which board when, one row for each attempt, by its start; shape (attempts,) each.

    Attributes:
        board: A row of `SimulatedRun.boards`.
        job: A row of `JobColumns`.
        from_s: Seconds of virtual time.
        to_s: The same.
        how: A place in `ATTEMPT_ENDS`.
    """

    board: Integers
    job: Integers
    from_s: Floats
    to_s: Floats
    how: Integers

    def __len__(self) -> int:
        return len(self.from_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeriesColumns:
    """The state over time: each row holds from its time to that of the next; shape (rows,) each.

    Attributes:
        time_s: Ascending.
        pending: Jobs that wait.
        running: Jobs that hold boards or nodes.
        busy_share: Busy share of the boards (or processors) that are online, 0-1.
        overloaded: Nodes of which more than 90 % of the CPU or the memory is in use, by jobs and by
            others (0 in the world of boards).
    """

    time_s: Floats
    pending: Integers
    running: Integers
    busy_share: Floats
    overloaded: Integers

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeta:
    """Where a run comes from.

    Attributes:
        scenario: Name of the scenario.
        scenario_hash: See `edgeyard.simulator.scenario.scenario_hash`.
        world: ``boards`` or ``nodes``.
        policy: Name of the policy.
        seed: Of arrivals and faults.
        version: Of Edgeyard.
        wall_s: Real seconds that the simulation took.
        cycles: Decisions (scheduling passes).
        events: Events of the simulation.
        events_sha256: Hash of all events with their times: equal for equal runs.
        figures: Further numbers, by name.
        notes: What the rules of its log left out or completed, in words.
    """

    scenario: str
    scenario_hash: str
    world: str
    policy: str
    seed: int
    version: str
    wall_s: float = 0.0
    cycles: int = 0
    events: int = 0
    events_sha256: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedRun:
    """One scenario under one policy with one seed.

    Attributes:
        boards: Names of the boards or nodes.
        families: The family of each board; "" where there is none.
    """

    meta: RunMeta
    jobs: JobColumns
    occupancy: OccupancyColumns
    series: SeriesColumns
    boards: tuple[str, ...]
    families: tuple[str, ...] = ()

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Which jobs were completed; shape (jobs,)."""
        return np.asarray(self.jobs.status == COMPLETED, dtype=np.bool_)

    @property
    def schedule(self) -> Schedule:
        """The completed jobs as the metrics take them: submission, last start and end."""
        jobs, done = self.jobs, self.completed
        return Schedule(
            submit=jobs.submit_s[done],
            start=jobs.start_s[done],
            end=jobs.end_s[done],
            procs=jobs.procs[done],
        )


def save_run(run: SimulatedRun, path: Path) -> None:
    """Write a run to a file; its name should end with ``.npz``.

    Raises:
        InvalidInput: The folder is missing, or nothing can be written there.
    """
    meta = {each.name: getattr(run.meta, each.name) for each in fields(RunMeta)}
    columns: dict[str, Any] = {"form": np.array(_FORM), "meta": np.array(json.dumps(meta))}
    columns["boards"] = np.array(run.boards, dtype=np.str_)
    columns["families"] = np.array(run.families, dtype=np.str_)
    for part in ("jobs", "occupancy", "series"):
        value = getattr(run, part)
        for each in fields(value):
            columns[f"{part}.{each.name}"] = getattr(value, each.name)
    try:
        with open_atomically(path) as file:
            np.savez_compressed(file, allow_pickle=False, **columns)
    except OSError as error:
        raise InvalidInput.at(str(path), f"can't be written: {error}") from error


def load_run(path: Path) -> SimulatedRun:
    """Read a run that `save_run` has written.

    Raises:
        InvalidInput: There is no such file, or it is none of a run.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            return _run(dict(columns))
    except FileNotFoundError as error:
        raise InvalidInput.at(str(path), "there is no such file") from error
    except OSError as error:
        raise InvalidInput.at(str(path), f"can't be read: {reason_of(error)}") from error
    except _UNREADABLE as error:
        accepted = "a file that 'edgeyard sim run --out' has written"
        # NumPy takes a file that it does not know for a pickle, and suggests to load it.
        detail = "" if "pickle" in str(error) else f": {error}"
        raise InvalidInput.at(str(path), f"is not a simulated run{detail}", accepted) from error


def _run(columns: dict[str, NDArray[Any]]) -> SimulatedRun:
    if int(columns["form"]) != _FORM:
        raise ValueError(
            f"its format is {int(columns['form'])}, and this version of Edgeyard reads {_FORM}"
        )
    return SimulatedRun(
        meta=_meta(json.loads(str(columns["meta"]))),
        jobs=_part(JobColumns, "jobs", columns),
        occupancy=_part(OccupancyColumns, "occupancy", columns),
        series=_part(SeriesColumns, "series", columns),
        boards=tuple(columns["boards"].tolist()),
        families=tuple(columns["families"].tolist()),
    )


def _meta(stored: dict[str, Any]) -> RunMeta:
    return RunMeta(**{**stored, "notes": tuple(stored["notes"])})


def _part(kind: type[_T], part: str, columns: dict[str, NDArray[Any]]) -> _T:
    found = {each.name: columns[f"{part}.{each.name}"] for each in fields(kind)}  # type: ignore[arg-type]
    if len({each.shape for each in found.values()}) > 1:
        raise ValueError(f"columns of {part} differ in length")
    return kind(**found)
