"""How forecasts learn from the starts that came."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.prediction.calibration import (
    MIN_SCORES,
    IntervalScale,
    interval_scale_of,
    nonconformity_score,
    rescaled,
)
from tests.builders import records as make

WAIT_S = 600.0
SCALES = st.builds(IntervalScale, late=st.floats(0.1, 16.0), early=st.floats(0.1, 16.0))


def drawn(width: float, samples: int = 64) -> np.ndarray:
    """Possible waits, log-normal, seconds."""
    rng = np.random.default_rng(1)
    return WAIT_S * np.exp(width * rng.standard_normal(samples))


def forecast_of_starts(starts_s: np.ndarray) -> Forecast:
    low, middle, high = (
        NOW + timedelta(seconds=each) for each in np.quantile(starts_s, (0.1, 0.5, 0.9)).tolist()
    )
    return make.a_forecast(NOW, low, middle, high)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.7, 1.0, 2.0])
def test_too_narrow_intervals_are_widened_until_they_contain_80_percent(bias: float) -> None:
    """What comes is twice as wide as what is drawn, and later or sooner altogether."""
    rng = np.random.default_rng(5)
    scores: list[float] = []
    held = {False: 0, True: 0}
    for number in range(1200):
        interval_scale = interval_scale_of(scores[-500:])
        forecast = forecast_of_starts(rescaled(drawn(0.2), 0.0, interval_scale))
        came = after(WAIT_S * bias * float(np.exp(0.4 * rng.standard_normal())))
        held[number >= 600] += forecast.start_low <= came <= forecast.start_high
        found = nonconformity_score(forecast, came, interval_scale)
        assert found is not None
        scores.append(found)
    # an interval never leaves its median out, so one that is always late holds more often
    assert 0.74 <= held[True] / 600 <= (0.86 if bias == 1.0 else 0.92)


def test_too_few_forecasts_give_no_interval_scale() -> None:
    assert interval_scale_of([5.0] * (MIN_SCORES - 1)) is None
    assert interval_scale_of([5.0] * MIN_SCORES) == IntervalScale(late=5.0, early=0.1)


@pytest.mark.slow
@given(scores=st.lists(st.floats(-1e6, 1e6), min_size=MIN_SCORES, max_size=200))
def test_no_luck_however_bad_makes_intervals_endless(scores: list[float]) -> None:
    found = interval_scale_of(scores)
    assert found is not None
    assert 0.1 <= found.late <= 16.0
    assert 0.1 <= found.early <= 16.0


@given(interval_scale=SCALES, seconds=st.floats(1.0, 36_000.0))
def test_a_start_scores_alike_however_its_forecast_was_rescaled(
    interval_scale: IntervalScale, seconds: float
) -> None:
    starts = drawn(0.5, samples=2001)  # few would leave gaps where the ends of an interval are
    plain = nonconformity_score(forecast_of_starts(starts), after(seconds), None)
    other = nonconformity_score(
        forecast_of_starts(rescaled(starts, 0.0, interval_scale)), after(seconds), interval_scale
    )
    assert other == pytest.approx(plain, rel=0.02, abs=0.02)


@given(interval_scale=SCALES, soonest=st.floats(0.0, 300.0))
def test_rescaling_keeps_medians_order_and_infinite_starts(
    interval_scale: IntervalScale, soonest: float
) -> None:
    starts = np.maximum(drawn(0.5), soonest)
    found = rescaled(starts, soonest, interval_scale)
    assert np.median(found) == pytest.approx(np.median(starts), rel=0.1)
    assert (found >= soonest).all()
    assert (np.diff(found[np.argsort(starts)]) >= 0.0).all()


def test_starts_at_once_are_not_rescaled() -> None:
    at_once = np.zeros(64)
    assert (rescaled(at_once, 0.0, IntervalScale(8.0, 8.0)) == 0.0).all()
    assert nonconformity_score(forecast_of_starts(at_once), after(30.0), None) is None


def test_starts_at_once_though_none_was_expected_are_scored() -> None:
    found = nonconformity_score(forecast_of_starts(drawn(0.5)), NOW, None)
    assert found is not None
    assert found < -5.0
    assert np.isfinite(found)
