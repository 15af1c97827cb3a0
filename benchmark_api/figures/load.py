"""Figures of a load by LoadGen's rules: latency and queue by the rate of queries."""

from __future__ import annotations

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.schemas.answers import LoadResult, LoadTrial
from edgeyard.devices.metrics import percentile_text, rate_text


def load_test_figures(found: LoadResult) -> list[LineFigure]:
    """Return latencies and the longest queue by rate; none where there is but one trial."""
    trials = sorted((each for each in found.trials if each.rate), key=lambda each: each.rate or 0.0)
    if len(trials) < 2:
        return []
    rates = Axis(title="queries per second", unit="1/s")
    marks = []
    if found.largest_rate is not None:
        marks.append(Mark(x=found.largest_rate, text="largest rate that keeps the bound"))
    queues = [
        Sample(verdict=_verdict(each), x=each.rate or 0.0, value=float(each.queue_max or 0))
        for each in trials
    ]
    bound = [] if found.bound_ms is None else [_bound(trials, found.bound_ms)]
    return [
        LineFigure(
            title="Latency of a query, from its arrival on",
            x_axis=rates,
            axis=Axis(title="latency", unit="ms", direction="lower"),
            series=[*(_latencies(trials, name) for name in ("p50", "p90", "p99")), *bound],
            marks=marks,
        ),
        LineFigure(
            title="Longest queue",
            x_axis=rates,
            axis=Axis(title="queries that waited", direction="lower"),
            series=[Series(name="", samples=queues)],
            marks=marks,
        ),
    ]


def load_sentence(found: LoadResult) -> str:
    """Return what a load showed, by which rules, in words."""
    counts = f"the {percentile_text(found.percentile)}"
    result = found.result
    known = f"{result.latency_ms:.4g} ms"
    if found.bound_ms is None:
        estimate = found.early_stopping_ms
        cautious = "" if estimate is None else f" (early stopping: {estimate:.4g} ms)"
        return (
            f"By LoadGen's rules (single-stream, no MLPerf result) {result.nb_inference:,} queries "
            f"one after another had a latency of {known} at {counts}{cautious}."
        )
    bound = f"{found.bound_ms:g} ms at {counts}"
    late = _lateness(found)
    how = f"By LoadGen's rules (server, seed {found.seed}, no MLPerf result)"
    if found.largest_rate is None:
        kept = "kept" if result.kept else "not kept"
        return (
            f"{how} the bound of {bound} was {kept} at {rate_text(result.rate)} queries/s: {known} "
            f"at {counts}, {result.late} of {result.nb_inference:,} late, {result.max_late} "
            f"allowed. {late}"
        )
    end = _end(found)
    return (
        f"{how} the largest rate that keeps {bound} is {rate_text(found.largest_rate)} queries/s, "
        f"{end} {len(found.trials)} trials. At {rate_text(found.largest_rate)}/s {result.late} of "
        f"{result.nb_inference:,} queries were late, {result.max_late} allowed. {late}"
    )


def _end(found: LoadResult) -> str:
    if found.rate_not_kept is None:
        return "and no larger one was tried, in"
    what = "did not keep it" if found.not_kept_valid else "was invalid"
    return f"and {rate_text(found.rate_not_kept)}/s {what}, in"


def _lateness(found: LoadResult) -> str:
    late_ms = found.result.generator_late_ms or 0.0
    invalid = [each.rate for each in found.trials if not each.valid and each.rate is not None]
    text = f"The generator itself was late by {late_ms:.2g} ms at the "
    text += f"{percentile_text(found.percentile)}."
    if invalid:
        text += f" Trials from {rate_text(min(invalid))}/s on were invalid because of its lateness."
    return text


def _latencies(trials: list[LoadTrial], name: str) -> Series:
    return Series(
        name=name,
        samples=[
            Sample(
                verdict=_verdict(each),
                x=each.rate or 0.0,
                value=getattr(each, f"{name}_ms"),
                low=getattr(each, f"{name}_low_ms"),
                high=getattr(each, f"{name}_high_ms"),
            )
            for each in trials
        ],
    )


def _verdict(trial: LoadTrial) -> str:
    """Return how a trial is drawn: numbers of a part of it, or of a late generator, are hollow."""
    if not trial.valid:
        return "invalid"
    return "" if trial.ended == "complete" else "stopped"


def _bound(trials: list[LoadTrial], bound_ms: float) -> Series:
    ends = (trials[0].rate or 0.0, trials[-1].rate or 0.0)
    return Series(
        name="bound", samples=[Sample(verdict="", x=each, value=bound_ms) for each in ends]
    )
