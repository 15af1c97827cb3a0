"""Benchmarks and results as answers: JSON values, the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.routes.context import url
from edgeyard.benchmark_api.services import Services
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import TERMINAL, Benchmark
from edgeyard.scheduler.model.files import Report, ResultFile, UserFile
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.wire import (
    JsonObject,
    attempt_to_json,
    benchmark_to_json,
    forecast_to_json,
    lease_to_json,
    result_file_to_json,
    time_to_json,
    user_file_to_json,
)
from edgeyard.scheduler.model.workload import workload
from edgeyard.scheduler.prediction.repeatability import RunVariation, measured_number

_PARTS = ("hcl", "explanation", "events", "logs", "results")


def links(services: Services, benchmark_id: str) -> JsonObject:
    """Where the rest of a benchmark is."""
    base = url(services, "v1", "benchmarks", benchmark_id)
    return {"self": base, **{part: f"{base}/{part}" for part in _PARTS}}


def listed(services: Services, benchmark: Benchmark) -> JsonObject:
    """One of a list: without files and attempts."""
    told = benchmark_to_json(benchmark)
    del told["files"]
    return told | {"links": links(services, benchmark.benchmark_id)}


def shown(services: Services, benchmark: Benchmark, attempts: Sequence[Attempt]) -> JsonObject:
    """All of one benchmark."""
    return benchmark_to_json(benchmark) | {
        "attempts": [
            attempt_to_json(attempt) | {"cluster_page": services.cluster.page_of(attempt.job_id)}
            for attempt in attempts
        ],
        "forecast": None
        if benchmark.status in TERMINAL
        else forecast(services, services.engine.forecast(benchmark.benchmark_id)),
        "links": links(services, benchmark.benchmark_id),
    }


def forecast(services: Services, found: Forecast | None) -> JsonObject | None:
    """When something is expected to start and end; null where that can't be told."""
    if found is None:
        return None
    return forecast_to_json(found, services.clock.now(), services.engine.coverage())


def lease(lease: Lease, caller: Caller) -> JsonObject:
    """A lease; whose it is, only they and operators are told."""
    told = lease_to_json(lease)
    if not caller.may_see(lease.user_id or ""):
        told |= {"user_id": None, "by_user_id": None}
    return told


def user_file(services: Services, file: UserFile) -> JsonObject:
    """A user's file with its URL."""
    return user_file_to_json(file) | {"url": url(services, "v1", "files", file.file_id, "content")}


def result_file(services: Services, file: ResultFile) -> JsonObject:
    """An uploaded file with its URL."""
    parts = ("v1", "benchmarks", file.benchmark_id, "results", str(file.attempt), file.name)
    return result_file_to_json(file) | {"url": url(services, *parts)}


def newest(reports: Sequence[Report]) -> Report | None:
    """The report that counts: of the last attempt that uploaded one."""
    return max(reports, key=lambda report: report.attempt, default=None)


def summary(
    benchmark: Benchmark, report: Report | None, variation: RunVariation | None
) -> JsonObject:
    """One row of a table of results; what was not measured is null.

    Args:
        benchmark: Whose result it is.
        report: Its newest report.
        variation: What numbers of this work vary by on its board between runs.
    """
    told = report.report if report is not None else {}
    latency = _table(told, "inference_latency")
    verdict = _table(told, "verdict")
    training = _table(told, "training")
    accuracy = _table(told, "accuracy")
    reasons = verdict.get("reasons")
    low, high = _pair(latency, "p50_ci95")
    repeat_low, repeat_high = _repeat_interval(told, benchmark.target_uid, variation)
    return {
        "benchmark_id": benchmark.benchmark_id,
        "model": benchmark.description.model,
        "target": benchmark.description.family,
        "target_uid": benchmark.target_uid,
        "runtime": benchmark.description.runtime,
        "benchmark_type": benchmark.description.benchmark_type.value,
        "status": benchmark.status.value,
        "workload": workload(benchmark, told),
        "p50_ms": _number(latency, "p50"),
        "p50_low_ms": low,
        "p50_high_ms": high,
        "p50_degrees": _number(latency, "p50_ci95_degrees"),
        "p50_repeat_low_ms": repeat_low,
        "p50_repeat_high_ms": repeat_high,
        "between_runs": None
        if variation is None
        else {
            "share": variation.share,
            "degrees": variation.degrees,
            "source": variation.source.value,
            "numbers": variation.numbers,
            "sentence": variation.sentence,
        },
        "p90_ms": _number(latency, "p90"),
        "p99_ms": _number(latency, "p99"),
        "mean_ms": _number(latency, "mean"),
        "throughput_per_s": _number(told, "throughput_per_s"),
        "accuracy": _number(accuracy, "top1"),
        "top5": _number(accuracy, "top5"),
        "final_loss": _number(training, "final_loss"),
        "ram_peak_bytes": _number(told, "ram_peak"),
        "ram_model_bytes": _number(told, "ram_model"),
        "verdict": verdict.get("verdict"),
        "reasons": reasons if isinstance(reasons, list) else [],
        "ended_at": time_to_json(benchmark.ended_at),
    }


def _repeat_interval(
    report: Mapping[str, object], target_uid: str | None, variation: RunVariation | None
) -> tuple[float | None, float | None]:
    """The 95 % interval of what another run of the same work on the same board would give."""
    p50 = _number(_table(report, "inference_latency"), "p50")
    number = measured_number(report, target_uid or "", variation)
    if p50 is None or number is None or variation is None:
        return None, None
    factor = number.repeat_factor()
    return (None, None) if factor is None else (p50 / factor, p50 * factor)


def _pair(told: Mapping[str, object], key: str) -> tuple[object, object]:
    value = told.get(key)
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (None, None)


def _table(told: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = told.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(told: Mapping[str, object], key: str) -> int | float | None:
    value = told.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
