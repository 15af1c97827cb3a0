"""Finds out why each benchmark of a cycle waits; the words are `waiting_reasons`'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.pins import PinVerdict, explained, pin_verdict
from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason


class WaitingReasons(Mapping[str, WaitReason]):
    """Reasons of all benchmarks that wait, by id; each is put into words when it is asked for."""

    def __init__(self, decided: Decisions) -> None:
        self._decided = decided
        self._by_class: dict[int, WaitReason] = {}
        self._first: dict[tuple[int, int, bool], WaitReason] = {}
        self._counts: dict[bool, dict[int, int]] = {True: {}, False: {}}

    def __len__(self) -> int:
        return int((self._decided.assignment.board_of_job == NO_ROW).sum())

    def __iter__(self) -> Iterator[str]:
        decided = self._decided
        waits = decided.assignment.board_of_job[decided.order] == NO_ROW
        for job in decided.order[waits].tolist():
            yield decided.pending[job].benchmark_id

    def __getitem__(self, benchmark_id: str) -> WaitReason:
        job = self._job(benchmark_id)
        verdict = self._pin_verdict(job)
        pin = self._decided.pending[job].pin
        if verdict is None or pin is None:
            return self._of(job)
        return explained(pin, verdict)

    def pin_verdict(self, benchmark_id: str) -> PinVerdict | None:
        """Judge a benchmark that waits; None: it is not pinned, or no board could ever run it.

        Raises:
            KeyError: It does not wait in this cycle.
        """
        return self._pin_verdict(self._job(benchmark_id))

    def _job(self, benchmark_id: str) -> int:
        job = self._decided.row_of_id[benchmark_id]
        if self._decided.placed(job):
            raise KeyError(benchmark_id)
        return job

    def _pin_verdict(self, job: int) -> PinVerdict | None:
        pin = self._decided.pending[job].pin
        if pin is None or self._decided.never[int(self._decided.batch.class_of_job[job])]:
            return None
        return pin_verdict(pin, self._of(job))

    def _of(self, job: int) -> WaitReason:
        decided = self._decided
        row = int(decided.batch.class_of_job[job])
        each = decided.pending[job]
        if decided.never[row]:
            return self._boards(row)
        if each.not_ready is not None:
            return each.not_ready
        if each.start_time is not None and each.start_time > decided.now:
            return waiting_reasons.starts_later(each.start_time)
        if job in decided.preempted.boards_to_clear:
            board = decided.snapshot.uids[decided.preempted.boards_to_clear[job]]
            return waiting_reasons.preemption_under_way(board)
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
        """Return what the class's boards lack, from those that came furthest."""
        if row not in self._by_class:
            self._by_class[row] = _boards_reason(self._decided, row)
        return self._by_class[row]

    def _others_first(self, row: int, ahead: int, *, busy: bool) -> WaitReason:
        key = (row, waiting_reasons.coarse(ahead), busy)
        if key not in self._first:
            possible = self._decided.feasibility.possible[row]
            self._first[key] = waiting_reasons.others_first(
                self._decided.snapshot.uids[int(possible.argmax())],
                int(np.count_nonzero(possible)),
                key[1],
                busy=busy,
            )
        return self._first[key]

    def _ahead(self, job: int, *, of_waiting: bool) -> int:
        """Count those that come first and could use the same boards, of all or of those waiting."""
        counts = self._counts[of_waiting]
        if job not in counts:
            queue, groups, overlap = self._groups
            group = int(groups[np.flatnonzero(queue == job)[0]])
            could = overlap[group][groups]
            if of_waiting:
                could &= self._decided.assignment.board_of_job[queue] == NO_ROW
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
        """The classes for which a board is free before any is given out."""
        return frozenset(self._decided.scores.pairs.filled.tolist())


def _overlap(possible: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Group classes by the boards that they could use, and find which groups share a board.

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
    """Return one row of each kind, and the kind of each row."""
    packed = np.ascontiguousarray(np.packbits(table, axis=1))
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, kind = np.unique(rows, return_index=True, return_inverse=True)
    return first, kind


def _boards_reason(decided: Decisions, row: int) -> WaitReason:
    """Return why no board runs the class now, or ever."""
    found, batch = decided.feasibility, decided.batch
    names = decided.snapshot.uids
    boards = decided.by_uid[found.possible[row, decided.by_uid]]
    never = not len(boards)
    if never:
        boards = decided.by_uid
    if not len(boards):
        return waiting_reasons.no_known_board()
    codes = found.codes[row, boards]
    places = np.array([-1, *(reason.place for reason in found.reasons)])[codes]
    nearest = int(boards[int(places.argmax())])
    reason = found.reason(int(found.codes[row, nearest]))
    code, plugin, uid = reason.refusal.reason, reason.plugin, names[nearest]
    phrase = decided.phrase(row, nearest)
    if never:
        sentence = waiting_reasons.infeasible_sentence(uid, phrase, len(boards) - 1)
        if plugin is not None:
            alike = boards[codes == found.codes[row, nearest]]
            sentence = decided.runner.words(
                plugin.name, lambda: plugin.explain_infeasible(batch, row, alike), sentence
            )
        return waiting_reasons.infeasible(code, sentence)
    if plugin is None:
        return waiting_reasons.failed_filter(reason.fault)
    if code is WaitingReason.CLUSTER_UNREACHABLE and batch.stale:
        age_s, answered_at = decided.snapshot.age_s, decided.snapshot.taken_at
        known = answered_at if np.isfinite(age_s) else None
        return waiting_reasons.cluster_unreachable(age_s, known, batch.twin_max_age_s)
    if len(boards) == 1:
        return waiting_reasons.refused_board(code, uid, phrase)
    others: Counter[WaitingReason] = Counter()
    for other, count in zip(*np.unique(codes[boards != nearest], return_counts=True), strict=True):
        others[found.reason(int(other)).refusal.reason] += int(count)
    return waiting_reasons.refused_boards(code, uid, phrase, len(boards), others)
