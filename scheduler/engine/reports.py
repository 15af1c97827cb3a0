"""What a report must not state, whether its task uploads it or it is claimed from its host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.devices.metrics import (
    DECODE_TOKENS_PER_S,
    LOAD_METRICS,
    P50,
    PREFILL_TOKENS_PER_S,
    primary_metric,
)
from edgeyard.devices.runner.result import SCHEMA
from edgeyard.devices.runner.spec import soak_windows
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.model.benchmark import Benchmark, JobDescription

_AMOUNTS = ("nb_inference", "ram_peak", "ram_baseline", "ram_model", "runs_per_s", "rows_per_s")
_PARTS = ("soak", "concurrency", "load_test", "energy")
_SIGNED = "temperature_c"
_MAX_AMOUNT = 1e15
"""No board measures as many milliseconds, bytes, inferences or joules; tables have room for it."""

_DEGREES_C = (-100.0, 1000.0)
_MAX_ERRORS = 20
_VERDICTS = ("comparable", "suspect", "invalid")
_STATISTICS = ("mean", "std", "min", "max", "p50", "p90", "p99")


def check_report(report: Mapping[str, object], benchmark: Benchmark) -> None:
    """Refuse what would mislead readers of a result; a report without schema is taken as it is.

    Args:
        report: What the runner wrote.
        benchmark: That it has to be a result of.

    Raises:
        InvalidInput: Naming what is wrong.
    """
    own = report.get("schema") == SCHEMA
    benchmark_id = benchmark.benchmark_id
    found = []
    if report.get("benchmark_id", None if own else benchmark_id) != benchmark_id:
        found.append(FieldError("/benchmark_id", "is another benchmark's", benchmark_id))
    if own:
        if report.get("status") not in ("ok", "failed"):
            found.append(FieldError("/status", "is not a status of a result", "ok or failed"))
        found += _latency_problems(report.get("inference_latency"))
        found += _amount_problems(report)
        found += _primary_problems(report)
        found += _verdict_problems(report)
        if report.get("status") == "ok":
            found += _other_work(report, benchmark.description)
    if found:
        raise InvalidInput(found)


def _other_work(report: Mapping[str, object], description: JobDescription) -> list[FieldError]:
    """Refuse the numbers of another type or engine, or of another load, than was asked for."""
    kind, engine = description.benchmark_type, description.runtime
    stated = {"benchmark_type": kind, "engine": engine, "inference_engine": engine}
    found = [
        FieldError(f"/{name}", "is not what was asked for", value)
        for name, value in stated.items()
        if report.get(name) not in (None, value)
    ]
    loads = {
        "soak": description.soak_s is not None,
        "concurrency": bool(description.concurrency),
        "load_test": description.load is not None,
    }
    for name, wanted in loads.items():
        if wanted and not isinstance(report.get(name), Mapping):
            found.append(FieldError(f"/{name}", "was asked for and is not there", "an object"))
        if not wanted and report.get(name) is not None:
            found.append(FieldError(f"/{name}", "was not asked for", "null"))
    return found or [
        FieldError(path, "is not what was asked for", str(accepted))
        for path, accepted in _other_rules(report, description)
    ]


def _other_rules(
    report: Mapping[str, object], description: JobDescription
) -> Iterator[tuple[str, object]]:
    """Yield what of a load's rules is another one than was asked for, and the right one."""
    rules, stated = description.load_rules, report.get("load_test")
    if rules is not None and isinstance(stated, Mapping):
        bound_ms = None if rules.bound_s is None else 1000 * rules.bound_s
        for name, accepted in (("kind", rules.kind), ("percentile", rules.percentile)):
            if stated.get(name) != accepted:
                yield f"/load_test/{name}", accepted
        if not _is_near(stated.get("bound_ms"), bound_ms):
            yield "/load_test/bound_ms", bound_ms
    curve = report.get("concurrency")
    levels = curve.get("levels") if isinstance(curve, Mapping) else None
    for at, level in enumerate(levels if isinstance(levels, list) else ()):
        callers = level.get("callers") if isinstance(level, Mapping) else None
        if callers not in description.concurrency:
            yield f"/concurrency/levels/{at}/callers", list(description.concurrency)
    soak = report.get("soak")
    if description.soak_s is not None and isinstance(soak, Mapping):
        yield from _other_windows(soak, description.soak_s, description.soak_window_s)


def _other_windows(
    soak: Mapping[str, object], soak_s: float, window_s: float
) -> Iterator[tuple[str, object]]:
    """Yield what is no window of this soak, and what is accepted."""
    if not _is_near(soak.get("window_s"), window_s):
        yield "/soak/window_s", window_s
    windows, max_windows, before_s = soak.get("windows"), soak_windows(soak_s, window_s), 0.0
    for at, window in enumerate(windows if isinstance(windows, list) else ()):
        begin_s, end_s = (
            window.get(name) if isinstance(window, Mapping) else None
            for name in ("begin_s", "end_s")
        )
        if not isinstance(begin_s, int | float) or not isinstance(end_s, int | float):
            continue
        if begin_s < before_s or end_s <= begin_s:
            yield f"/soak/windows/{at}", "windows that follow one another"
            return
        if at >= max_windows:
            yield f"/soak/windows/{at}", f"at most {max_windows} windows"
            return
        before_s = end_s


def _is_near(stated: object, wanted: float | None) -> bool:
    if wanted is None or not isinstance(stated, int | float):
        return stated is None and wanted is None
    return abs(stated - wanted) <= 1e-6 * wanted


def _latency_problems(latency: object) -> list[FieldError]:
    if latency is None:
        return []
    if not isinstance(latency, Mapping):
        return [FieldError("/inference_latency", "is not an object", "an object, or null")]
    return [
        FieldError(
            f"/inference_latency/{name}",
            f"is not a number from 0 to {_MAX_AMOUNT:g}",
            "milliseconds",
        )
        for name in _STATISTICS
        if not _is_amount(latency.get(name))
    ]


def _verdict_problems(report: Mapping[str, object]) -> list[FieldError]:
    """Refuse verdicts that there are not, and a median of 0 that is not called invalid."""
    sets = report.get("inference")
    parts = [("", report)]
    for at, each in enumerate(sets if isinstance(sets, list) else ()):
        if isinstance(each, Mapping):
            parts.append((f"/inference/{at}", each))
    found = []
    for path, part in parts:
        stated, latency = part.get("verdict"), part.get("inference_latency")
        verdict = stated.get("verdict") if isinstance(stated, Mapping) else None
        if stated is not None and not isinstance(stated, Mapping):
            found.append(FieldError(f"{path}/verdict", "is not an object", "an object, or null"))
        elif stated is not None and verdict not in _VERDICTS:
            accepted = ", ".join(_VERDICTS)
            found.append(FieldError(f"{path}/verdict/verdict", "is no verdict", accepted))
        p50 = latency.get("p50") if isinstance(latency, Mapping) else None
        if p50 == 0 and verdict != "invalid":
            reason = "is 0 in a result that is not invalid"
            found.append(FieldError(f"{path}/inference_latency/p50", reason, "milliseconds"))
    return found[:_MAX_ERRORS]


def _amount_problems(report: Mapping[str, object]) -> list[FieldError]:
    """Refuse rates, sizes and energies that are no numbers, below 0, or more than can be."""
    found = [f"/{name}" for name in _AMOUNTS if not _is_amount(report.get(name))]
    parts = [(f"/{name}", report.get(name)) for name in _PARTS]
    while parts:
        path, value = parts.pop()
        if isinstance(value, Mapping):
            parts += [(f"{path}/{name}", each) for name, each in value.items()]
        elif isinstance(value, list):
            parts += [(f"{path}/{at}", each) for at, each in enumerate(value)]
        elif isinstance(value, int | float):
            low, high = _range(path)
            if not low <= value <= high:
                found.append(path)
    energy = report.get("energy")
    inference = energy.get("per_inference") if isinstance(energy, Mapping) else None
    if isinstance(inference, Mapping) and not _is_amount(inference.get("value")):
        found.append("/energy/per_inference/value")
    problems = []
    for path in dict.fromkeys(found[:_MAX_ERRORS]):
        low, high = _range(path)
        reason = f"is not a number from {low:g} to {high:g}"
        problems.append(FieldError(path, reason, f"{low:g} to {high:g}, or null"))
    return problems


def _range(path: str) -> tuple[float, float]:
    """Return between which ends a number of a report is."""
    return _DEGREES_C if path.endswith(_SIGNED) else (0.0, _MAX_AMOUNT)


def _primary_problems(report: Mapping[str, object]) -> list[FieldError]:
    stated = report.get("primary_metric")
    found = primary_metric(report)
    ours = report.get("benchmark_type") in STANDARD_TYPES
    if ours and found is not None and found.value < 0:
        return [FieldError("/primary_metric", "is below 0", "a metric of 0 or more")]
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


def _is_amount(value: object) -> bool:
    """Return whether it is an amount, or null, which the runner writes for what is not finite."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and 0 <= cast(float, value) <= _MAX_AMOUNT)
