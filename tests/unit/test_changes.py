"""What would let a benchmark start sooner, and by how much."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.plugins.filters.health import HealthFilter
from edgeyard.plugins.testing import GIB, NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.changes import (
    Bounds,
    Change,
    ChangeKind,
    Changes,
    what_would_change,
)
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.benchmark import Constraint
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge
from edgeyard.scheduler.prediction.forecast import forecast_of
from tests.builders import records as make
from tests.builders.decision import cycle, plugins


def asked(
    *queue: PendingBenchmark,
    boards: tuple[str, ...] = ("rpi4b-0001-0001",),
    busy: tuple[str, ...] = (),
    ram_bytes: int = 4 * GIB,
    runs: Sequence[PastRun] = (),
    forecast: Forecast | None = None,
    **more: Any,
) -> Changes:
    found = snapshot_of([board(uid, ram_bytes=ram_bytes, busy=uid in busy) for uid in boards])
    holders = [
        BoardHolder(
            benchmark_id=f"runs-on-{uid}", target_uid=uid, priority=99, started_at=NOW, progress=1.0
        )
        for uid in busy
    ]
    known = Knowledge(runs=History(sorted(runs, key=lambda run: run.ended_at)))
    result = cycle(found, queue, holders=holders, knowledge=known)
    return what_would_change(result.decided, queue[0].benchmark_id, forecast=forecast, **more)


def kinds(changes: Changes) -> dict[ChangeKind, str | int | None]:
    return {each.kind: each.value for each in changes.changes}


def test_another_family_with_a_free_board_is_offered_with_its_gain() -> None:
    found = asked(
        pending(user_time_s=100.0),
        boards=("rpi4b-0001-0001", "x86-0001-0001", "rpi5-0001-0001"),
        busy=("rpi4b-0001-0001", "rpi5-0001-0001"),
    )
    assert found.start is not None
    assert found.start > NOW
    [change] = [each for each in found.changes if each.kind is ChangeKind.FAMILY]
    assert change.value == "x86"
    assert change.start == NOW
    assert change.gain_s == (found.start - NOW).total_seconds()


def test_the_least_priority_that_overtakes_is_offered() -> None:
    before = pending("b-2", user_priority=7, submit_time=NOW)
    found = asked(pending("b-9", user_priority=5, submit_time=NOW), before)
    assert kinds(found)[ChangeKind.PRIORITY] == 8


def test_less_memory_is_offered_where_only_memory_keeps_it_off() -> None:
    found = asked(pending(ram_bytes=8 * GIB))
    assert found.start is None
    assert kinds(found)[ChangeKind.RAM] == 4 * GIB
    assert all(each.gain_s is None for each in found.changes)


def test_any_board_is_offered_to_one_that_insists_on_a_busy_one() -> None:
    found = asked(
        pending(target_uid="rpi4b-0001-0001"),
        boards=("rpi4b-0001-0001", "rpi4b-0001-0002"),
        busy=("rpi4b-0001-0001",),
    )
    assert kinds(found)[ChangeKind.BOARD] is None
    assert ChangeKind.BOARD in kinds(found)


def test_a_deadline_out_of_reach_comes_with_the_nearest_that_is_not() -> None:
    soon = NOW + timedelta(seconds=5)
    found = asked(
        pending(user_time_s=300.0, deadline=soon),
        busy=("rpi4b-0001-0001",),
    )
    assert found.deadline == soon
    assert found.reachable_deadline is not None
    assert found.reachable_deadline > soon
    again = asked(
        pending(user_time_s=300.0, deadline=found.reachable_deadline),
        busy=("rpi4b-0001-0001",),
    )
    assert again.reachable_deadline is None


def test_nothing_is_offered_where_nothing_helps() -> None:
    found = asked(pending(), busy=("rpi4b-0001-0001",))
    assert found.changes == ()
    assert found.start is not None


def only(changes: Changes, kind: ChangeKind) -> Change:
    [change] = [each for each in changes.changes if each.kind is kind]
    return change


def test_no_higher_priority_is_offered_than_the_account_allows() -> None:
    before = pending("b-2", user_priority=7, submit_time=NOW)
    mine = pending("b-9", user_priority=5, submit_time=NOW)
    assert kinds(asked(mine, before, bounds=Bounds(priority=8)))[ChangeKind.PRIORITY] == 8
    assert ChangeKind.PRIORITY not in kinds(asked(mine, before, bounds=Bounds(priority=7)))


def test_no_start_in_the_past_is_reported() -> None:
    later = NOW + timedelta(seconds=40)
    found = asked(
        pending(user_time_s=100.0),
        boards=("rpi4b-0001-0001", "x86-0001-0001"),
        busy=("rpi4b-0001-0001",),
        now=later,
    )
    assert found.decided_at == NOW
    assert only(found, ChangeKind.FAMILY).start == later


def test_gains_are_counted_from_the_newest_forecast() -> None:
    start = NOW + timedelta(seconds=500)
    forecast = make.a_forecast(NOW, start, start, start)
    found = asked(
        pending(user_time_s=100.0),
        boards=("rpi4b-0001-0001", "x86-0001-0001"),
        busy=("rpi4b-0001-0001",),
        forecast=forecast,
    )
    assert found.start == start
    assert only(found, ChangeKind.FAMILY).gain_s == 500.0
    in_time = replace(forecast, finish_high=NOW)
    soon = pending(user_time_s=100.0, deadline=NOW + timedelta(seconds=5))
    assert asked(soon, busy=("rpi4b-0001-0001",), forecast=in_time).reachable_deadline is None


RUNS = [past_run("rpi4b-0001-0001", run_s=60.0, ago_s=100.0 * k) for k in range(1, 20)]


def test_a_longer_time_is_offered_where_even_quick_runs_are_stopped() -> None:
    found = asked(pending(user_time_s=10.0), runs=RUNS)
    assert found.start is None
    time_s = only(found, ChangeKind.TIME).value
    assert isinstance(time_s, int)
    assert 60 <= time_s <= 90
    assert asked(pending(user_time_s=float(time_s)), runs=RUNS).start == NOW


def test_a_higher_budget_is_offered_within_the_account_s_bound() -> None:
    found = asked(pending(budget=10.0), runs=RUNS)
    assert 60 <= int(only(found, ChangeKind.BUDGET).value or 0) <= 90
    assert not asked(pending(budget=10.0), runs=RUNS, bounds=Bounds(budget=50.0)).changes


def test_less_storage_is_offered_where_only_storage_keeps_it_off() -> None:
    found = asked(pending(storage_bytes=64 * GIB))
    assert only(found, ChangeKind.STORAGE).value == 32 * GIB


def test_the_constraint_that_no_board_meets_is_reported() -> None:
    constraint = Constraint(attribute="unique.name", operator="=", value="nowhere")
    found = asked(pending(constraints=(constraint,)))
    assert only(found, ChangeKind.CONSTRAINT).value == "unique.name = nowhere"


def test_a_higher_threshold_is_offered_where_it_would_preempt() -> None:
    uid = "rpi4b-0001-0001"
    on = BoardHolder(
        benchmark_id="on",
        target_uid=uid,
        priority=50,
        started_at=NOW - timedelta(minutes=5),
        progress=41.5,
        preemptible=True,
    )
    mine = pending("mine", target_uid=uid, job_completion_threshold=20)
    ahead = pending("ahead", target_uid=uid, submit_time=NOW - timedelta(minutes=5))
    busy = snapshot_of([board(uid, busy=True)])
    result = cycle(busy, [ahead, mine], holders=[on])
    assert not result.preemptions
    change = only(what_would_change(result.decided, "mine"), ChangeKind.THRESHOLD)
    assert (change.value, change.start) == (42, NOW)
    # What it changes is what happens then.
    changed = replace(mine, job_completion_threshold=42)
    assert cycle(busy, [ahead, changed], holders=[on]).preemptions
    measures = replace(on, preemptible=False)
    never = cycle(busy, [ahead, mine], holders=[measures]).decided
    assert ChangeKind.THRESHOLD not in kinds(what_would_change(never, "mine"))


def test_a_higher_priority_is_offered_where_it_would_preempt() -> None:
    uid = "rpi4b-0001-0001"
    on = BoardHolder(
        benchmark_id="on",
        target_uid=uid,
        priority=72,
        started_at=NOW - timedelta(minutes=5),
        progress=1.0,
        preemptible=True,
    )
    mine = pending("mine", user_priority=5, job_completion_threshold=90)
    result = cycle(snapshot_of([board(uid, busy=True)]), [mine], holders=[on])
    assert not result.preemptions
    change = only(what_would_change(result.decided, "mine"), ChangeKind.PRIORITY)
    assert (change.value, change.start) == (6, NOW)


def test_a_start_time_can_be_left_out() -> None:
    found = asked(pending(start_time=NOW + timedelta(seconds=300)))
    change = only(found, ChangeKind.START)
    assert (change.start, change.gain_s) == (NOW, 300.0)


def test_what_there_was_no_time_for_is_reported() -> None:
    found = asked(
        pending(user_time_s=100.0, ram_bytes=2 * GIB),
        boards=("rpi4b-0001-0001", "x86-0001-0001"),
        busy=("rpi4b-0001-0001",),
        left_s=lambda: 0.0,
    )
    assert found.start is not None
    assert found.changes == ()
    assert found.untried == (ChangeKind.PRIORITY, ChangeKind.FAMILY)


class Counting:
    """Prefers the last board; tells how often it was asked."""

    name = "counting"
    objective = "load"
    kind = ScorerKind.ILP
    unit = ScoreUnit.PREFERENCE

    def __init__(self) -> None:
        self.asked = 0

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        self.asked += 1
        return (pairs.boards / batch.shape[1]).astype(np.float32)


def test_no_scorer_is_asked_again() -> None:
    counting = Counting()
    uids = [f"rpi4b-0001-000{k}" for k in range(1, 4)]
    result = cycle(
        snapshot_of([board(uid) for uid in uids]),
        [pending(f"b-{k}", user_priority=9 - k, submit_time=NOW) for k in range(5)],
        more_plugins={"scorers": (WeightedScorer(scorer=counting),), "fallback": counting},
    )
    asked_then = counting.asked
    found = what_would_change(result.decided, "b-4")
    assert kinds(found)[ChangeKind.PRIORITY] == 7
    assert counting.asked == asked_then


class Watching(HealthFilter):
    """Tells what it was asked of."""

    def __init__(self) -> None:
        self.boards: list[tuple[str, ...]] = []
        self.entitlements: list[Mapping[str, Entitlement]] = []

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        self.boards.append(batch.snapshot.uids)
        self.entitlements.append(batch.knowledge.entitlements)
        return super().admit(batch)


@pytest.mark.parametrize("shared", [False, True])
def test_other_families_are_left_out_unless_they_share_cores(shared: bool) -> None:
    uids = ("rpi4b-0001-0001", "x86-0001-0001", "x86-0001-0002")
    conflicts = np.zeros((3, 3), dtype=np.bool_)
    conflicts[0, 1] = conflicts[1, 0] = shared
    snapshot = replace(snapshot_of([board(uid) for uid in uids]), conflicts=conflicts)
    watching = Watching()
    filters = (*plugins().filters, watching)
    jobs = [pending("other", family="x86"), pending("mine", ram_bytes=64 * GIB)]
    decided = cycle(snapshot, jobs, more_plugins={"filters": filters}).decided
    watching.boards.clear()
    what_would_change(decided, "mine", bounds=Bounds(priority=1))
    assert watching.boards[0] == (uids if shared else uids[:1])


def test_what_others_got_elsewhere_counts_against_a_quota() -> None:
    known = Knowledge(entitlements={"user-1": Entitlement(max_running=1)})
    jobs = [
        pending("first", family="x86", user_priority=9, submit_time=NOW),
        pending("mine", user_priority=1, start_time=NOW + timedelta(seconds=60)),
    ]
    boards = [board("rpi4b-0001-0001"), board("x86-0001-0001")]
    watching = Watching()
    more = {"filters": (*plugins().filters, watching)}
    decided = cycle(snapshot_of(boards), jobs, knowledge=known, more_plugins=more).decided
    watching.entitlements.clear()
    what_would_change(decided, "mine")
    assert watching.entitlements[0]["user-1"].running == 1


def test_a_part_that_is_decided_again_has_the_forecast_of_the_whole() -> None:
    uids = [f"{family}-0001-000{k}" for family in ("rpi4b", "x86") for k in range(1, 4)]
    holders = [
        BoardHolder(
            benchmark_id=f"on-{uid}", target_uid=uid, priority=50, started_at=NOW, progress=1.0
        )
        for uid in uids
    ]
    jobs = [
        pending(f"b-{k}", family=("rpi4b", "x86")[k % 2], submit_time=NOW, user_time_s=50.0 + k)
        for k in range(12)
    ]
    result = cycle(snapshot_of([board(uid, busy=True) for uid in uids]), jobs, holders=holders)
    whole = forecast_of(result.decided.forecast_input, "b-11", samples=500)
    part = what_would_change(result.decided, "b-11").start
    assert whole is not None
    assert part is not None
    assert (part - NOW).total_seconds() == pytest.approx(
        (whole.start - NOW).total_seconds(), rel=0.25
    )
