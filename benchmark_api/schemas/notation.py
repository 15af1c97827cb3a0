"""Fields of a job description on one line each: as flags state them, and forms of pages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgeyard.devices.operators import OPERATORS
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.errors import InvalidInput

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
                "--parameter",
                f"{name.strip()!r} is given twice",
                f"each parameter once, or submit --sweep {name.strip()}=VALUE,VALUE to run each",
            )
        found[name.strip()] = _json_or_text("--parameter", value, text)
    return found


def sweep(values: Sequence[str]) -> dict[str, list[object]]:
    """``threads=1,2,4``: values of a parameter that vary, each read as `parameters` reads one.

    Values that contain commas are a JSON list: ``threads=[1,2,4]``.
    """
    found: dict[str, list[object]] = {}
    for value in values:
        name, sign, text = (part.strip() for part in value.partition("="))
        if not sign or not name or not text:
            raise InvalidInput.at("--sweep", f"cannot read {value!r}", "NAME=VALUE,VALUE")
        if name in found:
            accepted = f"all values at once, --sweep {name}=VALUE,VALUE"
            raise InvalidInput.at("--sweep", f"{name!r} is given twice", accepted)
        listed = _json_or_text("--sweep", value, text) if text.startswith("[") else None
        items = (part.strip() for part in text.split(","))
        found[name] = (
            listed
            if isinstance(listed, list)
            else [_json_or_text("--sweep", value, each) for each in items if each]
        )
        if not found[name]:
            raise InvalidInput.at("--sweep", f"{value!r} has no values", "NAME=VALUE,VALUE")
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


def odt_config(value: str | None) -> object:
    """Return a path, URL or name; or the configuration itself as a JSON object."""
    if value is None or not value.lstrip().startswith("{"):
        return value
    try:
        return parse_json(value)
    except ValueError as error:
        raise InvalidInput.at("--odt-config", f"is not JSON: {error}", "a JSON object") from None


PARSERS: Mapping[str, Callable[[Sequence[str]], object]] = {
    "input": inputs,
    "parameters": parameters,
    "constraints": constraints,
    "affinities": affinities,
    "spreads": spreads,
}
"""What reads the lines of a field."""


def lines_of(name: str, value: Any) -> list[str] | None:
    """Return the lines that state a field, as its parser reads them; None: no lines can.

    Args:
        name: One of `PARSERS`.
        value: Of the field, as JSON.
    """
    parts = list(value.items() if isinstance(value, Mapping) else value)
    lines = [_WRITERS[name](each) for each in parts]
    return lines if _reads_as(name, lines, value) else None


def _reads_as(name: str, lines: Sequence[str], value: object) -> bool:
    try:
        return PARSERS[name](lines) == value
    except InvalidInput:
        return False


def _input_line(pair: tuple[str, Mapping[str, Any]]) -> str:
    name, spec = pair
    shape = spec.get("shape")
    parts = ["" if shape is None else "x".join(map(str, shape)) or "scalar"]
    if "low" in spec and "high" in spec:
        parts.append(f"{spec['low']}..{spec['high']}")
    if "integers" in spec:
        parts.append("int" if spec["integers"] else "float")
    return f"{name}={':'.join(parts)}"


def _parameter_line(pair: tuple[str, object]) -> str:
    name, value = pair
    plain = f"{name}={value}"
    if isinstance(value, str) and _reads_as("parameters", [plain], {name: value}):
        return plain
    return f"{name}={json.dumps(value, ensure_ascii=False)}"


def _constraint_line(value: Mapping[str, Any]) -> str:
    return f"{value['attribute']} {value['operator']} {value.get('value', '')}".strip()


def _affinity_line(value: Mapping[str, Any]) -> str:
    weight = f"{value['weight']} " if "weight" in value else ""
    return f"{weight}{_constraint_line(value)}"


def _spread_line(value: Mapping[str, Any]) -> str:
    weight = f"{value['weight']} " if "weight" in value else ""
    shares = "".join(f" {name}={share}" for name, share in value.get("targets", {}).items())
    return f"{weight}{value['attribute']}{shares}"


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "input": _input_line,
    "parameters": _parameter_line,
    "constraints": _constraint_line,
    "affinities": _affinity_line,
    "spreads": _spread_line,
}


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


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidInput.at("--input", f"{text!r} is not a number") from None
    return int(number) if number.is_integer() else number


def _json_or_text(flag: str, given: str, text: str) -> object:
    """Return JSON, or the text itself unless it begins as an object, a list or a string of JSON."""
    try:
        value = parse_json(text)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise InvalidInput.at(
                flag, f"{given!r} is not JSON: {error}", "valid JSON, or plain text"
            ) from None
        return text
    if not _is_finite(value):
        raise InvalidInput.at(flag, f"{given!r} is not a finite number", "finite numbers")
    return value


def _is_finite(value: object) -> bool:
    """Return whether all numbers are finite: NaN, Infinity and 1e999 are no JSON."""
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
