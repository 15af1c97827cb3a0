"""Lives one `FaultSchedule`: benchmarks, faults, and what is checked after every step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from edgeyard.devices.model import Board, BoardEngine, Host
from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.engine import charging, lifecycle
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Failure,
    FailureCategory,
    JobDescription,
)
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.ports import UnitOfWork
from tests.faults.invariants import Invariants
from tests.faults.schedule import (
    Fault,
    FaultKind,
    FaultSchedule,
    Submission,
    TaskEnd,
)
from tests.virtual_service.cluster import EventDelivery, TaskPlan
from tests.virtual_service.simulation import (
    START,
    AfterStep,
    Arrival,
    ServerFactory,
    ServiceSimulation,
    SimMachine,
    TurnIntervals,
)
from tests.virtual_service.store import InterruptPoint

MAX_S = 4 * 3600.0
"""Virtual time after the last fault within which everything has to end."""

QUIET_INTERVALS = TurnIntervals(idle_s=30.0)
"""Once nothing goes wrong any more, steps without news are taken less often."""

STRAYS_S = 120.0
"""From when nothing goes wrong any more to when an operator stops jobs that the store does not
know, and from then on to the next time."""

MORE_CREDITS = 100_000.0
"""That each user gets once nothing goes wrong any more."""

FAMILY, ENGINE = "sim", "ort"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """What came of a schedule.

    Attributes:
        violations: What must never happen, and did; empty: all is well.
        epochs: How often a server began to lead.
        restores: How often an older backup was restored.
        digest: Of all steps and all events: equal for equal runs.
    """

    violations: tuple[str, ...]
    steps: int
    crashes: int
    epochs: int
    restores: int
    checks: int
    virtual_s: float
    statuses: dict[str, int]
    digest: str


def run_schedule(schedule: FaultSchedule, url: str, server_factory: ServerFactory) -> FaultRun:
    """Run a schedule.

    Args:
        schedule: Benchmarks and faults.
        url: Of an empty database of this code's schema.
        server_factory: Starts servers.
    """
    invariants = Invariants(schedule.credits)
    simulation = prepare(schedule, url, server_factory, invariants)
    invariants.observe(simulation)
    try:
        users = sorted({f"user{each.user}" for each in schedule.submissions})
        if schedule.credits is not None:
            simulation.observer.transact(partial(_give_credits, users, schedule.credits))
        faults = _Faults(simulation, invariants)
        for fault in schedule.faults:
            simulation.actions.schedule(fault.at_s, partial(faults.begin, fault))
        simulation.run(until_s=schedule.quiet_s, done=lambda: False)
        simulation.intervals = QUIET_INTERVALS
        if schedule.credits is not None:  # who has none left would wait for ever
            invariants.add_credits(MORE_CREDITS)
            simulation.observer.transact(partial(_add_credits, users, simulation.now()))
        _stop_strays(simulation, schedule.quiet_s + STRAYS_S)
        simulation.run(until_s=schedule.quiet_s + MAX_S)
        invariants.check_end(simulation)
        with simulation.observer.read() as uow:
            found = uow.benchmarks.get_many(sorted(simulation.submitted))
            for event in uow.log.events(after=0, limit=100_000):
                simulation.counts.digest.update(
                    f"{event.at} {event.kind} {event.benchmark_id}\n".encode()
                )
        return FaultRun(
            violations=(*invariants.violations, *simulation.broken[:5]),
            steps=simulation.counts.steps,
            crashes=simulation.counts.crashes,
            epochs=invariants.epochs,
            restores=simulation.restores,
            checks=invariants.checks,
            virtual_s=simulation.time.now_s,
            statuses=dict(Counter(each.status.value for each in found)),
            digest=simulation.counts.digest.hexdigest(),
        )
    finally:
        simulation.close()


def prepare(
    schedule: FaultSchedule, url: str, server_factory: ServerFactory, after_step: AfterStep
) -> ServiceSimulation:
    """Return a simulation of a schedule's benchmarks, to which nothing happens yet."""
    return ServiceSimulation(
        url,
        hosts_of(schedule),
        [_arrival(number, each, schedule) for number, each in enumerate(schedule.submissions)],
        server_factory,
        servers=schedule.servers,
        shuffle=random.Random(schedule.seed),
        after_step=after_step,
    )


def hosts_of(schedule: FaultSchedule) -> tuple[Host, ...]:
    """Return the hosts of a schedule with their boards."""
    hosts = []
    for number, count in enumerate(schedule.hosts, 1):
        uids = [f"{FAMILY}-{number:04d}-{board:04d}" for board in range(1, count + 1)]
        boards = tuple(
            Board(
                target_uid=uid,
                family=FAMILY,
                ram_bytes=4 * 2**30,
                storage_bytes=16 * 2**30,
                engines=(BoardEngine(ENGINE, "1", frozenset({"TYPE1"})),),
                shares_with=frozenset(uids) - {uid} if schedule.sharing else frozenset(),
            )
            for uid in uids
        )
        hosts.append(Host(f"host-{number}", f"host-{number}", True, boards))
    return tuple(hosts)


def _arrival(number: int, stated: Submission, schedule: FaultSchedule) -> Arrival:
    uids = [board.target_uid for host in hosts_of(schedule) for board in host.boards]
    pin = None if stated.pin is None else uids[stated.pin % len(uids)]

    def after(now: datetime, seconds: float | None) -> datetime | None:
        return None if seconds is None else now + timedelta(seconds=seconds)

    def describe(now: datetime) -> JobDescription:
        return JobDescription(
            model="net.onnx",
            runtime=ENGINE,
            benchmark_type=BenchmarkType.TYPE1,
            target=None if pin else FAMILY,
            target_uid=pin,
            user_priority=stated.priority,
            deadline=after(now, stated.deadline_s),
            start_time=after(now, stated.start_s),
            queue_timeout_s=stated.queue_timeout_s,
            max_retries=stated.max_retries,
            job_completion_threshold=90 if stated.urgent else None,
            preemptible_measuring=True,
            binding=None if stated.binding is None else Binding(stated.binding),
        )

    def plan(attempt: int, target_uid: str) -> TaskPlan:
        end = stated.ends[attempt - 1] if attempt <= len(stated.ends) else TaskEnd.WELL
        return TaskPlan(
            run_s=float("inf") if end is TaskEnd.TOO_LONG else stated.run_s,
            reported=_REPORTED.get(end),
            crash=_CRASHED if end is TaskEnd.CRASH else None,
        )

    return Arrival(
        at_s=stated.at_s,
        benchmark_id=f"{FAMILY}-{ENGINE}-{START:%Y%m%d%H%M%S}-{number:010d}",
        user_id=f"user{stated.user}",
        describe=describe,
        plan=plan,
    )


_REPORTED = {
    TaskEnd.BOARD_FAULT: Failure(category=FailureCategory.BOARD_FAULT, sentence="it was too hot"),
    TaskEnd.MODEL_FAULT: Failure(category=FailureCategory.USER_MODEL, sentence="no such operator"),
}
_CRASHED = Failure(category=FailureCategory.BOARD_FAULT, sentence="the task was ended by SIGKILL")


def _give_credits(users: list[str], credits: float, uow: UnitOfWork) -> None:
    for user_id in users:
        charging.set_credits(uow, user_id, credits, START, "operator")


def _add_credits(users: list[str], now: datetime, uow: UnitOfWork) -> None:
    for user_id in users:
        charging.add_credits(uow, user_id, MORE_CREDITS, now, "operator")


def _stop_strays(simulation: ServiceSimulation, at_s: float) -> None:
    def stop() -> None:
        simulation.stop_strays()
        _stop_strays(simulation, at_s + STRAYS_S)

    if simulation.restores:
        simulation.actions.schedule(at_s, stop)


class _Faults:
    """Begins and ends faults."""

    def __init__(self, simulation: ServiceSimulation, invariants: Invariants) -> None:
        self._simulation = simulation
        self._invariants = invariants
        self._lasting: Counter[FaultKind] = Counter()
        self._cut_off: Counter[str] = Counter()
        self._count = 0

    def begin(self, fault: Fault) -> None:
        simulation, kind = self._simulation, fault.kind
        cluster, uids = simulation.cluster, self._uids()
        uid = uids[fault.pick % len(uids)]
        host = cluster.inventory[fault.pick % len(cluster.inventory)].name
        machine, nth = self._machine(fault), 1 + fault.pick
        match kind:
            case FaultKind.CRASH:
                if machine.server is not None:
                    machine.restart_s = max(1.0, fault.for_s)
                    simulation.crash(machine)
            case (
                FaultKind.CRASH_BEFORE_COMMIT
                | FaultKind.CRASH_AFTER_COMMIT
                | FaultKind.CRASH_BEFORE_CALL
                | FaultKind.CRASH_AFTER_CALL
            ):
                machine.faults.interrupt(_INTERRUPT_POINTS[kind], nth, machine.faults.crash)
            case (
                FaultKind.HANG_BEFORE_WRITE
                | FaultKind.HANG_AFTER_COMMIT
                | FaultKind.HANG_BEFORE_CALL
                | FaultKind.HANG_AFTER_CALL
            ):
                simulation.hang_at(machine, _INTERRUPT_POINTS[kind], nth, fault.for_s)
            case FaultKind.STALL:
                machine.stalled_until_s = simulation.time.now_s + fault.for_s
            case FaultKind.STORE_AWAY:
                self._lose_store(fault)
            case FaultKind.OLDER_BACKUP:
                backup = simulation.back_up()
                self._later(fault, lambda: self._restore(backup))
            case FaultKind.CLUSTER_RESET:
                cluster.forget_all()
            case FaultKind.CLOCK_SET:
                machine.clocks.set_wall(fault.by_s)
                self._later(fault, lambda: machine.clocks.set_wall(-fault.by_s))
            case FaultKind.CLOCK_SET_FOR_GOOD:
                machine.clocks.set_wall(fault.by_s)
            case FaultKind.JOB_FORGOTTEN:
                jobs = sorted(cluster.jobs)
                if jobs:
                    cluster.forget(jobs[fault.pick % len(jobs)])
            case FaultKind.BOARD_FAILS | FaultKind.BOARD_HANGS:
                kills = kind is FaultKind.BOARD_FAILS
                cluster.fail_board(uid, "its power supply failed", kills=kills)
                self._later(fault, lambda: cluster.repair_board(uid))
            case FaultKind.HOST_FAILS:
                cluster.fail_host(host, "down")
                self._later(fault, lambda: cluster.repair_host(host))
            case FaultKind.CANCEL | FaultKind.PREEMPT:
                self._act_on_benchmark(fault)
            case FaultKind.LEASE:
                self._lease(fault, uid)
            case FaultKind.DRAIN:
                self._drain(fault, uid)
            case _:
                self._lasting[kind] += 1
                self._set(kind, True)
                self._later(fault, lambda: self._end(kind))

    def _later(self, fault: Fault, action: Callable[[], object]) -> None:
        self._simulation.actions.schedule(fault.at_s + fault.for_s, action)

    def _end(self, kind: FaultKind) -> None:
        self._lasting[kind] -= 1
        if not self._lasting[kind]:
            self._set(kind, False)

    def _set(self, kind: FaultKind, on: bool) -> None:
        cluster = self._simulation.cluster.faults
        match kind:
            case FaultKind.DISK_FULL:
                for machine in self._simulation.machines:
                    machine.faults.full = on
                    machine.since_s = self._simulation.time.now_s
            case FaultKind.CLUSTER_AWAY:
                cluster.away = on
            case FaultKind.ANSWERS_LOST:
                cluster.loses_answers = on
            case FaultKind.LATE_REGISTRATION:
                cluster.registers_late_s = 25.0 if on else 0.0
            case FaultKind.STALE_ANSWERS:
                cluster.stale = on
            case _:
                cluster.delivery = _HINTS[kind] if on else EventDelivery.PROMPT

    def _machine(self, fault: Fault) -> SimMachine:
        leader = self._simulation.leader
        others = [each for each in self._simulation.machines if each is not leader]
        return [leader, leader, *others][fault.pick % (2 + len(others))]

    def _lose_store(self, fault: Fault) -> None:
        """Cut one server, or in one case of three all of them, off from the store."""
        machine = self._machine(fault)
        cut_off = self._simulation.machines if fault.pick % 3 == 0 else [machine]
        for each in cut_off:
            self._cut_off[each.name] += 1
            each.faults.away = True

        def end() -> None:
            for each in cut_off:
                self._cut_off[each.name] -= 1
                each.faults.away = self._cut_off[each.name] > 0
                each.since_s = self._simulation.time.now_s

        self._later(fault, end)

    def _restore(self, backup: Path) -> None:
        self._simulation.restore(backup)
        self._invariants.note_restore(self._simulation)

    def _uids(self) -> list[str]:
        inventory = self._simulation.cluster.inventory
        return [board.target_uid for host in inventory for board in host.boards]

    def _act_on_benchmark(self, fault: Fault) -> None:
        simulation = self._simulation
        ids = sorted(simulation.submitted)
        if not ids:
            return
        benchmark_id = ids[fault.pick % len(ids)]
        act = lifecycle.cancel if fault.kind is FaultKind.CANCEL else lifecycle.preempt_by_operator
        with suppress(EdgeyardError):
            simulation.act_as_user(lambda uow, now: act(uow, benchmark_id, now, "operator"))

    def _lease(self, fault: Fault, uid: str) -> None:
        self._count += 1
        made: list[Lease] = []

        def add(uow: UnitOfWork, now: datetime) -> None:
            lease = Lease(
                lease_id=f"lease-{self._count}",
                target_uid=uid,
                since=now + timedelta(seconds=fault.by_s),
                until=now + timedelta(seconds=fault.by_s + fault.for_s),
                reason="maintenance",
            )
            uow.reservations.add_lease(lease)
            made.append(lease)

        with suppress(EdgeyardError):
            if self._simulation.act_as_user(add):
                self._invariants.note_lease(made[-1])

    def _drain(self, fault: Fault, uid: str) -> None:
        with suppress(EdgeyardError):
            self._simulation.act_as_user(partial(_put_drained, uid, True))
        self._later(fault, lambda: self._resume(uid))

    def _resume(self, uid: str) -> None:
        done = False
        with suppress(EdgeyardError):
            done = self._simulation.act_as_user(partial(_put_drained, uid, False))
        if not done:
            retry_s = self._simulation.time.now_s + 5.0
            self._simulation.actions.schedule(retry_s, lambda: self._resume(uid))


def _put_drained(uid: str, drained: bool, uow: UnitOfWork, now: datetime) -> None:
    made = BoardOverride(
        target_uid=uid,
        drained=drained,
        reason="maintenance" if drained else "",
        by_user_id="operator",
        at=now,
    )
    uow.board_overrides.put(made)


_HINTS = {
    FaultKind.HINTS_LOST: EventDelivery.LOST,
    FaultKind.HINTS_DOUBLED: EventDelivery.DOUBLED,
    FaultKind.HINTS_LATE: EventDelivery.LATE,
    FaultKind.HINTS_REVERSED: EventDelivery.REVERSED,
}
_INTERRUPT_POINTS = {
    FaultKind.CRASH_BEFORE_COMMIT: InterruptPoint.BEFORE_COMMIT,
    FaultKind.CRASH_AFTER_COMMIT: InterruptPoint.AFTER_COMMIT,
    FaultKind.CRASH_BEFORE_CALL: InterruptPoint.BEFORE_CALL,
    FaultKind.CRASH_AFTER_CALL: InterruptPoint.AFTER_CALL,
    FaultKind.HANG_BEFORE_WRITE: InterruptPoint.BEFORE_WRITE,
    FaultKind.HANG_AFTER_COMMIT: InterruptPoint.AFTER_COMMIT,
    FaultKind.HANG_BEFORE_CALL: InterruptPoint.BEFORE_CALL,
    FaultKind.HANG_AFTER_CALL: InterruptPoint.AFTER_CALL,
}
