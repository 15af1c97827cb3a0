"""Drives the whole service in virtual time, on one thread.

Nothing waits: time jumps to whatever is next, a scheduled action (a submission, the end of a
task, a fault) or a turn of an engine. A crash drops a server with all that it had in memory; a
new one is built on the same store and cluster. Several servers share the store: one leads. A server
that hangs in the middle of a step waits on the stack while all others go on above it.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from edgeyard.devices.model import Host
from edgeyard.errors import EdgeyardError, NotFound, Unavailable
from edgeyard.scheduler.cluster_decorator import ClusterDecorator
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.election import TURN_S
from edgeyard.scheduler.engine.service import Step
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, JobDescription
from edgeyard.scheduler.model.submissions import Campaign
from edgeyard.scheduler.ports import LoadReport, NodeSource, Store, UnitOfWork
from tests.virtual_service.cluster import SimCluster, TaskPlan, Upload
from tests.virtual_service.job_reader import JobReader
from tests.virtual_service.server import SimServer
from tests.virtual_service.store import (
    InterruptPoint,
    ServerCrash,
    ServerFaults,
    SimStore,
    copy_database,
    restore_database,
)
from tests.virtual_service.virtual_time import ActionQueue, VirtualClocks, VirtualTime

START = datetime(2026, 1, 5, tzinfo=UTC)
"""Default begin of a simulation: a Monday, midnight."""

RESTART_S = 3.0
"""Default time from a crash of a server to its restart."""

MAX_TURNS_PER_INSTANT = 1000
"""Maximum turns of the engine within one instant; with more the simulation fails."""


class ServerFactory(Protocol):
    """Starts servers on the store and the cluster of a simulation."""

    def __call__(self, simulation: ServiceSimulation, machine: SimMachine) -> SimServer:
        """Start a server and return it.

        Raises:
            EdgeyardError: It can't start now.
            ServerCrash: It died while it started.
        """
        ...


AfterStep = Callable[["ServiceSimulation"], object]
"""Called after each step that committed something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A benchmark that is submitted.

    Attributes:
        at_s: Virtual time.
        describe: Makes its description at the server's time of the submission.
        plan: What its task does, by the number of the attempt and the board.
        gang_id: The campaign of those that start together; its description states their count.
        model_bytes: Size of its model's file.
    """

    at_s: float
    benchmark_id: str
    user_id: str
    describe: Callable[[datetime], JobDescription]
    plan: Callable[[int, str], TaskPlan]
    model: str = "net"
    gang_id: str | None = None
    model_bytes: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIntervals:
    """Minimum intervals between turns of the engine, in seconds of virtual time.

    Attributes:
        cycle_s: Between two turns; events in between are handled together. 0: no minimum.
        idle_s: Between two turns of steps that run whether or not there are events.
        lease_s: Between two renewals of the server's lease.
    """

    cycle_s: float = 0.0
    idle_s: float = 0.0
    lease_s: float = TURN_S


class SimMachine:
    """A machine that runs a server, with the state that outlives the server.

    Attributes:
        name: Name of the machine and of its server.
        clocks: The machine's clocks.
        faults: Faults of its server and of the connection to the store.
        server: None while it is down.
        stalled_until_s: The server's process is stopped until then, between two steps.
        is_hanging: The server's process is stopped in the middle of a step.
        is_killed: The process was killed in the meantime, and does nothing more.
        is_in_step: The server's engine takes a step.
        restart_s: Time from a crash of the server to its restart.
        since_s: Virtual time since which the server runs, has not hung and reaches its store.
        due_s: Virtual time of the next turn of each step of the engine; None stands for the lease.
        turn_s: Virtual time of the engine's last turn.
        cycle_s: Virtual time of its last cycle.
    """

    def __init__(self, name: str, time: VirtualTime, start: datetime) -> None:
        """Have no server yet; the clock shows ``start`` at the beginning."""
        self.name = name
        self.clocks = VirtualClocks(time, start)
        self.faults = ServerFaults()
        self.server: SimServer | None = None
        self.stalled_until_s = 0.0
        self.is_hanging = False
        self.restart_s = RESTART_S
        self.since_s = 0.0
        self._time = time
        self.is_in_step = False
        self.is_killed = False
        self.due_s: dict[Step | None, float] = {}
        self.turn_s = -math.inf
        self.cycle_s = -math.inf

    @property
    def is_available(self) -> bool:
        """Whether its server answers."""
        stopped = self.is_hanging or self._time.now_s < self.stalled_until_s
        return self.server is not None and not stopped

    @property
    def epoch(self) -> int:
        """The epoch that its server leads, as far as that one knows; -1: none."""
        if self.server is None or self.is_killed or self.server.engine.leading is None:
            return -1
        return self.server.engine.leader().epoch


class ServersCluster(ClusterDecorator[SimCluster], NodeSource):
    """The cluster as one server calls it, which may crash or hang before and after a call."""

    def __init__(self, simulation: ServiceSimulation, machine: SimMachine, store: Store) -> None:
        """Pass calls on.

        Args:
            simulation: Whose cluster it is.
            machine: Of the server.
            store: The server's, which knows the jobs.
        """
        super().__init__(simulation.cluster)
        self._simulation = simulation
        self._machine = machine
        self._store = store
        self._strays: dict[str, str | None] = {}

    def hosts(self) -> tuple[Host, ...]:
        found = self._inner.hosts()
        if self._simulation.restores:  # before that the database knows all jobs
            self._strays = self._find_strays()
        return found

    def loads(self) -> Mapping[str, LoadReport]:
        return self._inner.loads()

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        self._simulation.note_call(self._machine, job_id, creates=True)
        self._machine.faults.pass_point(InterruptPoint.BEFORE_CALL)
        super().dispatch(job_id, hcl, secrets)
        self._machine.faults.pass_point(InterruptPoint.AFTER_CALL)

    def stop(self, job_id: str) -> None:
        self._simulation.note_call(self._machine, job_id, creates=False)
        self._machine.faults.pass_point(InterruptPoint.BEFORE_CALL)
        super().stop(job_id)
        self._machine.faults.pass_point(InterruptPoint.AFTER_CALL)

    def strays(self) -> Mapping[str, str | None]:
        return self._strays

    def _find_strays(self) -> dict[str, str | None]:
        with self._store.read() as uow:
            return {
                job.state.job_id: job.state.target_uid
                for job in self._inner.live_jobs()
                if not is_known(uow, job.state.job_id)
            }


def _add_campaign(uow: UnitOfWork, gang_id: str, user_id: str, now: datetime) -> None:
    """Store the campaign of a gang with the first of its benchmarks."""
    try:
        uow.campaigns.get(gang_id)
    except NotFound:
        uow.campaigns.add(
            Campaign(campaign_id=gang_id, user_id=user_id, name=gang_id, created_at=now)
        )


def is_known(uow: UnitOfWork, job_id: str) -> bool:
    """Return whether the store knows the attempt of a job."""
    try:
        uow.attempts.by_job_id(job_id)
    except NotFound:
        return False
    return True


@dataclass(slots=True)
class SimulationCounts:
    """Counts and digest of a simulation.

    Attributes:
        steps: Turns of the engine.
        crashes: Crashes of servers.
        digest: Digest of all turns with their times; equal for equal runs.
    """

    steps: int = 0
    cycles: int = 0
    crashes: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add_turn(self, now_s: float, what: str) -> None:
        """Count a turn."""
        self.steps += 1
        self.digest.update(f"{now_s:.6f} {what}\n".encode())


class ServiceSimulation:
    """The whole service, its cluster and its users in virtual time.

    Attributes:
        start: What clocks show at the beginning.
        time: That passes for all.
        machines: Of the servers.
        actions: Scheduled actions.
        cluster: Where jobs run.
        reader: Reads the HCL of jobs.
        broken: Failures of the engine's steps that are bugs.
        submitted: Benchmarks that the server has taken, by id.
        attempts: By the ids of the jobs that a server has dispatched or wanted to.
        restores: How often an older backup of the store was restored.
        intervals: How often engines take turns.
        on_commit: Called after each commit of an engine, with its machine and its epoch.
        on_call: Called before each call that changes something in the cluster, with the machine,
            the job id, and whether it creates the job.
    """

    def __init__(
        self,
        url: str,
        hosts: Sequence[Host],
        arrivals: Sequence[Arrival],
        server_factory: ServerFactory,
        *,
        start: datetime = START,
        servers: int = 1,
        read_back: float = 1.0,
        intervals: TurnIntervals = TurnIntervals(),
        shuffle: random.Random | None = None,
        after_step: AfterStep = lambda simulation: None,
    ) -> None:
        """Start nothing before `run`.

        Args:
            url: Of the database, which is of this code's schema.
            hosts: Of the cluster.
            arrivals: Benchmarks.
            server_factory: Starts the servers.
            start: What clocks show at the beginning.
            servers: So many share the database.
            read_back: Share of rendered jobs that are parsed and compared with the decision, 0-1.
            intervals: How often engines take turns.
            shuffle: Draws the order of the steps of one instant; None: always the same.
            after_step: Called after each step that committed something.
        """
        self.start = start
        self.time = VirtualTime()
        self.actions = ActionQueue()
        self.machines = [SimMachine(f"server-{n}", self.time, start) for n in range(1, servers + 1)]
        for machine in self.machines:
            machine.faults.on_commit = partial(self._note_commit, machine)
        self.observer = SimStore(url, ServerFaults(), now=self.now)
        self.url = url
        self.reader = JobReader(read_back)
        self.cluster = SimCluster(
            self.actions,
            lambda: self.time.now_s,
            self.now,
            hosts,
            self._plan,
            self,
            self.reader.read,
        )
        self.broken: list[str] = []
        self.submitted: dict[str, Arrival] = {}
        self.attempts: dict[str, Attempt] = {}
        self.counts = SimulationCounts()
        self.restores = 0
        self.on_commit: Callable[[SimMachine, int], object] = lambda machine, epoch: None
        self.on_call: Callable[[SimMachine, str, bool], object] = lambda machine, job_id, new: None
        self._arrivals = {each.benchmark_id: each for each in arrivals}
        self._unsubmitted = len(arrivals)
        self._server_factory = server_factory
        self.intervals = intervals
        self._shuffle = shuffle
        self._after_step = after_step
        self._commits = 0
        self._checked = -1
        self._ids = 0
        for each in arrivals:
            self._submit_at(each, each.at_s)

    @property
    def leader(self) -> SimMachine:
        """The machine whose server leads; where none does, one whose server runs, or any."""
        if len(self.machines) == 1:
            return self.machines[0]
        return max(self.machines, key=lambda each: (each.epoch, each.server is not None))

    @property
    def server(self) -> SimServer | None:
        """The server that leads, or one that runs; None if all are down."""
        return self.leader.server

    @property
    def was_clock_set(self) -> bool:
        """Whether somebody has ever set the time of day of a machine."""
        return any(each.clocks.was_set for each in self.machines)

    def now(self) -> datetime:
        """Return the leader's time; its machine's while all servers are down."""
        leader = self.leader
        return leader.clocks.wall() if leader.server is None else leader.server.now()

    def run(self, *, until_s: float, done: Callable[[], bool] | None = None) -> None:
        """Go on until it is done, or until a time.

        Args:
            until_s: Virtual time.
            done: Whether it is over; asked before time moves. None: all benchmarks have ended.
        """
        broken = _FailureLog(self.broken)
        logger = logging.getLogger("edgeyard")
        logger.addHandler(broken)
        try:
            if not self.counts.steps:
                for machine in self.machines:
                    self._start_server(machine)
            self._advance(until_s, done or self.is_over)
        finally:
            logger.removeHandler(broken)

    def _advance(self, until_s: float, done: Callable[[], bool]) -> None:
        while True:
            self._act()
            for machine in self._in_any_order(self.machines):
                self._take_turns(machine)
            if done():
                return
            turns = (self._next_turn_s(machine) for machine in self.machines)
            next_s = min(self.actions.next_s, *turns)
            if next_s > until_s:
                self.time.now_s = max(self.time.now_s, until_s)
                return
            self.time.now_s = max(self.time.now_s, next_s)

    def is_over(self) -> bool:
        """Return whether all benchmarks were submitted and have ended, and their tasks too."""
        if self._unsubmitted or self.server is None or self.cluster.has_hints():
            return False
        if self.cluster.live_jobs():
            return False
        with self.observer.read() as uow:
            return not uow.benchmarks.live_versions() and not uow.attempts.live_versions()

    def crash(self, machine: SimMachine | None = None) -> None:
        """Kill a server; the next one starts on its machine some time later.

        Args:
            machine: The server's machine; None: that of the leader.
        """
        machine = machine or self.leader
        if machine.is_hanging:  # its code is on the stack below
            machine.is_killed = True
            return
        self.counts.crashes += 1
        server, machine.server = machine.server, None
        if server is not None:
            server.close()
        machine.faults.reset()
        self._start_later(machine)

    def hang_at(self, machine: SimMachine, point: InterruptPoint, nth: int, for_s: float) -> None:
        """Stop a server's process in the middle of a step, while all others go on.

        Args:
            machine: The server's machine.
            point: Point of the server's work.
            nth: How many times from now on it has to reach the point; it then stops when it next
                reaches it in a step of the engine without the database's write lock.
            for_s: How long it is stopped.
        """
        machine.faults.interrupt(point, nth, partial(self._hang, machine, point, for_s))

    def _hang(self, machine: SimMachine, point: InterruptPoint, for_s: float) -> None:
        """Advance the rest of the simulation while a step hangs.

        Raises:
            ServerCrash: The process was killed meanwhile.
        """
        if not machine.is_in_step or machine.faults.writing:
            self.hang_at(machine, point, 1, for_s)
            return
        machine.is_hanging = True
        try:
            self._advance(self.time.now_s + for_s, lambda: False)
        finally:
            machine.is_hanging = False
            machine.since_s = self.time.now_s
        if machine.is_killed:
            machine.is_killed = False
            machine.faults.crash()

    def back_up(self) -> Path:
        """Copy the store; return the file."""
        return copy_database(self.url)

    def restore(self, backup: Path) -> None:
        """Kill all servers and replace the store by an older copy; the cluster goes on."""
        for machine in self.machines:
            if machine.server is not None:
                self.crash(machine)
        restore_database(self.url, backup)
        self.restores += 1
        with self.observer.read() as uow:
            known = uow.benchmarks.get_many(sorted(self.submitted))
        kept = {each.benchmark_id for each in known}
        self.submitted = {key: each for key, each in self.submitted.items() if key in kept}

    def stop_strays(self) -> None:
        """Stop the live jobs that the store does not know, as an operator."""
        with self.observer.read() as uow:
            for job in self.cluster.live_jobs():
                if not is_known(uow, job.state.job_id):
                    self.cluster.stop(job.state.job_id)

    def set_absent(self, uids: frozenset[str]) -> None:
        """Let boards leave or join the lab, and its inventory with them."""
        self.cluster.set_absent(uids)
        for machine in self.machines:
            if machine.server is not None:
                machine.server.set_inventory(self.cluster.boards())
                machine.server.engine.wake()

    def wake(self) -> None:
        """Wake the engine, because something is due."""
        if self.server is not None:
            self.server.engine.wake()

    def close(self) -> None:
        """Close the store."""
        for machine in self.machines:
            if machine.server is not None:
                machine.server.close()
                machine.server = None
        self.observer.close()

    def new_id(self, family: str, engine: str, now: datetime) -> str:
        """Return an id for a benchmark that the service itself submits."""
        self._ids += 1
        return f"{family}-{engine}-{now:%Y%m%d%H%M%S}-own{self._ids:07d}"

    def receive(self, job_id: str, token: str, report: Mapping[str, object]) -> Upload:
        """Send a report to a running server."""
        machine = self._reached()
        if machine is None or machine.server is None:
            return Upload.UNAVAILABLE
        try:
            return machine.server.receive(job_id, token, report)
        except ServerCrash:
            self.crash(machine)
            return Upload.UNAVAILABLE

    def progress(self, job_id: str, token: str, progress: float) -> None:
        """Send progress to a running server."""
        machine = self._reached()
        if machine is None or machine.server is None:
            return
        try:
            machine.server.progress(job_id, token, progress)
        except ServerCrash:
            self.crash(machine)

    def act_as_user(self, work: Callable[[UnitOfWork, datetime], object]) -> bool:
        """Let the API of a server commit a change; return whether it did."""
        machine = self._reached()
        if machine is None or machine.server is None:
            return False
        server = machine.server
        try:
            now = server.now()
            server.store.transact(lambda uow: work(uow, now))
        except ServerCrash:
            self.crash(machine)
            return False
        server.engine.wake()
        return True

    def _reached(self) -> SimMachine | None:
        """Return the machine whose server answers a request."""
        available = [each for each in self.machines if each.is_available]
        return self._in_any_order(available)[0] if available else None

    def _in_any_order(self, machines: list[SimMachine]) -> list[SimMachine]:
        if self._shuffle is None or len(machines) < 2:
            return machines
        return self._shuffle.sample(machines, len(machines))

    def note_call(self, machine: SimMachine, job_id: str, *, creates: bool) -> None:
        """Note that a server is about to change something in the cluster."""
        if creates:
            with self.observer.read() as uow:
                self.attempts[job_id] = uow.attempts.by_job_id(job_id)
        self.on_call(machine, job_id, creates)

    def _note_commit(self, machine: SimMachine, epoch: int | None) -> None:
        self._commits += 1
        if epoch is not None:
            self.on_commit(machine, epoch)

    def _plan(self, job_id: str, target_uid: str) -> TaskPlan:
        attempt = self.attempts[job_id]
        arrival = self._arrivals.get(attempt.benchmark_id)
        if arrival is None:  # a probe of a board in quarantine
            return TaskPlan(run_s=5.0)
        return arrival.plan(attempt.number, target_uid)

    def _submit_at(self, arrival: Arrival, at_s: float) -> None:
        self.actions.schedule(at_s, lambda: self._submit(arrival))

    def _submit(self, arrival: Arrival) -> None:
        """Submit a benchmark; a user whose request failed tries again with its idempotency key."""
        digest = hashlib.sha256(arrival.model.encode()).hexdigest()

        def submit(uow: UnitOfWork, now: datetime) -> None:
            if uow.benchmarks.get_many([arrival.benchmark_id]):
                return
            description = arrival.describe(now)
            file = BenchmarkFile(
                role=FileRole.MODEL,
                position=0,
                name=description.model,
                sha256=digest,
                size_bytes=arrival.model_bytes,
            )
            if arrival.gang_id is not None:
                _add_campaign(uow, arrival.gang_id, arrival.user_id, now)
            lifecycle.submit(
                uow,
                description,
                arrival.user_id,
                [file],
                now,
                benchmark_id=arrival.benchmark_id,
                campaign_id=arrival.gang_id,
            )

        taken = False
        with suppress(Unavailable):
            taken = self.act_as_user(submit)
        if taken:
            self.submitted[arrival.benchmark_id] = arrival
            self._unsubmitted -= 1
        else:
            self._submit_at(arrival, self.time.now_s + 5.0)

    def _start_later(self, machine: SimMachine) -> None:
        self.actions.schedule(
            self.time.now_s + machine.restart_s, partial(self._start_server, machine)
        )

    def _start_server(self, machine: SimMachine) -> None:
        if machine.server is not None or machine.is_hanging:
            return
        try:
            machine.server = self._server_factory(self, machine)
        except ServerCrash:
            self.crash(machine)
            return
        except EdgeyardError:
            self._start_later(machine)
            return
        machine.since_s = self.time.now_s
        machine.due_s = {}
        machine.turn_s = -math.inf
        self._check()

    def _act(self) -> None:
        while self.actions.next_s <= self.time.now_s:
            self.actions.pop()()
            self._check()

    def _next_turn_s(self, machine: SimMachine) -> float:
        """Virtual time of the next turn of a machine's engine."""
        if machine.server is None or machine.is_hanging:
            return math.inf
        earliest_s = max(machine.stalled_until_s, machine.turn_s + self.intervals.cycle_s)
        if self._has_work(machine.server):
            return max(self.time.now_s, earliest_s)
        # Where idle steps are taken seldom, a server that is alone renews its lease with them.
        leads = machine.server.engine.leading is not None
        is_watched = len(self.machines) > 1
        renewed = not leads or is_watched or self.intervals.idle_s <= self.intervals.lease_s
        due = [at_s for step, at_s in machine.due_s.items() if (renewed if step is None else leads)]
        return max(earliest_s, min(due, default=self.time.now_s))

    def _has_work(self, server: SimServer) -> bool:
        engine = server.engine.leading
        return engine is not None and bool(engine.steps_with_work() or self.cluster.has_hints())

    def _take_turns(self, machine: SimMachine) -> None:
        """Take all steps of a machine's engine that are due."""
        if not machine.is_available or self.time.now_s < machine.turn_s + self.intervals.cycle_s:
            return
        taken = False
        for _ in range(MAX_TURNS_PER_INSTANT):
            steps = self._due_steps(machine)
            if not steps:
                break
            taken = True
            if self._shuffle is not None:
                late = [
                    step
                    for step in steps
                    if step is None and self.intervals.idle_s > self.intervals.lease_s
                ]
                rest = [step for step in steps if step not in late]
                self._shuffle.shuffle(rest)
                steps = [*late, *rest]
            for step in steps:
                self._take(machine, step)
        else:
            self.broken.append("the engine does not come to rest")
        if taken:
            machine.turn_s = self.time.now_s

    def _due_steps(self, machine: SimMachine) -> list[Step | None]:
        """Return the steps that are due; None stands for the lease."""
        if machine.server is None:
            return []
        now_s = self.time.now_s
        due: list[Step | None] = []
        if machine.due_s.get(None, 0.0) <= now_s:
            due.append(None)
        engine = machine.server.engine.leading
        if engine is None:
            return due
        work = set(engine.steps_with_work())
        if self.cluster.has_hints():
            work.add(Step.WATCH)
        intervals = engine.intervals_s
        for step in Step:
            if step in work or (step in intervals and machine.due_s.get(step, 0.0) <= now_s):
                due.append(step)
        # One cycle in an instant, on all that has come: what comes after is for the next one.
        waits = machine.cycle_s == now_s or len(due) > 1
        if self.intervals.cycle_s and waits and Step.CYCLE in due:
            due.remove(Step.CYCLE)
        return due

    def _take(self, machine: SimMachine, step: Step | None) -> None:
        server = machine.server
        if server is None:
            return
        now_s, idle_s = self.time.now_s, self.intervals.idle_s
        self.counts.add_turn(now_s, f"{machine.name} {step or 'lease'}")
        machine.is_in_step = True
        try:
            if step is None:
                server.engine.step()
                machine.due_s[None] = now_s + self.intervals.lease_s
            else:
                engine = server.engine.leading
                if engine is None:
                    return
                if step is Step.CYCLE:
                    self.counts.cycles += 1
                    machine.cycle_s = now_s
                engine.step(step)
                if step in engine.intervals_s:
                    machine.due_s[step] = now_s + max(engine.intervals_s[step], idle_s)
        except ServerCrash:
            self.crash(machine)
        finally:
            machine.is_in_step = False
        self._check()

    def _check(self) -> None:
        if self._commits != self._checked:
            self._checked = self._commits
            self._after_step(self)


class _FailureLog(logging.Handler):
    """Collects unexpected failures from the engine's log."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        event = str(getattr(record, "event", ""))
        unforeseen = event.endswith(".broke") or (
            event == "repair.attempt_failed" and record.exc_info
        )
        if unforeseen:
            error = record.exc_info[1] if record.exc_info else None
            self._found.append(f"{event}: {error!r}")
