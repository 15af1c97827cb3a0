"""How far a measurement can be trusted: ``comparable``, ``suspect`` or ``invalid``, and why.

*comparable*: nothing was found that speaks against comparing the number with others.
*suspect*: the number is what was measured, but something may have moved it.
*invalid*: the number says nothing about the model on this board.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Collection, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.metrics import Metric, known_ends, percentile_text
from edgeyard.devices.runner.conditions import Conditions
from edgeyard.devices.runner.interval import (
    MIN_LAUNCHES,
    MIN_SAMPLES,
    MedianInterval,
    launches_interval,
    median_interval,
    wilson_interval,
)
from edgeyard.devices.runner.warmup import WarmUp

OTHER_LOAD_SUSPECT = 0.05
"""Share of our CPUs' time: one busy neighbour in twenty moves a p99, and may move a p50."""

OTHER_LOAD_INVALID = 0.60
"""Beyond it most of the time belonged to others, and one fair neighbour takes only a half."""

FREQUENCY_CHANGE = 0.05
DRIFT = 0.05
MAX_INTERVAL_WIDTH = 0.05
"""Half-width of the p50's interval, relative: differences below 10 % could not be distinguished."""

MIN_CORRELATION_TIME = 2.0
"""Autocorrelation time from which on a wide interval is explained by it."""

_LOPSIDED = 1.25
"""Distance of the farther end, over the half-width, above which one number misstates both."""

CLOCK_ERROR = 0.01
CLOCK_READ_SHARE = 0.05
"""Reading the clock takes about 50 ns; a p50 of which that is more than 5 % is mostly clock."""

CLOCK_READ_MS = 50e-6

CLIPPED_SUSPECT = 0.01
"""Share of real numbers that a quantised input can't state: a calibration leaves out few."""

UNGIVEN_SUSPECT = 0.05
"""Share of rows: of many classes the outermost may well be given for no row by chance."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Something that speaks against a number: a stable code and a sentence for people."""

    code: str
    sentence: str
    invalid: bool = False


class Series(NamedTuple):
    """Numbers of a primary metric other than the p50; shape (n,), in the order of measuring."""

    metric: Metric
    numbers: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How far a number can be trusted.

    Attributes:
        verdict: ``comparable``, ``suspect`` or ``invalid``.
        not_checked: What this kernel does not report, so that it could not be checked.
        interval: Of the p50; None where there are too few runs.
    """

    verdict: str
    reasons: Tuple[Reason, ...]
    not_checked: Tuple[str, ...]
    interval: Optional[MedianInterval]

    def as_json(self) -> Mapping[str, object]:
        """Return the values as the report contains them."""
        return {
            "verdict": self.verdict,
            "reasons": [{"code": one.code, "sentence": one.sentence} for one in self.reasons],
            "not_checked": list(self.not_checked),
        }


def judge(
    latencies_ms: NDArray[np.float64],
    conditions: Conditions,
    *,
    warmup: Optional[WarmUp] = None,
    precision: Optional[float] = None,
    cap: str = "",
    loops: int = 1,
    launches: int = 1,
    primary: Optional[Series] = None,
    of_the_p50: bool = True,
) -> Verdict:
    """Return the verdict on a series of latencies, or on the primary metric next to them.

    Args:
        latencies_ms: Shape (runs,), in the order of the runs.
        warmup: What came before them; None where there was none (training).
        precision: The half-width that was asked for, relative; None: none.
        cap: Why the measurement ended if it is not reached, as the beginning of a sentence.
        loops: Consecutive inferences that each latency is the mean of.
        launches: Processes that measured them, one after another, as many each.
        primary: The numbers whose interval and drift count; None: those of the latencies.
        of_the_p50: Whether interval and drift of the latencies count where ``primary`` is None.
    """
    interval = median_interval(latencies_ms)
    if interval is not None and launches >= MIN_LAUNCHES and float(latencies_ms.min()) > 0:
        interval = launches_interval(interval, latencies_ms.reshape(launches, -1))
    reasons: List[Reason] = [
        *_of_the_clock(latencies_ms, interval, warmup, loops),
        *(
            _of_the_series(primary)
            if primary is not None
            else _of_the_runs(latencies_ms, interval, precision, cap)
            if of_the_p50
            else ()
        ),
        *_of_the_conditions(conditions),
    ]
    verdict = _worst(reasons)
    return Verdict(
        verdict=verdict,
        reasons=tuple(reasons),
        not_checked=tuple(_not_checked(conditions)),
        interval=interval,
    )


def doubted(verdict: Verdict, reasons: Sequence[Reason]) -> Verdict:
    """Return a verdict that also states reasons against what was run or compared."""
    every = (*verdict.reasons, *reasons)
    return replace(verdict, verdict=_worst(every), reasons=every)


def _worst(reasons: Sequence[Reason]) -> str:
    if not reasons:
        return "comparable"
    return "invalid" if any(one.invalid for one in reasons) else "suspect"


def not_steady(tolerance: float, windows: int) -> Reason:
    """State that a soak did not become steady, so that its number is of the whole of it.

    Args:
        tolerance: How far windows may be from the median of the steady part, relative.
        windows: Of the soak.
    """
    return Reason(
        code="not_steady",
        sentence=f"No steady part was found in {windows} windows, which is at least 3 to the end "
        f"whose p50s are within {tolerance:.0%} of their median and no longer drift: soak for "
        "longer, and look at temperatures and clocks.",
    )


def callers_exceed_cores(callers: int, cores: int) -> Reason:
    """State that more callers ran at once than there are cores."""
    return Reason(
        code="callers_exceed_cores",
        sentence=f"{callers} callers shared {cores} {'core' if cores == 1 else 'cores'}: beyond "
        "that many they wait for each other, and latencies contain these waits.",
    )


def callers_take_turns(p50_ms: float) -> Reason:
    """State that inferences are so short that callers wait for each other outside of the engine.

    Args:
        p50_ms: Of the number of callers with the shortest one.
    """
    return Reason(
        code="callers_take_turns",
        sentence=f"An inference took {_three_digits(p50_ms * 1e3)} µs: the callers are threads of "
        "one Python process, which take turns outside of the engine, and so short inferences show "
        "mostly that.",
    )


def generator_late(late_ms: float, bound_ms: float, *, invalid: bool) -> Reason:
    """State that queries of a load began late because of their sender.

    Args:
        late_ms: At the percentile that counts.
        bound_ms: The latency bound.
        invalid: It was so in the trial of the result, not in the one that ended the search.
    """
    what = "" if invalid else " at the rate that ended the search, so that the board may do more"
    return Reason(
        code="generator_late",
        sentence=f"The generator itself was late by {_three_digits(late_ms)} ms at the percentile "
        f"that counts, which is too much for a bound of {_three_digits(bound_ms)} ms{what}.",
        invalid=invalid,
    )


def rate_not_sustained(rate: float) -> Reason:
    """State that a queue grew until the trial at a fixed rate was ended."""
    return Reason(
        code="rate_not_sustained",
        sentence=f"At {_three_digits(rate)} queries/s the queue grew until the trial was stopped: "
        "latencies would grow without end, so state a smaller load_rate.",
        invalid=True,
    )


def load_cut_short(queries: int, lasted_s: float, min_s: float) -> Reason:
    """State that a trial ended at the largest number of queries that is kept.

    Args:
        queries: That number.
        lasted_s: How long the trial was, seconds.
        min_s: How long it was to be.
    """
    return Reason(
        code="load_cut_short",
        sentence=f"The trial ended after {lasted_s:.4g} s, before the load_duration of "
        f"{min_s:g} s: it had {queries:,} queries, and no trial has more.",
    )


def percentile_uncertain(
    percentile: float, low: Optional[float], high: Optional[float], *, cut_off: bool
) -> Reason:
    """State that the interval of the percentile that counts is wide, or has an unknown end.

    Args:
        percentile: E.g. 90.
        low: Lower end, ms; None: not known.
        high: Upper end, ms; None: not known.
        cut_off: Whether something else than the load's duration ended the trial.
    """
    advice = "" if cut_off else "; a longer load_duration would narrow it"
    ends = " to ".join("?" if each is None else _three_digits(each) for each in (low, high))
    return Reason(
        code="wide_interval",
        sentence=f"The 95 % interval of the {percentile_text(percentile)} is {ends} ms, wider than "
        f"±{_limit(MAX_INTERVAL_WIDTH)}{advice}.",
    )


def bracket_wide(rate: float, other: Optional[float], resolution: float) -> Reason:
    """State that a search ended before the largest rate was known well.

    Args:
        rate: That kept the bound.
        other: That did not; None: there was none.
        resolution: How near they are where a search has ended, relative.
    """
    between = (
        f"at least {_three_digits(rate)}/s"
        if other is None
        else f"between {_three_digits(rate)} and {_three_digits(other)}/s"
    )
    return Reason(
        code="bracket_wide",
        sentence=f"The search ended before both rates were within {_limit(resolution)}: the "
        f"largest rate is {between}; a longer user_time would show more.",
    )


def inputs_clipped(name: str, share: float, low: float, high: float) -> Iterator[Reason]:
    """State that a quantised input could not hold the numbers that it was given.

    Args:
        name: Of the input.
        share: Of its numbers that were clipped, 0-1.
        low: Smallest number that it can hold.
        high: Largest number that it can hold.
    """
    if share > CLIPPED_SUSPECT:
        yield Reason(
            code="inputs_clipped",
            sentence=f"{_percent(share, CLIPPED_SUSPECT)} of the numbers for input {name!r} are "
            f"outside of {low:.4g} to {high:.4g}, which is all that its quantization can state, "
            "and were clipped: state preprocessing/scale, mean and std as the model was trained "
            "with.",
        )


def input_range(name: str, low: float, high: float) -> Reason:
    """State that images were scaled by default for a quantised input of another range."""
    return Reason(
        code="input_range",
        sentence=f"Images were scaled to 0 to 1, and input {name!r} is quantised for {low:.4g} to "
        f"{high:.4g}: state preprocessing/scale, mean and std as the model was trained with.",
    )


def labels_not_given(rows_by_class: Mapping[int, int], given: Collection[int]) -> Iterator[Reason]:
    """State that a dataset has classes that a model gave for no row and may not know.

    A model that returns class numbers does not state which there are. Classes between those that
    it gave may be missing by chance, others too where they are few and near.

    Args:
        rows_by_class: Rows, pixels or boxes of the dataset, by their class.
        given: Classes that the model gave.
    """
    if not given or not rows_by_class:
        return
    low, high = min(given), max(given)
    odd = sorted(number for number in rows_by_class if not low <= number <= high)
    share = sum(rows_by_class[number] for number in odd) / sum(rows_by_class.values())
    far = any(number >= 2 * (high + 1) for number in odd)
    if far or share >= UNGIVEN_SUSPECT:
        shown = ", ".join(map(str, odd[:5])) + (f" and {len(odd) - 5} more" if odd[5:] else "")
        yield Reason(
            code="labels_not_given",
            sentence=f"The dataset has the classes {shown} ({share:.1%} of it), and the model "
            f"gave only {low} to {high}: it may not have such classes, or number them differently.",
        )


def labels_shifted(
    hits: int, by_step: Mapping[int, int], count: int, what: str
) -> Iterator[Reason]:
    """State that labels seem to be numbered from another class on than the model's.

    Args:
        hits: How many are right.
        by_step: How many would be with all labels so much higher, by 1 and -1.
        count: Of all.
        what: What is counted: "rows".
    """
    if not count:
        return
    _, high = wilson_interval(hits, count)
    for step, shifted in by_step.items():
        if 2 * shifted > count and wilson_interval(shifted, count)[0] > high:
            yield Reason(
                code="labels_shifted",
                sentence=f"{hits / count:.1%} of the {what} are right; with class numbers one "
                f"{'higher' if step > 0 else 'lower'} {shifted / count:.1%} would be: the dataset "
                "may number its classes from another number on than the model.",
            )


def _of_the_clock(
    latencies_ms: NDArray[np.float64],
    interval: Optional[MedianInterval],
    warmup: Optional[WarmUp],
    loops: int,
) -> Iterator[Reason]:
    if warmup is not None and not warmup.settled:
        yield Reason(
            code="not_settled",
            sentence=f"Latencies were still changing after {warmup.runs} warm-up runs "
            f"({warmup.seconds:.1f} s): there is no steady state to measure.",
            invalid=True,
        )
    if len(latencies_ms) and float(latencies_ms.min()) <= 0:
        yield Reason(
            code="clock",
            sentence="The clock stood still or went back during a run.",
            invalid=True,
        )
    if interval is not None and interval.median * loops < CLOCK_READ_MS / CLOCK_READ_SHARE:
        yield Reason(
            code="clock_resolution",
            sentence=f"What is timed at once took {interval.median * loops * 1e3:.2f} µs in the "
            "median, which is near the cost of reading the clock.",
        )


def _of_the_series(series: Series) -> Iterator[Reason]:
    """State what the interval and the drift of another metric than the p50 speak against."""
    metric, numbers = series
    interval = median_interval(numbers)
    if interval is None:
        yield Reason(
            code="too_few_runs",
            sentence=f"A series of {len(numbers)} is too short for a 95 % interval of "
            f"{metric.name}: that takes {MIN_SAMPLES} numbers or more.",
            invalid=True,
        )
        return
    if interval.half_width > MAX_INTERVAL_WIDTH:
        yield Reason(
            code="wide_interval",
            sentence=f"The {_wide(interval, MAX_INTERVAL_WIDTH, metric.name, metric.unit)}"
            f"{_alike(len(numbers), interval)}; more numbers would narrow it.",
        )
    drift = _drift(numbers)
    if drift is not None:
        yield Reason(
            code="drift",
            sentence=f"The second half of the numbers of {metric.name} was "
            f"{_percent(abs(drift), DRIFT)} {'higher' if drift > 0 else 'lower'} than the first.",
        )


def _of_the_runs(
    latencies_ms: NDArray[np.float64],
    interval: Optional[MedianInterval],
    precision: Optional[float],
    cap: str,
) -> Iterator[Reason]:
    runs = len(latencies_ms)
    if interval is None:
        yield Reason(
            code="too_few_runs",
            sentence=f"{runs} runs are too few for a 95 % interval of the p50: that takes "
            f"{MIN_SAMPLES} or more.",
            invalid=True,
        )
        return
    if precision is not None and interval.half_width > precision:
        yield Reason(
            code="precision_not_reached",
            sentence=f"{cap} after {runs} runs: the {_wide(interval, precision)}, the precision "
            f"that was asked for{_alike(runs, interval)}.",
        )
    elif interval.half_width > MAX_INTERVAL_WIDTH:
        yield Reason(
            code="wide_interval",
            sentence=f"The {_wide(interval, MAX_INTERVAL_WIDTH)}{_alike(runs, interval)}; more "
            "runs would narrow it.",
        )
    drift = _drift(latencies_ms)
    if drift is not None:
        yield Reason(
            code="drift",
            sentence=f"The second half of the runs was {_percent(abs(drift), DRIFT)} "
            f"{'slower' if drift > 0 else 'faster'} than the first.",
        )


def _wide(interval: MedianInterval, passed: float, name: str = "the p50", unit: str = "ms") -> str:
    """State the 95 % interval of a metric, and the limit that it is wider than.

    Args:
        passed: The limit of the half-width.
        name: Of the metric.
        unit: Of the metric; "": none.
    """
    if None in known_ends(interval.median, (interval.low, interval.high)):
        return f"95 % interval of {name} is not known, and so wider than ±{_limit(passed)}"
    ends = f"{_three_digits(interval.low)} to {_three_digits(interval.high)} {unit}".rstrip()
    width = _width(interval, passed)
    return f"95 % interval of {name} is {ends}{width}, wider than ±{_limit(passed)}"


def _width(interval: MedianInterval, passed: float) -> str:
    """Return how far the ends are from the median; "" where that is no share of it."""
    if not interval.half_width < 1:
        return ""
    mean = f"±{_percent(interval.half_width, passed)}"
    below, above = 1 - interval.low / interval.median, interval.high / interval.median - 1
    if max(below, above) <= _LOPSIDED * interval.half_width:
        return f" ({mean})"
    return f" (-{_percent(below)} to +{_percent(above)}, {mean} on average)"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _alike(runs: int, interval: MedianInterval) -> str:
    """Says so where runs that follow one another are alike, so that fewer count."""
    if interval.launches > 1:
        return f", because its {interval.launches} launches differed"
    if interval.tau < MIN_CORRELATION_TIME:
        return ""
    return (
        f", because runs that follow one another were alike: {runs} of them are worth "
        f"{max(1, round(interval.effective))} independent ones"
    )


def _of_the_conditions(found: Conditions) -> Iterator[Reason]:
    busy = _of_other_load(found)
    if busy is not None:
        yield busy
    if found.steal is not None and found.steal > OTHER_LOAD_SUSPECT:
        yield Reason(
            code="steal",
            sentence=f"The hypervisor took {_percent(found.steal, OTHER_LOAD_SUSPECT)} of the "
            "CPUs' time.",
        )
    if found.clock_error > CLOCK_ERROR:
        yield Reason(
            code="clock",
            sentence=f"The clock ran {_percent(found.clock_error, CLOCK_ERROR)} off the hardware's "
            "during the runs.",
            invalid=True,
        )
    if found.affinity_changed:
        yield Reason(
            code="affinity_changed",
            sentence="The CPUs that the measurement may use changed while it ran.",
        )
    if found.affinity_missed:
        yield Reason(
            code="affinity_missed",
            sentence="The measurement did not run on the CPUs that the board is made of.",
        )
    slowest, fastest = (
        (min(found.frequencies_mhz), max(found.frequencies_mhz))
        if found.frequencies_mhz
        else (0.0, 0.0)
    )
    if fastest > 0 and 1 - slowest / fastest > FREQUENCY_CHANGE:
        yield Reason(
            code="frequency_changed",
            sentence=f"The CPU's frequency was between {slowest:.0f} and {fastest:.0f} MHz.",
        )
    if found.throttle_events or found.throttled:
        yield Reason(
            code="throttled",
            sentence="The CPU was held back (heat or low voltage) during the runs.",
        )


def made_wait(found: Conditions) -> Optional[str]:
    """Return by how much other work made the runs wait, as a sentence; None: it hardly did.

    Where the kernel does not report the wait, the share of the other work counts.
    """
    share = found.other_load if found.queued is None else found.queued
    busy = None if (share or 0.0) <= OTHER_LOAD_SUSPECT else _of_other_load(found)
    return None if busy is None else busy.sentence


def _of_other_load(found: Conditions) -> Optional[Reason]:
    """State the other work on the CPUs; None: there was too little of it to matter.

    The sentence has the figure that decides, and the limit that makes a number invalid. Load that
    did not make the runs wait does less harm, so that where the kernel reports the wait, only the
    wait makes a number invalid.
    """
    load, wait = found.other_load or 0.0, found.queued or 0.0
    decides = load if found.queued is None else wait
    invalid = decides > OTHER_LOAD_INVALID
    if max(load, wait) <= OTHER_LOAD_SUSPECT:
        return None
    passed = OTHER_LOAD_INVALID if invalid else OTHER_LOAD_SUSPECT
    had = f"Other work had {_percent(load, passed)} of the time on the CPUs measured on"
    waited = f"runs waited for their CPUs {_percent(wait, passed)} of the time"
    if found.queued is None:
        sentence = had
    elif invalid or load <= OTHER_LOAD_SUSPECT:
        sentence = f"Because of other work, {waited}"
    else:
        sentence = f"{had}, and {waited}"
    more = f"; over {_limit(OTHER_LOAD_INVALID)} a number is invalid" if invalid else ""
    return Reason(code="other_load", sentence=f"{sentence}{more}.", invalid=invalid)


def _percent(value: float, passed: float = 0.0) -> str:
    """Show a share in percent, with as many digits as it takes to tell it from a limit below it."""
    text = ""
    for digits in range(1 if 0 < value < 0.1 else 0, 6):
        text = f"{value:.{digits}%}"
        if value <= passed or float(text[:-1]) > 100 * passed:
            break
    return text


def interval_so_far(interval: Optional[MedianInterval], precision: float, limits: str) -> str:
    """State how well a p50 is known while it is measured.

    Args:
        interval: Of what was measured so far; None: too little for an interval.
        precision: The half-width that is asked for, relative.
        limits: What ends the measurement at the latest.
    """
    known = "not known yet" if interval is None else f"±{_percent(interval.half_width)}"
    return f"p50 {known}, ±{_limit(precision)} asked for; {limits}"


def _limit(value: float) -> str:
    """Show a limit or what was asked for, in percent, without zeros at the end."""
    return f"{100 * value:.4g}%"


def _drift(latencies_ms: NDArray[np.float64]) -> Optional[float]:
    """Return the relative change of the median between the halves; None if insignificant."""
    half = len(latencies_ms) // 2
    first, second = median_interval(latencies_ms[:half]), median_interval(latencies_ms[half:])
    if first is None or second is None or first.median <= 0:
        return None
    change = second.median / first.median - 1
    apart = first.high < second.low or second.high < first.low
    return change if apart and abs(change) > DRIFT and math.isfinite(change) else None


def _not_checked(found: Conditions) -> Iterator[str]:
    if found.other_load is None and found.queued is None:
        yield "other_load"
    if not found.frequencies_mhz:
        yield "frequency"
    if found.throttle_events is None and found.throttled is None:
        yield "throttling"
    if found.temperature_after_c is None:
        yield "temperature"
