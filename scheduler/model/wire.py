"""The job description as it is stored: JSON in which enums are strings and sizes whole numbers.

The answers of the API are the models of ``benchmark_api/schemas/answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edgeyard.scheduler.model.benchmark import (
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    IfUnavailable,
    JobDescription,
    Spread,
)
from edgeyard.scheduler.model.strict_json import JsonObject, time_from_json, time_to_json


class _Deadline(msgspec.Struct):
    deadline: str | None = None


_SEED_NAMES = {"user_time": "user_time_s", "queue_timeout": "queue_timeout_s"}
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
    "dataset_urls": tuple,
    "tags": tuple,
    "constraints": _constraints,
    "affinities": _affinities,
    "spreads": _spreads,
    "deadline": time_from_json,
    "start_time": time_from_json,
}


def description_to_json(description: JobDescription) -> JsonObject:
    """Return every field by its name in the API; submitting them gives an equal description."""
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
        "prohibit_overlap": d.prohibit_overlap,
        "version_tag": d.version_tag,
        "constraints": [
            {"attribute": c.attribute, "operator": c.operator, "value": c.value}
            for c in d.constraints
        ],
        "affinities": [
            {
                "attribute": a.attribute,
                "operator": a.operator,
                "value": a.value,
                "weight": a.weight,
            }
            for a in d.affinities
        ],
        "spreads": [
            {"attribute": s.attribute, "weight": s.weight, "targets": dict(s.targets)}
            for s in d.spreads
        ],
        "binding": None if d.binding is None else d.binding.value,
        "if_unavailable": d.if_unavailable.value,
        "tags": list(d.tags),
        "name": d.name,
        "parameters": dict(d.parameters),
        "keep_outputs": d.keep_outputs,
        "profile_layers": d.profile_layers,
        "input": {name: dict(values) for name, values in d.input.items()},
        "queue_timeout": d.queue_timeout_s,
        "count": d.count,
        "extra": dict(d.extra),
    }


def deadline_of(body: str) -> datetime | None:
    """Return the deadline of a stored description without reading the rest of it."""
    value = msgspec.json.decode(body, type=_Deadline).deadline
    return None if value is None else time_from_json(value)


def description_from_json(data: Mapping[str, object]) -> JobDescription:
    """Return a stored job description; fields that are absent get their defaults.

    For what `description_to_json` wrote; what users send is checked in ``benchmark_api``.
    """
    given: dict[str, Any] = dict(data)
    for name, field in _SEED_NAMES.items():
        if name in given:
            given[field] = given.pop(name)
    for field, reader in _READERS.items():
        if given.get(field) is not None:
            given[field] = reader(given[field])
    return JobDescription(**given)
