"""Balances, charges, leases and quarantine: what every store keeps to, on both databases."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.engine import charging, lifecycle
from edgeyard.scheduler.model.accounts import Balance, Charge, Quarantine
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make


def a_charge(benchmark_id: str = "b-1", attempt: int = 1) -> Charge:
    return Charge(
        benchmark_id=benchmark_id,
        attempt=attempt,
        user_id="ada",
        family="rpi4b",
        rate=0.1,
        time_limit_s=30.0,
        reserved=3.0,
        reserved_at=make.NOW,
    )


def a_lease(lease_id: str = "lease-1", since: float = 0, until: float = 60) -> Lease:
    return Lease(
        lease_id=lease_id,
        target_uid="rpi4b-0001-0001",
        since=make.at(since),
        until=make.at(until),
        reason="größer",
        user_id="ada",
        by_user_id="op",
    )


def test_a_balance_comes_back_exactly(store: SqlStore) -> None:
    with store.read() as uow:
        assert uow.credits.balance("ada") == Balance(user_id="ada")
        assert uow.credits.balances() == []
    kept = Balance(
        user_id="ada",
        credits=999_999_999.123456,
        reserved=0.1 + 0.2,
        usage_board_s=1.5,
        usage_at=make.NOW,
    )
    with store.write() as uow:
        uow.credits.balance("ada", for_update=True)
        uow.credits.save_balance(kept)
    with store.read() as uow:
        assert uow.credits.balance("ada") == replace(kept, reserved=0.3)  # whole millionths
        assert [each.user_id for each in uow.credits.balances()] == ["ada"]


def test_a_charge_is_settled_once(store: SqlStore) -> None:
    charge = a_charge()
    settled = replace(charge, charged=1.25, board_s=12.5, settled_at=make.at(20))
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark())
        uow.credits.add_charges([charge])
        with pytest.raises(Conflict):
            uow.credits.add_charges([charge])
        uow.credits.add_charges([])
        assert uow.credits.running("ada") == 1
        assert uow.credits.open_charges() == [charge]
        assert uow.credits.settle_charge(settled)
        assert not uow.credits.settle_charge(replace(settled, charged=9.0))
    with store.read() as uow:
        assert uow.credits.charge("b-1", 1) == settled
        assert uow.credits.charge("b-1", 2) is None
        assert uow.credits.charges("ada", limit=5) == [settled]
        assert uow.credits.running("ada") == 0
        assert uow.credits.open_charges() == []


def test_rates_are_set_and_replaced(store: SqlStore) -> None:
    with store.write() as uow:
        uow.credits.set_rate("rpi4b", 2.0)
        uow.credits.set_rate("rpi4b", 0.5)
    with store.read() as uow:
        assert uow.credits.rates() == {"rpi4b": 0.5}


def test_attempts_that_are_prepared_side_by_side_reserve_no_more_than_there_is(
    store: SqlStore,
) -> None:
    with store.write() as uow:
        uow.accounts.add_user(make.a_user(max_running=50))
        charging.set_credits(uow, "ada", 100.0, make.NOW, "op")
        for number in range(8):
            asked = make.a_description(user_time_s=30.0)
            uow.benchmarks.add(make.a_benchmark(f"b-{number}", description=asked))

    def prepare(number: int) -> bool:
        with store.write() as uow:
            wanted = [(uow.benchmarks.get(f"b-{number}"), make.an_attempt(f"b-{number}"))]
            return bool(lifecycle.prepare(uow, wanted, make.NOW))

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(prepare, range(8)))
    assert sum(done) == 3
    with store.read() as uow:
        assert uow.credits.balance("ada").credits_left == 10.0


def _preparing(store: SqlStore, costs: Mapping[str, float]) -> list[tuple[Benchmark, Attempt]]:
    """Benchmarks that cost so much, added; with the attempts that are to be prepared."""
    with store.write() as uow:
        for benchmark_id, cost in costs.items():
            asked = make.a_description(user_time_s=cost)
            user_id = benchmark_id.split("-")[0]
            uow.benchmarks.add(make.a_benchmark(benchmark_id, user_id=user_id, description=asked))
        return [(uow.benchmarks.get(each), make.an_attempt(each)) for each in costs]


def test_who_changed_meanwhile_is_left_out_of_what_is_prepared_together(store: SqlStore) -> None:
    wanted = _preparing(store, {"ada-1": 10.0, "ada-2": 20.0, "ada-3": 40.0})
    with store.write() as uow:
        lifecycle.cancel(uow, "ada-2", make.NOW, "ada")
    with store.write() as uow:
        prepared = lifecycle.prepare(uow, wanted, make.NOW)
        assert [each.benchmark_id for each, _ in prepared] == ["ada-1", "ada-3"]
        assert lifecycle.prepare(uow, wanted, make.NOW) == []
    with store.read() as uow:
        statuses = [uow.benchmarks.get(each.benchmark_id).status for each, _ in wanted]
        assert statuses == [Status.SCHEDULED, Status.CANCELLED, Status.SCHEDULED]
        assert list(uow.attempts.live()) == [attempt for _, attempt in prepared]
        assert [uow.benchmarks.get(each.benchmark_id) for each, _ in prepared] == [
            benchmark for benchmark, _ in prepared
        ]
        assert [attempt.time_limit_s for _, attempt in prepared] == [10.0, 40.0]
        assert uow.credits.balance("ada").reserved == 50.0
        assert len(uow.credits.open_charges()) == 2
        moved = [
            e.benchmark_id for e in uow.log.events(after=0, limit=99) if e.kind == "attempt.state"
        ]
        assert moved == ["ada-1", "ada-3"]
        assert uow.benchmarks.counts_by_status()[Status.SCHEDULED] == 2


def test_credits_that_suffice_for_some_are_reserved_in_order(store: SqlStore) -> None:
    costs = {"ada-1": 40.0, "ada-2": 40.0, "ada-3": 30.0, "bob-1": 900.0, "ada-4": 20.0}
    wanted = _preparing(store, costs)
    with store.write() as uow:
        charging.set_credits(uow, "ada", 100.0, make.NOW, "op")
        prepared = lifecycle.prepare(uow, wanted, make.NOW)
    assert [each.benchmark_id for each, _ in prepared] == ["ada-1", "ada-2", "bob-1", "ada-4"]
    with store.read() as uow:
        assert uow.credits.balance("ada").credits_left == 0.0
        assert uow.credits.balance("bob").reserved == 900.0
        assert uow.benchmarks.get("ada-3") == wanted[2][0]


def test_no_more_run_together_than_the_account_may_have(store: SqlStore) -> None:
    wanted = _preparing(store, dict.fromkeys(["ada-1", "ada-2", "bob-1", "ada-3", "bob-2"], 1.0))
    with store.write() as uow:
        uow.accounts.add_user(make.a_user(max_running=2))
        uow.accounts.add_user(make.a_user("bob"))
        lifecycle.prepare(uow, wanted[:1], make.NOW)
        prepared = lifecycle.prepare(uow, wanted[1:], make.NOW)
    assert [each.benchmark_id for each, _ in prepared] == ["ada-2", "bob-1", "bob-2"]


def test_an_attempt_whose_job_is_anothers_harms_nobody_else(store: SqlStore) -> None:
    wanted = _preparing(store, {"ada-1": 10.0, "ada-2": 20.0, "ada-3": 40.0})
    job_id = wanted[0][1].job_id
    wanted[1] = (wanted[1][0], replace(wanted[1][1], job_id=job_id))
    with store.write() as uow:
        prepared = lifecycle.prepare(uow, wanted, make.NOW)
    assert [each.benchmark_id for each, _ in prepared] == ["ada-1", "ada-3"]
    with store.read() as uow:
        assert uow.benchmarks.get("ada-2") == wanted[1][0]
        assert uow.credits.balance("ada").reserved == 50.0


def test_why_many_wait_is_noted_together(store: SqlStore) -> None:
    seen = [each for each, _ in _preparing(store, dict.fromkeys(["ada-1", "ada-2", "ada-3"], 1.0))]
    with store.write() as uow:
        lifecycle.hold(uow, "ada-2", make.NOW, "ada", True)
    busy, never = make.a_waiting(), make.a_waiting(WaitingReason.NO_SUCH_FAMILY)
    with store.write() as uow:
        reasons = [(benchmark, busy, 7) for benchmark in seen]
        waiting = lifecycle.wait(uow, reasons, make.NOW)
        first, held, third = map(uow.benchmarks.get, ("ada-1", "ada-2", "ada-3"))
        assert waiting == [first, third]
        assert (first.waiting, first.priority) == (busy, 7)
        assert held.waiting is not None
        assert held.waiting.reason is WaitingReason.HELD, "since it was held"
        other = replace(busy, sentence="still busy")
        reasons = [(first, never, 7), (held, busy, 7), (third, other, 8)]
        assert len(lifecycle.wait(uow, reasons, make.NOW)) == 3
        same = [(each, busy, 7) for each in [uow.benchmarks.get("ada-2")]]
        assert lifecycle.wait(uow, same, make.NOW) == [same[0][0]]
    with store.read() as uow:
        assert uow.benchmarks.get("ada-2") == same[0][0]
        assert (third.version, uow.benchmarks.get("ada-3").waiting) == (1, other)
        events = uow.log.events(after=0, limit=99)
    assert [
        (event.benchmark_id, event.data["reason"])
        for event in events
        if event.kind == "benchmark.waiting"
    ] == [
        ("ada-2", WaitingReason.HELD.value),
        ("ada-1", busy.reason.value),
        ("ada-3", busy.reason.value),
        ("ada-1", never.reason.value),
        ("ada-2", busy.reason.value),
    ]


def test_leases_of_a_board_do_not_overlap(store: SqlStore) -> None:
    with store.write() as uow:
        uow.reservations.add_lease(a_lease())
        uow.reservations.add_lease(a_lease("next", 60, 90))
        uow.reservations.add_lease(replace(a_lease("other"), target_uid="rpi4b-0001-0002"))
        for since, until in ((-10, 1), (0, 60), (10, 20), (59, 100), (-5, 500)):
            with pytest.raises(Conflict, match="is leased from"):
                uow.reservations.add_lease(a_lease("clash", since, until))
    with store.read() as uow:
        assert uow.reservations.lease("lease-1") == a_lease()
        assert [each.lease_id for each in uow.reservations.leases(make.at(30))] == [
            "lease-1",
            "other",
            "next",
        ]
        assert [each.lease_id for each in uow.reservations.leases(make.at(60))] == ["next"]
        with pytest.raises(NotFound):
            uow.reservations.lease("gone")


def test_a_lease_ends_early_once_and_makes_room(store: SqlStore) -> None:
    with store.write() as uow:
        uow.reservations.add_lease(a_lease())
        uow.reservations.add_lease(a_lease("next", 60, 90))
        assert uow.reservations.end_lease("lease-1", make.at(20), "op").until == make.at(20)
        assert uow.reservations.end_lease("lease-1", make.at(40), "ann").until == make.at(20)
        never = uow.reservations.end_lease("next", make.at(20), "op")
        assert (never.since, never.until) == (make.at(20), make.at(20))
        uow.reservations.add_lease(a_lease("again", 20, 90))
    with store.read() as uow:
        assert [each.lease_id for each in uow.reservations.leases(make.at(21))] == ["again"]


def test_leases_that_are_made_side_by_side_do_not_overlap(store: SqlStore) -> None:
    def lease(number: int) -> bool:
        try:
            with store.write() as uow:
                uow.reservations.add_lease(a_lease(f"lease-{number}"))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(lease, range(8))) == 1


def test_the_newest_quarantine_of_a_board_counts(store: SqlStore) -> None:
    first = Quarantine(
        target_uid="rpi4b-0001-0001",
        since=make.NOW,
        reason="failed 4 of its last 5 runs",
        failure_rate=0.625,
        next_probe_at=make.at(60),
    )
    lifted = replace(first, lifted_at=make.at(99), lifted_by="op", probes=2, probe_id="b-7")
    with store.write() as uow:
        uow.reservations.set_quarantine(first)
        assert uow.reservations.quarantines() == {first.target_uid: first}
        uow.reservations.set_quarantine(lifted)
    with store.read() as uow:
        assert uow.reservations.quarantines() == {first.target_uid: lifted}
        assert not uow.reservations.quarantines()[first.target_uid].active
