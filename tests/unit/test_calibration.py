"""How forecasts learn from the starts and ends that came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.model.forecast import Compared, Forecast, ForecastResult
from edgeyard.scheduler.prediction.calibration import (
    MIN_SCORES,
    IntervalScale,
    compared_end,
    compared_start,
    drawn_widths,
    interval_scale_of,
    interval_scales_of,
    overdue,
    rescaled,
    result_of,
)
from tests.builders import records as make

WAIT_S = 600.0
SCALES = st.builds(IntervalScale, late=st.floats(0.1, 16.0), early=st.floats(0.1, 16.0))


def drawn(width: float, samples: int = 64) -> np.ndarray:
    """Possible waits, log-normal, seconds."""
    rng = np.random.default_rng(1)
    return WAIT_S * np.exp(width * rng.standard_normal(samples))


def forecast_of_starts(
    starts_s: np.ndarray, scale: IntervalScale | None = None, soonest_s: float = 0.0
) -> Forecast:
    low, middle, high = (
        after(each)
        for each in np.quantile(rescaled(starts_s, soonest_s, scale), (0.1, 0.5, 0.9)).tolist()
    )
    widths = drawn_widths(starts_s)
    return make.a_forecast(NOW, low, middle, high, start_widths=widths, finish_widths=widths)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def held_after(change: Callable[[int], float], spread: float, count: int) -> list[bool]:
    """Which of so many waits were held; each is ``change(number)`` times what is expected."""
    rng = np.random.default_rng(5)
    seen: list[Compared] = []
    for number in range(count):
        forecast = forecast_of_starts(drawn(0.2), interval_scale_of(seen))
        came = after(WAIT_S * change(number) * float(np.exp(spread * rng.standard_normal())))
        found = compared_start(forecast, came)
        assert found is not None
        seen.append(found)
    return [each.held for each in seen]


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.7, 1.0, 2.0])
def test_too_narrow_intervals_are_widened_until_they_contain_80_percent(bias: float) -> None:
    """What comes is twice as wide as what is drawn, and later or sooner altogether."""
    held = held_after(lambda _: bias, 0.4, 1200)[600:]
    # an interval never leaves its median out, so one that is always late holds more often
    assert 0.74 <= np.mean(held) <= (0.86 if bias == 1.0 else 0.92)


@pytest.mark.slow
def test_intervals_hold_again_soon_after_the_load_has_changed() -> None:
    """After 500 waits as expected they last three times as long; past ones alone are no guide."""
    held = held_after(lambda number: 1.0 if number < 500 else 3.0, 0.2, 700)
    assert np.mean(held[500:520]) < 0.5
    assert np.mean(held[560:]) >= 0.75


def test_too_few_forecasts_give_no_interval_scale() -> None:
    one = Compared(score=5.0, held=False)
    assert interval_scale_of([one] * (MIN_SCORES - 1)) is None
    assert interval_scale_of([one] * MIN_SCORES) == IntervalScale(late=5.0, early=0.1)
    assert interval_scale_of([Compared(score=None, held=False)] * MIN_SCORES) is None


def test_the_newest_comparisons_count_most_and_the_oldest_not_at_all() -> None:
    wide, narrow = ([Compared(score=score, held=True)] * 500 for score in (5.0, 1.0))
    assert interval_scale_of([*wide, *narrow]) == interval_scale_of(narrow)
    rising, falling = (
        interval_scale_of([Compared(score=score, held=True) for score in scores])
        for scores in (np.linspace(1.0, 5.0, 400), np.linspace(5.0, 1.0, 400))
    )
    assert rising is not None
    assert falling is not None
    assert rising.late > falling.late


def test_misses_of_a_side_widen_that_side() -> None:
    scores = np.random.default_rng(0).standard_normal(200).tolist()
    found = []
    for missed in (0, 20):
        held = [number < 200 - missed or score <= 0.0 for number, score in enumerate(scores)]
        scale = interval_scale_of([Compared(*each) for each in zip(scores, held, strict=True)])
        assert scale is not None
        found.append(scale)
    assert found[1].late > found[0].late
    assert found[1].early == found[0].early


@pytest.mark.slow
@given(
    scores=st.lists(
        st.builds(Compared, score=st.floats(-1e6, 1e6), held=st.booleans()),
        min_size=MIN_SCORES,
        max_size=200,
    )
)
def test_no_luck_however_bad_makes_intervals_endless(scores: list[Compared]) -> None:
    found = interval_scale_of(scores)
    assert found is not None
    assert 0.1 <= found.late <= 16.0
    assert 0.1 <= found.early <= 16.0
    waits = drawn(2.0)
    low, high = np.quantile(rescaled(waits, 0.0, found), (0.1, 0.9)) / np.median(waits)
    assert 1 / 1001 < low <= high < 1001


@given(scale=SCALES, seconds=st.floats(1.0, 36_000.0), soonest=st.floats(0.0, 300.0))
def test_a_start_scores_alike_however_its_forecast_was_rescaled(
    scale: IntervalScale, seconds: float, soonest: float
) -> None:
    starts = drawn(0.5, samples=2001)
    plain = compared_start(forecast_of_starts(starts), after(seconds))
    other = compared_start(forecast_of_starts(starts, scale, soonest), after(seconds))
    assert plain is not None
    assert other is not None
    assert other.score == pytest.approx(plain.score, rel=0.02, abs=0.02)


@given(interval_scale=SCALES, soonest=st.floats(0.0, 300.0))
def test_rescaling_keeps_medians_and_order(interval_scale: IntervalScale, soonest: float) -> None:
    starts = np.maximum(drawn(0.5), soonest)
    found = rescaled(starts, soonest, interval_scale)
    assert np.median(found) == pytest.approx(np.median(starts), rel=0.1)
    assert (found >= soonest).all()
    assert (np.diff(found[np.argsort(starts)]) >= 0.0).all()


def test_starts_at_once_are_not_rescaled_and_teach_nothing() -> None:
    at_once = np.zeros(64)
    assert (rescaled(at_once, 0.0, IntervalScale(8.0, 8.0)) == 0.0).all()
    assert compared_start(forecast_of_starts(at_once), after(30.0)) is None
    assert compared_end(forecast_of_starts(at_once), after(30.0)) == Compared(None, False)


@pytest.mark.parametrize("scale", [None, IntervalScale(1.0, 1.0)])
def test_an_interval_of_equal_times_is_as_wide_as_the_widths_that_count(
    scale: IntervalScale | None,
) -> None:
    """A rest or a stated start gives the same time in all futures."""
    for seconds, low_s, high_s in ((2.0, 1.0, 3.0), (600.0, 542.9, 663.1)):
        found = np.quantile(rescaled(np.full(64, seconds), 0.0, scale, 1.0), (0.1, 0.5, 0.9))
        assert found == pytest.approx([low_s, seconds, high_s], rel=0.05)


def test_starts_at_once_though_none_was_expected_are_scored() -> None:
    found = compared_start(forecast_of_starts(drawn(0.5)), NOW)
    assert found is not None
    assert found.score is not None
    assert found.score < -5.0
    assert np.isfinite(found.score)
    assert not found.held


def test_forecasts_by_a_bound_are_counted_but_teach_nothing() -> None:
    by_bound = replace(forecast_of_starts(drawn(0.5)), grounded=False)
    assert compared_end(by_bound, after(WAIT_S)) == Compared(score=None, held=True)


def test_starts_ends_and_runs_are_calibrated_apart() -> None:
    def results(waited: bool, start: float, end: float) -> list[ForecastResult]:
        return [
            ForecastResult(
                benchmark_id=f"b-{number}",
                at=NOW,
                waited=waited,
                start=Compared(start, held=True) if waited else None,
                end=Compared(end, held=True),
            )
            for number in range(MIN_SCORES)
        ]

    found = interval_scales_of([*results(True, 3.0, 2.0), *results(False, 0.0, 1.5)])
    assert (found.start, found.end, found.run) == tuple(
        interval_scale_of([Compared(score, held=True)] * MIN_SCORES) for score in (3.0, 2.0, 1.5)
    )


def test_what_is_late_counts_before_it_comes() -> None:
    forecast = forecast_of_starts(drawn(0.2))
    late = forecast.start_high + timedelta(seconds=1)
    assert overdue([forecast], {"b-1"}, forecast.start_high) == []
    [waiting] = overdue([forecast], {"b-1"}, late)
    assert waiting.start is not None
    assert not waiting.start.held
    assert waiting.start.score is not None
    assert waiting.start.score > 1.0
    [running] = overdue([forecast], set(), late)
    assert running.start is None
    assert running.end is not None
    came = result_of(forecast, late, late, completed=True)
    assert came.start == waiting.start
    assert came.end == running.end
    assert result_of(forecast, None, late, completed=False).end is None
