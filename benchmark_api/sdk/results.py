"""What a benchmark measured, as typed values, each with how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.fields import Record, number, record, text, whole
from edgeyard.devices.metrics import P50, MeasuredMetric, known_ends, measured_metrics
from edgeyard.errors import InvalidInput

Fetch = Callable[[str, shapes.ResultFile, Path], Path]
"""Fetches a file of a benchmark's results to a place, and returns where it lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Statistics of the time of one inference, milliseconds; None where not measured.

    Attributes:
        p50_low_ms: Lower end of the p50's confidence interval.
        count: Inferences that were measured; of TYPE2 batches, of TYPE3 training steps.
        inner_loops: Consecutive inferences that each timed number is the mean of: above 1 for a
            model of microseconds. All statistics are of these numbers.
    """

    mean_ms: float | None = None
    std_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    p50_ms: float | None = None
    p50_low_ms: float | None = None
    p50_high_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    count: int | None = None
    inner_loops: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far a number can be trusted: ``comparable``, ``suspect`` or ``invalid``, and why."""

    verdict: str
    reasons: tuple[shapes.Reason, ...] = ()

    @property
    def comparable(self) -> bool:
        """Return whether nothing was found that would make the number another one next time."""
        return self.verdict == "comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredValue:
    """A value that the engine's declaration of a benchmark type lists.

    Attributes:
        unit: May be empty.
        title: Its plain name; its name where the declaration states none.
        better: Which numbers are better, ``lower`` or ``higher``; "": the declaration states none.
        low: Lower end of its 95 % interval; None: not known, or the engine returned no series of
            numbers.
        high: Upper end.
    """

    value: str | int | float | bool
    unit: str
    title: str
    better: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Results:
    """All that came back of one benchmark; a notebook shows it as a table.

    Attributes:
        summary: The row that comparisons show; None before there is a report.
        report: The last attempt's ``report.json``; empty before there is one.
        verdict: None before there is a report.
        metrics: All numbers of the report with unit, plain name and direction, by name; the
            primary one, which comparisons use, is first.
        accuracy: Share of right answers, 0-1 (TYPE2); None elsewhere.
        values: Values of a type that the engine declares, by name; empty for other types.
        answer: The server's answer, with the reports of all attempts.
    """

    benchmark_id: str
    status: str
    summary: shapes.ResultRow | None
    report: Record
    latency: Latency | None
    verdict: Trust | None
    metrics: Mapping[str, MeasuredMetric]
    accuracy: float | None
    values: Mapping[str, DeclaredValue]
    files: tuple[shapes.ResultFile, ...]
    answer: shapes.Results
    fetch: Fetch = field(compare=False)

    def __repr__(self) -> str:
        shown = "; ".join(f"{name} {value}" for name, value in self._facts().items() if value)
        return f"<Results {self.benchmark_id}: {shown}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks; all texts are escaped."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self._facts(reasons=True).items()
            if value
        )
        title = f"<caption><b>{escape(self.benchmark_id)}</b></caption>"
        return f"<table>{title}<tbody>{rows}</tbody></table>"

    def _facts(self, *, reasons: bool = False) -> dict[str, str]:
        """Return what says most about it, by name; empty where there is nothing to say."""
        row = self.summary
        ran = verdict = ""
        if row is not None:
            ran = f"{row.model} ({row.runtime}) on {row.target_uid or row.target}"
        if self.verdict is not None:
            why = " ".join(each.sentence or each.code for each in self.verdict.reasons)
            verdict = self.verdict.verdict + (f": {why}" if why and reasons else "")
        found = {
            "status": self.status,
            "ran": ran,
            **{
                name: _text(each)
                for name, each in self.metrics.items()
                if each.primary or name == P50.name
            },
            "verdict": verdict,
            "accuracy": "" if self.accuracy is None else f"{self.accuracy:.2%}",
        }
        if row is not None and row.metric is not None and row.metric_value is not None:
            found[row.metric] = f"{row.metric_value:.4g}"
        for name, each in self.values.items():
            is_real = isinstance(each.value, float)
            value = f"{each.value:.4g}" if is_real else str(each.value)
            found.setdefault(name, f"{value} {each.unit}".strip())
        if reasons:
            found["files"] = ", ".join(sorted({each.name for each in self.files}))
        return found

    @property
    def primary(self) -> MeasuredMetric | None:
        """The number that comparisons use; None before there is one."""
        return next((each for each in self.metrics.values() if each.primary), None)

    @property
    def soak(self) -> shapes.SoakResult | None:
        """The windows of a soak, its steady part and its throttling; None of other results."""
        return self.answer.soak

    @property
    def concurrency(self) -> shapes.ConcurrencyResult | None:
        """The numbers of callers with their throughput, and the knee; None of other results."""
        return self.answer.concurrency

    @property
    def load_test(self) -> shapes.LoadResult | None:
        """The trials by LoadGen's rules and their largest rate; None of other results."""
        return self.answer.load_test

    def as_json(self) -> dict[str, Any]:
        """Return the server's answer as JSON values."""
        return as_json(self.answer)

    def download(self, name: str, path: str | Path) -> Path:
        """Fetch a file of the newest attempt that has it.

        Args:
            path: A file to write, or a folder to put it into.

        Returns:
            Where it lies; nothing is left there if the fetching fails.

        Raises:
            InvalidInput: No attempt has a file of this name; the error lists those that exist.
        """
        having = [file for file in self.files if file.name == name]
        if not having:
            names = ", ".join(sorted({file.name for file in self.files})) or "none yet"
            raise InvalidInput.at("/name", f"{self.benchmark_id} has no file {name!r}", names)
        newest = max(having, key=lambda file: file.attempt)
        return self.fetch(self.benchmark_id, newest, Path(path))


def results_of(answer: shapes.Results, fetch: Fetch) -> Results:
    """Return the results that the server answered."""
    report = answer.newest_report
    accuracy = answer.summary.accuracy if answer.summary is not None else None
    return Results(
        benchmark_id=answer.benchmark_id,
        status=answer.status,
        summary=answer.summary,
        report=report,
        latency=latency_of(report),
        verdict=trust_of(report),
        metrics={each.metric.name: each for each in measured_metrics(report)},
        accuracy=accuracy if accuracy is not None else accuracy_of(report),
        values=declared_values(report),
        files=tuple(answer.files),
        answer=answer,
        fetch=fetch,
    )


def latency_of(report: Record) -> Latency | None:
    """Return the latency statistics of a report; None where it has none."""
    raw = record(report, "inference_latency")
    if not raw:
        return None
    low, high = known_ends(raw.get("p50"), _interval(raw))
    return Latency(
        mean_ms=number(raw, "mean"),
        std_ms=number(raw, "std"),
        min_ms=number(raw, "min"),
        max_ms=number(raw, "max"),
        p50_ms=number(raw, "p50"),
        p50_low_ms=low,
        p50_high_ms=high,
        p90_ms=number(raw, "p90"),
        p99_ms=number(raw, "p99"),
        count=whole(report, "nb_inference") or whole(raw, "count"),
        inner_loops=whole(report, "inner_loops") or 1,
    )


def trust_of(report: Record) -> Trust | None:
    """Return the verdict of a report; None where it has none."""
    raw = record(report, "verdict")
    verdict = text(raw, "verdict")
    return Trust(verdict=verdict, reasons=_reasons(raw.get("reasons"))) if verdict else None


def _reasons(given: object) -> tuple[shapes.Reason, ...]:
    listed = given if isinstance(given, list) else []
    return tuple(
        shapes.Reason(code=text(one, "code") or "", sentence=text(one, "sentence") or "")
        for one in listed
        if isinstance(one, Mapping)
    )


def declared_values(report: Record) -> Mapping[str, DeclaredValue]:
    """Return the values of a type that the engine declares; empty for other types."""
    found = {}
    results = record(report, "results")
    for name in results:
        each = record(results, name)
        value = each.get("value")
        if isinstance(value, str | int | float):
            low, high = known_ends(value, each.get("ci95"))
            found[name] = DeclaredValue(
                value=value,
                unit=text(each, "unit") or "",
                title=text(each, "title") or name,
                better=text(each, "better") or "",
                low=low,
                high=high,
            )
    return found


def accuracy_of(report: Record) -> float | None:
    """Return the share of right answers of a TYPE2 report."""
    value = report.get("accuracy")
    if isinstance(value, Mapping):
        if value.get("metric"):
            return None
        return (
            number(value, "top1") if number(value, "top1") is not None else number(value, "value")
        )
    return number(report, "accuracy")


def _text(measured: MeasuredMetric) -> str:
    """Return a number with its unit and its interval."""
    unit = f" {measured.metric.unit}".rstrip()
    found = f"{measured.value:.4g}{unit}"
    if measured.low is not None and measured.high is not None:
        found += f" (95 %: {measured.low:.4g} to {measured.high:.4g}{unit})"
    return found


def _pair(value: object) -> tuple[float | None, float | None]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None, None
    pair = {"low": value[0], "high": value[1]}
    return number(pair, "low"), number(pair, "high")


def _interval(raw: Record) -> tuple[float | None, float | None]:
    """Return the p50's confidence interval, as a pair or as an object."""
    for key in ("p50_interval", "p50_ci", "p50_ci95"):
        value = raw.get(key)
        if isinstance(value, Mapping):
            return number(value, "low"), number(value, "high")
        if isinstance(value, list | tuple) and len(value) == 2:
            return _pair(value)
    return number(raw, "p50_low"), number(raw, "p50_high")
