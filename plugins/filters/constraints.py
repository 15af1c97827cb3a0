"""Conditions of users' own on a board's attributes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, by_value, meets
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import Constraint, WaitingReason

_NEVER, _NOT_NOW = 1, 2


class ConstraintsFilter:
    """Refuses boards that miss a constraint, compared as Nomad compares.

    For ever, unless the attribute may change: ``dynamic.*`` ones do, and what a board that is
    offline publishes is not known.
    """

    name = "constraints"
    refusals = (
        Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=True),
        Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        if not any(batch.constraints):
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        # One look at the boards for each different constraint, whatever lists it is in.
        columns = {
            constraint: self._column(batch, constraint)
            for constraint in {each for row in batch.constraints for each in row}
        }

        def having(code: int, constraints: tuple[Constraint, ...]) -> NDArray[np.bool_]:
            found = np.zeros(batch.shape[1], dtype=np.bool_)
            for each in constraints:
                found |= columns[each] == code
            return found

        never = by_value(batch, batch.constraints, partial(having, _NEVER))
        not_now = by_value(batch, batch.constraints, partial(having, _NOT_NOW))
        return np.where(never, _NEVER, np.where(not_now, _NOT_NOW, 0)).astype(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        for each in batch.constraints[row]:
            if self._column(batch, each)[board] == code:
                return f"misses {_told(each)}: {_found(batch, board, each)}"
        return "misses a constraint"

    def nowhere(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.nowhere`."""
        for each in batch.constraints[row]:
            column = self._column(batch, each)
            if (column[boards] == _NEVER).all():
                values = sorted({_found(batch, int(board), each) for board in boards})
                told = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
                return f"no board that fits otherwise meets {_told(each)}; found there: {told}"
        return ""

    @staticmethod
    def _column(batch: Batch, constraint: Constraint) -> NDArray[np.uint8]:
        met = meets(batch, constraint)
        if constraint.attribute.startswith("dynamic."):
            return np.where(met, 0, _NOT_NOW).astype(np.uint8)
        unknown = ~batch.snapshot.online
        if unknown.any():
            told = [constraint.attribute in each for each in batch.snapshot.attributes]
            unknown = unknown & ~np.array(told, dtype=bool)
        return np.where(met, 0, np.where(unknown, _NOT_NOW, _NEVER)).astype(np.uint8)


def _told(each: Constraint) -> str:
    return f"the constraint {each.attribute} {each.operator} {each.value}".rstrip()


def _found(batch: Batch, board: int, each: Constraint) -> str:
    value = batch.snapshot.attributes[board].get(each.attribute)
    return "not published" if value is None else f"{value}"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = ConstraintsFilter()
