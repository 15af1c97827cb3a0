"""Rests between turns."""

from __future__ import annotations

import pytest

from edgeyard.scheduler.engine.throttle import MAX_REST_S, MIN_INTERVAL_S, Throttle


class _Time:
    """Passes only when a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.rested_s = 0.0

    def rest(self, seconds: float) -> None:
        self.rested_s += seconds
        self.now_s += seconds


def _rests(time: _Time, throttle: Throttle, turns: int, took_s: float) -> float:
    before_s = time.rested_s
    for _ in range(turns):
        with throttle.turn(time.rest):
            time.now_s += took_s
    return time.rested_s - before_s


def test_a_few_turns_at_once_need_no_rest_after_a_quiet_while() -> None:
    time = _Time()
    throttle = Throttle(lambda: time.now_s)
    assert _rests(time, throttle, 3, 0.01) == pytest.approx(0, abs=1e-9)
    assert _rests(time, throttle, 1, 0.01) == pytest.approx(MIN_INTERVAL_S)
    time.now_s += 10
    assert _rests(time, throttle, 3, 0.01) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("took_s", [0.001, 0.02, 0.2, 0.9])
def test_many_turns_take_half_of_the_time_at_most(took_s: float) -> None:
    time = _Time()
    throttle = Throttle(lambda: time.now_s)
    _rests(time, throttle, 10, took_s)
    assert _rests(time, throttle, 50, took_s) == pytest.approx(50 * max(MIN_INTERVAL_S, took_s))


def test_a_turn_that_took_very_long_is_not_rested_from_for_as_long() -> None:
    time = _Time()
    throttle = Throttle(lambda: time.now_s)
    assert _rests(time, throttle, 1, 600) == MAX_REST_S
