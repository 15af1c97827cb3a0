"""Leases, quarantine, deadlines, time limits, quotas and budgets in the decision."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.model.benchmark import BenchmarkType, WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from tests.builders.decision import cycle, places, plugins

ONE, TWO, THREE = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"
MODEL = "0" * 64


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_lease(since_s: float, until_s: float, **changes: Any) -> Lease:
    given: dict[str, Any] = {
        "lease_id": "lease-1",
        "target_uid": ONE,
        "since": later(since_s),
        "until": later(until_s),
        "reason": "a new fan",
    }
    return Lease(**(given | changes))


def past(run_s: float, of: PendingBenchmark, uid: str = ONE, count: int = 30) -> History:
    """Runs of the same kind, all of about that time."""
    return History(
        PastRun(
            benchmark_id=f"p-{number}",
            user_id="user-1",
            target_uid=uid,
            family="rpi4b",
            kind=kind_of(of),
            run_s=run_s * (1 + 0.01 * (number % 3)),
            failure=None,
            ended_at=later(-1000 + number),
        )
        for number in range(count)
    )


def why(result: CycleResult, benchmark_id: str = "b-1") -> tuple[WaitingReason, str]:
    waiting = result.waiting[benchmark_id]
    return waiting.reason, waiting.sentence


# --- leases --------------------------------------------------------------------------------------


def test_a_leased_board_is_for_its_user_alone() -> None:
    lease = a_lease(-10, 600, user_id="ann")
    result = cycle(
        snapshot_of([board(ONE)]),
        [pending("a", user_id="ann"), pending("b-1", user_id="bob", user_priority=10)],
        knowledge=Knowledge(leases=(lease,)),
    )
    assert places(result) == {"a": ONE}
    assert why(result) == (
        WaitingReason.RESERVED,
        f"waits for {ONE}, which is reserved until 2026-11-21 12:10:00 UTC (a new fan)",
    )


def test_a_lease_of_nobody_keeps_everybody_out_until_it_ends() -> None:
    snapshot = snapshot_of([board(ONE)])
    kept = Knowledge(leases=(a_lease(-10, 600),))
    assert places(cycle(snapshot, [pending()], knowledge=kept)) == {}
    over = Knowledge(leases=(a_lease(-10, 0),))
    assert places(cycle(snapshot, [pending()], knowledge=over)) == {"b-1": ONE}


@pytest.mark.parametrize(("begins_s", "placed"), [(300, True), (60, False)])
def test_what_would_run_into_a_lease_is_not_placed(begins_s: float, placed: bool) -> None:
    job = pending(model_sha256=MODEL)
    knowledge = Knowledge(runs=past(100, job), leases=(a_lease(begins_s, 999),))
    result = cycle(snapshot_of([board(ONE)]), [job], knowledge=knowledge, hold_quantile=0.9)
    assert bool(result.placements) is placed
    # A policy may go by the bound that is held on each run: 900 s.
    certain = cycle(snapshot_of([board(ONE)]), [job], knowledge=knowledge, hold_quantile=1.0)
    assert not certain.placements
    if not placed:
        reason, sentence = why(result)
        assert reason is WaitingReason.RESERVED
        assert f"{ONE} is reserved from 2026-11-21 12:01:00 UTC on (a new fan), and" in sentence


def test_of_what_nothing_is_known_the_time_limit_counts() -> None:
    knowledge = Knowledge(leases=(a_lease(300, 999),))
    jobs = [pending("quick", user_time_s=200.0), pending("b-1")]
    result = cycle(snapshot_of([board(ONE)]), jobs, knowledge=knowledge)
    assert places(result) == {"quick": ONE}
    only = cycle(snapshot_of([board(ONE)]), [pending()], knowledge=knowledge)
    assert why(only)[0] is WaitingReason.RESERVED  # may take 900 s


def test_a_coming_lease_admits_its_own_user() -> None:
    knowledge = Knowledge(leases=(a_lease(60, 999, user_id="user-1"),))
    assert places(cycle(snapshot_of([board(ONE)]), [pending()], knowledge=knowledge))


# --- quarantine, progress ------------------------------------------------------------------------


def test_a_board_in_quarantine_is_for_its_probe_alone() -> None:
    knowledge = Knowledge(quarantined={ONE: "failed 4 of its last 5 runs"})
    snapshot = snapshot_of([board(ONE)])
    assert why(cycle(snapshot, [pending()], knowledge=knowledge)) == (
        WaitingReason.BOARD_UNHEALTHY,
        f"waits for {ONE}, which is in quarantine (failed 4 of its last 5 runs)",
    )
    probe = pending("probe", target_uid=ONE, probe=True)
    assert places(cycle(snapshot, [pending(), probe], knowledge=knowledge)) == {"probe": ONE}


def test_loose_jobs_are_kept_from_boards_in_quarantine() -> None:
    knowledge = Knowledge(quarantined={ONE: ""}, leases=(a_lease(-1, 9, target_uid=TWO),))
    result = cycle(
        snapshot_of([board(ONE), board(TWO), board(THREE)]),
        [pending()],
        of="native",
        knowledge=knowledge,
    )
    assert result.placements[0].allowed_uids == (THREE,)


def test_a_board_that_reports_work_is_not_used() -> None:
    result = cycle(snapshot_of([board(ONE, progress=40.0)]), [pending()])
    assert why(result) == (
        WaitingReason.BOARD_BUSY,
        f"its board {ONE} still reports work in progress",
    )
    for progress in (None, 0.0, 100.0):
        assert places(cycle(snapshot_of([board(ONE, progress=progress)]), [pending()]))


def test_of_a_busy_board_the_run_is_reported_and_not_its_progress() -> None:
    running = board(ONE, progress=40.0, busy=True, busy_reason="runs b-7")
    for of in ("default", "learned"):
        result = cycle(snapshot_of([running]), [pending()], of=of)
        assert why(result) == (WaitingReason.BOARD_BUSY, f"its board {ONE} is busy (runs b-7)")


# --- deadlines and time limits -------------------------------------------------------------------


BOUNDS: dict[str, dict[str, Any]] = {
    "user_time": {"user_time_s": 60.0},
    "deadline": {"deadline": later(80)},
    "budget": {"budget": 60.0},
}
"""One bound each that runs of 100 s exceed."""


def bounded(name: str, **more: Any) -> PendingBenchmark:
    return pending(model_sha256=MODEL, **BOUNDS[name], **more)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_prediction_that_no_board_is_quick_enough_says_not_now_and_when_it_is_tried(
    name: str,
) -> None:
    job = bounded(name)
    result = cycle(snapshot_of([board(ONE)]), [job], knowledge=Knowledge(runs=past(100, job)))
    reason, sentence = why(result)
    expected = WaitingReason.BUDGET if name == "budget" else WaitingReason.DEADLINE_UNREACHABLE
    assert reason is expected
    assert "is predicted to be too slow" in sentence
    assert "after a wait of 300 s" in sentence
    assert result.never == frozenset()
    quick = Knowledge(runs=past(20, job))
    assert places(cycle(snapshot_of([board(ONE)]), [job], knowledge=quick)) == {"b-1": ONE}


@pytest.mark.parametrize(
    ("name", "wait_s"), [("user_time", 300), ("deadline", 40), ("budget", 300)]
)
def test_what_is_predicted_to_be_too_slow_is_tried_after_a_stated_wait(
    name: str, wait_s: float
) -> None:
    """A deadline is tried after half of the time to it: later it could not be in time any more."""
    job = bounded(name)
    for moment, tried in ((wait_s - 1, False), (wait_s, True)):
        result = cycle(
            snapshot_of([board(ONE)]),
            [job],
            now=later(moment),
            knowledge=Knowledge(runs=past(100, job)),
        )
        assert bool(result.placements) is tried
    sooner = cycle(
        snapshot_of([board(ONE)]),
        [job],
        now=later(10),
        knowledge=Knowledge(runs=past(100, job)),
        prediction_wait_s=10.0,
    )
    assert places(sooner) == {"b-1": ONE}


@pytest.mark.parametrize("name", BOUNDS)
def test_what_ends_in_time_is_not_kept_from_idle_boards_by_its_run_time(name: str) -> None:
    """A run with a precision is cut at its time limit, but not at its deadline."""
    job = bounded(name, ends_in_time=True)
    result = cycle(snapshot_of([board(ONE)]), [job], knowledge=Knowledge(runs=past(100, job)))
    assert bool(result.placements) is (name != "deadline")


@pytest.mark.parametrize("name", BOUNDS)
def test_one_slow_run_keeps_no_model_from_idle_boards(name: str) -> None:
    job = bounded(name)
    boards = snapshot_of([board(ONE), board(TWO)])
    for count in (1, 2):
        knowledge = Knowledge(runs=past(400, job, count=count))
        assert cycle(boards, [job], knowledge=knowledge).placements
    assert not cycle(boards, [job], knowledge=Knowledge(runs=past(400, job, count=3))).placements


def test_slow_runs_of_other_models_keep_nobody_waiting() -> None:
    job = bounded("user_time")
    other = pending(model_sha256="1" * 64)
    knowledge = Knowledge(runs=past(400, other))
    assert cycle(snapshot_of([board(ONE)]), [job], knowledge=knowledge).placements


def test_a_wait_for_predictions_begins_when_the_benchmark_may_start() -> None:
    job = bounded("user_time", start_time=later(1000))
    knowledge = Knowledge(runs=past(100, job))
    one = snapshot_of([board(ONE)])
    assert not cycle(one, [job], now=later(1299), knowledge=knowledge).placements
    assert cycle(one, [job], now=later(1300), knowledge=knowledge).placements


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"user_time_s": 0.01}, "accepted: at least 0.02 s"),
        ({"deadline": NOW}, "no run can end by its deadline 2026-11-21 12:00:00 UTC any more"),
        ({"budget": 0.0}, "accepted: at least 0.04"),
    ],
)
def test_a_bound_that_no_run_can_keep_is_refused_for_ever(
    changes: dict[str, Any], accepted: str
) -> None:
    """Also where nothing was ever measured: that is a fact."""
    knowledge = Knowledge(rates={"rpi4b": 2.0})
    result = cycle(snapshot_of([board(ONE)]), [pending(**changes)], knowledge=knowledge)
    assert result.never == {"b-1"}
    assert accepted in why(result)[1]


def test_a_budget_of_nothing_is_enough_where_boards_cost_nothing() -> None:
    knowledge = Knowledge(rates={"rpi4b": 0.0})
    result = cycle(snapshot_of([board(ONE)]), [pending(budget=0.0)], knowledge=knowledge)
    assert places(result) == {"b-1": ONE}


def test_a_time_limit_leaves_out_boards_that_are_predicted_to_be_too_slow() -> None:
    job = pending(model_sha256=MODEL, user_time_s=60.0)
    runs = History((*past(20, job, TWO), *past(100, job, ONE)))
    snapshot = snapshot_of([board(ONE), board(TWO)])
    assert places(cycle(snapshot, [job], knowledge=Knowledge(runs=runs))) == {"b-1": TWO}
    both = snapshot_of([board(ONE), board(TWO, busy=True)])
    assert (
        "1 predicted to be too slow" in why(cycle(both, [job], knowledge=Knowledge(runs=runs)))[1]
    )


def test_a_model_that_was_slow_once_does_not_wait_on_idle_boards_for_ever() -> None:
    """Day after day in virtual time: many slow runs, then a benchmark with a shorter bound."""
    job = bounded("user_time")
    knowledge = Knowledge(runs=past(100, job, count=50))
    boards = snapshot_of([board(ONE), board(TWO)])
    started = next(
        (
            hour
            for hour in range(90 * 24)
            if cycle(boards, [job], now=later(3600.0 * hour), knowledge=knowledge).placements
        ),
        None,
    )
    assert started == 1


@pytest.mark.parametrize("name", ["deadline", "user_time", "budget", "lease", "quarantine"])
def test_each_can_be_switched_off(name: str) -> None:
    job = pending(model_sha256=MODEL, user_time_s=60.0, deadline=later(50), budget=10.0)
    knowledge = Knowledge(runs=past(100, job), leases=(a_lease(-1, 9),), quarantined={ONE: "bad"})
    keep = tuple({"deadline", "user_time", "budget", "lease", "quarantine"} - {name})
    chosen = tuple(each for each in plugins().filters if each.name not in keep)
    snapshot = snapshot_of([board(ONE)])
    some = cycle(snapshot, [job], knowledge=knowledge, more_plugins={"filters": chosen})
    assert places(some) == {}
    none = tuple(each for each in chosen if each.name != name)
    all_off = cycle(snapshot, [job], knowledge=knowledge, more_plugins={"filters": none})
    assert places(all_off) == {"b-1": ONE}


# --- users ---------------------------------------------------------------------------------------


def test_a_quota_counts_what_is_placed_earlier_in_the_cycle() -> None:
    uids = [ONE, TWO, THREE]
    jobs = [pending("a-1", user_id="ann"), pending("a-2", user_id="ann"),
            pending("a-3", user_id="ann"), pending("b-1", user_id="bob")]  # fmt: skip
    knowledge = Knowledge(entitlements={"ann": Entitlement(max_running=2, running=1)})
    result = cycle(snapshot_of([board(uid) for uid in uids]), jobs, knowledge=knowledge)
    assert set(places(result)) == {"a-1", "b-1"}
    assert why(result, "a-2") == (
        WaitingReason.QUOTA,
        "your account may have 2 benchmarks on boards at once: waits for one to end",
    )


def test_credits_that_are_reserved_in_the_cycle_are_gone_for_the_next() -> None:
    jobs = [pending(f"a-{n}", user_id="ann", user_time_s=100.0) for n in range(3)]
    knowledge = Knowledge(
        entitlements={"ann": Entitlement(credits_left=450.0)}, rates={"rpi4b": 2.0}
    )
    result = cycle(
        snapshot_of([board(uid) for uid in (ONE, TWO, THREE)]), jobs, knowledge=knowledge
    )
    assert set(places(result)) == {"a-0", "a-1"}
    reason, sentence = why(result, "a-2")
    assert reason is WaitingReason.BUDGET
    assert sentence.startswith("it may cost 200 credits, and your account has fewer left")


def test_who_may_have_no_more_stops_nobody_else() -> None:
    holder = BoardHolder(
        benchmark_id="low",
        target_uid=ONE,
        priority=50,
        progress=5.0,
        preemptible=True,
        started_at=NOW - timedelta(minutes=1),
    )
    urgent = pending(user_id="ann", job_completion_threshold=90)
    snapshot = snapshot_of([board(ONE, busy=True, progress=5.0)])
    free = cycle(snapshot, [urgent], holders=[holder])
    assert [each.victim_id for each in free.preemptions] == ["low"]
    bound = Knowledge(entitlements={"ann": Entitlement(max_running=1, running=1)})
    assert cycle(snapshot, [urgent], holders=[holder], knowledge=bound).preemptions == ()


_USERS = ("ann", "bob", "eve")


@settings(max_examples=40, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.sampled_from(_USERS),
            st.sampled_from(["rpi4b", "rpi5"]),
            st.one_of(st.none(), st.floats(1, 500)),
            st.one_of(st.none(), st.floats(1, 500)),
            st.integers(1, 10),
        ),
        max_size=14,
    ),
    entitled=st.dictionaries(
        st.sampled_from(_USERS),
        st.builds(
            Entitlement,
            credits_left=st.one_of(st.none(), st.floats(0, 1500)),
            max_running=st.one_of(st.none(), st.integers(0, 4)),
            running=st.integers(0, 3),
        ),
    ),
    policy=st.sampled_from(["default", "native"]),
)
def test_no_cycle_gives_a_user_more_than_the_account_bears(
    jobs: list[tuple[str, str, float | None, float | None, int]],
    entitled: dict[str, Entitlement],
    policy: str,
) -> None:
    rates = {"rpi5": 3.0}
    waiting = [
        pending(
            f"b-{n}",
            user_id=user,
            family=family,
            user_time_s=time_s,
            budget=budget,
            user_priority=priority,
            benchmark_type=BenchmarkType.TYPE1,
        )
        for n, (user, family, time_s, budget, priority) in enumerate(jobs)
    ]
    boards = [board(f"{family}-0001-{n:04}") for family in ("rpi4b", "rpi5") for n in range(1, 6)]
    knowledge = Knowledge(entitlements=entitled, rates=rates, max_run_s=400.0)
    result = cycle(snapshot_of(boards), waiting, of=policy, knowledge=knowledge)
    assert not result.faults
    placed = [each for each in waiting if each.benchmark_id in places(result)]
    for user, has in entitled.items():
        own = [each for each in placed if each.user_id == user]
        if has.max_running is not None:
            assert not own or has.running + len(own) <= has.max_running
        if has.credits_left is not None:
            cost = 0.0
            for each in own:
                rate = rates.get(each.family, 1.0)
                limit_s = 400.0 if each.user_time_s is None else each.user_time_s
                cost += min(rate * limit_s, each.budget if each.budget is not None else 1e12)
            assert cost <= has.credits_left + 1e-4
