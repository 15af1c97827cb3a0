"""The metrics of benchmark types: unit, direction, a plain name, and which one is primary.

The primary metric of a result is the one that tables show, that ratios, series and checks compare,
and that boards' repeated numbers are kept of. That of Edgeyard's own types is the p50, with several
concurrent callers the throughput, and of language models (GENAI) the tokens per second; by
LoadGen's rules it is the rate that keeps a bound, or the latency at the percentile that counts. An
engine marks one of the values that its declaration of a type lists
(`edgeyard.devices.benchmark_types.TypeResult`); of a type without a mark it is the p50 of the times
that the engine measured.

A report states its own primary metric (``primary_metric``), with unit and direction of declared
values, so that a result stays right when the declaration changes.

Imported on boards too: only the standard library, Python 3.10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Dict, Iterator, List, Mapping, Optional, Tuple, Union

LOWER, HIGHER = "lower", "higher"
DIRECTIONS = (LOWER, HIGHER)

_UNKNOWN_FACTOR = 999.0
"""`edgeyard.devices.runner.interval` cuts an interval at 1000 times its value, and at a 1000th."""

_ROUNDING = 1e-9
"""Relative; a value that its interval misses by less is at its end."""

_Path = Tuple[Union[str, int], ...]


@dataclass(frozen=True)
class Metric:
    """What a number of a result is.

    Attributes:
        name: Key in the report, e.g. ``p50``.
        title: Its plain name, e.g. ``median latency``; of no meaning for equality.
        unit: E.g. ``ms``; "": none.
        better: Which numbers are better: one of `DIRECTIONS`; "": not known, so that nothing
            decides by it.
    """

    name: str
    title: str = field(default="", compare=False)
    unit: str = ""
    better: str = ""

    @property
    def heading(self) -> str:
        """Its name as the title of a column, with the unit: ``P50 ms``, ``RUNS/s``."""
        if self.unit == "1/s" and self.name.endswith("_per_s"):
            return f"{self.name[: -len('_per_s')].replace('_', ' ').upper()}/s"
        return f"{self.name.replace('_', ' ').upper()} {self.unit}".strip()

    @property
    def label(self) -> str:
        """Its name with the unit, e.g. ``p50, ms``."""
        return ", ".join(filter(None, (self.name, self.unit)))

    @property
    def direction(self) -> str:
        """Which numbers are better, in words; "": not known."""
        return f"{self.better} is better" if self.better else ""

    @property
    def sentence(self) -> str:
        """Name, unit and direction, which numbers that are compared have in common."""
        named = f"{self.name} in {self.unit}" if self.unit else self.name
        return ", ".join(filter(None, (named, self.direction)))

    def slowdown(self, ratio: float) -> float:
        """Return by how much a number is worse than a reference, relative to the reference.

        Args:
            ratio: The number over the reference.

        Returns:
            E.g. 0.03 for 3 % more where lower is better, or 3 % less where higher is better;
            negative: it is better.
        """
        return 1 - ratio if self.better == HIGHER else ratio - 1


@dataclass(frozen=True)
class MeasuredMetric:
    """A number of a report.

    Attributes:
        metric: What it is.
        value: In the metric's unit; finite.
        primary: Whether it is the report's primary metric.
        low: Lower end of its 95 % interval; None: not known.
        high: Upper end.
        degrees: Degrees of freedom of that interval.
    """

    metric: Metric
    value: float
    primary: bool = False
    low: Optional[float] = None
    high: Optional[float] = None
    degrees: Optional[float] = None


@dataclass(frozen=True)
class StandardMetric:
    """A metric of Edgeyard's own, and where a report states it.

    Attributes:
        metric: What it is.
        path: Keys and positions that lead to its number.
        interval: Keys that lead to the two ends of its 95 % interval; empty: there is none.
        degrees: Keys that lead to the interval's degrees of freedom; empty: there are none.
    """

    metric: Metric
    path: _Path
    interval: _Path = ()
    degrees: _Path = ()


P50 = Metric("p50", "median latency", "ms", LOWER)
"""Primary metric of TYPE1 by one caller, TYPE2 and TYPE3, and of declared types without one."""

_LATENCY = "inference_latency"


def _times(unit_of_work: str) -> Tuple[StandardMetric, ...]:
    """Return the times of a unit of work, e.g. ``a batch``; "": of an inference."""
    of = f" of {unit_of_work}" if unit_of_work else ""
    ci95, degrees = (_LATENCY, "p50_ci95"), (_LATENCY, "p50_ci95_degrees")
    return (
        StandardMetric(replace(P50, title=f"median latency{of}"), (_LATENCY, "p50"), ci95, degrees),
        *(
            StandardMetric(Metric(name, f"{title}{of}", "ms", LOWER), (_LATENCY, name))
            for name, title in (
                ("p90", "90th percentile of the latency"),
                ("p99", "99th percentile of the latency"),
                ("mean", "mean latency"),
            )
        ),
    )


RUNS_PER_S = Metric("runs_per_s", "inferences per second", "1/s", HIGHER)
"""Primary metric of TYPE1 by several callers at once."""

LOAD_RATE = Metric("load_rate", "largest rate that keeps the latency bound", "1/s", HIGHER)
"""Primary metric of TYPE1 under a server load whose largest rate is searched."""

LOAD_LATENCY = Metric("load_latency", "latency at the percentile that counts", "ms", LOWER)
"""Primary metric of TYPE1 by single-stream, and under a server load of a fixed rate."""

_LOAD = "load_test"
LOAD_METRICS: Mapping[str, str] = {
    RUNS_PER_S.name: "concurrency",
    LOAD_RATE.name: _LOAD,
    LOAD_LATENCY.name: _LOAD,
}
"""Primary metrics of TYPE1 other than the p50, each with the part that its reports have."""


def _number(name: str, title: str, unit: str, better: str, *path: "str | int") -> StandardMetric:
    return StandardMetric(Metric(name, title, unit, better), path or (name,))


_LOADING = (
    _number("load_cold_ms", "first loading of the model", "ms", LOWER, "load", "cold_ms"),
    _number("load_warm_ms", "second loading of the model", "ms", LOWER, "load", "warm_ms"),
)
_INFERENCE = (
    StandardMetric(RUNS_PER_S, ("runs_per_s",), ("runs_per_s_ci95",), ("runs_per_s_ci95_degrees",)),
    StandardMetric(LOAD_RATE, (_LOAD, "largest_rate")),
    StandardMetric(
        LOAD_LATENCY,
        (_LOAD, "latency_ms"),
        (_LOAD, "latency_ci95"),
        (_LOAD, "latency_ci95_degrees"),
    ),
    _number("rows_per_s", "rows per second", "1/s", HIGHER),
    _number("first_inference_ms", "first inference after loading", "ms", LOWER),
    *_LOADING,
)
_MEMORY = (
    _number("ram_peak", "peak memory", "B", LOWER),
    _number("ram_model", "peak memory without the runner's own", "B", LOWER),
)


def _energy(unit_of_work: str) -> Tuple[StandardMetric, ...]:
    """Return the energy of a unit of work, e.g. ``an inference``."""
    return tuple(
        StandardMetric(
            Metric(name, f"energy of {unit_of_work}{more}", "J", LOWER),
            ("energy", key, "value"),
            ("energy", key, "ci95"),
            ("energy", key, "ci95_degrees"),
        )
        for name, more, key in (
            ("energy_j", "", "per_inference"),
            ("energy_above_idle_j", " above that of the idle board", "per_inference_above_idle"),
        )
    )


_ACCURACY = (
    StandardMetric(Metric("top1", "accuracy", "", HIGHER), ("accuracy", "top1")),
    *(
        _number(name, title, "", better, "accuracy", name)
        for name, title, better in (
            ("top5", "right class among the five best", HIGHER),
            ("mae", "mean absolute error", LOWER),
            ("rmse", "root mean square error", LOWER),
            ("miou", "mean intersection over union", HIGHER),
            ("pixel_accuracy", "share of right pixels", HIGHER),
            ("map", "mean average precision", HIGHER),
            ("map50", "mean average precision at an overlap of 50 %", HIGHER),
        )
    ),
)
_TRAINING = (
    _number("runs_per_s", "training steps per second", "1/s", HIGHER),
    _number("final_loss", "loss of the last step", "", LOWER, "training", "final_loss"),
    _number(
        *("validation_accuracy", "accuracy on validation rows after the last epoch", "", HIGHER),
        *("training", "validation_accuracy", -1),
    ),
)

DECODE_TOKENS_PER_S = Metric("decode_tokens_per_s", "tokens written per second", "1/s", HIGHER)
"""Primary metric of GENAI."""

PREFILL_TOKENS_PER_S = Metric(
    "prefill_tokens_per_s", "tokens of the prompt read per second", "1/s", HIGHER
)
"""Primary metric of GENAI where each request has one token of output."""

TIME_TO_FIRST_TOKEN_MS = Metric("time_to_first_token_ms", "time to first token", "ms", LOWER)
REQUEST_MS = Metric("request_ms", "time of a request after the first", "ms", LOWER)

TOKEN_P99_MS = Metric("token_p99_ms", "99th percentile of a token after the first", "ms", LOWER)

_GENERATION = tuple(
    StandardMetric(
        each,
        ("results", each.name, "value"),
        ("results", each.name, "ci95"),
        ("results", each.name, "ci95_degrees"),
    )
    for each in (
        DECODE_TOKENS_PER_S,
        PREFILL_TOKENS_PER_S,
        TIME_TO_FIRST_TOKEN_MS,
        TOKEN_P99_MS,
        REQUEST_MS,
    )
)


def rate_text(rate: Optional[float]) -> str:
    """Return a rate of queries with four digits and without an exponent."""
    return f"{rate or 0.0:,.0f}" if (rate or 0.0) >= 1000 else f"{rate or 0.0:.4g}"


def percentile_text(percentile: float) -> str:
    """Return the name of a percentile, e.g. ``90th percentile``."""
    whole = int(percentile)
    is_teen = whole != percentile or whole % 100 in (11, 12, 13)
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(whole % 10, "th")
    return f"{percentile:g}{ending} percentile"


def generation_primary(output_length: int) -> Metric:
    """Return the primary metric of GENAI for outputs of so many tokens."""
    return DECODE_TOKENS_PER_S if output_length > 1 else PREFILL_TOKENS_PER_S


def _generating(token: str) -> Tuple[StandardMetric, ...]:
    """Return the metrics of GENAI.

    Args:
        token: What the latencies are of, e.g. ``a token``.
    """
    return (
        *_GENERATION,
        *_times(token),
        _number(
            *("first_request_ms", "first request after loading", "ms", LOWER),
            *("generation", "first_request_ms"),
        ),
        *_LOADING,
        *_MEMORY,
        *_energy(token),
    )


_PREFILL = _generating("the first token")

STANDARD_METRICS: Mapping[str, Tuple[StandardMetric, ...]] = {
    "TYPE1": (*_times(""), *_INFERENCE, *_MEMORY, *_energy("an inference")),
    "TYPE2": (*_times("a batch"), *_ACCURACY, *_INFERENCE, *_MEMORY),
    "TYPE3": (*_times("a training step"), *_TRAINING, *_MEMORY),
    "GENAI": _generating("a token"),
}
"""Metrics of Edgeyard's own types, each type's primary one first."""

_DECLARED = (*_times("a measured unit of work"), *_MEMORY)
"""Metrics of types that engines declare, next to the values that the declaration lists."""

RESERVED_NAMES = frozenset(each.metric.name for each in _DECLARED)
"""Names that no declared value has."""

_NAMED_ACCURACIES = ("classification", "regression", "segmentation", "detection")
"""Accuracies of TYPE2 whose numbers `_ACCURACY` lists."""


def standard_metrics(benchmark_type: str, primary: object = "") -> Tuple[StandardMetric, ...]:
    """Return the metrics that results of a type have whatever its engine declares.

    Args:
        benchmark_type: Name of the type.
        primary: Name of the primary metric, which states what the latencies of GENAI are of: the
            first token where a request has no other one.
    """
    if benchmark_type == "GENAI" and primary == PREFILL_TOKENS_PER_S.name:
        return _PREFILL
    return STANDARD_METRICS.get(benchmark_type, _DECLARED)


def measured_metrics(report: Mapping[str, object]) -> List[MeasuredMetric]:
    """Return the numbers of a report, each name once, the primary one first.

    Args:
        report: May come from anywhere; what is no number of a metric is left out.
    """
    found: Dict[str, MeasuredMetric] = {}
    for each in _values(report):
        found.setdefault(each.metric.name, each)
    primary = primary_metric(report)
    if primary is None:
        return list(found.values())
    del found[primary.metric.name]
    return [primary, *found.values()]


def primary_metric(report: Mapping[str, object]) -> Optional[MeasuredMetric]:
    """Return the number of a report that comparisons use; None where it has none."""
    stated = report.get("primary_metric")
    name = stated if isinstance(stated, str) else P50.name
    found = next((each for each in _values(report) if each.metric.name == name), None)
    return replace(found, primary=True) if found is not None and found.metric.better else None


def known_ends(value: object, interval: object) -> Tuple[Optional[float], Optional[float]]:
    """Return the ends of a 95 % interval as a report states it; None where they are not known.

    An end as far from its value as `edgeyard.devices.runner.interval` lets one be states that the
    samples do not show how far away it is. Then neither end is known; nor are those of an interval
    that does not contain its value.

    Args:
        value: What the interval is of; may come from anywhere, as the interval.
    """
    if not isinstance(interval, (list, tuple)) or len(interval) != 2:
        return None, None
    middle, low, high = _finite(value), _finite(interval[0]), _finite(interval[1])
    if middle is None or low is None or high is None:
        return low, high
    slack = _ROUNDING * abs(middle)
    if not low - slack <= middle <= high + slack:
        return None, None
    if min(middle, low, high) <= 0:
        return low, high
    is_known = max(high / middle, middle / low) < _UNKNOWN_FACTOR
    return (low, high) if is_known else (None, None)


def _values(report: Mapping[str, object]) -> Iterator[MeasuredMetric]:
    """Yield the numbers of a report; the first one of a name counts."""
    kind = report.get("benchmark_type")
    yield from _declared_values(report.get("results"))
    yield from _standard_values(
        report,
        standard_metrics(kind if isinstance(kind, str) else "TYPE1", report.get("primary_metric")),
    )
    yield from _other_accuracy(report.get("accuracy"))


def _standard_values(
    report: Mapping[str, object], metrics: Tuple[StandardMetric, ...]
) -> Iterator[MeasuredMetric]:
    for each in metrics:
        value = _finite(_at(report, each.path))
        if value is not None:
            low, high = known_ends(value, _at(report, each.interval) if each.interval else None)
            degrees = _finite(_at(report, each.degrees)) if each.degrees else None
            yield MeasuredMetric(each.metric, value, False, low, high, degrees)


def _declared_values(results: object) -> List[MeasuredMetric]:
    """Return the numbers that a declared type has, as `results` of the report states them."""
    found = []
    for name, stated in results.items() if isinstance(results, dict) else ():
        value = _finite(stated.get("value")) if isinstance(stated, dict) else None
        if not isinstance(name, str) or not isinstance(stated, dict) or value is None:
            continue
        title, unit, better = (
            text if isinstance(text := stated.get(key), str) else ""
            for key in ("title", "unit", "better")
        )
        metric = Metric(name, title or name, unit, better if better in DIRECTIONS else "")
        low, high = known_ends(value, stated.get("ci95"))
        degrees = _finite(stated.get("ci95_degrees"))
        found.append(MeasuredMetric(metric, value, False, low, high, degrees))
    return found


def _other_accuracy(accuracy: object) -> List[MeasuredMetric]:
    """Return an accuracy that only a foreign runner knows: its direction is not known."""
    if not isinstance(accuracy, dict) or accuracy.get("metric") in (None, *_NAMED_ACCURACIES):
        return []
    name, value = accuracy.get("name"), _finite(accuracy.get("value"))
    return [MeasuredMetric(Metric(name, name), value)] if isinstance(name, str) and value else []


def _at(report: object, path: _Path) -> object:
    """Return what a path leads to; None where it leads nowhere."""
    for key in path:
        if isinstance(report, Mapping) and isinstance(key, str):
            report = report.get(key)
        elif isinstance(report, list) and isinstance(key, int) and report:
            report = report[key]
        else:
            return None
    return report


def _finite(value: object) -> Optional[float]:
    """Return a number of a report; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number that no double holds
        return None
