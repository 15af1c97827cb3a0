"""Scenarios of a lab, simulated by the whole service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide import cycle
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import COMPLETED, FAILED, SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    JobRow,
    LabScenario,
    LeaseRow,
    Outage,
    Scenario,
    check_scenario,
)
from tests.virtual_service.start import simulate_whole_service

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


def test_at_both_depths_what_a_board_lists_counts_as_declared() -> None:
    memory = {"memory": (BenchmarkType("TYPE4"),)}
    lab = LabScenario(
        boards=(BoardGroup(family="fast", count=1, engines=memory),),
        jobs=(
            JobRow(
                job_id="one",
                submit_s=1.0,
                run_s=9.0,
                family="fast",
                engine="memory",
                benchmark_type=BenchmarkType("TYPE4"),
            ),
        ),
    )
    scenario = Scenario(name="declared", world="boards", duration_s=60.0, lab=lab)
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    for run in (simulate_lab(scenario, policy, plugins), simulate_whole_service(scenario, policy)):
        assert run.jobs.status.tolist() == [COMPLETED]


def test_both_depths_agree_where_runs_disturb_one_another_on_their_host() -> None:
    """On the waits within 10 % or 2 s, and on which runs were alone within 10 points."""
    groups = (
        BoardGroup(family="slow", count=4, speed=0.5, per_host=2, disturbance=0.5),
        BoardGroup(family="fast", count=4, disturbance=0.2),
    )
    assert BUSY.lab is not None
    disturbed = msgspec.structs.replace(BUSY, lab=msgspec.structs.replace(BUSY.lab, boards=groups))
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    decisions = simulate_lab(disturbed, policy, plugins)
    service = simulate_whole_service(disturbed, policy)
    assert mean_wait_s(service) > mean_wait_s(simulate_whole_service(BUSY, policy))
    assert mean_wait_s(service) == pytest.approx(mean_wait_s(decisions), rel=0.1, abs=2.0)
    comparable = decisions.meta.figures["comparable_share"]
    assert 0.0 < comparable < 1.0
    assert service.meta.figures["comparable_share"] == pytest.approx(comparable, abs=0.1)


def test_the_time_of_day_at_the_beginning_moves_tariffs_and_no_starts() -> None:
    """At both depths, with a lease and a past run, whose times are of the simulation."""
    lab = LabScenario(
        boards=(BoardGroup(family="fast", count=1, uids=("fast-0001-0001",)),),
        jobs=(
            JobRow(job_id="one", submit_s=1.0, run_s=9.0, family="fast"),
            JobRow(job_id="two", submit_s=2.0, run_s=9.0, family="fast", start_s=40.0),
            JobRow(job_id="three", submit_s=3.0, run_s=9.0, family="fast"),
        ),
        leases=(LeaseRow(target_uid="fast-0001-0001", from_s=60.0, to_s=90.0, user="other"),),
        tariff=(4.0,) * 12 + (1.0,) * 12,
    )
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    found = []
    for day_s in (0.0, 13.5 * 3600):
        at = msgspec.structs.replace(lab, day_s=day_s)
        scenario = Scenario(name="day", world="boards", duration_s=120.0, lab=at)
        depths = (simulate_lab(scenario, policy, plugins), simulate_whole_service(scenario, policy))
        found.append([run.jobs.start_s.tolist() for run in depths])
        charged = depths[0].meta.figures["credits"]
        idle_s = 89.0  # from 1 s to 90 s the lease keeps from the board what may take an hour
        assert charged == pytest.approx((27.0 + idle_s) * (4.0 if day_s == 0.0 else 1.0))
    for earlier, later in zip(*found, strict=True):
        assert earlier == pytest.approx(later)
    too_late = msgspec.structs.replace(lab, day_s=86_400.0)
    with pytest.raises(InvalidInput, match="day_s"):
        check_scenario(msgspec.structs.replace(BUSY, lab=too_late))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "seed"),
    [
        (Faults(task_rate=0.1), 1),
        (Faults(board_mean_between_s=900.0, board_mean_repair_s=120.0), 2),
        (Faults(network_mean_between_s=1800.0, network_mean_repair_s=60.0), 2),
        (Faults(host_mean_between_s=3600.0, host_mean_repair_s=120.0), 2),
    ],
    ids=["task", "board", "network", "host"],
)
def test_both_depths_agree_under_faults_where_they_choose_the_same_boards(
    faults: Faults, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1 %: the seeds by which they choose between equal boards are made equal here."""

    def build_with_one_seed(
        snapshot: Snapshot, pending: Sequence[PendingBenchmark], now: datetime, _: int, *more: Any
    ) -> Batch:
        return build_batch(snapshot, pending, now, 0, *more)

    monkeypatch.setattr(cycle, "build_batch", build_with_one_seed)
    assert BUSY.lab is not None
    faulty = msgspec.structs.replace(BUSY, lab=msgspec.structs.replace(BUSY.lab, faults=faults))
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    decisions = simulate_lab(faulty, policy, plugins, seed=seed)
    service = simulate_whole_service(faulty, policy, seed=seed)
    assert decisions.jobs.attempts.max() > 1 or faults.network_mean_between_s
    assert mean_wait_s(service) == pytest.approx(mean_wait_s(decisions), rel=0.01)
    assert service.jobs.attempts.tolist() == decisions.jobs.attempts.tolist()
    assert service.jobs.status.tolist() == decisions.jobs.status.tolist()


@pytest.mark.slow
def test_both_depths_agree_on_the_mean_wait_under_faults() -> None:
    """Within 25 %, and on how many benchmarks fail within 5 % of all of them.

    Boards that are equally good are chosen by other seeds, so that other runs meet the faults.
    """
    assert BUSY.lab is not None
    faults = Faults(
        task_rate=0.1,
        board_mean_between_s=900.0,
        board_mean_repair_s=120.0,
        host_mean_between_s=3600.0,
        host_mean_repair_s=120.0,
        network_mean_between_s=1800.0,
        network_mean_repair_s=60.0,
        late_event_mean_s=2.0,
        lost_event_rate=0.02,
    )
    faulty = msgspec.structs.replace(BUSY, lab=msgspec.structs.replace(BUSY.lab, faults=faults))
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    waits, ends = [], []
    for seed in (1, 2, 3):
        decisions = simulate_lab(faulty, policy, plugins, seed=seed)
        service = simulate_whole_service(faulty, policy, seed=seed)
        waits.append((mean_wait_s(service), mean_wait_s(decisions)))
        ends.append(
            ((service.jobs.status == FAILED).mean(), (decisions.jobs.status == FAILED).mean())
        )
    found, expected = np.mean(waits, axis=0)
    assert found == pytest.approx(expected, rel=0.25), waits
    failed, expected_failed = np.mean(ends, axis=0)
    assert failed == pytest.approx(expected_failed, abs=0.05), ends


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


def one_by_one(*jobs: JobRow, **lab: Any) -> Scenario:
    """A scenario of stated benchmarks on one host with two boards."""
    lab.setdefault("boards", (BoardGroup(family="a", count=2, per_host=2),))
    return Scenario(
        name="stated", world="boards", duration_s=600.0, lab=LabScenario(jobs=jobs, **lab)
    )


def simulate(scenario: Scenario, policy: str = "default") -> SimulatedRun:
    known = registry(entry_points=False)
    return simulate_whole_service(scenario, policy_named(policy, known), known)


def test_a_run_goes_on_while_the_network_of_its_host_is_away() -> None:
    job = JobRow(job_id="job", submit_s=1.0, run_s=60.0, family="a")
    other = JobRow(job_id="other", submit_s=50.0, run_s=60.0, family="a")
    away = Outage(what="network", name="a-host-0001", from_s=30.0, to_s=200.0)
    run = simulate(one_by_one(job, other, outages=(away,)))
    assert (run.jobs.status == COMPLETED).all()
    assert run.jobs.attempts.tolist() == [1, 1]
    assert run.jobs.start_s[0] < 10.0
    assert run.jobs.end_s[0] >= 200.0  # nothing was heard of it before
    assert run.jobs.start_s[1] >= 200.0


def test_boards_join_and_leave() -> None:
    jobs = (
        JobRow(job_id="lost", submit_s=1.0, run_s=60.0, family="a", max_retries=2),
        JobRow(job_id="early", submit_s=2.0, run_s=60.0, family="b"),
    )
    joins = Change(at_s=100.0, what="boards_join", group=BoardGroup(family="b", count=1))
    leaves = Change(at_s=30.0, what="boards_leave", family="a", count=1)
    again = Change(at_s=150.0, what="boards_join", group=BoardGroup(family="a", count=1))
    lab = one_by_one(
        *jobs, boards=(BoardGroup(family="a", count=1),), changes=(leaves, joins, again)
    )
    run = simulate(lab)
    assert (run.jobs.status == COMPLETED).all()
    assert run.jobs.attempts[0] > 1
    assert run.jobs.start_s[0] >= 150.0
    assert run.jobs.start_s[1] >= 100.0
    left = run.occupancy.board == 0
    assert (run.occupancy.to_s[left] <= 40.0).all()


def test_a_stale_twin_places_benchmarks_on_boards_that_have_failed() -> None:
    job = JobRow(job_id="job", submit_s=40.0, run_s=20.0, family="a")
    broken = Outage(what="host", name="a-host-0001", from_s=30.0, to_s=400.0)
    whole = (
        BoardGroup(family="a", count=1, per_host=1),
        BoardGroup(family="a", count=1, per_host=1, speed=0.5),
    )
    fresh = simulate(one_by_one(job, boards=whole, outages=(broken,)))
    assert fresh.jobs.attempts.tolist() == [1]
    assert fresh.jobs.start_s[0] < 45.0
    stale = simulate(
        one_by_one(job, boards=whole, outages=(broken,), faults=Faults(stale_twin_s=30.0))
    )
    assert (stale.jobs.status == COMPLETED).all()
    assert stale.jobs.attempts.tolist() == [2]  # the first one waited there in vain
    assert stale.jobs.start_s[0] > 300.0


def test_ends_whose_events_are_lost_are_found_at_the_next_comparison() -> None:
    job = JobRow(job_id="job", submit_s=1.0, run_s=20.0, family="a")
    found = simulate(one_by_one(job, faults=Faults(lost_event_rate=1.0), compare_s=50.0))
    assert 50.0 <= found.jobs.end_s[0] <= 52.0
    late = simulate(one_by_one(job, faults=Faults(late_event_mean_s=20.0)))
    prompt = simulate(one_by_one(job))
    assert late.jobs.end_s[0] > prompt.jobs.end_s[0] + 0.5
    assert (late.jobs.status == COMPLETED).all()


def test_predictions_are_made_from_the_runs_before_the_beginning() -> None:
    """Only who knows the past sends the first benchmarks to the faster of two boards."""
    boards = (
        BoardGroup(family="a", count=3, per_host=1),
        BoardGroup(family="a", count=1, per_host=1, speed=4.0),
    )
    arrivals = Arrivals(rate_per_hour=40, mix=(JobKind(model="net", run_s=20.0),))
    for history_jobs, fast in ((80, True), (0, False)):
        lab = LabScenario(boards=boards, arrivals=arrivals, history_jobs=history_jobs)
        scenario = Scenario(name="past", world="boards", duration_s=300.0, lab=lab)
        assert (simulate(scenario, "mct").jobs.board[0] == 3) == fast


def test_a_fault_of_an_unknown_part_is_refused() -> None:
    job = JobRow(job_id="job", submit_s=1.0, run_s=60.0, family="a")
    away = Outage(what="network", name="nowhere", from_s=30.0, to_s=200.0)
    with pytest.raises(InvalidInput, match="there is no network 'nowhere'"):
        simulate(one_by_one(job, outages=(away,)))
