"""The combinations of a matrix: those that can't work, and whether the others were meant."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product, starmap

from edgeyard.benchmark_api.schemas.answers import LeftOut

PARAMETERS = "parameters"
"""The field of a matrix that has an axis for each of its keys."""

_OF_PARAMETERS = f"{PARAMETERS}/"

_MAX_WARNINGS = 50


def axes_of(matrix: Mapping[str, object]) -> dict[str, list[object]]:
    """Return the values of each axis by its name.

    Args:
        matrix: Lists by field; of ``parameters``, lists by parameter.

    Returns:
        The axes in their order. That of a parameter is named as it stands in a job description,
        e.g. ``parameters/threads``.
    """
    axes: dict[str, list[object]] = {}
    for name, values in matrix.items():
        if name == PARAMETERS and isinstance(values, Mapping):
            axes |= {f"{_OF_PARAMETERS}{key}": list(each) for key, each in values.items()}
        elif isinstance(values, Sequence):
            axes[name] = list(values)
    return axes


def members_of(
    axes: Mapping[str, Sequence[object]], common: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """Yield the job description of each combination, the last axis varying fastest.

    Args:
        axes: As `axes_of` returns them.
        common: The fields that all share; its ``parameters``, if any, are an object.
    """
    for combination in values_of(axes):
        member = dict(common)
        shared = common.get(PARAMETERS)
        parameters = dict(shared) if isinstance(shared, Mapping) else {}
        for axis, value in combination.items():
            if axis.startswith(_OF_PARAMETERS):
                parameters[axis.removeprefix(_OF_PARAMETERS)] = value
                member[PARAMETERS] = parameters
            else:
                member[axis] = value
        yield member


def values_of(axes: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    """Yield the values of each combination by axis, in the order of `members_of`."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def value_text(value: object) -> str:
    """Return a value of an axis as people write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
        f"left out {' × '.join(starmap(value_of_axis, each.values.items()))}: "
        f"{'; '.join(each.reasons)}"
        for each in left_out[:_MAX_WARNINGS]
    ]
    more = len(left_out) - len(found)
    return [*found, f"left out {more} more combinations"] if more else found


def value_of_axis(axis: str, text: str) -> str:
    """Return a value as a sentence names it: that of a parameter with its name."""
    name = axis.removeprefix(_OF_PARAMETERS)
    return text if name == axis else f"{name}={text}"
