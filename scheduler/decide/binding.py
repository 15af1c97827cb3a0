"""How firmly a placement is bound, and the boards that a job must be kept to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import (
    NOBODY,
    attribute_column,
    has_engine,
    has_family,
    is_board,
    supports,
)
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason
from edgeyard.scheduler.model.decision import PendingBenchmark

_KEPT_OUT = frozenset(
    {
        WaitingReason.RESERVED,
        WaitingReason.UNKNOWN_BOARD,
        WaitingReason.FILTER_FAILED,
        WaitingReason.BOARD_UNHEALTHY,
        WaitingReason.QUOTA,
        WaitingReason.BUDGET,
    }
)
"""Refusals that the job itself doesn't state, so that the cluster would not keep to them."""

_MAX_ALLOWED = 100
"""Longest allow-list: it is part of the job's text, and any part of the list is right."""


def bindings_of(pending: Sequence[PendingBenchmark], policy: Policy, age_s: float) -> list[Binding]:
    """Return each benchmark's own binding, or the policy's, or strict with a fresh twin.

    A loose job doesn't state a board: one that asks for a board is strict instead.
    """
    otherwise = policy.binding
    if otherwise is None:
        otherwise = Binding.STRICT if age_s <= policy.fresh_age_s else Binding.FILTERED
    found = [each.binding or otherwise for each in pending]
    if Binding.LOOSE in found:
        for job, each in enumerate(pending):
            if found[job] is Binding.LOOSE and each.target_uid is not None:
                found[job] = Binding.STRICT
    return found


class AllowLists:
    """Allow-lists of one cycle's placements; what depends on the class alone is made once."""

    def __init__(self, decided: Decisions) -> None:
        """Start without any list."""
        self._decided, self._batch = decided, decided.batch
        self._masks: dict[tuple[int, Binding], tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}

    def of(self, row: int, board: int, binding: Binding, each: PendingBenchmark) -> tuple[str, ...]:
        """Return the boards to which the job must be confined; none where its constraints do that.

        Args:
            row: Its class.
            board: The board that was chosen.
            binding: How it is bound.
            each: The benchmark. Boards on which it failed are left out if another was found, and
                those that have just failed it in any case.
        """
        if binding is Binding.STRICT:
            return ()
        uids = self._batch.snapshot.uids
        matching, excluded = self._of_class(row, binding)
        tried = frozenset() if uids[board] in each.tried_uids else each.tried_uids
        tried |= each.resting_uids(self._batch.now)
        if tried:
            again = np.array([uid in tried for uid in uids], dtype=bool)
            excluded = excluded | (matching & again)
        if excluded[board]:  # reserved for this very one, or given to it
            excluded = excluded.copy()
            excluded[board] = False
        if not excluded.any() and not self._batch.snapshot.guarded:
            return ()
        allowed = np.flatnonzero(matching & ~excluded & self._batch.snapshot.online)
        # Free ones first: those are the ones that the cluster can use now.
        free = self._decided.feasibility.fits[row, allowed]
        nearest = allowed[np.argsort(~free, kind="stable")][:_MAX_ALLOWED].tolist()
        return tuple(sorted({uids[board], *(uids[each] for each in nearest)}))

    def _of_class(self, row: int, binding: Binding) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the boards that match what the job states, and which of them it must not get."""
        if (row, binding) not in self._masks:
            snapshot = self._batch.snapshot
            matching = self._matching(row, binding)
            kept_out = (
                ~snapshot.expected
                | snapshot.drained
                | (snapshot.online & ~snapshot.healthy)
                | self._kept_out[self._decided.feasibility.codes[row]]
                | self._decided.timeline.late_of(row)
                | self._firm
                | self._sharing
            )
            self._masks[row, binding] = matching, matching & kept_out
        return self._masks[row, binding]

    @cached_property
    def _kept_out(self) -> NDArray[np.bool_]:
        """Whether the job must be kept off boards with a refusal, by its code."""
        reasons = self._decided.feasibility.reasons
        return np.array([False, *(each.refusal.reason in _KEPT_OUT for each in reasons)], np.bool_)

    @cached_property
    def _firm(self) -> NDArray[np.bool_]:
        """Whether a job goes there that names it or that is to start now, shape (boards,)."""
        decided = self._decided
        firm = np.zeros(self._batch.shape[1], dtype=np.bool_)
        fixed = np.array([each is Binding.STRICT for each in decided.bindings], dtype=np.bool_)
        fixed[list(decided.timeline.due_boards)] = True
        given = decided.assignment.board_of_job[fixed]
        firm[given[given != NOBODY]] = True
        for each in decided.holders:
            if each.strict and each.started_at is None:
                row = self._batch.row_of_uid.get(each.target_uid)
                if row is not None:
                    firm[row] = True
        return firm

    @cached_property
    def _sharing(self) -> NDArray[np.bool_]:
        """Whether each board shares cores with another one, shape (boards,).

        Of these a job may get the chosen one alone: until it has started nobody knows which board
        the cluster took, and only around the chosen one are the boards that share cores kept free.
        """
        conflicts = self._batch.snapshot.conflicts
        if conflicts is None:
            return np.zeros(self._batch.shape[1], dtype=np.bool_)
        return np.asarray(conflicts.any(axis=0) | conflicts.any(axis=1), dtype=np.bool_)

    def _matching(self, row: int, binding: Binding) -> NDArray[np.bool_]:
        batch, snapshot = self._batch, self._batch.snapshot
        matching: NDArray[np.bool_] = (
            has_family(batch, batch.families[row])
            & has_engine(batch, batch.engines[row])
            & supports(batch, batch.engines[row], batch.types[row])
        )
        if binding is Binding.LOOSE:
            return matching
        matching = (
            matching
            & (snapshot.ram_bytes >= batch.ram_bytes[row])
            & (snapshot.storage_bytes >= batch.storage_bytes[row])
            & is_board(batch, batch.target_uids[row])
        )
        for constraint in batch.constraints[row]:
            matching = matching & attribute_column(batch, constraint.attribute).meets(constraint)
        return matching
