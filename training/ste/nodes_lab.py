"""The nodes of a scenario as the controller sees them: they pause where a scheduling pass is due.

The world is the one of ``edgeyard sim run`` (`edgeyard.training.worlds.nodes`): jobs take parts of
nodes, and there is a pass after each event while jobs wait. Only the decisions come from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.twin.document import (
    FreeResources,
    Job,
    Node,
    NodeParts,
    TwinData,
    User,
)
from edgeyard.simulator.lab.world import BEGIN
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario
from edgeyard.training.ste.steps import Decision, StoppedJob
from edgeyard.training.worlds.nodes import Floats, NodesWorld, starvation_error
from edgeyard.training.worlds.simulated_nodes import (
    CoreUsage,
    node_columns,
    node_jobs,
    nodes_run,
    refuse_settings,
)

_MAX_DATE_S = 250_000_000_000.0


class NodesLab:
    """An episode on simulated nodes, which several jobs share.

    Attributes:
        is_due: A pass is due: a decision on the present state is awaited.
        rounds: Decisions that were carried out.
        ended: Jobs that have ended.
    """

    def __init__(self, scenario: Scenario, policy: Policy, *, seed: int) -> None:
        """Draw what arrives; nothing has happened yet.

        Args:
            scenario: Its world must be ``nodes``, with jobs of its own.
            policy: Of the scheduler; what can't act on nodes is refused.
            seed: Of the jobs that are drawn, and of random choices.

        Raises:
            InvalidInput: The scenario is of another world or takes its jobs from a log, a job fits
                on no node, or something of the policy can't act here.
        """
        described = scenario.nodes
        if described is None:
            raise InvalidInput.at(f"{scenario.name}: world", f"is {scenario.world!r}", "nodes")
        if described.log:
            raise InvalidInput.at(
                f"{scenario.name}: nodes.log",
                "states processors, but no nodes to choose between",
                "nodes with jobs or a mix; for a log: edgeyard sim run, edgeyard sim replay",
            )
        refuse_settings(policy)
        self.scenario, self._policy, self._seed = scenario, policy, seed
        self._nodes = node_columns(described)
        self._jobs = node_jobs(described, self._nodes, seed)
        names = self._jobs.names
        self._row_of = {name: row for row, name in enumerate(names)}
        if len(self._row_of) < len(names):
            twice = next(name for row, name in enumerate(names) if self._row_of[name] != row)
            raise InvalidInput.at(
                f"{scenario.name}: nodes.jobs",
                f"job_id {twice!r} is also that of a drawn job",
                "another job_id",
            )
        self._node_of = {name: row for row, name in enumerate(self._nodes.names)}
        self._world = NodesWorld(self._jobs, self._nodes)
        self._usage = CoreUsage(self._jobs)
        self.is_due, self.rounds, self.ended = False, 0, 0
        self._new_ends: list[int] = []

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._world.now_s

    @property
    def share(self) -> float:
        """Share of the jobs that have ended."""
        return self.ended / len(self._jobs)

    def until_decision(self) -> bool:
        """Let time go on until a pass is due; return whether one is: otherwise all have ended."""
        world = self._world
        while not self.is_due and world.events < world.total_events:
            job, arrived = world.advance()
            if arrived:
                world.queue = np.append(world.queue, job)
            else:
                self._usage.charge(job, world.now_s)
                self._new_ends.append(job)
                self.ended += 1
            self.is_due = len(world.queue) > 0
            if not self.is_due:
                world.note()
        return self.is_due

    def state(self, *, run: str = "", episode: int = 0) -> TwinData:
        """Return nodes and jobs as a scheduler sees them now."""
        world, nodes = self._world, self._nodes
        state = world.state()
        columns = zip(
            nodes.names,
            nodes.cpus.tolist(),
            nodes.memory_mb.tolist(),
            nodes.cpu_load.tolist(),
            nodes.memory_load.tolist(),
            state.free.tolist(),
            state.gpus.tolist(),
            strict=True,
        )
        used = {node for its in state.taken for node, _ in its}
        shown = [
            Node(
                id=name,
                cpu_cores=cpus,
                memory=memory_mb,
                cpu_load=max(cpus - free[0], 0.0),
                memory_load=min(max(100.0 * (memory_mb - free[1]) / memory_mb, 0.0), 100.0)
                if memory_mb
                else 0.0,
                busy=row in used,
                free=FreeResources(
                    cpu_cores=free[0],
                    memory=free[1],
                    gpus=[each for each in gpus if each >= 0.0],
                    cpu_of_others=cpu_of_others,
                    memory_of_others=memory_of_others,
                ),
            )
            for row, (name, cpus, memory_mb, cpu_of_others, memory_of_others, free, gpus) in (
                enumerate(columns)
            )
        ]
        ended = [self._job(row, "completed", state.bound_s) for row in self._new_ends]
        self._new_ends = []
        waiting = [self._job(row, "pending", state.bound_s) for row in state.waiting.tolist()]
        running = []
        for row, its in zip(state.running.tolist(), state.taken, strict=True):
            job = self._job(row, "running", state.bound_s)
            assert job.parts is not None
            job.parts.ends_by_s = float(state.release_s[row])
            job.parts.gpu_bits = [bits for _, bits in its]
            running.append(job)
        users = self._usage.by_user(world.now_s)
        return TwinData(
            nodes=shown,
            jobs=[*ended, *waiting, *running],
            users=[User(user_id=name, usage_board_s=used_s) for name, used_s in users.items()],
            source=f"scenario {self.scenario.name}",
            run=run,
            episode=episode,
            round=self.rounds,
            now=_time(world.now_s),
            seed=self._seed,
            elapsed_s=world.now_s,
        )

    def carry_out(
        self,
        decisions: Sequence[Decision],
        stopped: Iterable[StoppedJob] = (),
        waiting: Mapping[str, str] | None = None,
        never: Iterable[str] = (),
    ) -> None:
        """Start what was decided on the present state.

        Args:
            decisions: In the order in which jobs start.
            stopped: Nobody: jobs on nodes are not preempted.
            waiting: By job that was not placed, first in the queue to last: why.
            never: Not used: each job fits on the empty nodes.

        Raises:
            InvalidInput: A decision names a job that does not wait, or nodes that can't take it, or
                a job is stopped. The first wrong one ends the episode.
            ConfigError: Jobs wait for ever, because nothing runs and nothing is to come.
        """
        for row, victim in enumerate(stopped):
            raise InvalidInput.at(
                f"/stopped/{row}",
                f"job {victim.job_id!r} can't be preempted",
                "an empty list: jobs on nodes are not preempted",
            )
        for row, each in enumerate(decisions):
            self._start(f"/decisions/{row}", each)
        world = self._world
        if self.is_due:
            world.note()
            if world.is_stuck and len(world.queue):
                reasons = waiting or {}
                first = next((name for name in reasons if name in self._row_of), "")
                row = self._row_of.get(first, int(world.queue[0]))
                others = world.queue[world.queue != row]
                reason = reasons.get(first, "nothing was decided")
                queue = np.concatenate(([row], others)).astype(np.int64)
                raise ConfigError([starvation_error(self._jobs, queue, world.now_s, reason)])
        self.is_due = False
        self.rounds += 1

    def result(self, wall_s: float = 0.0) -> SimulatedRun:
        """Return the outcomes of the jobs that have arrived.

        Args:
            wall_s: Real seconds that the simulation took.
        """
        found = self._world.result()
        return nodes_run(
            self.scenario, self._policy, self._seed, self._jobs, self._nodes, found, wall_s
        )

    def _start(self, pointer: str, decision: Decision) -> None:
        job = self._row_of.get(decision.job_id, -1)
        if job not in self._world.queue:
            raise InvalidInput.at(pointer, f"job {decision.job_id!r} is not waiting")
        names = decision.node_ids or [decision.node_id]
        unknown = next((name for name in names if name not in self._node_of), None)
        if unknown is not None:
            raise InvalidInput.at(pointer, f"there is no node {unknown!r}")
        try:
            self._world.start(job, [self._node_of[name] for name in names])
        except ValueError as error:
            raise InvalidInput.at(pointer, str(error)) from error

    def _job(self, row: int, status: str, bound_s: Floats) -> Job:
        jobs, world = self._jobs, self._world
        node_ids: list[str] = []
        start_s = world.start_s(row)
        if status != "pending":
            node_ids = [self._nodes.names[node] for node in world.nodes_of(row)]
        ended = status == "completed"
        run_s = float(jobs.run_s[row])
        return Job(
            job_id=jobs.names[row],
            cpus_req=float(jobs.cpus[row]),
            mem_req=float(jobs.memory_mb[row]),
            time_run=0.0 if status == "pending" else run_s if ended else world.now_s - start_s,
            status=status,
            node_id=node_ids[0] if node_ids else None,
            user_id=jobs.users[row],
            submit_time=_time(float(jobs.submit_s[row])),
            started_at=None if status == "pending" else _time(start_s),
            ended_at=_time(start_s + run_s) if ended else None,
            user_time_s=float(jobs.requested_s[row]),
            parts=NodeParts(
                number=row,
                nodes=int(jobs.nodes[row]),
                gpus=float(jobs.gpus[row]),
                submit_s=float(jobs.submit_s[row]),
                bound_s=float(bound_s[row]),
                node_ids=node_ids,
            ),
        )


def _time(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=min(seconds, _MAX_DATE_S))
