"""Scenarios of the world of nodes, under a policy of the service.

The policy's queue policy orders the jobs, its ``backfill`` says who may start before the first, and
its scorer of the greatest weight chooses nodes: ``best_fit`` the fullest ones, ``least_loaded`` and
``spread`` the emptiest, ``tetris`` those whose free resources the job is aligned with best,
``random`` any; without one of these it is the first that fits. Filters and mappings have no meaning
here. An SWF log states processors, but no nodes: its jobs share the cores of all nodes
(`edgeyard.scheduler.sim.replay`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard import __version__
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.framework.batch import Queue
from edgeyard.scheduler.framework.policy import Backfill, Policy
from edgeyard.scheduler.framework.protocols import QueuePolicy, is_time_invariant
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.sim import nodes as world
from edgeyard.scheduler.sim.bounds import lower_bound
from edgeyard.scheduler.sim.kernel.streams import stream
from edgeyard.scheduler.sim.mixes import JobMix
from edgeyard.scheduler.sim.replay import PRIORITY, USAGE_HALF_LIFE_S, Backfilling, replay
from edgeyard.scheduler.sim.replay import simulated_run as replayed_run
from edgeyard.scheduler.sim.runs import (
    COMPLETED,
    ENDED,
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)
from edgeyard.scheduler.sim.scenario import NodesScenario, Scenario, scenario_hash
from edgeyard.scheduler.sim.traces.swf import read_swf

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNITS = 10
"""Parts of a node that the sizes of the paper's mix count in."""

_RULES = {
    "best_fit": world.BEST_FIT,
    "least_loaded": world.EMPTIEST,
    "spread": world.EMPTIEST,
    "tetris": world.ALIGNED,
    "random": world.RANDOM,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DATE_S = 250_000_000_000.0


def simulate_nodes(
    scenario: Scenario,
    policy: Policy,
    plugins: Plugins,
    *,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> SimulatedRun:
    """Simulate a scenario of the world of nodes under a policy.

    Args:
        scenario: Its world must be ``nodes``.
        policy: Its queue policy, backfill and heaviest scorer count.
        plugins: What the policy names, from `Registry.resolve`.
        seed: Of the jobs that are drawn, and of random choices of nodes; None: the scenario's.
        progress: Called now and then with the share of the events that have happened, 0-1.

    Raises:
        InvalidInput: The scenario has another world, a job fits on no node, or the log is wrong.
        ConfigError: The queue policy raised an error, or its ranks are no permutation; or the
            policy's backfilling is not for this scenario.
    """
    began = time.perf_counter()
    described, drawn = scenario.nodes, scenario.seed if seed is None else seed
    if described is None:
        raise InvalidInput.at("nodes", f"is missing: the world is {scenario.world!r}")
    advanced = progress or (lambda share: None)
    if described.log:
        return _replayed(scenario, described, policy, plugins, drawn, advanced, began)
    if policy.backfill is Backfill.CONSERVATIVE:
        raise ConfigError(
            [
                f"policy {policy.name}: backfill = 'conservative' is only for SWF logs "
                "(nodes.log); here: none, easy or any"
            ]
        )
    nodes = node_columns(described)
    jobs = node_jobs(described, nodes, drawn)
    asked = OrderAsker(jobs, nodes, plugins.queue_policy)
    heaviest = max(policy.scorers, key=lambda each: each.weight, default=None)
    found = world.run_nodes(
        jobs,
        nodes,
        asked.order,
        time_invariant=is_time_invariant(plugins.queue_policy),
        backfill=policy.backfill,
        rule=world.FIRST_FIT if heaviest is None else _RULES.get(heaviest.name, world.FIRST_FIT),
        seed=drawn,
        ended=asked.charge,
        advanced=advanced,
    )
    figures = {"processors": float(nodes.cpus.sum()), **_bounds(jobs, nodes)}
    wall_s = time.perf_counter() - began
    meta = _meta(scenario, policy, drawn, wall_s, 2 * len(jobs), found.end_s, figures)
    return _run(meta, jobs, nodes, found)


def _bounds(jobs: world.NodeJobs, nodes: world.NodeColumns) -> dict[str, float]:
    """Return what no schedule can be better than: the highest bound of those by one resource."""
    bounds = [
        lower_bound(jobs.submit_s, jobs.run_s, np.maximum(needs * jobs.nodes / total, 1e-12))
        for needs, total in (
            (jobs.cpus, nodes.cpus.sum()),
            (jobs.memory_mb, nodes.memory_mb.sum()),
            (jobs.gpus, float(nodes.gpus.sum())),
        )
        if total > 0.0
    ]
    return {
        "mean_turnaround_bound_s": max(each.mean_turnaround_s for each in bounds),
        "makespan_bound_s": max(each.makespan_s for each in bounds),
    }


def node_columns(described: NodesScenario) -> world.NodeColumns:
    """Return the nodes of a scenario in columns.

    Raises:
        InvalidInput: A node has too many GPUs.
    """
    groups = [(each, number) for each in described.nodes for number in range(each.count)]
    for group in described.nodes:
        if group.gpus > world.MAX_GPUS:
            raise InvalidInput.at("nodes.gpus", f"is {group.gpus}", f"at most {world.MAX_GPUS}")
    names = [f"{each.name}-{number + 1}" for each, number in groups]
    if len(set(names)) < len(names):
        names = [f"{name}-{place}" for place, name in enumerate(names, 1)]
    return world.NodeColumns(
        cpus=np.array([each.cpu_cores for each, _ in groups], dtype=np.float64),
        memory_mb=np.array([each.memory_mb for each, _ in groups], dtype=np.float64),
        gpus=np.array([each.gpus for each, _ in groups], dtype=np.int64),
        cpu_load=np.array([each.cpu_load for each, _ in groups], dtype=np.float64),
        memory_load=np.array([each.memory_load for each, _ in groups], dtype=np.float64),
        names=tuple(names),
    )


def node_jobs(described: NodesScenario, nodes: world.NodeColumns, seed: int) -> world.NodeJobs:
    """Return the jobs of a scenario in columns, in order of arrival; stated ones and drawn ones.

    The sizes of the paper's mix are tenths of the smallest node: first of its cores, then of its
    memory, then of its GPUs.
    """
    rows = sorted(
        (
            (
                each.submit_s, each.run_s, each.requested_s or each.run_s, each.nodes, each.cpus,
                each.memory_mb, each.gpus, each.job_id, each.user,
            )
            for each in described.jobs
        ),
        key=lambda row: row[0],
    )  # fmt: skip
    mix = described.mix
    if mix is not None:
        drawn = JobMix(
            rate=mix.rate, resources=mix.resources, short_share=mix.short_share, short=mix.short,
            long=mix.long, dominant=mix.dominant, other=mix.other,
        )  # fmt: skip
        lengths, sizes = drawn.arrivals(stream(seed, "arrivals"), mix.steps)
        least = np.array([nodes.cpus.min(), nodes.memory_mb.min(), float(nodes.gpus.min())])
        needs = np.zeros((mix.steps, 3))
        needs[:, : mix.resources] = sizes[:, :3] / UNITS * least[: mix.resources]
        needs[:, 2] = np.where(needs[:, 2] < 1.0, needs[:, 2], np.ceil(needs[:, 2]))
        for step in np.flatnonzero(lengths).tolist():
            length_s = float(lengths[step]) * mix.step_s
            asked = needs[step].tolist()
            rows.append((step * mix.step_s, length_s, length_s, 1, *asked, f"drawn-{step}", ""))
        rows.sort(key=lambda row: row[0])
    if not rows:
        raise InvalidInput.at(
            "nodes", "no job arrives with this seed", "more steps or another seed"
        )
    submit, run_s, requested, count, cpus, memory, gpus, names, users = zip(*rows, strict=True)
    return world.NodeJobs(
        submit_s=np.array(submit, dtype=np.float64),
        run_s=np.array(run_s, dtype=np.float64),
        requested_s=np.array(requested, dtype=np.float64),
        nodes=np.array(count, dtype=np.int64),
        cpus=np.array(cpus, dtype=np.float64),
        memory_mb=np.array(memory, dtype=np.float64),
        gpus=np.array(gpus, dtype=np.float64),
        names=tuple(names),
        users=tuple(users),
    )


class OrderAsker:
    """Asks a queue policy for the order of jobs, with the columns that it would have in a lab."""

    def __init__(self, jobs: world.NodeJobs, nodes: world.NodeColumns, policy: QueuePolicy) -> None:
        """Take the jobs, in order of arrival, and who orders them."""
        self._jobs, self._policy = jobs, policy
        totals = np.array([nodes.cpus.sum(), nodes.memory_mb.sum(), float(nodes.gpus.sum())])
        needs = np.column_stack((jobs.cpus, jobs.memory_mb, jobs.gpus)) * jobs.nodes[:, None]
        self._needs = needs / np.where(totals > 0.0, totals, 1.0)
        self._processors = np.maximum(np.ceil(needs[:, 0]), 1.0).astype(np.int64)
        width = len(str(len(jobs)))
        self._ids = [f"{row:0{width}}" for row in range(len(jobs))]
        _, self._user = np.unique(np.array(jobs.users), return_inverse=True)
        self._usage = np.zeros(int(self._user.max(initial=0)) + 1)
        self._used_at = 0.0

    def charge(self, job: int, now: float) -> None:
        """Add what a job used to its user's usage: core-seconds, as they fade."""
        self._usage *= 0.5 ** ((now - self._used_at) / USAGE_HALF_LIFE_S)
        self._used_at = now
        self._usage[self._user[job]] += float(self._jobs.run_s[job]) * int(self._processors[job])

    def order(self, rows: Integers, now: float, free: Floats) -> NDArray[np.intp]:
        """Return the rank of each of these jobs.

        Raises:
            ConfigError: The policy raised an error, or its ranks are no permutation.
        """
        ages, count, listed = now - self._jobs.submit_s[rows], len(rows), rows.tolist()
        fading = 0.5 ** (max(now - self._used_at, 0.0) / USAGE_HALF_LIFE_S)
        queue = Queue(
            now=_EPOCH + timedelta(seconds=min(now, _MAX_DATE_S)),
            ids=tuple(self._ids[row] for row in listed),
            users=tuple(self._jobs.users[row] for row in listed),
            priorities=np.full(count, PRIORITY),
            ages_s=ages,
            waits_s=ages,
            slacks_s=np.full(count, np.nan),
            partly_running=np.zeros(count, dtype=bool),
            usage_board_s=self._usage[self._user[rows]] * fading,
            shares=np.ones(count),
            submit_times_s=self._jobs.submit_s[rows],
            processors=self._processors[rows],
            guard_s=inf,
            estimate=lambda: self._jobs.requested_s[rows],
            needs=self._needs[rows],
            free=free,
        )
        name = getattr(self._policy, "name", type(self._policy).__name__)
        try:
            ranks = np.asarray(self._policy.order(queue))
        except Exception as error:  # of an author we don't know: named, not passed on
            raise ConfigError(
                [f"queue policy {name!r} failed at second {now:g}: {error!r}"]
            ) from error
        if (
            ranks.shape != (count,)
            or not np.issubdtype(ranks.dtype, np.integer)
            or not np.array_equal(np.sort(ranks), np.arange(count))
        ):
            raise ConfigError(
                [
                    f"queue policy {name!r} did not rank the {count} jobs that waited at second "
                    f"{now:g} (expected: each of 0 to {count - 1} once)"
                ]
            )
        return ranks.astype(np.intp, copy=False)


def _replayed(
    scenario: Scenario,
    described: NodesScenario,
    policy: Policy,
    plugins: Plugins,
    seed: int,
    advanced: Callable[[float], None],
    began: float,
) -> SimulatedRun:
    """Replay the scenario's log on the cores of all nodes."""
    if policy.backfill is Backfill.ANY:
        raise ConfigError(
            [
                f"policy {policy.name}: backfill = 'any' is not for SWF logs; "
                "here: none, easy or conservative"
            ]
        )
    log = read_swf(Path(described.log))
    processors = sum(each.count * each.cpu_cores for each in described.nodes)
    found = replay(
        log,
        plugins.queue_policy,
        processors=processors,
        backfilling=Backfilling(policy.backfill.value),
        advanced=advanced,
    )
    run = replayed_run(
        log,
        found,
        scenario=scenario.name,
        policy=policy.name,
        processors=processors,
        wall_s=time.perf_counter() - began,
    )
    wall_s, end_s = time.perf_counter() - began, found.schedule.end
    meta = _meta(scenario, policy, seed, wall_s, found.events, end_s, run.meta.figures)
    return replace(run, meta=meta)


def _meta(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    wall_s: float,
    events: int,
    end_s: Floats,
    figures: dict[str, float],
) -> RunMeta:
    return RunMeta(
        scenario=scenario.name,
        scenario_hash=scenario_hash(scenario),
        world=scenario.world,
        policy=policy.name,
        seed=seed,
        version=__version__,
        wall_s=wall_s,
        cycles=events,
        events=events,
        events_sha256=hashlib.sha256(np.ascontiguousarray(end_s).tobytes()).hexdigest(),
        figures=figures,
    )


def _run(
    meta: RunMeta, jobs: world.NodeJobs, nodes: world.NodeColumns, found: world.NodesSchedule
) -> SimulatedRun:
    count = len(jobs)
    held = np.repeat(np.arange(count), jobs.nodes)
    by_start = np.argsort(found.start_s[held], kind="stable")
    changes = np.flatnonzero(np.diff(found.time_s, append=np.inf) > 0.0)  # the last of an instant
    return SimulatedRun(
        meta=meta,
        jobs=JobColumns(
            job=np.array(jobs.names, dtype=np.str_),
            user=np.array(jobs.users, dtype=np.str_),
            submit_s=jobs.submit_s,
            start_s=found.start_s,
            end_s=found.end_s,
            board=found.node[found.first[:-1]],
            status=np.full(count, COMPLETED, dtype=np.int64),
            attempts=np.ones(count, dtype=np.int64),
            preemptions=np.zeros(count, dtype=np.int64),
            deadline_s=np.full(count, np.nan),
            procs=np.maximum(np.ceil(jobs.cpus * jobs.nodes), 1.0).astype(np.int64),
        ),
        occupancy=OccupancyColumns(
            board=found.node[by_start],
            job=held[by_start].astype(np.int64),
            from_s=found.start_s[held][by_start],
            to_s=found.end_s[held][by_start],
            how=np.full(len(held), ENDED, dtype=np.int64),
        ),
        series=SeriesColumns(
            time_s=found.time_s[changes],
            pending=found.pending[changes],
            running=found.running[changes],
            busy_share=found.busy_share[changes],
            overloaded=found.overloaded[changes],
        ),
        boards=nodes.names,
        families=("",) * len(nodes),
    )
