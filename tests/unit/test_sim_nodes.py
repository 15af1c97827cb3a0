"""The world of nodes: jobs that take CPU, memory and GPUs of one node or more."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.batch import Queue
from edgeyard.scheduler.framework.policy import Backfill, ScorerChoice, load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import (
    NodeGroup,
    NodeJob,
    NodesScenario,
    PaperMix,
    Scenario,
)
from edgeyard.training.worlds import nodes as world
from edgeyard.training.worlds.replay import Backfilling, replay
from edgeyard.training.worlds.simulated_nodes import QueueRanker, node_columns, simulate_nodes
from tests.builders.decision import cycle, places
from tests.builders.logs import log_of, swf_line, write_swf
from tests.traces import trace


def job(name: str, submit_s: float, run_s: float, cpus: float = 1, **more: float | str) -> NodeJob:
    return NodeJob(job_id=name, submit_s=submit_s, run_s=run_s, cpus=cpus, **more)  # type: ignore[arg-type]


def of(*jobs: NodeJob, nodes: tuple[NodeGroup, ...] = (NodeGroup(cpu_cores=4),)) -> Scenario:
    described = NodesScenario(nodes=nodes, jobs=jobs)
    return Scenario(name="made", world="nodes", duration_s=100.0, nodes=described)


def simulated(scenario: Scenario, policy: str = "fcfs", **changes: object) -> SimulatedRun:
    found = replace(load_policy(policy), **changes)  # type: ignore[arg-type]
    return simulate_nodes(scenario, found, registry(entry_points=False).resolve(found))


def starts(run: SimulatedRun) -> dict[str, float]:
    return dict(zip(run.jobs.job.tolist(), run.jobs.start_s.tolist(), strict=True))


def test_jobs_share_a_node_until_one_resource_is_used_up() -> None:
    node = (NodeGroup(cpu_cores=4, memory_mb=1000, gpus=1),)
    run = simulated(
        of(
            job("cpu", 0, 10, 3),
            job("too-much-cpu", 0, 5, 2),
            job("next", 0, 5, 1, memory_mb=1000),
            nodes=node,
        )
    )
    assert starts(run) == {"cpu": 0.0, "too-much-cpu": 10.0, "next": 10.0}


def test_shares_of_one_gpu_go_together_and_whole_gpus_are_not_shared() -> None:
    node = (NodeGroup(cpu_cores=16, gpus=2),)
    run = simulated(
        of(
            job("a", 0, 10, gpus=0.5),
            job("b", 0, 10, gpus=0.5),
            job("whole", 0, 10, gpus=1),
            job("c", 0, 10, gpus=0.1),
            nodes=node,
        )
    )
    assert starts(run) == {"a": 0.0, "b": 0.0, "whole": 0.0, "c": 10.0}
    # 0.7 and 0.7 of two GPUs leave 0.6, but no GPU has as much
    apart = of(*(job(name, 0, 10, gpus=0.7) for name in "ab"), job("c", 0, 1, gpus=0.6), nodes=node)
    assert starts(simulated(apart))["c"] == 10.0


def test_a_job_of_several_nodes_takes_the_same_of_each() -> None:
    nodes = (NodeGroup(count=3, cpu_cores=2),)
    wide = job("wide", 0, 10, 2, nodes=2)
    run = simulated(of(wide, job("one", 0, 3, 2), job("two", 0, 3, 2, nodes=2), nodes=nodes))
    assert starts(run) == {"wide": 0.0, "one": 0.0, "two": 10.0}
    held = run.occupancy
    assert sorted(held.board[held.job == 0].tolist()) == [0, 1]


def test_backfilling_in_two_resources_never_delays_the_first() -> None:
    node = (NodeGroup(cpu_cores=4, memory_mb=100),)
    jobs = (
        job("runs", 0, 10, 2, memory_mb=50),
        job("first", 1, 10, 4),
        job("short", 2, 8, 1, memory_mb=10),
        job("long", 2, 9, 1, memory_mb=10),
    )
    assert starts(simulated(of(*jobs, nodes=node), "easy")) == {
        "runs": 0.0, "first": 10.0, "short": 2.0, "long": 20.0
    }  # fmt: skip
    assert starts(simulated(of(*jobs, nodes=node)))["short"] == 20.0
    assert starts(simulated(of(*jobs, nodes=node), backfill=Backfill.ANY))["first"] == 11.0


@pytest.mark.parametrize(
    ("policy", "node"), [("best_fit", "a-1"), ("fcfs", "b-1"), ("default", "b-1")]
)
def test_the_scorer_of_the_policy_chooses_the_node(policy: str, node: str) -> None:
    nodes = (NodeGroup(name="a", cpu_cores=4), NodeGroup(name="b", cpu_cores=8))
    made = of(job("one", 0, 1), nodes=nodes)
    best_fit = (ScorerChoice(name="best_fit", weight=1.0),)
    run = simulated(made, scorers=best_fit) if policy == "best_fit" else simulated(made, policy)
    assert run.boards[run.jobs.board[0]] == node


def test_overloaded_nodes_are_counted_with_what_others_use() -> None:
    nodes = (NodeGroup(cpu_cores=10), NodeGroup(name="other", cpu_cores=10, cpu_load=0.5))
    run = simulated(
        of(job("nine", 0, 5, 9), job("ten", 10, 5, 10), job("five", 30, 5, 5), nodes=nodes),
        scorers=(),
        fallback=None,
    )
    series = run.series
    now = {
        time: (share, overloaded)
        for time, share, overloaded in zip(
            series.time_s, series.busy_share, series.overloaded, strict=True
        )
    }
    assert now[0.0] == (pytest.approx(0.6), 0)
    assert now[10.0] == (pytest.approx(10 / 15), 1)
    assert now[15.0] == (pytest.approx(0.0), 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (job("large", 0, 1, 5), "job large: needs 5 cores"),
        (job("wide", 0, 1, 1, nodes=2), "on 2 nodes at the same time; 1 of 1 has that much"),
        (job("gpu", 0, 1, gpus=1), "and 1 GPUs on 1 node at the same time; 0 of 1"),
        (job("half", 0, 1, gpus=1.5), "job half: gpus: is 1.5"),
    ],
)
def test_a_job_that_fits_nowhere_is_an_error(wrong: NodeJob, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        simulated(of(job("good", 0, 1), wrong))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("conservative", r"backfill = 'conservative' has no effect on nodes"),
        ("met", r"planner = 'met' has no effect on nodes.*'none' or 'expected_cost', or a lab"),
        ("fastest", r"scorer 'fastest' has no answer for nodes.*accepted: best_fit, host_load"),
    ],
)
def test_what_cannot_act_on_nodes_is_refused_by_name(policy: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"--policy {policy}: {words}"):
        simulated(of(job("one", 0, 1)), policy)


def test_nodes_do_not_use_the_planner_of_the_default_policy() -> None:
    made = of(job("one", 0, 10, 3), job("two", 0, 5, 3), job("three", 1, 5, 1))
    planned = simulated(made, "default")
    without = simulated(made, "default", planner=None)
    assert planned.meta.events_sha256 == without.meta.events_sha256
    with pytest.raises(InvalidInput, match="--policy default: quiet_s has no effect on nodes"):
        simulated(made, "default", quiet_s=60.0)


def test_what_cannot_act_on_a_log_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    write_swf(path, [swf_line(1, 0, 10, 1)])
    described = NodesScenario(nodes=(NodeGroup(cpu_cores=4),), log=str(path))
    scenario = Scenario(name="log", world="nodes", duration_s=100.0, nodes=described)
    policy = replace(load_policy("default"), scorers=(ScorerChoice(name="locality", weight=1.0),))
    plugins = registry(entry_points=False).resolve(policy)
    with pytest.raises(InvalidInput, match=r"'locality' has no effect on an SWF log.*no nodes to"):
        simulate_nodes(scenario, policy, plugins)
    with pytest.raises(InvalidInput, match=r"planner = 'mct' has no effect on an SWF log"):
        simulated(scenario, "mct")


def test_the_paper_s_mix_is_drawn_from_the_seed() -> None:
    described = NodesScenario(
        nodes=(NodeGroup(cpu_cores=10, memory_mb=10),), mix=PaperMix(rate=0.9)
    )
    scenario = Scenario(name="mix", world="nodes", duration_s=50.0, nodes=described)
    first, again = simulated(scenario, "sjf"), simulated(scenario, "sjf")
    assert len(first.jobs) > 30
    assert first.meta.events_sha256 == again.meta.events_sha256
    other = simulated(replace_seed(scenario, 2), "sjf")
    assert other.meta.events_sha256 != first.meta.events_sha256


def replace_seed(scenario: Scenario, seed: int) -> Scenario:
    return Scenario(
        name=scenario.name, world="nodes", duration_s=50.0, nodes=scenario.nodes, seed=seed
    )


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
def test_a_log_takes_the_cores_of_all_nodes(policy: str, tmp_path: Path) -> None:
    lines = [swf_line(1, 0, 10, 3), swf_line(2, 1, 10, 4), swf_line(3, 2, 5, 1)]
    log = write_swf(tmp_path / "made.swf", lines)
    described = NodesScenario(nodes=(NodeGroup(count=2, cpu_cores=2),), log=str(log))
    scenario = Scenario(name="log", world="nodes", duration_s=50.0, nodes=described)
    backfilled = 2.0 if policy != "fcfs" else 20.0
    assert starts(simulated(scenario, policy)) == {"1": 0.0, "2": 10.0, "3": backfilled}


class LargestFirst:
    """A researcher's policy, once for all worlds: what takes most is served first."""

    name = "largest_first"

    def order(self, queue: Queue) -> np.ndarray:
        order = np.lexsort((np.array(queue.ids), -queue.expected_s * queue.processors))
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return ranks

    def reason(self, queue: Queue, job: int) -> str:
        return f"takes {queue.expected_s[job] * queue.processors[job]:g} processor-seconds"


def test_one_queue_policy_serves_a_lab_a_log_and_nodes() -> None:
    from edgeyard.plugins.testing import board, pending, snapshot_of

    own = LargestFirst()
    # the lab: two wait for one board
    jobs = [pending("short", user_time_s=10.0), pending("long", user_time_s=100.0)]
    one = snapshot_of([board("rpi4b-0001-0001")])
    in_lab = cycle(one, jobs, more_plugins={"queue_policy": own})
    assert set(places(in_lab)) == {"long"}
    # a log: one runs, two wait
    log = log_of([(0, 5, 1), (1, 10, 1), (1, 100, 1)])
    assert replay(log, own, processors=1).schedule.start.tolist() == [0.0, 105.0, 5.0]
    # nodes: the same jobs
    found = load_policy("fcfs")
    plugins: Plugins = replace(registry(entry_points=False).resolve(found), queue_policy=own)
    scenario = of(job("runs", 0, 5), job("short", 1, 10), job("long", 1, 100), nodes=(NodeGroup(),))
    assert starts(simulate_nodes(scenario, found, plugins)) == {
        "runs": 0.0, "short": 105.0, "long": 5.0
    }  # fmt: skip


class Broken(LargestFirst):
    def order(self, queue: Queue) -> np.ndarray:
        raise RuntimeError("no idea")


def test_a_queue_policy_that_raises_is_named() -> None:
    found = load_policy("fcfs")
    plugins = replace(registry(entry_points=False).resolve(found), queue_policy=Broken())
    with pytest.raises(ConfigError, match=r"queue policy 'largest_first' failed at second 1: "):
        simulate_nodes(of(job("a", 0, 5, 4), job("b", 1, 5, 4), job("c", 1, 1, 4)), found, plugins)


log_jobs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 4), st.integers(1, 25)),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(deadline=None)  # the first call compiles
@given(log_jobs, st.sampled_from(["none", "easy"]), st.sampled_from(["fifo", "wfp3", "f1"]))
def test_nodes_of_one_core_are_the_processors_of_a_log(
    drawn: list[tuple[int, int, int, int]], backfill: str, queue: str
) -> None:
    """The two worlds agree start by start, asked once (f1) or at each event (wfp3)."""
    log = log_of([(submit, run, procs, requested) for submit, run, procs, requested in drawn])
    order = registry(entry_points=False).queue_policy(queue)
    expected = replay(log, order, processors=4, backfilling=Backfilling(backfill))
    rows = np.lexsort((log.job, log.submit))
    count = len(log)
    jobs = world.NodeJobs(
        submit_s=log.submit[rows],
        run_s=log.run[rows],
        requested_s=log.requested[rows],
        nodes=log.procs[rows],
        cpus=np.ones(count),
        memory_mb=np.zeros(count),
        gpus=np.zeros(count),
        names=tuple(str(number) for number in log.job[rows].tolist()),
        users=("",) * count,
    )
    nodes = node_columns(NodesScenario(nodes=(NodeGroup(count=4),)))
    asked = QueueRanker(jobs, nodes, order)
    found = world.run_nodes(jobs, nodes, asked.order, backfill=Backfill(backfill))
    assert found.start_s.tolist() == expected.schedule.start[rows].tolist()


@pytest.mark.slow
@settings(deadline=None)  # the first call compiles
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20), st.integers(1, 9), st.integers(0, 4), st.integers(0, 8),
            st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0]), st.integers(1, 2),
        ),
        min_size=1,
        max_size=15,
    ),
    st.sampled_from([Backfill.NONE, Backfill.EASY, Backfill.ANY]),
    st.sampled_from(range(5)),
)  # fmt: skip
def test_no_node_is_ever_overcommitted_and_no_reservation_is_delayed(
    drawn: list[tuple[int, int, int, int, float, int]], backfill: Backfill, rule: int
) -> None:
    drawn = sorted(drawn)
    columns = np.array(drawn, dtype=np.float64).T
    count = len(drawn)
    jobs = world.NodeJobs(
        submit_s=columns[0], run_s=columns[1], requested_s=columns[1],
        nodes=columns[5].astype(np.int64), cpus=columns[2], memory_mb=columns[3], gpus=columns[4],
        names=tuple(map(str, range(count))), users=("",) * count,
    )  # fmt: skip
    nodes = node_columns(
        NodesScenario(nodes=(NodeGroup(count=2, cpu_cores=4, memory_mb=8, gpus=2),))
    )
    asked = QueueRanker(jobs, nodes, registry(entry_points=False).queue_policy("fifo"))
    found = world.run_nodes(jobs, nodes, asked.order, backfill=backfill, rule=rule)
    assert (found.start_s >= jobs.submit_s).all()
    held = np.repeat(np.arange(count), jobs.nodes)
    for now in found.start_s:
        runs = (found.start_s[held] <= now) & (now < found.end_s[held])
        for node in range(2):
            there = held[runs & (found.node == node)]
            assert len(set(there.tolist())) == len(there)
            assert jobs.cpus[there].sum() <= 4
            assert jobs.memory_mb[there].sum() <= 8
            assert jobs.gpus[there].sum() <= 2 + 1e-9
    if backfill is not Backfill.ANY:
        known = ~np.isnan(found.first_reservation_s)
        assert (found.start_s[known] <= found.first_reservation_s[known]).all()


def test_a_real_log_of_shared_gpus_is_replayed() -> None:
    """Alibaba 2023: 8,152 pods with shares of GPUs; the first 1,500 on a tenth of the nodes."""
    path = trace("alibaba_openb_pod_list_default.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["scheduled_time"]][:1500]
    jobs = tuple(
        job(
            row["name"], float(row["creation_time"]),
            max(float(row["deletion_time"]) - float(row["scheduled_time"]), 1.0),
            float(row["cpu_milli"]) / 1000, memory_mb=float(row["memory_mib"]),
            gpus=float(row["num_gpu"]) * float(row["gpu_milli"]) / 1000,
        )
        for row in rows
    )  # fmt: skip
    nodes = (
        NodeGroup(name="g2", count=55, cpu_cores=96, memory_mb=393216, gpus=8),
        NodeGroup(name="t4", count=40, cpu_cores=104, memory_mb=524288, gpus=2),
    )
    run = simulated(of(*jobs, nodes=nodes), "easy")
    assert len(run.jobs) == len(rows)
    assert (run.jobs.start_s >= run.jobs.submit_s).all()
    assert 0.0 < run.series.busy_share.max() <= 1.0
    bound_s = run.meta.figures["mean_turnaround_bound_s"]
    assert 0.0 < bound_s <= run.schedule.turnaround_s.mean() + 1e-6
    assert run.series.overloaded.max() <= 95


def test_what_the_rules_of_a_log_left_out_is_kept_with_the_run_and_reported(
    tmp_path: Path,
) -> None:
    lines = [swf_line(1, 0, 10, 1, requested=10), swf_line(2, -1, 10, 1, requested=10)]
    log = write_swf(tmp_path / "log.swf", lines)
    scenario = tmp_path / "log.toml"
    scenario.write_text(
        'name = "log"\nworld = "nodes"\nduration_s = 20\n'
        f'[nodes]\nlog = "{log}"\n[[nodes.nodes]]\ncpu_cores = 4\n'
    )
    note = "1 job without a submit time left out"
    words = ["sim", "run", str(scenario), "--policy", "fcfs", "--policy", "sjf"]
    found = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "runs")])
    assert found.exit_code == 0, found.output
    assert found.stderr.count(f"of the log: {note}\n") == 1
    files = [str(each) for each in (tmp_path / "runs").glob("*.npz")]
    again = CliRunner().invoke(app, ["sim", "report", *files, "--json"])
    assert json.loads(again.stdout)["notes"] == [note]
