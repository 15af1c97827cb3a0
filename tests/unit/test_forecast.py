"""Predicted starts and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, HostLoad, Knowledge, Lease
from edgeyard.scheduler.prediction.calibration import (
    AS_DRAWN,
    IntervalScale,
    IntervalScales,
    compared_start,
)
from edgeyard.scheduler.prediction.forecast import forecast_of, forecasts, sample_futures
from tests.builders.decision import cycle
from tests.builders.registered import active_run_times

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"


def past(*runs: float, uids: Sequence[str] = (A, B)) -> History:
    """Of the usual benchmark, on each board."""
    return History(
        PastRun(
            benchmark_id=f"b-{number}",
            user_id="user-1",
            target_uid=uid,
            family="rpi4b",
            kind=kind_of(pending()),
            run_s=run_s,
            failure=None,
            ended_at=NOW - timedelta(hours=1),
        )
        for number, run_s in enumerate(runs)
        for uid in uids
    )


STEADY = past(*(10.0 + 0.01 * k for k in range(-20, 21)))
"""Ten seconds, nearly exactly."""


def queue(count: int, **changes: object) -> list[PendingBenchmark]:
    """The first is the oldest."""
    return [
        pending(f"b{number}", submit_time=NOW - timedelta(seconds=100 - number), **changes)
        for number in range(count)
    ]


def predicted(
    jobs: Sequence[PendingBenchmark],
    *,
    runs: History = STEADY,
    uids: Sequence[str] = (A, B),
    holders: Sequence[BoardHolder] = (),
    cool_down_s: float = 0.0,
    hold_quantile: float = 1.0,
    booking_grace_s: float = 0.0,
    interval_scales: IntervalScales = AS_DRAWN,
    **known: object,
) -> dict[str, Forecast]:
    held = {each.target_uid for each in holders}
    result = cycle(
        snapshot_of([board(uid, busy=uid in held) for uid in uids]),
        jobs,
        holders=holders,
        knowledge=Knowledge(runs=runs, **known),  # type: ignore[arg-type]  # whatever it takes
        cool_down_s=cool_down_s,
        hold_quantile=hold_quantile,
        booking_grace_s=booking_grace_s,
    )
    return forecasts(result.decided.forecast_input, interval_scales=interval_scales)


def in_s(forecast: Forecast) -> tuple[float, float]:
    """Median start and end, seconds from now."""
    start, finish = ((each - NOW).total_seconds() for each in (forecast.start, forecast.finish))
    return start, finish


def test_boards_are_given_out_in_turn_as_they_come_free() -> None:
    found = predicted(queue(5))
    starts = [in_s(found[f"b{number}"])[0] for number in range(5)]
    assert starts == pytest.approx([0.0, 0.0, 10.0, 10.0, 20.0], abs=0.5)
    assert in_s(found["b4"])[1] == pytest.approx(30.0, abs=0.7)
    assert [found[f"b{number}"].place for number in range(5)] == [1, 2, 3, 4, 5]


def test_loading_holds_the_board_and_is_part_of_the_end() -> None:
    loaded = History([replace(each, loading_s=4.0 + 0.01 * row) for row, each in enumerate(STEADY)])
    found = predicted(queue(2), runs=loaded, uids=(A,))
    assert in_s(found["b0"]) == pytest.approx((4.4, 14.4), abs=0.5)
    assert in_s(found["b1"]) == pytest.approx((18.8, 28.8), abs=0.7)


def test_a_task_that_starts_a_moment_after_a_free_board_is_found_is_within_its_interval() -> None:
    """Loading takes about 4 s: at once, behind a run that is all but over, after a rest."""
    loaded = History([replace(each, loading_s=4.0 + 0.01 * row) for row, each in enumerate(STEADY)])
    at_once = predicted(queue(1), runs=loaded, uids=(A,))["b0"]
    ending = BoardHolder(benchmark_id="ends", target_uid=A, priority=50, ending=True)
    behind = predicted(queue(1), runs=loaded, uids=(A,), holders=[ending])["b0"]
    rests = predicted(queue(1), runs=loaded, uids=(A,), holders=[ending], cool_down_s=3.0)["b0"]
    for found, sure_s in ((at_once, 4.4), (behind, 4.4), (rests, 7.4)):
        assert found.start_low <= NOW + timedelta(seconds=sure_s)
        assert NOW + timedelta(seconds=sure_s + 0.8) <= found.start_high
    assert compared_start(at_once, NOW + timedelta(seconds=5)) is None
    for found in (behind, rests):
        assert compared_start(found, found.start + timedelta(seconds=0.9)).held  # type: ignore[union-attr]


def test_where_nothing_is_known_of_loading_a_start_is_known_to_a_second() -> None:
    ending = BoardHolder(benchmark_id="ends", target_uid=A, priority=50, ending=True)
    at_once = predicted(queue(1), uids=(A,))["b0"]
    behind = predicted(queue(1), uids=(A,), holders=[ending])["b0"]
    assert at_once.start_high - at_once.start == timedelta(seconds=1)
    assert compared_start(at_once, at_once.start_high) is None
    for seconds in (0.01, 1.0, 1.9):
        came = compared_start(behind, NOW + timedelta(seconds=seconds))
        assert came is not None
        assert came.held
        assert came.score == pytest.approx(0.0, abs=1.1)


def test_forecasts_follow_the_active_models() -> None:
    loads = {f"host-of-{A}": HostLoad(cpu=1.0, memory=0.5)}
    model = active_run_times(by_load=2.0)  # e times as long as at half load
    found = predicted(queue(2), uids=(A,), host_loads=loads, models=(model,))
    assert in_s(found["b1"]) == pytest.approx((27.2, 54.4), rel=0.03)


def test_an_interval_holds_four_futures_in_five_and_grows_with_the_wait() -> None:
    rng = np.random.default_rng(3)
    runs = past(*(10.0 * np.exp(rng.normal(0.0, 0.3, 60))).tolist(), uids=(A,))
    found = predicted(queue(6), runs=runs, uids=(A,))
    widths = [
        (each.finish_high - each.finish_low).total_seconds() for each in (found["b0"], found["b5"])
    ]
    assert 5.0 < widths[0] < widths[1]
    assert all(each.finish_low < each.finish < each.finish_high for each in found.values())


def test_the_end_of_a_run_is_predicted_given_that_it_has_not_ended() -> None:
    def holder(since_s: float) -> BoardHolder:
        return BoardHolder(
            benchmark_id="runs",
            target_uid=A,
            priority=50,
            started_at=NOW - timedelta(seconds=since_s),
            kind=kind_of(pending()),
        )

    found = predicted(queue(1), uids=(A,), holders=[holder(4.0)])
    assert in_s(found["runs"])[1] == pytest.approx(6.0, abs=0.3)
    assert found["runs"].place is None
    assert in_s(found["b0"])[0] == pytest.approx(6.0, abs=0.3)
    late = predicted([], uids=(A,), holders=[holder(60.0)])["runs"]
    assert NOW <= late.finish_low <= late.finish_high


def test_a_run_is_never_expected_to_pass_its_bound() -> None:
    found = predicted(queue(2), uids=(A,), max_run_s=4.0)
    assert in_s(found["b1"]) == pytest.approx((4.0, 8.0))


def test_where_nothing_is_known_the_bound_speaks_and_it_is_said() -> None:
    found = predicted(queue(1, user_time_s=400.0), runs=History())["b0"]
    assert not found.grounded
    assert (found.finish_high - NOW).total_seconds() <= 400.0
    assert predicted(queue(1))["b0"].grounded


@pytest.mark.parametrize(("due_s", "low", "high"), [(25.0, 0.0, 0.1), (60.0, 0.95, 1.0)])
def test_the_chance_to_meet_a_deadline_is_predicted(due_s: float, low: float, high: float) -> None:
    jobs = [*queue(2), pending("due", deadline=NOW + timedelta(seconds=due_s), user_priority=1)]
    jobs[0], jobs[1] = (pending(each.benchmark_id, user_priority=10) for each in jobs[:2])
    chance = predicted(jobs, uids=(A,))["due"].deadline_chance
    assert chance is not None
    assert low <= chance <= high
    assert predicted(queue(1))["b0"].deadline_chance is None


def test_what_waits_for_an_unknown_time_has_no_forecast() -> None:
    held = WaitReason(reason=WaitingReason.HELD, sentence="it is held")
    comes = WaitReason(reason=WaitingReason.FETCHING, sentence="net.onnx is being downloaded")
    jobs = [pending("held", not_ready=held), pending("never", family="rpi9")]
    assert predicted([*jobs, pending("comes", not_ready=comes)]) == {}


def test_a_start_time_and_a_rest_of_the_board_count() -> None:
    found = predicted([pending("b", start_time=NOW + timedelta(seconds=40))])
    assert in_s(found["b"])[0] == pytest.approx(40.0)
    rested = predicted(queue(2), uids=(A,), cool_down_s=5.0)
    assert in_s(rested["b1"])[0] == pytest.approx(15.0, abs=0.3)


def lease(since_s: float, until_s: float, user: str | None = None, uid: str = A) -> Lease:
    return Lease(
        lease_id=f"{uid}-{since_s}",
        target_uid=uid,
        since=NOW + timedelta(seconds=since_s),
        until=NOW + timedelta(seconds=until_s),
        reason="",
        user_id=user,
    )


def starts_s(found: dict[str, Forecast], *ids: str) -> list[float]:
    return [in_s(found[each])[0] for each in ids]


def test_starts_and_ends_are_stretched_by_what_each_missed() -> None:
    rng = np.random.default_rng(3)
    runs = past(*(10.0 * np.exp(rng.normal(0.0, 0.3, 60))).tolist(), uids=(A,))
    plain = predicted(queue(6), runs=runs, uids=(A,))
    scales = IntervalScales(start=IntervalScale(late=4.0, early=2.0))
    wide = predicted(queue(6), runs=runs, uids=(A,), interval_scales=scales)
    assert wide["b0"] == plain["b0"]  # begins at once
    last, stretched = plain["b5"], wide["b5"]
    assert in_s(stretched) == pytest.approx(in_s(last), rel=0.05)
    assert stretched.start_low < last.start_low
    assert stretched.start_high > last.start_high
    late_s = (stretched.start_high - NOW).total_seconds() / in_s(last)[0]
    drawn_s = (last.start_high - NOW).total_seconds() / in_s(last)[0]
    assert late_s == pytest.approx(drawn_s**4.0, rel=0.1)
    for each in wide.values():
        assert each.start_low < each.finish_low
        assert each.start_high < each.finish_high
    ends = IntervalScales(end=IntervalScale(3.0, 3.0), run=IntervalScale(2.0, 2.0))
    found = predicted(queue(6), runs=runs, uids=(A,), interval_scales=ends)
    for name, factor in (("b0", 2.0), ("b5", 3.0)):
        middle_s = in_s(plain[name])[1]
        drawn_s, wide_s = (
            (each[name].finish_high - NOW).total_seconds() / middle_s for each in (plain, found)
        )
        assert wide_s == pytest.approx(drawn_s**factor, rel=0.1)
        assert found[name].start_high == plain[name].start_high


def test_a_stretched_end_passes_no_bound_and_no_run_lasts_for_no_time() -> None:
    rng = np.random.default_rng(3)
    runs = past(*(10.0 * np.exp(rng.normal(0.0, 0.3, 60))).tolist(), uids=(A,))
    wide = IntervalScale(16.0, 16.0)
    scales = IntervalScales(start=wide, end=wide, run=wide)
    holder = BoardHolder(
        benchmark_id="runs",
        target_uid=A,
        priority=50,
        started_at=NOW - timedelta(seconds=4),
        kind=kind_of(pending()),
        time_limit_s=30.0,
    )
    jobs = queue(3, user_time_s=30.0)
    found = predicted(jobs, runs=runs, uids=(A,), holders=[holder], interval_scales=scales)
    assert found["runs"].finish_high <= NOW + timedelta(seconds=26)
    for name in ("b0", "b1", "b2"):
        each = found[name]
        assert each.start_low < each.finish_low
        assert each.start_high < each.finish_high <= each.start_high + timedelta(seconds=30.1)


def test_what_a_user_submits_is_predicted_by_what_it_submitted_before() -> None:
    """Each with a model of its own that never ran before."""
    rng = np.random.default_rng(1)
    seen = {
        "quick": 10.0 * np.exp(0.1 * rng.standard_normal(40)),
        "slow": rng.choice([5.0, 300.0], 40),
    }
    runs = History(
        PastRun(
            benchmark_id=f"{user}-{number}",
            user_id=user,
            target_uid=A,
            family="rpi4b",
            kind=kind_of(pending(model_sha256=f"{user}-{number}")),
            run_s=float(run_s),
            failure=None,
            ended_at=NOW - timedelta(hours=1),
        )
        for user, all_s in seen.items()
        for number, run_s in enumerate(all_s)
    )
    for user, low_s, high_s in (("quick", 7.0, 14.0), ("slow", 4.0, 310.0)):
        job = pending("b", user_id=user, model_sha256="new")
        found = predicted([job], runs=runs, uids=(A,))["b"]
        ends_s = [(each - NOW).total_seconds() for each in (found.finish_low, found.finish_high)]
        assert ends_s == pytest.approx([low_s, high_s], rel=0.3)
    other = predicted([pending("b", user_id="other", model_sha256="new")], runs=runs, uids=(A,))[
        "b"
    ]
    assert other.finish_high > NOW + timedelta(seconds=100)


def test_runs_that_resemble_those_before_them_add_up_in_a_queue() -> None:
    """A few hours of long runs, a few of short ones, or the same runs in any order."""
    rng = np.random.default_rng(1)
    in_turn = np.repeat(np.exp(rng.normal(np.log(10.0), 1.0, 12)), 5).tolist()
    shuffled = rng.permutation(in_turn).tolist()
    widths = []
    for run_s in (in_turn, shuffled):
        found = predicted(queue(8), runs=past(*run_s, uids=(A,)), uids=(A,))["b7"]
        widths.append(np.log((found.finish_high - NOW) / (found.finish_low - NOW)))
    assert widths[0] > 1.4 * widths[1]


def test_a_stretched_wait_begins_no_sooner_than_a_lease_ends_or_a_start_is_due() -> None:
    rng = np.random.default_rng(3)
    runs = past(*(10.0 * np.exp(rng.normal(0.0, 0.3, 60))).tolist(), uids=(A,))
    wide = IntervalScales(start=IntervalScale(late=8.0, early=8.0))
    leased = predicted(queue(3), runs=runs, uids=(A,), interval_scales=wide, leases=(lease(0, 50),))
    assert min(each.start_low for each in leased.values()) == NOW + timedelta(seconds=50)
    due = NOW + timedelta(seconds=30)
    later = queue(4)[:3] + queue(4, start_time=due)[3:]
    found = predicted(later, runs=runs, uids=(A,), interval_scales=wide)
    assert due <= found["b3"].start_low


def test_a_lease_is_waited_for() -> None:
    found = predicted(queue(2, user_time_s=12.0), uids=(A,), leases=(lease(15, 100),))
    assert starts_s(found, "b0", "b1") == pytest.approx([0.0, 100.0])


def test_a_leased_board_is_open_to_its_lessee_and_to_others_afterwards() -> None:
    jobs = [*queue(1), *(pending(name, user_id="lena") for name in ("own0", "own1"))]
    known = lease(-10, 100, "lena")
    found = predicted(jobs, uids=(A,), leases=(known,))
    assert starts_s(found, "own0", "own1", "b0") == pytest.approx([0.0, 10.0, 100.0], abs=0.5)
    held = BoardHolder(
        benchmark_id="runs",
        target_uid=A,
        priority=50,
        started_at=NOW - timedelta(seconds=4.0),
        kind=kind_of(pending()),
        user_id="lena",
    )
    found = predicted(jobs, uids=(A,), leases=(known,), holders=[held])
    assert starts_s(found, "own0", "b0") == pytest.approx([6.0, 100.0], abs=0.5)


def test_every_lease_of_a_board_is_kept_to_not_the_next_alone() -> None:
    leases = (lease(15, 100), lease(110, 200), lease(300, 400, "user-1"))
    found = predicted(queue(5, user_time_s=12.0), uids=(A,), leases=leases)
    # between the two there is no room for 12 s; the third is the user's own
    expected = [0.0, 200.0, 210.0, 220.0, 230.0]
    assert starts_s(found, *(f"b{n}" for n in range(5))) == pytest.approx(expected, abs=0.5)
    others = predicted(queue(12, user_id="bob", user_time_s=12.0), uids=(A,), leases=leases)
    assert starts_s(others, "b10", "b11") == pytest.approx([400.0, 410.0], abs=0.5)


def test_before_a_pinned_start_only_those_run_who_are_certainly_through() -> None:
    pinned = pending("pinned", target_uid=A, start_time=NOW + timedelta(seconds=60))
    short = queue(3, user_time_s=25.0, user_priority=1)
    found = predicted([pinned, *short], uids=(A,))
    assert starts_s(found, "b0", "b1", "b2", "pinned") == pytest.approx(
        [0.0, 10.0, 20.0, 60.0], abs=0.5
    )
    long = predicted([pinned, *queue(2, user_time_s=70.0, user_priority=1)], uids=(A,))
    assert starts_s(long, "pinned", "b0", "b1") == pytest.approx([60.0, 70.0, 80.0], abs=0.5)


def test_a_policy_that_goes_by_predictions_starts_more_before_a_pinned_start() -> None:
    pinned = pending("pinned", target_uid=A, start_time=NOW + timedelta(seconds=60))
    long = queue(2, user_time_s=70.0, user_priority=1)
    found = predicted([pinned, *long], uids=(A,), hold_quantile=0.9, cool_down_s=30.0)
    assert starts_s(found, "b0", "pinned", "b1") == pytest.approx([0.0, 60.0, 100.0], abs=0.5)


def test_a_lease_may_be_late_by_the_grace_time() -> None:
    jobs = queue(3, user_time_s=12.0, user_priority=1)
    leased = predicted(jobs, uids=(A,), leases=(lease(15, 100),), booking_grace_s=10.0)
    assert starts_s(leased, "b0", "b1", "b2") == pytest.approx([0.0, 10.0, 100.0], abs=0.5)


def test_a_start_time_is_predicted_and_its_board_reserved() -> None:
    held = BoardHolder(
        benchmark_id="runs",
        target_uid=A,
        priority=50,
        started_at=NOW - timedelta(seconds=4.0),
        kind=kind_of(pending()),
        time_limit_s=20.0,
    )
    promised = pending("promised", user_priority=1, start_time=NOW + timedelta(seconds=30))
    jobs = [*queue(1, user_time_s=50.0), promised]
    found = predicted(jobs, uids=(A,), holders=[held])
    assert starts_s(found, "promised", "b0") == pytest.approx([30.0, 40.0], abs=0.5)
    why = WaitReason(reason=WaitingReason.HELD, sentence="it is held")
    assert predicted([jobs[0], replace(promised, not_ready=why)], uids=(A,)) == {}


def test_a_quota_is_waited_for() -> None:
    found = predicted(queue(2), entitlements={"user-1": Entitlement(max_running=1)})
    assert in_s(found["b1"])[0] == pytest.approx(10.0, abs=0.4)


def test_a_limit_of_a_group_is_waited_for_by_all_its_members() -> None:
    jobs = [replace(each, user_id=f"user-{number}") for number, each in enumerate(queue(3))]
    members = {f"user-{number}": Entitlement(group_id="vision") for number in range(2)}
    known = {**members, "user-2": Entitlement()}
    found = predicted(
        jobs,
        uids=(A, B, "rpi4b-0001-0003"),
        entitlements=known,
        groups={"vision": Entitlement(max_running=1)},
    )
    assert in_s(found["b1"])[0] == pytest.approx(10.0, abs=0.4)
    assert in_s(found["b2"])[0] == pytest.approx(0.0, abs=0.4)  # of no group


def test_of_one_alone_those_behind_are_left_out() -> None:
    result = cycle(snapshot_of([board(A)]), queue(5), knowledge=Knowledge())
    found = forecast_of(result.decided.forecast_input, "b2")
    assert found is not None
    assert found.place == 3
    held = WaitReason(reason=WaitingReason.HELD, sentence="")
    result = cycle(snapshot_of([board(A)]), [*queue(2), pending("held", not_ready=held)])
    assert forecast_of(result.decided.forecast_input, "held") is None


def test_the_same_state_gives_the_same_forecast() -> None:
    assert predicted(queue(5)) == predicted(queue(5))


def test_one_sample_is_the_future_of_medians() -> None:
    result = cycle(snapshot_of([board(A)]), queue(3), knowledge=Knowledge(runs=STEADY))
    futures = sample_futures(result.decided.forecast_input, samples=1)
    assert futures.starts[:, 0] == pytest.approx([0.0, 10.0, 20.0], abs=0.05)


def test_while_the_cluster_is_silent_the_last_that_is_known_is_rolled_forward() -> None:
    boards, jobs = [board(A), board(B, busy=True)], [pending("a"), pending("b"), pending("c")]
    runs = [
        BoardHolder(
            benchmark_id="on-b", target_uid=B, priority=50, started_at=NOW, kind=kind_of(jobs[0])
        )
    ]
    knowledge = Knowledge(runs=past(100.0, 110.0, 120.0))

    def reported(age_s: float) -> dict[str, Forecast]:
        snapshot = snapshot_of(boards, age_s=age_s)
        return forecasts(
            cycle(snapshot, jobs, holders=runs, knowledge=knowledge).decided.forecast_input
        )

    assert reported(900.0).keys() == reported(0.0).keys() == {"a", "b", "c", "on-b"}
    assert reported(0.0)["a"].start == NOW
    assert reported(900.0)["a"].start == NOW + timedelta(seconds=1)  # in the next cycle


class TestSharedCores:
    """Boards that share cores never run side by side, in no future either."""

    BOARDS = (board(A, busy=True, shares_with=frozenset({B})), board(B, shares_with=frozenset({A})))

    def test_a_start_waits_for_the_board_that_uses_the_cores(self) -> None:
        runs = past(*(float(seconds) for seconds in range(20, 60)))
        held = BoardHolder(
            benchmark_id="r",
            target_uid=A,
            priority=50,
            progress=0.0,
            preemptible=False,
            started_at=NOW,
            kind=kind_of(pending()),
        )
        blocked = replace(self.BOARDS[1], busy=True)
        result = cycle(
            snapshot_of([self.BOARDS[0], blocked]),
            [pending("b", target_uid=B)],
            holders=[held],
            knowledge=Knowledge(runs=runs),
        )
        found = forecasts(result.decided.forecast_input)["b"]
        assert found.start_low > NOW + timedelta(seconds=10)
        assert found.start_high > found.start_low + timedelta(seconds=5)

    def test_benchmarks_on_boards_that_share_cores_follow_each_other(self) -> None:
        free = [replace(each, busy=False) for each in self.BOARDS]
        jobs = [pending("a", target_uid=A), pending("b", target_uid=B)]
        result = cycle(snapshot_of(free), jobs, knowledge=Knowledge(runs=STEADY))
        futures = sample_futures(result.decided.forecast_input)
        first, second = sorted(range(2), key=lambda number: futures.starts[number].max())
        assert (futures.starts[second] >= futures.finishes[first]).all()


def test_a_place_leaves_out_benchmarks_that_no_board_can_run_in_every_forecast() -> None:
    jobs = [
        pending("infeasible", family="unknown", submit_time=NOW - timedelta(hours=1)),
        pending("waits", submit_time=NOW),
    ]
    given = cycle(snapshot_of([board(A)]), jobs).decided.forecast_input
    alone = forecast_of(given, "waits")
    assert alone is not None
    assert alone.place == forecasts(given)["waits"].place == 1
