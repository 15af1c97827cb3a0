"""Numbers that models read from the ``extra`` of job descriptions, as inputs ``extra.<name>``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

EXTRA_INPUT_PATTERN = re.compile(r"^extra\.[A-Za-z0-9_-]{1,64}$")
"""Names of such inputs in manifests; they are the names of diagnostics of answers, too."""


def extra_number(extra: Mapping[str, object], name: str) -> float:
    """Return the number that a description states for an input ``extra.<name>``.

    Args:
        extra: Of the description.
        name: Of the input; matches `EXTRA_INPUT_PATTERN`.

    Returns:
        NaN where it states none, or something else than a finite number.
    """
    value = extra.get(name.removeprefix("extra."))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def extra_problem(extra: Mapping[str, object], name: str, *, required: bool) -> str:
    """Return why a model can't rate a benchmark with this ``extra``; "" if it can.

    A value that is no number is a problem for inputs with a default, too: the default would hide
    what the user has stated.

    Args:
        extra: As for `extra_number`.
        name: As for `extra_number`.
        required: The input has no default.
    """
    key = name.removeprefix("extra.")
    if key not in extra:
        return f"the benchmark states no {name}, which the model requires" if required else ""
    if math.isnan(extra_number(extra, name)):
        return f"{name} of the benchmark is not a finite number, and the model reads one"
    return ""
