"""Promised boards, boards that rest, and giving boards out jointly."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from tests.builders.decision import cycle, places

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
ONE, BOTH = snapshot_of([board(A)]), snapshot_of([board(A), board(B)])
JOB = pending("job", user_time_s=60.0)


def in_s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def reserved(start_s: float, uid: str = A) -> PendingBenchmark:
    return pending("reserved", target_uid=uid, start_time=NOW + in_s(start_s))


@pytest.mark.parametrize(("start_s", "placed"), [(59.0, False), (60.0, True)])
def test_a_reserved_board_is_used_only_by_runs_that_end_before(
    start_s: float, placed: bool
) -> None:
    result = cycle(ONE, [JOB, reserved(start_s)], booking_grace_s=0.0)
    assert ("job" in places(result)) is placed
    if not placed:
        waiting = result.waiting["job"]
        assert waiting.reason is WaitingReason.RESERVED
        assert A in waiting.sentence
        assert "is reserved from" in waiting.sentence


def test_another_board_is_taken_instead() -> None:
    result = cycle(BOTH, [JOB, reserved(5.0)])
    assert places(result) == {"job": B}


def starts(name: str = "promised", start_s: float = 300.0, **changes: object) -> PendingBenchmark:
    """To start then, on any board."""
    return pending(name, start_time=NOW + in_s(start_s), user_time_s=100.0, **changes)


def kept(result: CycleResult) -> dict[str, str]:
    decided = result.decided
    return {
        decided.pending[job].benchmark_id: decided.snapshot.uids[row]
        for job, row in decided.timeline.stated_boards.items()
    }


def test_a_start_that_names_no_board_is_kept_one() -> None:
    long = pending("long")  # may run for 900 s
    result = cycle(ONE, [long, starts()])
    assert kept(result) == {"promised": A}
    assert not result.placements
    assert result.waiting["long"].reason is WaitingReason.RESERVED
    [verdict] = result.explanation("long").verdicts
    assert verdict.reason is WaitingReason.RESERVED
    [verdict] = result.explanation("promised").verdicts
    assert verdict.reason is None
    # Of two boards one is left; whoever is through before may have both.
    assert len(cycle(BOTH, [long, starts()]).placements) == 1
    assert places(cycle(ONE, [JOB, starts()])) == {"job": A}
    # Farther away than any run can last, it is in nobody's way.
    assert places(cycle(ONE, [long, starts(start_s=900.0)])) == {"long": A}


@pytest.mark.parametrize(
    ("late_s", "first"), [(0.0, "promised"), (59.0, "promised"), (60.0, "job")]
)
def test_a_start_that_has_come_goes_before_what_is_more_urgent(late_s: float, first: str) -> None:
    """For as long as an old answer of the cluster may hold decisions up; then it is as others."""
    promised = starts(start_s=-late_s, user_priority=1, submit_time=NOW)
    assert places(cycle(ONE, [JOB, promised])) == {first: A}
    if first == "promised":
        waiting = cycle(ONE, [JOB, promised]).waiting["job"]
        assert waiting.reason is WaitingReason.RESERVED


NOTHING_LEFT = Knowledge(entitlements={"ann": Entitlement(credits_left=0.0)})
AT_THE_LIMIT = Knowledge(entitlements={"ann": Entitlement(max_running=1, running=1)})


@pytest.mark.parametrize("known", [NOTHING_LEFT, AT_THE_LIMIT, None])
def test_a_start_that_has_come_keeps_no_board_while_it_may_not_start(
    known: Knowledge | None,
) -> None:
    """Its user has no credits or too many on boards, or holds it: others waited for a minute."""
    promised = replace(starts(start_s=-1.0), user_id="ann")
    if known is None:
        promised = replace(promised, not_ready=waiting_reasons.held("ann", ""))
    result = cycle(ONE, [JOB, promised], knowledge=known or Knowledge())
    assert places(result) == {"job": A}
    # Until then it is kept one: its user's others may end, and it may be released.
    promised = replace(promised, start_time=NOW + in_s(60.0))
    assert kept(cycle(ONE, [promised], knowledge=known or Knowledge())) == {"promised": A}


def test_the_earlier_claim_keeps_a_board_and_is_moved_where_possible() -> None:
    first = starts("first", submit_time=NOW - in_s(60.0))
    pinned = starts("pinned", target_uid=A)
    assert set(kept(cycle(ONE, [first, pinned]))) == {"first"}
    assert kept(cycle(BOTH, [first, pinned])) == {"first": B, "pinned": A}
    # One after the other on the same board.
    later = starts("later", start_s=400.0)
    assert set(kept(cycle(ONE, [first, later]))) == {"first", "later"}
    assert set(kept(cycle(ONE, [first, later], cool_down_s=1.0))) == {"first"}


def test_a_board_that_is_certainly_free_by_then_can_be_kept() -> None:
    def on(limit_s: float) -> BoardHolder:
        return BoardHolder(
            benchmark_id="on", target_uid=A, priority=50, started_at=NOW, time_limit_s=limit_s
        )

    busy = snapshot_of([board(A, busy=True)])
    assert kept(cycle(busy, [starts()], holders=[on(300.0)])) == {"promised": A}
    assert kept(cycle(busy, [starts()], holders=[on(301.0)])) == {}
    assert kept(cycle(busy, [starts()], holders=[on(300.0)], cool_down_s=1.0)) == {}
    assert kept(cycle(busy, [starts()])) == {}  # by whom, nobody knows


def test_a_reservation_does_not_overlap_a_lease() -> None:
    lease = Lease(
        lease_id="l", target_uid=A, since=NOW + in_s(399.0), until=NOW + in_s(999.0), reason=""
    )
    assert kept(cycle(ONE, [starts()], knowledge=Knowledge(leases=(lease,)))) == {}
    after = replace(lease, since=NOW, until=NOW + in_s(300.0))
    assert kept(cycle(ONE, [starts()], knowledge=Knowledge(leases=(after,)))) == {"promised": A}


def test_a_board_that_shares_cores_with_a_kept_one_is_kept_too() -> None:
    shared = replace(BOTH, conflicts=np.array([[False, True], [False, False]]))
    result = cycle(shared, [pending("long"), starts(target_uid=B)])
    assert not result.placements
    assert len(kept(cycle(shared, [starts("one"), starts("two")]))) == 1


@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED])
def test_a_job_whose_board_the_cluster_chooses_is_kept_off_reserved_boards(
    binding: Binding,
) -> None:
    long = pending("long", binding=binding)
    [placement] = cycle(BOTH, [long, starts(target_uid=B)]).placements
    assert placement.allowed_uids == (A,)
    lease = Lease(
        lease_id="l", target_uid=B, since=NOW + in_s(60.0), until=NOW + in_s(999.0), reason=""
    )
    [placement] = cycle(BOTH, [long], knowledge=Knowledge(leases=(lease,))).placements
    assert placement.allowed_uids == (A,)
    # The one that it is promised to needs no list to get it.
    [placement] = cycle(ONE, [starts(start_s=0.0, binding=binding)]).placements
    assert placement.allowed_uids == ()
    # Also off a board whose own job is on its way there; not off any other.
    strict = pending("strict", target_uid=B, binding=Binding.STRICT)
    by_id = {each.benchmark_id: each for each in cycle(BOTH, [long, strict]).placements}
    assert by_id["long"].allowed_uids == (A,)
    on_its_way = BoardHolder(benchmark_id="on", target_uid=B, priority=50, strict=True)
    half = snapshot_of([board(A), board(B, busy=True)])
    [placement] = cycle(half, [long], holders=[on_its_way]).placements
    assert placement.allowed_uids == (A,)
    [placement] = cycle(half, [long], holders=[replace(on_its_way, started_at=NOW)]).placements
    assert placement.allowed_uids == ()


def test_a_run_that_would_overlap_a_reservation_preempts_nobody() -> None:
    on = BoardHolder(
        benchmark_id="on",
        target_uid=A,
        priority=1,
        progress=1.0,
        preemptible=True,
        started_at=NOW - in_s(60.0),
        time_limit_s=70.0,
    )
    busy = snapshot_of([board(A, busy=True)])
    urgent = pending("urgent", job_completion_threshold=90)
    assert cycle(busy, [urgent], holders=[on]).preemptions
    assert not cycle(busy, [urgent, starts()], holders=[on]).preemptions


def test_predicted_run_times_decide_before_reservations_unless_the_policy_goes_by_bounds() -> None:
    runs = History(
        PastRun(
            benchmark_id=f"b-{number}",
            user_id="user-1",
            target_uid=A,
            family="rpi4b",
            kind=kind_of(JOB),
            run_s=9.0 + 0.1 * number,
            failure=None,
            ended_at=NOW - timedelta(hours=1),
        )
        for number in range(20)
    )
    queue = [JOB, reserved(30.0)]
    known = Knowledge(runs=runs)
    assert "job" in places(cycle(ONE, queue, knowledge=known, booking_grace_s=0.0))
    bound = cycle(ONE, queue, knowledge=known, hold_quantile=1.0, booking_grace_s=0.0)
    assert "job" not in places(bound)
    rests = cycle(ONE, queue, knowledge=known, booking_grace_s=0.0, cool_down_s=25.0)
    assert "job" not in places(rests)


@pytest.mark.parametrize(("start_s", "placed"), [(79.0, False), (80.0, True)])
def test_a_board_s_rest_counts_as_set_up_time_before_a_start_and_before_a_lease(
    start_s: float, placed: bool
) -> None:
    result = cycle(ONE, [JOB, reserved(start_s)], cool_down_s=20.0, booking_grace_s=0.0)
    assert ("job" in places(result)) is placed
    lease = Lease(
        lease_id="l", target_uid=A, since=NOW + in_s(start_s), until=NOW + in_s(999.0), reason=""
    )
    known = Knowledge(leases=(lease,))
    result = cycle(ONE, [JOB], knowledge=known, cool_down_s=20.0, booking_grace_s=0.0)
    assert ("job" in places(result)) is placed


@pytest.mark.parametrize(("ago_s", "placed"), [(29.0, False), (30.0, True)])
def test_a_board_cools_down_as_the_policy_states(ago_s: float, placed: bool) -> None:
    last = PastRun(
        benchmark_id="b-0",
        user_id="user-1",
        target_uid=A,
        family="rpi4b",
        kind=kind_of(JOB),
        run_s=1.0,
        failure="timeout",
        ended_at=NOW - in_s(ago_s),
    )
    known = Knowledge(runs=History([last]))
    result = cycle(ONE, [JOB], knowledge=known, cool_down_s=30.0)
    assert ("job" in places(result)) is placed
    if not placed:
        assert "cools down until" in result.waiting["job"].sentence
    assert "job" in places(cycle(ONE, [JOB], knowledge=known))


def test_jointly_a_board_on_which_it_failed_is_used_only_where_there_is_no_other() -> None:
    tried = pending("tried", tried_uids=frozenset({A}))
    assert places(cycle(BOTH, [tried, JOB], max_joint_jobs=10)) == {"tried": B, "job": A}
    assert places(cycle(ONE, [tried], max_joint_jobs=10)) == {"tried": A}


def test_jointly_a_board_that_rests_for_one_is_given_to_others_alone() -> None:
    """Also where it is the only one, and until its time has come."""
    older = NOW - in_s(100.0)
    resting = pending("resting", submit_time=older, avoid_until=((A, NOW + in_s(10.0)),))
    both = cycle(BOTH, [resting, JOB], max_joint_jobs=10)
    assert places(both) == {"resting": B, "job": A}
    assert places(cycle(ONE, [resting, JOB], max_joint_jobs=10)) == {"job": A}
    pinned = pending("pinned", target_uid=B)
    assert places(cycle(BOTH, [resting, pinned], max_joint_jobs=10)) == {"resting": B}
    rested = pending("rested", submit_time=older, avoid_until=((A, NOW),))
    assert places(cycle(ONE, [rested, JOB], max_joint_jobs=10)) == {"rested": A}


def booked(number: int, start_s: float) -> PendingBenchmark:
    """A short run that is to start then; the guard times of the tests below are over by now."""
    return starts(f"booked-{number}", start_s=start_s, submit_time=NOW)


def test_who_has_waited_for_the_guard_time_gets_a_reservation_of_its_own() -> None:
    """Later starts make room for it, and it learns when its board is its own."""
    waits = pending("waits", submit_time=NOW - in_s(100.0))  # may run for 900 s
    first = starts("first", start_s=300.0, submit_time=NOW - in_s(80.0))
    queue = [waits, first, booked(1, 600.0), booked(2, 1299.0), booked(3, 1300.0)]
    result = cycle(ONE, queue, guard_s=50.0)
    assert not result.placements
    # What was claimed before stays; from its end on, at 400 s, the board is reserved for 900 s.
    assert set(kept(result)) == {"first", "booked-3"}
    waiting = result.waiting["waits"]
    assert waiting.reason is WaitingReason.RESERVED
    assert f"{A} from 2026-11-21 12:07 UTC on at the latest" in waiting.sentence
    younger = cycle(ONE, queue, guard_s=200.0)
    assert set(kept(younger)) == {"first", "booked-1", "booked-2"}
    alone = cycle(ONE, [waits, booked(1, 600.0)], guard_s=50.0)
    assert places(alone) == {"waits": A}


def test_the_time_before_a_reservation_is_used_by_runs_that_end_before_it() -> None:
    waits = pending("waits", submit_time=NOW - in_s(100.0))
    first = starts("first", start_s=300.0, submit_time=NOW - in_s(80.0))
    short = pending("short", user_time_s=290.0)
    assert places(cycle(ONE, [waits, first, short], guard_s=50.0)) == {"short": A}


def test_a_user_at_the_limit_gets_no_reservation() -> None:
    waits = pending("waits", user_id="ann", submit_time=NOW - in_s(100.0))
    known = Knowledge(entitlements={"ann": Entitlement(max_running=1, running=1)})
    result = cycle(ONE, [waits, booked(1, 600.0)], guard_s=50.0, knowledge=known)
    assert set(kept(result)) == {"booked-1"}


def test_a_start_far_ahead_counts_only_when_it_is_near() -> None:
    """Whoever books weeks ahead is promised the board, but keeps nobody waiting for weeks."""
    waits = pending("waits", user_time_s=7200.0, submit_time=NOW - in_s(100.0))
    far = starts("far", start_s=3600.0, submit_time=NOW - in_s(1e6))
    assert set(kept(cycle(ONE, [waits, far], guard_s=50.0))) == {"far"}
    near = cycle(ONE, [waits, far], guard_s=50.0, reservation_lead_s=3600.0)
    assert places(near) == {"waits": A}


def test_more_reservations_than_a_family_gets_keep_later_starts_from_its_boards() -> None:
    boards = snapshot_of([board(A), board(B), board("x86-0001-0001")])
    waits = [
        pending(f"waits-{number:02}", submit_time=NOW - in_s(200.0 - number))
        for number in range(15)
    ]
    first = starts("first", start_s=300.0, target_uid=A, submit_time=NOW - in_s(300.0))
    late = booked(1, 1e6)
    other = starts("other", family="x86", start_s=300.0)
    assert set(kept(cycle(boards, [*waits, first, late, other], guard_s=50.0))) == {
        "first",
        "other",
    }
    few = cycle(boards, [*waits[:9], first, late, other], guard_s=50.0)
    assert set(kept(few)) == {"first", "booked-1", "other"}


def test_a_start_is_reserved_on_a_board_whose_shared_cores_are_in_use_now() -> None:
    shared = np.array([[False, True], [True, False]])
    busy = replace(snapshot_of([board(A, busy=True), board(B, busy=True)]), conflicts=shared)
    on = BoardHolder(
        benchmark_id="on", target_uid=A, priority=50, started_at=NOW, time_limit_s=300.0
    )
    assert kept(cycle(busy, [starts(target_uid=B)], holders=[on])) == {"promised": B}
    assert kept(cycle(busy, [starts(target_uid=B, start_s=299.0)], holders=[on])) == {}


def past_of(job: PendingBenchmark, run_s: float, count: int = 20, uid: str = A) -> History:
    """Runs of the same kind as a benchmark, all of about the same length."""
    return History(
        PastRun(
            benchmark_id=f"b-{number}",
            user_id="user-1",
            target_uid=uid,
            family="rpi4b",
            kind=kind_of(job),
            run_s=run_s * (1.0 + 0.01 * (number % 5)),
            failure=None,
            ended_at=NOW - timedelta(hours=1),
        )
        for number in range(count)
    )


SHORT = pending("short", model_sha256="a" * 64)  # its user states no time: the limit is 900 s


def test_a_short_run_uses_the_board_until_shortly_before_a_booking() -> None:
    """The booking bears the grace time, and no more than that."""
    known = Knowledge(runs=past_of(SHORT, 20.0))
    assert "short" in places(cycle(ONE, [SHORT, reserved(10.0)], knowledge=known))
    late = cycle(ONE, [SHORT, reserved(10.0)], knowledge=known, booking_grace_s=5.0)
    assert late.waiting["short"].reason is WaitingReason.RESERVED
    # When the start has come, the board is the booking's: nothing else begins there.
    held = WaitReason(reason=WaitingReason.FETCHING, sentence="")
    due = replace(reserved(0.0), not_ready=held)
    assert not cycle(ONE, [SHORT, due], knowledge=known).placements


@pytest.mark.parametrize("user_id", ["ann", None])
def test_a_short_run_uses_the_board_until_shortly_before_a_lease_or_maintenance(
    user_id: str | None,
) -> None:
    lease = Lease(
        lease_id="l",
        target_uid=A,
        since=NOW + in_s(10.0),
        until=NOW + in_s(999.0),
        reason="",
        user_id=user_id,
    )
    known = Knowledge(runs=past_of(SHORT, 20.0), leases=(lease,))
    assert "short" in places(cycle(ONE, [SHORT], knowledge=known))
    assert not cycle(ONE, [SHORT], knowledge=known, booking_grace_s=5.0).placements


def test_of_an_unknown_model_the_stated_time_counts_or_what_its_type_usually_takes() -> None:
    known = Knowledge(runs=past_of(SHORT, 3.0))
    other = replace(SHORT, model_sha256="b" * 64)
    booked = reserved(300.0)
    assert "short" in places(cycle(ONE, [other, booked], knowledge=known))
    states = replace(other, user_time_s=400.0)
    assert "short" not in places(cycle(ONE, [states, booked], knowledge=known))
    states = replace(other, user_time_s=320.0)
    assert "short" in places(cycle(ONE, [states, booked], knowledge=known))
    assert "short" not in places(cycle(ONE, [SHORT, booked]))  # nothing is known of any run


def test_a_booking_keeps_its_board_while_a_run_takes_longer_than_predicted() -> None:
    """Others would get the board as soon as it is free, otherwise."""
    known = Knowledge(runs=past_of(SHORT, 20.0))
    holder = BoardHolder(
        benchmark_id="on",
        target_uid=A,
        priority=50,
        kind=kind_of(SHORT),
        started_at=NOW - in_s(60.0),
        time_limit_s=900.0,
    )
    busy = snapshot_of([board(A, busy=True)])
    result = cycle(busy, [SHORT, reserved(5.0)], holders=[holder], knowledge=known)
    assert kept(result) == {"reserved": A}
    # Another board that is free by then is better.
    both = snapshot_of([board(A, busy=True), board(B)])
    any_board = pending("reserved", start_time=NOW + in_s(5.0))
    result = cycle(both, [any_board], holders=[holder], knowledge=known)
    assert kept(result) == {"reserved": B}


def test_bookings_that_count_as_over_in_time_share_a_board() -> None:
    known = Knowledge(runs=past_of(SHORT, 20.0))
    turns = [
        replace(SHORT, benchmark_id=f"turn-{number}", start_time=NOW + in_s(60.0 * number))
        for number in range(1, 4)
    ]
    assert set(kept(cycle(ONE, turns, knowledge=known))) == {"turn-1", "turn-2", "turn-3"}
    assert set(kept(cycle(ONE, turns, knowledge=known, hold_quantile=1.0))) == {"turn-1"}
