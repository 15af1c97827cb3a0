"""The decision of a check: a pure function of its pairs."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from edgeyard.devices.metrics import HIGHER, P50, Metric
from edgeyard.scheduler.decide.slowdown import interval_of, judge, student_quantile
from edgeyard.scheduler.model.checks import CheckStatus, Pair

TOKENS = Metric("tokens_per_s", "tokens", "1/s", HIGHER)


def pairs(*ratios: float, counts: bool = True) -> list[Pair]:
    return [
        Pair(
            baseline_id=f"a{number}",
            candidate_id=f"b{number}",
            baseline_value=10.0,
            candidate_value=10.0 * ratio,
            ratio=ratio,
            slowdown=None,
            counts=counts,
        )
        for number, ratio in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "metric", "status"),
    [
        ((1.001, 0.999), P50, CheckStatus.RUNNING),
        ((1.001, 0.999, 1.0), P50, CheckStatus.PASSED),
        ((1.10, 1.101, 1.099), P50, CheckStatus.FAILED),
        ((1.0, 1.2, 0.9), P50, CheckStatus.RUNNING),
        ((1.10, 1.101, 1.099), TOKENS, CheckStatus.PASSED),
        ((0.90, 0.901, 0.899), TOKENS, CheckStatus.FAILED),
    ],
)
def test_a_check_ends_as_soon_as_the_interval_is_on_one_side(
    ratios: tuple[float, ...], metric: Metric, status: CheckStatus
) -> None:
    assert judge(pairs(*ratios), metric, max_slowdown=0.03, max_pairs=10).status is status


def test_pairs_that_do_not_decide_it_end_it_undecided() -> None:
    found = judge(pairs(1.0, 1.2, 0.9), P50, max_slowdown=0.03, max_pairs=3)
    assert (found.status, found.reason) == (CheckStatus.UNDECIDED, "3 pairs did not decide it")
    assert found.level == pytest.approx(0.95)  # one look


def test_three_pairs_that_do_not_count_end_it() -> None:
    found = judge(pairs(1.0, 1.0, 1.0, counts=False), P50, max_slowdown=0.03, max_pairs=10)
    assert found.status is CheckStatus.UNDECIDED
    assert (found.slowdown, found.low) == (None, None)


def test_no_limit_above_a_fall_of_all_is_accepted_where_higher_is_better() -> None:
    found = judge(pairs(1.0), TOKENS, max_slowdown=1.5, max_pairs=10)
    assert found.status is CheckStatus.ERROR
    assert found.errors[0].pointer == "/max_slowdown"
    assert judge(pairs(1.0), P50, max_slowdown=1.5, max_pairs=10).status is CheckStatus.RUNNING


def test_numbers_that_no_board_measures_decide_nothing_and_break_nothing() -> None:
    found = judge(pairs(1e-300, 1e300, 1.0), P50, max_slowdown=0.03, max_pairs=10)
    assert found.status is CheckStatus.RUNNING
    assert found.high is not None
    assert math.isfinite(found.high)


def test_student_quantiles_are_those_of_the_distribution() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for degrees, probability in itertools.product(
        (1, 2, 3, 4, 5, 9, 30, 99), (0.9, 0.975, 0.997, 0.9999)
    ):
        exact = scipy.t.ppf(probability, degrees)
        assert student_quantile(probability, degrees) == pytest.approx(exact, rel=2e-3)


def test_checks_of_equal_versions_rarely_fail_whenever_they_stop() -> None:
    rng = random.Random(7)
    looks, wrong = 8, 0
    for _ in range(400):
        ratios = [math.exp(rng.gauss(0.0, 0.05)) for _ in range(2)]
        for _ in range(looks):
            ratios.append(math.exp(rng.gauss(0.0, 0.05)))
            _, low, high = interval_of(ratios, looks)
            if low > 1 or high < 1:
                wrong += 1
                break
    assert wrong <= 400 * 0.05


@pytest.mark.parametrize("slow_share", [0.2, 0.5])
def test_equal_versions_whose_runs_have_one_of_two_speeds_rarely_differ(slow_share: float) -> None:
    rng = random.Random(7)
    looks, checks, wrong = 18, 4000, 0

    def run() -> float:
        return rng.gauss(0.0, 0.003) + (0.1 if rng.random() < slow_share else 0.0)

    for _ in range(checks):
        ratios = [math.exp(run() - run()) for _ in range(2)]
        for _ in range(looks):
            ratios.append(math.exp(run() - run()))
            _, low, high = interval_of(ratios, looks)
            if low > 1 or high < 1:
                wrong += 1
                break
    assert wrong <= 0.05 * checks


def test_an_outlier_among_six_pairs_or_more_does_not_keep_them_from_deciding() -> None:
    noise = [1.049, 1.051, 1.05, 1.052, 1.048, 1.05, 1.051, 1.049, 1.05]
    _, low, high = interval_of([*noise, 1.4], looks=8)
    assert 1.04 < low < high < 1.06
    assert interval_of([1.05, 1.05, 1.05, 1.05, 1.05, 1.4], looks=8)[2] > 1.2  # no spread is known
    assert interval_of([1.049, 1.051, 1.05, 1.4], looks=8)[2] > 1.2  # which one is far?
