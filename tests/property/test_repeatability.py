"""Two numbers of one work on one board agree as often as their comparison says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bench_repeat import share_by_own_intervals, share_of_pairs, share_over_time
from edgeyard.devices.runner.interval import student_quantile
from edgeyard.scheduler.model.history import RepeatedNumber
from edgeyard.scheduler.prediction.repeatability import (
    DEFAULT_SHARE,
    MeasuredNumber,
    Repeatability,
    RunVariation,
    VariationSource,
    reported_number,
)

RECORDED = json.loads(
    (Path(__file__).parent.parent / "data" / "repeated_numbers.json").read_bytes()
)
LAUNCHES = 4


def report(p50: float, low: float, high: float, degrees: float) -> dict[str, Any]:
    return {
        "inference_latency": {
            "p50": p50,
            "p50_ci95": [low, high],
            "p50_ci95_degrees": degrees,
        }
    }


@pytest.mark.parametrize("name", RECORDED)
def test_numbers_of_a_real_machine_agree_as_often_as_their_comparison_says(name: str) -> None:
    """Every number is judged by the variance between the other ones."""
    assert 0.92 <= share_of_pairs([report(*row) for row in RECORDED[name]]) <= 0.98


def test_launches_within_seconds_do_not_show_what_a_machine_does_within_minutes() -> None:
    quiet = [report(*row) for row in RECORDED["squeezenet, quiet machine"]]
    assert share_by_own_intervals(quiet) < 0.8


def simulated_runs(
    rng: np.random.Generator, runs: int, between: float, drift: float
) -> list[dict[str, Any]]:
    """Reports of a board whose speed takes a random walk and has a level of its own in each run.

    Args:
        rng: Source of randomness.
        runs: Number of reports.
        between: Standard deviation of the levels, relative.
        drift: That of the walk's position after ``runs`` steps.
    """
    walk = np.cumsum(rng.normal(size=runs)) * drift / np.sqrt(runs)
    levels = np.exp(walk + between * rng.normal(size=runs))
    reports = []
    for level in levels:
        launches = level * np.exp(0.012 * rng.normal(size=LAUNCHES))
        p50 = float(launches.mean())
        half = student_quantile(LAUNCHES - 1) * float(launches.std(ddof=1)) / LAUNCHES**0.5
        reports.append(report(p50, p50 - half, p50 + half, LAUNCHES - 1))
    return reports


@pytest.mark.parametrize(
    ("between", "drift"),
    [(0.0, 0.0), (0.012, 0.0), (0.008, 0.03), (0.004, 0.04), (0.0, 0.05), (0.03, 0.03)],
)
def test_numbers_of_a_board_that_drifts_agree_as_often_as_their_comparison_says(
    between: float, drift: float
) -> None:
    """Later numbers of 24 boards, judged by what the earlier ones show."""
    rng = np.random.default_rng(14)
    boards = [simulated_runs(rng, 120, between, drift) for _ in range(24)]
    assert 0.92 <= np.mean([share_over_time(one) for one in boards]) <= 0.98


@pytest.mark.parametrize("between", [0.004, 0.006, 0.01, 0.02])
def test_few_numbers_agree_as_often_as_their_comparison_says(between: float) -> None:
    """21 numbers each of 40 boards: what is assumed before the first repeat still counts."""
    rng = np.random.default_rng(2)
    boards = [simulated_runs(rng, 21, between, 0.0) for _ in range(40)]
    assert 0.92 <= np.mean([share_of_pairs(one) for one in boards]) <= 0.98


def test_what_is_assumed_before_the_first_repeat_follows_from_the_recorded_numbers() -> None:
    """The default is the geometric mean of the series' standard deviations between runs."""
    shares = []
    for rows in RECORDED.values():
        found = [reported_number(report(*row), "a", None) for row in rows]
        series = [
            RepeatedNumber(
                benchmark_id=str(n), target_uid="a", workload="w", value=row[0], error=one.error
            )
            for n, (row, one) in enumerate(zip(rows, found, strict=True))
            if one is not None
        ]
        shares.append(Repeatability(series).of("a", "w").share)
    assert np.exp(np.mean(np.log(shares))) == pytest.approx(DEFAULT_SHARE, rel=0.1)


def numbers(
    p50: list[float], target_uid: str = "a", workload: str = "w", error: float = 0.001
) -> list[RepeatedNumber]:
    return [
        RepeatedNumber(
            benchmark_id=f"{target_uid}-{workload}-{n}",
            target_uid=target_uid,
            workload=workload,
            value=value,
            error=error,
        )
        for n, value in enumerate(p50)
    ]


def spread(share: float, count: int, seed: int = 1) -> list[float]:
    return list(10 * np.exp(share * np.random.default_rng(seed).normal(size=count)))


def test_a_variance_comes_from_the_nearest_that_is_known() -> None:
    default = Repeatability([]).of("a", "w")
    assert (default.source, default.numbers) == (VariationSource.DEFAULT, 0)
    assert default.share == pytest.approx(DEFAULT_SHARE)

    elsewhere = numbers(spread(0.03, 40), target_uid="b")
    family = Repeatability(elsewhere).of("a", "w")
    assert (family.source, family.numbers) == (VariationSource.FAMILY, 40)
    assert family.share > DEFAULT_SHARE

    other_work = numbers(spread(0.001, 30), workload="v")
    board = Repeatability([*elsewhere, *other_work]).of("a", "w")
    assert (board.source, board.numbers) == (VariationSource.BOARD, 30)
    assert board.share < family.share

    own = numbers(spread(0.02, 50))
    found = Repeatability([*elsewhere, *other_work, *own]).of("a", "w")
    assert (found.source, found.numbers) == (VariationSource.BOARD, 80)
    assert found.share == pytest.approx(0.02, rel=0.3)
    assert found.degrees > board.degrees


def test_no_number_is_judged_by_itself() -> None:
    pair = Repeatability(numbers([10.0, 14.0]))
    alone = pair.of("a", "w", without="a-w-1")
    assert alone.source is VariationSource.DEFAULT
    assert alone.share == pytest.approx(DEFAULT_SHARE)
    assert pair.of("a", "w").share > 0.1


def test_one_gross_outlier_does_not_make_a_board_unknown() -> None:
    values = spread(0.01, 60)
    usual = Repeatability(numbers(values)).of("a", "w").share
    assert Repeatability(numbers([*values[:30], 30.0, *values[30:]])).of("a", "w").share < 2 * usual


def test_numbers_that_vary_by_no_more_than_they_say_get_nothing_added() -> None:
    calm = Repeatability(numbers(spread(0.01, 400), error=0.01)).of("a", "w")
    assert calm.share < 0.003


def number_of(target_uid: str, variation: RunVariation | None) -> Any:
    return reported_number(report(10.0, 9.9, 10.1, 3.0), target_uid, variation)


def test_an_estimate_that_is_used_for_both_numbers_is_not_known_better_for_it() -> None:
    variation = RunVariation(share=0.02, degrees=3.0, source=VariationSource.BOARD, numbers=5)
    one = number_of("a", variation)
    same_board, other_board = number_of("a", variation), number_of("b", variation)
    assert one.ratio_half_width(same_board) > one.ratio_half_width(other_board)


def test_of_a_number_that_is_hardly_known_there_is_no_interval() -> None:
    unknown = reported_number(report(0.009, 0.0001, 8.2, 1.0), "a", None)
    assert unknown is not None
    assert unknown.repeat_interval() is None
    assert unknown.ratio_interval(number_of("a", None)) is None


@pytest.mark.parametrize("low", [0.0, -1.0, 10.5, float("nan")])
def test_an_interval_that_cannot_be_one_of_a_latency_is_none(low: float) -> None:
    assert reported_number(report(10.0, low, 11.0, 3.0)) is None


LOGS = st.floats(0.0, 1.0)
DEGREES = st.one_of(st.floats(1.0, 30.0), st.floats(100.0, 1e6))


@st.composite
def any_numbers(draw: st.DrawFn, target_uid: str = "a") -> MeasuredNumber:
    """A number whose interval may be lopsided, with a variance between runs."""
    p50 = draw(st.floats(1e-4, 1e5))
    variation = RunVariation(
        share=draw(st.floats(0.0, 0.5)),
        degrees=draw(DEGREES),
        source=draw(st.sampled_from(VariationSource)),
        numbers=7,
    )
    low, high = p50 * np.exp(-draw(LOGS)), p50 * np.exp(draw(LOGS))
    found = reported_number(report(p50, low, high, draw(DEGREES)), target_uid, variation)
    assert found is not None
    return found


@given(any_numbers())
def test_the_interval_with_the_variance_between_runs_contains_the_runs_own(
    number: MeasuredNumber,
) -> None:
    repeated = number.repeat_interval()
    assert repeated is None or repeated[0] <= number.low <= number.high <= repeated[1]


def test_what_runs_vary_by_widens_each_side_of_an_interval_by_itself() -> None:
    """One end is far because the series had two levels: that does not move the other one."""
    variation = RunVariation(share=0.01, degrees=2.0, source=VariationSource.DEFAULT, numbers=0)
    number = reported_number(report(45291.0, 10595.0, 46526.0, 19.0), "a", variation)
    assert number is not None
    repeated = number.repeat_interval()
    assert repeated is not None
    # 1 % with 2 degrees of freedom is at most 4.3 %
    assert repeated[0] == pytest.approx(10595.0, rel=0.05)
    assert repeated[1] == pytest.approx(46526.0, rel=0.05)
    assert repeated[1] > 46526.0 * 1.01


@given(any_numbers(), st.one_of(any_numbers("a"), any_numbers("b")))
def test_a_ratios_interval_contains_the_one_without_the_variance_between_runs(
    number: MeasuredNumber, other: MeasuredNumber
) -> None:
    wide = number.ratio_half_width(other)
    narrow = replace(number, variation=None).ratio_half_width(replace(other, variation=None))
    assert wide >= narrow * (1 - 1e-12)
    certain = replace(other, low=other.value, high=other.value)
    less = "another number that is less known makes no ratio better known"
    assert wide >= number.ratio_half_width(certain) * (1 - 1e-12), less


@given(any_numbers("a"), any_numbers("b"))
def test_a_ratio_and_its_inverse_say_the_same(
    number: MeasuredNumber, other: MeasuredNumber
) -> None:
    there, back = number.ratio_interval(other), other.ratio_interval(number)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there == pytest.approx((1 / back[1], 1 / back[0]))


def test_a_variance_says_where_it_comes_from() -> None:
    sentences = [
        RunVariation(share=0.015, degrees=9.0, source=source, numbers=23).sentence
        for source in VariationSource
    ]
    assert sentences == [
        "includes 1.5% between runs, from 23 repeated numbers of this board",
        "includes 1.5% between runs, from 23 repeated numbers of its family's boards",
        "includes 1.5% between runs, the default, because this board has no repeated numbers",
    ]
