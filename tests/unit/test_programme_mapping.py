"""Plans of a solver that decide who starts, where and when."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide import programme
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.mapping import PROGRAMMES
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge
from edgeyard.scheduler.prediction.simulated_lab import expected_run_times
from edgeyard.scheduler.solvers.run import Limits
from tests.builders.decision import cycle, places

A, B, C = "rpi4b-0001-0001", "rpi4b-0002-0001", "rpi4b-0003-0001"
BOARDS = (A, B, C)


def model(number: int, **more: Any) -> PendingBenchmark:
    return pending(f"job-{number}", model_sha256=f"{number:064x}", **more)


def known(runs: dict[tuple[int, str], float], **more: Any) -> Knowledge:
    """Many runs of models on boards, of so many seconds each."""
    return Knowledge(
        runs=History(
            [
                past_run(uid, run_s=seconds * (1.0 + 0.001 * turn), of=model(number))
                for (number, uid), seconds in runs.items()
                for turn in range(40)
            ]
        ),
        **more,
    )


def lab(*free: str, busy: tuple[str, ...] = ()) -> Snapshot:
    boards = [board(uid) for uid in free] + [board(uid, busy=True) for uid in busy]
    return snapshot_of(boards, hosts={uid: f"host-{uid}" for uid in (*free, *busy)})


def planned(
    jobs: list[PendingBenchmark], knowledge: Knowledge, planner: Planner | None, *free: str
) -> CycleResult:
    return cycle(lab(*(free or BOARDS)), jobs, knowledge=knowledge, planner=planner)


def test_the_only_board_goes_to_the_user_who_used_less_although_the_other_is_first() -> None:
    jobs = [
        model(1, user_id="greedy", submit_time=NOW - timedelta(hours=2)),
        model(2, user_id="modest", submit_time=NOW - timedelta(hours=1)),
    ]
    owed = {
        "greedy": Entitlement(usage_board_s=5000.0),
        "modest": Entitlement(usage_board_s=10.0),
    }
    knowledge = known({(1, A): 30.0, (2, A): 30.0}, entitlements=owed)
    assert places(planned(jobs, knowledge, None, A)) == {"job-1": A}
    assert places(planned(jobs, knowledge, Planner.ILP_FAIRNESS, A)) == {"job-2": A}


def test_a_deadline_is_met_that_the_queue_would_miss() -> None:
    jobs = [
        model(1, user_priority=10, submit_time=NOW - timedelta(hours=2)),
        model(2, user_priority=1, deadline=NOW + timedelta(seconds=60), user_time_s=40.0),
    ]
    knowledge = known({(1, A): 300.0, (2, A): 30.0})
    assert places(planned(jobs, knowledge, None, A)) == {"job-1": A}
    assert places(planned(jobs, knowledge, Planner.ILP_DEADLINES, A)) == {"job-2": A}


def test_of_two_deadlines_the_weightier_is_met() -> None:
    soon = NOW + timedelta(seconds=50)
    jobs = [
        model(1, deadline=soon, user_time_s=45.0, user_priority=2),
        model(2, deadline=soon, user_time_s=45.0, user_priority=9),
    ]
    knowledge = known({(1, A): 30.0, (2, A): 35.0})
    assert places(planned(jobs, knowledge, Planner.ILP_DEADLINES, A)) == {"job-2": A}


def test_a_plan_with_all_on_the_fast_board_in_turn_is_kept() -> None:
    jobs = [model(number) for number in (1, 2, 3)]
    knowledge = known(
        {(number, uid): 1.0 if uid == A else 100.0 for number in (1, 2, 3) for uid in BOARDS}
    )
    assert len(places(planned(jobs, knowledge, None))) == 3  # the plan would be cut up
    result = planned(jobs, knowledge, Planner.ILP_COMPLETION)
    assert list(places(result).values()) == [A]
    waiting = [each for each in result.waiting.values()]
    assert {each.reason for each in waiting} == {WaitingReason.FASTER_BOARD}
    assert all(each.sentence.startswith(f"waits for {A}, expected free at") for each in waiting)


def test_a_busy_board_is_planned_from_when_it_is_expected_to_be_free() -> None:
    knowledge = known({(1, A): 60.0, (1, B): 300.0})
    holder = BoardHolder(
        benchmark_id="other",
        target_uid=A,
        priority=50,
        user_id="user-2",
        started_at=NOW - timedelta(seconds=50),
        kind=kind_of(model(1)),
    )
    for cool_down_s, placed in ((0.0, {}), (290.0, {"job-1": B})):
        result = cycle(
            lab(B, busy=(A,)),
            [model(1)],
            holders=[holder],
            knowledge=knowledge,
            planner=Planner.ILP_COMPLETION,
            cool_down_s=cool_down_s,
        )
        assert places(result) == placed


def test_a_benchmark_that_a_greedy_plan_holds_back_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programme, "LIMITS", Limits(time_s=0.0))
    jobs = [model(number, deadline=NOW + timedelta(hours=1)) for number in (1, 2)]
    knowledge = known({(n, uid): 1.0 if uid == A else 100.0 for n in (1, 2) for uid in (A, B)})
    result = planned(jobs, knowledge, Planner.ILP_DEADLINES, A, B)
    (waiting,) = result.waiting.values()
    assert waiting.sentence.startswith(f"waits for {A}")
    assert (
        "by a greedy plan: a time limit of 0 s is too short to start the solver" in waiting.sentence
    )


@pytest.mark.parametrize("planner", PROGRAMMES)
def test_a_solver_without_time_leaves_a_greedy_plan(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programme, "LIMITS", Limits(time_s=0.0))
    jobs = [model(1, deadline=NOW + timedelta(hours=1)), model(2)]
    knowledge = known({(1, A): 30.0, (2, A): 20.0, (1, B): 30.0, (2, B): 20.0})
    assert len(places(planned(jobs, knowledge, planner, A, B))) == 2


@st.composite
def labs(draw: st.DrawFn) -> tuple[list[PendingBenchmark], Knowledge, tuple[str, ...]]:
    free = tuple(draw(st.lists(st.sampled_from(BOARDS), min_size=1, max_size=3, unique=True)))
    jobs = [
        model(
            number,
            user_id=draw(st.sampled_from(["u", "v"])),
            submit_time=NOW - timedelta(seconds=60 + number),
            user_priority=draw(st.integers(1, 10)),
            deadline=draw(st.sampled_from([None, NOW + timedelta(seconds=90)])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    runs = {
        (number, uid): float(draw(st.integers(2, 60)))
        for number in range(len(jobs))
        for uid in BOARDS
    }
    return jobs, known(runs), free


@pytest.mark.slow
@given(drawn=labs(), planner=st.sampled_from(sorted(PROGRAMMES)), seed=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_no_board_is_given_twice_and_holds_end_with_the_guard(
    drawn: tuple[list[PendingBenchmark], Knowledge, tuple[str, ...]], planner: Planner, seed: int
) -> None:
    jobs, knowledge, free = drawn
    result = planned(jobs, knowledge, planner, *free)
    placed = places(result)
    assert len(set(placed.values())) == len(placed) >= 1
    shuffled = np.random.default_rng(seed).permutation(len(jobs)).tolist()
    again = planned([jobs[each] for each in shuffled], knowledge, planner, *reversed(free))
    assert places(again) == placed
    forced = cycle(lab(*free), jobs, knowledge=knowledge, planner=planner, guard_s=0.0)
    assert len(places(forced)) == min(len(jobs), len(free))


@given(drawn=labs())
@settings(max_examples=15, deadline=None)
def test_the_starts_are_those_of_the_best_order(
    drawn: tuple[list[PendingBenchmark], Knowledge, tuple[str, ...]],
) -> None:
    """By brute force: some best plan starts these benchmarks on these boards first."""
    jobs, knowledge, free = drawn
    jobs = [replace(each, deadline=None) for each in jobs]
    result = planned(jobs, knowledge, Planner.ILP_COMPLETION, *free)
    batch = result.decided.batch
    rows, boards = np.indices(batch.shape).reshape(2, -1)
    table = expected_run_times(batch, rows, boards).reshape(batch.shape)
    table = table[batch.class_of_job]

    def total(assigned: tuple[int, ...]) -> float:
        return sum(
            float(np.cumsum(np.sort([table[job, at] for job in its])).sum())
            for at in range(len(free))
            for its in [[job for job, where in enumerate(assigned) if where == at]]
        )

    every = list(itertools.product(range(len(free)), repeat=len(jobs)))
    best = min(map(total, every))
    starts = {
        result.decided.row_of_id[name]: batch.row_of_uid[uid]
        for name, uid in places(result).items()
    }
    assert any(
        total(each) <= best * (1 + 1e-9)
        and all(
            each[job] == at
            and table[job, at] <= min(table[o, at] for o, w in enumerate(each) if w == at) + 1e-9
            for job, at in starts.items()
        )
        for each in every
    )
