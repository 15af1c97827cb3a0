"""Conditions on versions, decided as Nomad's operators ``version`` and ``semver`` decide them.

A condition is a list such as ``>= 1.17, < 2``, of which all must hold. ``version`` reads versions
of any number of parts and knows ``~>``; there a pre-release only meets a condition that names a
pre-release of the same version. ``semver`` reads ``MAJOR.MINOR.PATCH`` and orders pre-releases as
Semantic Versioning 2.0 does.
"""

import re
from functools import lru_cache
from typing import Optional, Tuple

_OPERATORS = ("=", "!=", ">", "<", ">=", "<=", "~>")
_CONDITION = re.compile(r"\s*(=|!=|>=|<=|~>|>|<)?\s*([^\s=<>!~,]+)\s*")
_LOOSE = re.compile(
    r"v?([0-9]{1,18}(?:\.[0-9]{1,18})*)"
    r"(?:-([0-9]+[0-9A-Za-z\-~]*(?:\.[0-9A-Za-z\-~]+)*)|-?([A-Za-z\-~]+[0-9A-Za-z\-~]*"
    r"(?:\.[0-9A-Za-z\-~]+)*))?(?:\+[0-9A-Za-z\-~.]+)?"
)
_STRICT = re.compile(
    r"v?((?:0|[1-9][0-9]{0,17})(?:\.(?:0|[1-9][0-9]{0,17})){2})"
    r"(?:-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(?:\+[0-9A-Za-z\-.]+)?"
)

Version = Tuple[Tuple[int, ...], int, str]
"""Parts without zeros at their end, how many were written, and the pre-release or ""."""

Condition = Tuple[str, Version]


def meets(version: str, conditions: str, *, strict: bool) -> bool:
    """Return whether a version meets all conditions; False where one of the two can't be read."""
    found = _parse(version, strict)
    if found is None:
        return False
    try:
        wanted = parse_conditions(conditions, strict=strict)
    except ValueError:
        return False
    return all(_meets(found, operator, each, strict) for operator, each in wanted)


@lru_cache(maxsize=4096)
def parse_conditions(text: str, *, strict: bool) -> Tuple[Condition, ...]:
    """Read a list of conditions.

    Raises:
        ValueError: It is none; the part that is wrong is named.
    """
    found = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        version = None if match is None else _parse(match.group(2), strict)
        if match is None or version is None:
            form = "MAJOR.MINOR.PATCH" if strict else "a version"
            raise ValueError(f"{part.strip()!r} is not {form} after one of {', '.join(_OPERATORS)}")
        operator = match.group(1) or "="
        if strict and operator == "~>":
            raise ValueError("semver has no ~>")
        found.append((operator, version))
    return tuple(found)


@lru_cache(maxsize=65536)
def _parse(text: str, strict: bool) -> Optional[Version]:
    match = (_STRICT if strict else _LOOSE).fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(each) for each in match.group(1).split(".")]
    written = len(parts)
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts), written, next((each for each in match.groups()[1:] if each), "")


def _meets(found: Version, operator: str, wanted: Version, strict: bool) -> bool:
    order = _order(found, wanted)
    if operator == "=":
        return order == 0
    if operator == "!=":
        return order != 0
    if not strict and not _comparable(found, wanted):
        return False
    if operator == "~>":
        return order >= 0 and _same_but_last(found, wanted)
    return {">": order > 0, "<": order < 0, ">=": order >= 0, "<=": order <= 0}[operator]


def _comparable(found: Version, wanted: Version) -> bool:
    """Whether a pre-release is on both sides and of the same version, or on neither."""
    if found[2] and wanted[2]:
        return found[0] == wanted[0]
    return not found[2]


def _same_but_last(found: Version, wanted: Version) -> bool:
    kept = wanted[1] - 1
    pad = (0,) * wanted[1]
    return (found[0] + pad)[:kept] == (wanted[0] + pad)[:kept]


def _order(one: Version, other: Version) -> int:
    if one[0] != other[0]:
        return 1 if one[0] > other[0] else -1
    if one[2] == other[2]:
        return 0
    if not one[2] or not other[2]:
        return -1 if one[2] else 1
    ours, theirs = _keys(one[2]), _keys(other[2])
    return (ours > theirs) - (ours < theirs)


def _keys(prerelease: str) -> Tuple[Tuple[int, int, str], ...]:
    """Return what orders pre-releases: numbers before words, and shorter lists first."""
    return tuple(
        (0, int(each), "") if each.isdigit() else (1, 0, each) for each in prerelease.split(".")
    )
