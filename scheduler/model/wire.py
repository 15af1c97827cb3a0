"""The job description as it is stored: JSON in which enums are strings and sizes whole numbers.

The answers of the API are the models of ``benchmark_api/schemas/answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from edgeyard.scheduler.model.benchmark import (
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    CronBy,
    IfUnavailable,
    JobDescription,
    Spread,
)
from edgeyard.scheduler.model.strict_json import JsonObject, time_from_json, time_to_json


class _Deadline(msgspec.Struct):
    deadline: str | None = None


_FIELDS_BY_USER_NAME = {
    "user_time": "user_time_s",
    "queue_timeout": "queue_timeout_s",
    "soak": "soak_s",
    "soak_window": "soak_window_s",
    "load_bound": "load_bound_s",
    "load_duration": "load_duration_s",
}
"""Fields that have another name than the one that users write."""


def _constraints(value: Sequence[Mapping[str, str]]) -> tuple[Constraint, ...]:
    return tuple(Constraint(**item) for item in value)


def _affinities(value: Sequence[Mapping[str, Any]]) -> tuple[Affinity, ...]:
    return tuple(Affinity(**item) for item in value)


def _spreads(value: Sequence[Mapping[str, Any]]) -> tuple[Spread, ...]:
    return tuple(
        Spread(**{**item, "targets": tuple(item.get("targets", {}).items())}) for item in value
    )


_READERS: Mapping[str, Callable[[Any], object]] = {
    "benchmark_type": BenchmarkType,
    "binding": Binding,
    "if_unavailable": IfUnavailable,
    "cron_by": CronBy,
    "dataset_urls": tuple,
    "concurrency": tuple,
    "tags": tuple,
    "constraints": _constraints,
    "affinities": _affinities,
    "spreads": _spreads,
    "deadline": time_from_json,
    "start_time": time_from_json,
}
_USER_NAMES: Mapping[str, str] = {
    field.name: {value: name for name, value in _FIELDS_BY_USER_NAME.items()}.get(
        field.name, field.name
    )
    for field in fields(JobDescription)
}


def description_to_json(description: JobDescription) -> JsonObject:
    """Return every field by its name in the API; submitting them gives an equal description."""
    return {name: _to_json(getattr(description, field)) for field, name in _USER_NAMES.items()}


def _to_json(value: object) -> object:
    match value:
        case Constraint() | Affinity():
            return {each.name: getattr(value, each.name) for each in fields(value)}
        case Spread():
            return {
                "attribute": value.attribute,
                "weight": value.weight,
                "targets": dict(value.targets),
            }
        case datetime():
            return time_to_json(value)
        case StrEnum():
            return value.value
        case Mapping():
            return {name: _to_json(each) for name, each in value.items()}
        case list() | tuple():
            return [_to_json(each) for each in value]
    return value


def deadline_of(body: str) -> datetime | None:
    """Return the deadline of a stored description without reading the rest of it."""
    value = msgspec.json.decode(body, type=_Deadline).deadline
    return None if value is None else time_from_json(value)


def description_from_json(data: Mapping[str, object]) -> JobDescription:
    """Return a stored job description; fields that are absent get their defaults.

    For what `description_to_json` wrote; what users send is checked in ``benchmark_api``.
    """
    given: dict[str, Any] = dict(data)
    for name, field in _FIELDS_BY_USER_NAME.items():
        if name in given:
            given[field] = given.pop(name)
    for field, reader in _READERS.items():
        if given.get(field) is not None:
            given[field] = reader(given[field])
    return JobDescription(**given)
