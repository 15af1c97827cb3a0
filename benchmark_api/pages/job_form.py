"""The form of a job description: its fields are those of the schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from edgeyard.benchmark_api.pages.forms import Form
from edgeyard.benchmark_api.schemas.description import LOAD_FIELDS, JobDescriptionIn
from edgeyard.benchmark_api.schemas.fields import MAX_DURATION_S
from edgeyard.benchmark_api.schemas.notation import PARSERS, lines_of
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.errors import FieldError, InvalidInput

Kind = Literal["text", "number", "flag", "choice", "lines", "object"]

MATRIX = ("target", "runtime")
"""Fields of which the form has a box for each value; several make a campaign."""

COMMON = ("name", "dataset", "nb_inference", "precision", "user_priority", "tags")
"""Fields that are not folded, after the model and where it runs."""

_IGNORED = ("version", "user_id", "submit_time")
"""Fields that the server sets itself, or that have one value."""

_GROUPS = {
    "Where it may run": (
        *("target_uid", "if_unavailable", "count", "ram", "storage", "version_tag"),
        *("constraints", "affinities", "spreads", "binding"),
    ),
    "What is measured": (
        *("input", "parameters", "keep_outputs", "profile_layers", "odt_config"),
        *("soak", "soak_window", "concurrency", *LOAD_FIELDS),
        *("model_url", "dataset_urls"),
    ),
    "When it runs": (
        *("start_time", "deadline", "queue_timeout", "user_time", "user_budget", "max_retries"),
        *("cron", "prohibit_overlap", "cron_by"),
        *("preemptible", "preemptible_measuring", "job_completion_threshold"),
    ),
}
"""Further fields by what they are about; those that are in none are in the last group."""
_LAST_GROUP = "Other"

_LABELS = {
    "benchmark_id": "Beginning of its id",
    "benchmark_type": "What is measured",
    "concurrency": "Callers at once",
    "constraints": "Conditions on the board",
    "affinities": "Wishes about the board",
    "cron_by": "Who starts it at the times of the crontab",
    "cron": "Crontab",
    "count": "Boards at the same time",
    "dataset_urls": "URLs of datasets",
    "if_unavailable": "If the one board is not available",
    "input": "Random data of inputs",
    "job_completion_threshold": "May preempt progress below, %",
    "max_retries": "Attempts after a failure",
    "model_url": "URL of the model",
    "nb_inference": "Timed inferences",
    "odt_config": "Training configuration",
    "parameters": "Parameters of the engine",
    "precision": "Precision of the median",
    "profile_layers": "Time of each layer",
    "prohibit_overlap": "One at a time",
    "queue_timeout": "Longest wait",
    "ram": "Memory, at least",
    "start_time": "Earliest start",
    "runtime": "Engine",
    "storage": "Storage, at least",
    "target": "Family",
    "target_uid": "One board",
    "user_budget": "Most credits",
    "user_priority": "Priority",
    "user_time": "Longest run",
    "version_tag": "Version of the engine",
}
_LINES = {
    "input": "NAME=1x128:LOW..HIGH:int",
    "parameters": "threads=2",
    "constraints": "memory.ram >= 4 GiB",
    "affinities": "80 memory.ram >= 8 GiB",
    "spreads": "${meta.rack} a=70 b=30",
}
"""An example of a line of each field that is written in lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobField:
    """A field of the form.

    Attributes:
        text: What it means, as the schema says.
        kind: How it is typed.
        choices: Values that it takes; (): not a choice.
        accepts: Limits, unit, example and default, in words.
        default: What it is where nothing is chosen, in words; "": nothing.
        suggests: Whether names of uploaded files are offered.
        is_duration: Whether it is a time in seconds.
    """

    name: str
    label: str
    text: str
    kind: Kind
    choices: tuple[str, ...]
    accepts: str
    default: str
    suggests: bool
    is_duration: bool

    def read(self, text: str) -> object:
        """Return what was typed as JSON; what can't be read as its kind stays text.

        Raises:
            InvalidInput: Lines or JSON that can't be read.
        """
        if self.kind == "number":
            return _number(text)
        if self.kind == "flag":
            return {"true": True, "false": False}.get(text, text)
        if self.kind == "lines":
            return self._read_lines(text)
        if self.kind == "object" and text.startswith("{"):
            return self._json(text)
        return text

    def write(self, value: object) -> str:
        """Return a value as it is typed."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.name in PARSERS:
            lines = lines_of(self.name, value)
            return _json(value) if lines is None else "\n".join(lines)
        if isinstance(value, list):
            return "\n".join(str(each) for each in value)
        return _json(value) if isinstance(value, Mapping) else str(value)

    def _read_lines(self, text: str) -> object:
        if self.name not in PARSERS:
            return [each.strip() for each in text.splitlines() if each.strip()]
        if text.startswith(("[", "{")):
            return self._json(text)
        try:
            return PARSERS[self.name]([each for each in text.splitlines() if each.strip()])
        except InvalidInput as error:
            found = error.errors[0]
            raise InvalidInput.at(f"/{self.name}", found.reason, found.accepted) from None

    def _json(self, text: str) -> object:
        try:
            return parse_json(text)
        except ValueError as error:
            raise InvalidInput.at(f"/{self.name}", f"is not JSON: {error}", "JSON") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a form asks for.

    Attributes:
        description: The fields that all have.
        matrix: Fields with several values; {}: it is one benchmark.
        problems: What can't be read.
    """

    description: Mapping[str, object]
    matrix: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: Sequence[FieldError] = ()

    @property
    def body(self) -> dict[str, object]:
        """What `/v1/campaigns` gets, or, of one benchmark, `/v1/benchmarks`."""
        if not self.matrix:
            return dict(self.description)
        return {"matrix": dict(self.matrix), "description": dict(self.description)}

    @property
    def whole(self) -> dict[str, object]:
        """Return it as a job file."""
        return {**self.description, **self.matrix}


def read_request(form: Form) -> JobRequest:
    """Return what was typed as a job description, or as a matrix of them."""
    description: dict[str, object] = {}
    problems: list[FieldError] = []
    for each in fields().values():
        text = form.text(each.name)
        if not text or each.name in MATRIX:
            continue
        try:
            description[each.name] = each.read(text)
        except InvalidInput as error:
            problems += error.errors
    chosen = {name: boxes(form, name) for name in MATRIX}
    matrix = {name: values for name, values in chosen.items() if len(values) > 1}
    description |= {name: values[0] for name, values in chosen.items() if len(values) == 1}
    return JobRequest(description=description, matrix=matrix, problems=problems)


def boxes(form: Mapping[str, str], name: str) -> list[str]:
    """Return the values whose boxes are ticked, of a field of the matrix."""
    begin = f"{name}."
    return [key.removeprefix(begin) for key, on in form.items() if on and key.startswith(begin)]


def form_of(description: Mapping[str, object]) -> Form:
    """Return a job description as it would be typed; fields with their defaults stay empty."""
    known, form = fields(), Form()
    for name, value in description.items():
        if name in MATRIX:
            form[f"{name}.{value}"] = "on"
        elif name in known and value is not None and value != _properties()[name].get("default"):
            form[name] = known[name].write(value)
    return form


def by_field(errors: Sequence[FieldError]) -> dict[str, list[str]]:
    """Return what is wrong by the field that it is beside; "": it belongs to none."""
    found: dict[str, list[str]] = {}
    for each in errors:
        parts = [part for part in each.pointer.split("/") if part]
        if parts and parts[0] in ("description", "matrix"):
            parts = parts[1:]
        name = parts[0] if parts and parts[0] in fields() else ""
        sentence = each.reason + (f" – accepted: {each.accepted}" if each.accepted else "")
        where = " ".join(parts[1:]) if name else " ".join(parts)
        found.setdefault(name, []).append(f"{where} {sentence}".strip())
    return found


@cache
def fields() -> Mapping[str, JobField]:
    """Return all fields of the form by name, in the order of the schema."""
    return {
        name: _field(name, schema) for name, schema in _properties().items() if name not in _IGNORED
    }


@cache
def groups() -> Mapping[str, Sequence[JobField]]:
    """Return the fields that are folded, by what they are about."""
    known = fields()
    shown = {*COMMON, *MATRIX, "model", "benchmark_type"}
    named = {each for group in _GROUPS.values() for each in group}
    found = {title: [known[name] for name in group] for title, group in _GROUPS.items()}
    found[_LAST_GROUP] = [
        each for name, each in known.items() if name not in named and name not in shown
    ]
    return found


@cache
def _properties() -> dict[str, Any]:
    properties: dict[str, Any] = JobDescriptionIn.model_json_schema()["properties"]
    return properties


def _field(name: str, schema: Mapping[str, Any]) -> JobField:
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    types = {each.get("type") for each in options}
    choices = tuple(value for each in options for value in each.get("enum", ()))
    kind: Kind = "text"
    if choices:
        kind = "choice"
    elif "boolean" in types:
        kind = "flag"
    elif "array" in types or name in PARSERS:
        kind = "lines"
    elif "object" in types:
        kind = "object"
    elif types & {"integer", "number"}:
        kind = "number"
    return JobField(
        name=name,
        label=_label(name),
        text=_NAME.sub(_as_label, schema.get("description", "")),
        kind=kind,
        choices=choices,
        accepts=_accepts(name, kind, options, schema.get("default")),
        default=_default(schema.get("default")),
        suggests=any(each.get("maxLength") == _FILE_NAME for each in options) and "url" not in name,
        is_duration=any(each.get("maximum") == MAX_DURATION_S for each in options),
    )


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " ").capitalize())


_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
"""The name of a field in a sentence of the schema, or of something else."""


def _as_label(found: re.Match[str]) -> str:
    """Return the name of a field as the form calls it; all else as it is."""
    name = found.group()
    return f"“{_label(name)}”" if name in _properties() else name


_FILE_NAME = 2048
"""Longest text of fields that take the name of a file or a URL."""


def _accepts(name: str, kind: Kind, options: Sequence[Mapping[str, Any]], default: object) -> str:
    parts = []
    for each in options:
        low, high = each.get("minimum"), each.get("maximum")
        low = "above 0" if each.get("exclusiveMinimum") == 0 else low
        if high is not None and high < 1e9:
            parts.append(
                f"at most {high:,.10g} s" if low == "above 0" else f"{low} to {high:,.10g}"
            )
        if each.get("examples"):
            parts.append(f"e.g. {' or '.join(each['examples'])}")
        if each.get("format") == "date-time":
            parts.append("e.g. 2026-11-30T08:00:00Z")
    if kind == "lines":
        parts.append(f"one on each line{f', e.g. {_LINES[name]}' if name in _LINES else ''}")
    if kind == "object":
        parts.append("JSON")
    if default not in (None, "", [], {}) and kind in ("number", "text"):
        parts.append(f"default {default}")
    return "; ".join(parts)


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
