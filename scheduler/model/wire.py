"""Strict JSON, times as text, and the job description as it is stored.

Enums are strings, times are RFC 3339 in UTC with ``Z``, and sizes are whole numbers. The answers of
the API are the models of ``benchmark_api/schemas/answers.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    IfUnavailable,
    JobDescription,
)

JsonObject = dict[str, object]

MAX_DEPTH = 64
"""Nesting that is taken; Python's own encoder and most readers give up not far beyond."""

MAX_INTEGER = 2**63 - 1
"""Both databases' largest; most JSON readers lose digits far earlier."""

# --- strict JSON --------------------------------------------------------------------------------


def check_json(value: object, pointer: str = "", depth: int = 0) -> None:
    """Refuse what JSON text, a database column or the next reader can't hold.

    Raises:
        InvalidInput: NaN, an infinity, a whole number beyond 64 bits, a lone surrogate, NUL, a
            key that is no text, a value of a foreign type, or nesting beyond `MAX_DEPTH`.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, pointer)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidInput.at(pointer, "the number is too large", "at most 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput.at(pointer, "the number is not finite", "a finite number")
    elif depth >= MAX_DEPTH:
        raise InvalidInput.at(pointer, "nested too deeply", f"at most {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput.at(pointer, "a key is not text", "text keys")
            _check_text(key, pointer)
            check_json(item, f"{pointer}/{_escaped(key)}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{pointer}/{index}", depth + 1)
    else:
        raise InvalidInput.at(pointer, f"a {type(value).__name__} is no JSON value")


def dumps(value: object, pointer: str = "") -> str:
    """Compact JSON text of a checked value.

    Raises:
        InvalidInput: As `check_json`.
    """
    check_json(value, pointer)
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )


def loads(text: str) -> Any:
    """Value of JSON text that `dumps` made."""
    return json.loads(text)


def _check_text(text: str, pointer: str) -> None:
    if "\0" in text:
        raise InvalidInput.at(pointer, "the text holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput.at(pointer, "the text holds a lone surrogate") from None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def time_to_json(time: datetime | None) -> str | None:
    """RFC 3339 in UTC; None stays None.

    Raises:
        ValueError: The time has no zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_from_json(text: str) -> datetime:
    """The time that RFC 3339 text states, in UTC.

    Raises:
        ValueError: It is none, or has no zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC)


# --- the job description ------------------------------------------------------------------------

_SEED_NAMES = {"user_time": "user_time_s", "queue_timeout": "queue_timeout_s"}
"""Fields that have another name than the one that users write."""


def _constraints(value: Sequence[Mapping[str, str]]) -> tuple[Constraint, ...]:
    return tuple(Constraint(**item) for item in value)


_READERS: Mapping[str, Callable[[Any], object]] = {
    "benchmark_type": BenchmarkType,
    "binding": Binding,
    "if_unavailable": IfUnavailable,
    "dataset_urls": tuple,
    "tags": tuple,
    "constraints": _constraints,
    "deadline": time_from_json,
    "start_time": time_from_json,
}
_FIELDS = frozenset(field.name for field in fields(JobDescription))


def description_to_json(description: JobDescription) -> JsonObject:
    """Every field under the name that a user writes; submitting it again gives an equal one."""
    d = description
    return {
        "model": d.model,
        "model_url": d.model_url,
        "runtime": d.runtime,
        "benchmark_type": d.benchmark_type.value,
        "dataset": d.dataset,
        "dataset_urls": list(d.dataset_urls),
        "odt_config": (dict(d.odt_config) if isinstance(d.odt_config, Mapping) else d.odt_config),
        "target": d.target,
        "target_uid": d.target_uid,
        "ram": d.ram,
        "storage": d.storage,
        "user_priority": d.user_priority,
        "user_budget": d.user_budget,
        "user_time": d.user_time_s,
        "deadline": time_to_json(d.deadline),
        "max_retries": d.max_retries,
        "nb_inference": d.nb_inference,
        "precision": d.precision,
        "preemptible": d.preemptible,
        "preemptible_measuring": d.preemptible_measuring,
        "job_completion_threshold": d.job_completion_threshold,
        "start_time": time_to_json(d.start_time),
        "cron": d.cron,
        "version_tag": d.version_tag,
        "constraints": [
            {"attribute": c.attribute, "operator": c.operator, "value": c.value}
            for c in d.constraints
        ],
        "binding": None if d.binding is None else d.binding.value,
        "if_unavailable": d.if_unavailable.value,
        "tags": list(d.tags),
        "parameters": dict(d.parameters),
        "input": {name: dict(values) for name, values in d.input.items()},
        "queue_timeout": d.queue_timeout_s,
        "extra": dict(d.extra),
    }


def description_from_json(data: Mapping[str, object]) -> JobDescription:
    """The reverse of `description_to_json`; fields that are absent get their defaults.

    For what `description_to_json` wrote; what users send is checked in ``benchmark_api``.
    """
    given: dict[str, Any] = dict(data)
    for name, field in _SEED_NAMES.items():
        if name in given:
            given[field] = given.pop(name)
    for field, reader in _READERS.items():
        if given.get(field) is not None:
            given[field] = reader(given[field])
    for name in given.keys() - _FIELDS:
        del given[name]
    return JobDescription(**given)
