"""Which boards stand idle for a booking or a lease, for how long, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.engine import charging
from edgeyard.scheduler.engine.idle_times import IdleTimes
from edgeyard.scheduler.model.decision import KeptIdle, PendingBenchmark
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.store import SqlStore
from tests.builders.decision import cycle

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
ONE = snapshot_of([board(A)])
LONG = pending("long", user_time_s=600.0, user_id="bob")


def in_s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def booking(start_s: float = 60.0, **changes: object) -> PendingBenchmark:
    given = {"user_id": "ada", "start_time": NOW + in_s(start_s), **changes}
    return pending("booking", **given)


def a_lease(since_s: float, user_id: str | None = "ada") -> Knowledge:
    lease = Lease(
        lease_id="lease-1",
        target_uid=A,
        since=NOW + in_s(since_s),
        until=NOW + in_s(1000.0),
        reason="",
        user_id=user_id,
    )
    return Knowledge(leases=(lease,))


def keepers(result: CycleResult) -> dict[str, tuple[str, str]]:
    return {each.target_uid: (each.keeper_id, each.user_id) for each in result.kept_idle}


def test_a_board_stands_idle_for_a_booking_while_a_benchmark_waits_that_fits() -> None:
    assert keepers(cycle(ONE, [LONG, booking()])) == {A: ("booking", "ada")}
    # Nobody waits for it, or who waits would not get it anyway.
    assert not cycle(ONE, [booking()]).kept_idle
    assert not cycle(ONE, [replace(LONG, family="rpi5"), booking()]).kept_idle
    known = Knowledge(entitlements={"bob": Entitlement(max_running=1, running=1)})
    assert not cycle(ONE, [LONG, booking()], knowledge=known).kept_idle
    # It is used, or is not free.
    assert not cycle(ONE, [replace(LONG, user_time_s=50.0), booking()]).kept_idle
    assert not cycle(ONE, [LONG, booking(), booking(0.0)][::2]).kept_idle
    busy = snapshot_of([board(A, busy=True)])
    assert not cycle(busy, [LONG, booking()]).kept_idle
    drained = snapshot_of([board(A)], drained=[A])
    assert not cycle(drained, [LONG, booking()]).kept_idle


def test_a_board_that_shares_cores_with_a_booked_one_stands_idle_for_it_too() -> None:
    shared = np.array([[False, True], [True, False]])
    both = replace(snapshot_of([board(A), board(B)]), conflicts=shared)
    booked = booking(target_uid=A)
    assert keepers(cycle(both, [LONG, booked])) == dict.fromkeys((A, B), ("booking", "ada"))


@pytest.mark.parametrize("since_s", [-60.0, 60.0])
def test_a_board_stands_idle_for_a_lease_before_and_while_it_lasts(since_s: float) -> None:
    assert keepers(cycle(ONE, [LONG], knowledge=a_lease(since_s))) == {A: ("lease-1", "ada")}
    own = replace(LONG, user_id="ada")
    assert not cycle(ONE, [own], knowledge=a_lease(since_s)).kept_idle
    assert not cycle(ONE, [LONG], knowledge=a_lease(since_s, user_id=None)).kept_idle


def test_nobody_keeps_a_board_idle_for_a_benchmark_that_has_waited_for_the_guard_time() -> None:
    waits = pending("waits", submit_time=NOW - in_s(100.0), user_time_s=900.0, target_uid=A)
    result = cycle(ONE, [waits, LONG, booking(300.0, user_time_s=10.0)], guard_s=50.0)
    assert all(each.keeper_id == "booking" for each in result.kept_idle)


KEPT = KeptIdle(keeper_id="booking", user_id="ada", family="rpi4b", target_uid=A)


def test_the_time_from_cycle_to_cycle_is_added_up_and_due_when_it_ends() -> None:
    times = IdleTimes(max_gap_s=5.0, store_after_s=6.0)
    both = (KEPT, replace(KEPT, target_uid=B))
    times.update(both, NOW)
    assert times.due() == {}
    times.update(both[:1], NOW + in_s(2.0))  # two boards for 2 s
    assert times.due() == {}
    times.update((), NOW + in_s(3.0))  # and one for 1 s
    due = times.due()
    assert due == {KEPT: (NOW, 5.0)}
    times.charged(due)
    assert times.due() == {}
    times.update(both, NOW + in_s(10.0))  # nothing stood idle in between
    times.update(both, NOW + in_s(100.0))  # what happened meanwhile is not known
    assert times.due() == {KEPT: (NOW + in_s(10.0), 10.0)}  # goes on, and is due all the same


def test_idle_time_costs_the_family_s_rate_up_to_the_credits_that_are_left(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/bank.db", now=lambda: NOW)
    with store.write() as uow:
        uow.credits.set_rate("rpi4b", 2.5)
        charging.set_credits(uow, "ada", 100.0, NOW, "op")
        charging.charge_idle_times(uow, {KEPT: (NOW, 10.0)}, NOW + in_s(10.0), Tariff())
    with store.write() as uow:
        charging.charge_idle_times(
            uow, {KEPT: (NOW + in_s(20.0), 10.0)}, NOW + in_s(30.0), Tariff()
        )
        (idle,) = uow.credits.idle_times("ada", limit=9)
        balance = uow.credits.balance("ada")
    assert (idle.since, idle.until, idle.board_s, idle.charged) == (NOW, NOW + in_s(30.0), 20.0, 50)
    assert (balance.credits, balance.spent) == (50.0, 50.0)
    assert balance.usage_s(NOW + in_s(30.0)) == pytest.approx(20.0, rel=1e-3)
    with store.write() as uow:
        charging.charge_idle_times(uow, {KEPT: (NOW, 1000.0)}, NOW + in_s(40.0), Tariff())
        assert uow.credits.balance("ada").credits == 0.0
        (idle,) = uow.credits.idle_times("ada", limit=9)
    store.close()
    assert idle.charged == 100.0
