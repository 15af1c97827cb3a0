"""Jobs that name no board go where Nomad would put them."""

from __future__ import annotations

from collections import Counter

import pytest

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
