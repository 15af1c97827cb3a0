"""What must hold in every simulated lab, whatever arrives and whatever fails."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator import runs
from edgeyard.simulator.scenario import JobRow, Scenario
from tests.builders.labs import lab_scenario, simulate

MAX_RUN_S = 400.0


@st.composite
def labs(draw: st.DrawFn) -> Scenario:
    """A small lab with faults, leases, pins, deadlines, starts and preemption."""
    sharing = draw(st.sampled_from((1, 1, 2)))
    boards: list[dict[str, Any]] = [
        {"family": "rpi5", "count": draw(st.integers(1, 4)), "sharing": sharing},
        {"family": "rpi4b", "count": draw(st.integers(1, 2)), "speed": 0.5, "per_host": 1},
    ]
    job = st.fixed_dictionaries(
        {
            "submit_s": st.integers(0, 900).map(float),
            "run_s": st.integers(1, 300).map(float),
            "family": st.sampled_from(("rpi5", "rpi4b")),
            "user": st.sampled_from(("ada", "grace")),
            "benchmark_type": st.sampled_from(("TYPE1", "TYPE2")),
            "user_priority": st.integers(1, 10),
            "max_retries": st.integers(0, 2),
            "preemptible_measuring": st.booleans(),
        },
        optional={
            "target_uid": st.just(""),
            "deadline_s": st.integers(0, 3000).map(float),
            "start_s": st.integers(0, 1200).map(float),
            "cancel_s": st.integers(0, 1200).map(float),
            "queue_timeout_s": st.integers(1, 1000).map(float),
            "user_time_s": st.integers(1, 400).map(float),
            "job_completion_threshold": st.integers(1, 100),
        },
    )
    jobs = draw(st.lists(job, min_size=1, max_size=14))
    for each in jobs:
        if each.get("target_uid") == "":
            each["target_uid"] = f"{each['family']}-0001-0001"
    rare = st.sampled_from((0.0, 0.0, 300.0, 1500.0))
    rate = st.sampled_from((0.0, 0.0, 0.3))
    faults = {
        "task_rate": draw(rate),
        "board_mean_between_s": draw(rare),
        "board_mean_repair_s": 60.0,
        "host_mean_between_s": draw(rare),
        "host_mean_repair_s": 60.0,
        "network_mean_between_s": draw(rare),
        "network_mean_repair_s": 30.0,
        "lost_event_rate": draw(rate),
        "late_event_mean_s": draw(st.sampled_from((0.0, 2.0))),
        "stale_twin_s": draw(st.sampled_from((0.0, 5.0))),
    }
    leases = [
        {"target_uid": "rpi5-0001-0001", "from_s": 500.0, "to_s": 800.0, "user": user}
        for user in draw(st.sampled_from(((), ("ada",), ("",))))
    ]
    return lab_scenario(
        boards=boards,
        jobs=jobs,
        faults=faults,
        leases=leases,
        users=[{"name": "grace", "max_running": draw(st.integers(1, 3))}],
        max_run_s=MAX_RUN_S,
        duration_s=1000.0,
    )


class _Reasons:
    """Checks in each cycle that everybody who waits has a reason."""

    def __init__(self) -> None:
        self.cycles = 0

    def __call__(self, at_s: float, given: CycleInput, result: CycleResult) -> None:
        self.cycles += 1
        placed = {each.benchmark_id for each in result.placements}
        assert len({each.target_uid for each in result.placements}) == len(placed)
        for each in given.pending:
            if each.benchmark_id not in placed:
                assert result.waiting[each.benchmark_id].sentence


@settings(max_examples=30, deadline=None)
@given(scenario=labs(), seed=st.integers(0, 1000))
def test_what_must_hold_in_every_lab(scenario: Scenario, seed: int) -> None:
    reasons = _Reasons()
    run = simulate(scenario, seed=seed, watch=reasons)
    assert reasons.cycles == run.meta.cycles
    assert scenario.lab is not None
    asked: dict[str, JobRow] = {each.job_id: each for each in scenario.lab.jobs}
    rows = [asked[job] for job in run.jobs.job.tolist()]
    jobs, held = run.jobs, run.occupancy

    # One terminal status each, with an end that is not before the submission.
    assert np.isin(jobs.status, (runs.COMPLETED, runs.FAILED, runs.CANCELLED, runs.EXPIRED)).all()
    assert (jobs.end_s >= jobs.submit_s).all()
    done = [held.job[held.how == runs.ENDED].tolist().count(row) for row in range(len(rows))]
    assert [count <= 1 for count in done] == [True] * len(rows)
    assert all(
        count == 1
        for count, status in zip(done, jobs.status, strict=True)
        if status == runs.COMPLETED
    )

    # Never two on a board, nor on boards that share cores, nor two runs of one benchmark.
    for column in (held.board, held.job):
        for value in set(column.tolist()):
            its = np.flatnonzero(column == value)
            order = its[np.argsort(held.from_s[its], kind="stable")]
            assert (held.to_s[order][:-1] <= held.from_s[order][1:]).all()
    if scenario.lab.boards[0].sharing == 2:
        for first in range(0, scenario.lab.boards[0].count - 1, 2):
            both = np.flatnonzero((held.board == first) | (held.board == first + 1))
            order = both[np.argsort(held.from_s[both], kind="stable")]
            assert (held.to_s[order][:-1] <= held.from_s[order][1:]).all()

    # No start before submission or the stated start; retries within bounds.
    for at_s, job in zip(held.from_s.tolist(), held.job.tolist(), strict=True):
        assert at_s >= max(rows[job].submit_s, rows[job].start_s or 0.0)
    for row, each in enumerate(rows):
        assert (held.how[held.job == row] == runs.FAULTED).sum() <= each.max_retries + 1
        assert jobs.preemptions[row] <= 3

    # Leases are kept: nobody else's run is there while it lasts.
    for lease in scenario.lab.leases:
        board = run.boards.index(lease.target_uid)
        for job, from_s, to_s in zip(
            held.job[held.board == board].tolist(),
            held.from_s[held.board == board].tolist(),
            held.to_s[held.board == board].tolist(),
            strict=True,
        ):
            if rows[job].user != lease.user:
                assert to_s <= lease.from_s or from_s >= lease.to_s
    # Nobody holds more boards than the account allows.
    limit = scenario.lab.users[0].max_running or 99
    its = np.flatnonzero(np.array([rows[job].user == "grace" for job in held.job.tolist()], bool))
    for at_s in held.from_s[its].tolist():
        assert ((held.from_s[its] <= at_s) & (held.to_s[its] > at_s)).sum() <= limit
