"""How long a benchmark can be kept waiting by bookings that others make, whatever they are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, pending
from tests.builders.decision import policy
from tests.builders.virtual_lab import MAX_RUN_S, Life, VirtualLab

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
POLICIES = ("default", "native", "learned")
DAY_S = 86400.0
VICTIM = "victim"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def bookings(
    *,
    every_s: float,
    run_s: float,
    ahead_s: float,
    since_s: float,
    until_s: float,
    uid: str | None = None,
    name: str = "booking",
) -> list[Life]:
    """One benchmark after the other with a start time, each submitted some time before it."""
    count = int((until_s - since_s) / every_s)
    return [
        Life(
            pending=pending(
                f"{name}-{number:05}",
                submit_time=after(since_s + every_s * number - ahead_s),
                start_time=after(since_s + every_s * number),
                user_time_s=run_s,
                target_uid=uid,
                user_priority=10,
                user_id="eve",
            )
        )
        for number in range(count)
    ]


def wait_s(lab: VirtualLab, *, weeks: float, since_s: float = 0.0, name: str = VICTIM) -> float:
    """How long the victim, submitted at `NOW`, waits; infinite if it never starts."""
    lab.run(
        since=after(since_s),
        until=after(weeks * 7 * DAY_S),
        watched=lambda: name in lab.started,
    )
    started = lab.started.get(name)
    return float("inf") if started is None else (started - NOW).total_seconds()


def bound_s(of: str, *, booked_run_s: float, older_s: float = 0.0) -> float:
    """The documented bound: see docs/how-to/reservations.md, "Maximum waiting time"."""
    rules = policy(of)
    return rules.guard_s + rules.reservation_lead_s + booked_run_s + rules.cool_down_s + older_s


@pytest.mark.parametrize("of", POLICIES)
def test_a_minute_booked_each_half_hour_does_not_starve_an_hour_s_run(of: str) -> None:
    booked = bookings(
        every_s=1800, run_s=60, ahead_s=7200, since_s=0.9 * DAY_S, until_s=14 * DAY_S, uid=A
    )
    victim = Life(pending=pending(VICTIM, user_time_s=3600.0))
    lab = VirtualLab(uids=[A], lives=[victim, *booked], of=of)
    assert wait_s(lab, weeks=2, since_s=0.9 * DAY_S) <= bound_s(of, booked_run_s=60)


@pytest.mark.parametrize("of", POLICIES)
def test_half_a_minute_booked_each_quarter_does_not_starve_a_run_without_a_bound(of: str) -> None:
    booked = bookings(
        every_s=900, run_s=30, ahead_s=3600, since_s=0.95 * DAY_S, until_s=8 * DAY_S, uid=A
    )
    lab = VirtualLab(uids=[A], lives=[Life(pending=pending(VICTIM)), *booked], of=of)
    assert wait_s(lab, weeks=1, since_s=0.95 * DAY_S) <= bound_s(of, booked_run_s=30)


@pytest.mark.parametrize("of", ["default", "native"])
def test_runs_that_take_turns_on_shared_cores_do_not_starve_the_board_between_them(of: str) -> None:
    """The victim's board is never quiet: when one neighbour is through, the other one runs."""
    middle, left, right = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"
    conflicts = np.array([[False, True, True], [True, False, False], [True, False, False]])
    neighbours = [
        Life(
            pending=pending(
                f"neighbour-{number:04}",
                target_uid=right if number % 2 else left,
                submit_time=after(500 * number - 10),
                user_time_s=600.0,
            )
        )
        for number in range(2 * 24 * 7)
    ]
    victim = Life(pending=pending(VICTIM, target_uid=middle, user_time_s=60.0))
    lab = VirtualLab(
        uids=[middle, left, right], lives=[victim, *neighbours], of=of, conflicts=conflicts
    )
    # What its neighbours have begun by then goes on to its end.
    assert wait_s(lab, weeks=1, since_s=-10.0) <= policy(of).guard_s + 600.0


streams = st.fixed_dictionaries(
    {
        "every_s": st.sampled_from([1200.0, 1800.0, 3000.0]),
        "run_s": st.sampled_from([30.0, 60.0, 600.0]),
        "ahead_s": st.sampled_from([0.0, 1800.0, 7200.0, DAY_S, 14 * DAY_S]),
        "since_s": st.floats(0.97, 0.98).map(lambda days: days * DAY_S),
        "uid": st.sampled_from([None, A, B]),
    }
)


@settings(max_examples=20, deadline=None)
@given(
    booked_as=st.lists(streams, min_size=1, max_size=2),
    of=st.sampled_from(["default", "native"]),
    boards=st.integers(1, 2),
    bounds=st.lists(st.sampled_from([None, 300.0, 1900.0, 3600.0]), min_size=1, max_size=3),
    uid=st.sampled_from([None, A]),
    cool_down_s=st.sampled_from([0.0, 20.0]),
)
def test_whatever_is_booked_everybody_starts_within_the_documented_bound(
    booked_as: list[dict[str, Any]],
    of: str,
    boards: int,
    bounds: list[float | None],
    uid: str | None,
    cool_down_s: float,
) -> None:
    """Streams of bookings that never end, against benchmarks that were there before."""
    victims = [
        Life(
            pending=pending(
                f"victim-{number}",
                user_time_s=bound,
                target_uid=uid,
                submit_time=after(60.0 * number),
                user_priority=1,
            )
        )
        for number, bound in enumerate(bounds)
    ]
    running = [  # no victim starts before the bookings begin
        Life(pending=pending(f"running-{board}", target_uid=board, submit_time=after(-1.0)))
        for board in (A, B)[:boards]
    ]
    booked = [
        each
        for name, stream in zip("xy", booked_as, strict=False)
        for each in bookings(**stream, until_s=4 * DAY_S, name=name)
    ]
    lab = VirtualLab(
        uids=[A, B][:boards],
        lives=[*victims, *running, *booked],
        of=of,
        changes={"cool_down_s": cool_down_s},
    )
    names = [each.pending.benchmark_id for each in victims]
    lab.run(
        since=after(0.97 * DAY_S - MAX_RUN_S),
        until=after(4 * DAY_S),
        watched=lambda: all(name in lab.started for name in names),
    )
    rules = policy(of)
    max_s = max([MAX_RUN_S, *(each.bound_s for each in booked)]) + cool_down_s
    older_s = 0.0
    for victim in victims:
        name = victim.pending.benchmark_id
        assert name in lab.started, name
        waited_s = (lab.started[name] - victim.pending.submit_time).total_seconds()
        assert waited_s <= rules.guard_s + rules.reservation_lead_s + max_s + older_s
        older_s += victim.bound_s + cool_down_s
