"""Gangs: benchmarks that start together on boards of their own, or not at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.propensity import propensity
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Snapshot,
)
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from edgeyard.scheduler.prediction.forecast import (
    WaitSamples,
    forecast_of,
    forecasts,
    sample_futures,
)
from tests.builders.decision import cycle, places, plugins
from tests.unit.test_explore import KNOWN as EXPLORABLE

A, B, C, D = (f"rpi4b-0001-000{number}" for number in range(1, 5))
DAY = timedelta(days=1)
POLICIES = ("default", "native", "learned")


def gang(size: int, name: str = "gang", **more: object) -> list[PendingBenchmark]:
    return [
        pending(f"{name}-{number}", **{"gang_id": name, "gang_size": size, **more})
        for number in range(size)
    ]


def lab(*uids: str, busy: tuple[str, ...] = ()) -> Snapshot:
    return snapshot_of([board(uid, busy=uid in busy) for uid in uids])


def running(uid: str, **more: object) -> BoardHolder:
    values: dict[str, object] = {"priority": 50, "started_at": NOW, "time_limit_s": 60.0}
    return BoardHolder(benchmark_id=f"on-{uid}", target_uid=uid, **{**values, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("of", POLICIES)
def test_all_start_on_boards_of_their_own_or_none_does(of: str) -> None:
    assert set(places(cycle(lab(A, B, C), gang(3), of=of)).values()) == {A, B, C}
    result = cycle(lab(A, B, C, busy=(C,)), gang(3), of=of, holders=[running(C)])
    assert places(result) == {}
    for number in range(3):
        waiting = result.waiting[f"gang-{number}"]
        assert waiting.reason is WaitingReason.BOARD_BUSY
        assert waiting.sentence == "it needs 3 boards at the same time, of which 2 are free"


def test_others_use_the_boards_that_are_too_few_for_a_gang() -> None:
    older = gang(3, submit_time=NOW - timedelta(hours=1), user_priority=9)
    result = cycle(lab(A, B), [*older, pending("single")])
    assert set(places(result)) == {"single"}


@pytest.mark.parametrize("changes", [{"max_joint_jobs": 20}, {"explore_share": 0.5}])
def test_gangs_start_together_however_boards_are_given_out(changes: dict[str, Any]) -> None:
    jobs = [*gang(2), pending("single")]
    for seed in range(5):
        result = cycle(lab(A, B, C), jobs, seed=seed, **changes)
        assert sorted(places(result).values()) == [A, B, C]
        late = cycle(lab(A), jobs, seed=seed, **changes)
        assert set(places(late)) == {"single"}


def test_a_gang_which_no_draw_touches_has_its_boards_for_certain() -> None:
    result = cycle(lab(A, B, C), gang(2), explore_share=0.5, knowledge=EXPLORABLE)
    assert len(places(result)) == 2
    assert [propensity(result.decided, job) for job in range(2)] == [1.0, 1.0]
    single = cycle(lab(A, B, C), [pending("single")], explore_share=0.5, knowledge=EXPLORABLE)
    assert propensity(single.decided, 0) != 1.0


@pytest.mark.parametrize("planner", ["min_min", "sufferage", "expected_cost"])
def test_gangs_start_together_under_every_planner(planner: str) -> None:
    result = cycle(lab(A, B, C), [*gang(2), pending("single")], planner=Planner(planner))
    assert sorted(places(result).values()) == [A, B, C]


def test_a_gang_is_bound_to_its_boards() -> None:
    result = cycle(lab(A, B), gang(2), of="native")
    assert {each.binding for each in result.placements} == {Binding.STRICT}


def test_a_gang_of_which_one_is_missing_or_not_ready_waits() -> None:
    result = cycle(lab(A, B, C), gang(3)[:2])
    assert places(result) == {}
    assert "of which 1 is not in the queue" in result.waiting["gang-0"].sentence
    held = WaitReason(reason=WaitingReason.HELD, sentence="its owner holds it")
    first, *others = gang(3)
    result = cycle(lab(A, B, C), [replace(first, not_ready=held), *others])
    assert places(result) == {}
    assert result.waiting["gang-0"] == held
    assert result.waiting["gang-1"].reason is WaitingReason.HELD
    assert result.waiting["gang-1"].sentence.endswith("gang-0 waits: its owner holds it")


def test_a_limit_of_the_account_counts_for_all_of_a_gang_and_holds_up_nothing_else() -> None:
    knowledge = Knowledge(
        entitlements={"user-1": Entitlement(max_running=2, running=0, usage_board_s=0.0)}
    )
    jobs = [*gang(3, user_priority=9), pending("single")]
    result = cycle(lab(A, B, C), jobs, knowledge=knowledge)
    assert set(places(result)) == {"single"}
    assert result.waiting["gang-2"].reason is WaitingReason.QUOTA


def test_a_gang_that_its_account_keeps_waiting_gets_no_reservations() -> None:
    conflicts = np.zeros((4, 4), dtype=np.bool_)
    conflicts[2, 3] = conflicts[3, 2] = True  # so that boards are reserved at all
    old = gang(2, submit_time=NOW - 2 * DAY)
    snapshot = replace(lab(A, B, C, D), conflicts=conflicts)
    assert cycle(snapshot, [*old, pending("other")]).decided.timeline.reservations
    knowledge = Knowledge(
        entitlements={"user-1": Entitlement(max_running=3, running=2, usage_board_s=0.0)}
    )
    others = [pending(f"single-{number}", user_id="bob") for number in range(4)]
    result = cycle(snapshot, [*old, *others], knowledge=knowledge)
    assert not result.decided.timeline.reservations
    assert len(places(result)) == 3


def test_all_of_a_gang_stand_behind_its_first_in_the_queue() -> None:
    first, second = gang(2)
    jobs = [replace(first, user_priority=10), replace(second, user_priority=1)]
    result = cycle(lab(A, B), [*jobs, pending("single", user_priority=5)])
    assert result.order == ("gang-0", "gang-1", "single")
    assert set(places(result)) == {"gang-0", "gang-1"}
    for each in result.explanation("single").verdicts:
        assert each.sentence == f"{each.target_uid} goes to a benchmark ahead in the queue"


def test_boards_that_share_cores_are_not_used_together() -> None:
    conflicts = np.zeros((4, 4), dtype=np.bool_)
    conflicts[0, 1:] = conflicts[1:, 0] = True  # A shares cores with all others
    snapshot = replace(lab(A, B, C, D), conflicts=conflicts)
    for seed in range(10):
        assert set(places(cycle(snapshot, gang(3), seed=seed)).values()) == {B, C, D}
    assert places(cycle(snapshot, gang(4))) == {}


def test_a_gang_past_the_guard_holds_boards_until_all_are_free() -> None:
    old = gang(2, submit_time=NOW - 2 * DAY)
    single = pending("single", submit_time=NOW - timedelta(hours=1), user_priority=10)
    young = gang(2, submit_time=NOW - timedelta(hours=1))
    busy = lab(A, B, busy=(B,))
    assert set(places(cycle(busy, [*young, single], holders=[running(B)]))) == {"single"}
    result = cycle(busy, [*old, single], holders=[running(B)])
    assert places(result) == {}
    assert "1 is held for it" in result.waiting["gang-0"].sentence
    verdicts = {each.target_uid: each for each in result.explanation("single").verdicts}
    assert verdicts[A].sentence == f"{A} goes to a benchmark ahead in the queue"
    assert set(places(cycle(lab(A, B), [*old, single]))) == {"gang-0", "gang-1"}


def test_a_gang_that_no_boards_will_be_free_for_holds_none() -> None:
    old = gang(3, submit_time=NOW - 2 * DAY)
    single = pending("single")
    assert set(places(cycle(lab(A, B), [*old, single]))) == {"single"}
    offline = snapshot_of([board(A), board(B), board(C)], offline=[C])
    assert set(places(cycle(offline, [*old, single]))) == {"single"}
    for since in (NOW, NOW + timedelta(seconds=60.0)):
        lease = Lease(lease_id="l", target_uid=C, since=since, until=NOW + DAY, reason="")
        leased = Knowledge(leases=(lease,))
        result = cycle(lab(A, B, C), [*old, single], knowledge=leased)
        assert set(places(result)) == {"single"}


def test_of_two_gangs_past_the_guard_the_first_gets_all_its_boards() -> None:
    first = gang(2, "first", submit_time=NOW - 3 * DAY)
    second = gang(2, "second", submit_time=NOW - 2 * DAY)
    for uid in (A, B):
        result = cycle(lab(A, B, busy=(uid,)), [*second, *first], holders=[running(uid)])
        assert places(result) == {}
        assert "1 is held for it" in result.waiting["first-0"].sentence
        assert "0 are held for it" in result.waiting["second-0"].sentence
    assert set(places(cycle(lab(A, B), [*second, *first]))) == {"first-0", "first-1"}


def test_gangs_preempt_nobody() -> None:
    more: dict[str, Any] = {"user_priority": 10, "job_completion_threshold": 90}
    began = NOW - timedelta(minutes=1)
    victim = running(A, started_at=began, time_limit_s=None, progress=5.0, preemptible=True)
    urgent = pending("single", **more)
    assert cycle(lab(A, busy=(A,)), [urgent], holders=[victim]).preemptions
    result = cycle(lab(A, B, busy=(A,)), gang(2, **more), holders=[victim])
    assert result.preemptions == ()


def test_one_that_is_tried_again_uses_no_board_of_its_gang() -> None:
    again = pending("gang-1", gang_uids=frozenset({A}))
    assert places(cycle(lab(A, B), [again])) == {"gang-1": B}
    result = cycle(lab(A, B, busy=(B,)), [again], holders=[running(B)])
    waiting = result.waiting["gang-1"]
    assert waiting.reason is WaitingReason.BOARD_BUSY
    assert waiting.sentence == (
        f"only {A} is free, on which another benchmark of its gang runs or ran"
    )


def test_a_gang_with_a_stated_start_gets_its_reserved_boards() -> None:
    booked = gang(2, start_time=NOW, submit_time=NOW - timedelta(hours=1))
    urgent = [pending(f"urgent-{number}", user_priority=10) for number in range(2)]
    assert set(places(cycle(lab(A, B), [*urgent, *booked]))) == {"gang-0", "gang-1"}


class TestForecasts:
    """Nothing is known of runs, so that the one future of medians has a quarter of each bound."""

    def futures(self, snapshot: Snapshot, jobs: list[PendingBenchmark], **more: Any) -> WaitSamples:
        return sample_futures(cycle(snapshot, jobs, **more).decided.forecast_input, samples=1)

    def starts(
        self, snapshot: Snapshot, jobs: list[PendingBenchmark], **more: Any
    ) -> dict[str, float]:
        found = self.futures(snapshot, jobs, **more)
        names = [jobs[row].benchmark_id for row in found.jobs.tolist()]
        return dict(zip(names, found.starts[:, 0].round(3).tolist(), strict=True))

    def test_all_of_a_gang_start_together_when_there_are_boards_for_all(self) -> None:
        holders = [running(A, time_limit_s=40.0), running(B, time_limit_s=400.0)]
        busy = lab(A, B, C, busy=(A, B))
        jobs = [*gang(3), pending("last", user_priority=1, user_time_s=80.0)]
        starts = self.starts(busy, jobs, holders=holders)
        assert starts == {"last": 0.0, "gang-0": 100.0, "gang-1": 100.0, "gang-2": 100.0}
        decided = cycle(busy, jobs, holders=holders).decided
        found = forecasts(decided.forecast_input)
        for number in range(3):
            assert found[f"gang-{number}"].start == found["gang-0"].start
            assert forecast_of(decided.forecast_input, f"gang-{number}") == found[f"gang-{number}"]
        assert decided.planned_starts() == {}

    def test_those_behind_a_gang_use_the_boards_that_are_too_few_and_delay_it(self) -> None:
        holders = [running(B, time_limit_s=40.0)]
        jobs = [*gang(2), pending("long", user_priority=1, user_time_s=160.0)]
        starts = self.starts(lab(A, B, busy=(B,)), jobs, holders=holders)
        assert starts == {"long": 0.0, "gang-0": 40.0, "gang-1": 40.0}

    def test_from_the_guard_on_boards_are_held_for_a_gang(self) -> None:
        jobs = [
            *gang(2, submit_time=NOW - timedelta(seconds=60)),
            *(
                pending(f"single-{number}", user_priority=1, user_time_s=80.0 + 40.0 * number)
                for number in range(4)
            ),
        ]
        holders = [running(A, time_limit_s=20.0), running(B, time_limit_s=30.0)]
        of = {"holders": holders, "guard_s": 70.0}
        starts = self.starts(lab(A, B, busy=(A, B)), jobs, **of)
        # A is free at 5 s and B at 7.5 s, before boards are held from 10 s on
        assert starts["single-0"] == 5.0
        assert starts["single-1"] == 7.5
        assert starts["gang-0"] == starts["gang-1"] == 37.5
        assert min(starts["single-2"], starts["single-3"]) > 37.5

    def test_boards_that_share_cores_count_once(self) -> None:
        conflicts = np.zeros((3, 3), dtype=np.bool_)
        conflicts[0, 1:] = conflicts[1:, 0] = True  # A shares cores with B and C
        for runs, busy in ((A, (A, B, C)), (B, (A, B))):
            snapshot = replace(lab(A, B, C, busy=busy), conflicts=conflicts)
            holders = [running(runs, time_limit_s=100.0)]
            starts = self.starts(snapshot, gang(2), holders=holders)
            assert starts == {"gang-0": 25.0, "gang-1": 25.0}
            assert self.starts(snapshot, gang(3), holders=holders)["gang-0"] == float("inf")

    def test_places_of_its_user_are_waited_for(self) -> None:
        holders = [running(C, time_limit_s=40.0, user_id="user-1")]
        for at_a_time, start in ((3, 0.0), (2, 10.0), (1, float("inf"))):
            known = Entitlement(max_running=at_a_time, running=1, usage_board_s=0.0)
            starts = self.starts(
                lab(A, B, C, busy=(C,)),
                gang(2),
                holders=holders,
                knowledge=Knowledge(entitlements={"user-1": known}),
            )
            assert starts == {"gang-0": start, "gang-1": start}

    def test_a_lease_and_a_stated_start_are_waited_for(self) -> None:
        lease = Lease(
            lease_id="l", target_uid=B, since=NOW, until=NOW + timedelta(seconds=90), reason=""
        )
        known = Knowledge(leases=(lease,))
        jobs = [*gang(2), pending("single", user_priority=1, user_time_s=40.0)]
        found = self.futures(lab(A, B), jobs, knowledge=known)
        starts = self.starts(lab(A, B), jobs, knowledge=known)
        assert starts == {"single": 0.0, "gang-0": 90.0, "gang-1": 90.0}
        assert found.earliest_start.tolist() == [0.0, 90.0, 90.0]
        later = gang(2, start_time=NOW + timedelta(seconds=300))
        assert self.starts(lab(A, B), later) == {"gang-0": 300.0, "gang-1": 300.0}

    def test_a_gang_that_is_not_whole_has_no_forecast_and_delays_nobody(self) -> None:
        jobs = [*gang(3)[:2], pending("single", user_priority=1)]
        decided = cycle(lab(A, B, C), jobs).decided
        assert forecasts(decided.forecast_input).keys() == {"single"}
        assert forecast_of(decided.forecast_input, "gang-0") is None
        comes = WaitReason(reason=WaitingReason.FETCHING, sentence="net.onnx is being downloaded")
        first, second = gang(2)
        decided = cycle(lab(A, B), [replace(first, not_ready=comes), second]).decided
        assert forecasts(decided.forecast_input) == {}


def test_a_recorded_decision_about_a_gang_is_the_same_when_it_is_read() -> None:
    old = gang(2, submit_time=NOW - 2 * DAY)
    jobs, holders = [*old, pending("single")], [running(B)]
    snapshot = lab(A, B, busy=(B,))
    result = cycle(snapshot, jobs, holders=holders)
    given = CycleInput(snapshot=snapshot, pending=jobs, now=NOW, holders=holders)
    read = result_of(Recorder().record(given, result), plugins())
    for each in jobs:
        name = each.benchmark_id
        assert read.explanation(name) == result.explanation(name)
