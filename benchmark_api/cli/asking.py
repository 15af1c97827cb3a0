"""The flags of ``submit`` as fields of a job description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from edgeyard.devices.operators import OPERATORS
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.devices.sizes import parse_size
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.quantities import duration_s
from edgeyard.scheduler.model.quotas import QUOTA_NAMES

_INPUT = re.compile(
    r"(?P<name>[^=]+)=(?P<shape>scalar|\d+(x\d+)*)?"
    r"(:(?P<low>-?[0-9.eE+-]+)\.\.(?P<high>-?[0-9.eE+-]+))?(:(?P<kind>int|float))?"
)
_ATTRIBUTE = re.compile(r"\s*(\$\{[A-Za-z0-9_.-]+\}|[A-Za-z0-9_.]+)\s*(.*)", re.DOTALL)
_PERCENT = re.compile(r"[0-9]{1,3}")
_SPREAD = "[WEIGHT] ATTRIBUTE [VALUE=PERCENT ...], e.g. '${meta.rack} a=70 b=30'"
_WEIGHT = re.compile(r"[+-]?[0-9]{1,9}")
_WORDS = sorted(OPERATORS, key=len, reverse=True)
"""Sorted by length, so that ``>=`` is not read as ``>`` and a value that begins with ``=``."""


def one_or_list(values: Sequence[str], *, commas: bool = True) -> object:
    """Return None, the only value, or the list of a matrix; ``commas`` separate values, too."""
    parts = [part.strip() for value in values for part in value.split(",")] if commas else values
    kept = [part for part in parts if part]
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else kept


def single(value: str | None, flag: str) -> str | None:
    """Return a value where a matrix is not accepted.

    Raises:
        InvalidInput: It is a list.
    """
    if value is not None and "," in value:
        count = len(value.split(","))
        raise InvalidInput.at(
            flag, f"{value!r} names {count}, but no matrix is possible here", "one of them"
        )
    return value


def inputs(values: Sequence[str]) -> dict[str, object]:
    """``tokens=1x128:0..30522:int``: shape, range and kind of an input's random data.

    The shape of an input without dimensions is ``scalar``, and a size may be 0.
    """
    found: dict[str, object] = {}
    for value in values:
        match = _INPUT.fullmatch(value)
        if match is None:
            raise InvalidInput.at(
                "--input",
                f"cannot read {value!r}",
                "NAME=1x128:LOW..HIGH:int, or NAME=scalar; all but NAME= is optional",
            )
        name = match["name"].strip()
        if name in found:
            raise InvalidInput.at("--input", f"{name!r} is given twice", "each input once")
        spec: dict[str, object] = {}
        if match["shape"]:
            sizes = [] if match["shape"] == "scalar" else match["shape"].split("x")
            spec["shape"] = [int(size) for size in sizes]
        if match["low"] is not None:
            spec["low"], spec["high"] = _number(match["low"]), _number(match["high"])
        if match["kind"]:
            spec["integers"] = match["kind"] == "int"
        found[name] = spec
    return found


def parameters(values: Sequence[str]) -> dict[str, object]:
    """``threads=2``: values are JSON where they can be read so, else text."""
    found: dict[str, object] = {}
    for value in values:
        name, sign, text = value.partition("=")
        if not sign or not name.strip():
            raise InvalidInput.at("--parameter", f"cannot read {value!r}", "NAME=VALUE")
        if name.strip() in found:
            raise InvalidInput.at(
                "--parameter", f"{name.strip()!r} is given twice", "each parameter once"
            )
        found[name.strip()] = _json_or_text(value, text)
    return found


def constraints(values: Sequence[str]) -> list[Mapping[str, object]]:
    """``memory.ram >= 4 GiB``: attribute, operator, value."""
    return [_constraint(value) for value in values]


def affinities(values: Sequence[str]) -> list[Mapping[str, object]]:
    """``80 memory.ram >= 8 GiB``: weight (or none), attribute, operator, value."""
    found: list[Mapping[str, object]] = []
    for value in values:
        first, _, rest = value.strip().partition(" ")
        weight = {"weight": int(first)} if _WEIGHT.fullmatch(first) else {}
        found.append({**_constraint(rest if weight else value, "--affinity"), **weight})
    return found


def spreads(values: Sequence[str]) -> list[Mapping[str, object]]:
    """``80 ${meta.rack} a=70 b=30``: weight (or none), attribute, values with percentages."""
    found: list[Mapping[str, object]] = []
    for value in values:
        words = value.split()
        weight = {"weight": int(words.pop(0))} if words and _WEIGHT.fullmatch(words[0]) else {}
        if not words:
            raise InvalidInput.at("--spread", f"cannot read {value!r}", _SPREAD)
        targets: dict[str, int] = {}
        for word in words[1:]:
            target, sign, percent = word.rpartition("=")
            if not sign or not _PERCENT.fullmatch(percent):
                raise InvalidInput.at("--spread", f"cannot read {word!r} in {value!r}", _SPREAD)
            if target in targets:
                raise InvalidInput.at("--spread", f"{target!r} is given twice", "each value once")
            targets[target] = int(percent)
        found.append({"attribute": words[0], **weight, **({"targets": targets} if targets else {})})
    return found


def _constraint(value: str, flag: str = "--constraint") -> Mapping[str, object]:
    match = _ATTRIBUTE.fullmatch(value)
    rest = match[2] if match else ""
    operator = next((word for word in _WORDS if rest.startswith(word)), None)
    if match is None or operator is None:
        raise InvalidInput.at(
            flag,
            f"cannot read {value!r}",
            f"ATTRIBUTE OPERATOR VALUE with one of {', '.join(OPERATORS)}",
        )
    return {
        "attribute": match[1],
        "operator": operator,
        "value": rest.removeprefix(operator).strip(),
    }


def moment(value: str | None, flag: str) -> str | None:
    """Return a time of RFC 3339, or ``+2h`` from now."""
    if value is None:
        return None
    accepted = "e.g. +2h, or RFC 3339 with zone, e.g. 2026-11-21T08:00:00Z"
    if not value.startswith("+"):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput.at(flag, f"{value!r} is not a time", accepted) from None
        return value
    try:
        at = datetime.now(UTC) + timedelta(seconds=duration_s(value[1:]))
    except (ValueError, OverflowError) as error:
        raise InvalidInput.at(flag, f"{value} {error}", accepted) from None
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def past(value: str | None, flag: str) -> str | None:
    """Return an RFC 3339 time, a date (UTC) or an age, e.g. ``7 d``, as a time."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        try:
            at = datetime.now(UTC) - timedelta(seconds=duration_s(value))
        except (ValueError, OverflowError):
            raise InvalidInput.at(
                flag, f"cannot read {value!r}", "2026-11-01, RFC 3339, or an age, e.g. '7 d'"
            ) from None
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds(value: str | None, flag: str) -> float | None:
    """``90``, ``"15 min"``: a duration."""
    if value is None:
        return None
    try:
        return duration_s(value)
    except ValueError as error:
        raise InvalidInput.at(flag, f"{value!r} {error}", "seconds, or e.g. 15 min") from None


def odt_config(value: str | None) -> object:
    """Return a path, URL or name; or the configuration itself as a JSON object."""
    if value is None or not value.lstrip().startswith("{"):
        return value
    try:
        return parse_json(value)
    except ValueError as error:
        raise InvalidInput.at("--odt-config", f"is not JSON: {error}", "a JSON object") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput.at("--input", f"{text!r} is not a number") from None
    return int(number) if number.is_integer() else number


def _json_or_text(flag: str, text: str) -> object:
    """Return JSON, or the text itself unless it begins as an object, a list or a string of JSON."""
    try:
        return parse_json(text)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise InvalidInput.at(
                "--parameter", f"{flag!r} is not JSON: {error}", "valid JSON, or plain text"
            ) from None
        return text


def quotas(given: Sequence[str] | None) -> dict[str, object]:
    """Parse quotas ``NAME=VALUE``; the value ``default`` gives None, the server's value.

    Raises:
        InvalidInput: One does not have this form.
    """
    found: dict[str, object] = {}
    for each in given or ():
        name, _, value = each.partition("=")
        if name not in QUOTA_NAMES:
            raise InvalidInput.at("--quota", f"{name!r} is not a quota", ", ".join(QUOTA_NAMES))
        if name in found:
            raise InvalidInput.at("--quota", f"{name!r} is given twice", "each quota once")
        try:
            found[name] = None if value == "default" else parse_size(value)
        except ValueError:
            raise InvalidInput.at(
                "--quota", f"{value!r} is not a number or size", "8 GiB"
            ) from None
    return found
