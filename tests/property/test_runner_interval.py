"""The interval of the median: right as often as it says, and never nonsense."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.bench_repeat import share_by_own_intervals
from edgeyard.devices.runner.conditions import Conditions
from edgeyard.devices.runner.interval import (
    MIN_SAMPLES,
    MedianInterval,
    autocorrelation_time,
    launches_interval,
    median_interval,
)
from edgeyard.devices.runner.measure import StopRule, measure
from edgeyard.devices.runner.trust import judge
from edgeyard.devices.runner.warmup import warm_up

QUIET = Conditions(wall_s=1.0, own_cpu_s=1.0, cpus=(0,), other_load=0.0, queued=0.0)


def autoregressive(
    rng: np.random.Generator, series: int, n: int, rho: float
) -> NDArray[np.float64]:
    """Shape (series, n): x_i = rho x_(i-1) + e_i with a variance of 1 around a median of 0."""
    noise = rng.normal(size=(series, n + 200)) * math.sqrt(1 - rho * rho)
    x = np.zeros_like(noise)
    for i in range(1, n + 200):
        x[:, i] = rho * x[:, i - 1] + noise[:, i]
    return x[:, 200:]


def coverage(samples: NDArray[np.float64], median: float) -> float:
    """Share of the series whose interval holds the median."""
    found = [median_interval(one) for one in samples]
    held = sum(one is not None and one.low <= median <= one.high for one in found)
    return held / len(found)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("rho", "n", "low", "high"),
    [
        # the default number of runs; with 20 runs at 0.9 there are hardly two independent ones
        (0.0, 20, 0.95, 0.99),
        (0.5, 20, 0.95, 0.99),
        (0.8, 20, 0.935, 0.97),
        (0.9, 20, 0.91, 0.96),
        (0.0, 50, 0.95, 0.99),
        (0.8, 50, 0.95, 0.98),
        (0.9, 50, 0.935, 0.98),
        (0.0, 200, 0.94, 0.985),
        (0.5, 200, 0.95, 0.985),
        (0.9, 200, 0.94, 0.98),
    ],
)
def test_the_interval_holds_the_median_as_often_as_it_says(
    rho: float, n: int, low: float, high: float, skewed: bool
) -> None:
    series = autoregressive(np.random.default_rng(7), 2000, n, rho)
    # latencies have a long tail on one side: log-normal
    found = coverage(np.exp(0.3 * series) if skewed else 100.0 + series, 1.0 if skewed else 100.0)
    assert low <= found <= high


@pytest.mark.parametrize(
    ("between", "within", "rho"),
    # parts of a per cent; a model of microseconds, a network, one whose runs hang together
    [(1.0, 0.3, 0.0), (0.1, 1.0, 0.0), (0.5, 1.0, 0.8)],
)
def test_two_numbers_of_one_model_agree_as_often_as_they_say(
    between: float, within: float, rho: float
) -> None:
    """Each of 200 runs launches the model four times, and every launch has a level of its own."""
    rng = np.random.default_rng(5)
    reports = []
    narrow = []
    for _ in range(200):
        levels = 100 + between * rng.normal(size=(4, 1))
        series = levels + within * autoregressive(rng, 4, 100, rho)
        verdict = judge(series.reshape(-1), QUIET, launches=4)
        assert verdict.verdict == "comparable"
        narrow.append(median_interval(series[0]))
        assert verdict.interval is not None
        reports.append(interval_of(verdict.interval))
    assert 0.92 <= share_by_own_intervals(reports) <= 0.98
    if between > within:
        alone = share_by_own_intervals([interval_of(one) for one in narrow if one is not None])
        assert alone < 0.5, "the runs of one launch do not show what launches differ by"


class SimulatedModel:
    """Each run takes as long as the series says, by a clock of its own."""

    outputs: tuple[object, ...] = ()

    def __init__(self, latencies_ns: NDArray[np.int64]) -> None:
        self._left = iter(latencies_ns.tolist())
        self._now_ns = 0

    def clock(self) -> int:
        return self._now_ns

    def run(self, feeds: object) -> tuple[object, ...]:
        self._now_ns += next(self._left)
        return ()


class QuietWatch:
    """Nothing else runs."""

    def start(self) -> None: ...

    def look(self) -> None: ...

    def stop(self) -> Conditions:
        return QUIET


@pytest.fixture(scope="module")
def little_to_collect() -> None:
    """Keep what the process holds by now out of the collection that each measurement begins with.

    Late in a run of all tests these are millions of objects, and each collection takes a second.
    """
    gc.collect()
    gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("little_to_collect")
@pytest.mark.parametrize(("rho", "skewed"), [(0.0, False), (0.5, True), (0.8, False), (0.9, True)])
def test_the_interval_at_which_a_precision_stops_holds_the_median_as_often_as_it_says(
    rho: float, skewed: bool
) -> None:
    """To look until it is narrow enough stops at intervals that are narrow by chance."""
    rng = np.random.default_rng(11)
    held, series = 0, 60
    for one in autoregressive(rng, series, 4000, rho):
        relative = np.exp(0.04 * one) if skewed else 1.0 + 0.04 * one
        model = SimulatedModel((20e6 * relative).astype(np.int64))
        found = measure(
            model,  # type: ignore[arg-type]
            {},
            StopRule(runs=20, precision=0.02),
            QuietWatch(),  # type: ignore[arg-type]
            lambda percent, phase: None,
            clock=model.clock,
        ).verdict.interval
        assert found is not None
        assert found.half_width <= 0.02
        held += found.low <= 20.0 <= found.high
    assert held / series >= 0.8, "150 series: 0.98, 0.95, 0.94 and 0.93"


@pytest.mark.parametrize("count", [3, 4, 5, 6, 11, 30])
def test_the_interval_of_launches_holds_where_launches_differ_and_runs_do_not(count: int) -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(1000):
        levels = 100 + rng.normal(size=count)
        pooled = median_interval(np.repeat(levels, 7))
        assert pooled is not None
        found = launches_interval(pooled, np.repeat(levels, 7).reshape(count, 7))
        held += found.low <= 100 <= found.high
    assert 930 <= held <= 980


@pytest.mark.parametrize("count", [3, 4, 6])
@pytest.mark.parametrize(("between", "within"), [(1.0, 0.3), (0.5, 1.0), (0.0, 1.0)])
def test_the_interval_of_skewed_launches_holds_and_is_one_of_latencies(
    count: int, between: float, within: float
) -> None:
    """Latencies have a floor, and some launches are far slower than others."""
    rng = np.random.default_rng(12)
    held = left = 0
    for _ in range(500):
        levels = np.exp(0.5 * between * rng.normal(size=(count, 1)))
        launches = levels * np.exp(0.5 * within * rng.normal(size=(count, 25)))
        pooled = median_interval(launches.reshape(-1))
        assert pooled is not None
        found = launches_interval(pooled, launches)
        held += found.low <= 1 <= found.high
        left += found.low < launches.min() or found.high > launches.max()
        assert found.low > 0
    assert held >= 460
    assert left <= 5 or between > within, "nothing shows a median that was never measured"


def interval_of(found: MedianInterval) -> dict[str, Any]:
    return {
        "inference_latency": {
            "p50": found.median,
            "p50_ci95": [found.low, found.high],
            "p50_ci95_degrees": found.degrees,
        }
    }


def test_equal_runs_are_not_taken_for_dependent_ones() -> None:
    """A coarse clock gives few different values, in no order."""
    rng = np.random.default_rng(1)
    found = median_interval(np.round(rng.normal(size=400), 0) + 10.0)
    assert found is not None
    assert found.tau < 1.6


def test_ranks_of_independent_runs_are_those_of_the_binomial() -> None:
    # n = 20: P(Bin(20, 1/2) < 6) = 2.07 %, P(Bin < 7) = 5.77 %, so ranks 6 and 15.
    # Alternating around the median, the series has no positive autocorrelation.
    low, high = np.arange(1, 11), np.arange(11, 21)
    samples = np.stack([low, high], axis=1).reshape(-1).astype(np.float64)
    found = median_interval(samples)
    assert found is not None
    assert found.tau == 1.0
    assert (found.low, found.high) == (6.0, 15.0)


def test_six_runs_are_the_fewest() -> None:
    assert median_interval(np.arange(MIN_SAMPLES - 1.0)) is None
    assert median_interval(np.arange(MIN_SAMPLES * 1.0)) is not None


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(1e-6, 1e9), min_size=MIN_SAMPLES, max_size=200))
def test_the_interval_lies_around_the_median(values: list[float]) -> None:
    samples = np.array(values)
    found = median_interval(samples)
    assert found is not None
    assert 0.0 < found.low <= found.median <= found.high
    assert found.tau >= 1.0
    assert math.isfinite(found.half_width)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_autocorrelation_is_between_one_and_the_length(values: list[bool]) -> None:
    assert 1.0 <= autocorrelation_time(np.array(values)) <= max(1.0, 2.0 * len(values))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.035, 0.5), st.integers(0, 1))
def test_a_steady_trend_never_passes_for_a_warm_engine(step: float, direction: int) -> None:
    """Whatever its pace above 3 % a window of five."""
    assert not trend_settles(9e8, (1 + step) ** (1 / 5 if direction else -1 / 5))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.016, 0.5), st.integers(0, 1))
def test_a_steady_trend_of_a_slow_model_never_passes_either(step: float, direction: int) -> None:
    """Whatever its pace above 3 % within three runs."""
    assert not trend_settles(1e15, (1 + step) ** (1 if direction else -1))


def trend_settles(first_ns: float, factor: float) -> bool:
    runs = iter(range(10**9))

    def timed(count: int) -> list[int]:
        return [int(first_ns * factor ** next(runs)) for _ in range(count)]

    return warm_up(timed, max_s=math.inf).settled
