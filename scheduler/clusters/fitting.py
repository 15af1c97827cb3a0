"""Chooses a board that meets the conditions of a job, or explains why there is none yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.constraints import meets
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.devices.operators import is_of_node

_NAMED_BOARDS = 5  # in a sentence for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A constraint on an attribute of the board, or of its node (``${node.class}``)."""

    attribute: str
    operator: str
    value: str

    def __str__(self) -> str:
        of_node = is_of_node(self.attribute)
        name = self.attribute if of_node else f"${{device.attr.{self.attribute}}}"
        return f"{name} {self.operator} {self.value}".rstrip()


def choose(
    boards: Sequence[Board],
    conditions: Sequence[Condition],
    unavailable: Callable[[Board], str],
    attributes: Callable[[Board], dict[str, AttributeValue]] = attributes_of,
) -> tuple[Board | None, str]:
    """Return the first available board that meets all conditions, or None and the reason.

    Args:
        unavailable: Why a board can't be had now; "" when it can.
        attributes: Of a board, as conditions see them.
    """
    fitting = tuple(boards)
    for condition in conditions:
        before = fitting
        fitting = _meeting(condition, before, attributes)
        if not fitting:
            return None, f"no matching board: {condition} excludes all of {len(before)}"
    if not fitting:
        return None, "there are no boards"
    reasons = []
    for board in fitting:
        reason = unavailable(board)
        if not reason:
            return board, ""
        reasons.append(f"{board.target_uid} {reason}")
    more = len(reasons) - _NAMED_BOARDS
    named = "; ".join(reasons[:_NAMED_BOARDS]) + (f"; and {more} more" if more > 0 else "")
    return None, f"no matching board can be had now: {named}"


def _meeting(
    condition: Condition,
    boards: Sequence[Board],
    attributes: Callable[[Board], dict[str, AttributeValue]],
) -> tuple[Board, ...]:
    """Return the boards that meet a condition; boards publish few different values."""
    verdicts: dict[tuple[type, AttributeValue | None], bool] = {}
    found = []
    for board in boards:
        value = attributes(board).get(condition.attribute)
        key = type(value), value  # True, 1 and 1.0 are equal keys, but compare differently
        met = verdicts.get(key)
        if met is None:
            met = meets(condition.attribute, value, condition.operator, condition.value)
            verdicts[key] = met
        if met:
            found.append(board)
    return tuple(found)
