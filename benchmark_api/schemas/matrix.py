"""Which combinations of a matrix can't work, and whether the others are still what was meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from edgeyard.benchmark_api.schemas.answers import LeftOut

_MAX_WARNINGS = 50


def positions_left_out(
    combinations: Sequence[Mapping[str, object]], wrong: Collection[int]
) -> list[int]:
    """Return the positions of combinations that a matrix is submitted without.

    A pair that can't work, such as a ``.tflite`` model and the runtime ort, is left out. A value
    that works in no combination is a mistake.

    Args:
        combinations: The values of each, by axis.
        wrong: Positions of those that are refused.

    Returns:
        ``wrong`` in order if each value is part of a combination that works; otherwise none.
    """
    if len(wrong) == len(combinations):
        return []
    working = {
        (axis, str(value))
        for position, each in enumerate(combinations)
        if position not in wrong
        for axis, value in each.items()
    }
    values = {(axis, str(value)) for each in combinations for axis, value in each.items()}
    return sorted(wrong) if values == working else []


def left_out_warnings(left_out: Sequence[LeftOut]) -> list[str]:
    """Return a sentence for each combination that is left out: for the first fifty of them."""
    found = [
        f"left out {' × '.join(each.values.values())}: {'; '.join(each.reasons)}"
        for each in left_out[:_MAX_WARNINGS]
    ]
    more = len(left_out) - len(found)
    return [*found, f"left out {more} more combinations"] if more else found
