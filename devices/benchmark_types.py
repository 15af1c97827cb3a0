"""Benchmark types: the four of Edgeyard, and further ones that engines declare.

TYPE1 (latency), TYPE2 (accuracy), TYPE3 (training) and GENAI (language models) are Edgeyard's own
and are the same for all engines that offer them. Any other type, ``TYPE4`` to ``TYPE99``, means
what the engine that offers it declares: its parameters, whether it needs a dataset, and the values
of its result. The engine states the declaration in its class
(`edgeyard.devices.runner.engine.DeclaringEngine`), the boards file repeats it (``types`` of an
engine), and hosts publish it as ``engine.<name>.type.<TYPE>``, as JSON.

Imported on boards too: only the standard library, Python 3.10.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from edgeyard.devices.metrics import DIRECTIONS, P50, RESERVED_NAMES, Metric

BENCHMARK_TYPE_PATTERN = re.compile(r"^(TYPE[1-9][0-9]?|GENAI)$")
"""``TYPE1`` to ``TYPE99``, and ``GENAI``."""

STANDARD_TYPES = ("TYPE1", "TYPE2", "TYPE3", "GENAI")
"""Types whose meaning is Edgeyard's own; no engine declares them."""

ACCEPTED_TYPES = "TYPE1, TYPE2, TYPE3, GENAI, or a type that an engine declares: TYPE4 to TYPE99"
"""The names that `BENCHMARK_TYPE_PATTERN` accepts, in words."""

DATASETS = ("none", "optional", "required")
VALUE_TYPES = ("string", "integer", "number", "boolean")
NAME_PATTERN = re.compile(r"^[a-z][a-z0-9_]{0,63}$")
"""Names of parameters and of values of a result."""

MAX_FIELDS = 64
MAX_DECLARATION_BYTES = 16 * 1024
MAX_DECLARED_TYPES = 16
"""Maximum number of types that an engine declares."""

MAX_DECLARATIONS_BYTES = 32 * 1024
"""Maximum bytes of all declarations of an engine, which hosts publish with each of its boards."""

_MAX_TEXT = 256
_MAX_VALUE_CHARS = 4096


class Problem(NamedTuple):
    """What is wrong with a parameter, and what would be accepted."""

    name: str
    reason: str
    accepted: str


@dataclass(frozen=True)
class TypeParameter:
    """A parameter that runs of a declared type take.

    Attributes:
        name: Key in ``parameters`` of the job description.
        type: One of `VALUE_TYPES`.
        description: Its meaning, for people.
        required: Whether a description without it is refused.
        minimum: Smallest number that is accepted; None: no bound.
        maximum: Largest number that is accepted; None: no bound.
        choices: The accepted texts; empty: any.
    """

    name: str
    type: str
    description: str = ""
    required: bool = False
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    choices: Tuple[str, ...] = ()

    @property
    def accepted(self) -> str:
        """The accepted values, in words."""
        if self.choices:
            return " or ".join(self.choices)
        article = "an" if self.type == "integer" else "a"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        ]
        return " ".join([f"{article} {self.type}", " and ".join(bounds)]).strip()

    def accepts(self, value: object) -> bool:
        """Return whether a value of a job description is valid."""
        if not _is_of(self.type, value) or (self.choices and value not in self.choices):
            return False
        if isinstance(value, str):
            return len(value) <= _MAX_VALUE_CHARS
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        low, high = self.minimum, self.maximum
        return (low is None or value >= low) and (high is None or value <= high)


@dataclass(frozen=True)
class TypeResult:
    """A value that the result of a run has.

    Attributes:
        name: Key in ``results`` of the report.
        type: One of `VALUE_TYPES`.
        unit: E.g. ``J``; "": none.
        description: Its meaning, for people.
        title: Its plain name, e.g. ``memory bandwidth``; "": its name.
        better: Which numbers are better: ``lower`` or ``higher``; "": not known, so that nothing
            decides by it.
        primary: Whether results, ratios, series and checks of the type are about this number, of
            which ``better`` has to be known; one at most. Without one they are about the p50 of
            the times that the engine measured.
    """

    name: str
    type: str = "number"
    unit: str = ""
    description: str = ""
    title: str = ""
    better: str = ""
    primary: bool = False

    @property
    def metric(self) -> Metric:
        """What its number is."""
        return Metric(self.name, self.title or self.name, self.unit, self.better)


@dataclass(frozen=True)
class DeclaredType:
    """A benchmark type that an engine adds to Edgeyard's own.

    Attributes:
        name: ``TYPE4`` to ``TYPE99``.
        description: What it measures, for people.
        dataset: Whether a run takes a dataset: one of `DATASETS`.
        parameters: Those that a run takes; others are refused.
        results: Those that each result has.
    """

    name: str
    description: str = ""
    dataset: str = "none"
    parameters: Tuple[TypeParameter, ...] = ()
    results: Tuple[TypeResult, ...] = ()

    @property
    def primary(self) -> Metric:
        """The metric that results, ratios, series and checks of this type are about."""
        return next((each.metric for each in self.results if each.primary), P50)

    def parameter_problems(self, values: Mapping[str, object]) -> List[Problem]:
        """Return what is wrong with the parameters of a job description."""
        known = {each.name: each for each in self.parameters}
        taken = ", ".join(known) or "no parameters"
        found = [
            Problem(name, f"{self.name} has no such parameter", taken)
            for name in values
            if name not in known
        ]
        for name, parameter in known.items():
            if name not in values:
                if parameter.required:
                    found.append(Problem(name, f"{self.name} needs it", parameter.accepted))
            elif not parameter.accepts(values[name]):
                found.append(Problem(name, "has a wrong value", parameter.accepted))
        return found

    def checked_results(self, values: Mapping[str, object]) -> Dict[str, Dict[str, object]]:
        """Return the values of a run with unit, plain name and direction, as the report has them.

        Raises:
            ValueError: A declared value is missing or of another type, or one is not declared.
        """
        known = {each.name: each for each in self.results}
        for name in values:
            if name not in known:
                raise ValueError(f"{name!r} is not declared")
        found: Dict[str, Dict[str, object]] = {}
        for name, result in known.items():
            if name not in values:
                raise ValueError(f"{name} is missing")
            value = values[name]
            if not _is_of(result.type, value) or len(str(value)) > _MAX_VALUE_CHARS:
                raise ValueError(f"{name} is not of type {result.type}")
            found[name] = {
                "value": value,
                **_stated(
                    ("unit", result.unit), ("title", result.title), ("better", result.better)
                ),
            }
        return found

    def as_json(self) -> Dict[str, object]:
        """Return the declaration as boards files and attributes state it, without defaults."""
        found: Dict[str, object] = {}
        if self.description:
            found["description"] = self.description
        if self.dataset != "none":
            found["dataset"] = self.dataset
        found["parameters"] = {
            each.name: _stated(
                ("type", each.type),
                ("description", each.description),
                ("required", each.required),
                ("minimum", each.minimum),
                ("maximum", each.maximum),
                ("choices", list(each.choices)),
            )
            for each in self.parameters
        }
        found["results"] = {
            each.name: _stated(
                ("type", each.type),
                ("unit", each.unit),
                ("description", each.description),
                ("title", each.title),
                ("better", each.better),
                ("primary", each.primary),
            )
            for each in self.results
        }
        return found

    def as_text(self) -> str:
        """Return the declaration as the value of an attribute."""
        return json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))


def declared_type(name: str, declaration: object) -> DeclaredType:
    """Return the type that a JSON object declares, parameters and results sorted by name.

    Args:
        name: Of the type.
        declaration: As `DeclaredType.as_json` returns it; may come from anywhere.

    Raises:
        ValueError: It is none; the message names what is wrong.
    """
    if not BENCHMARK_TYPE_PATTERN.fullmatch(name):
        raise ValueError(f"{name!r} is not a benchmark type: TYPE4 to TYPE99")
    if name in STANDARD_TYPES:
        raise ValueError(f"{name} is Edgeyard's own type and cannot be declared: TYPE4 to TYPE99")
    fields = _fields("", declaration, ("description", "dataset", "parameters", "results"))
    dataset = fields.get("dataset", "none")
    if dataset not in DATASETS:
        raise ValueError(f"dataset is not one of {', '.join(DATASETS)}")
    results = tuple(
        _result(each, value) for each, value in _entries("results", fields.get("results", {}))
    )
    if not results:
        raise ValueError("results is empty: a run returns at least one value")
    primary = [each.name for each in results if each.primary]
    if len(primary) > 1:
        raise ValueError(f"results: {' and '.join(primary)} are primary, and at most one can be")
    found = DeclaredType(
        name=name,
        description=_text("description", fields.get("description", "")),
        dataset=str(dataset),
        parameters=tuple(
            _parameter(each, value)
            for each, value in _entries("parameters", fields.get("parameters", {}))
        ),
        results=results,
    )
    if len(found.as_text()) > MAX_DECLARATION_BYTES:
        raise ValueError(f"is longer than {MAX_DECLARATION_BYTES} bytes")
    return found


def simulated_types(names: Iterable[str]) -> Tuple[DeclaredType, ...]:
    """Return declarations for an engine that nothing runs, of the types that engines declare.

    Args:
        names: What the engine lists; Edgeyard's own types and other texts are left out.
    """
    declared = {name for name in names if BENCHMARK_TYPE_PATTERN.fullmatch(name)}
    return tuple(
        DeclaredType(name=name, description="simulated", results=(TypeResult("value"),))
        for name in sorted(declared.difference(STANDARD_TYPES))
    )


def check_declared_types(texts: Mapping[str, str]) -> None:
    """Check how many types an engine declares, and how long their declarations are together.

    Args:
        texts: The declarations, as `DeclaredType.as_text` returns them, by type.

    Raises:
        ValueError: There are too many, or they are too long.
    """
    if len(texts) > MAX_DECLARED_TYPES:
        raise ValueError(
            f"{len(texts)} types are declared, and an engine may declare at most "
            f"{MAX_DECLARED_TYPES}: leave some out"
        )
    length = sum(len(text.encode()) for text in texts.values())
    if length > MAX_DECLARATIONS_BYTES:
        raise ValueError(
            f"the declarations have {length} bytes together, and those of an engine may have at "
            f"most {MAX_DECLARATIONS_BYTES}: shorten descriptions or leave types out"
        )


@lru_cache(maxsize=1024)
def declared_type_of_text(name: str, text: str) -> DeclaredType:
    """Return the type that the value of an attribute declares.

    Raises:
        ValueError: As `declared_type`; or the text is too long or no JSON.
    """
    if len(text) > MAX_DECLARATION_BYTES:
        raise ValueError(f"is longer than {MAX_DECLARATION_BYTES} bytes")
    try:
        declaration = json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    return declared_type(name, declaration)


def _parameter(name: str, value: object) -> TypeParameter:
    at = f"parameters/{name}"
    names = ("type", "description", "required", "minimum", "maximum", "choices")
    fields = _fields(at, value, names)
    kind, required = fields.get("type"), fields.get("required", False)
    choices = fields.get("choices", [])
    if kind not in VALUE_TYPES:
        raise ValueError(f"{at}/type is not one of {', '.join(VALUE_TYPES)}")
    if not isinstance(required, bool):
        raise ValueError(f"{at}/required is neither true nor false")
    if not isinstance(choices, list) or len(choices) > MAX_FIELDS:
        raise ValueError(f"{at}/choices is not a list of at most {MAX_FIELDS} texts")
    if choices and kind != "string":
        raise ValueError(f"{at}/choices is for type string only")
    low, high = _bound(f"{at}/minimum", fields), _bound(f"{at}/maximum", fields)
    if (low is not None or high is not None) and kind not in ("integer", "number"):
        raise ValueError(f"{at}: minimum and maximum are for numbers only")
    if low is not None and high is not None and low > high:
        raise ValueError(f"{at}: minimum is above maximum")
    return TypeParameter(
        name=name,
        type=str(kind),
        description=_text(f"{at}/description", fields.get("description", "")),
        required=required,
        minimum=low,
        maximum=high,
        choices=tuple(_text(f"{at}/choices", each) for each in choices),
    )


def _result(name: str, value: object) -> TypeResult:
    at = f"results/{name}"
    names = ("type", "unit", "description", "title", "better", "primary")
    fields = _fields(at, value, names)
    kind, better, primary = (
        fields.get("type", "number"),
        fields.get("better", ""),
        fields.get("primary", False),
    )
    if name in RESERVED_NAMES:
        raise ValueError(f"{at} has the name of a metric that every result has: another name")
    if kind not in VALUE_TYPES:
        raise ValueError(f"{at}/type is not one of {', '.join(VALUE_TYPES)}")
    if better not in ("", *DIRECTIONS):
        raise ValueError(f"{at}/better is not one of {', '.join(DIRECTIONS)}")
    if not isinstance(primary, bool):
        raise ValueError(f"{at}/primary is neither true nor false")
    if (better or primary) and kind not in ("integer", "number"):
        raise ValueError(f"{at}: better and primary are for numbers only")
    if primary and not better:
        raise ValueError(f"{at} is primary, so better has to be one of {', '.join(DIRECTIONS)}")
    return TypeResult(
        name=name,
        type=str(kind),
        unit=_text(f"{at}/unit", fields.get("unit", "")),
        description=_text(f"{at}/description", fields.get("description", "")),
        title=_text(f"{at}/title", fields.get("title", "")),
        better=str(better),
        primary=primary,
    )


def _fields(at: str, value: object, known: Tuple[str, ...]) -> Mapping[str, object]:
    where = f"{at} " if at else ""
    if not isinstance(value, dict):
        raise ValueError(f"{where}is not a JSON object")
    for name in value:
        if name not in known:
            raise ValueError(f"{where}has an unknown field {name!r}: {', '.join(known)}")
    return value


def _entries(at: str, value: object) -> List[Tuple[str, object]]:
    if not isinstance(value, dict) or len(value) > MAX_FIELDS:
        raise ValueError(f"{at} is not a JSON object of at most {MAX_FIELDS} entries")
    for name in value:
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            raise ValueError(f"{at}: {name!r} is not a lower-case letter, then letters, digits, _")
    return sorted(value.items())


def _text(at: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise ValueError(f"{at} is not text of at most {_MAX_TEXT} characters in one line")
    return value


def _bound(at: str, fields: Mapping[str, object]) -> Optional[float]:
    value = fields.get(at.rpartition("/")[2])
    if value is None:
        return None
    if not _is_of("number", value):
        raise ValueError(f"{at} is not a number")
    return float(value)  # type: ignore[arg-type]  # it has just been checked


def _is_of(kind: str, value: object) -> bool:
    """Return whether a JSON value is of a type; a number is finite and fits a double."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return kind == "number" and isinstance(value, float) and math.isfinite(value)


def _stated(*fields: Tuple[str, object]) -> Dict[str, object]:
    """Return the fields that differ from "not stated"."""
    return {
        name: value
        for name, value in fields
        if value not in ("", []) and value is not None and value is not False
    }
