"""Scenarios of a lab, lived by the whole service."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from edgeyard.benchmark_api.bootstrap import simulate_whole_service
from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.sim.lab.world import simulate_lab
from edgeyard.scheduler.sim.runs import COMPLETED, FAILED, SimulatedRun
from edgeyard.scheduler.sim.scenario import (
    Arrivals,
    BoardGroup,
    Faults,
    JobKind,
    LabScenario,
    LeaseRow,
    Scenario,
)

BUSY = Scenario(
    name="busy",
    world="boards",
    duration_s=1800.0,
    lab=LabScenario(
        boards=(BoardGroup(family="slow", count=4, speed=0.5), BoardGroup(family="fast", count=4)),
        arrivals=Arrivals(
            rate_per_hour=120,
            mix=(
                JobKind(model="small", share=3.0, run_s=60.0, run_spread=0.3),
                JobKind(model="large", run_s=240.0, run_spread=0.3),
            ),
        ),
    ),
)


def mean_wait_s(run: SimulatedRun) -> float:
    return float(np.nanmean(run.jobs.start_s - run.jobs.submit_s))


def test_both_depths_agree_on_the_mean_wait() -> None:
    """Within 10 % or 2 s: the service decides up to a cycle later, and by other random seeds."""
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    decisions = simulate_lab(BUSY, policy, plugins)
    service = simulate_whole_service(BUSY, policy)
    assert service.jobs.job.tolist() == decisions.jobs.job.tolist()
    np.testing.assert_allclose(service.jobs.submit_s, decisions.jobs.submit_s, atol=1e-3)
    assert (service.jobs.status == COMPLETED).all()
    expected_s = mean_wait_s(decisions)
    assert expected_s > 5.0
    assert mean_wait_s(service) == pytest.approx(expected_s, rel=0.1, abs=2.0)
    rendered = service.meta.figures["jobs_rendered"]
    assert rendered == len(service.jobs)
    assert 0.04 * rendered <= service.meta.figures["jobs_read_back"] <= 0.06 * rendered + 1


def test_no_board_runs_two_benchmarks_and_a_leased_one_runs_none() -> None:
    assert BUSY.lab is not None
    lab = msgspec.structs.replace(
        BUSY.lab,
        leases=(LeaseRow(target_uid="fast-0001-0001", from_s=0.0, to_s=900.0),),
        faults=Faults(task_rate=0.1, board_mean_between_s=1800.0, board_mean_repair_s=120.0),
    )
    shown: list[float] = []
    run = simulate_whole_service(
        msgspec.structs.replace(BUSY, duration_s=900.0, lab=lab),
        load_policy("default"),
        progress=shown.append,
    )
    assert set(run.jobs.status.tolist()) <= {COMPLETED, FAILED}
    assert run.jobs.attempts.max() > 1
    assert shown
    assert all(0.0 <= share <= 1.0 for share in shown)
    held = run.occupancy
    for row, uid in enumerate(run.boards):
        mine = held.board == row
        order = np.argsort(held.from_s[mine])
        began, ended = held.from_s[mine][order], held.to_s[mine][order]
        assert (began[1:] >= ended[:-1] - 1e-3).all()
        if uid == "fast-0001-0001":
            assert (began >= 900.0).all()


def test_a_scenario_with_what_this_depth_does_not_know_is_refused() -> None:
    assert BUSY.lab is not None
    lab = msgspec.structs.replace(BUSY.lab, faults=Faults(stale_twin_s=5.0))
    with pytest.raises(InvalidInput, match="stale_twin_s: is not known at depth service"):
        simulate_whole_service(msgspec.structs.replace(BUSY, lab=lab), load_policy("default"))
