"""Figures of several callers at once: throughput and latency by their number."""

from __future__ import annotations

from collections.abc import Callable

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.schemas.answers import ConcurrencyLevel, ConcurrencyResult


def concurrency_figures(found: ConcurrencyResult) -> list[LineFigure]:
    """Return throughput and latency by the number of callers, with the knee marked."""
    callers = Axis(title="callers at once")
    marks = (
        [] if found.knee is None else [Mark(x=float(found.knee), text="knee, number of callers")]
    )
    rates = _samples(found, lambda one: (one.runs_per_s, one.runs_per_s_low, one.runs_per_s_high))
    medians = _samples(found, lambda one: (one.p50_ms, one.p50_low_ms, one.p50_high_ms))
    tails = _samples(found, lambda one: (one.p99_ms, one.p99_low_ms, one.p99_high_ms))
    return [
        LineFigure(
            title="Throughput of all callers together",
            x_axis=callers,
            axis=Axis(title="throughput", unit="1/s", direction="higher"),
            series=[Series(name="", samples=rates)],
            marks=marks,
        ),
        LineFigure(
            title="Latency of an inference",
            x_axis=callers,
            axis=Axis(title="latency", unit="ms", direction="lower"),
            series=[Series(name="p50", samples=medians), Series(name="p99", samples=tails)],
            marks=marks,
        ),
    ]


def _samples(
    found: ConcurrencyResult,
    numbers: Callable[[ConcurrencyLevel], tuple[float, float | None, float | None]],
) -> list[Sample]:
    """Return a number of each level, with the ends of its interval, by the number of callers."""
    return [
        Sample(verdict="", x=float(each.callers), value=value, low=low, high=high)
        for each in found.levels
        for value, low, high in [numbers(each)]
    ]


def concurrency_sentence(found: ConcurrencyResult) -> str:
    """Return where the knee is, and how the callers shared the board, in words."""
    models = "one loaded model" if found.shared_model else "a loaded model each"
    cores = f"{found.cores} {'core' if found.cores == 1 else 'cores'}"
    shared = f"Callers had {models} on {cores}."
    if found.knee is None:
        return f"The result is of {_callers_text(found.callers)} at once. {shared}"
    knee = (
        f"The knee is at {_callers_text(found.knee)}, where throughput per latency is largest: the "
        "result is from there."
    )
    if found.levels and found.knee == found.levels[-1].callers:
        knee += " No more were measured, so it may be at more."
    if found.not_distinct:
        others = ", ".join(map(str, found.not_distinct))
        knee += f" Within the intervals it may be at {others}, too."
    return f"{knee} {shared}"


def _callers_text(count: int) -> str:
    """Return a number of callers, in words."""
    return "1 caller" if count == 1 else f"{count} callers"
