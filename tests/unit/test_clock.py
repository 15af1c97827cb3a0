"""The server's clock runs on evenly while somebody sets the machine's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.scheduler.clock import (
    SETTLE_S,
    TOLERANCE_S,
    ClockFile,
    SharedClock,
    SteadyClock,
    Stopwatches,
)
from tests.fakes.clock import FixedClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEPS = pytest.mark.parametrize("step_s", [3600.0, -3600.0, 86400.0 * 3650, -5.0])


def clocks() -> tuple[FixedClock, SteadyClock]:
    machine = FixedClock(NOON)
    return machine, SteadyClock(machine.now, machine.monotonic_s)


def shared_clocks() -> tuple[FixedClock, SharedClock]:
    machine, own = clocks()
    return machine, SharedClock(own, boot_id="boot-1")


def next_process(machine: FixedClock, record: str, boot_id: str = "boot-1") -> SharedClock:
    """The clock of a process that starts on the same machine and finds a record."""
    clock = SharedClock(SteadyClock(machine.now, machine.monotonic_s), boot_id=boot_id)
    clock.restore(record)
    return clock


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


def test_a_step_between_two_processes_is_seen(tmp_path: Path) -> None:
    machine, clock = shared_clocks()
    kept = ClockFile(tmp_path / "clock.json")
    assert kept.read() == ""
    machine.forward(10)
    kept.write(clock.record())
    machine.forward(5)
    machine.step(3600)
    again = next_process(machine, kept.read())
    assert again.now() == after(15)
    assert again.certain() == after(10)
    assert again.disagreement_s() == pytest.approx(3600)
    kept.write(again.record())  # a step is never kept for the truth
    assert next_process(machine, kept.read()).now() == after(15)


def test_after_a_start_of_the_machine_its_clock_is_right() -> None:
    machine, clock = shared_clocks()
    record = clock.record()
    machine.step(3600)
    assert next_process(machine, record).now() == NOON
    assert next_process(machine, record, "boot-2").now() == machine.now()
    assert next_process(machine, record, "").now() == machine.now()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"boot_id": "boot-1"}', '{"boot_id": "boot-1", "wall": 3}'),
        '{"boot_id": "boot-1", "wall": "2026-11-21T11:00:00", "monotonic_s": 1,'
        ' "correction_s": 0, "steps": 0}',
    ],
)
def test_a_damaged_record_of_the_time_is_ignored(text: str) -> None:
    machine, _ = shared_clocks()
    assert next_process(machine, text).now() == NOON


def test_a_disk_that_takes_nothing_does_not_stop_the_server(tmp_path: Path) -> None:
    ClockFile(tmp_path / "missing" / "clock.json").write("{}")


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_of_two_records_the_one_that_has_taken_more_steps_counts(step_s: float) -> None:
    """A file may be written between a step that is believed and the moment it is taken."""
    machine, clock = shared_clocks()
    clock.lead()
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S)
    stored = clock.record(clock.pending_step_s())  # the process dies before it takes the step
    machine.forward(1)
    written = clock.record()
    for records in ((stored, written), (written, stored)):
        again = next_process(machine, records[0])
        again.restore(records[1])
        assert again.now() == again.certain() == machine.now()
        assert not again.pending_step_s()


def test_what_began_in_a_future_of_a_wrong_clock_is_measured_when_that_is_corrected() -> None:
    machine = FixedClock(NOON)
    machine.step(-86400)
    clock = SharedClock(SteadyClock(machine.now, machine.monotonic_s))  # it starts a day behind
    watches: Stopwatches[str] = Stopwatches(clock)
    assert watches.elapsed_s("run", NOON) == pytest.approx(-86400)
    clock.resume(NOON)  # the database knows better
    machine.step(86400)
    clock.now()
    machine.forward(SETTLE_S)
    assert watches.elapsed_s("run", NOON) == pytest.approx(SETTLE_S)


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
    machine, clock = shared_clocks()
    clock.lead()
    watches: Stopwatches[str] = Stopwatches(clock)
    began = clock.now()
    machine.forward(30)
    assert watches.elapsed_s("run", began) == pytest.approx(30)
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S + 1)
    clock.take_step(clock.pending_step_s())
    assert clock.now() == machine.now()
    assert watches.elapsed_s("run", began) == pytest.approx(30 + SETTLE_S + 1)
    assert watches.elapsed_s("to come", clock.now() + timedelta(seconds=5)) == pytest.approx(-5)
    watches.retain(lambda key: key == "run")
    machine.forward(1)
    assert watches.elapsed_s("run", began) == pytest.approx(30 + SETTLE_S + 2)


@pytest.mark.parametrize("off_s", [600.0, -600.0])
def test_a_follower_shows_the_leaders_time(off_s: float) -> None:
    machine, clock = shared_clocks()
    clock.follow(after(off_s))
    assert clock.now() == clock.certain() == after(off_s)
    assert clock.ahead_s() == pytest.approx(-off_s)
    machine.forward(10)
    assert clock.now() == after(off_s + 10)
    clock.follow(after(off_s + 9))  # a renewal that it sees a second late
    assert clock.now() == after(off_s + 10)
    clock.follow(after(off_s + 11))
    assert clock.now() == after(off_s + 11)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_the_shared_time_follows_a_step_when_the_times_of_what_is_live_have_moved(
    step_s: float,
) -> None:
    machine, clock = shared_clocks()
    clock.lead()
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S)
    assert clock.now() == after(SETTLE_S)
    assert clock.pending_step_s() == pytest.approx(step_s)
    assert clock.certain() == NOON
    assert clock.disagreement_s()
    clock.take_step(clock.pending_step_s())
    assert clock.now() == clock.certain() == machine.now()
    assert clock.pending_step_s() == clock.disagreement_s() == 0.0


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_step_of_a_followers_clock_changes_nothing(step_s: float) -> None:
    machine, clock = shared_clocks()
    clock.follow(after(600))
    machine.step(step_s)
    clock.now()
    machine.forward(SETTLE_S)
    assert clock.now() == clock.certain() == after(600 + SETTLE_S)
    assert clock.pending_step_s() == 0.0


def test_a_time_that_nobody_can_date_is_certain_after_a_minute() -> None:
    machine, clock = shared_clocks()
    clock.resume(after(-600))
    assert clock.now() == NOON
    assert clock.certain() == after(-600)
    assert clock.disagreement_s()
    machine.forward(SETTLE_S)
    assert clock.certain() == clock.now() == after(SETTLE_S)


def test_a_clock_behind_the_last_leaders_carries_its_time_on() -> None:
    _, clock = shared_clocks()
    clock.resume(after(600))
    assert clock.now() == clock.certain() == after(600)
    assert not clock.disagreement_s()


def test_what_the_last_leader_stored_after_its_renewal_is_not_in_the_future() -> None:
    _, clock = shared_clocks()
    clock.resume(after(600), lag_s=1.5)
    assert clock.now() == clock.certain() == after(601.5)


def test_the_shared_time_never_goes_back_while_it_approaches_the_machines() -> None:
    machine, clock = shared_clocks()
    clock.follow(after(3))
    clock.lead()
    last = clock.now()
    while clock.ahead_s():
        machine.forward(1.5)
        times = [clock.now(), clock.now()]
        clock.lead()
        times += [clock.now(), clock.certain()]
        assert times == [times[0]] * 4
        assert times[0] > last
        last = times[0]
    assert clock.now() == machine.now()


@pytest.mark.parametrize("is_set", [True, False], ids=["set within a minute", "not set"])
def test_a_clock_far_behind_the_last_leaders_is_right_unless_it_is_set(is_set: bool) -> None:
    """A machine without a clock of its own starts in 1970, until NTP sets it."""
    far_s = 86400.0 * 365
    machine, clock = shared_clocks()
    clock.resume(after(far_s))
    clock.lead()
    if is_set:
        machine.step(far_s)
    for _ in range(5):
        assert clock.now() >= after(far_s - 3600)
        machine.forward(SETTLE_S / 4)
        clock.lead()
    if is_set:
        assert clock.pending_step_s() == 0.0
        assert clock.ahead_s() == pytest.approx(0, abs=1)
    else:
        clock.take_step(clock.pending_step_s())
        assert clock.now() == machine.now()


def test_the_difference_to_the_shared_time_is_handed_on() -> None:
    machine, clock = shared_clocks()
    clock.follow(after(600))
    record = clock.record()
    machine.forward(30)
    again = next_process(machine, record)
    again.resume(after(605))
    assert again.now() == again.certain() == after(630)
