"""Whom the scheduler stops for whom."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.policy import PriorityMode
from edgeyard.scheduler.model.benchmark import BenchmarkType, WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from tests.builders.decision import cycle, places, policy

A, B, C = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"


def holder(uid: str, **changes: object) -> BoardHolder:
    """Runs there at 10 % with a priority of 60, and may be preempted."""
    plain: dict[str, object] = {
        "priority": 60,
        "progress": 10.0,
        "preemptible": True,
        "started_at": NOW - timedelta(minutes=1),
    }
    return BoardHolder(
        benchmark_id=f"on-{uid}",
        target_uid=uid,
        **{**plain, **changes},  # type: ignore[arg-type]  # whatever it takes
    )


def urgent(benchmark_id: str = "urgent", **changes: object) -> PendingBenchmark:
    """Of priority 80, may stop what is below 90 %."""
    return pending(benchmark_id, **{"job_completion_threshold": 90, **changes})


def with_holders(
    *holders: BoardHolder, queue: list[PendingBenchmark], idle: tuple[str, ...] = ()
) -> CycleResult:
    boards = [board(each.target_uid, busy=True) for each in holders]
    snapshot = snapshot_of([*boards, *(board(uid) for uid in idle)])
    return cycle(snapshot, queue, holders=holders)


def stopped(result: CycleResult) -> dict[str, str]:
    return {each.benchmark_id: each.victim_id for each in result.preemptions}


def test_a_more_urgent_one_has_the_one_on_its_board_stopped() -> None:
    result = with_holders(holder(A), queue=[urgent()])
    (preemption,) = result.preemptions
    assert (preemption.victim_id, preemption.target_uid) == (f"on-{A}", A)
    assert (preemption.priority, preemption.victim_priority) == (80, 60)
    assert (preemption.progress, preemption.threshold) == (10.0, 90)
    waiting = result.waiting["urgent"]
    assert waiting.reason is WaitingReason.BOARD_BUSY
    assert A in waiting.sentence
    assert "is being preempted" in waiting.sentence


@pytest.mark.parametrize(
    ("progress", "threshold", "may"), [(89.0, 90, True), (90.0, 90, False), (0.0, 0, False)]
)
def test_the_threshold_is_a_limit_that_is_not_reached(
    progress: float, threshold: int, may: bool
) -> None:
    queue = [urgent(job_completion_threshold=threshold)]
    assert bool(stopped(with_holders(holder(A, progress=progress), queue=queue))) is may


def test_without_a_threshold_of_its_own_nobody_is_stopped() -> None:
    assert not stopped(with_holders(holder(A), queue=[urgent(job_completion_threshold=None)]))


@pytest.mark.parametrize(("priority", "may"), [(70, True), (71, False), (80, False), (95, False)])
def test_the_victim_is_less_urgent_by_the_margin(priority: int, may: bool) -> None:
    assert bool(stopped(with_holders(holder(A, priority=priority), queue=[urgent()]))) is may


def test_on_a_twin_that_is_too_old_nobody_is_stopped() -> None:
    for age_s, may in ((60.0, True), (60.1, False), (float("nan"), False)):
        snapshot = replace(snapshot_of([board(A, busy=True)]), age_s=age_s)
        assert bool(cycle(snapshot, [urgent()], holders=[holder(A)]).preemptions) is may


def test_the_native_policy_leaves_it_to_the_cluster() -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    assert cycle(snapshot, [urgent()], holders=[holder(A)]).preemptions
    assert not cycle(snapshot, [urgent()], of="native", holders=[holder(A)]).preemptions


def test_what_may_not_be_preempted_is_not() -> None:
    assert not stopped(with_holders(holder(A, preemptible=False), queue=[urgent()]))


def test_of_one_that_does_not_tell_its_progress_nothing_is_certain() -> None:
    assert not stopped(with_holders(holder(A, progress=None), queue=[urgent()]))


def test_the_board_s_own_word_counts_where_it_is_further() -> None:
    snapshot = snapshot_of([board(A, busy=True, progress=95.0)])
    assert not cycle(snapshot, [urgent()], holders=[holder(A)]).preemptions


def test_nobody_is_stopped_on_a_board_that_rests_for_the_urgent_one() -> None:
    """It has just failed it there; another board's holder is stopped, or it waits."""
    resting = urgent(avoid_until=((A, NOW + timedelta(seconds=10)),))
    assert not stopped(with_holders(holder(A), queue=[resting]))
    both = with_holders(holder(A), holder(B, priority=65), queue=[resting])
    assert stopped(both) == {"urgent": f"on-{B}"}
    rested = urgent(avoid_until=((A, NOW),))
    assert stopped(with_holders(holder(A), queue=[rested])) == {"urgent": f"on-{A}"}
    other = with_holders(holder(A), queue=[resting, urgent("other")])
    assert stopped(other) == {"other": f"on-{A}"}


def test_a_free_board_is_taken_instead() -> None:
    result = with_holders(holder(A), queue=[urgent()], idle=(B,))
    assert places(result) == {"urgent": B}
    assert not result.preemptions


def test_a_board_that_comes_free_anyway_is_waited_for() -> None:
    result = with_holders(holder(A), holder(B, ending=True), queue=[urgent()])
    assert not result.preemptions


def test_a_stop_that_is_under_way_is_not_followed_by_another() -> None:
    stopping = holder(A, ending=True, preempted=True, preemptible=False)
    result = with_holders(stopping, holder(B), queue=[urgent()])
    assert not result.preemptions
    assert "is being preempted" in result.waiting["urgent"].sentence
    # A second one is: the board that comes free goes to the first.
    queue = [urgent("a"), urgent("b")]
    assert stopped(with_holders(stopping, holder(B), queue=queue)) == {"b": f"on-{B}"}


def test_the_least_urgent_and_then_the_least_far_is_stopped() -> None:
    holders = (holder(A, progress=5.0), holder(B, priority=50, progress=40.0), holder(C))
    assert stopped(with_holders(*holders, queue=[urgent()])) == {"urgent": f"on-{B}"}
    two = (holder(A, progress=50.0), holder(B, progress=40.0))
    assert stopped(with_holders(*two, queue=[urgent()])) == {"urgent": f"on-{B}"}


def test_boards_on_which_it_failed_are_the_last_choice() -> None:
    queue = [urgent(tried_uids=frozenset({A}))]
    holders = (holder(A, priority=50), holder(B))
    assert stopped(with_holders(*holders, queue=queue)) == {"urgent": f"on-{B}"}


def test_nobody_is_stopped_for_the_good_of_one_that_comes_first() -> None:
    first = pending("first", submit_time=NOW - timedelta(minutes=5), user_priority=6)
    assert not stopped(with_holders(holder(A), queue=[first, urgent()]))
    # Also of one that is no more urgent, but has waited for the guard time.
    guarded = pending("first", submit_time=NOW - timedelta(minutes=5))
    busy = snapshot_of([board(A, busy=True)])
    found = cycle(busy, [guarded, urgent()], holders=[holder(A)], guard_s=60.0)
    assert not stopped(found)
    # One that comes later gets nothing of it.
    later = pending("later", benchmark_type=BenchmarkType.TYPE2)
    assert stopped(with_holders(holder(A), queue=[later, urgent()])) == {"urgent": f"on-{A}"}


@pytest.mark.parametrize(
    "cannot", [{"job_completion_threshold": None}, {"job_completion_threshold": 5}]
)
@pytest.mark.parametrize("uid", [None, A])
def test_one_that_can_preempt_nobody_is_not_in_the_way_of_an_equal_one(
    cannot: dict[str, object], uid: str | None
) -> None:
    """The board that is cleared is reserved for the one that it is cleared for, until it starts."""
    first = urgent("first", submit_time=NOW - timedelta(minutes=5), target_uid=uid, **cannot)
    second = urgent("second", target_uid=uid)
    result = with_holders(holder(A), queue=[first, second])
    assert stopped(result) == {"second": f"on-{A}"}
    assert result.waiting["first"].reason is WaitingReason.BOARD_BUSY
    cleared = replace(second, cleared_uid=A)
    stopping = holder(A, ending=True, preempted=True, preemptible=False)
    under_way = with_holders(stopping, holder(B), queue=[first, cleared])
    assert not [each for each in under_way.preemptions if each.benchmark_id == "second"]
    assert "is being preempted" in under_way.waiting["second"].sentence
    free = cycle(snapshot_of([board(A)]), [first, cleared])
    assert places(free) == {"second": A}
    # It takes another board that is free before, and a board that went away is nobody's.
    both = snapshot_of([board(A, busy=True), board(B)])
    anywhere = replace(cleared, target_uid=None)
    assert places(cycle(both, [anywhere], holders=[stopping])) == {"second": B}
    gone = cycle(snapshot_of([board(B)]), [first, anywhere])
    assert len(gone.placements) == 1


def test_a_board_that_was_cleared_for_one_that_may_not_start_goes_to_others() -> None:
    cleared = replace(urgent("first", user_id="ann"), cleared_uid=A)
    known = Knowledge(entitlements={"ann": Entitlement(max_running=1, running=1)})
    free = cycle(snapshot_of([board(A)]), [cleared, urgent("second")], knowledge=known)
    assert places(free) == {"second": A}


def test_two_urgent_ones_have_two_stopped() -> None:
    found = stopped(with_holders(holder(A), holder(B), queue=[urgent("x"), urgent("y")]))
    assert sorted(found) == ["x", "y"]
    assert len(set(found.values())) == 2


@pytest.mark.parametrize(
    "changes", [{"healthy": False}, {"ram_bytes": 1}, {"engines": {"tflite": ["TYPE1"]}}]
)
def test_only_on_boards_that_it_could_use(changes: dict[str, object]) -> None:
    snapshot = snapshot_of([board(A, busy=True, **changes)])  # type: ignore[arg-type]
    result = cycle(snapshot, [urgent(ram_bytes=2**30)], holders=[holder(A)])
    assert not result.preemptions


def test_a_policy_may_leave_it_to_the_cluster() -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    assert not cycle(snapshot, [urgent()], holders=[holder(A)], max_preemptions=0).preemptions


def test_nothing_is_stopped_on_old_knowledge() -> None:
    snapshot = snapshot_of([board(A, busy=True)], age_s=3600.0)
    assert not cycle(snapshot, [urgent()], holders=[holder(A)]).preemptions


def ran(seconds: float) -> dict[str, object]:
    return {"started_at": NOW - timedelta(seconds=seconds)}


@pytest.mark.parametrize(("seconds", "may"), [(29.0, False), (30.0, True)])
def test_nobody_is_stopped_before_the_least_run(seconds: float, may: bool) -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    result = cycle(snapshot, [urgent()], holders=[holder(A, **ran(seconds))], min_run_s=30.0)
    assert bool(stopped(result)) is may


@pytest.mark.parametrize("phase", ["measuring", "training"])
def test_the_threshold_alone_protects_what_measures_unless_the_policy_spares_it(
    phase: str,
) -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    measures = holder(A, phase=phase)
    allows = holder(A, phase=phase, preemptible_measuring=True)
    (preemption,) = cycle(snapshot, [urgent()], holders=[measures]).preemptions
    assert preemption.while_measuring
    assert not stopped(cycle(snapshot, [urgent()], holders=[measures], spare_measuring=True))
    (preemption,) = cycle(snapshot, [urgent()], holders=[allows], spare_measuring=True).preemptions
    assert preemption.while_measuring


@pytest.mark.parametrize("phase", [None, "loading", "warmup"])
def test_before_it_measures_it_may_be_stopped(phase: str | None) -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    holders = [holder(A, phase=phase)]
    (preemption,) = cycle(snapshot, [urgent()], holders=holders, spare_measuring=True).preemptions
    assert not preemption.while_measuring  # should it have begun to by the time it is stopped


def test_where_all_have_the_same_priority_nobody_is_stopped() -> None:
    snapshot = snapshot_of([board(A, busy=True)])
    queue = [urgent(user_priority=10)]
    fifo = PriorityMode.FIFO
    same = cycle(snapshot, queue, holders=[holder(A, priority=50)], priority_mode=fifo)
    assert same.priority("urgent") == 50
    assert not same.preemptions
    assert cycle(snapshot, queue, holders=[holder(A, priority=50)]).preemptions


@pytest.mark.parametrize("spread", [9, 10])
def test_by_default_the_scheduler_preempts_across_the_gap_that_nomad_would(spread: int) -> None:
    assert policy().preemption_margin == 10
    found = with_holders(holder(A, priority=80 - spread), queue=[urgent()])
    assert bool(stopped(found)) is (spread == 10)


def test_nobody_is_stopped_for_one_whose_user_may_have_no_more() -> None:
    snapshot = snapshot_of([board(A, busy=True)])

    def found(running: int) -> CycleResult:
        entitled = {"user-1": Entitlement(max_running=1, running=running)}
        known = Knowledge(entitlements=entitled)
        return cycle(snapshot, [urgent()], holders=[holder(A)], knowledge=known)

    assert not found(1).preemptions
    assert found(0).preemptions


def test_nobody_is_stopped_on_a_board_that_the_other_would_not_get() -> None:
    busy = [board(A, busy=True)]
    lease = Lease(
        lease_id="l",
        target_uid=A,
        since=NOW - timedelta(seconds=1),
        until=NOW + timedelta(hours=1),
        reason="",
    )
    soon = replace(lease, since=NOW + timedelta(seconds=1))
    for known in (
        Knowledge(leases=(lease,)),
        Knowledge(leases=(soon,)),
        Knowledge(quarantined={A: "its runs fail"}),
    ):
        result = cycle(snapshot_of(busy), [urgent()], holders=[holder(A)], knowledge=known)
        assert not result.preemptions
    assert not cycle(snapshot_of(busy, drained=[A]), [urgent()], holders=[holder(A)]).preemptions
    elsewhere = [urgent(target_uid=B)]
    both = snapshot_of([*busy, board(B, busy=True)])
    assert not cycle(both, elsewhere, holders=[holder(A)]).preemptions
    assert stopped(cycle(both, elsewhere, holders=[holder(A), holder(B)])) == {"urgent": f"on-{B}"}


@pytest.mark.parametrize(
    "one",
    [
        urgent(not_ready=WaitReason(reason=WaitingReason.HELD, sentence="it is held")),
        urgent(start_time=NOW + timedelta(seconds=60)),
    ],
)
def test_nobody_is_stopped_for_one_that_may_not_start_yet(one: PendingBenchmark) -> None:
    assert not stopped(with_holders(holder(A), queue=[one]))


def test_of_one_whose_task_has_not_started_nobody_knows_that_it_ran_the_least_time() -> None:
    assert not stopped(with_holders(holder(A, started_at=None, progress=0.0), queue=[urgent()]))
