"""The lab that a scenario describes, in virtual time, as the controller sees it.

It is the source and the sink of the test environment: `World.state` is what goes to the twin,
`World.apply` takes the decisions, `World.advance` goes on until something has happened. What
arrives, how long it runs and what fails depends on the scenario and the seed alone, never on the
decisions: different schedulers, and a model before and after its training, meet the same.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import RETRYABLE, BenchmarkType, FailureCategory
from edgeyard.scheduler.sim.kernel.streams import stream
from edgeyard.scheduler.sim.metrics import Schedule
from edgeyard.scheduler.sim.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    JobRow,
    LabScenario,
    NodesScenario,
    Scenario,
)
from edgeyard.scheduler.sim.ste.documents import (
    ATTEMPT_MARK,
    PLAIN_ENGINE,
    Job,
    Link,
    Node,
    TwinData,
    User,
)
from edgeyard.scheduler.sim.ste.steps import Decision, StoppedJob

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Time 0 of the virtual clock."""

MAX_ENDED = 2000
"""Ended jobs that a state holds: the past that models and predictions know."""

_RETRIED = frozenset(each.value for each in RETRYABLE)
_CORES = 4
_HOUR_S = 3600.0

_ARRIVAL, _END, _EXPIRY, _FAULT, _REPAIR, _JOIN, _LEAVE, _DRAIN, _RESUME, _TICK = range(10)


@dataclass(slots=True, eq=False)
class _Board:
    """A board, and how it is."""

    uid: str
    family: str
    host: str
    speed: float
    engines: dict[str, list[BenchmarkType]]
    ram_mib: int
    storage_mib: int
    task_rate: float = 0.0
    joined: bool = True
    healthy: bool = True
    online: bool = True
    drained: bool = False
    job: int = -1
    cores: int = _CORES


@dataclass(slots=True, eq=False)
class _Life:
    """A job, and what has become of it.

    Attributes:
        row: What it is.
        doomed: It fails wherever it runs.
        board: Where it runs, or ran last; -1: nowhere yet.
    """

    row: JobRow
    spread: float = 0.0
    doomed: bool = False
    status: str = "arriving"
    board: int = -1
    start_s: float = math.nan
    end_s: float = math.nan
    attempts: int = 0
    failure: str | None = None
    tried: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _AttemptEnd:
    attempt: int
    failure: str | None


@dataclass(frozen=True, slots=True)
class _Outage:
    what: str
    rows: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFigures:
    """What an episode came to; means are over completed jobs, NaN without any.

    Attributes:
        waiting: Jobs that nothing could start.
    """

    jobs: int
    completed: int
    failed: int
    expired: int
    waiting: int
    mean_wait_s: float
    mean_turnaround_s: float
    mean_run_s: float
    mean_bounded_slowdown: float
    utilisation: float
    deadline_misses: int
    makespan_s: float


class World:
    """See the module."""

    def __init__(self, scenario: Scenario, seed: int | None = None) -> None:
        """Draw what arrives.

        Args:
            scenario: Of either world; of nodes, each node runs one job at a time.
            seed: Instead of the scenario's.

        Raises:
            InvalidInput: The scenario needs what this environment does not simulate.
        """
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self.now_s = 0.0
        self.rounds = 0
        self._events: list[tuple[float, int, int, int, object]] = []
        self._count = 0
        self._boards: list[_Board] = []
        self._past: list[Job] = []
        self._attempts: list[Job] = []
        lab = scenario.lab
        if lab is not None:
            self._lab = lab
            for group in lab.boards:
                self._add_group(group)
            rows = [*lab.jobs, *self._arrivals(lab)]
        else:
            assert scenario.nodes is not None
            self._lab = LabScenario(boards=())
            rows = self._plain(scenario.nodes)
        rows.sort(key=lambda each: (each.submit_s, each.job_id))
        rng = stream(self.seed, "doomed")
        doomed = rng.random(len(rows)) < self._lab.faults.model_rate
        spread = {each.model: each.run_spread for each in self._mix()}
        self._lives = [
            _Life(row=row, spread=spread.get(row.model, 0.0), doomed=bool(bad))
            for row, bad in zip(rows, doomed, strict=True)
        ]
        for at, row in enumerate(rows):
            self._push(row.submit_s, _ARRIVAL, at)
        self._live: dict[int, None] = {}
        self._ended: list[int] = []
        self._plan_faults()
        self._draw_past()
        self._take(0.0)

    @property
    def ignored(self) -> Sequence[str]:
        """What the scenario states and this environment does not simulate."""
        lab, faults = self._lab, self._lab.faults
        found = []
        if lab.leases:
            found.append("lab.leases")
        found += [
            f"lab.faults.{name}"
            for name in ("lost_event_rate", "late_event_mean_s", "stale_twin_s")
            if getattr(faults, name)
        ]
        if any(each.cancel_s is not None for each in lab.jobs):
            found.append("lab.jobs.cancel_s")
        return found

    @property
    def over(self) -> bool:
        """Nothing waits or runs, and nothing arrives any more; or the time is up."""
        late = self.now_s > self.scenario.duration_s + self.scenario.drain_s
        return late or (not self._live and not self._events)

    @property
    def pending(self) -> int:
        """How many jobs wait."""
        return sum(self._lives[at].status == "pending" for at in self._live)

    @property
    def share(self) -> float:
        """Share of the jobs that have ended."""
        return len(self._ended) / max(len(self._lives), 1)

    def state(self, *, run: str = "", episode: int = 0) -> TwinData:
        """Return nodes, jobs and links as they are now."""
        boards = [each for each in self._boards if each.joined]
        jobs = [*self._past[-MAX_ENDED:], *self._attempts[-MAX_ENDED:]]
        jobs += [self._job(self._lives[at]) for at in self._ended[-MAX_ENDED:]]
        jobs += [self._job(self._lives[at]) for at in self._live]
        busy: dict[str, list[bool]] = {}
        for each in boards:
            busy.setdefault(each.host, []).append(each.job >= 0)
        return TwinData(
            nodes=[self._node(each, busy[each.host]) for each in boards],
            jobs=jobs,
            links=list(self._links(boards)),
            users=[
                User(user_id=each.name, share=each.share, max_running=each.max_running)
                for each in self._lab.users
            ],
            source=f"scenario {self.scenario.name}",
            run=run,
            episode=episode,
            round=self.rounds,
            now=self._time(self.now_s),
            seed=_seed_of(self.seed, episode, self.rounds),
            max_run_s=self._lab.max_run_s,
        )

    def apply(self, decisions: Iterable[Decision], stopped: Iterable[StoppedJob] = ()) -> None:
        """Stop and start what was decided.

        Raises:
            InvalidInput: A decision names a job that does not wait, or a node that is not free.
        """
        job_of = {self._lives[at].row.job_id: at for at in self._live}
        board_of = {each.uid: row for row, each in enumerate(self._boards)}
        for victim in stopped:
            at = job_of.get(victim.job_id, -1)
            if at >= 0 and self._lives[at].status == "running":
                self._release(at)
                self._lives[at].status = "pending"
        for each in decisions:
            at, row = job_of.get(each.job_id, -1), board_of.get(each.node_id, -1)
            if at < 0 or self._lives[at].status != "pending":
                raise InvalidInput.at("/decisions", f"job {each.job_id!r} does not wait")
            if row < 0 or self._boards[row].job >= 0 or not self._boards[row].joined:
                raise InvalidInput.at("/decisions", f"node {each.node_id!r} is not free")
            self._start(at, row)
        self.rounds += 1

    def advance(self) -> None:
        """Go on until something has happened and a job waits, or nothing is left."""
        while self._events:
            self._take(self._events[0][0])
            if self.pending or self.over:
                return
        if self._live:
            # Who waits now waits for ever: nothing will change any more.
            for at in list(self._live):
                self._end(at, "waiting", None)

    def figures(self) -> EpisodeFigures:
        """Return what the episode came to so far."""
        done = [each for each in self._lives if each.status == "completed"]
        submit = np.array([each.row.submit_s for each in done])
        start = np.array([each.start_s for each in done])
        end = np.array([each.end_s for each in done])
        schedule = Schedule(submit=submit, start=start, end=end, procs=np.ones(len(done), np.int64))
        counts = {
            name: sum(each.status == name for each in self._lives)
            for name in ("completed", "failed", "expired", "waiting", "pending")
        }
        late = sum(
            each.row.deadline_s is not None
            and (each.status == "expired" or each.end_s > each.row.deadline_s)
            for each in self._lives
        )
        return EpisodeFigures(
            jobs=len(self._lives),
            completed=counts["completed"],
            failed=counts["failed"],
            expired=counts["expired"],
            waiting=counts["waiting"] + counts["pending"],
            mean_wait_s=_mean(schedule.wait_s),
            mean_turnaround_s=_mean(schedule.turnaround_s),
            mean_run_s=_mean(schedule.run_s),
            mean_bounded_slowdown=_mean(schedule.bounded_slowdown()),
            utilisation=schedule.utilisation(max(len(self._boards), 1)),
            deadline_misses=late,
            makespan_s=schedule.makespan_s,
        )

    # --- what is there ------------------------------------------------------------------------

    def _add_group(self, group: BoardGroup) -> list[int]:
        """Add the boards of a group; each family's hosts and boards are numbered from 1."""
        there = sum(each.family == group.family for each in self._boards)
        hosts = len({each.host for each in self._boards if each.family == group.family})
        speeds = stream(self.seed, "speed", group.family, there).normal(size=group.count)
        faults = group.faults or self._lab.faults
        rows = []
        for number in range(group.count):
            host = hosts + number // group.per_host + 1
            rows.append(len(self._boards))
            self._boards.append(
                _Board(
                    uid=f"{group.family}-{host:04d}-{there + number + 1:04d}",
                    family=group.family,
                    host=f"host-{group.family}-{host:04d}",
                    speed=group.speed * math.exp(group.speed_spread * float(speeds[number])),
                    engines={name: list(kinds) for name, kinds in group.engines.items()},
                    ram_mib=group.ram_mib,
                    storage_mib=group.storage_mib,
                    task_rate=faults.task_rate,
                )
            )
        return rows

    def _mix(self) -> tuple[JobKind, ...]:
        return self._lab.arrivals.mix if self._lab.arrivals is not None else ()

    def _arrivals(self, lab: LabScenario) -> list[JobRow]:
        arrivals = lab.arrivals
        if arrivals is None:
            return []
        until = min(arrivals.until_s or self.scenario.duration_s, self.scenario.duration_s)
        times = self._times(arrivals, until)
        rng = stream(self.seed, "mix")
        kinds, users = arrivals.mix, arrivals.users
        of_kind = rng.choice(len(kinds), len(times), p=_shares([each.share for each in kinds]))
        of_user = rng.choice(len(users), len(times), p=_shares([each.weight for each in users]))
        where, chance = rng.random(len(times)), rng.random((len(times), 2))
        return [
            self._row(
                f"job-{at + 1:06d}", time, kinds[of_kind[at]], users[of_user[at]].name,
                where[at], chance[at],
            )
            for at, time in enumerate(times)
        ]  # fmt: skip

    def _times(self, arrivals: Arrivals, until: float) -> list[float]:
        """Return the times of arrivals: thinned from a process of the highest rate."""
        rng = stream(self.seed, "arrivals")
        steps = [(each.at_s, each.factor) for each in self._lab.changes if each.what == "load"]
        peak = max([1.0, *(factor for _, factor in steps)])
        diurnal = arrivals.process == "diurnal"
        highest = arrivals.rate_per_hour / _HOUR_S * peak * (1 + arrivals.amplitude * diurnal)
        if arrivals.process == "bernoulli":
            chance = arrivals.rate_per_hour / _HOUR_S * peak * arrivals.step_s
            hits = np.flatnonzero(rng.random(int(until / arrivals.step_s)) < chance)
            times = hits * arrivals.step_s
        else:
            count = rng.poisson(highest * until)
            times = np.sort(rng.random(count) * until)
        rate = np.ones(len(times))
        for at_s, factor in sorted(steps):
            rate[times >= at_s] = factor
        if diurnal:
            angle = 2 * np.pi * (times / _HOUR_S - arrivals.peak_hour) / 24.0
            rate *= (1 + arrivals.amplitude * np.cos(angle)) / (1 + arrivals.amplitude)
        kept: list[float] = times[rng.random(len(times)) < rate / peak].tolist()
        if arrivals.process == "bursts":
            for time in (rng.random(rng.poisson(until / arrivals.burst_every_s)) * until).tolist():
                kept += [time] * int(rng.poisson(arrivals.burst_size))
        return sorted(kept)

    def _row(
        self,
        job_id: str,
        time: float,
        kind: JobKind,
        user: str,
        where: float,
        chance: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> JobRow:
        families = kind.families or tuple(
            dict.fromkeys(
                each.family
                for each in self._boards
                if kind.benchmark_type in each.engines.get(kind.engine, ())
            )
        )
        family = families[int(where * len(families))] if families else "none"
        boards = [each.uid for each in self._boards if each.family == family]
        pinned = bool(boards) and chance[0] < kind.pinned_share
        due = kind.deadline_s if kind.deadline_s and chance[1] < kind.deadline_share else None
        return JobRow(
            job_id=job_id,
            submit_s=time,
            run_s=kind.run_s,
            family=family,
            family_run_s=kind.family_run_s,
            target_uid=boards[int(where * 1e6) % len(boards)] if pinned else "",
            model=kind.model,
            engine=kind.engine,
            benchmark_type=kind.benchmark_type,
            user=user,
            ram_mib=kind.ram_mib,
            storage_mib=kind.storage_mib,
            user_priority=kind.user_priority,
            deadline_s=None if due is None else time + due,
            start_s=None if kind.start_s is None else time + kind.start_s,
            user_time_s=kind.user_time_s,
            queue_timeout_s=kind.queue_timeout_s,
            max_retries=kind.max_retries,
            nb_inference=kind.nb_inference,
            preemptible=kind.preemptible,
            preemptible_measuring=kind.preemptible_measuring,
            job_completion_threshold=kind.job_completion_threshold,
        )

    def _plain(self, nodes: NodesScenario) -> list[JobRow]:
        """Take nodes and jobs without boards: each node runs one job at a time."""
        if nodes.mix is not None or nodes.log:
            raise InvalidInput.at(
                f"{self.scenario.name}: nodes",
                "jobs of a mix or a log share nodes, and here a node runs one job at a time",
                "[[nodes.jobs]], or a scenario of the world 'boards'",
            )
        for group in nodes.nodes:
            for _ in range(group.count):
                self._boards.append(
                    _Board(
                        uid=f"{group.name}-{len(self._boards) + 1:04d}",
                        family="node",
                        host="",
                        speed=1.0,
                        engines={PLAIN_ENGINE: [BenchmarkType.TYPE1]},
                        ram_mib=group.memory_mb,
                        storage_mib=0,
                        cores=group.cpu_cores,
                    )
                )
        self._cpus = {each.job_id: each.cpus for each in nodes.jobs}
        return [
            JobRow(
                job_id=each.job_id,
                submit_s=each.submit_s,
                run_s=each.run_s,
                family="node",
                engine=PLAIN_ENGINE,
                user=each.user or "user",
                ram_mib=int(each.memory_mb),
                user_time_s=each.requested_s,
            )
            for each in nodes.jobs
        ]

    def _plan_faults(self) -> None:
        lab = self._lab
        hosts: dict[str, list[int]] = {}
        for row, board in enumerate(self._boards):
            hosts.setdefault(board.host, []).append(row)
        row = 0
        for group in lab.boards:
            faults = group.faults or lab.faults
            own = range(row, row + group.count)
            row += group.count
            for at in own:
                self._outages(
                    "board", self._boards[at].uid, [at],
                    faults.board_mean_between_s, faults.board_mean_repair_s,
                )  # fmt: skip
            for host in dict.fromkeys(self._boards[at].host for at in own):
                self._host_outages(host, hosts[host], faults)
        uid_rows = {each.uid: [at] for at, each in enumerate(self._boards)}
        for outage in lab.outages:
            rows = uid_rows.get(outage.name) or hosts.get(outage.name, [])
            self._push(outage.from_s, _FAULT, 0, _Outage(outage.what, rows))
            self._push(outage.to_s, _REPAIR, 0, _Outage(outage.what, rows))
        for change in lab.changes:
            kind = {"boards_join": _JOIN, "boards_leave": _LEAVE, "drain": _DRAIN}
            if change.what != "load":
                self._push(change.at_s, kind.get(change.what, _RESUME), 0, change)

    def _host_outages(self, host: str, rows: list[int], faults: Faults) -> None:
        for what, between, repair in (
            ("host", faults.host_mean_between_s, faults.host_mean_repair_s),
            ("network", faults.network_mean_between_s, faults.network_mean_repair_s),
        ):
            self._outages(what, host, rows, between, repair)

    def _outages(
        self, what: str, name: str, rows: list[int], between_s: float, repair_s: float
    ) -> None:
        if between_s <= 0:
            return
        rng = stream(self.seed, "outages", what, name)
        time = float(rng.exponential(between_s))
        while time < self.scenario.duration_s:
            back = time + float(rng.exponential(repair_s))
            self._push(time, _FAULT, 0, _Outage(what, rows))
            self._push(back, _REPAIR, 0, _Outage(what, rows))
            time = back + float(rng.exponential(between_s))

    def _draw_past(self) -> None:
        """Draw the runs that ended before the beginning."""
        mix = self._mix()
        if not self._lab.history_jobs or not mix:
            return
        rng = stream(self.seed, "past")
        kinds = rng.choice(len(mix), self._lab.history_jobs, p=_shares([e.share for e in mix]))
        for at, number in enumerate(kinds.tolist()):
            kind = mix[number]
            able = [
                each
                for each in self._boards
                if kind.benchmark_type in each.engines.get(kind.engine, ())
                and (not kind.families or each.family in kind.families)
            ]
            if not able:
                continue
            board = able[int(rng.integers(len(able)))]
            row = self._row(f"past-{at + 1:06d}", 0.0, kind, "past", 0.0, rng.random(2))
            failed = bool(rng.random() < board.task_rate)
            self._past.append(
                Job(
                    job_id=row.job_id,
                    cpus_req=1,
                    mem_req=row.ram_mib,
                    time_run=_run_s(row, board) * math.exp(kind.run_spread * rng.normal()),
                    status="failed" if failed else "completed",
                    failure=FailureCategory.BOARD_FAULT.value if failed else None,
                    node_id=board.uid,
                    user_id="past",
                    submit_time=self._time(-_HOUR_S),
                    ended_at=self._time(-_HOUR_S + at * 1e-3),
                    family=board.family,
                    engine=row.engine,
                    benchmark_type=row.benchmark_type,
                    model_sha256=_digest(row.model),
                    nb_inference=row.nb_inference,
                )
            )

    # --- what happens -------------------------------------------------------------------------

    def _push(self, time: float, kind: int, at: int, what: object = None) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, kind, self._count, at, what))

    def _take(self, time: float) -> None:
        """Take all events up to this time and within one interval of cycles after it."""
        last = time + self._lab.cycle_s
        while self._events and self._events[0][0] <= last:
            when, kind, _, at, what = heapq.heappop(self._events)
            self.now_s = max(self.now_s, when)
            self._happen(kind, at, what)

    def _happen(self, kind: int, at: int, what: object) -> None:
        if kind == _ARRIVAL:
            self._lives[at].status = "pending"
            self._live[at] = None
            self._plan_expiry(at)
        elif kind == _END:
            assert isinstance(what, _AttemptEnd)
            if self._lives[at].status == "running" and self._lives[at].attempts == what.attempt:
                self._finish(at, what.failure)
        elif kind == _EXPIRY:
            if self._lives[at].status == "pending":
                self._end(at, "expired", None)
        elif kind in (_FAULT, _REPAIR):
            assert isinstance(what, _Outage)
            self._fault(what, back=kind == _REPAIR)
        elif kind != _TICK:
            self._change(kind, what)

    def _plan_expiry(self, at: int) -> None:
        row = self._lives[at].row
        limits = [row.deadline_s]
        if row.queue_timeout_s is not None:
            limits.append(row.submit_s + row.queue_timeout_s)
        times = [each for each in limits if each is not None]
        if times:
            self._push(max(min(times), self.now_s), _EXPIRY, at)
        if row.start_s is not None and row.start_s > self.now_s:
            self._push(row.start_s, _TICK, at)

    def _start(self, at: int, row: int) -> None:
        life, board = self._lives[at], self._boards[row]
        life.status, life.board, life.start_s = "running", row, self.now_s
        life.attempts += 1
        board.job = at
        rng = stream(self.seed, "run", at, life.attempts)
        noise, luck, part = float(rng.normal()), float(rng.random()), float(rng.random())
        run_s = max(_run_s(life.row, board) * math.exp(life.spread * noise), 1e-3)
        failure: str | None = None
        if life.attempts <= len(life.row.failures):
            past = life.row.failures[life.attempts - 1]
            run_s, failure = past.after_s, past.category.value
        elif life.doomed:
            run_s, failure = run_s * part, FailureCategory.USER_MODEL.value
        elif luck < board.task_rate:
            run_s, failure = run_s * part, FailureCategory.BOARD_FAULT.value
        limit = life.row.user_time_s or self._lab.max_run_s
        if run_s > limit:
            run_s, failure = limit, FailureCategory.TIMEOUT.value
        self._push(self.now_s + run_s, _END, at, _AttemptEnd(life.attempts, failure))

    def _release(self, at: int) -> None:
        life = self._lives[at]
        if life.board >= 0 and self._boards[life.board].job == at:
            self._boards[life.board].job = -1

    def _finish(self, at: int, failure: str | None) -> None:
        life = self._lives[at]
        self._release(at)
        if failure is None:
            self._end(at, "completed", None)
        elif failure in _RETRIED and life.attempts <= life.row.max_retries:
            life.tried.append(self._boards[life.board].uid)
            life.status, life.failure, life.end_s = "failed", failure, self.now_s
            attempt = self._job(life)
            attempt.job_id = f"{life.row.job_id}{ATTEMPT_MARK}{life.attempts}"
            self._attempts.append(attempt)
            life.status, life.failure, life.end_s = "pending", None, math.nan
        else:
            self._end(at, "failed", failure)

    def _end(self, at: int, status: str, failure: str | None) -> None:
        life = self._lives[at]
        life.status, life.failure, life.end_s = status, failure, self.now_s
        self._live.pop(at, None)
        if status in ("completed", "failed"):
            self._ended.append(at)

    def _fault(self, outage: _Outage, *, back: bool) -> None:
        for row in outage.rows:
            board = self._boards[row]
            if outage.what == "board":
                board.healthy = back
            else:
                board.online = back
            if not back and outage.what != "network" and board.job >= 0:
                self._finish(board.job, FailureCategory.BOARD_FAULT.value)

    def _change(self, kind: int, change: object) -> None:
        assert isinstance(change, Change)
        if kind == _JOIN:
            if change.group is not None:
                self._add_group(change.group)
            return
        rows = [
            row
            for row, each in enumerate(self._boards)
            if each.joined
            and (
                each.uid == change.target_uid
                or (not change.target_uid and each.family == change.family)
            )
        ]
        for row in rows[: change.count]:
            board = self._boards[row]
            if kind == _LEAVE:
                if board.job >= 0:
                    self._finish(board.job, FailureCategory.BOARD_FAULT.value)
                board.joined = False
            else:
                board.drained = kind == _DRAIN

    # --- as the twin sees it ------------------------------------------------------------------

    def _time(self, seconds: float) -> datetime:
        return EPOCH + timedelta(seconds=seconds)

    def _node(self, each: _Board, busy: list[bool]) -> Node:
        share = sum(busy) / len(busy)
        return Node(
            id=each.uid,
            cpu_cores=each.cores,
            memory=each.ram_mib,
            cpu_load=round(share * each.cores, 3),
            memory_load=round(50.0 * share, 3),
            family=each.family,
            host=each.host,
            engines=each.engines,
            storage_bytes=each.storage_mib << 20,
            online=each.online,
            healthy=each.healthy,
            drained=each.drained,
            busy=each.job >= 0,
            reason="" if each.healthy else "the board has a fault",
            attributes={"cpu.threads": each.cores},
        )

    def _links(self, boards: Sequence[_Board]) -> Iterable[Link]:
        last: dict[str, str] = {}
        for each in boards:
            if each.host and each.host in last:
                yield Link(source=last[each.host], target=each.uid, kind="host")
            last[each.host] = each.uid
        row = 0
        here = {each.uid for each in boards}
        for group in self._lab.boards:
            own = self._boards[row : row + group.count]
            row += group.count
            for first, second in pairwise(own):
                together = group.sharing > 1 and first.host == second.host
                if together and {first.uid, second.uid} <= here:
                    yield Link(source=first.uid, target=second.uid, kind="cores")

    def _job(self, life: _Life) -> Job:
        row = life.row
        board = self._boards[life.board] if life.board >= 0 else None
        waits = life.status == "pending"
        ended = life.status in ("completed", "failed")
        run_s = 0.0 if waits else (life.end_s if ended else self.now_s) - life.start_s
        return Job(
            job_id=row.job_id,
            cpus_req=getattr(self, "_cpus", {}).get(row.job_id, 1),
            mem_req=row.ram_mib,
            time_run=max(round(run_s, 6), 0.0),
            status=life.status,
            node_id=(row.target_uid or None) if waits else board.uid if board else None,
            user_id=row.user,
            submit_time=self._time(row.submit_s),
            started_at=None if waits else self._time(life.start_s),
            ended_at=self._time(life.end_s) if ended else None,
            failure=life.failure,
            family=row.family,
            engine=row.engine,
            benchmark_type=row.benchmark_type,
            storage_bytes=row.storage_mib << 20,
            user_priority=row.user_priority,
            deadline=None if row.deadline_s is None else self._time(row.deadline_s),
            start_time=None if row.start_s is None else self._time(row.start_s),
            user_time_s=row.user_time_s,
            tried_nodes=list(life.tried) if waits else [],
            job_completion_threshold=row.job_completion_threshold,
            preemptible=row.preemptible,
            model_sha256=_digest(row.model),
            nb_inference=row.nb_inference,
        )


def _run_s(row: JobRow, board: _Board) -> float:
    stated = row.family_run_s.get(board.family)
    return stated if stated is not None else row.run_s / board.speed


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [each / total for each in weights]


def _digest(model: str) -> str | None:
    return hashlib.sha256(model.encode()).hexdigest() if model else None


def _seed_of(seed: int, episode: int, number: int) -> int:
    return int(stream(seed, "round", episode, number).integers(1 << 62))


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else math.nan
