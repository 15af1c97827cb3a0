"""How firmly a placement is bound, and the boards that a job must be kept to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import (
    NO_ROW,
    attribute_column,
    has_engine,
    has_family,
    is_board,
    supports,
)
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.waiting_reasons import BOARD_REFUSALS

_UNSTATED_REFUSALS = frozenset(reason for reason, each in BOARD_REFUSALS.items() if each.unstated)

_MAX_ALLOWED = 100
"""Maximum boards of an allow-list, which is part of the job's text and may be cut."""


def bindings_of(pending: Sequence[PendingBenchmark], policy: Policy, age_s: float) -> list[Binding]:
    """Return each benchmark's own binding, or the policy's, or strict with a fresh twin.

    A loose job states neither a board nor constraints of the user's: one that asks for a board is
    strict instead, and one with constraints or a completion threshold is filtered. All of a gang
    are strict: each has its board from the start.
    """
    otherwise = policy.binding
    if otherwise is None:
        otherwise = Binding.STRICT if age_s <= policy.fresh_age_s else Binding.FILTERED
    found = [
        Binding.STRICT if each.gang_id is not None else each.binding or otherwise
        for each in pending
    ]
    if Binding.LOOSE in found:
        for job, each in enumerate(pending):
            if found[job] is Binding.LOOSE and each.target_uid is not None:
                found[job] = Binding.STRICT
            elif found[job] is Binding.LOOSE and _states_constraints(each):
                found[job] = Binding.FILTERED
    return found


def _states_constraints(each: PendingBenchmark) -> bool:
    """Return whether a benchmark states more of its board than a loose job does."""
    return bool(each.constraints or each.job_completion_threshold)


@dataclass(frozen=True, slots=True)
class Confinement:
    """Binding of one placement's job, with its allowed boards.

    Attributes:
        allowed_uids: Boards to which the job must be confined; none where its constraints do that.
        reason: Why it is not bound as loosely as was asked for; "" if it is.
    """

    binding: Binding
    allowed_uids: tuple[str, ...] = ()
    reason: str = ""


STRICT = Confinement(Binding.STRICT)
"""Reason of a job whose benchmark names its board."""

_NAMES_A_BOARD = "strict instead of loose: the benchmark names its board"
_STATES_CONSTRAINTS = "filtered instead of loose: the benchmark states constraints or a threshold"


class AllowLists:
    """Bindings and allow-lists of one cycle's placements; what a class shares is made once."""

    def __init__(self, decided: Decisions) -> None:
        """Start without any list."""
        self._decided, self._batch = decided, decided.batch
        self._masks: dict[int, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}

    def of(self, job: int, row: int, board: int, binding: Binding) -> Confinement:
        """Return how a job is bound, and the boards to which it must be confined.

        A loose job states no boards, so where it could get one that it must not get it is filtered
        instead. Boards that may appear later are left to the cluster: a loose job that gets an
        unknown one is taken back.

        Boards on which it failed are left out if another was found, and those that have just
        failed it in any case.

        Args:
            job: Row of the benchmark.
            row: Its class.
            board: The board that was chosen.
            binding: How it is bound.
        """
        each = self._decided.pending[job]
        requested = each.binding or self._decided.policy.binding
        if binding is STRICT.binding:
            pinned = each.target_uid is not None and requested is Binding.LOOSE
            return Confinement(binding, reason=_NAMES_A_BOARD) if pinned else STRICT
        uids = self._batch.snapshot.uids
        matching, excluded = self._of_class(row)
        late = self._decided.timeline.without(job).late_of(row)
        excluded = excluded | (matching & late)
        tried = frozenset() if uids[board] in each.tried_uids else each.tried_uids
        tried |= each.avoided_uids(self._batch.now)
        if tried:
            again = np.array([uid in tried for uid in uids], dtype=bool)
            excluded = excluded | (matching & again)
        if excluded[board]:  # reserved for this very one, or given to it
            excluded = excluded.copy()
            excluded[board] = False
        if not excluded.any() and (binding is Binding.LOOSE or not self._batch.snapshot.guarded):
            reason = (
                _STATES_CONSTRAINTS
                if requested is not binding and requested is Binding.LOOSE
                else ""
            )
            return Confinement(binding, reason=reason)
        allowed = np.flatnonzero(matching & ~excluded & self._batch.snapshot.online)
        # Free ones first: those are the ones that the cluster can use now.
        free = self._decided.feasibility.fits[row, allowed]
        nearest = allowed[np.argsort(~free, kind="stable")][:_MAX_ALLOWED].tolist()
        return Confinement(
            Binding.FILTERED,
            tuple(sorted({uids[board], *(uids[each] for each in nearest)})),
            self._reason(row, excluded, tried) if requested is Binding.LOOSE else "",
        )

    def _reason(self, row: int, excluded: NDArray[np.bool_], tried: frozenset[str]) -> str:
        """Return why a job is not loose: the first board that it must not get, and how many."""
        boards = np.flatnonzero(excluded).tolist()
        if not boards:
            return _STATES_CONSTRAINTS
        first = boards[0]
        uid = self._batch.snapshot.uids[first]
        more = f" (and {len(boards) - 1} more)" if len(boards) > 1 else ""
        return f"filtered instead of loose: {uid} {self._why(row, first, uid in tried)}{more}"

    def _why(self, row: int, board: int, tried: bool) -> str:
        """Return why a job must not get a board, as a phrase after the board's name."""
        decided, snapshot = self._decided, self._batch.snapshot
        code = int(decided.feasibility.codes[row, board])
        if self._kept_out[code]:
            return decided.phrase(row, board)
        states = (
            (~snapshot.expected, "is not in the inventory, so it is never used"),
            (snapshot.drained, "is drained"),
            (~snapshot.healthy, "is unhealthy"),
            (decided.timeline.late_of(row), "is reserved before the run would be over"),
            (self._claimed, "is taken by a job on its way there"),
            (self._sharing, "shares cores with another board"),
        )
        if tried:
            return "has failed it"
        return next((text for column, text in states if column[board]), "must not be used")

    def _of_class(self, row: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the boards that match what the job states, and which of them it must not get.

        Those on which it would be late for a reservation are not among the latter.
        """
        if row not in self._masks:
            snapshot = self._batch.snapshot
            matching = self._matching(row)
            kept_out = (
                ~snapshot.expected
                | snapshot.drained
                | (snapshot.online & ~snapshot.healthy)
                | self._kept_out[self._decided.feasibility.codes[row]]
                | self._claimed
                | self._sharing
            )
            self._masks[row] = matching, matching & kept_out
        return self._masks[row]

    @cached_property
    def _kept_out(self) -> NDArray[np.bool_]:
        """Return by refusal code whether the job must be kept off the refused boards."""
        reasons = self._decided.feasibility.reasons
        kept_out = (
            each.refusal.reason in _UNSTATED_REFUSALS
            # What the job states does not match anyway; a prediction may be wrong.
            or (each.refusal.never and each.refusal.reason != WaitingReason.DEADLINE_UNREACHABLE)
            for each in reasons
        )
        return np.array([False, *kept_out], np.bool_)

    @cached_property
    def _claimed(self) -> NDArray[np.bool_]:
        """Whether a board goes to a job that names it or has a due reservation, shape (boards,)."""
        decided = self._decided
        firm = np.zeros(self._batch.shape[1], dtype=np.bool_)
        fixed = np.array([each is Binding.STRICT for each in decided.bindings], dtype=np.bool_)
        fixed[list(decided.timeline.due_boards)] = True
        given = decided.assignment.board_of_job[fixed]
        firm[given[given != NO_ROW]] = True
        for each in decided.holders:
            if each.strict and each.started_at is None:
                row = self._batch.row_of_uid.get(each.target_uid)
                if row is not None:
                    firm[row] = True
        return firm

    @cached_property
    def _sharing(self) -> NDArray[np.bool_]:
        """Whether each board shares cores with another one, shape (boards,).

        Of these a job may get the chosen one alone: until it has started it is unknown which board
        the cluster took, and only around the chosen one are the boards that share cores kept free.
        """
        conflicts = self._batch.snapshot.conflicts
        if conflicts is None:
            return np.zeros(self._batch.shape[1], dtype=np.bool_)
        return np.asarray(conflicts.any(axis=0) | conflicts.any(axis=1), dtype=np.bool_)

    def _matching(self, row: int) -> NDArray[np.bool_]:
        batch, snapshot = self._batch, self._batch.snapshot
        matching: NDArray[np.bool_] = (
            has_family(batch, batch.families[row])
            & has_engine(batch, batch.engines[row])
            & supports(batch, batch.engines[row], batch.types[row])
            & (snapshot.ram_bytes >= batch.ram_bytes[row])
            & (snapshot.storage_bytes >= batch.storage_bytes[row])
            & is_board(batch, batch.target_uids[row])
        )
        for constraint in batch.constraints[row]:
            matching = matching & attribute_column(batch, constraint.attribute).meets(constraint)
        return matching
