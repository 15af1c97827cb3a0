"""Plans by expected cost: who waits for a better board, why, and until when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.errors import ConfigError
from edgeyard.plugins.testing import NOW, past_run, pending
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.framework.policy import Planner, parse_policy, read_policy
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import (
    CycleInput,
    PendingBenchmark,
    PlanReason,
)
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.forecast import forecasts
from tests.builders.decision import cycle, lab, places, plugins, runs_on

FAST, SLOW, OTHER = "rpi4b-0001-0001", "rpi4b-0002-0001", "rpi4b-0003-0001"
JOB = pending("job", model_sha256="m" * 64)
WAITED = replace(JOB, submit_time=NOW - timedelta(seconds=400))
running = partial(runs_on, of=JOB, time_limit_s=3600.0)


def history(runs: int = 40, **run_s: float) -> Knowledge:
    """So many runs of the same model on each board, of so many seconds."""
    uids = {"fast": FAST, "slow": SLOW, "other": OTHER}
    return Knowledge(
        runs=History(
            [
                past_run(uids[name], run_s=seconds * (1.0 + 0.01 * (number % 5)), of=JOB)
                for name, seconds in run_s.items()
                for number in range(runs)
            ]
        )
    )


def one(knowledge: Knowledge, ran_s: float = 90.0, **more: object) -> CycleResult:
    """One benchmark; the slow board is free, the fast one busy since ``ran_s``."""
    job = more.pop("job", JOB)
    assert isinstance(job, PendingBenchmark)
    changes = {"planner": Planner.EXPECTED_COST, "min_hold_gain": 0.05, **more}
    return cycle(
        lab(SLOW, busy=(FAST,)),
        [job],
        holders=[running(FAST, ran_s)],
        knowledge=knowledge,
        **changes,  # type: ignore[arg-type]
    )


def test_a_benchmark_waits_for_a_better_board_that_comes_free_soon() -> None:
    result = one(history(fast=100.0, slow=400.0))
    assert places(result) == {}
    waiting = result.waiting["job"]
    assert waiting.reason is WaitingReason.FASTER_BOARD
    assert waiting.sentence == (
        f"waits for {FAST}, expected free at 2026-11-21 12:00 UTC: "
        f"costs at least 2 min less than on {SLOW}, which is free"
    )
    found = result.explanation("job")
    planned = found.planned
    assert planned is not None
    assert (planned.target_uid, planned.reason) == (FAST, PlanReason.BETTER_BOARD)
    assert NOW < planned.start < NOW + timedelta(seconds=60)
    assert planned.gain_s is not None
    assert planned.error_s is not None
    assert 250.0 < planned.gain_s < 300.0
    assert planned.sentence == waiting.sentence
    verdicts = {each.target_uid: each for each in found.verdicts}
    assert verdicts[SLOW].reason is WaitingReason.FASTER_BOARD


@pytest.mark.parametrize("planner", [Planner.EXPECTED_COST, Planner.MCT])
def test_the_forecast_of_a_benchmark_that_waits_is_its_planned_run(planner: Planner) -> None:
    result = one(history(fast=100.0, slow=400.0), planner=planner)
    planned = result.decided.planned_starts()["job"]
    forecast = forecasts(result.decided.forecast_input)["job"]
    assert abs((forecast.start - planned.start).total_seconds()) < 5.0
    assert 90.0 < (forecast.finish - forecast.start).total_seconds() < 115.0


def test_the_forecast_of_a_benchmark_that_waits_for_a_quiet_host_begins_there() -> None:
    result = cycle(
        lab(SLOW, busy=(FAST,), one_host=True),
        [replace(JOB, target_uid=SLOW)],
        holders=[running(FAST, 60.0)],
        knowledge=history(fast=100.0, slow=100.0),
        planner=Planner.EXPECTED_COST,
        quiet_s=1000.0,
    )
    planned = result.decided.planned_starts()["job"]
    assert planned.reason is PlanReason.QUIET_HOST
    forecast = forecasts(result.decided.forecast_input)["job"]
    assert forecast.start_low >= planned.start - timedelta(seconds=0.1)


def test_who_waits_for_quiet_alone_is_not_reported_to_wait_for_a_faster_board() -> None:
    """Both boards are as fast; the busy one comes free when its host is quiet again."""
    for fast_s, reason in (
        (100.0, WaitingReason.QUIET_HOST),
        (25.0, WaitingReason.FASTER_BOARD),
    ):
        result = cycle(
            lab(SLOW, busy=(FAST,), one_host=True),
            [replace(JOB, target_uid=None)],
            holders=[running(FAST, 0.9 * fast_s)],
            knowledge=history(fast=fast_s, slow=100.0),
            planner=Planner.EXPECTED_COST,
            min_hold_gain=0.05,
            quiet_s=30.0,
        )
        planned = result.decided.planned_starts()["job"]
        assert (planned.target_uid, result.waiting["job"].reason) == (FAST, reason)


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("little is known", {"knowledge": history(1, fast=100.0, slow=130.0), "ran_s": 99.0}),
        ("nothing is known", {"knowledge": Knowledge()}),
        ("the boards are equally fast", {"knowledge": history(fast=400.0, slow=400.0)}),
        ("the policy asks for a larger gain", {"min_hold_gain": 0.8}),
        ("the gain is small", {"knowledge": history(fast=385.0, slow=400.0), "ran_s": 384.0}),
        ("the fast one has just begun", {"knowledge": history(fast=300.0, slow=400.0), "ran_s": 0}),
        ("the policy has no planner", {"planner": None}),
        ("it has waited for the guard time", {"guard_s": 0.0}),
        ("its guard time is over before the fast board is free", {"guard_s": 5.0, "ran_s": 60.0}),
        ("it has waited for as long as it runs there", {"job": WAITED}),
    ],
)  # fmt: skip
def test_it_takes_the_free_board_where(why: str, changes: dict[str, object]) -> None:
    more = {"knowledge": history(fast=100.0, slow=400.0), **changes}
    knowledge = more.pop("knowledge")
    assert isinstance(knowledge, Knowledge)
    assert places(one(knowledge, **more)) == {"job": SLOW}, why  # type: ignore[arg-type]


def test_nobody_waits_who_might_miss_a_deadline() -> None:
    known = history(fast=100.0, slow=130.0)
    free = one(known, ran_s=99.0)
    assert places(free) == {}, "it would wait without a deadline"
    due = replace(JOB, deadline=NOW + timedelta(seconds=100))
    assert not one(known, ran_s=99.0, job=due).decided.assignment.planned


def test_the_next_in_the_queue_sees_the_boards_as_the_first_one_leaves_them() -> None:
    """The first waits for the fast board; for the second one the free board is better."""
    jobs = [pending(f"job-{row}", model_sha256="m" * 64) for row in range(4)]
    result = cycle(
        lab(SLOW, busy=(FAST,)),
        jobs,
        holders=[running(FAST, 90.0)],
        knowledge=history(fast=100.0, slow=250.0),
        planner=Planner.EXPECTED_COST,
    )
    assert len(result.decided.assignment.planned) >= 1
    assert len(places(result)) == 1
    starts = result.decided.planned_starts()
    by_board: dict[str, list[float]] = {}
    for each in starts.values():
        by_board.setdefault(each.target_uid, []).append((each.start - NOW).total_seconds())
    assert len(starts) == 3
    for times in by_board.values():
        ordered = sorted(times)
        assert all(later - sooner > 90.0 for sooner, later in pairwise(ordered))


def test_who_finds_no_free_board_has_a_plan_under_every_policy() -> None:
    result = cycle(
        lab(busy=(FAST, SLOW)),
        [JOB],
        holders=[
            running(FAST, 50.0),
            running(SLOW, 50.0),
        ],
        knowledge=history(fast=100.0, slow=400.0),
    )
    planned = result.explanation("job").planned
    assert planned is not None
    assert (planned.target_uid, planned.reason) == (FAST, PlanReason.NEXT_FREE)
    assert abs((planned.start - NOW).total_seconds() - 51.0) < 5.0
    assert planned.gain_s is None
    assert result.waiting["job"].reason is WaitingReason.BOARD_BUSY


def test_a_stated_start_is_planned_where_it_is_booked() -> None:
    start = NOW + timedelta(hours=1)
    result = cycle(lab(FAST), [replace(JOB, start_time=start)])
    planned = result.explanation("job").planned
    assert planned is not None
    assert (planned.target_uid, planned.start, planned.reason) == (FAST, start, PlanReason.BOOKED)
    assert planned.sentence == f"{FAST} is reserved for it from then on"


@pytest.mark.parametrize("planner", [Planner.EXPECTED_COST, Planner.MCT])
def test_a_recorded_cycle_shows_the_same_plan(planner: Planner) -> None:
    shown = CycleInput(
        snapshot=lab(SLOW, busy=(FAST,)),
        pending=[JOB, pending("next", model_sha256="m" * 64), pending("third")],
        now=NOW,
        holders=[running(FAST, 90.0)],
        knowledge=history(fast=100.0, slow=400.0),
    )
    result = cycle(
        shown.snapshot,
        shown.pending,
        holders=shown.holders,
        knowledge=shown.knowledge,
        planner=planner,
    )
    again = result_of(Recorder().record(shown, result), plugins())
    for each in shown.pending:
        first, second = (found.explanation(each.benchmark_id) for found in (result, again))
        assert first.planned == second.planned
        assert first.waiting == second.waiting


@pytest.mark.slow
@settings(max_examples=60)
@given(
    speeds=st.lists(st.sampled_from([50.0, 100.0, 400.0]), min_size=3, max_size=3),
    busy=st.sets(st.sampled_from([0, 1, 2])),
    ran_s=st.floats(0.0, 500.0),
    jobs=st.integers(1, 6),
    waited_s=st.floats(0.0, 2000.0),
    quiet_s=st.sampled_from([0.0, 300.0]),
    one_host=st.booleans(),
    runs=st.sampled_from([1, 5, 40]),
)
def test_plans_keep_what_they_promise(
    speeds: list[float],
    busy: set[int],
    ran_s: float,
    jobs: int,
    waited_s: float,
    quiet_s: float,
    one_host: bool,
    runs: int,
) -> None:
    """One run a board, holds end by the guard, true reasons, and no effect of the input's order."""
    uids = (FAST, SLOW, OTHER)
    known = history(runs, **dict(zip(("fast", "slow", "other"), speeds, strict=True)))
    free = tuple(uid for row, uid in enumerate(uids) if row not in busy)
    taken = tuple(uid for row, uid in enumerate(uids) if row in busy)
    asking = [
        pending(
            f"job-{row}",
            model_sha256="m" * 64,
            submit_time=NOW - timedelta(seconds=waited_s + row),
        )
        for row in range(jobs)
    ]
    guard_s = 1000.0

    def decided(waiting: list[PendingBenchmark]) -> CycleResult:
        return cycle(
            lab(*free, busy=taken, one_host=one_host),
            waiting,
            holders=[running(uid, ran_s) for uid in taken],
            knowledge=known,
            planner=Planner.EXPECTED_COST,
            quiet_s=quiet_s,
            guard_s=guard_s,
        )

    result = decided(asking)
    got = places(result)
    assert len(set(got.values())) == len(got)
    assert set(got.values()) <= set(free)
    held = {
        asking[job].benchmark_id: each for job, each in result.decided.assignment.planned.items()
    }
    for benchmark_id, each in held.items():
        age_s = next(
            (NOW - job.submit_time).total_seconds()
            for job in asking
            if job.benchmark_id == benchmark_id
        )
        assert age_s + each.start_s < guard_s
        assert each.start_s > 0.0
        assert each.gain_s > 2.0 * each.error_s
        assert result.decided.snapshot.uids[each.free_board] in free
        why = result.waiting[benchmark_id]
        assert why.reason in (WaitingReason.FASTER_BOARD, WaitingReason.QUIET_HOST)
        if why.reason is WaitingReason.QUIET_HOST:
            assert quiet_s
    if waited_s >= guard_s:
        assert not held
        assert len(got) == min(jobs, len(free)), "past the guard no board is left idle"
    again = decided(asking[::-1])
    assert places(again) == got
    assert again.decided.planned_starts() == result.decided.planned_starts()


def test_a_policy_states_the_cost_of_noise_only_with_the_planner_that_knows_it() -> None:
    text = read_policy("default")
    quiet = text.replace("quiet_s = 0.0", "quiet_s = 60.0")
    assert parse_policy(quiet).quiet_s == 60.0
    with pytest.raises(ConfigError, match="quiet_s: must be 0 unless planner = 'expected_cost'"):
        parse_policy(quiet.replace('planner = "expected_cost"', 'planner = "none"'))
