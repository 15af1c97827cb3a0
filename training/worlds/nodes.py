"""The multi-resource world with N nodes: jobs that take CPU, memory and GPUs of one node or more.

A job takes the same of each of its nodes, for as long as it runs. A need of less than one GPU is a
share of one GPU; a whole number of GPUs takes unshared GPUs. State is in columns, and the
functions that change it are compiled where Numba is installed.

Rules. There is one scheduling pass after each event, also within one instant. At one instant jobs
arrive first, in the order of their rows; then jobs end, in the order in which they started. A pass
goes down the queue: jobs start until one does not fit (``none``); or that one gets a reservation,
made again at each pass, and a later job starts if it ends by then or leaves enough room for it then
(``easy``); or all that fit start, even if others come before them (``any``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.framework.batch import SCORE_STEP
from edgeyard.scheduler.framework.policy import Backfill
from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.kernel.events import Events, no_events, pop, push
from edgeyard.simulator.wording import count_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST_FIT, BEST_FIT, EMPTIEST, ALIGNED, RANDOM = range(5)
"""Ways to choose nodes; see `_score`."""

OVERLOADED_SHARE = 0.9
"""A node is overloaded while more than this share of its CPU or memory is in use, by jobs and by
others."""

MAX_GPUS = 62
"""Maximum GPUs of a node, because the GPUs of a job are the bits of an integer."""

_FREE, _RUNNING, _STARTED, _OVERLOADED = range(4)
_END = 1 << 48
_TOLERANCE = 1e-9
_MODES = {Backfill.NONE: 0, Backfill.EASY: 1, Backfill.ANY: 2}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeJobs:
    """Jobs in order of arrival: of their submission, then of their row; shape (jobs,) each.

    Attributes:
        submit_s: Seconds.
        run_s: Seconds, above 0.
        requested_s: Seconds that the user stated.
        nodes: How many it takes.
        cpus: On each of them; likewise the two that follow.
        memory_mb: See ``cpus``.
        gpus: A share of one GPU, or a whole number.
        names: For messages and policies.
        users: Who submitted them.
        numbers: Their places among all jobs of a scenario, for what is drawn at random; None: their
            rows.
    """

    submit_s: Floats
    run_s: Floats
    requested_s: Floats
    nodes: Integers
    cpus: Floats
    memory_mb: Floats
    gpus: Floats
    names: tuple[str, ...]
    users: tuple[str, ...]
    numbers: Integers | None = None

    def __len__(self) -> int:
        return len(self.submit_s)

    def number(self, row: int) -> int:
        """Return the place of a job among all jobs of its scenario."""
        return row if self.numbers is None else int(self.numbers[row])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeColumns:
    """Nodes; shape (nodes,) each.

    Attributes:
        cpus: Cores.
        memory_mb: Megabytes.
        gpus: How many.
        cpu_load: Share of the cores that others use.
        memory_load: Share of the memory that others use.
        names: Of the nodes.
    """

    cpus: Floats
    memory_mb: Floats
    gpus: Integers
    cpu_load: Floats
    memory_load: Floats
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.cpus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodesSchedule:
    """Outcomes of the jobs.

    Attributes:
        start_s: Shape (jobs,).
        end_s: Shape (jobs,).
        first_reservation_s: Shape (jobs,): the first reservation of a job that was first in the
            queue and did not fit; NaN: it needed none.
        first: Shape (jobs + 1,): the nodes of job j are ``node[first[j]:first[j + 1]]``.
        node: Rows of nodes.
        time_s: Shape (events,): of each event; the columns that follow hold from then on.
        pending: Jobs that wait.
        running: Jobs that run.
        busy_share: Share of all cores that jobs use.
        overloaded: Nodes that are overloaded, see `OVERLOADED_SHARE`.
    """

    start_s: Floats
    end_s: Floats
    first_reservation_s: Floats
    first: Integers
    node: Integers
    time_s: Floats
    pending: Integers
    running: Integers
    busy_share: Floats
    overloaded: Integers


class NodeChooser(Protocol):
    """Chooses the nodes of one job at a time, where no rule does."""

    def choose(self, job: int, now: float, free: Floats, fits: NDArray[np.bool_]) -> Integers:
        """Return the nodes on which a job starts, best first; fewer than it needs: it waits.

        Args:
            job: A row of the jobs.
            now: Seconds.
            free: Shape (nodes, 3): cores, memory and GPUs that no job uses.
            fits: Shape (nodes,): where these suffice.
        """
        ...

    def reason(self, job: int) -> str:
        """Return why a job was refused last, in words."""
        ...


class _Jobs(NamedTuple):
    """`NodeJobs` for compiled functions; ``bound`` is the greater of run and request."""

    submit: Floats
    run: Floats
    bound: Floats
    nodes: Integers
    needs: Floats
    gpus: Floats
    first: Integers
    number: Integers


class _Cluster(NamedTuple):
    """State of the nodes.

    Attributes:
        total: Shape (nodes, 2): cores and memory that jobs may use.
        whole: Shape (nodes, 2): all there are.
        free: Shape (nodes, 2).
        gpus: Shape (nodes, most): free share of each GPU; -1: there is none.
        counts: See the constants.
        running: Rows of running jobs, by ``release``.
        release: Shape (jobs,): when reservations expect the end.
        node: Nodes of jobs, from ``first``.
        taken: The GPUs that the job has there, as bits.
        start: Shape (jobs,).
        end: Shape (jobs,).
        first_reservation: Shape (jobs,).
    """

    total: Floats
    whole: Floats
    free: Floats
    gpus: Floats
    counts: Integers
    running: Integers
    release: Floats
    node: Integers
    taken: Integers
    start: Floats
    end: Floats
    first_reservation: Floats


@compiled
def _fits(free: Floats, gpus: Floats, node: int, needs: Floats, gpu_need: float) -> bool:
    if free[node, 0] < needs[0] - _TOLERANCE or free[node, 1] < needs[1] - _TOLERANCE:
        return False
    if gpu_need <= 0.0:
        return True
    min_gpus = gpu_need if gpu_need < 1.0 else 1.0
    wanted = 1 if gpu_need < 1.0 else round(gpu_need)
    for gpu in range(gpus.shape[1]):
        if gpus[node, gpu] >= min_gpus - _TOLERANCE:
            wanted -= 1
            if wanted == 0:
                return True
    return False


@compiled
def _score(
    total: Floats, free: Floats, gpus: Floats, node: int, needs: Floats, gpu_need: float,
    rule: int, random_numbers: float,
) -> float:  # fmt: skip
    """Return the score of a node; the first node with the highest score is chosen.

    The same operations in the same order as in `edgeyard.scheduler.framework.batch.Resources` and
    in the service's scorers of these names, so that not a bit differs.
    """
    if rule == 0:
        return 0.0
    if rule == 4:
        return random_numbers
    score = 0.0
    for resource in range(2):
        whole = total[node, resource]
        if whole > 0.0:
            if rule == 3:
                score += needs[resource] / whole * free[node, resource] / whole
            else:
                score += (free[node, resource] - needs[resource]) / whole
    count = 0
    idle = 0.0
    for gpu in range(gpus.shape[1]):
        if gpus[node, gpu] >= 0.0:
            count += 1
            idle += gpus[node, gpu]
    if count:
        score += gpu_need / count * idle / count if rule == 3 else (idle - gpu_need) / count
    score /= 3.0
    if rule == 1:
        score = 1.0 - score
    rounded: float = np.rint(score / SCORE_STEP) * SCORE_STEP
    return min(max(rounded, 0.0), 1.0)


@compiled
def _take(free: Floats, gpus: Floats, node: int, needs: Floats, gpu_need: float) -> int:
    """Take what a job needs on a node; return the GPUs it got, as bits.

    A share goes to the GPU with the least that is left and enough.
    """
    free[node, 0] -= needs[0]
    free[node, 1] -= needs[1]
    taken = 0
    if 0.0 < gpu_need < 1.0:
        best = -1
        for gpu in range(gpus.shape[1]):
            left = gpus[node, gpu]
            if left >= gpu_need - _TOLERANCE and (best < 0 or left < gpus[node, best]):
                best = gpu
        gpus[node, best] -= gpu_need
        taken = 1 << best
    elif gpu_need >= 1.0:
        wanted = round(gpu_need)
        for gpu in range(gpus.shape[1]):
            if wanted > 0 and gpus[node, gpu] >= 1.0 - _TOLERANCE:
                gpus[node, gpu] = 0.0
                taken |= 1 << gpu
                wanted -= 1
    return taken


@compiled
def _give_back(
    free: Floats, gpus: Floats, node: int, needs: Floats, gpu_need: float, taken: int
) -> None:
    free[node, 0] += needs[0]
    free[node, 1] += needs[1]
    if gpu_need > 0.0:
        share = gpu_need if gpu_need < 1.0 else 1.0
        for gpu in range(gpus.shape[1]):
            if taken & (1 << gpu):
                gpus[node, gpu] = min(gpus[node, gpu] + share, 1.0)


@compiled
def _overloaded(cluster: _Cluster, node: int) -> bool:
    for resource in range(2):
        whole = cluster.whole[node, resource]
        others = whole - cluster.total[node, resource]
        used = cluster.total[node, resource] - cluster.free[node, resource] + others
        if used > OVERLOADED_SHARE * whole + _TOLERANCE:
            return True
    return False


@compiled
def _fitting(jobs: _Jobs, cluster: _Cluster, job: int) -> NDArray[np.bool_]:
    """Return which nodes have enough left for a job."""
    fits = np.zeros(len(cluster.free), dtype=np.bool_)
    for node in range(len(cluster.free)):
        fits[node] = _fits(cluster.free, cluster.gpus, node, jobs.needs[job], jobs.gpus[job])
    return fits


@compiled
def _choose(jobs: _Jobs, cluster: _Cluster, job: int, rule: int, random_numbers: Floats) -> bool:
    """Write the nodes of a job to ``cluster.node``; return whether there are enough."""
    first, count = jobs.first[job], jobs.nodes[job]
    nodes = len(random_numbers)
    scores = np.full(nodes, -np.inf)
    fitting = 0
    for node in range(nodes):
        if _fits(cluster.free, cluster.gpus, node, jobs.needs[job], jobs.gpus[job]):
            draw = (random_numbers[node] + 0.6180339887498949 * jobs.number[job]) % 1.0
            scores[node] = _score(
                cluster.total, cluster.free, cluster.gpus, node, jobs.needs[job], jobs.gpus[job],
                rule, draw,
            )  # fmt: skip
            fitting += 1
            if rule == 0 and fitting == count:
                break
    if fitting < count:
        return False
    for place in range(count):
        best = np.argmax(scores)
        cluster.node[first + place] = best
        scores[best] = -np.inf
    return True


@compiled
def _start(jobs: _Jobs, cluster: _Cluster, events: Events, job: int, now: float) -> None:
    """Start a job on the nodes that `_choose` wrote."""
    counts = cluster.counts
    for place in range(jobs.first[job], jobs.first[job + 1]):
        node = cluster.node[place]
        before = _overloaded(cluster, node)
        cluster.taken[place] = _take(
            cluster.free, cluster.gpus, node, jobs.needs[job], jobs.gpus[job]
        )
        counts[_OVERLOADED] += int(_overloaded(cluster, node)) - int(before)
    cluster.start[job] = now
    cluster.end[job] = now + jobs.run[job]
    cluster.release[job] = now + jobs.bound[job]
    place = counts[_RUNNING]
    while place > 0 and cluster.release[cluster.running[place - 1]] > cluster.release[job]:
        cluster.running[place] = cluster.running[place - 1]
        place -= 1
    cluster.running[place] = job
    counts[_RUNNING] += 1
    push(events, cluster.end[job], _END + counts[_STARTED], job)
    counts[_STARTED] += 1


@compiled
def _take_event(jobs: _Jobs, cluster: _Cluster, events: Events) -> tuple[float, int, bool]:
    """Process the next event; return its time, its job, and whether that arrived."""
    time, rank, job = pop(events)
    if rank < _END:
        if job + 1 < len(jobs.submit):
            push(events, jobs.submit[job + 1], job + 1, job + 1)
        return time, job, True
    counts = cluster.counts
    for place in range(jobs.first[job], jobs.first[job + 1]):
        node = cluster.node[place]
        before = _overloaded(cluster, node)
        _give_back(
            cluster.free, cluster.gpus, node, jobs.needs[job], jobs.gpus[job], cluster.taken[place]
        )
        counts[_OVERLOADED] += int(_overloaded(cluster, node)) - int(before)
    place = 0
    while cluster.running[place] != job:
        place += 1
    counts[_RUNNING] -= 1
    for other in range(place, counts[_RUNNING]):
        cluster.running[other] = cluster.running[other + 1]
    return time, job, False


@compiled
def _reservation(
    jobs: _Jobs, cluster: _Cluster, job: int, now: float, free: Floats, gpus: Floats
) -> float:
    """Return when a job fits by the bounds of the running ones; the state then is written.

    All jobs that are expected to have ended by then count.
    """
    fitting = 0
    fits = np.zeros(len(free), dtype=np.bool_)
    for node in range(len(free)):
        fits[node] = _fits(free, gpus, node, jobs.needs[job], jobs.gpus[job])
        fitting += int(fits[node])
    when = now
    for place in range(cluster.counts[_RUNNING]):
        other = cluster.running[place]
        if fitting >= jobs.nodes[job] and cluster.release[other] > when:
            break
        when = max(when, cluster.release[other])
        for each in range(jobs.first[other], jobs.first[other + 1]):
            node = cluster.node[each]
            _give_back(free, gpus, node, jobs.needs[other], jobs.gpus[other], cluster.taken[each])
            if not fits[node] and _fits(free, gpus, node, jobs.needs[job], jobs.gpus[job]):
                fits[node] = True
                fitting += 1
    return when


@compiled
def _leaves_room(
    jobs: _Jobs, cluster: _Cluster, job: int, first: int, free: Floats, gpus: Floats
) -> bool:
    """Return whether the first still fits then if this one runs on; if so, it takes its part."""
    for place in range(jobs.first[job], jobs.first[job + 1]):
        node = cluster.node[place]
        if not _fits(free, gpus, node, jobs.needs[job], jobs.gpus[job]):
            for earlier in range(jobs.first[job], place):
                _give_back(
                    free, gpus, cluster.node[earlier], jobs.needs[job], jobs.gpus[job],
                    cluster.taken[earlier],
                )  # fmt: skip
            return False
        cluster.taken[place] = _take(free, gpus, node, jobs.needs[job], jobs.gpus[job])
    fitting = 0
    for node in range(len(free)):
        fitting += int(_fits(free, gpus, node, jobs.needs[first], jobs.gpus[first]))
    if fitting >= jobs.nodes[first]:
        return True
    for place in range(jobs.first[job], jobs.first[job + 1]):
        _give_back(
            free, gpus, cluster.node[place], jobs.needs[job], jobs.gpus[job], cluster.taken[place]
        )
    return False


@compiled
def _schedule(
    jobs: _Jobs, cluster: _Cluster, events: Events, queue: Integers, now: float, mode: int,
    rule: int, random_numbers: Floats,
) -> Integers:  # fmt: skip
    """Start jobs of the queue, first to last; return those that wait on."""
    kept = np.empty_like(queue)
    waiting = 0
    first = -1
    when = 0.0
    free = cluster.free
    gpus = cluster.gpus
    for place in range(len(queue)):
        job = queue[place]
        starts = False
        if first < 0 or mode != 0:
            starts = _choose(jobs, cluster, job, rule, random_numbers)
        if starts and first >= 0 and mode == 1 and now + jobs.bound[job] > when:
            starts = _leaves_room(jobs, cluster, job, first, free, gpus)
        if starts:
            _start(jobs, cluster, events, job, now)
            continue
        kept[waiting] = job
        waiting += 1
        if first < 0:
            first = job
            if mode == 1:
                free, gpus = cluster.free.copy(), cluster.gpus.copy()
                when = _reservation(jobs, cluster, job, now, free, gpus)
                if np.isnan(cluster.first_reservation[job]):
                    cluster.first_reservation[job] = when
    return kept[:waiting]


def _schedule_chosen(
    jobs: _Jobs,
    cluster: _Cluster,
    events: Events,
    queue: Integers,
    now: float,
    mode: int,
    chooser: NodeChooser,
) -> Integers:
    """Do what `_schedule` does, with nodes that are chosen by Python code."""
    kept: list[int] = []
    first, when = -1, 0.0
    free, gpus = cluster.free, cluster.gpus
    for job in queue.tolist():
        starts = False
        if first < 0 or mode != 0:
            fits = _fitting(jobs, cluster, job)
            count = int(jobs.nodes[job])
            if int(fits.sum()) >= count:
                chosen = chooser.choose(job, now, _free(cluster), fits)
                starts = len(chosen) >= count
                if starts:
                    cluster.node[jobs.first[job] : jobs.first[job + 1]] = chosen[:count]
        if starts and first >= 0 and mode == 1 and now + jobs.bound[job] > when:
            starts = _leaves_room(jobs, cluster, job, first, free, gpus)
        if starts:
            _start(jobs, cluster, events, job, now)
            continue
        kept.append(job)
        if first < 0:
            first = job
            if mode == 1:
                free, gpus = cluster.free.copy(), cluster.gpus.copy()
                when = _reservation(jobs, cluster, job, now, free, gpus)
                if np.isnan(cluster.first_reservation[job]):
                    cluster.first_reservation[job] = when
    return np.array(kept, dtype=np.int64)


def _free(cluster: _Cluster) -> Floats:
    """Return what is free of each node, shape (nodes, 3); shares of GPUs are added in order."""
    idle = np.zeros(len(cluster.free))
    for column in cluster.gpus.T:
        idle += np.where(column >= 0.0, column, 0.0)
    return np.column_stack((cluster.free, idle))


class NodesWorld:
    """Jobs and nodes from event to event; the caller decides which jobs start.

    Attributes:
        jobs: All of them.
        nodes: All of them.
        queue: Rows of the jobs that wait.
        now_s: Time of the last event.
        events: How many have happened.
        total_events: How many there will have been.
        arrivals: Jobs that have arrived.
    """

    def __init__(self, jobs: NodeJobs, nodes: NodeColumns) -> None:
        """Begin with idle nodes.

        Args:
            jobs: At least one; each fits the empty nodes.
            nodes: At least one.

        Raises:
            InvalidInput: A job fits on too few of the empty nodes.
        """
        refuse_large_jobs(jobs, nodes)
        self.jobs, self.nodes = jobs, nodes
        self._jobs, self._cluster, self._events = _begin(jobs, nodes)
        self.queue = np.zeros(0, dtype=np.int64)
        self.now_s, self.events, self.arrivals = 0.0, 0, 0
        self.total_events = total = 2 * len(jobs)
        self._time_s, self._busy = np.zeros(total), np.zeros(total)
        self._pending, self._running, self._overloaded = (
            np.zeros(total, dtype=np.int64) for _ in range(3)
        )
        self._cores = float(self._cluster.total[:, 0].sum()) or 1.0

    @property
    def is_stuck(self) -> bool:
        """Whether no job runs and none is still to arrive."""
        return self.arrivals == len(self.jobs) and not self._cluster.counts[_RUNNING]

    @property
    def free_shares(self) -> Floats:
        """The free share of all cores, memory and GPUs, shape (3,)."""
        return _free_shares(self._cluster)

    def advance(self) -> tuple[int, bool]:
        """Process the next event; return its job, and whether that arrived.

        One that has arrived is not in the queue yet.
        """
        self.now_s, job, arrived = _take_event(self._jobs, self._cluster, self._events)
        self.arrivals += int(arrived)
        return job, arrived

    def schedule(
        self, mode: Backfill, rule: int, random_numbers: Floats, chooser: NodeChooser | None
    ) -> list[int]:
        """Start jobs of the queue, first to last; return their rows.

        Args:
            mode: Who may start before the first; not conservative.
            rule: How nodes are chosen.
            random_numbers: Of the random choice, shape (nodes,).
            chooser: Chooses nodes instead of the rule; None: the rule does.
        """
        if not len(self.queue):
            return []
        before = self.queue
        if chooser is not None:
            self.queue = _schedule_chosen(
                self._jobs, self._cluster, self._events, before, self.now_s, _MODES[mode], chooser
            )
        else:
            self.queue = _schedule(
                self._jobs, self._cluster, self._events, before, self.now_s, _MODES[mode], rule,
                random_numbers,
            )  # fmt: skip
        if len(before) == len(self.queue):
            return []
        waiting = set(self.queue.tolist())
        return [job for job in before.tolist() if job not in waiting]

    def start(self, job: int, nodes: Sequence[int]) -> None:
        """Start a job that waits on these nodes.

        Raises:
            ValueError: The job takes another number of nodes, one occurs twice or has too little
                room left.
        """
        free, gpus = self._cluster.free, self._cluster.gpus
        needs, gpu_need = self._jobs.needs[job], float(self._jobs.gpus[job])
        count = int(self.jobs.nodes[job])
        if len(nodes) != count or len(set(nodes)) != count:
            raise ValueError(f"job {self.jobs.names[job]!r} takes {count_of(count, 'node')}")
        for node in nodes:
            if not _fits(free, gpus, node, needs, gpu_need):
                raise ValueError(f"node {self.nodes.names[node]!r} has too little room left")
        first = self._jobs.first[job]
        self._cluster.node[first : first + count] = nodes
        _start(self._jobs, self._cluster, self._events, job, self.now_s)
        self.queue = self.queue[self.queue != job]

    def start_s(self, job: int) -> float:
        """Return when a job started; NaN: not yet."""
        return float(self._cluster.start[job])

    def nodes_of(self, job: int) -> list[int]:
        """Return the nodes that a job takes or took."""
        its: list[int] = self._cluster.node[
            self._jobs.first[job] : self._jobs.first[job + 1]
        ].tolist()
        return its

    def fitting(self, job: int) -> int:
        """Return how many nodes have enough left for a job."""
        return int(_fitting(self._jobs, self._cluster, job).sum())

    def note(self) -> None:
        """Note the state after an event and its pass."""
        row, cluster = self.events, self._cluster
        self._time_s[row], self._pending[row] = self.now_s, len(self.queue)
        self._running[row] = cluster.counts[_RUNNING]
        self._overloaded[row] = cluster.counts[_OVERLOADED]
        self._busy[row] = 1.0 - float(cluster.free[:, 0].sum()) / self._cores
        self.events += 1

    def state(self) -> NodesState:
        """Return what a pass depends on now."""
        jobs, cluster = self._jobs, self._cluster
        running = cluster.running[: cluster.counts[_RUNNING]].copy()
        return NodesState(
            now_s=self.now_s,
            free=cluster.free,
            gpus=cluster.gpus,
            waiting=self.queue,
            running=running,
            release_s=cluster.release,
            bound_s=jobs.bound,
            taken=tuple(
                tuple(
                    zip(
                        self.nodes_of(job),
                        cluster.taken[jobs.first[job] : jobs.first[job + 1]].tolist(),
                        strict=True,
                    )
                )
                for job in running.tolist()
            ),
        )

    def resume(self, state: NodesState) -> None:
        """Take a state that was noted elsewhere; `schedule` decides on it.

        Args:
            state: Its rows are those of this world's jobs and nodes.
        """
        cluster, jobs = self._cluster, self._jobs
        self.now_s, self.queue = state.now_s, state.waiting
        cluster.free[:] = state.free
        cluster.gpus[:] = state.gpus
        cluster.release[:] = state.release_s
        jobs.bound[:] = state.bound_s
        cluster.running[: len(state.running)] = state.running
        cluster.counts[_RUNNING] = len(state.running)
        for job, its in zip(state.running.tolist(), state.taken, strict=True):
            for place, (node, taken) in enumerate(its, int(jobs.first[job])):
                cluster.node[place], cluster.taken[place] = node, taken

    def result(self) -> NodesSchedule:
        """Return the outcomes of the jobs until now."""
        cluster, done = self._cluster, slice(self.events)
        return NodesSchedule(
            start_s=cluster.start,
            end_s=cluster.end,
            first_reservation_s=cluster.first_reservation,
            first=self._jobs.first,
            node=cluster.node,
            time_s=self._time_s[done],
            pending=self._pending[done],
            running=self._running[done],
            busy_share=np.clip(self._busy[done], 0.0, 1.0),
            overloaded=self._overloaded[done],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodesState:
    """All that a scheduling pass depends on besides the jobs and the nodes.

    Attributes:
        now_s: Seconds.
        free: Shape (nodes, 2): cores and memory that no job uses.
        gpus: Shape (nodes, most): free share of each GPU; -1: there is none.
        waiting: Rows of jobs.
        running: Rows of jobs, by when reservations expect their end.
        release_s: Shape (jobs,): that time; NaN of those that do not run.
        bound_s: Shape (jobs,): for how long reservations expect a job to run.
        taken: Of each that runs, its nodes, with the GPUs that it has there as bits.
    """

    now_s: float
    free: Floats
    gpus: Floats
    waiting: Integers
    running: Integers
    release_s: Floats
    bound_s: Floats
    taken: tuple[tuple[tuple[int, int], ...], ...]


def run_nodes(
    jobs: NodeJobs,
    nodes: NodeColumns,
    order: Callable[[Integers, float, Floats], NDArray[np.intp]],
    *,
    time_invariant: bool = False,
    backfill: Backfill = Backfill.NONE,
    rule: int = FIRST_FIT,
    chooser: NodeChooser | None = None,
    seed: int = 0,
    ended: Callable[[int, float], None] = lambda job, now: None,
    advanced: Callable[[float], None] = lambda share: None,
) -> NodesSchedule:
    """Run all jobs on empty nodes.

    Args:
        jobs: At least one; each fits the empty nodes (`refuse_large_jobs`).
        nodes: At least one.
        order: Given rows of waiting jobs, the time and the free share of cores, memory and GPUs,
            returns their ranks, a permutation.
        time_invariant: ``order`` is called once, for all jobs.
        backfill: See the module; not conservative.
        rule: How nodes are chosen.
        chooser: Chooses nodes instead of the rule; None: the rule does.
        seed: Of the random choice of nodes.
        ended: Called with each job that has ended, and when.
        advanced: Called now and then with the share of the events that have happened.

    Raises:
        InvalidInput: A job fits on too few of the empty nodes.
        ConfigError: The chooser never lets a job start.
    """
    world = NodesWorld(jobs, nodes)
    random_numbers = random_numbers_of(seed, nodes)
    ranks = np.zeros(0, dtype=np.intp)
    if time_invariant:
        ranks = order(np.arange(len(jobs)), float(jobs.submit_s.max()), np.ones(3))
    for count in range(world.total_events):
        if chooser is not None and world.is_stuck:
            first = int(world.queue[0])
            raise ConfigError(
                [starvation_error(jobs, world.queue, world.now_s, chooser.reason(first))]
            )
        job, arrived = world.advance()
        if arrived:
            place = len(world.queue)
            if time_invariant:
                place = int(np.searchsorted(ranks[world.queue], ranks[job]))
            world.queue = np.insert(world.queue, place, job)
        else:
            ended(job, world.now_s)
        if not time_invariant and len(world.queue) > 1:
            ordered = np.empty_like(world.queue)
            ordered[order(world.queue, world.now_s, world.free_shares)] = world.queue
            world.queue = ordered
        world.schedule(backfill, rule, random_numbers, chooser)
        world.note()
        if count % 1000 == 0:
            advanced(count / world.total_events)
    advanced(1.0)
    return world.result()


def random_numbers_of(seed: int, nodes: NodeColumns) -> Floats:
    """Return a random number for each node, shape (nodes,)."""
    return stream(seed, "nodes").random(len(nodes))


def starvation_error(jobs: NodeJobs, queue: Integers, now: float, reason: str) -> str:
    """Return the message that jobs wait although all nodes are idle and nothing is to come."""
    first = int(queue[0])
    more = f" and {len(queue) - 1:,} more" if len(queue) > 1 else ""
    return (
        f"job {jobs.names[first]}{more} can never start: at second {now:g} all nodes are idle, and "
        f"{reason}"
    )


def refuse_large_jobs(jobs: NodeJobs, nodes: NodeColumns) -> None:
    """Check that each job fits the empty nodes.

    Raises:
        InvalidInput: One does not, or it needs more than one GPU and a part of another.
    """
    needs: Floats = np.column_stack(
        (jobs.cpus, jobs.memory_mb, jobs.gpus, jobs.nodes.astype(np.float64))
    )
    cpus, memory_mb = (
        nodes.cpus * (1.0 - nodes.cpu_load),
        nodes.memory_mb * (1.0 - nodes.memory_load),
    )
    _, kinds = np.unique(needs, axis=0, return_index=True)
    for row in sorted(kinds.tolist()):
        gpus = float(jobs.gpus[row])
        if gpus > 1.0 and gpus != round(gpus):
            raise InvalidInput.at(
                f"job {jobs.names[row]}: gpus", f"is {gpus:g}", "a share below 1 or a whole number"
            )
        fitting = int(
            (
                (cpus >= needs[row, 0] - _TOLERANCE)
                & (memory_mb >= needs[row, 1] - _TOLERANCE)
                & (nodes.gpus >= np.ceil(gpus))
            ).sum()
        )
        if fitting < jobs.nodes[row]:
            raise InvalidInput.at(
                f"job {jobs.names[row]}",
                f"needs {needs[row, 0]:g} cores, {needs[row, 1]:g} MB and {gpus:g} GPUs on "
                f"{count_of(int(needs[row, 3]), 'node')} at the same time; {fitting} of "
                f"{len(nodes)} "
                f"{'has' if fitting == 1 else 'have'} that much",
                "jobs that fit on the empty nodes",
            )


def _begin(jobs: NodeJobs, nodes: NodeColumns) -> tuple[_Jobs, _Cluster, Events]:
    """Return idle nodes, and the first arrival as the only event."""
    count, max_gpus = len(jobs), int(nodes.gpus.max(initial=0))
    first = np.concatenate([[0], np.cumsum(jobs.nodes)]).astype(np.int64)
    whole = np.column_stack((nodes.cpus, nodes.memory_mb)).astype(np.float64)
    total = whole * (1.0 - np.column_stack((nodes.cpu_load, nodes.memory_load)))
    state = _Jobs(
        # contiguous, so that compiled functions meet one type only
        submit=np.ascontiguousarray(jobs.submit_s),
        run=np.ascontiguousarray(jobs.run_s),
        bound=np.maximum(jobs.run_s, jobs.requested_s),
        nodes=np.ascontiguousarray(jobs.nodes),
        needs=np.ascontiguousarray(np.column_stack((jobs.cpus, jobs.memory_mb)), dtype=np.float64),
        gpus=np.ascontiguousarray(jobs.gpus, dtype=np.float64),
        first=first,
        number=np.array([jobs.number(row) for row in range(count)], dtype=np.int64),
    )
    cluster = _Cluster(
        total=total,
        whole=whole,
        free=total.copy(),
        gpus=np.where(np.arange(max_gpus)[None, :] < nodes.gpus[:, None], 1.0, -1.0),
        counts=np.zeros(4, dtype=np.int64),
        running=np.zeros(count + 1, dtype=np.int64),
        release=np.full(count, np.nan),
        node=np.full(int(first[-1]), -1, dtype=np.int64),
        taken=np.zeros(int(first[-1]), dtype=np.int64),
        start=np.full(count, np.nan),
        end=np.full(count, np.nan),
        first_reservation=np.full(count, np.nan),
    )
    for node in range(len(nodes)):
        cluster.counts[_OVERLOADED] += int(_overloaded(cluster, node))
    events = no_events(count + 2)
    push(events, float(jobs.submit_s[0]), 0, 0)
    return state, cluster, events


def _free_shares(cluster: _Cluster) -> Floats:
    """Return the free share of all cores, memory and GPUs, shape (3,)."""
    totals = cluster.total.sum(axis=0)
    gpus = cluster.gpus[cluster.gpus >= 0.0]
    shares = cluster.free.sum(axis=0) / np.where(totals > 0.0, totals, 1.0)
    return np.append(shares, gpus.mean() if len(gpus) else 0.0)
