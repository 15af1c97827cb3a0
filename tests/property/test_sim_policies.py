"""Every shipped policy in every small lab: no crash, no board with two, nothing unended."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import Policy, built_in_policies
from edgeyard.scheduler.framework.registry import Kind, Plugins
from edgeyard.simulator import runs
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import Scenario
from tests.builders.labs import lab_scenario

KNOWN = registry(entry_points=False)
POLICIES = tuple(dict.fromkeys((*built_in_policies(), *BASELINES, *KNOWN.names(Kind.QUEUE_POLICY))))
BACKFILLING = ("easy", "conservative")
"""Refused in labs, where they make no difference."""

FAMILIES = ("rpi5", "rpi4b", "nano")


@cache
def _resolved(name: str) -> tuple[Policy, Plugins]:
    policy = policy_named(name, KNOWN)
    return policy, KNOWN.resolve(policy)


@st.composite
def labs(draw: st.DrawFn) -> Scenario:
    """A small lab of families of several speeds, with pins, gangs, drains and failures.

    Every board that is drained or fails comes back, so each benchmark can end.
    """
    sharing = draw(st.sampled_from((1, 1, 2)))
    counts = [draw(st.integers(1, 4)) for _ in FAMILIES]
    boards: list[dict[str, Any]] = [
        {
            "family": family,
            "count": count,
            "per_host": draw(st.sampled_from((1, 4))) if family != "rpi5" else 4,
            "speed": draw(st.sampled_from((0.3, 1.0, 3.4))),
            "speed_spread": draw(st.sampled_from((0.0, 0.3))),
            "host_memory_mb": draw(st.sampled_from((8192.0, 650.0))),
            "sharing": sharing if family == "rpi5" else 1,
        }
        for family, count in zip(FAMILIES, counts, strict=True)
    ]
    uids = {
        each["family"]: [
            f"{each['family']}-{row // each['per_host'] + 1:04d}-{row % each['per_host'] + 1:04d}"
            for row in range(each["count"])
        ]
        for each in boards
    }
    job = st.fixed_dictionaries(
        {
            "submit_s": st.integers(0, 300).map(float),
            "run_s": st.integers(1, 200).map(float),
            "family": st.sampled_from(FAMILIES),
            "user": st.sampled_from(("ada", "grace")),
            "benchmark_type": st.sampled_from(("TYPE1", "TYPE2")),
            "user_priority": st.integers(1, 10),
            "max_retries": st.integers(0, 2),
        },
        optional={
            "pinned": st.integers(0, 3),
            "binding": st.sampled_from(("loose", "filtered", "strict")),
            "deadline_s": st.integers(0, 2000).map(float),
            "start_s": st.integers(0, 900).map(float),
            "cancel_s": st.integers(0, 900).map(float),
            "job_completion_threshold": st.integers(1, 100),
        },
    )
    jobs: list[dict[str, Any]] = draw(st.lists(job, min_size=4, max_size=12))
    for each in jobs:
        if "pinned" in each:
            of_family = uids[each["family"]]
            each["target_uid"] = of_family[each.pop("pinned") % len(of_family)]
    for number in range(draw(st.integers(0, 2))):
        family = draw(st.sampled_from(boards))
        most = -(-family["count"] // family["sharing"])
        if most < 2:
            continue
        shared = {"submit_s": draw(st.integers(0, 600).map(float)), "family": family["family"]}
        jobs += [
            {**shared, "run_s": draw(st.integers(1, 200).map(float)), "gang": f"g{number}"}
            for _ in range(draw(st.integers(2, most)))
        ]
    changes = [
        {"what": what, "family": family, "at_s": at_s}
        for family in FAMILIES
        for since_s in draw(st.lists(st.integers(0, 600).map(float), max_size=1))
        for what, at_s in (("drain", since_s), ("resume", since_s + 400.0))
    ]
    rare, rate = st.sampled_from((0.0, 0.0, 300.0, 1500.0)), st.sampled_from((0.0, 0.0, 0.3))
    return lab_scenario(
        boards=boards,
        jobs=jobs,
        changes=changes,
        faults={
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
        },
        users=[{"name": "grace", "max_running": draw(st.integers(1, 3))}],
        max_run_s=400.0,
        duration_s=1000.0,
    )


@pytest.mark.parametrize("policy", [each for each in POLICIES if each not in BACKFILLING])
@settings(max_examples=6, deadline=None)
@given(scenario=labs(), seed=st.integers(0, 1000))
def test_what_must_hold_under_every_policy(policy: str, scenario: Scenario, seed: int) -> None:
    run = simulate_lab(scenario, *_resolved(policy), seed=seed)
    ended = (runs.COMPLETED, runs.FAILED, runs.CANCELLED, runs.EXPIRED)
    assert np.isin(run.jobs.status, ended).all()
    assert (run.jobs.end_s >= run.jobs.submit_s).all()
    assert scenario.lab is not None
    pinned = {each.job_id: each.target_uid for each in scenario.lab.jobs if each.target_uid}
    sharing = scenario.lab.boards[0].sharing
    cores = [
        ("rpi5", row // sharing) if family == "rpi5" else (family, row)
        for row, family in enumerate(run.families)
    ]
    held = run.occupancy
    for one, other in itertools.combinations(range(len(held.board)), 2):
        if held.from_s[one] < held.to_s[other] and held.from_s[other] < held.to_s[one]:
            assert cores[held.board[one]] != cores[held.board[other]], "two on the same cores"
            assert held.job[one] != held.job[other], "one benchmark runs twice"
    undisturbed = not scenario.lab.changes and not any(
        getattr(scenario.lab.faults, f"{part}_mean_between_s")
        for part in ("board", "host", "network")
    )
    if undisturbed:  # no pin was given up
        for board, job in zip(held.board.tolist(), held.job.tolist(), strict=True):
            uid = pinned.get(run.jobs.job[job])
            assert uid in (None, run.boards[board])


@pytest.mark.parametrize("policy", BACKFILLING)
def test_policies_that_make_no_difference_in_labs_are_refused(policy: str) -> None:
    scenario = lab_scenario(jobs=[{}])
    with pytest.raises(InvalidInput, match="makes no difference in a lab"):
        simulate_lab(scenario, *_resolved(policy), seed=1)
