"""Drives the whole service in virtual time, on one thread.

Nothing waits: time jumps to whatever is next, an action of the agenda (a submission, the end of a
task, a fault) or a turn of the engine. A crash drops the server with all that it had in memory; a
new one is built on the same store and cluster.
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
from typing import Protocol

from edgeyard.devices.model import Host
from edgeyard.errors import EdgeyardError, Unavailable
from edgeyard.scheduler.cluster_decorator import ClusterDecorator
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.election import TURN_S
from edgeyard.scheduler.engine.service import Step
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, JobDescription
from edgeyard.scheduler.ports import LoadReport, NodeSource, UnitOfWork
from edgeyard.scheduler.sim.service.cluster import SimCluster, TaskPlan, Upload
from edgeyard.scheduler.sim.service.job_reader import JobReader
from edgeyard.scheduler.sim.service.server import SimServer
from edgeyard.scheduler.sim.service.store import ServerCrash, SimStore, StoreFaults
from edgeyard.scheduler.sim.service.virtual_time import Agenda, VirtualClocks

START = datetime(2026, 1, 5, tzinfo=UTC)
"""Time of day at the beginning: a Monday, midnight."""

RESTART_S = 3.0
"""From a crash of the server to the start of the next one, where nothing else is stated."""

MAX_TURNS_PER_INSTANT = 1000
"""An engine that has more to do within one instant does not come to rest."""


class Boot(Protocol):
    """Starts a server on the store and the cluster of a simulation."""

    def __call__(self, simulation: ServiceSimulation) -> SimServer:
        """Return the server.

        Raises:
            EdgeyardError: It can't start now.
            ServerCrash: It died at its start.
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
    """

    at_s: float
    benchmark_id: str
    user_id: str
    describe: Callable[[datetime], JobDescription]
    plan: Callable[[int, str], TaskPlan]
    model: str = "net"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the engine takes turns.

    Attributes:
        cycle_s: Minimum time between two turns: what happens in between is handled in one. 0: at
            once.
        idle_s: Steps that are taken whether or not there is news are taken at most so often.
        lease_s: The server's lease is renewed so often.
    """

    cycle_s: float = 0.0
    idle_s: float = 0.0
    lease_s: float = TURN_S


@dataclass(slots=True)
class CallFaults:
    """When the server dies around a call of the cluster.

    Attributes:
        before: Right before this call from now on; 0: it does not.
        after: The same right after it.
    """

    before: int = 0
    after: int = 0


class ServersCluster(ClusterDecorator[SimCluster], NodeSource):
    """The cluster as one server calls it: the server may die around a call that has an effect."""

    def __init__(self, inner: SimCluster, faults: CallFaults) -> None:
        """Pass calls on."""
        super().__init__(inner)
        self._faults = faults

    def hosts(self) -> tuple[Host, ...]:
        return self._inner.hosts()

    def loads(self) -> Mapping[str, LoadReport]:
        return self._inner.loads()

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        self._before()
        super().dispatch(job_id, hcl, secrets)
        self._after()

    def stop(self, job_id: str) -> None:
        self._before()
        super().stop(job_id)
        self._after()

    def _before(self) -> None:
        if self._faults.before:
            self._faults.before -= 1
            if not self._faults.before:
                raise ServerCrash

    def _after(self) -> None:
        if self._faults.after:
            self._faults.after -= 1
            if not self._faults.after:
                raise ServerCrash


@dataclass(slots=True)
class Tally:
    """What a simulation consisted of.

    Attributes:
        steps: Turns of the engine.
        crashes: Of the server.
        digest: Of all turns with their times: equal for equal runs.
    """

    steps: int = 0
    cycles: int = 0
    crashes: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, now_s: float, what: str) -> None:
        """Count a turn."""
        self.steps += 1
        self.digest.update(f"{now_s:.6f} {what}\n".encode())


class ServiceSimulation:
    """The whole service, its cluster and its users in virtual time.

    Attributes:
        clocks: Of the server's machine.
        agenda: What is to happen.
        cluster: Where jobs run.
        server: None while it is down.
        reader: Reads the HCL of jobs.
        broken: Failures of the engine's steps that are bugs.
        submitted: Benchmarks that the server has taken, by id.
        pace: How often the engine takes turns.
        restart_s: From a crash of the server to the start of the next one.
        stalled_until_s: The server's process is stopped until then.
    """

    def __init__(
        self,
        url: str,
        hosts: Sequence[Host],
        arrivals: Sequence[Arrival],
        boot: Boot,
        *,
        read_back: float = 1.0,
        pace: Pace = Pace(),
        shuffle: random.Random | None = None,
        after_step: AfterStep = lambda simulation: None,
    ) -> None:
        """Start nothing before `run`.

        Args:
            url: Of the database, which is of this code's schema.
            hosts: Of the cluster.
            arrivals: Benchmarks.
            boot: Starts servers.
            read_back: Share of rendered jobs that are parsed and compared with the decision, 0-1.
            pace: How often the engine takes turns.
            shuffle: Draws the order of the steps of one instant; None: always the same.
            after_step: Called after each step that committed something.
        """
        self.clocks = VirtualClocks(START)
        self.agenda = Agenda()
        self.store_faults = StoreFaults()
        self.call_faults = CallFaults()
        self.observer = SimStore(url, StoreFaults(), now=self.now)
        self.url = url
        self.reader = JobReader(read_back)
        self.cluster = SimCluster(
            self.agenda,
            self.clocks.monotonic_s,
            self.now,
            hosts,
            self._plan,
            self,
            self.reader.read,
        )
        self.server: SimServer | None = None
        self.stalled_until_s = 0.0
        self.restart_s = RESTART_S
        self.broken: list[str] = []
        self.submitted: dict[str, Arrival] = {}
        self.tally = Tally()
        self._arrivals = {each.benchmark_id: each for each in arrivals}
        self._unsubmitted = len(arrivals)
        self._boot = boot
        self.pace = pace
        self._shuffle = shuffle
        self._after_step = after_step
        self._due_s: dict[Step | None, float] = {}
        self._turn_s = -math.inf
        self._cycle_s = -math.inf
        self._checked = -1
        self._ids = 0
        for each in arrivals:
            self._submit_at(each, each.at_s)

    def now(self) -> datetime:
        """Return the server's time; its machine's while it is down."""
        return self.clocks.wall() if self.server is None else self.server.now()

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
            if self.server is None:
                self._start_server()
            while True:
                self._act()
                self._take_turns()
                if (done or self.is_over)():
                    return
                next_s = min(self.agenda.next_s, self._next_turn_s())
                if next_s > until_s:
                    self.clocks.now_s = until_s
                    return
                self.clocks.now_s = max(self.clocks.now_s, next_s)
        finally:
            logger.removeHandler(broken)

    def is_over(self) -> bool:
        """Return whether all benchmarks were submitted and have ended, and their tasks too."""
        if self._unsubmitted or self.server is None or self.cluster.has_hints():
            return False
        if self.cluster.live_jobs():
            return False
        with self.observer.read() as uow:
            return not uow.benchmarks.live_versions() and not uow.attempts.live_versions()

    def crash(self) -> None:
        """Kill the server; the next one starts some time later."""
        self.tally.crashes += 1
        server, self.server = self.server, None
        self.store_faults.crash_before = self.store_faults.crash_after = 0
        self.call_faults.before = self.call_faults.after = 0
        if server is not None:
            server.close()
        self.agenda.at(self.clocks.now_s + self.restart_s, self._start_server)

    def wake(self) -> None:
        """Have the engine decide soon: something is due."""
        if self.server is not None:
            self.server.engine.wake()

    def close(self) -> None:
        """Free the store."""
        if self.server is not None:
            self.server.close()
            self.server = None
        self.observer.close()

    def new_id(self, family: str, engine: str, now: datetime) -> str:
        """Return an id for a benchmark that the service itself submits."""
        self._ids += 1
        return f"{family}-{engine}-{now:%Y%m%d%H%M%S}-{self._ids:010d}"

    # --- what tasks reach ----------------------------------------------------------------------

    def receive(self, job_id: str, token: str, report: Mapping[str, object]) -> Upload:
        """Hand a report to the server, if it is up."""
        if self.server is None or self._is_stalled():
            return Upload.UNAVAILABLE
        try:
            return self.server.receive(job_id, token, report)
        except ServerCrash:
            self.crash()
            return Upload.UNAVAILABLE

    def progress(self, job_id: str, token: str, progress: float) -> None:
        """Hand progress to the server, if it is up."""
        if self.server is None or self._is_stalled():
            return
        try:
            self.server.progress(job_id, token, progress)
        except ServerCrash:
            self.crash()

    def act_as_user(self, work: Callable[[UnitOfWork], object]) -> bool:
        """Have the server's API commit something; return whether it did."""
        if self.server is None or self._is_stalled():
            return False
        try:
            self.server.store.transact(work)
        except ServerCrash:
            self.crash()
            return False
        self.server.engine.wake()
        return True

    # --- inside --------------------------------------------------------------------------------

    def _plan(self, job_id: str, target_uid: str) -> TaskPlan:
        with self.observer.read() as uow:
            attempt = uow.attempts.by_job_id(job_id)
        arrival = self._arrivals.get(attempt.benchmark_id)
        if arrival is None:  # a probe of a board in quarantine
            return TaskPlan(run_s=5.0)
        return arrival.plan(attempt.number, target_uid)

    def _submit_at(self, arrival: Arrival, at_s: float) -> None:
        self.agenda.at(at_s, lambda: self._submit(arrival))

    def _submit(self, arrival: Arrival) -> None:
        """Submit a benchmark; a user whose request failed tries again with its idempotency key."""
        now = self.now()
        digest = hashlib.sha256(arrival.model.encode()).hexdigest()

        def submit(uow: UnitOfWork) -> None:
            if uow.benchmarks.get_many([arrival.benchmark_id]):
                return
            description = arrival.describe(now)
            file = BenchmarkFile(
                role=FileRole.MODEL,
                position=0,
                name=description.model,
                sha256=digest,
                size_bytes=1000,
            )
            lifecycle.submit(
                uow,
                description,
                arrival.user_id,
                [file],
                now,
                benchmark_id=arrival.benchmark_id,
            )

        taken = False
        with suppress(Unavailable):
            taken = self.act_as_user(submit)
        if taken:
            self.submitted[arrival.benchmark_id] = arrival
            self._unsubmitted -= 1
        else:
            self._submit_at(arrival, self.clocks.now_s + 5.0)

    def _is_stalled(self) -> bool:
        return self.clocks.now_s < self.stalled_until_s

    def _start_server(self) -> None:
        if self.server is not None:
            return
        try:
            self.server = self._boot(self)
        except ServerCrash:
            self.crash()
            return
        except EdgeyardError:
            self.agenda.at(self.clocks.now_s + self.restart_s, self._start_server)
            return
        self._due_s = {}
        self._turn_s = -math.inf
        self._check()

    def _act(self) -> None:
        while self.agenda.next_s <= self.clocks.now_s:
            self.agenda.pop()()
            self._check()

    def _next_turn_s(self) -> float:
        """Virtual time of the engine's next turn."""
        if self.server is None:
            return math.inf
        earliest_s = max(self.stalled_until_s, self._turn_s + self.pace.cycle_s)
        if self._has_work():
            return max(self.clocks.now_s, earliest_s)
        # Where idle steps are taken seldom, the lease is renewed with them.
        renewed = self.pace.idle_s <= self.pace.lease_s
        due = [at_s for step, at_s in self._due_s.items() if step is not None or renewed]
        return max(earliest_s, min(due, default=self.clocks.now_s))

    def _has_work(self) -> bool:
        assert self.server is not None
        engine = self.server.engine.leading
        return engine is not None and bool(engine.steps_with_work() or self.cluster.has_hints())

    def _take_turns(self) -> None:
        """Take all steps of the engine that are due."""
        if self._is_stalled() or self.clocks.now_s < self._turn_s + self.pace.cycle_s:
            return
        taken = False
        for _ in range(MAX_TURNS_PER_INSTANT):
            steps = self._due_steps()
            if not steps:
                break
            taken = True
            if self._shuffle is not None:
                late = [
                    step for step in steps if step is None and self.pace.idle_s > self.pace.lease_s
                ]
                rest = [step for step in steps if step not in late]
                self._shuffle.shuffle(rest)
                steps = [*late, *rest]
            for step in steps:
                self._take(step)
        else:
            self.broken.append("the engine does not come to rest")
        if taken:
            self._turn_s = self.clocks.now_s

    def _due_steps(self) -> list[Step | None]:
        """Return the steps that are due; None stands for the lease."""
        if self.server is None:
            return []
        now_s = self.clocks.now_s
        due: list[Step | None] = []
        if self._due_s.get(None, 0.0) <= now_s:
            due.append(None)
        engine = self.server.engine.leading
        if engine is None:
            return due
        work = set(engine.steps_with_work())
        if self.cluster.has_hints():
            work.add(Step.WATCH)
        intervals = engine.intervals_s
        for step in Step:
            if step in work or (step in intervals and self._due_s.get(step, 0.0) <= now_s):
                due.append(step)
        # One cycle in an instant, on all that has come: what comes after is for the next one.
        waits = self._cycle_s == now_s or len(due) > 1
        if self.pace.cycle_s and waits and Step.CYCLE in due:
            due.remove(Step.CYCLE)
        return due

    def _take(self, step: Step | None) -> None:
        server = self.server
        if server is None:
            return
        now_s, idle_s = self.clocks.now_s, self.pace.idle_s
        self.tally.note(now_s, step or "lease")
        try:
            if step is None:
                server.engine.step()
                self._due_s[None] = now_s + self.pace.lease_s
            else:
                engine = server.engine.leading
                if engine is None:
                    return
                if step is Step.CYCLE:
                    self.tally.cycles += 1
                    self._cycle_s = now_s
                engine.step(step)
                if step in engine.intervals_s:
                    self._due_s[step] = now_s + max(engine.intervals_s[step], idle_s)
        except ServerCrash:
            self.crash()
        self._check()

    def _check(self) -> None:
        if self.store_faults.commits != self._checked:
            self._checked = self.store_faults.commits
            self._after_step(self)


class _FailureLog(logging.Handler):
    """Collects what the engine logs of failures that nobody foresaw."""

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
