"""The server's clock runs on evenly while somebody sets the machine's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.scheduler.clock import SETTLE_S, TOLERANCE_S, SteadyClock, Stopwatches
from tests.fakes.clock import FixedClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEPS = pytest.mark.parametrize("step_s", [3600.0, -3600.0, 86400.0 * 3650, -5.0])


def clocks() -> tuple[FixedClock, SteadyClock]:
    machine = FixedClock(NOON)
    return machine, SteadyClock(machine.now, machine.monotonic_s)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_it_is_the_machines_while_that_is_not_set() -> None:
    machine, clock = clocks()
    machine.forward(100_000)
    assert clock.now() == clock.certain() == machine.now() == after(100_000)
    assert clock.disagreement_s() == 0.0


@STEPS
def test_a_step_is_not_followed_and_makes_nothing_certain(step_s: float) -> None:
    machine, clock = clocks()
    machine.forward(10)
    assert clock.now() == after(10)
    machine.step(step_s)
    machine.forward(3)
    assert clock.now() == after(13)
    assert clock.certain() == after(10)
    assert clock.disagreement_s() == pytest.approx(step_s)
    machine.step(-step_s)
    assert clock.now() == clock.certain() == after(13)
    assert clock.disagreement_s() == 0.0


@STEPS
def test_a_clock_that_keeps_its_new_time_is_believed(step_s: float) -> None:
    machine, clock = clocks()
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S - 1)
    assert clock.now() == after(SETTLE_S - 1)
    machine.forward(1)
    assert clock.now() == clock.certain() == machine.now()
    assert clock.disagreement_s() == 0.0


def test_one_that_is_set_again_has_to_keep_that_time_anew() -> None:
    machine, clock = clocks()
    for turn in range(10):
        machine.step(600.0 if turn % 2 else -1200.0)
        machine.forward(SETTLE_S / 2)
        assert clock.now() == after((turn + 1) * SETTLE_S / 2)
        assert clock.disagreement_s()


def test_it_follows_a_clock_that_is_slewed() -> None:
    machine, clock = clocks()
    for _ in range(1000):
        machine.forward(1)
        machine.step(TOLERANCE_S / 10)
        assert clock.now() == clock.certain() == machine.now()


def test_a_reading_that_was_interrupted_is_no_step() -> None:
    machine = FixedClock(NOON)
    pauses = iter([0.0, 30.0, 0.0, 0.0])

    def wall() -> datetime:
        found = machine.now()
        machine.forward(next(pauses, 0.0))  # the thread has to wait after it has read the time
        return found

    clock = SteadyClock(wall, machine.monotonic_s)
    assert clock.now() == machine.now()
    assert clock.disagreement_s() == 0.0


@given(
    moves=st.lists(
        st.tuples(st.booleans(), st.floats(-7200, 7200).map(lambda each: round(each, 1))),
        max_size=30,
    )
)
@settings(max_examples=200, deadline=None)
def test_it_never_runs_back_before_a_step_is_believed_and_certain_is_never_ahead(
    moves: list[tuple[bool, float]],
) -> None:
    machine, clock = clocks()
    before, passed = clock.now(), 0.0
    for sets, seconds in moves:
        if sets:
            machine.step(seconds)
        else:
            machine.forward(abs(seconds) % 20)  # no step is kept long enough to be believed
            passed += abs(seconds) % 20
        if passed >= SETTLE_S:
            break
        now = clock.now()
        assert now >= before
        assert clock.certain() <= now
        assert abs((now - after(passed)).total_seconds()) <= len(moves) * TOLERANCE_S
        before = now


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_stopwatch_goes_on_when_a_new_time_is_believed(step_s: float) -> None:
    machine, clock = clocks()
    watches: Stopwatches[str] = Stopwatches(clock)
    began = clock.now()
    machine.forward(30)
    assert watches.elapsed_s("run", began) == pytest.approx(30)
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S + 1)
    assert clock.now() == machine.now()
    assert watches.elapsed_s("run", began) == pytest.approx(30 + SETTLE_S + 1)
    assert watches.elapsed_s("to come", clock.now() + timedelta(seconds=5)) == pytest.approx(-5)
    watches.retain(lambda key: key == "run")
    machine.forward(1)
    assert watches.elapsed_s("run", began) == pytest.approx(30 + SETTLE_S + 2)
