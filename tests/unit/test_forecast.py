"""What is foretold of starts and ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.batch import kind_of
from edgeyard.scheduler.decide.forecast import forecasts, roll
from edgeyard.scheduler.model.benchmark import Waiting, WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from tests.builders.decision import cycle

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


def foretold(
    jobs: Sequence[PendingBenchmark],
    *,
    runs: History = STEADY,
    uids: Sequence[str] = (A, B),
    holders: Sequence[BoardHolder] = (),
    last: str | None = None,
    cool_down_s: float = 0.0,
    **known: object,
) -> dict[str, Forecast]:
    held = {each.target_uid for each in holders}
    result = cycle(
        snapshot_of([board(uid, busy=uid in held) for uid in uids]),
        jobs,
        holders=holders,
        knowledge=Knowledge(runs=runs, **known),  # type: ignore[arg-type]  # whatever it takes
        cool_down_s=cool_down_s,
    )
    return forecasts(result.decided, last=last)


def in_s(forecast: Forecast) -> tuple[float, float]:
    """Median start and end, seconds from now."""
    start, finish = ((each - NOW).total_seconds() for each in (forecast.start, forecast.finish))
    return start, finish


def test_boards_are_given_out_in_turn_as_they_come_free() -> None:
    found = foretold(queue(5))
    starts = [in_s(found[f"b{number}"])[0] for number in range(5)]
    assert starts == pytest.approx([0.0, 0.0, 10.0, 10.0, 20.0], abs=0.5)
    assert in_s(found["b4"])[1] == pytest.approx(30.0, abs=0.7)
    assert [found[f"b{number}"].place for number in range(5)] == [1, 2, 3, 4, 5]


def test_an_interval_holds_four_futures_in_five_and_grows_with_the_wait() -> None:
    rng = np.random.default_rng(3)
    runs = past(*(10.0 * np.exp(rng.normal(0.0, 0.3, 60))).tolist(), uids=(A,))
    found = foretold(queue(6), runs=runs, uids=(A,))
    widths = [
        (each.finish_high - each.finish_low).total_seconds() for each in (found["b0"], found["b5"])
    ]
    assert 5.0 < widths[0] < widths[1]
    assert all(each.finish_low < each.finish < each.finish_high for each in found.values())


def test_who_runs_is_told_its_end_given_that_it_has_not_ended() -> None:
    def holder(since_s: float) -> BoardHolder:
        return BoardHolder(
            benchmark_id="runs",
            target_uid=A,
            priority=50,
            started_at=NOW - timedelta(seconds=since_s),
            kind=kind_of(pending()),
        )

    found = foretold(queue(1), uids=(A,), holders=[holder(4.0)])
    assert in_s(found["runs"])[1] == pytest.approx(6.0, abs=0.3)
    assert found["runs"].place is None
    assert in_s(found["b0"])[0] == pytest.approx(6.0, abs=0.3)
    late = foretold([], uids=(A,), holders=[holder(60.0)])["runs"]
    assert NOW <= late.finish_low <= late.finish_high


def test_a_run_is_never_expected_to_pass_its_bound() -> None:
    found = foretold(queue(2), uids=(A,), most_run_s=4.0)
    assert in_s(found["b1"]) == pytest.approx((4.0, 8.0))


def test_where_nothing_is_known_the_bound_speaks_and_it_is_said() -> None:
    found = foretold(queue(1, user_time_s=400.0), runs=History())["b0"]
    assert not found.grounded
    assert (found.finish_high - NOW).total_seconds() <= 400.0
    assert foretold(queue(1))["b0"].grounded


@pytest.mark.parametrize(("due_s", "low", "high"), [(25.0, 0.0, 0.1), (60.0, 0.95, 1.0)])
def test_the_chance_to_meet_a_deadline_is_told(due_s: float, low: float, high: float) -> None:
    jobs = [*queue(2), pending("due", deadline=NOW + timedelta(seconds=due_s), user_priority=1)]
    jobs[0], jobs[1] = (pending(each.benchmark_id, user_priority=10) for each in jobs[:2])
    chance = foretold(jobs, uids=(A,))["due"].deadline_chance
    assert chance is not None
    assert low <= chance <= high
    assert foretold(queue(1))["b0"].deadline_chance is None


def test_who_waits_for_what_has_no_time_is_told_none() -> None:
    held = Waiting(reason=WaitingReason.HELD, sentence="it is held")
    found = foretold([pending("held", not_ready=held), pending("never", family="rpi9")])
    assert found == {}


def test_a_start_time_and_a_rest_of_the_board_count() -> None:
    found = foretold([pending("b", start_time=NOW + timedelta(seconds=40))])
    assert in_s(found["b"])[0] == pytest.approx(40.0)
    rested = foretold(queue(2), uids=(A,), cool_down_s=5.0)
    assert in_s(rested["b1"])[0] == pytest.approx(15.0, abs=0.3)


def test_a_lease_is_waited_for() -> None:
    lease = Lease(
        lease_id="l",
        target_uid=A,
        since=NOW + timedelta(seconds=15),
        until=NOW + timedelta(seconds=100),
        reason="",
    )
    found = foretold(queue(2, user_time_s=12.0), uids=(A,), leases=(lease,))
    assert in_s(found["b0"])[0] == pytest.approx(0.0)
    assert in_s(found["b1"])[0] == pytest.approx(100.0)


def test_a_quota_is_waited_for() -> None:
    found = foretold(queue(2), entitlements={"user-1": Entitlement(most_running=1)})
    assert in_s(found["b1"])[0] == pytest.approx(10.0, abs=0.4)


def test_those_behind_are_left_out_when_only_one_is_asked_for() -> None:
    assert set(foretold(queue(5), last="b2")) == {"b0", "b1", "b2"}


def test_the_same_state_gives_the_same_forecast() -> None:
    assert foretold(queue(5)) == foretold(queue(5))


def test_one_sample_is_the_future_of_medians() -> None:
    result = cycle(snapshot_of([board(A)]), queue(3), knowledge=Knowledge(runs=STEADY))
    rolled = roll(result.decided, samples=1)
    assert rolled.starts[:, 0] == pytest.approx([0.0, 10.0, 20.0], abs=0.05)


def test_while_the_cluster_is_silent_the_last_that_is_known_is_rolled_forward() -> None:
    boards, jobs = [board(A), board(B, busy=True)], [pending("a"), pending("b"), pending("c")]
    runs = [
        BoardHolder(
            benchmark_id="on-b", target_uid=B, priority=50, started_at=NOW, kind=kind_of(jobs[0])
        )
    ]
    knowledge = Knowledge(runs=past(100.0, 110.0, 120.0))

    def told(age_s: float) -> dict[str, Forecast]:
        snapshot = snapshot_of(boards, age_s=age_s)
        return forecasts(cycle(snapshot, jobs, holders=runs, knowledge=knowledge).decided)

    assert told(900.0).keys() == told(0.0).keys() == {"a", "b", "c", "on-b"}
    assert told(900.0)["a"].start == told(0.0)["a"].start == NOW
