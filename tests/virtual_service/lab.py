"""A scenario of a lab, simulated by the whole service.

Run times and faults come from the same random streams as in `edgeyard.simulator.lab`, so that
the two depths differ only in what the service adds: the moments of its turns, and its repairs.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np

from edgeyard import __version__
from edgeyard.devices.model import Board, Host
from edgeyard.errors import EdgeyardError, InvalidInput
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.scheduler.model.accounts import Balance
from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    Failure,
    FailureCategory,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.run_bounds import run_bound_s
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.simulator import runs
from edgeyard.simulator.lab.boards import MIB, Boards, LabBoard, board_of
from edgeyard.simulator.lab.jobs import (
    DrawnAttempt,
    LabJob,
    draw_attempt,
    draw_history,
    draw_jobs,
    model_sha256,
)
from edgeyard.simulator.lab.past import HostLoads, past_run
from edgeyard.simulator.learning import outcome_of
from edgeyard.simulator.runs import (
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)
from edgeyard.simulator.scenario import Faults, LabScenario, Scenario, scenario_hash
from tests.virtual_service.cluster import SimCluster, TaskPlan
from tests.virtual_service.simulation import (
    START,
    Arrival,
    ServerFactory,
    ServiceSimulation,
    TurnIntervals,
)

READ_BACK = 0.05
"""Share of the rendered jobs that are parsed and compared with the decision."""

IDLE_S = 60.0
"""Interval between turns of steps that run whether or not there are events. Retries after a backoff
begin late by at most this time."""

PROGRESS_EVERY_S = 60.0
"""Interval between reports of progress, virtual time."""

_UNSTATED_BYTES = 1000
"""Size of a model's file if the scenario states none."""

_STATUSES = {
    Status.COMPLETED: runs.COMPLETED,
    Status.FAILED: runs.FAILED,
    Status.CANCELLED: runs.CANCELLED,
    Status.EXPIRED: runs.EXPIRED,
}
_LOST = frozenset({FailureCategory.CLUSTER, FailureCategory.NETWORK})


def simulate_service(
    scenario: Scenario,
    policy: str,
    url: str,
    server_factory: ServerFactory,
    *,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> SimulatedRun:
    """Simulate a scenario of the world of boards with the whole service.

    Args:
        scenario: Its world must be ``boards``.
        policy: Name of the policy that the server is started with.
        url: Of an empty database of this code's schema.
        server_factory: Starts the server.
        seed: Of arrivals and faults; None: the scenario's.
        progress: Called now and then with the share of benchmarks that have ended, 0-1.

    Raises:
        InvalidInput: The scenario is of another world, has no end, or names what is unknown.
    """
    began = time.perf_counter()
    lab = scenario.lab
    if lab is None:
        raise InvalidInput.at(
            scenario.name, f"its world is {scenario.world!r}", 'a scenario with world = "boards"'
        )
    seed = scenario.seed if seed is None else seed
    boards = Boards(lab, seed)
    jobs = draw_jobs(scenario, lab, boards, seed)
    preempting = any(job.description.job_completion_threshold is not None for job in jobs)
    concurrent = _ConcurrentRuns(boards)
    simulation = ServiceSimulation(
        url,
        _hosts(boards),
        [_arrival(job, lab, boards, seed, concurrent, preempting=preempting) for job in jobs],
        server_factory,
        start=_start_of(lab),
        read_back=READ_BACK,
        intervals=TurnIntervals(cycle_s=lab.cycle_s, idle_s=IDLE_S, lease_s=IDLE_S),
    )
    concurrent.holders = simulation.cluster.holders
    try:
        simulation.observer.transact(partial(_open_accounts, lab, sorted({j.user for j in jobs})))
        simulation.observer.transact(partial(_add_history, lab, boards, seed))
        simulation.cluster.loads_at = HostLoads(lab, boards.hosts, scenario.name).at
        simulation.cluster.stale_s = {
            host.name: host.faults.stale_twin_s for host in boards.hosts.values()
        }
        _plan_faults(simulation, scenario, lab, boards, seed)
        for job in jobs:
            timeout_s = job.description.queue_timeout_s
            due_s = None if timeout_s is None else max(job.submit_s, job.start_s or 0.0) + timeout_s
            for moment_s in (job.start_s, job.deadline_s, due_s):
                if moment_s is not None:
                    simulation.actions.schedule(moment_s + 1e-3, simulation.wake)
            if job.cancel_s is not None:
                simulation.actions.schedule(job.cancel_s, partial(_cancel, simulation, job.job_id))
        if progress is not None:
            _report_progress(simulation, len(jobs), progress)
        limit_s = scenario.duration_s + scenario.drain_s
        with _infrequent_gc():
            simulation.run(until_s=limit_s)
        if simulation.broken:
            raise InvalidInput.at(
                f"policy {policy}",
                f"{simulation.broken[0]} (after {simulation.time.now_s:,.0f} s of virtual time)",
                "plugins that answer in every cycle",
            )
        if not simulation.is_over():
            raise InvalidInput.at(
                f"{scenario.name} under policy {policy}",
                f"the scenario does not end: benchmarks are left after {limit_s / 3600:,.1f} h of "
                "virtual time",
                "boards for all benchmarks, deadlines, or a policy under which none waits forever",
            )
        wall_s = time.perf_counter() - began
        return _result(simulation, scenario, policy, seed, boards, jobs, concurrent, wall_s)
    finally:
        simulation.close()


@contextmanager
def _infrequent_gc() -> Iterator[None]:
    """Run Python's garbage collector less often, as the engine makes many short-lived values."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _hosts(boards: Boards) -> tuple[Host, ...]:
    return tuple(
        Host(name, name, True, tuple(_board(boards, each) for each in host.boards))
        for name, host in boards.hosts.items()
    )


def _board(boards: Boards, each: LabBoard) -> Board:
    sharing = frozenset(other.uid for other in boards.sharing(each))
    return replace(board_of(each), shares_with=sharing)


class _ConcurrentRuns:
    """Concurrent runs on a host, which disturb one another.

    Attributes:
        holders: Job id of the run on each board, by the board's name.
        disturbed: Job ids of the runs that had concurrent ones.
    """

    def __init__(self, boards: Boards) -> None:
        """Create it without runs."""
        self.holders: Mapping[str, str] = {}
        self.disturbed: set[str] = set()
        self._boards = boards

    def count(self, board: LabBoard) -> int:
        """Count the runs concurrent to one that begins on a board, and note all as disturbed."""
        if not board.group.disturbance:
            return 0
        own = self.holders[board.uid]
        others = [
            self.holders[each.uid]
            for each in self._boards.hosts[board.host].boards
            if each is not board and each.uid in self.holders
        ]
        if others:
            self.disturbed.update((own, *others))
        return len(others)


def _arrival(
    job: LabJob,
    lab: LabScenario,
    boards: Boards,
    seed: int,
    concurrent: _ConcurrentRuns,
    *,
    preempting: bool,
) -> Arrival:
    """Return what a benchmark does.

    Args:
        concurrent: The runs that disturb its runs.
        preempting: Whether progress matters: some benchmark may preempt another.
    """
    description = job.description

    def at(begin: datetime, moment_s: float | None) -> datetime | None:
        return None if moment_s is None else begin + timedelta(seconds=moment_s - job.submit_s)

    def describe(now: datetime) -> JobDescription:
        return JobDescription(
            model=description.model or "model",
            runtime=description.engine,
            benchmark_type=description.benchmark_type,
            target=None if job.target_uid else job.family,
            target_uid=job.target_uid,
            ram=description.ram_mib * MIB,
            storage=description.storage_mib * MIB,
            user_priority=description.user_priority,
            user_time_s=description.user_time_s,
            user_budget=description.user_budget,
            binding=description.binding,
            deadline=at(now, job.deadline_s),
            start_time=at(now, job.start_s),
            max_retries=description.max_retries,
            nb_inference=description.nb_inference,
            preemptible=description.preemptible,
            preemptible_measuring=description.preemptible_measuring,
            job_completion_threshold=description.job_completion_threshold,
            queue_timeout_s=description.queue_timeout_s,
            count=job.gang_size,
        )

    def plan(number: int, target_uid: str) -> TaskPlan:
        board = boards.rows[boards.row_of_uid[target_uid]]
        drawn = _draw(job, board, number, lab, seed)
        held_s = drawn.held_s * (1.0 + board.group.disturbance * concurrent.count(board))
        category = drawn.failure
        failure = None if category is None else Failure(category=category, sentence="simulated")
        return TaskPlan(
            run_s=held_s - drawn.loading_s - drawn.overhead_s,
            setup_s=drawn.loading_s,
            exit_s=drawn.overhead_s,
            reports_half=preempting,
            reported=failure,
            noticed_s=_noticing(job, board, number, lab, seed),
        )

    return Arrival(
        at_s=job.submit_s,
        benchmark_id=job.job_id,
        user_id=job.user,
        describe=describe,
        plan=plan,
        model=description.model,
        gang_id=job.gang_id,
        model_bytes=_UNSTATED_BYTES if description.model_bytes is None else description.model_bytes,
    )


def _draw(job: LabJob, board: LabBoard, number: int, lab: LabScenario, seed: int) -> DrawnAttempt:
    """Draw an attempt with the same random numbers as `simulate_lab`."""
    rate = lab.rates.get(job.family, 1.0)
    limit_s = run_bound_s(
        job.description.user_time_s, job.description.user_budget, rate, lab.max_run_s
    )
    return draw_attempt(job, board, number, limit_s, seed)


def _noticing(
    job: LabJob, board: LabBoard, number: int, lab: LabScenario, seed: int
) -> Callable[[float], float] | None:
    """Return when the end of an attempt is noticed, with the random numbers of `simulate_lab`."""
    faults = board.faults
    if not faults.late_event_mean_s and not faults.lost_event_rate:
        return None
    random = stream(seed, "events", job.row, number)
    delay_s = float(random.exponential(faults.late_event_mean_s or 1e-9))
    if random.random() >= faults.lost_event_rate:
        return lambda ended_s: ended_s + delay_s
    every_s = lab.compare_s  # the next comparison with the cluster finds it
    return lambda ended_s: (math.floor(ended_s / every_s) + 1) * every_s


def _add_history(lab: LabScenario, boards: Boards, seed: int, uow: UnitOfWork) -> None:
    """Store the outcomes of the runs that ended before the beginning."""
    for row, stated in enumerate(lab.past):
        uow.attempts.add_outcome(outcome_of(past_run(stated, row, _start_of(lab))))
    for job, board in draw_history(lab, boards, seed):
        uow.attempts.add_outcome(
            Outcome(
                benchmark_id=f"history-{job.job_id}",
                attempt=1,
                target_uid=board.uid,
                family=job.family,
                engine=job.description.engine,
                benchmark_type=job.description.benchmark_type.value,
                model_sha256=model_sha256(job.description.model),
                wait_s=0.0,
                run_s=job.run_s(board),
                failure_category=None,
                latency_p50_ms=None,
                verdict=None,
                ended_at=_start_of(lab) - timedelta(hours=1),
                user_id=job.user,
                nb_inference=job.description.nb_inference,
            )
        )


def _open_accounts(lab: LabScenario, names: Sequence[str], uow: UnitOfWork) -> None:
    arriving = lab.arrivals.users if lab.arrivals is not None else ()
    stated = {user.name: user for user in (*arriving, *lab.users)}
    for name in sorted({*names, *stated}):
        user = stated.get(name)
        uow.accounts.add_user(
            User(
                user_id=name,
                role=Role.SUBMITTER,
                created_at=_start_of(lab),
                max_priority=10,
                max_running=None if user is None else user.max_running,
                share=1.0 if user is None else user.share,
            )
        )
        if user is not None and user.credits is not None:
            uow.credits.save_balance(Balance(user_id=name, credits=user.credits))
    for family, rate in lab.rates.items():
        uow.credits.set_rate(family, rate)
    for row, lease in enumerate(lab.leases):
        uow.reservations.add_lease(
            Lease(
                lease_id=f"lease-{row + 1}",
                target_uid=lease.target_uid,
                since=_start_of(lab) + timedelta(seconds=lease.from_s),
                until=_start_of(lab) + timedelta(seconds=lease.to_s),
                reason="simulated",
                user_id=lease.user or None,
            )
        )


def _plan_faults(
    simulation: ServiceSimulation, scenario: Scenario, lab: LabScenario, boards: Boards, seed: int
) -> None:
    actions = simulation.actions
    faults = _Faults(simulation.cluster)
    for outage in lab.outages:
        known = boards.row_of_uid if outage.what == "board" else boards.hosts
        if outage.name not in known:
            raise InvalidInput.at(
                f"{scenario.name}: lab.outages",
                f"there is no {outage.what} {outage.name!r}",
                ", ".join(sorted(known)[:10]),
            )
        actions.schedule(outage.from_s, partial(faults.begin, outage.what, outage.name))
        actions.schedule(outage.to_s, partial(faults.end, outage.what, outage.name))

    def plan_next(what: str, name: str, times: Iterator[tuple[float, float]]) -> None:
        """Plan the next fault; their number depends on when the simulation ends."""
        for from_s, to_s in times:
            actions.schedule(from_s, partial(faults.begin, what, name))

            def end() -> None:
                faults.end(what, name)
                plan_next(what, name, times)

            actions.schedule(to_s, end)
            return

    for board in boards.rows:
        if board.present:
            plan_next("board", board.uid, _fault_times("board", board.uid, board.faults, seed))
    for host in boards.hosts.values():
        for what in ("host", "network"):
            plan_next(what, host.name, _fault_times(what, host.name, host.faults, seed))
    absent = {each.uid for each in boards.rows if not each.present}
    if absent:
        simulation.set_absent(frozenset(absent))

    def change(row: int) -> None:
        stated = lab.changes[row]
        if stated.what == "boards_join":
            for board in boards.joining[row]:
                board.present = True
                absent.discard(board.uid)
                times = _fault_times("board", board.uid, board.faults, seed, stated.at_s)
                plan_next("board", board.uid, times)
            simulation.set_absent(frozenset(absent))
            return
        chosen = [
            each
            for each in boards.rows
            if each.present
            and (stated.target_uid == each.uid or stated.family == each.group.family)
        ][: stated.count]
        if stated.what == "boards_leave":
            for board in chosen:
                board.present = False
                absent.add(board.uid)
            simulation.set_absent(frozenset(absent))
        else:
            _drain(simulation, [each.uid for each in chosen], stated.what == "drain")

    for row, stated in enumerate(lab.changes):
        if stated.what != "load":
            actions.schedule(stated.at_s, partial(change, row))


class _Faults:
    """Begins and ends faults of boards, hosts and networks; those of one part may overlap."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._count: Counter[tuple[str, str]] = Counter()

    def begin(self, what: str, name: str) -> None:
        self._count[what, name] += 1
        if self._count[what, name] > 1:
            return
        if what == "board":
            self._cluster.fail_board(name, "its host reports it as unusable", kills=True)
        elif what == "host":
            self._cluster.fail_host(name, "off")
        else:
            self._cluster.cut_off_host(name)

    def end(self, what: str, name: str) -> None:
        self._count[what, name] -= 1
        if self._count[what, name]:
            return
        if what == "board":
            self._cluster.repair_board(name)
        elif what == "host":
            self._cluster.repair_host(name)
        else:
            self._cluster.reconnect_host(name)


def _fault_times(
    what: str, name: str, faults: Faults, seed: int, now_s: float = 0.0
) -> Iterator[tuple[float, float]]:
    """Yield when a part fails and is repaired, with the random numbers of `simulate_lab`."""
    between_s, repair_s = {
        "board": (faults.board_mean_between_s, faults.board_mean_repair_s),
        "host": (faults.host_mean_between_s, faults.host_mean_repair_s),
        "network": (faults.network_mean_between_s, faults.network_mean_repair_s),
    }[what]
    if not between_s:
        return
    random = stream(seed, "faults", what, name)
    while True:
        from_s = now_s + float(random.exponential(between_s))
        now_s = from_s + float(random.exponential(repair_s))
        yield from_s, now_s


def _drain(simulation: ServiceSimulation, uids: Sequence[str], drained: bool) -> None:
    def put(uow: UnitOfWork, at: datetime) -> None:
        for uid in uids:
            made = BoardOverride(
                target_uid=uid, drained=drained, reason="drained", by_user_id="operator", at=at
            )
            uow.board_overrides.put(made)

    simulation.act_as_user(put)


def _cancel(simulation: ServiceSimulation, job_id: str) -> None:
    with suppress(EdgeyardError):  # it may have ended
        simulation.act_as_user(lambda uow, now: lifecycle.cancel(uow, job_id, now, "its owner"))


def _report_progress(
    simulation: ServiceSimulation, count: int, progress: Callable[[float], None]
) -> None:
    def report() -> None:
        with simulation.observer.read() as uow:
            live = len(uow.benchmarks.live_versions())
        progress((len(simulation.submitted) - live) / count)
        simulation.actions.schedule(simulation.time.now_s + PROGRESS_EVERY_S, report)

    simulation.actions.schedule(PROGRESS_EVERY_S, report)


def _result(
    simulation: ServiceSimulation,
    scenario: Scenario,
    policy: str,
    seed: int,
    boards: Boards,
    jobs: Sequence[LabJob],
    concurrent: _ConcurrentRuns,
    wall_s: float,
) -> SimulatedRun:
    with simulation.observer.read() as uow:
        found = {
            each.benchmark_id: each for each in uow.benchmarks.get_many([j.job_id for j in jobs])
        }
        tried: defaultdict[str, list[Attempt]] = defaultdict(list)
        for job in jobs:
            tried[job.job_id] += uow.attempts.of(job.job_id)
    rows, ended = [], [found[job.job_id] for job in jobs]
    start = simulation.start
    last: list[Attempt | None] = []
    for job in jobs:
        attempts = tried[job.job_id]
        started = [each for each in attempts if each.started_at is not None]
        last.append(started[-1] if started else None)
        for each in started:
            uid = each.placed_uid or each.target_uid
            if uid is None or each.started_at is None:
                continue
            to = each.task_ended_at or each.ended_at or each.started_at
            rows.append(
                (
                    _seconds_from(each.started_at, start),
                    boards.row_of_uid[uid],
                    job.row,
                    _seconds_from(to, start),
                    _end_code(each, found),
                )
            )
    held = np.array(sorted(rows), dtype=np.float64).reshape(-1, 5)
    return SimulatedRun(
        meta=RunMeta(
            scenario=scenario.name,
            scenario_hash=scenario_hash(scenario),
            world="boards",
            policy=policy,
            seed=seed,
            version=__version__,
            wall_s=wall_s,
            cycles=simulation.counts.cycles,
            events=simulation.counts.steps,
            events_sha256=_hash(held),
            figures={
                "jobs_rendered": float(simulation.reader.rendered),
                "jobs_read_back": float(simulation.reader.read_back),
                **_comparable(boards, ended, last, concurrent),
            },
        ),
        jobs=JobColumns(
            job=np.array([job.job_id for job in jobs], dtype=np.str_),
            user=np.array([job.user for job in jobs], dtype=np.str_),
            submit_s=np.array(
                [_seconds_from(each.submit_time, start) for each in ended], dtype=np.float64
            ),
            start_s=np.array(
                [
                    math.nan if each is None else _seconds_from(each.started_at, start)
                    for each in last
                ],
                dtype=np.float64,
            ),
            end_s=np.array(
                [_seconds_from(each.ended_at, start) for each in ended], dtype=np.float64
            ),
            board=np.array([_board_row(boards, each) for each in last], dtype=np.int64),
            status=np.array([_STATUSES[each.status] for each in ended], dtype=np.int64),
            attempts=np.array([len(tried[job.job_id]) for job in jobs], dtype=np.int64),
            preemptions=np.array(
                [
                    sum(
                        each.failure is not None
                        and each.failure.category is FailureCategory.PREEMPTED
                        for each in tried[job.job_id]
                    )
                    for job in jobs
                ],
                dtype=np.int64,
            ),
            deadline_s=np.array(
                [math.nan if job.deadline_s is None else job.deadline_s for job in jobs],
                dtype=np.float64,
            ),
            procs=np.ones(len(jobs), dtype=np.int64),
        ),
        occupancy=OccupancyColumns(
            board=held[:, 1].astype(np.int64),
            job=held[:, 2].astype(np.int64),
            from_s=held[:, 0],
            to_s=held[:, 3],
            how=held[:, 4].astype(np.int64),
        ),
        series=_series(held, ended, len(boards.rows), start),
        boards=tuple(each.uid for each in boards.rows),
        families=tuple(each.group.family for each in boards.rows),
    )


def _comparable(
    boards: Boards,
    ended: Sequence[Benchmark],
    last: Sequence[Attempt | None],
    concurrent: _ConcurrentRuns,
) -> dict[str, float]:
    """Return which share of the completed benchmarks was undisturbed, where runs disturb others."""
    if not any(each.group.disturbance for each in boards.rows):
        return {}
    done = [
        attempt.job_id not in concurrent.disturbed
        for benchmark, attempt in zip(ended, last, strict=True)
        if benchmark.status is Status.COMPLETED and attempt is not None
    ]
    return {"comparable_share": sum(done) / len(done) if done else math.nan}


def _series(
    held: np.ndarray, ended: Sequence[Benchmark], boards: int, start: datetime
) -> SeriesColumns:
    """Return how many waited and ran over time."""
    submitted = np.array([_seconds_from(each.submit_time, start) for each in ended])
    gone = np.array([_seconds_from(each.ended_at, start) for each in ended])
    times = np.concatenate((submitted, gone, held[:, 0], held[:, 3]))
    count, runs_count = len(ended), len(held)
    live = np.concatenate((np.ones(count), -np.ones(count), np.zeros(2 * runs_count)))
    running = np.concatenate((np.zeros(2 * count), np.ones(runs_count), -np.ones(runs_count)))
    order = np.argsort(times, kind="stable")
    times, live, running = times[order], live[order].cumsum(), running[order].cumsum()
    last_of_instant = np.append(times[1:] != times[:-1], True)
    times, live, running = times[last_of_instant], live[last_of_instant], running[last_of_instant]
    return SeriesColumns(
        time_s=times,
        pending=np.maximum(live - running, 0).astype(np.int64),
        running=running.astype(np.int64),
        busy_share=running / boards,
        overloaded=np.zeros(len(times), dtype=np.int64),
    )


def _end_code(attempt: Attempt, found: dict[str, Benchmark]) -> int:
    failure = attempt.failure or attempt.task_failure
    if failure is None:
        completed = found[attempt.benchmark_id].status is Status.COMPLETED
        return runs.ENDED if completed else runs.STOPPED
    if failure.category is FailureCategory.PREEMPTED:
        return runs.PREEMPTED
    return runs.LOST if failure.category in _LOST else runs.FAULTED


def _board_row(boards: Boards, attempt: Attempt | None) -> int:
    uid = None if attempt is None else attempt.placed_uid or attempt.target_uid
    return runs.NO_BOARD if uid is None else boards.row_of_uid[uid]


def _start_of(lab: LabScenario) -> datetime:
    return START + timedelta(seconds=lab.day_s)


def _seconds_from(moment: datetime | None, start: datetime) -> float:
    return math.nan if moment is None else (moment - start).total_seconds()


def _hash(held: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(held).tobytes()).hexdigest()
