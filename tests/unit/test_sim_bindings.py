"""Jobs that name no board go where Nomad would put them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.lab.world import HEARTBEAT_S
from edgeyard.simulator.runs import COMPLETED, SimulatedRun
from tests.builders.labs import lab_scenario, simulate

BOARDS = [
    {"family": "rpi5", "count": 4, "per_host": 4, "ram_mib": 4096},
    {"family": "rpi5", "count": 4, "per_host": 4, "ram_mib": 512},
]


def hosts(run: SimulatedRun) -> Counter[str]:
    """Attempts by host."""
    uids = [run.boards[board] for board in run.occupancy.board.tolist()]
    return Counter(uid.rsplit("-", 1)[0] for uid in uids)


def run_of(binding: str, *, ram_mib: int = 0, seed: int = 1) -> SimulatedRun:
    jobs = [
        {"submit_s": 10.0 * row, "run_s": 500.0, "binding": binding, "ram_mib": ram_mib}
        for row in range(4)
    ]
    return simulate(lab_scenario(boards=BOARDS, jobs=jobs), seed=seed)


def test_nomad_fills_one_host_where_the_decision_would_spread() -> None:
    strict = hosts(run_of("strict"))
    assert strict == {"rpi5-0001": 2, "rpi5-0002": 2}  # least_loaded
    for binding in ("loose", "filtered"):
        assert max(hosts(run_of(binding)).values()) == 4


@pytest.mark.parametrize("seed", range(3))
def test_a_job_keeps_to_its_memory_however_it_is_bound(seed: int) -> None:
    """512 MiB are too little for it."""
    for binding in ("filtered", "loose"):
        assert set(hosts(run_of(binding, ram_mib=2048, seed=seed))) == {"rpi5-0001"}


def test_no_board_ever_runs_two_although_nomad_chooses_otherwise_than_decided() -> None:
    jobs = [
        {
            "submit_s": float(row // 8),
            "run_s": 30.0 + row,
            "binding": ("loose", "strict", "filtered")[row % 3],
            "ram_mib": 1024 * (row % 2),
        }
        for row in range(48)
    ]
    run = simulate(lab_scenario(boards=BOARDS, jobs=jobs))
    assert (run.jobs.status == COMPLETED).all()
    held = run.occupancy
    for board in range(len(run.boards)):
        its = held.board == board
        starts, ends = held.from_s[its], held.to_s[its]
        assert (starts[1:] >= ends[:-1] - 1e-9).all()


def test_the_same_seed_gives_the_same_choices() -> None:
    assert run_of("loose").meta.events_sha256 == run_of("loose").meta.events_sha256
    boards = {tuple(run_of("loose", seed=seed).occupancy.board.tolist()) for seed in range(5)}
    assert len(boards) > 1


def test_the_memory_of_hosts_bounds_how_many_loose_jobs_one_takes() -> None:
    """A task takes Nomad's default of 300 MB: a host of 650 MB has room for two."""
    boards = [{**each, "host_memory_mb": 650.0} for each in BOARDS]
    jobs = [{"submit_s": 10.0 * row, "run_s": 500.0, "binding": "loose"} for row in range(4)]
    run = simulate(lab_scenario(boards=boards, jobs=jobs), seed=1)
    assert sorted(hosts(run).values()) == [2, 2]


def test_a_job_in_nomads_queue_is_not_decided_again_until_something_happens() -> None:
    """Three jobs for one board under `native`: each starts in a cycle as soon as it is free.

    In between there is one cycle a minute (`HEARTBEAT_S`).
    """
    run_s = 630.5
    jobs = [{"run_s": run_s}] * 3
    scenario = lab_scenario(boards=[{"family": "rpi5", "count": 1}], jobs=jobs)
    run = simulate(scenario, policy="native")
    assert sorted(run.jobs.start_s.tolist()) == [0.0, run_s, 2 * run_s]
    assert run.meta.cycles <= 3 + 2 * run_s / HEARTBEAT_S


def test_a_pinned_job_waits_in_nomads_queue_for_the_board_that_a_loose_one_took() -> None:
    """Under `native` nothing keeps either from Nomad's queue, and the first one takes the board."""
    pinned: dict[str, Any] = {"run_s": 100.0, "target_uid": "rpi5-0001-0001"}
    jobs = [{"run_s": 100.0}, pinned] * 3
    scenario = lab_scenario(boards=[{"family": "rpi5", "count": 1}], jobs=jobs)
    run = simulate(scenario, policy="native")
    assert sorted(run.jobs.start_s.tolist()) == [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    assert run.jobs.attempts.tolist() == [1] * 6


def test_under_native_no_job_runs_beside_one_on_the_same_cores() -> None:
    boards = [{"family": "rpi5", "count": 2, "sharing": 2}]
    pinned: list[dict[str, Any]] = [
        {"run_s": 100.0, "target_uid": f"rpi5-0001-000{number}"} for number in (1, 2)
    ]
    jobs = [*pinned, *pinned, {"run_s": 100.0}, {"run_s": 100.0}]
    run = simulate(lab_scenario(boards=boards, jobs=jobs), policy="native")
    assert sorted(run.jobs.start_s.tolist()) == [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]


def test_a_loose_job_waits_while_no_host_has_memory_left_for_it() -> None:
    boards = [{"family": "rpi5", "count": 4, "per_host": 4, "host_memory_mb": 650.0}]
    jobs = [{"run_s": 100.0, "binding": "loose"}] * 4
    run = simulate(lab_scenario(boards=boards, jobs=jobs))
    assert sorted(run.jobs.start_s.tolist()) == [0.0, 0.0, 100.0, 100.0]


def test_a_board_stays_taken_while_one_of_its_attempts_is_not_known_to_have_ended() -> None:
    """The end of a run is reported 50 s late; in between Nomad gives its board to a loose job.

    The report is of the first, so the board is not free for a strict one, which has to wait.
    """
    jobs = [
        {"submit_s": 0.0, "run_s": 100.0, "binding": "loose"},
        {"submit_s": 1.0, "run_s": 100.0, "binding": "loose"},
        {"submit_s": 2.0, "run_s": 100.0, "binding": "strict"},
    ]
    scenario = lab_scenario(
        boards=[{"family": "rpi5", "count": 1}], jobs=jobs, faults={"late_event_mean_s": 50.0}
    )
    shown_as_free: list[str] = []

    def watch(at_s: float, given: CycleInput, result: CycleResult) -> None:
        held = {each.target_uid for each in given.holders}
        columns = zip(given.snapshot.uids, given.snapshot.busy.tolist(), strict=True)
        shown_as_free.extend(uid for uid, busy in columns if uid in held and not busy)

    for seed in range(5):
        run = simulate(scenario, seed=seed, watch=watch, policy="native")
        assert (run.jobs.status == COMPLETED).all()
    assert not shown_as_free
