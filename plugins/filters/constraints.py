"""Users' constraints on attributes of boards and of the nodes that they are attached to."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.constraints import meets
from edgeyard.devices.operators import is_of_node
from edgeyard.scheduler.framework.batch import AttributeColumn, Batch, attribute_column, by_value
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import Constraint, WaitingReason

_NEVER, _NOT_NOW = 1, 2


class ConstraintsFilter(Filter):
    """Refuses boards that miss a constraint, compared as Nomad compares.

    The refusal is final unless the attribute may change: ``dynamic.*`` attributes and those of
    nodes do, and those of an offline board are unknown.
    """

    name = "constraints"
    refusals = (
        Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=True),
        Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        if not any(batch.constraints):
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        # Boards are compared once with each different constraint.
        different = {each for row in batch.constraints for each in row}
        published = {
            name: attribute_column(batch, name) for name in {each.attribute for each in different}
        }
        columns = {each: _codes(batch, each, published[each.attribute]) for each in different}

        def having(code: int, constraints: tuple[Constraint, ...]) -> NDArray[np.bool_]:
            found = np.zeros(batch.shape[1], dtype=np.bool_)
            for each in constraints:
                found |= columns[each] == code
            return found

        never = by_value(batch, batch.constraints, partial(having, _NEVER))
        not_now = by_value(batch, batch.constraints, partial(having, _NOT_NOW))
        codes = not_now.astype(np.uint8) * np.uint8(_NOT_NOW)
        codes[never] = _NEVER
        return codes

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        attributes = batch.snapshot.attributes[board]
        missed = [
            f"{_text_of(each)}: {_found(batch, board, each)}"
            for each in batch.constraints[row]
            if not meets(each.attribute, attributes.get(each.attribute), each.operator, each.value)
        ]
        return "misses " + " and ".join(missed)

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        for each in batch.constraints[row]:
            if not attribute_column(batch, each.attribute).meets(each)[boards].any():
                values = sorted({_found(batch, int(board), each) for board in boards})
                shown = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
                return f"no board that fits otherwise meets {_text_of(each)}; found there: {shown}"
        return ""


def _codes(batch: Batch, each: Constraint, column: AttributeColumn) -> NDArray[np.uint8]:
    """Shape (boards,): 0 if the board meets the constraint, otherwise the code of the refusal."""
    may_change = ~batch.snapshot.online & ~column.published
    if each.attribute.startswith("dynamic.") or is_of_node(each.attribute):
        may_change = np.ones_like(may_change)
    missed = np.where(may_change, _NOT_NOW, _NEVER)
    return np.where(column.meets(each), 0, missed).astype(np.uint8)


def _text_of(each: Constraint) -> str:
    return f"the constraint {each.attribute} {each.operator} {each.value}".rstrip()


def _found(batch: Batch, board: int, each: Constraint) -> str:
    value = batch.snapshot.attributes[board].get(each.attribute)
    return "not published" if value is None else f"{value}"
