"""Why a benchmark waits: a code and a sentence that helps whoever reads it.

The same state of affairs gives the same words, whenever it is asked: nothing that merely passes
with time (an age, a countdown) is told to the second, so that a stored reason changes only when
something did.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import NOBODY
from edgeyard.scheduler.framework.runner import failed_filter_sentence
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason

_STATE_WORDS: Mapping[WaitingReason, str] = {
    WaitingReason.BOARD_BUSY: "busy",
    WaitingReason.BOARD_OFFLINE: "offline",
    WaitingReason.BOARD_UNHEALTHY: "unhealthy",
    WaitingReason.RESERVED: "reserved",
    WaitingReason.UNKNOWN_BOARD: "not on the inventory",
    WaitingReason.DEADLINE_UNREACHABLE: "predicted to be too slow",
    WaitingReason.BUDGET: "predicted to cost too much",
}
_COARSE = tuple(step * 10**power for power in range(1, 7) for step in (1, 2, 5))
_COARSE_AGES_S = (10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)


class WaitingReasons(Mapping[str, WaitReason]):
    """Reasons of all benchmarks that wait, by id; each is put into words when it is asked for."""

    def __init__(self, decided: Decisions) -> None:
        self._decided = decided
        self._by_class: dict[int, WaitReason] = {}
        self._first: dict[tuple[int, int, bool], WaitReason] = {}
        self._counts: dict[bool, dict[int, int]] = {True: {}, False: {}}

    def __len__(self) -> int:
        return int((self._decided.assignment.board_of_job == NOBODY).sum())

    def __iter__(self) -> Iterator[str]:
        decided = self._decided
        waits = decided.assignment.board_of_job[decided.order] == NOBODY
        for job in decided.order[waits].tolist():
            yield decided.pending[job].benchmark_id

    def __getitem__(self, benchmark_id: str) -> WaitReason:
        job = self._decided.row_of_id[benchmark_id]
        if self._decided.placed(job):
            raise KeyError(benchmark_id)
        return self._of(job)

    def _of(self, job: int) -> WaitReason:
        decided = self._decided
        row = int(decided.batch.class_of_job[job])
        each = decided.pending[job]
        if decided.never[row]:
            return self._boards(row)
        if each.not_ready is not None:
            return each.not_ready
        if each.start_time is not None and each.start_time > decided.now:
            return WaitReason(
                reason=WaitingReason.START_TIME,
                sentence=f"it is to start at {_moment(each.start_time)}, not before",
            )
        if job in decided.preempted.makes_way:
            board = decided.snapshot.uids[decided.preempted.makes_way[job]]
            return WaitReason(
                reason=WaitingReason.BOARD_BUSY,
                sentence=f"waits for {board}: the less urgent benchmark there makes way for it",
            )
        if job in decided.assignment.withheld:
            return decided.assignment.withheld[job]
        if row not in self._classes_that_fit:
            waiting = self._boards(row)
            if waiting.reason is not WaitingReason.BOARD_BUSY:
                return waiting
            ahead = self._ahead(job, of_waiting=True)
            return self._others_first(row, ahead, busy=True) if ahead else waiting
        return self._others_first(row, self._ahead(job, of_waiting=False), busy=False)

    def _boards(self, row: int) -> WaitReason:
        """What the class's boards lack; told of the ones that came furthest."""
        if row not in self._by_class:
            self._by_class[row] = _boards_sentence(self._decided, row)
        return self._by_class[row]

    def _others_first(self, row: int, ahead: int, *, busy: bool) -> WaitReason:
        key = (row, _coarse(ahead), busy)
        if key not in self._first:
            self._first[key] = WaitReason(
                reason=WaitingReason.PRIORITY,
                sentence=_first_sentence(self._decided, row, key[1], busy=busy),
            )
        return self._first[key]

    def _ahead(self, job: int, *, of_waiting: bool) -> int:
        """How many come first that could use the same boards: of all, or of those that wait."""
        counts = self._counts[of_waiting]
        if job not in counts:
            queue, groups, overlap = self._groups
            group = int(groups[np.flatnonzero(queue == job)[0]])
            could = overlap[group][groups]
            if of_waiting:
                could &= self._decided.assignment.board_of_job[queue] == NOBODY
            its = np.flatnonzero(groups == group)
            ahead = np.cumsum(could) - could
            counts.update(zip(queue[its].tolist(), ahead[its].tolist(), strict=True))
        return counts[job]

    @cached_property
    def _groups(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
        """Rows of those that are ready, first to last; their groups; and which share a board."""
        decided = self._decided
        queue = decided.order[decided.ready[decided.order]]
        group_of_class, overlap = _overlap(decided.feasibility.possible)
        return queue, group_of_class[decided.batch.class_of_job[queue]], overlap

    @cached_property
    def _classes_that_fit(self) -> frozenset[int]:
        """Some board is free for them, before any is given out."""
        return frozenset(self._decided.scores.pairs.filled.tolist())


def _overlap(possible: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Classes grouped by the boards that they could use, and which groups share a board.

    Boards that serve the same classes are looked at once as well: of both there are few kinds.

    Returns:
        Group of each class, shape (classes,); and shape (groups, groups).
    """
    if not possible.size:
        groups = np.zeros(len(possible), dtype=np.intp)
        return groups, np.zeros((min(len(possible), 1),) * 2, dtype=np.bool_)
    first, group_of_class = _kinds(possible)
    different, _ = _kinds(possible[first].T)
    table = possible[first][:, different].astype(np.float32)
    return group_of_class, table @ table.T > 0


def _kinds(table: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One row of each kind, and the kind of each row."""
    packed = np.ascontiguousarray(np.packbits(table, axis=1))
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, kind = np.unique(rows, return_index=True, return_inverse=True)
    return first, kind


def _boards_sentence(decided: Decisions, row: int) -> WaitReason:
    """Why no board does now, or ever."""
    found = decided.feasibility
    names = decided.snapshot.uids
    boards = decided.by_uid[found.possible[row, decided.by_uid]]
    never = not len(boards)
    if never:
        boards = decided.by_uid
    if not len(boards):
        return WaitReason(reason=WaitingReason.NO_SUCH_FAMILY, sentence="no board is known")
    codes = found.codes[row, boards]
    places = np.array([-1, *(reason.place for reason in found.reasons)])[codes]
    nearest = int(boards[int(places.argmax())])
    reason = found.reason(int(found.codes[row, nearest]))
    alike = boards[codes == found.codes[row, nearest]]
    phrase = decided.phrase(row, nearest)
    if never:
        others = len(boards) - 1
        sentence = f"no known board can run it: {names[nearest]} {phrase}" + (
            f"; {_many(others, 'other')} fit no better" if others else ""
        )
        plugin = reason.plugin
        if plugin is not None:
            sentence = decided.runner.words(
                plugin.name, lambda: plugin.explain_infeasible(decided.batch, row, alike), sentence
            )
    elif reason.plugin is None:
        sentence = failed_filter_sentence(reason.fault)
    elif reason.refusal.reason is WaitingReason.CLUSTER_UNREACHABLE and decided.batch.stale:
        return _unreachable(decided)
    elif len(boards) > 1:
        rest: Counter[str] = Counter()
        for code, count in zip(
            *np.unique(codes[boards != nearest], return_counts=True), strict=True
        ):
            word = _STATE_WORDS.get(found.reason(int(code)).refusal.reason, "refused")
            rest[word] += int(count)
        told = ", ".join(f"{_about(count)} {word}" for word, count in sorted(rest.items()))
        sentence = (
            f"waits for one of {len(boards)} boards: {names[nearest]} {phrase}; others: {told}"
        )
    elif reason.refusal.reason is WaitingReason.BOARD_BUSY:
        sentence = f"its board {names[nearest]} {phrase}"
    else:
        sentence = f"waits for {names[nearest]}, which {phrase}"
    return WaitReason(reason=reason.refusal.reason, sentence=sentence)


def _first_sentence(decided: Decisions, row: int, ahead: int, *, busy: bool) -> str:
    possible = decided.feasibility.possible[row]
    boards = int(np.count_nonzero(possible))
    only = decided.snapshot.uids[int(possible.argmax())]
    which = f"its board {only}" if boards == 1 else f"its {boards} boards"
    if not ahead:
        # Nobody ahead wants the same boards: they are kept from it by cores that they share.
        return f"a benchmark that comes first uses the cores of {which}"
    verb = "comes" if ahead == 1 else "come"
    state = f"{which} {'is' if boards == 1 else 'are'} busy"
    first = f"{_about(ahead)} {'benchmark' if ahead == 1 else 'benchmarks'} {verb} first"
    return f"{first}; {state}" if busy else f"{first} for {which}"


def _unreachable(decided: Decisions) -> WaitReason:
    limit = f"nothing is placed on knowledge older than {decided.batch.twin_max_age_s:g} s"
    age = decided.snapshot.age_s
    if not np.isfinite(age) or decided.snapshot.taken_at is None:
        told = "the cluster has not answered yet"
    else:
        coarse = max((step for step in _COARSE_AGES_S if step <= age), default=0)
        told = (
            f"the last answer of the cluster is more than {_duration(coarse)} old "
            f"(of {_moment(decided.snapshot.taken_at)})"
        )
    return WaitReason(reason=WaitingReason.CLUSTER_UNREACHABLE, sentence=f"{told}; {limit}")


def _about(count: int) -> str:
    """A count that doesn't change with every benchmark that ends: exact below 10."""
    return str(count) if count < _COARSE[0] else f"at least {_coarse(count):,}"


def _coarse(count: int) -> int:
    return _COARSE[bisect_right(_COARSE, count) - 1] if count >= _COARSE[0] else count


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _duration(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
