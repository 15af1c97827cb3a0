"""One scheduling pass on nodes that jobs share: steps 7 to 13 for the world of nodes.

The state that was pulled is put into the world of ``edgeyard sim run`` again
(`edgeyard.training.worlds.nodes`), and the same pass is done there: the queue policy orders jobs;
then, job by job, the filters, the scorers, the evaluator and the aggregator choose nodes, as the
policy's ``backfill`` allows. So steps 8 to 13 happen once for each job that is considered; each of
them states when it began first, and how long it took in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.framework.policy import Backfill, Policy
from edgeyard.scheduler.framework.protocols import Proposal
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import CallKind, Fault, PluginCall
from edgeyard.scheduler.twin.document import Job, NodeParts, TwinData
from edgeyard.simulator.wording import count_of
from edgeyard.training.ste.steps import Decision
from edgeyard.training.worlds import nodes as world
from edgeyard.training.worlds.node_choice import NodeChoice, PluginChooser
from edgeyard.training.worlds.replay import PRIORITY
from edgeyard.training.worlds.simulated_nodes import QueueRanker, compiled_rule, refuse_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePass:
    """What a pass decided.

    Attributes:
        queue: Jobs in the order of the queue.
        decisions: In the order in which the jobs start.
        waiting: Why each of the others waits, first in the queue to last.
        choices: How nodes were chosen, job by job, with the id of the job.
        rewards: By scorer, the means over the choices.
        weights: Learned by then, by scorer.
        faults: Plugins that failed.
        calls: Calls of plugins, in order.
        ordered_s: When the queue was in order.
    """

    queue: Sequence[Job]
    decisions: list[Decision]
    waiting: dict[str, str]
    choices: Sequence[tuple[Job, NodeChoice]]
    rewards: Mapping[str, float]
    weights: Mapping[str, float]
    faults: Sequence[Fault]
    calls: Sequence[PluginCall]
    ordered_s: float

    def proposals(self) -> list[Proposal]:
        """Return the answers of all schedulers."""
        scored = [each.scores for _, each in self.choices if each.scores is not None]
        return [proposal for scores in scored for proposal in scores.proposals]

    def span(self, *kinds: CallKind) -> tuple[float, float] | None:
        """Return when calls of these kinds began, and that time plus their seconds; None: none."""
        its = [each for each in self.calls if each.kind in kinds]
        if not its:
            return None
        began_s = min(each.began_s for each in its)
        return began_s, began_s + sum(each.ended_s - each.began_s for each in its)


def decide_on_nodes(
    data: TwinData,
    policy: Policy,
    plugins: Plugins,
    *,
    weights: Mapping[str, float],
    monotonic_s: Callable[[], float],
    rewarded: Callable[[Mapping[str, float]], None],
    first: bool = False,
    by_plugins: bool = False,
) -> NodePass:
    """Decide who starts where, now.

    Args:
        data: With ``elapsed_s``.
        policy: Its queue policy, backfill, filters, scorers, evaluator and aggregator count.
        plugins: What it names.
        weights: Learned in earlier passes, by scorer.
        monotonic_s: Clock to time plugins by.
        rewarded: Called with the evaluator's rewards of each choice.
        first: The first pass of an episode: scorers without any answer are refused.
        by_plugins: The plugins are not the policy's own: no rule stands for them.

    Raises:
        InvalidInput: A job fits on no node, or something of the policy can't act here.
        ConfigError: The queue policy failed.
    """
    refuse_settings(policy)
    live = sorted(
        (each for each in data.jobs if each.status in ("pending", "running")),
        key=lambda each: _parts(each).number,
    )
    if not any(each.status == "pending" for each in live):
        return _nothing(weights, monotonic_s())
    jobs, nodes = _jobs(live), _nodes(data)
    there = world.NodesWorld(jobs, nodes)
    there.resume(_state(data, live, nodes))
    usage = {each.user_id: each.usage_board_s for each in data.users}

    def used(rows: world.Integers, now: float) -> world.Floats:
        return np.array([usage.get(jobs.users[row], 0.0) for row in rows.tolist()])

    seen: dict[str, list[float]] = {}

    def noted(rewards: Mapping[str, float]) -> None:
        for name, reward in rewards.items():
            seen.setdefault(name, []).append(reward)
        rewarded(rewards)

    rule = None if by_plugins else compiled_rule(policy)
    chooser = PluginChooser(
        jobs,
        nodes,
        policy,
        plugins,
        seed=data.seed,
        weights=weights,
        monotonic_s=monotonic_s,
        rewarded=noted,
        records=True,
    )
    if first and rule is None:
        chooser.refuse_silent_scorers()
    asker = QueueRanker(jobs, nodes, plugins.queue_policy, used, chooser.places)
    if len(there.queue) > 1:
        ordered = np.empty_like(there.queue)
        ordered[asker.order(there.queue, there.now_s, there.free_shares)] = there.queue
        there.queue = ordered
    queue = there.queue.tolist()
    ordered_s = monotonic_s()
    by_rule = rule == world.RANDOM  # the one rule whose draws are not the scorer's
    started = there.schedule(
        policy.backfill,
        world.FIRST_FIT if rule is None else rule,
        world.random_numbers_of(data.seed, nodes),
        None if by_rule else chooser,
    )
    return NodePass(
        queue=[live[row] for row in queue],
        decisions=[_decision(live[row], row, there, nodes, chooser) for row in started],
        waiting=_reasons(live, there, policy, chooser),
        choices=[(live[each.job], each) for each in chooser.choices],
        rewards={name: sum(each) / len(each) for name, each in seen.items()},
        weights=chooser.weights,
        faults=chooser.faults,
        calls=chooser.calls,
        ordered_s=ordered_s,
    )


def _nothing(weights: Mapping[str, float], now_s: float) -> NodePass:
    return NodePass(
        queue=[],
        decisions=[],
        waiting={},
        choices=[],
        rewards={},
        weights=weights,
        faults=[],
        calls=[],
        ordered_s=now_s,
    )


def _parts(job: Job) -> NodeParts:
    if job.parts is None:
        raise InvalidInput.at("/jobs", f"job {job.name!r} states no parts of nodes", "parts")
    return job.parts


def _jobs(live: Sequence[Job]) -> world.NodeJobs:
    parts = [_parts(each) for each in live]
    return world.NodeJobs(
        submit_s=np.array([each.submit_s for each in parts], dtype=np.float64),
        run_s=np.array([each.bound_s for each in parts], dtype=np.float64),
        requested_s=np.array(
            [each.user_time_s or part.bound_s for each, part in zip(live, parts, strict=True)],
            dtype=np.float64,
        ),
        nodes=np.array([each.nodes for each in parts], dtype=np.int64),
        cpus=np.array([each.cpus_req for each in live], dtype=np.float64),
        memory_mb=np.array([each.mem_req for each in live], dtype=np.float64),
        gpus=np.array([each.gpus for each in parts], dtype=np.float64),
        names=tuple(each.name for each in live),
        users=tuple(each.user_id for each in live),
        numbers=np.array([each.number for each in parts], dtype=np.int64),
    )


def _nodes(data: TwinData) -> world.NodeColumns:
    free = [each.free for each in data.nodes if each.free is not None]
    return world.NodeColumns(
        cpus=np.array([each.cpu_cores for each in data.nodes], dtype=np.float64),
        memory_mb=np.array([each.memory for each in data.nodes], dtype=np.float64),
        gpus=np.array([len(each.gpus) for each in free], dtype=np.int64),
        cpu_load=np.array([each.cpu_of_others for each in free], dtype=np.float64),
        memory_load=np.array([each.memory_of_others for each in free], dtype=np.float64),
        names=tuple(each.id for each in data.nodes),
    )


def _state(data: TwinData, live: Sequence[Job], nodes: world.NodeColumns) -> world.NodesState:
    row_of = {each.name: row for row, each in enumerate(live)}
    node_of = {name: row for row, name in enumerate(nodes.names)}
    free = [each.free for each in data.nodes if each.free is not None]
    gpus = np.full((len(nodes), int(nodes.gpus.max(initial=0))), -1.0)
    for row, each in enumerate(free):
        gpus[row, : len(each.gpus)] = each.gpus
    running = [each for each in data.jobs if each.status == "running"]
    release_s = np.full(len(live), np.nan)
    for job in running:
        release_s[row_of[job.name]] = _parts(job).ends_by_s
    assert data.elapsed_s is not None
    return world.NodesState(
        now_s=data.elapsed_s,
        free=np.array([[each.cpu_cores, each.memory] for each in free], dtype=np.float64),
        gpus=gpus,
        waiting=np.array(
            [row for row, each in enumerate(live) if each.status == "pending"], dtype=np.int64
        ),
        running=np.array([row_of[each.name] for each in running], dtype=np.int64),
        release_s=release_s,
        bound_s=np.array([_parts(each).bound_s for each in live], dtype=np.float64),
        taken=tuple(
            tuple(
                (node_of[name], bits)
                for name, bits in zip(_parts(each).node_ids, _parts(each).gpu_bits, strict=True)
            )
            for each in running
        ),
    )


def _decision(
    job: Job, row: int, there: world.NodesWorld, nodes: world.NodeColumns, chooser: PluginChooser
) -> Decision:
    its = there.nodes_of(row)
    choice = next((each for each in reversed(chooser.choices) if each.job == row), None)
    score: float | None = None
    if choice is not None and choice.scores is not None:
        place = int(np.flatnonzero(choice.eligible == its[0])[0])
        score = float(choice.scores.combined[place])
    names = [nodes.names[node] for node in its]
    return Decision(
        job_id=job.name, node_id=names[0], priority=PRIORITY, score=score, node_ids=names
    )


def _reasons(
    live: Sequence[Job], there: world.NodesWorld, policy: Policy, chooser: PluginChooser
) -> dict[str, str]:
    """Return why each job waits that has not started, first in the queue to last."""
    refused = {each.job for each in chooser.choices if each.scores is None}
    found: dict[str, str] = {}
    head = ""
    for row in there.queue.tolist():
        job = live[row]
        fitting, count = there.fitting(row), _parts(job).nodes
        if row in refused:
            found[job.name] = chooser.reason(row)
        elif fitting < count:
            have = "has" if fitting == 1 else "have"
            found[job.name] = (
                f"it takes {count_of(count, 'node')}, and {fitting} {have} enough room left"
            )
        elif head and policy.backfill is Backfill.NONE:
            found[job.name] = f"job {head} is ahead of it in the queue"
        elif head:
            found[job.name] = f"it would delay job {head}, which is ahead of it in the queue"
        else:
            found[job.name] = "no filter refuses it"
        head = head or job.name
    return found
