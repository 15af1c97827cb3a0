"""Conditions on versions, decided as Nomad's operators ``version`` and ``semver`` decide them.

A condition is a list such as ``>= 1.17, < 2``, of which all must hold. ``version`` knows ``~>``,
and there a pre-release only meets a condition that names a pre-release of the same version.
``semver`` orders pre-releases as Semantic Versioning 2.0 does, below their version. Follows
github.com/hashicorp/go-version and ``helper/constraints/semver`` of Nomad.
"""

import re
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple, Optional, Tuple

_OPERATORS = ("=", "!=", ">", "<", ">=", "<=", "~>")
_SPACE = r"[\t\n\f\r ]*"
_CONDITION = re.compile(rf"{_SPACE}(=|!=|>=|<=|~>|>|<)?{_SPACE}(v?[0-9].*?){_SPACE}", re.DOTALL)
_NUMBERS = r"v?([0-9]{1,18}(?:\.[0-9]{1,18})*?)"
_NUMERIC_PRERELEASE = r"-([0-9]+[0-9A-Za-z\-~]*(?:\.[0-9A-Za-z\-~]+)*)"
_PRERELEASE = r"([A-Za-z\-~]+[0-9A-Za-z\-~]*(?:\.[0-9A-Za-z\-~]+)*)"
_METADATA = r"(?:\+[0-9A-Za-z\-~]+(?:\.[0-9A-Za-z\-~]+)*)?"
_VERSION = re.compile(rf"{_NUMBERS}(?:{_NUMERIC_PRERELEASE}|-?{_PRERELEASE})?{_METADATA}")
_SEMVER = re.compile(rf"{_NUMBERS}(?:{_NUMERIC_PRERELEASE}|-{_PRERELEASE})?{_METADATA}")
_WHOLE = re.compile("-?[0-9]{1,18}")


class Version(NamedTuple):
    """A version.

    Attributes:
        numbers: At least three; those that are not stated are 0.
        stated: How many of them were.
        prerelease: "" where it is none.
    """

    numbers: Tuple[int, ...]
    stated: int
    prerelease: str


Condition = Tuple[str, Version]


def meets(version: str, conditions: str, *, strict: bool) -> bool:
    """Return whether a version meets all conditions; False where one of the two can't be read.

    Args:
        version: Of any number of parts.
        conditions: Of ``semver`` where `strict`, otherwise of ``version``.
        strict: Whether pre-releases are ordered as Semantic Versioning does.
    """
    found = _parse(_VERSION, version)
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
        if strict and match is not None and match.group(1) == "~>":
            raise ValueError("semver has no ~>")
        form = _SEMVER if strict else _VERSION
        version = None if match is None else _parse(form, match.group(2))
        if match is None or version is None:
            operators = ", ".join(_OPERATORS[:-1] if strict else _OPERATORS)
            raise ValueError(f"{part.strip()!r} is not a version after one of {operators}")
        found.append((match.group(1) or "=", version))
    return tuple(found)


@lru_cache(maxsize=65536)
def _parse(form: "re.Pattern[str]", text: str) -> Optional[Version]:
    match = form.fullmatch(text)
    if match is None:
        return None
    numbers = [int(each) for each in match.group(1).split(".")]
    padded = (*numbers, *[0] * (3 - len(numbers)))
    return Version(padded, len(numbers), match.group(3) or match.group(2) or "")


def _meets(found: Version, operator: str, wanted: Version, strict: bool) -> bool:
    order = _order(found, wanted)
    if operator == "=":
        return order == 0
    if operator == "!=":
        return order != 0
    if not strict and not _comparable(found, wanted):
        return False
    if operator == "~>":
        return order >= 0 and _within(found, wanted)
    return {">": order > 0, "<": order < 0, ">=": order >= 0, "<=": order <= 0}[operator]


def _comparable(found: Version, wanted: Version) -> bool:
    """Return whether neither is a pre-release, or `wanted` alone, or both of the same version."""
    if found.prerelease and wanted.prerelease:
        return found.numbers == wanted.numbers
    return not found.prerelease


def _within(found: Version, wanted: Version) -> bool:
    """Return whether all stated numbers but the last are equal, as ``~>`` asks."""
    if wanted.prerelease and not found.prerelease:
        return False
    last = len(wanted.numbers) - 1
    kept = wanted.stated - 1
    return (
        len(found.numbers) > last
        and found.numbers[:kept] == wanted.numbers[:kept]
        and found.numbers[last] >= wanted.numbers[last]
    )


def _order(one: Version, other: Version) -> int:
    """Return a negative number, 0 or a positive one."""
    if one.numbers == other.numbers:
        return _order_of_prereleases(one.prerelease, other.prerelease)
    pairs = zip_longest(one.numbers, other.numbers, fillvalue=0)
    return next(((a > b) - (a < b) for a, b in pairs if a != b), 0)


def _order_of_prereleases(one: str, other: str) -> int:
    if one == other:
        return 0
    if not one or not other:
        return -1 if one else 1
    pairs = zip_longest(one.split("."), other.split("."), fillvalue="")
    return next(_order_of_parts(a, b) for a, b in pairs if a != b)


def _order_of_parts(one: str, other: str) -> int:
    """Return -1 or 1 for two parts that differ; one is "" where the shorter list has ended.

    Numbers come before words. A list that goes on comes after one that has ended if its next part
    is a number, and before it otherwise, as go-version has it.
    """
    ours, theirs = _whole(one), _whole(other)
    if not one:
        return 1 if theirs is None else -1
    if not other:
        return -1 if ours is None else 1
    if ours is None and theirs is None:
        return 1 if one > other else -1
    if ours is None or theirs is None:
        return 1 if ours is None else -1
    return 1 if ours > theirs else -1


def _whole(part: str) -> Optional[int]:
    return int(part) if _WHOLE.fullmatch(part) else None
