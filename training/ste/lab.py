"""The lab of a scenario as the controller sees it: it pauses where a cycle is due.

The lab is the one of ``edgeyard sim run``: arrivals, run times, faults, retries and deadlines are
those of `edgeyard.simulator.lab`. Only the decisions come from outside: `EpisodeLab.state` is
what goes to the twin, `EpisodeLab.carry_out` takes what was decided on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.decision import Placement
from edgeyard.scheduler.twin.document import (
    ATTEMPT_MARK,
    MB,
    Job,
    Node,
    TwinData,
    ended_job,
    twin_data,
)
from edgeyard.simulator import runs
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.boards import MIB
from edgeyard.simulator.lab.world import LabWorld
from edgeyard.simulator.runs import JobColumns, SimulatedRun
from edgeyard.simulator.scenario import Scenario
from edgeyard.training.ste.steps import Decision, StoppedJob

MIN_ENDED = 50
"""Ended jobs that a state repeats besides those that ended since the last one: a scheduler that was
started in between knows at least these."""

_LIVE = (runs.PENDING, runs.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFigures:
    """What an episode came to, as `edgeyard.scheduler.figures.metrics` has it; NaN: not known.

    Attributes:
        waiting: Jobs that had not ended when the episode was stopped.
        mean_run_s: Of the last attempts of completed jobs.
    """

    jobs: int
    completed: int
    failed: int
    expired: int
    cancelled: int
    waiting: int
    mean_wait_s: float
    mean_turnaround_s: float
    mean_run_s: float
    mean_bounded_slowdown: float
    utilisation: float
    deadline_misses: int
    makespan_s: float


class EpisodeLab(LabWorld):
    """An episode in a simulated lab, in which each job takes a whole board.

    Attributes:
        rounds: Decisions that were carried out.
    """

    def __init__(self, scenario: Scenario, policy: Policy, *, seed: int) -> None:
        """Draw what arrives; nothing has happened yet.

        Args:
            scenario: Its world must be ``boards``.
            policy: Of the scheduler: its times and limits say when the next cycle is due.
            seed: Of arrivals and faults.

        Raises:
            InvalidInput: The scenario is of another world, or a benchmark can never run.
        """
        if scenario.lab is None:
            raise InvalidInput.at(
                f"{scenario.name}: world",
                f"is {scenario.world!r}, whose jobs share nodes; here each job takes a whole board",
                'world = "boards"; for nodes: edgeyard sim run',
            )
        self.rounds = 0
        self._ended: list[Job] = []
        super().__init__(scenario, policy, None, seed=seed)

    @property
    def scenario(self) -> Scenario:
        """The simulated scenario."""
        return self._scenario

    @property
    def share(self) -> float:
        """Share of the jobs that have ended."""
        return self.ended / self.count

    def state(self, *, run: str = "", episode: int = 0) -> TwinData:
        """Return nodes, jobs and links as the service would see them now."""
        ended = [self._ended_job(each.benchmark_id, ended_job(each, "")) for each in self._new_runs]
        self._ended = [*self._ended[-MIN_ENDED:], *ended]
        data = twin_data(self.cycle_input(), source=f"scenario {self._scenario.name}")
        for job in data.jobs:
            job.mem_req = self._memory_mb(job.name)
            if job.status == "running":
                job.submit_time = self._states[job.name].pending.submit_time
        _show_loads(data.nodes, data.jobs)
        data.jobs = [*self._ended, *data.jobs]
        data.run, data.episode, data.round = run, episode, self.rounds
        return data

    def carry_out(
        self,
        decisions: Sequence[Decision],
        stopped: Iterable[StoppedJob] = (),
        waiting: Mapping[str, str] | None = None,
        never: Iterable[str] = (),
    ) -> None:
        """Start and stop what was decided on the present state.

        Args:
            decisions: In the order of the queue.
            stopped: Whom to preempt.
            waiting: By job that was not placed: why.
            never: Those among them that no node could ever run.

        Raises:
            InvalidInput: A decision names a job that does not wait, or a node that is not free; or
                the scenario has no end. Nothing of a wrong decision is carried out.
        """
        victims = [each.job_id for each in stopped]
        self._check(decisions, victims)
        self.apply([self._placement(each) for each in decisions], victims)
        if self.is_due:
            self.end_cycle(waiting or {}, never)
        self.rounds += 1

    def figures(self) -> EpisodeFigures:
        """Return what the episode came to so far."""
        return episode_figures(self.result())

    def result(self, wall_s: float = 0.0) -> SimulatedRun:
        """Return the outcomes of the jobs that have arrived.

        Args:
            wall_s: Real seconds that the simulation took.
        """
        run = super().result(wall_s)
        arrived = len(self._states)
        if arrived == self.count:
            return run
        columns = {each.name: getattr(run.jobs, each.name)[:arrived] for each in fields(run.jobs)}
        return replace(run, jobs=JobColumns(**columns))

    def _placement(self, decision: Decision) -> Placement:
        return Placement(
            benchmark_id=decision.job_id,
            target_uid=decision.node_id,
            family=self._states[decision.job_id].job.family,
            binding=decision.binding,
            priority=decision.priority,
            allowed_uids=tuple(decision.allowed_node_ids),
        )

    def _check(self, decisions: Sequence[Decision], victims: Iterable[str]) -> None:
        held = {each.target_uid for each in self._holders.values()}
        placed: set[str] = set()
        for row, each in enumerate(decisions):
            if each.job_id not in self._queue or each.job_id in placed:
                raise InvalidInput.at(f"/decisions/{row}", f"job {each.job_id!r} is not waiting")
            board = self.boards.row_of_uid.get(each.node_id)
            if board is None or not self.boards.rows[board].present or each.node_id in held:
                raise InvalidInput.at(f"/decisions/{row}", f"node {each.node_id!r} is not free")
            placed.add(each.job_id)
            held.add(each.node_id)
        for row, job_id in enumerate(victims):
            if job_id not in self._holders:
                raise InvalidInput.at(f"/stopped/{row}", f"job {job_id!r} is not running")

    def _ended_job(self, job_id: str, job: Job) -> Job:
        """Complete a job that has ended; attempts that were repeated have names of their own."""
        state = self._states.get(job_id)
        job.job_id = job_id
        if state is not None:
            if state.status in _LIVE:
                job.job_id = f"{job_id}{ATTEMPT_MARK}{state.attempts}"
            job.mem_req = float(state.job.description.ram_mib)
            job.submit_time = state.pending.submit_time
        return job

    def _memory_mb(self, job_id: str) -> float:
        return self._states[job_id].job.description.ram_mib * MIB / MB


def _show_loads(nodes: Sequence[Node], jobs: Iterable[Job]) -> None:
    """Let nodes show what their hosts' running jobs use; decisions do not use it as measured."""
    memory = {job.node_id: job.mem_req for job in jobs if job.status == "running"}
    hosts: dict[str, list[Node]] = {}
    for each in nodes:
        hosts.setdefault(each.host or each.id, []).append(each)
    for its in hosts.values():
        busy = sum(each.id in memory for each in its) / len(its)
        used = sum(memory.get(each.id, 0.0) for each in its)
        total = sum(each.memory for each in its)
        for each in its:
            each.cpu_load = busy * each.cpu_cores
            each.memory_load = min(100.0 * used / total, 100.0) if total else 0.0


def episode_figures(run: SimulatedRun) -> EpisodeFigures:
    """Return the figures of a run, as ``edgeyard sim run`` has them."""
    found = measured(run).metrics
    counts = np.bincount(run.jobs.status, minlength=len(runs.STATUSES)).tolist()
    return EpisodeFigures(
        jobs=found.jobs,
        completed=counts[runs.COMPLETED],
        failed=counts[runs.FAILED],
        expired=counts[runs.EXPIRED],
        cancelled=counts[runs.CANCELLED],
        waiting=counts[runs.PENDING] + counts[runs.RUNNING],
        mean_wait_s=found.figures["wait_s"].interval.mean,
        mean_turnaround_s=found.figures["turnaround_s"].interval.mean,
        mean_run_s=_mean(run.schedule.run_s),
        mean_bounded_slowdown=found.figures["bounded_slowdown"].interval.mean,
        utilisation=found.utilisation,
        deadline_misses=found.deadline_misses,
        makespan_s=found.makespan_s,
    )


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else math.nan
