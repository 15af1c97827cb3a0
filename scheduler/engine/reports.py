"""What a report must not state, whether its task uploads it or it is claimed from its host."""

from __future__ import annotations

from collections.abc import Mapping

from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.devices.metrics import (
    DECODE_TOKENS_PER_S,
    LOAD_METRICS,
    P50,
    PREFILL_TOKENS_PER_S,
    primary_metric,
)
from edgeyard.devices.runner.result import SCHEMA
from edgeyard.errors import FieldError, InvalidInput

_STATISTICS = ("mean", "std", "min", "max", "p50", "p90", "p99")


def check_report(report: Mapping[str, object], benchmark_id: str) -> None:
    """Refuse what would mislead readers of a result; a report without schema is taken as it is.

    Args:
        report: What the runner wrote.
        benchmark_id: Benchmark that it has to be a result of.

    Raises:
        InvalidInput: Naming what is wrong.
    """
    own = report.get("schema") == SCHEMA
    found = []
    if report.get("benchmark_id", None if own else benchmark_id) != benchmark_id:
        found.append(FieldError("/benchmark_id", "is another benchmark's", benchmark_id))
    if own:
        if report.get("status") not in ("ok", "failed"):
            found.append(FieldError("/status", "is not a status of a result", "ok or failed"))
        found += _latency_problems(report.get("inference_latency"))
        found += _primary_problems(report)
    if found:
        raise InvalidInput(found)


def _latency_problems(latency: object) -> list[FieldError]:
    if latency is None:
        return []
    if not isinstance(latency, Mapping):
        return [FieldError("/inference_latency", "is not an object", "an object, or null")]
    return [
        FieldError(f"/inference_latency/{name}", "is not a number", "milliseconds")
        for name in _STATISTICS
        if not _is_number(latency.get(name))
    ]


def _primary_problems(report: Mapping[str, object]) -> list[FieldError]:
    stated = report.get("primary_metric")
    if stated in (None, P50.name):
        return []
    if report.get("benchmark_type") == "GENAI":
        own = (DECODE_TOKENS_PER_S.name, PREFILL_TOKENS_PER_S.name)
        if stated in own and primary_metric(report) is not None:
            return []
        reason = "is not the primary metric of this type"
        return [FieldError("/primary_metric", reason, " or ".join(own))]
    if isinstance(stated, str) and isinstance(report.get(LOAD_METRICS.get(stated, "")), Mapping):
        return []
    if report.get("benchmark_type") in STANDARD_TYPES:
        reason = "is not the primary metric of this type"
        return [FieldError("/primary_metric", reason, P50.name)]
    results = report.get("results")
    names = results if isinstance(results, Mapping) else {}
    if isinstance(stated, str) and stated in names and primary_metric(report) is not None:
        return []
    accepted = f"{P50.name}, or a number of results that states which numbers are better"
    return [FieldError("/primary_metric", "is no metric that results can be compared by", accepted)]


def _is_number(value: object) -> bool:
    """Return whether it is a number, or null, which the runner writes for what is not finite."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
