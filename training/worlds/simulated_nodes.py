"""Scenarios of the world of nodes, under a policy of the service.

The policy's queue policy orders the jobs, its ``backfill`` says who may start before the first, and
its filters and scorers choose nodes: ``best_fit`` the fullest ones, ``least_loaded`` and ``spread``
the emptiest, ``tetris`` those whose free resources the job is aligned with best, ``random`` any;
without a scorer it is the first that fits. One of these alone is a compiled rule; for all else the
service's own code asks the plugins for each job (`edgeyard.training.worlds.node_choice`), and gives
the same starts where the rules know the answer. What can't act here is refused. An SWF log states
processors, but no nodes: its jobs share the cores of all nodes (`edgeyard.training.worlds.replay`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard import __version__
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.framework.batch import Places, Queue
from edgeyard.scheduler.framework.policy import MAPPINGS, Backfill, Policy
from edgeyard.scheduler.framework.protocols import QueuePolicy, is_time_invariant
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.mixes import JobMix
from edgeyard.simulator.runs import (
    COMPLETED,
    ENDED,
    PENDING,
    RUNNING,
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)
from edgeyard.simulator.scenario import NodesScenario, Scenario, scenario_hash
from edgeyard.training.worlds import nodes as world
from edgeyard.training.worlds.bounds import lower_bound
from edgeyard.training.worlds.node_choice import EPOCH, MAX_DATE_S, PluginChooser
from edgeyard.training.worlds.replay import (
    PRIORITY,
    USAGE_HALF_LIFE_S,
    Backfilling,
    ranks_of,
    replay,
)
from edgeyard.training.worlds.replay import simulated_run as replayed_run
from edgeyard.training.worlds.swf import read_swf

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNITS = 10
"""Units per node, in which the sizes of the paper's mix are stated."""

_RULES = {
    "best_fit": world.BEST_FIT,
    "least_loaded": world.EMPTIEST,
    "spread": world.EMPTIEST,
    "tetris": world.ALIGNED,
    "random": world.RANDOM,
}
_PASSIVE_FILTERS = frozenset(
    {
        # All nodes are known, alike in what they can run, and offer the one engine and type.
        "inventory", "family", "engine", "type", "declared_type",
        # Jobs state no node, no constraint, no deadline and no storage; no time is predicted.
        "target_uid", "constraints", "user_time", "deadline", "storage",
        # Refuses nodes with too little free memory, on which no job is placed anyway.
        "ram",
        # Users have neither credits nor a quota.
        "budget", "quota",
        # Nodes are always online and healthy, nobody takes them out, and they run several jobs.
        "drained", "quarantine", "staleness", "health", "lease", "busy", "progress",
    }
)  # fmt: skip
"""Filters that refuse no node in this world on which a job would fit; all others are asked."""

_SAME_PROCESSORS = _RULES.keys() | {
    "fastest", "reliable", "affinity", "campaign_spread", "host_load"
}  # fmt: skip
"""Scorers that make no difference on a log, which states processors alone; others are refused."""


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
        policy: Its queue policy, backfill, filters, scorers, evaluator and aggregator count.
        plugins: What the policy names, from `Registry.resolve`.
        seed: Of the jobs that are drawn, and of random choices of nodes; None: the scenario's.
        progress: Called now and then with the share of the events that have happened, 0-1.

    Raises:
        InvalidInput: The scenario has another world, a job fits on no node, the log is wrong, or
            something of the policy can't act here.
        ConfigError: A plugin failed, or lets a job never start.
    """
    began = time.perf_counter()
    described, drawn = scenario.nodes, scenario.seed if seed is None else seed
    if described is None:
        raise InvalidInput.at("nodes", f"is missing: the world is {scenario.world!r}")
    advanced = progress or (lambda share: None)
    refuse_settings(policy, log=bool(described.log))
    if described.log:
        return _replayed(scenario, described, policy, plugins, drawn, advanced, began)
    nodes = node_columns(described)
    jobs = node_jobs(described, nodes, drawn)
    world.refuse_large_jobs(jobs, nodes)
    rule = compiled_rule(policy)
    chooser = PluginChooser(jobs, nodes, policy, plugins, seed=drawn)
    if rule is None:
        chooser.refuse_silent_scorers()
    asker = QueueRanker(jobs, nodes, plugins.queue_policy, places=chooser.places)
    found = world.run_nodes(
        jobs,
        nodes,
        asker.order,
        time_invariant=is_time_invariant(plugins.queue_policy),
        backfill=policy.backfill,
        rule=world.FIRST_FIT if rule is None else rule,
        chooser=chooser if rule is None else None,
        seed=drawn,
        ended=asker.charge,
        advanced=advanced,
    )
    return nodes_run(scenario, policy, drawn, jobs, nodes, found, time.perf_counter() - began)


def compiled_rule(policy: Policy) -> int | None:
    """Return the compiled rule that chooses as a policy does; None: its plugins have to be asked.

    With one scorer alone neither its weight nor an evaluator makes a difference.
    """
    if not _PASSIVE_FILTERS.issuperset(policy.filters) or policy.aggregator != "expected_cost":
        return None
    if not policy.scorers:
        if policy.fallback is None:
            return world.FIRST_FIT
        return _RULES.get(policy.fallback)
    first = policy.scorers[0]
    if len(policy.scorers) > 1 or first.weight <= 0.0 or first.file or first.url or first.options:
        return None
    return _RULES.get(first.name)


def refuse_settings(policy: Policy, *, log: bool = False) -> None:
    """Check that all of a policy that could decide otherwise acts in this world.

    Its planner ``expected_cost`` is not used: it weighs a busy board against a free one, and the
    boards of this world are never busy as a whole.

    Raises:
        InvalidInput: Something can't.
    """
    where = f"--policy {policy.name}"
    world_of = "an SWF log (nodes.log)" if log else "nodes"
    if policy.planner in MAPPINGS:
        raise InvalidInput.at(
            where,
            f"planner = '{policy.planner.value}' has no effect on {world_of}: it chooses "
            "between boards that each run one benchmark at a time",
            "planner = 'none' or 'expected_cost', or a lab",
        )
    if policy.quiet_s:
        raise InvalidInput.at(
            where, f"quiet_s has no effect on {world_of}", "quiet_s = 0, or a lab"
        )
    if policy.max_joint_jobs:
        raise InvalidInput.at(
            where,
            f"max_joint_jobs = {policy.max_joint_jobs} has no effect on {world_of}: jobs take "
            "parts of "
            "nodes",
            "max_joint_jobs = 0, or a lab",
        )
    if policy.cool_down_s:
        raise InvalidInput.at(
            where, f"cool_down_s has no effect on {world_of}", "cool_down_s = 0, or a lab"
        )
    wrong = Backfill.ANY if log else Backfill.CONSERVATIVE
    if policy.backfill is wrong:
        others = "none, easy or conservative" if log else "none, easy or any"
        raise InvalidInput.at(
            where, f"backfill = '{policy.backfill.value}' has no effect on {world_of}", others
        )
    fallback = [] if policy.fallback is None else [policy.fallback]
    named = [*(each.name for each in policy.scorers), *fallback, *policy.filters]
    acting = next((each for each in named if each not in _PASSIVE_FILTERS | _SAME_PROCESSORS), "")
    if log and (acting or policy.aggregator != "expected_cost"):
        what = f"{acting!r}" if acting else f"the aggregator {policy.aggregator!r}"
        raise InvalidInput.at(
            where,
            f"{what} has no effect on {world_of}: it states processors, but no nodes to choose "
            "between",
            f"one of {', '.join(sorted(_RULES))}, which make no difference here; or nodes with "
            "jobs of their own",
        )


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
    names = [
        each.node_ids[number] if each.node_ids else f"{each.name}-{number + 1}"
        for each, number in groups
    ]
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
        smallest = np.array([nodes.cpus.min(), nodes.memory_mb.min(), float(nodes.gpus.min())])
        needs = np.zeros((mix.steps, 3))
        needs[:, : mix.resources] = sizes[:, :3] / UNITS * smallest[: mix.resources]
        needs[:, 2] = np.where(needs[:, 2] < 1.0, needs[:, 2], np.ceil(needs[:, 2]))
        for step in np.flatnonzero(lengths).tolist():
            length_s = float(lengths[step]) * mix.step_s
            request = needs[step].tolist()
            rows.append((step * mix.step_s, length_s, length_s, 1, *request, f"drawn-{step}", ""))
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


class CoreUsage:
    """Core-seconds that users have used, as they fade."""

    def __init__(self, jobs: world.NodeJobs) -> None:
        """Begin with none."""
        self._jobs = jobs
        self._processors = _processors(jobs)
        self._names, self._user = np.unique(np.array(jobs.users), return_inverse=True)
        self._usage = np.zeros(int(self._user.max(initial=0)) + 1)
        self._used_at = 0.0

    def charge(self, job: int, now: float) -> None:
        """Add what a job used to its user's usage."""
        self._usage *= 0.5 ** ((now - self._used_at) / USAGE_HALF_LIFE_S)
        self._used_at = now
        self._usage[self._user[job]] += float(self._jobs.run_s[job]) * int(self._processors[job])

    def of(self, rows: Integers, now: float) -> Floats:
        """Return the usage of the users of jobs, shape (rows,)."""
        found: Floats = self._now(now)[self._user[rows]]
        return found

    def by_user(self, now: float) -> dict[str, float]:
        """Return the usage of each user."""
        return dict(zip(self._names.tolist(), self._now(now).tolist(), strict=True))

    def _now(self, now: float) -> Floats:
        found: Floats = self._usage * 0.5 ** (max(now - self._used_at, 0.0) / USAGE_HALF_LIFE_S)
        return found


def _processors(jobs: world.NodeJobs) -> Integers:
    return np.maximum(np.ceil(jobs.cpus * jobs.nodes), 1.0).astype(np.int64)


class QueueRanker:
    """Asks a queue policy for the order of jobs, with the columns that it would have in a lab."""

    def __init__(
        self,
        jobs: world.NodeJobs,
        nodes: world.NodeColumns,
        policy: QueuePolicy,
        usage: Callable[[Integers, float], Floats] | None = None,
        places: Callable[[Integers, float], Places] | None = None,
    ) -> None:
        """Take the jobs, in order of arrival, and who orders them.

        Args:
            jobs: All that may wait.
            nodes: Of which free shares are shares.
            policy: Orders them.
            usage: Returns what the users of jobs have used by a time; None: what `charge` adds up.
            places: Returns where jobs could run if nothing else did; None: no policy asks for it.
        """
        self._jobs, self._policy = jobs, policy
        totals = np.array([nodes.cpus.sum(), nodes.memory_mb.sum(), float(nodes.gpus.sum())])
        needs = np.column_stack((jobs.cpus, jobs.memory_mb, jobs.gpus)) * jobs.nodes[:, None]
        self._needs = needs / np.where(totals > 0.0, totals, 1.0)
        self._processors = _processors(jobs)
        self._ids = [f"{jobs.number(row):08}" for row in range(len(jobs))]
        self._used = CoreUsage(jobs)
        self._usage = usage or self._used.of
        self._places = places

    def charge(self, job: int, now: float) -> None:
        """Add what a job used to its user's usage: core-seconds, as they fade."""
        self._used.charge(job, now)

    def order(self, rows: Integers, now: float, free: Floats) -> NDArray[np.intp]:
        """Return the rank of each of these jobs.

        Raises:
            ConfigError: The policy raised an error, or its ranks are no permutation.
        """
        ages, count, listed = now - self._jobs.submit_s[rows], len(rows), rows.tolist()
        queue = Queue(
            now=EPOCH + timedelta(seconds=min(now, MAX_DATE_S)),
            ids=tuple(self._ids[row] for row in listed),
            users=tuple(self._jobs.users[row] for row in listed),
            priorities=np.full(count, PRIORITY),
            ages_s=ages,
            waits_s=ages,
            slacks_s=np.full(count, np.nan),
            partly_running=np.zeros(count, dtype=bool),
            usage_board_s=self._usage(rows, now),
            shares=np.ones(count),
            submit_times_s=self._jobs.submit_s[rows],
            processors=self._processors[rows],
            guard_s=inf,
            estimate=lambda: self._jobs.requested_s[rows],
            needs=self._needs[rows],
            free=free,
            list_places=None if self._places is None else partial(self._places, rows, now),
        )
        return ranks_of(self._policy, queue, f"second {now:g}")


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
    return replace(run, meta=replace(meta, notes=run.meta.notes))


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


def nodes_run(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    jobs: world.NodeJobs,
    nodes: world.NodeColumns,
    found: world.NodesSchedule,
    wall_s: float,
) -> SimulatedRun:
    """Return a schedule as a run.

    Args:
        scenario: What was simulated.
        policy: Decided.
        seed: Of the drawn jobs.
        jobs: All of them; those that have not arrived yet when it was cut short are left out.
        nodes: All of them.
        found: Outcomes of the jobs.
        wall_s: Real seconds that it took.
    """
    whole = len(found.time_s) == 2 * len(jobs)
    now = np.inf if whole else float(found.time_s[-1]) if len(found.time_s) else -np.inf
    arrived = len(jobs) if whole else int((jobs.submit_s <= now).sum())
    ended = found.end_s <= now
    figures = {"processors": float(nodes.cpus.sum()), **_bounds(jobs, nodes)}
    meta = _meta(scenario, policy, seed, wall_s, len(found.time_s), found.end_s, figures)
    run = _run(meta, jobs, nodes, found, ended)
    if whole:
        return run
    columns = {each.name: getattr(run.jobs, each.name)[:arrived] for each in fields(run.jobs)}
    return replace(run, jobs=JobColumns(**columns))


def _run(
    meta: RunMeta,
    jobs: world.NodeJobs,
    nodes: world.NodeColumns,
    found: world.NodesSchedule,
    ended: NDArray[np.bool_],
) -> SimulatedRun:
    count = len(jobs)
    held = np.repeat(np.arange(count), jobs.nodes)
    by_start = np.argsort(found.start_s[held], kind="stable")
    by_start = by_start[ended[held][by_start]]
    started = ~np.isnan(found.start_s)
    changes = np.flatnonzero(np.diff(found.time_s, append=np.inf) > 0.0)  # the last of an instant
    return SimulatedRun(
        meta=meta,
        jobs=JobColumns(
            job=np.array(jobs.names, dtype=np.str_),
            user=np.array(jobs.users, dtype=np.str_),
            submit_s=jobs.submit_s,
            start_s=found.start_s,
            end_s=np.where(ended, found.end_s, np.nan),
            board=found.node[found.first[:-1]],
            status=np.where(ended, COMPLETED, np.where(started, RUNNING, PENDING)),
            attempts=started.astype(np.int64),
            preemptions=np.zeros(count, dtype=np.int64),
            deadline_s=np.full(count, np.nan),
            procs=np.maximum(np.ceil(jobs.cpus * jobs.nodes), 1.0).astype(np.int64),
        ),
        occupancy=OccupancyColumns(
            board=found.node[by_start],
            job=held[by_start].astype(np.int64),
            from_s=found.start_s[held][by_start],
            to_s=found.end_s[held][by_start],
            how=np.full(len(by_start), ENDED, dtype=np.int64),
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
