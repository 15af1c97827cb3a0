"""Which combinations of a matrix can't work, and whether the others are still what was meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


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
