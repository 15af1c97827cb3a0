"""The world of boards: what happens to benchmarks of a simulated lab."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.batch import Queue
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.simulator import runs
from edgeyard.simulator.lab.boards import UPLOAD_RETRY_S
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import built_in_scenarios, load_scenario
from tests.builders.labs import lab_scenario, simulate

ONE_BOARD = [{"family": "rpi5", "count": 1}]
MIX = [
    {"model": "squeezenet", "run_s": 60, "run_spread": 0.3, "user_time_s": 300},
    {"model": "resnet50", "run_s": 200, "run_spread": 0.3, "user_time_s": 2000},
]
FAULTS = {
    "task_rate": 0.2,
    "board_mean_between_s": 3000,
    "board_mean_repair_s": 300,
    "host_mean_between_s": 4000,
    "host_mean_repair_s": 200,
    "network_mean_between_s": 2000,
    "network_mean_repair_s": 60,
    "lost_event_rate": 0.2,
    "late_event_mean_s": 1.0,
    "stale_twin_s": 3.0,
}
BUSY = lab_scenario(
    boards=[{"family": "rpi5", "count": 3}, {"family": "rpi4b", "count": 3, "speed": 0.5}],
    arrivals={"rate_per_hour": 120, "mix": MIX},
    faults=FAULTS,
)


@cache
def busy_run() -> SimulatedRun:
    return simulate(BUSY)


def _status(run: SimulatedRun) -> list[str]:
    return [runs.STATUSES[each] for each in run.jobs.status.tolist()]


def test_benchmarks_run_in_turn_on_one_board_for_as_long_as_they_take() -> None:
    run = simulate(
        lab_scenario(
            boards=[{"family": "rpi5", "count": 1, "speed": 2.0}],
            jobs=[{"run_s": 60}, {"run_s": 20, "submit_s": 1}],
        )
    )
    assert run.jobs.start_s.tolist() == [0, 30]
    assert run.jobs.end_s.tolist() == [30, 40]
    assert _status(run) == ["completed", "completed"]
    assert run.series.time_s.tolist() == [0, 1, 30, 40]
    assert run.series.pending.tolist() == [0, 1, 0, 0]
    assert run.series.busy_share.tolist() == [1, 1, 1, 0]


def test_events_within_the_cycle_interval_are_decided_in_one_cycle() -> None:
    jobs = [{"submit_s": at_s} for at_s in (0.0, 0.2, 0.9)]
    run = simulate(lab_scenario(boards=[{"family": "rpi5", "count": 3}], jobs=jobs))
    assert run.jobs.start_s.tolist() == [0, 1, 1]
    assert run.meta.cycles == 2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_events_and_another_one_others() -> None:
    first, second, other = busy_run(), simulate(BUSY), simulate(BUSY, seed=7)
    assert first.meta.events_sha256 == second.meta.events_sha256
    assert first.meta.events_sha256 != other.meta.events_sha256


@pytest.mark.slow
def test_another_policy_meets_the_same_arrivals_and_faults() -> None:
    first, second = busy_run(), simulate(BUSY, queue_policy="shortest_first")
    assert first.meta.events_sha256 != second.meta.events_sha256  # otherwise nothing is tested
    for column in ("job", "user", "submit_s", "deadline_s"):
        np.testing.assert_array_equal(getattr(first.jobs, column), getattr(second.jobs, column))
    lasted = [
        {
            int(job): round(float(to_s - from_s), 6)
            for job, from_s, to_s, how in zip(
                *(run.occupancy.job, run.occupancy.from_s, run.occupancy.to_s, run.occupancy.how),
                strict=True,
            )
            if how == runs.ENDED
        }
        for run in (first, second)
    ]
    common = lasted[0].keys() & lasted[1].keys()
    assert len(common) > 20
    longer_s = [lasted[0][job] - lasted[1][job] for job in common]
    assert longer_s.count(0.0) > 0.8 * len(common)
    # A run that ends while its host has no network tries its upload again each 30 s.
    assert all(round(each, 3) % UPLOAD_RETRY_S == 0 for each in longer_s)


def test_a_failed_run_is_tried_again_on_another_board_within_its_retries() -> None:
    failure = {"category": "board_fault", "after_s": 5}
    run = simulate(
        lab_scenario(
            jobs=[
                {"failures": [failure]},
                {"submit_s": 500, "failures": [failure, failure]},
                {"submit_s": 900, "failures": [{"category": "user_model", "after_s": 5}]},
            ]
        )
    )
    assert _status(run) == ["completed", "failed", "failed"]
    assert run.jobs.attempts.tolist() == [2, 2, 1]
    first = run.occupancy.board[run.occupancy.job == 0].tolist()
    assert first[0] != first[1]


def test_a_lost_host_costs_a_retry_and_its_boards_are_not_used_while_it_is_off() -> None:
    run = simulate(
        lab_scenario(
            boards=[{"family": "rpi5", "count": 2, "per_host": 1}],
            jobs=[{"max_retries": 0}, {"max_retries": 0}, {"submit_s": 20}],
            outages=[
                {"what": "host", "name": "rpi5-host-0001", "from_s": 10, "to_s": 1000},
            ],
        )
    )
    assert sorted(_status(run)) == ["completed", "completed", "failed"]
    lost = run.occupancy.how == runs.FAULTED
    assert lost.sum() == 1
    assert run.occupancy.to_s[lost].tolist() == [10]
    assert run.jobs.end_s[run.occupancy.job[lost]].tolist() == [70]  # the cluster's word of it
    later = run.occupancy.from_s > 10
    assert set(run.occupancy.board[later].tolist()) == {1}


def test_a_host_that_comes_back_without_its_run_is_noticed_at_once() -> None:
    outage = {"what": "host", "name": "rpi5-host-0001", "from_s": 10, "to_s": 30}
    run = simulate(lab_scenario(boards=ONE_BOARD, jobs=[{}], outages=[outage]))
    assert run.occupancy.to_s.tolist() == pytest.approx([10, 100], abs=1e-3)
    assert run.occupancy.from_s[1] == pytest.approx(40, abs=1e-3)  # after the backoff


def test_a_run_survives_an_outage_of_the_network_and_its_end_is_known_late() -> None:
    outage = {"what": "network", "name": "rpi5-host-0001", "from_s": 10, "to_s": 200}
    run = simulate(lab_scenario(boards=ONE_BOARD, jobs=[{}], outages=[outage]))
    assert run.occupancy.to_s.tolist() == [210]  # its upload is tried at 60, 90, ..., 210
    assert run.jobs.end_s.tolist() == [210]
    assert _status(run) == ["completed"]
    run = simulate(lab_scenario(boards=ONE_BOARD, jobs=[{}], outages=[{**outage, "to_s": 1000}]))
    assert run.occupancy.to_s.tolist() == [660]  # it gives up after ten minutes
    assert run.jobs.end_s.tolist() == [1000]


def test_a_lost_event_is_found_at_the_next_comparison() -> None:
    run = simulate(
        lab_scenario(
            boards=ONE_BOARD, jobs=[{"run_s": 61}], faults={"lost_event_rate": 1.0}, compare_s=5
        )
    )
    assert run.jobs.end_s.tolist() == [65]


def test_a_benchmark_that_is_placed_on_a_dead_board_is_placed_again() -> None:
    run = simulate(
        lab_scenario(
            boards=[{"family": "rpi5", "count": 1, "faults": {"stale_twin_s": 4}}],
            jobs=[{"submit_s": 12, "max_retries": 0}],
            outages=[{"what": "board", "name": "rpi5-0001-0001", "from_s": 10, "to_s": 100}],
            faults={"stale_twin_s": 4},
        )
    )
    assert _status(run) == ["completed"]
    assert run.jobs.attempts.tolist() == [2]
    assert 100 <= run.jobs.start_s[0] <= 110
    assert len(run.occupancy) == 1


def test_a_deadline_expires_a_benchmark_that_waits_and_one_that_runs() -> None:
    run = simulate(
        lab_scenario(
            boards=ONE_BOARD,
            jobs=[{"deadline_s": 40}, {"deadline_s": 30}, {"queue_timeout_s": 20}, {}],
        )
    )
    assert _status(run) == ["expired", "expired", "expired", "completed"]
    assert run.jobs.end_s.tolist()[:3] == [40, 30, 20]
    assert run.jobs.start_s[3] == 40


def test_runs_that_are_stopped_are_no_past_runs() -> None:
    scenario = lab_scenario(
        boards=ONE_BOARD,
        jobs=[
            {"job_id": "expires", "run_s": 500, "deadline_s": 40},
            {"job_id": "cancelled", "submit_s": 50, "run_s": 500, "cancel_s": 80},
            {"job_id": "completed", "submit_s": 90, "run_s": 10},
            {"job_id": "last", "submit_s": 150, "run_s": 10},
        ],
    )
    policy = load_policy("default")
    known: set[str] = set()
    run = simulate_lab(
        scenario,
        policy,
        registry(entry_points=False).resolve(policy),
        watch=lambda now, given, result: known.update(
            each.benchmark_id for each in given.knowledge.runs
        ),
    )
    assert _status(run) == ["expired", "cancelled", "completed", "completed"]
    assert not np.isnan(run.jobs.start_s).any()
    assert known == {"completed"}


@pytest.mark.parametrize("disturbance", [0.0, 0.1])
def test_past_runs_state_loading_and_whether_they_were_disturbed(disturbance: float) -> None:
    """Models read them in a simulated lab as they do live: a verdict is on a result alone."""
    seen: list[CycleInput] = []
    group = {"count": 2, "per_host": 2, "loading_s": 10.0, "overhead_s": 5.0}
    simulate(
        lab_scenario(
            boards=[{"family": "rpi5", **group, "disturbance": disturbance}],
            jobs=[
                {},
                {},
                {"submit_s": 1000.0},
                {"submit_s": 2000.0, "failures": [{"category": "thermal", "after_s": 3.0}]},
                {"submit_s": 5000.0},
            ],
        ),
        watch=lambda now_s, given, result: seen.append(given),
    )
    past = {f"{each.benchmark_id} {each.failure}": each for each in seen[-1].knowledge.runs}
    none = {name: None for name in past}
    judged = {"j0 None": False, "j1 None": False, "j2 None": True, "j3 None": True}
    found = {name: each.comparable for name, each in past.items()}
    assert found == {"j3 thermal": None, **none, **(judged if disturbance else {})}
    loading = {name: each.loading_s for name, each in past.items()}
    assert loading == {**dict.fromkeys(past, 10.0), "j3 thermal": None}
    assert past["j2 None"].run_s == pytest.approx(60.0)
    assert past["j3 thermal"].run_s == pytest.approx(3.0)


def test_a_run_that_is_stopped_while_it_loads_never_began() -> None:
    seen: list[CycleInput] = []
    outage = {"what": "board", "name": "rpi5-0001-0001"}
    simulate(
        lab_scenario(
            boards=[{"family": "rpi5", "count": 1, "loading_s": 10.0}],
            jobs=[{"run_s": 600.0, "max_retries": 5}, {"submit_s": 5000.0}],
            outages=[
                {**outage, "from_s": 4.0, "to_s": 20.0},
                {**outage, "from_s": 300.0, "to_s": 310.0},
            ],
        ),
        watch=lambda now_s, given, result: seen.append(given),
    )
    loading, running, whole = seen[-1].knowledge.runs
    assert (loading.failure, loading.run_s, loading.loading_s) == ("board_fault", None, None)
    assert (running.failure, running.loading_s) == ("board_fault", 10.0)
    assert running.run_s is not None
    assert 0.0 < running.run_s < 290.0
    assert (whole.failure, whole.loading_s) == (None, 10.0)
    assert whole.run_s == pytest.approx(600.0)


def test_a_run_over_its_time_limit_ends_with_it() -> None:
    run = simulate(lab_scenario(jobs=[{"run_s": 500}], max_run_s=100))
    assert _status(run) == ["failed"]
    assert run.occupancy.to_s.tolist() == [100]


def test_an_urgent_benchmark_preempts_one_that_goes_back_to_the_queue() -> None:
    run = simulate(
        lab_scenario(
            boards=ONE_BOARD,
            jobs=[
                {"run_s": 1000, "benchmark_type": "TYPE2", "preemptible_measuring": True},
                {"submit_s": 100, "user_priority": 10, "job_completion_threshold": 50},
            ],
        )
    )
    assert run.jobs.preemptions.tolist() == [1, 0]
    assert run.jobs.start_s.tolist()[1] < 110
    assert _status(run) == ["completed", "completed"]
    assert (run.occupancy.how == runs.PREEMPTED).sum() == 1


def test_a_stated_start_is_kept_and_nobody_runs_into_a_lease() -> None:
    jobs = [{"submit_s": 1.0 * number, "user_time_s": 100} for number in range(20)]
    run = simulate(
        lab_scenario(
            boards=ONE_BOARD,
            jobs=[*jobs, {"start_s": 700, "user_time_s": 100}],
            leases=[{"target_uid": "rpi5-0001-0001", "from_s": 900, "to_s": 1200}],
        )
    )
    (start_s,) = run.jobs.start_s[run.jobs.job == "j20"].tolist()
    assert 700 <= start_s <= 700 + load_policy("default").booking_grace_s
    inside = (run.occupancy.to_s > 900) & (run.occupancy.from_s < 1200)
    assert not inside.any()


def test_a_family_that_appears_is_used_from_then_on() -> None:
    scenario = lab_scenario(
        boards=ONE_BOARD,
        arrivals={"rate_per_hour": 60, "mix": [{"model": "m", "run_s": 20}]},
        changes=[
            {"at_s": 1800, "what": "boards_join", "group": {"family": "rpi4b", "count": 2}},
            {"at_s": 2700, "what": "boards_leave", "family": "rpi5"},
        ],
        duration_s=3600,
    )
    run = simulate(scenario)
    of_new = np.array([run.families[board] == "rpi4b" for board in run.occupancy.board])
    assert of_new.any()
    assert run.occupancy.from_s[of_new].min() >= 1800
    assert run.occupancy.from_s[~of_new].max() < 2700


def test_a_pinned_benchmark_may_leave_a_board_that_stays_away() -> None:
    run = simulate(
        lab_scenario(
            jobs=[{"target_uid": "rpi5-0001-0001", "submit_s": 20}],
            outages=[{"what": "board", "name": "rpi5-0001-0001", "from_s": 10, "to_s": 9000}],
        )
    )
    assert _status(run) == ["completed"]
    assert run.jobs.start_s.tolist() == [310]


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            lab_scenario(jobs=[{"ram_mib": 1 << 20}]),
            "no board of rpi5 can ever run it",
        ),
        (
            lab_scenario(arrivals={"rate_per_hour": 60, "mix": [{"model": "m", "engine": "xnn"}]}),
            r"no board can ever run 'm' \(xnn, TYPE1\)",
        ),
        (
            lab_scenario(
                boards=ONE_BOARD,
                jobs=[{"submit_s": 50}],
                changes=[{"at_s": 10, "what": "boards_leave", "family": "rpi5"}],
            ),
            "the scenario does not end: 1 benchmark left.*the first is j0 for rpi5",
        ),
        (
            lab_scenario(
                boards=ONE_BOARD,
                jobs=[{"submit_s": 50}],
                changes=[{"at_s": 10, "what": "drain", "family": "rpi5"}],
            ),
            "no board runs a benchmark, and no event is left that could change that; its waiting "
            "reason: waits .*drained",
        ),
        (
            lab_scenario(jobs=[{}] * 9, drain_s=0.0, duration_s=10.0),
            "the scenario does not end: .* since the last arrival",
        ),
        (
            lab_scenario(jobs=[{}], leases=[{"target_uid": "x", "from_s": 0, "to_s": 9}]),
            "there is no board 'x'",
        ),
    ],
)
def test_a_scenario_without_an_end_is_a_clear_error(scenario: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(scenario)  # type: ignore[arg-type]


class _Broken:
    """A queue policy that fails when three wait."""

    name = "broken"
    time_invariant = False

    def order(self, queue: Queue) -> object:
        """Fail."""
        if len(queue.ids) == 3:
            raise ZeroDivisionError("three")
        return np.arange(len(queue.ids))

    def reason(self, queue: Queue, job: int) -> str:
        """Say nothing."""
        return ""


def test_a_policy_that_raises_is_named_with_the_time() -> None:
    known = registry(entry_points=False)
    known.add(Kind.QUEUE_POLICY, "broken", _Broken)
    policy = policy_named("broken", known)
    scenario = lab_scenario(boards=ONE_BOARD, jobs=[{}] * 4)
    with pytest.raises(InvalidInput, match=r"policy broken: broken failed.*three.*virtual time"):
        simulate_lab(scenario, policy, known.resolve(policy))


def test_an_unknown_policy_names_what_there_is() -> None:
    with pytest.raises(InvalidInput, match=r"default, learned, native.*fcfs") as caught:
        policy_named("nothing", registry(entry_points=False))
    (error,) = caught.value.errors
    assert error.reason == "'nothing' is neither a file nor the name of a policy"
    names, queue_policies = error.accepted.split(", a TOML file, or a queue policy: ")
    assert "shortest_first" in queue_policies.split(", ")
    assert not {*names.split(", ")} & {*queue_policies.split(", ")}


def test_short_names_of_queue_policies_are_policies() -> None:
    known = registry(entry_points=False)
    assert policy_named("sjf", known).queue_policy == "shortest_first"
    assert policy_named("default", known) == load_policy("default")


def test_the_scenarios_that_edgeyard_brings_are_valid() -> None:
    names = built_in_scenarios()
    assert {"steady", "burst", "overload", "board_loss", "new_family", "diurnal"} <= set(names)
    for name in names:
        scenario = load_scenario(name)
        assert scenario.name == name
        assert scenario.description


def test_decisions_see_the_stated_loads_and_the_past() -> None:
    """Loads as of the time, cores as a whole number, and runs without what is around them."""
    seen: list[CycleInput] = []
    simulate(
        lab_scenario(
            boards=[{"family": "rpi5", "count": 1, "cpu_cores": 4}],
            jobs=[
                {"run_s": 60, "around_s": 5, "model": "m", "model_bytes": 70, "variant": "v"},
                {"run_s": 60, "submit_s": 100, "model": "m", "variant": "v"},
            ],
            loads=[
                {"host": "rpi5-host-0001", "at_s": 50, "cpu": 0.5, "memory": 0.25},
                {"host": "rpi5-host-0001", "at_s": 10, "cpu": 0.1, "memory": 0.1},
            ],
            past=[
                {"target_uid": "rpi5-0009-0001", "ended_s": 9, "run_s": 8, "failure": "thermal"},
                {"target_uid": "rpi5-0001-0001", "ended_s": 3, "run_s": 7, "model": "m"},
            ],
        ),
        watch=lambda now_s, given, result: seen.append(given),
    )
    first, second = seen
    assert first.snapshot.attributes[0]["cpu.cores"] == 4
    assert (first.pending[0].model_bytes, first.pending[0].variant) == (70, "v")
    assert dict(first.knowledge.host_loads) == {}
    assert second.knowledge.host_loads == {"rpi5-host-0001": HostLoad(cpu=0.5, memory=0.25)}
    ended = [(each.target_uid, each.run_s, each.failure) for each in second.knowledge.runs]
    assert ended == [
        ("rpi5-0009-0001", 8.0, "thermal"),
        ("rpi5-0001-0001", 7.0, None),
        ("rpi5-0001-0001", 60.0, None),
    ]
    assert [(first.now - each.ended_at).total_seconds() for each in first.knowledge.runs] == [9, 3]


def test_a_load_of_no_host_is_refused() -> None:
    scenario = lab_scenario(jobs=[{}], loads=[{"host": "h", "cpu": 0.5, "memory": 0.5}])
    with pytest.raises(InvalidInput, match=r"lab.loads\[0\].host: there is no host 'h'"):
        simulate(scenario)
