"""The lab in virtual time: events on the kernel's queue, decisions by the service's ``decide()``.

What happens between two cycles is decided in one, as in the live service: the first event after a
pause is decided at once, later ones after the scenario's ``cycle_s``. The service knows a board as
the twin shows it (perhaps late), the end of a run when it is reported (perhaps late, or only at the
next comparison with the cluster), and the past that it has seen in this simulation.
"""

from __future__ import annotations

import hashlib
import math
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from edgeyard import __version__
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.engine.idle_times import IdleTimes
from edgeyard.scheduler.engine.retry import RetryHistory, decide_retry
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import Backfill, Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.accounts import REFUNDED, USAGE_HALF_LIFE_S
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    Binding,
    Failure,
    FailureCategory,
    JobDescription,
    WaitReason,
)
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Placement,
)
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.model.knowledge import ActiveModel, Entitlement, Knowledge, Lease
from edgeyard.scheduler.model.run_bounds import run_bound_s
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.simulator import runs
from edgeyard.simulator.kernel.events import Events, no_events, pop, push
from edgeyard.simulator.lab.boards import (
    LOST_HOST_S,
    MAX_UPLOAD_S,
    UPLOAD_RETRY_S,
    Boards,
    LabBoard,
    LabHost,
    energy_j,
)
from edgeyard.simulator.lab.jobs import (
    DrawnAttempt,
    LabJob,
    can_run,
    draw_attempt,
    draw_history,
    draw_jobs,
    model_sha256,
)
from edgeyard.simulator.lab.past import HostLoads, past_run
from edgeyard.simulator.learning import SimulatedLearning
from edgeyard.simulator.nomad_rank import TASK_NEED, choose_board
from edgeyard.simulator.runs import (
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)
from edgeyard.simulator.scenario import Scenario, scenario_hash
from edgeyard.simulator.wording import count_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""Begin of virtual time as the time of day of decisions: midnight."""

HEARTBEAT_S = 60.0
"""Maximum interval between cycles while benchmarks wait, because decisions may depend on time."""

MAX_HEARTBEAT_S = 3600.0
"""Maximum interval between cycles while benchmarks wait and nothing runs or changes."""

STUCK_S = 2 * 86400.0
"""After this time without a run or an event, waiting benchmarks are taken to wait for ever."""

MAX_HISTORY = 20_000
"""Maximum number of past runs that predictions use; the newest are used."""

PIN_GRACE_S = 300.0
"""Time for which the board of a pinned benchmark may be unavailable before it may run elsewhere."""

PREPARING_SHARE = 0.1
"""Share of a run that passes before it measures."""

_FIXED_WEIGHTS = "expected_cost"
"""The aggregator with fixed weights, which needs no learning."""

_ARRIVE, _START, _END, _REPORT, _FAULT, _REPAIR, _CHANGE, _STOP, _CLOSE, _REFUSED = range(10)
"""Codes of the events in the digest."""
_EARLY, _NORMAL, _LAST = 0, 1, 2
"""Order within one instant: what ends, what begins, then the cycle."""

Watch = Callable[[float, CycleInput, CycleResult], None]


@dataclass(slots=True, eq=False)
class _Attempt:
    """A run, from its placement until the service knows its end.

    Attributes:
        end_s: When it ends unless something stops it.
        failure: How it ends then; None: with a result.
        is_live: It really runs now.
        started: It ran at all.
        how: A place in `runs.ATTEMPT_ENDS`.
        reserved: Credits, the most that it can cost.
        rate: Credits for a second.
        disturbed: Something else ran on its host at the same time.
        tries_until_s: Until then its task tries to upload its result; 0: it did not have to wait.
        loading_s: From its placement to the beginning of its run.
        overhead_s: From the end of its run until its board is free.
    """

    state: _JobState
    board: LabBoard
    number: int
    from_s: float
    end_s: float
    failure: FailureCategory | None
    is_live: bool = True
    started: bool = True
    reported: bool = False
    ended_s: float = math.nan
    how: int = runs.ENDED
    reserved: float = 0.0
    rate: float = 1.0
    disturbed: bool = False
    tries_until_s: float = 0.0
    loading_s: float = 0.0
    overhead_s: float = 0.0

    def past_run(self, kind: RunKind, ended_at: datetime) -> PastRun:
        """Return what the service knows of it afterwards.

        Args:
            kind: Of its run.
            ended_at: When the service learned of its end.
        """
        failure = FailureCategory.PREEMPTED if self.how == runs.PREEMPTED else self.failure
        group, ran_s = self.board.group, self.ended_s - self.from_s - self.loading_s
        if self.ended_s >= self.end_s:  # by itself
            ran_s = max(ran_s - self.overhead_s, 0.0)
        began = ran_s >= 0.0
        job = self.state.job
        judged = failure is None and group.disturbance > 0.0
        return PastRun(
            benchmark_id=job.job_id,
            user_id=job.user,
            target_uid=self.board.uid,
            family=job.family,
            kind=kind,
            run_s=ran_s if began else None,
            failure=None if failure is None else failure.value,
            ended_at=ended_at,
            loading_s=self.loading_s if began and self.loading_s else None,
            comparable=not self.disturbed if judged else None,
            energy_j=energy_j(group, ran_s) if began else None,
            wait_s=self.from_s + self.loading_s - job.submit_s if began else None,
        )


@dataclass(slots=True, eq=False)
class _JobState:
    """State of a benchmark."""

    job: LabJob
    pending: PendingBenchmark
    status: int = runs.PENDING
    attempt: _Attempt | None = None
    attempts: int = 0
    preemptions: int = 0
    counted: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    start_s: float = math.nan
    end_s: float = math.nan
    board: int = runs.NO_BOARD
    queued: int = 0


@dataclass(slots=True)
class _Usage:
    """What a user has used: decayed board-seconds, and runs under way."""

    board_s: float = 0.0
    at_s: float = 0.0
    running: int = 0
    starts_s: float = 0.0
    max_running: int | None = None
    share: float = 1.0
    credits: float | None = None
    reserved: float = 0.0

    @property
    def credits_left(self) -> float | None:
        """Credits that are neither spent nor reserved; None: unlimited."""
        return None if self.credits is None else round(self.credits - self.reserved, 6)

    def now(self, now_s: float) -> float:
        decay = math.exp2(-(now_s - self.at_s) / USAGE_HALF_LIFE_S)
        return self.board_s * decay + self.running * now_s - self.starts_s


def simulate_lab(
    scenario: Scenario,
    policy: Policy,
    plugins: Plugins,
    *,
    seed: int | None = None,
    models: Sequence[ActiveModel] = (),
    progress: Callable[[float], None] | None = None,
    watch: Watch | None = None,
) -> SimulatedRun:
    """Simulate a scenario of the world of boards under a policy.

    Args:
        scenario: Its world must be ``boards``.
        policy: Decides.
        plugins: What the policy names, from `Registry.resolve`.
        seed: Of arrivals and faults; None: the scenario's.
        models: That predict as the active ones of a server, at most one per kind.
        progress: Called now and then with the share of benchmarks that have ended, 0-1.
        watch: Called after each cycle with its time, its input and its result.

    Raises:
        InvalidInput: The scenario has no end, or nothing arrives, or a plugin of the policy fails.
    """
    began = time.perf_counter()
    seed = scenario.seed if seed is None else seed
    lab = LabWorld(scenario, policy, plugins, seed=seed, models=models)
    lab.watch = watch
    while lab.step():
        if progress is not None:
            progress(lab.ended / lab.count)
    return lab.result(time.perf_counter() - began)


class LabWorld:
    """A lab under a policy; `step` runs some events.

    Without plugins the caller decides: `until_decision` lets time go on until a decision is due,
    `cycle_input` returns its input, `apply` carries it out, and `end_cycle` lets time go on.

    Attributes:
        is_due: A decision of the caller is due; only without plugins.
        in_system: Benchmarks that have arrived and not ended, by id.
        boards: Their state.
        count: How many benchmarks there are in all.
        ended: How many have reached a terminal status.
        now_s: Virtual time.
        cycles: Decisions so far.
        watch: See `simulate_lab`.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        plugins: Plugins | None,
        *,
        seed: int,
        models: Sequence[ActiveModel] = (),
    ) -> None:
        """Draw the arrivals; the simulation has not begun.

        Args:
            scenario: Its world must be ``boards``.
            policy: Decides.
            plugins: What the policy names; None where somebody else decides.
            seed: Of arrivals and faults.
            models: See `simulate_lab`.

        Raises:
            InvalidInput: The scenario is of another world, a benchmark can never run, or the
                policy backfills.
        """
        refuse_backfill_in_labs(policy)
        if scenario.lab is None:
            raise InvalidInput.at(
                scenario.name,
                f"its world is {scenario.world!r}",
                'a scenario with world = "boards"',
            )
        self.watch: Watch | None = None
        self._scenario, self._lab = scenario, scenario.lab
        self._policy, self._plugins, self._seed = policy, plugins, seed
        self.boards = Boards(self._lab, seed)
        self._jobs = draw_jobs(scenario, self._lab, self.boards, seed)
        self.count, self.ended, self.cycles = len(self._jobs), 0, 0
        self.now_s, self.is_due = 0.0, False
        self.in_system: dict[str, LabJob] = {}
        self._states: dict[str, _JobState] = {}
        self._gangs: defaultdict[str, list[_JobState]] = defaultdict(list)
        self._queue: dict[str, _JobState] = {}
        self._holders: dict[str, BoardHolder] = {}
        self._payloads: dict[int, tuple[Callable[..., None], tuple[object, ...]]] = {}
        self._events, self._pushed, self._handled = no_events(1024), 0, 0
        self._hash = hashlib.sha256()
        self._last_cycle_s, self._cycle_is_due = -math.inf, False
        self._last_placed_s = -math.inf
        self._heartbeat, self._heartbeat_s, self._last_change_s = 0, HEARTBEAT_S, 0.0
        self._to_come = 0
        self._waiting: Mapping[str, WaitReason | str] = {}
        self._dirty = True
        self._new_runs: list[PastRun] = []
        self._learning: SimulatedLearning | None = None
        if plugins is not None and plugins.aggregator.name != _FIXED_WEIGHTS:
            self._learning = SimulatedLearning()
        self._history = History()
        self._kinds: dict[int, RunKind] = {}
        self._descriptions: dict[int, JobDescription] = {}
        self._usage: defaultdict[str, _Usage] = defaultdict(_Usage)
        arriving = self._lab.arrivals.users if self._lab.arrivals is not None else ()
        for user in (*arriving, *self._lab.users):
            self._usage[user.name].max_running = user.max_running
            self._usage[user.name].share = user.share
            self._usage[user.name].credits = user.credits
        self._unavailable_s: dict[int, float] = {}
        self._random: dict[tuple[str, str], np.random.Generator] = {}
        self._deferred: defaultdict[str, list[_Attempt]] = defaultdict(list)
        self._lost: defaultdict[str, list[_Attempt]] = defaultdict(list)
        self._occupancy: list[tuple[float, int, int, float, int]] = []
        self._series: list[tuple[float, int, int, float]] = []
        self._online, self._running = 0, 0
        self._tariff = Tariff(self._lab.tariff)
        self._zero = BEGIN + timedelta(seconds=self._lab.day_s)
        self._charged, self._undisturbed = 0.0, 0
        self._idle_times = IdleTimes(max_gap_s=math.inf, store_after_s=0.0)
        self._leases = self._checked_leases()
        self._models = tuple(models)
        self._loads = HostLoads(self._lab, self.boards.hosts, self._scenario.name)
        self._limit_s = scenario.duration_s + scenario.drain_s
        self._begin()

    def step(self, events: int = 500) -> bool:
        """Run some events.

        Returns:
            Whether benchmarks are left.

        Raises:
            InvalidInput: The scenario has no end, or a plugin of the policy failed.
        """
        for _ in range(events):
            if self.ended == self.count:
                return False
            if not self._events.size[0]:
                raise self._endless_wait("no event is left")
            at_s, _, number = pop(self._events)
            if at_s > self._limit_s:
                days = self._scenario.drain_s / 86400
                raise self._endless_wait(
                    f"{days:g} days (drain_s) have passed since the last arrival"
                )
            if at_s > self.now_s:
                self._note_state()
                self.now_s = at_s
            handle, arguments = self._payloads.pop(number)
            handle(*arguments)
            self._handled += 1
        return self.ended < self.count

    def until_decision(self) -> bool:
        """Let time go on until a decision of the caller is due.

        Returns:
            Whether one is; otherwise all benchmarks have ended.

        Raises:
            InvalidInput: The scenario has no end.
        """
        while not self.is_due and self.step(1):
            pass
        return self.is_due

    def apply(self, placements: Iterable[Placement], victims: Iterable[str] = ()) -> None:
        """Start benchmarks on their boards, then preempt others; time does not go on."""
        for placement in placements:
            self._place(placement)
        for victim in victims:
            self._preempt(victim)

    def end_cycle(self, waiting: Mapping[str, WaitReason | str], never: Iterable[str] = ()) -> None:
        """End a decision: time may go on.

        Args:
            waiting: By benchmark that was not placed: why.
            never: Those among them that no board could ever run.

        Raises:
            InvalidInput: One of these waits for ever.
        """
        self.is_due, self._waiting = False, waiting
        if self._queue:
            self._refuse(never)
            self._at(self.now_s + self._heartbeat_s, _NORMAL, self._on_heartbeat, self._heartbeat)

    @property
    def jobs(self) -> Sequence[LabJob]:
        """All benchmarks, in the order of their arrivals."""
        return self._jobs

    @property
    def idle_share(self) -> float:
        """Idle share of the online boards; 0 where none is online."""
        return max(1.0 - self._running / self._online, 0.0) if self._online else 0.0

    def _at(self, at_s: float, order: int, handle: Callable[..., None], *arguments: object) -> None:
        self._pushed += 1
        if int(self._events.size[0]) == len(self._events.times):
            self._events = _with_double_capacity(self._events)
        self._payloads[self._pushed] = (handle, arguments)
        push(self._events, max(at_s, self.now_s), (order << 48) + self._pushed, self._pushed)

    def _log(self, code: int, job: int, board: int) -> None:
        self._hash.update(struct.pack("<dqqq", self.now_s, code, job, board))

    def _time(self, at_s: float) -> datetime:
        return self._zero + timedelta(seconds=at_s)

    def _note_state(self) -> None:
        """Add the state that held until now to the series, where it has changed."""
        if not self._dirty:
            return
        self._dirty = False
        share = self._running / self._online if self._online else 0.0
        row = (self.now_s, len(self._queue), self._running, share)
        if not self._series or self._series[-1][1:] != row[1:]:
            self._series.append(row)

    def _begin(self) -> None:
        for job in self._jobs[:1]:
            self._at(job.submit_s, _NORMAL, self._arrive, job.row)
        for outage in self._lab.outages:
            known = self.boards.row_of_uid if outage.what == "board" else self.boards.hosts
            if outage.name not in known:
                raise InvalidInput.at(
                    f"{self._scenario.name}: lab.outages",
                    f"there is no {outage.what} {outage.name!r}",
                    ", ".join(sorted(known)[:10]),
                )  # fmt: skip
            self._schedule_change(outage.from_s, self._fail, outage.what, outage.name)
            self._schedule_change(outage.to_s, self._repair, outage.what, outage.name)
        for row, change in enumerate(self._lab.changes):
            if change.what != "load":
                self._schedule_change(change.at_s, self._change, row)
        for lease in self._leases:
            for moment in (lease.since, lease.until):
                self._schedule_change((moment - self._zero).total_seconds(), self._pass)
        for board in self.boards.rows:
            if board.present:
                self._next_fault("board", board.uid, board.faults.board_mean_between_s)
        for host in self.boards.hosts.values():
            self._next_fault("host", host.name, host.faults.host_mean_between_s)
            self._next_fault("network", host.name, host.faults.network_mean_between_s)
        self._new_runs = [
            past_run(each, row, self._zero) for row, each in enumerate(self._lab.past)
        ]
        self._new_runs += [
            PastRun(
                benchmark_id=job.job_id,
                user_id=job.user,
                target_uid=board.uid,
                family=job.family,
                kind=self._kind(job),
                run_s=job.run_s(board),
                failure=None,
                ended_at=self._time(-3600.0),
                energy_j=energy_j(board.group, job.run_s(board)),
            )
            for job, board in draw_history(self._lab, self.boards, self._seed)
        ]
        self._online = self.boards.count_online()

    def _schedule_change(
        self, at_s: float, handle: Callable[..., None], *arguments: object
    ) -> None:
        """Add an event that may end the wait of a benchmark."""
        self._to_come += 1

        def handle_event() -> None:
            self._to_come -= 1
            self._changed()
            handle(*arguments)

        self._at(at_s, _NORMAL, handle_event)

    def _pass(self) -> None:
        self._wake()

    def _changed(self) -> None:
        self._last_change_s, self._heartbeat_s = self.now_s, HEARTBEAT_S
        self._dirty = True

    def _arrive(self, row: int) -> None:
        job = self._jobs[row]
        if row + 1 < self.count:
            self._at(self._jobs[row + 1].submit_s, _NORMAL, self._arrive, row + 1)
        self._log(_ARRIVE, row, -1)
        self._changed()
        state = _JobState(job=job, pending=job.pending(self._time))
        self._states[job.job_id] = state
        self.in_system[job.job_id] = job
        if job.gang_id is not None:
            self._gangs[job.gang_id].append(state)
        if job.deadline_s is not None:
            self._at(job.deadline_s, _NORMAL, self._expire, state, None)
        if job.cancel_s is not None:
            self._at(job.cancel_s, _NORMAL, self._cancel, state)
        if job.start_s is not None:
            self._schedule_change(job.start_s, self._pass)
            # Afterwards its reservation is over, and others may have its board.
            self._schedule_change(job.start_s + self._policy.twin_max_age_s + 1.0, self._pass)
        self._enqueue(state)

    def _enqueue(self, state: _JobState) -> None:
        job, pending = state.job, state.pending
        state.status = runs.PENDING
        state.queued += 1
        self._queue[job.job_id] = state
        if job.description.queue_timeout_s is not None:
            due_s = max(self.now_s, job.start_s or 0.0) + job.description.queue_timeout_s
            self._at(due_s, _NORMAL, self._expire, state, state.queued)
        if pending.target_uid is not None:
            row = self.boards.row_of_uid[pending.target_uid]
            if not self.boards.is_available(row):
                since_s = self._unavailable_s.setdefault(row, self.now_s)
                self._at(
                    max(since_s + PIN_GRACE_S, self.now_s), _NORMAL, self._drop_pins, row, since_s
                )
        bounded = pending.user_time_s is not None or pending.deadline is not None
        if bounded and state.queued == 1:
            ready_s = max(job.submit_s, job.start_s or 0.0)
            wait_s = self._policy.prediction_wait_s
            if job.deadline_s is not None:
                wait_s = min(wait_s, (job.deadline_s - ready_s) / 2)
            self._schedule_change(ready_s + max(wait_s, 0.0), self._pass)
        self._wake()

    def _close(self, state: _JobState, status: int) -> None:
        """Give a benchmark its terminal status."""
        assert state.status in (runs.PENDING, runs.RUNNING)
        self._queue.pop(state.job.job_id, None)
        del self.in_system[state.job.job_id]
        state.status, state.end_s = status, self.now_s
        self.ended += 1
        self._log(_CLOSE + 16 * status, state.job.row, state.board)
        self._changed()

    def _expire(self, state: _JobState, queued: int | None) -> None:
        """End a benchmark whose deadline (or queue time-out, of one wait) has passed."""
        if state.status not in (runs.PENDING, runs.RUNNING):
            return
        if queued is not None and (state.status != runs.PENDING or state.queued != queued):
            return
        attempt = state.attempt
        if attempt is not None and not attempt.is_live and attempt.started and not attempt.failure:
            return  # its result is there, only the end of its task is not known yet
        self._stop(state, runs.STOPPED)
        self._close(state, runs.EXPIRED)
        self._wake()

    def _cancel(self, state: _JobState) -> None:
        """End a benchmark, and with it all of its gang."""
        gang_id = state.job.gang_id
        for each in [state] if gang_id is None else self._gangs[gang_id]:
            if each.status in (runs.PENDING, runs.RUNNING):
                self._stop(each, runs.STOPPED)
                self._close(each, runs.CANCELLED)
                self._wake()

    def _drop_pins(self, row: int, since_s: float) -> None:
        """Drop the pins on a board that has been unavailable for the grace time."""
        if self._unavailable_s.get(row) != since_s or self.boards.is_available(row):
            return
        uid = self.boards.rows[row].uid
        for state in self._queue.values():
            if state.pending.target_uid == uid:
                state.pending = replace(state.pending, target_uid=None)
                self._wake()

    def _wake(self) -> None:
        """Request a cycle, after the minimum interval since the last one."""
        if not self._cycle_is_due:
            self._cycle_is_due = True
            self._at(self._last_cycle_s + self._lab.cycle_s, _LAST, self._decide)

    def _on_heartbeat(self, number: int) -> None:
        if number == self._heartbeat:
            if not self._running and not self._holders:
                self._heartbeat_s = min(2.0 * self._heartbeat_s, MAX_HEARTBEAT_S)
                stuck = self.now_s - self._last_change_s > STUCK_S
                if stuck and not self._to_come and len(self._states) == self.count:
                    raise self._endless_wait(
                        "no board runs a benchmark, and no event is left that could change that"
                    )
            self._wake()

    def cycle_input(self) -> CycleInput:
        """Return what a cycle that begins now depends on, as the service would see it."""
        now = self._time(self.now_s)
        age_s = self._lab.faults.stale_twin_s
        return CycleInput(
            snapshot=self.boards.snapshot(
                now, self.now_s, age_s, now - timedelta(seconds=age_s) if age_s else now
            ),
            pending=[state.pending for state in self._queue.values()],
            now=now,
            holders=self._holders_in_twin(),
            knowledge=self._knowledge(now),
            seed=(self._seed << 24) + self.cycles,
        )

    def _decide(self) -> None:
        self._cycle_is_due, self._last_cycle_s = False, self.now_s
        self._heartbeat += 1
        if self._queue:
            self.cycles += 1
            if self._plugins is None:
                self.is_due = True
            else:
                self._cycle(self._plugins)

    def _cycle(self, plugins: Plugins) -> None:
        """Decide by the service's own code, and carry it out."""
        ended = self._new_runs
        given = self.cycle_input()
        if self._learning is not None:
            self._learning.end(ended)
            known = self._learning.recall(given.knowledge, self._policy, plugins, given.now)
            given = replace(given, knowledge=known)
        result = decide(given, self._policy, plugins)
        if result.faults:
            raise InvalidInput.at(
                f"policy {self._policy.name}",
                f"{result.faults[0]} (after {self.now_s:,.0f} s of virtual time)",
                "plugins that answer in every cycle",
            )
        if self._learning is not None:
            self._learning.keep(self._policy, plugins, result, given.now)
        self._charge_idle_times(result, given.now)
        if self.watch is not None:
            self.watch(self.now_s, given, result)
        self.apply(result.placements, [each.victim_id for each in result.preemptions])
        for each in result.preemptions:
            state = self._states[each.benchmark_id]
            state.pending = replace(state.pending, cleared_uid=each.target_uid)
        self.end_cycle(result.waiting, result.never)

    def _charge_idle_times(self, result: CycleResult, now: datetime) -> None:
        """Charge bookings and leases for boards that stand idle for them, as the service does."""
        self._idle_times.update(result.kept_idle, now)
        due = self._idle_times.due()
        for kept, (_, board_s) in due.items():
            cost = self._lab.rates.get(kept.family, 1.0) * self._tariff.at(now) * board_s
            usage = self._usage[kept.user_id]
            left = usage.credits_left
            if usage.credits is not None and left is not None:
                cost = min(cost, max(left, 0.0))
                usage.credits -= cost
            used_s = usage.now(self.now_s) + board_s
            usage.board_s = used_s - (usage.running * self.now_s - usage.starts_s)
            usage.at_s = self.now_s
            self._charged += cost
        self._idle_times.charged(due)

    def _holders_in_twin(self) -> list[BoardHolder]:
        holders = list(self._holders.values())
        if not any(each.pending.job_completion_threshold for each in self._queue.values()):
            return holders  # phases are not used
        shown = []
        for each in holders:
            attempt = self._states[each.benchmark_id].attempt
            assert attempt is not None
            run_s = attempt.end_s - attempt.from_s
            measuring = self.now_s - attempt.from_s >= PREPARING_SHARE * run_s
            shown.append(replace(each, phase="measuring" if measuring else "preparing"))
        return shown

    def _knowledge(self, now: datetime) -> Knowledge:
        if self._new_runs:
            self._history = self._history.extended(self._new_runs, max_runs=MAX_HISTORY)
            self._new_runs = []
        leases = self._leases
        if leases:
            leases = self._leases = tuple(each for each in leases if each.until > now)
        return Knowledge(
            runs=self._history,
            entitlements={
                name: Entitlement(
                    credits_left=each.credits_left,
                    max_running=each.max_running,
                    running=each.running,
                    usage_board_s=each.now(self.now_s),
                    share=each.share,
                )
                for name, each in self._usage.items()
            },
            rates=self._lab.rates,
            tariff=self._tariff,
            max_run_s=self._lab.max_run_s,
            leases=leases,
            host_loads=self._loads.at(self.now_s),
            models=self._models,
        )

    def _checked_leases(self) -> tuple[Lease, ...]:
        for row, each in enumerate(self._lab.leases):
            if each.target_uid not in self.boards.row_of_uid:
                raise InvalidInput.at(
                    f"{self._scenario.name}: lab.leases[{row}].target_uid",
                    f"there is no board {each.target_uid!r}", "a board of lab.boards",
                )  # fmt: skip
        return tuple(
            Lease(
                lease_id=f"lease-{row + 1}",
                target_uid=each.target_uid,
                since=self._time(each.from_s),
                until=self._time(each.to_s),
                reason="simulated",
                user_id=each.user or None,
            )
            for row, each in enumerate(self._lab.leases)
        )

    def _refuse(self, never: Iterable[str]) -> None:
        """Refuse a scenario in which one of these waits for ever, as no event is left."""
        if self._to_come or len(self._states) < self.count:
            return
        for benchmark_id in sorted(never):
            job = self._states[benchmark_id].job
            ends = (job.deadline_s, job.description.queue_timeout_s, job.cancel_s)
            if all(each is None for each in ends):
                raise self._endless_wait(self._reason(benchmark_id), benchmark_id)

    def _reason(self, benchmark_id: str) -> str:
        reason = self._waiting.get(benchmark_id, "")
        return reason if isinstance(reason, str) else reason.sentence

    def _endless_wait(self, why: str, benchmark_id: str = "") -> InvalidInput:
        waiting = len(self._queue)
        first = benchmark_id or next(iter(self._queue), "")
        state = self._states.get(first)
        asks = f", the first is {first} for {state.job.family}" if state is not None else ""
        if not benchmark_id and first in self._waiting:
            why = f"{why}; its waiting reason: {self._reason(first)}"
        return InvalidInput.at(
            f"{self._scenario.name} under policy {self._policy.name}",
            "the scenario does not end: "
            f"{count_of(waiting or self.count - self.ended, 'benchmark')} "
            f"left after {self.now_s / 3600:,.1f} h of virtual time{asks}: {why}",
            "boards for all benchmarks, deadlines, or a policy under which none waits forever",
        )

    def _place(self, placement: Placement) -> None:
        state = self._queue[placement.benchmark_id]
        job, description = state.job, state.job.description
        board = self._board_of(placement, state)
        if board is None:
            if self._last_placed_s == self.now_s:  # others of this cycle took what it could have
                self._wake()
            return  # else it waits in Nomad's queue for an event, such as the end of a run
        self._last_placed_s = self.now_s
        del self._queue[placement.benchmark_id]
        state.attempts += 1
        state.status = runs.RUNNING
        # It has had its start, and what was cleared for it.
        state.pending = replace(state.pending, start_time=None, cleared_uid=None)
        if job.gang_id is not None:
            self._detach_from_gang(state, job.gang_id, board.uid)
        starts = self.boards.usable(board)
        assert self.boards.is_free(board), f"{board.uid} runs two benchmarks"
        drawn = self._draw(state, board)
        others = self._concurrent_runs(board)
        held_s = drawn.held_s * (1.0 + board.group.disturbance * len(others))
        for other in others:
            other.disturbed = True
        attempt = _Attempt(
            state=state,
            board=board,
            number=state.attempts,
            from_s=self.now_s,
            end_s=self.now_s + held_s,
            failure=drawn.failure,
            is_live=starts,
            started=starts,
            reserved=self._rate(job) * self._time_limit_s(job),
            rate=self._rate(job),
            disturbed=bool(others),
            loading_s=drawn.loading_s,
            overhead_s=drawn.overhead_s,
        )
        state.attempt, state.board = attempt, board.row
        self._log(_START if starts else _REFUSED, job.row, board.row)
        self._changed()
        self.boards.hold(board.row, self.now_s, held_s)
        self._holders[job.job_id] = BoardHolder(
            benchmark_id=job.job_id,
            target_uid=board.uid,
            priority=placement.priority,
            progress=0.0,
            preemptible=description.preemptible
            and state.preemptions < self._policy.max_preemptions,
            user_id=job.user,
            started_at=self._time(self.now_s),
            kind=self._kind(job),
            preemptible_measuring=description.preemptible_measuring,
            time_limit_s=self._time_limit_s(job)
            if description.user_budget is not None
            else description.user_time_s,
            deadline=state.pending.deadline,
            strict=placement.binding is Binding.STRICT,
        )
        usage = self._usage[job.user]
        usage.running += 1
        usage.starts_s += self.now_s
        usage.reserved += attempt.reserved
        if not starts:  # the cluster does not start it: the board is in another state than seen
            notice_s = max(board.faults.stale_twin_s, self._lab.compare_s)
            self._at(self.now_s + notice_s, _EARLY, self._report, attempt)
            return
        state.start_s = self.now_s
        board.holder = job.row
        self._running += 1
        self._at(attempt.end_s, _EARLY, self._end, attempt)

    def _detach_from_gang(self, state: _JobState, gang_id: str, uid: str) -> None:
        """Let a benchmark of a started gang start alone from now on; it got a board."""
        state.pending = replace(state.pending, gang_id=None, gang_size=1)
        for each in self._gangs[gang_id]:
            if each is not state:
                used = each.pending.gang_uids | {uid}
                each.pending = replace(each.pending, campaign_started=True, gang_uids=used)

    def _board_of(self, placement: Placement, state: _JobState) -> LabBoard | None:
        """Return the board that a placed benchmark runs on: the decision's, or Nomad's choice.

        A strict job names its board. Of the others Nomad takes any free board that their job
        states: with enough memory, and of the allow-list, if it has one. The board of the decision
        is also that of a job which no host can start, as the service does not know.

        Returns:
            None: the job waits in Nomad's queue until another run ends.
        """
        decided = self.boards.rows[self.boards.row_of_uid[placement.target_uid]]
        unless_taken = decided if self.boards.is_free(decided) else None
        if placement.binding is Binding.STRICT:
            return unless_taken
        description, allowed = state.job.description, frozenset(placement.allowed_uids)
        free = [
            each
            for each in self.boards.rows
            if each.group.family == placement.family
            and self.boards.is_free(each)
            and self.boards.usable(each)
            and (not allowed or each.uid in allowed)
            and can_run(each.group, description)
            and state.pending.target_uid in (None, each.uid)
        ]
        if not free:
            return unless_taken
        names = {name: row for row, name in enumerate(self.boards.hosts)}
        runs_there, capacity = np.zeros(len(names)), np.zeros((len(names), 2))
        for each in self.boards.rows:
            host, group = names[each.host], each.group
            runs_there[host] += each.holder != -1
            stated = (group.host_cpu_mhz, group.host_memory_mb)
            capacity[host] = np.maximum(capacity[host], stated)
        place = choose_board(
            np.array([names[each.host] for each in free], dtype=np.intp),
            capacity,
            runs_there[:, None] * TASK_NEED,
            TASK_NEED,
            stream(self._seed, "nomad", state.job.row, state.attempts + 1),
        )
        return None if place == -1 else free[place]

    def _draw(self, state: _JobState, board: LabBoard) -> DrawnAttempt:
        job = state.job
        return draw_attempt(job, board, state.attempts, self._time_limit_s(job), self._seed)

    def _concurrent_runs(self, board: LabBoard) -> list[_Attempt]:
        """Return the runs under way on the same host, if they disturb one another there."""
        if not board.group.disturbance:
            return []
        found = []
        for each in self.boards.hosts[board.host].boards:
            if each.holder != -1 and each is not board:
                attempt = self._states[self._jobs[each.holder].job_id].attempt
                if attempt is not None:
                    found.append(attempt)
        return found

    def _rate(self, job: LabJob) -> float:
        """Return what a second costs an attempt that is placed now."""
        return self._lab.rates.get(job.family, 1.0) * self._tariff.at(self._time(self.now_s))

    def _time_limit_s(self, job: LabJob) -> float:
        """Return how long an attempt may run: as its user states or pays, or the lab's limit."""
        description = job.description
        return run_bound_s(
            description.user_time_s, description.user_budget, self._rate(job), self._lab.max_run_s
        )

    def _end(self, attempt: _Attempt) -> None:
        """End a run on its board; the service learns of it by a report."""
        if not attempt.is_live:
            return
        unreachable = self.boards.hosts[attempt.board.host].unreachable
        if unreachable:  # the task tries to upload its result for a while, and holds its board
            attempt.tries_until_s = attempt.tries_until_s or self.now_s + MAX_UPLOAD_S
            if self.now_s + UPLOAD_RETRY_S <= attempt.tries_until_s:
                self._at(self.now_s + UPLOAD_RETRY_S, _EARLY, self._end, attempt)
                return
        self._free_board(attempt, runs.FAULTED if attempt.failure is not None else runs.ENDED)
        faults = attempt.board.faults
        delay_s = 0.0
        if faults.late_event_mean_s or faults.lost_event_rate:
            job = attempt.state.job.row
            random = stream(self._seed, "events", job, attempt.number)
            delay_s = float(random.exponential(faults.late_event_mean_s or 1e-9))
            if random.random() < faults.lost_event_rate:
                every = self._lab.compare_s
                delay_s = (math.floor(self.now_s / every) + 1) * every - self.now_s
        if unreachable:
            self._deferred[attempt.board.host].append(attempt)
        elif delay_s > 1e-6:
            self._at(self.now_s + delay_s, _EARLY, self._report, attempt)
        else:
            self._report(attempt)

    def _free_board(self, attempt: _Attempt, how: int) -> None:
        """Free the real board, which the service does not know yet."""
        attempt.is_live, attempt.ended_s, attempt.how = False, self.now_s, how
        attempt.board.holder = -1
        self._running -= 1
        self._changed()
        self._log(_END + 16 * how, attempt.state.job.row, attempt.board.row)
        row = (attempt.from_s, attempt.board.row, attempt.state.job.row, self.now_s, how)
        self._occupancy.append(row)

    def _end_by_fault(self, attempt: _Attempt, noticed_after_s: float) -> None:
        """End a run by a fault of its board or host, which the service is notified of later."""
        attempt.failure = FailureCategory.BOARD_FAULT
        self._free_board(attempt, runs.FAULTED)
        self._at(self.now_s + noticed_after_s, _EARLY, self._report, attempt)

    def _release(self, attempt: _Attempt, *, stopped: bool = False) -> None:
        """Record that the service knows the end of an attempt.

        Args:
            attempt: Its board is free now.
            stopped: Its benchmark was cancelled or expired: as in the service, how long it ran
                says nothing of its model or its board, and it is no past run.
        """
        attempt.reported = True
        job = attempt.state.job
        attempt.state.attempt = None
        self.boards.release(attempt.board.row)
        self._holders.pop(job.job_id)
        usage = self._usage[job.user]
        board_s = usage.now(self.now_s)
        usage.running -= 1
        usage.starts_s -= attempt.from_s
        usage.board_s = board_s - (usage.running * self.now_s - usage.starts_s)
        usage.at_s = self.now_s
        usage.reserved -= attempt.reserved
        if attempt.started and attempt.failure not in REFUNDED:
            ran_s = attempt.ended_s - attempt.from_s
            self._charged += min(attempt.reserved, attempt.rate * ran_s)
        if usage.credits is not None and attempt.started and attempt.failure not in REFUNDED:
            ran_s = attempt.ended_s - attempt.from_s
            usage.credits -= min(attempt.reserved, attempt.rate * ran_s)
        if attempt.started and not stopped:
            self._new_runs.append(attempt.past_run(self._kind(job), self._time(self.now_s)))
        self._changed()
        if self._policy.cool_down_s:
            self._schedule_change(self.now_s + self._policy.cool_down_s + 1e-3, self._pass)
        self._wake()

    def _report(self, attempt: _Attempt) -> None:
        """Let the service know the end of an attempt, and decide whether it is tried again."""
        if attempt.reported:
            return
        state = attempt.state
        self._log(_REPORT, state.job.row, attempt.board.row)
        self._release(attempt)
        if attempt.started and attempt.failure is None:
            self._undisturbed += not attempt.disturbed
            self._close(state, runs.COMPLETED)
        else:
            self._retry(attempt)

    def _stop(self, state: _JobState, how: int) -> None:
        """Stop the run of a benchmark, if it has one."""
        attempt = state.attempt
        if attempt is None:
            return
        self._log(_STOP, state.job.row, attempt.board.row)
        if attempt.is_live:
            self._free_board(attempt, how)
        self._release(attempt, stopped=how == runs.STOPPED)

    def _preempt(self, victim_id: str) -> None:
        state = self._states[victim_id]
        attempt = state.attempt
        if attempt is None or not attempt.is_live:
            return
        self._stop(state, runs.PREEMPTED)
        attempt.failure = FailureCategory.PREEMPTED
        self._retry(attempt)

    def _retry(self, attempt: _Attempt) -> None:
        """Try a benchmark again by the service's own rules, or give it up."""
        state, job = attempt.state, attempt.state.job
        category = attempt.failure or FailureCategory.CLUSTER
        failure = Failure(category=category, sentence="simulated")
        counts = attempt.started and attempt.how == runs.FAULTED  # also where its host was lost
        uid = attempt.board.uid
        ended_at = self._time(self.now_s)
        ended = Attempt(
            benchmark_id=job.job_id,
            number=attempt.number,
            job_id="",
            state=AttemptState.ENDED,
            binding=Binding.STRICT,
            priority=1,
            created_at=self._time(attempt.from_s),
            family=job.family,
            target_uid=uid,
            queued_at=self._time(attempt.from_s),
            started_at=self._time(attempt.from_s) if attempt.started else None,
            ended_at=ended_at,
            counts=counts,
            stopping=None if attempt.started else failure,
            failure=failure,
        )
        if counts:
            state.counted += 1
            state.failures[uid] += 1
        if attempt.how == runs.PREEMPTED:
            state.preemptions += 1
        found = decide_retry(
            failure,
            ended,
            self._description(job),
            RetryHistory(
                counted=state.counted,
                preempted=state.preemptions,
                failures=sum(state.failures.values()),
                failures_on_board=state.failures[uid],
                pinned=state.pending.target_uid is not None,
            ),
        )
        if not found.retry:
            self._close(state, runs.FAILED)
            return
        pending = state.pending
        if found.tried_uid is not None:
            pending = replace(pending, tried_uids=pending.tried_uids | {found.tried_uid})
        if found.avoid_until is not None:
            avoid_until = {**dict(pending.avoid_until), uid: found.avoid_until}
            pending = replace(pending, avoid_until=tuple(avoid_until.items()))
            self._schedule_change(
                (found.avoid_until - self._zero).total_seconds() + 1e-6, self._pass
            )
        if found.not_before is not None:
            waiting = waiting_reasons.pinned_board_failed(pending.target_uid, found.not_before)
            pending = replace(pending, not_ready=waiting)
            ready_s = (found.not_before - self._zero).total_seconds()
            self._schedule_change(ready_s + 1e-6, self._end_backoff, state, state.queued + 1)
        state.pending = pending
        self._enqueue(state)

    def _end_backoff(self, state: _JobState, queued: int) -> None:
        if state.queued == queued:
            state.pending = replace(state.pending, not_ready=None)
            self._wake()

    def _next_fault(self, what: str, name: str, mean_s: float) -> None:
        """Draw when it fails next; each part has a random stream of its own."""
        if not mean_s:
            return
        random = self._random.setdefault((what, name), stream(self._seed, "faults", what, name))
        self._at(
            self.now_s + float(random.exponential(mean_s)), _NORMAL, self._fail_part, what, name
        )

    def _fail_part(self, what: str, name: str) -> None:
        """Let a part fail at random, until it is repaired."""
        faults = (
            self.boards.rows[self.boards.row_of_uid[name]].faults
            if what == "board"
            else self.boards.hosts[name].faults
        )
        between_s, repair_s = {
            "board": (faults.board_mean_between_s, faults.board_mean_repair_s),
            "host": (faults.host_mean_between_s, faults.host_mean_repair_s),
            "network": (faults.network_mean_between_s, faults.network_mean_repair_s),
        }[what]
        self._fail(what, name)
        after_s = float(self._random[what, name].exponential(repair_s))

        def repair() -> None:
            self._repair(what, name)
            self._next_fault(what, name, between_s)

        self._schedule_change(self.now_s + after_s, repair)

    def _fail(self, what: str, name: str) -> None:
        host, hit = self._parts(what, name)
        self._log(_FAULT, {"board": 0, "host": 1, "network": 2}[what], hit[0].row)
        if what == "board":
            hit[0].down += 1
        elif what == "host":
            host.off += 1
        else:
            host.unreachable += 1
        for board in hit:
            attempt = self._attempt_on(board)
            if attempt is not None and what == "board":
                self._end_by_fault(attempt, attempt.board.faults.stale_twin_s)
            elif attempt is not None and what == "host":
                self._end_by_fault(attempt, max(attempt.board.faults.stale_twin_s, LOST_HOST_S))
                self._lost[host.name].append(attempt)
        self._update_in_twin(hit)

    def _repair(self, what: str, name: str) -> None:
        host, hit = self._parts(what, name)
        self._log(_REPAIR, {"board": 0, "host": 1, "network": 2}[what], hit[0].row)
        if what == "board":
            hit[0].down -= 1
        elif what == "host":
            host.off -= 1
            if not host.off:  # it comes back without its runs, which the cluster hears of
                self._report_each(self._lost.pop(host.name, []))
        else:
            host.unreachable -= 1
            if not host.unreachable:
                self._report_each(self._deferred.pop(host.name, []))
        self._update_in_twin(hit)

    def _report_each(self, attempts: Iterable[_Attempt]) -> None:
        for attempt in attempts:
            self._at(self.now_s, _EARLY, self._report, attempt)

    def _parts(self, what: str, name: str) -> tuple[LabHost, list[LabBoard]]:
        if what == "board":
            board = self.boards.rows[self.boards.row_of_uid[name]]
            return self.boards.hosts[board.host], [board]
        return self.boards.hosts[name], self.boards.hosts[name].boards

    def _attempt_on(self, board: LabBoard) -> _Attempt | None:
        if board.holder == -1:
            return None
        return self._states[self._jobs[board.holder].job_id].attempt

    def _update_in_twin(self, boards: list[LabBoard]) -> None:
        """Update the state of boards in the twin, at once or later."""
        self._online = self.boards.count_online()
        self._dirty = True
        host = self.boards.hosts[boards[0].host]
        online = not host.off and not host.unreachable
        seen = [(each, online and each.present, not each.down) for each in boards]
        stale_s = boards[0].faults.stale_twin_s
        if stale_s:
            self._at(self.now_s + stale_s, _NORMAL, self._update_twin, seen)
        else:
            self._update_twin(seen)

    def _update_twin(self, seen: list[tuple[LabBoard, bool, bool]]) -> None:
        for board, online, healthy in seen:
            self.boards.see(board, online=online, healthy=healthy)
            if self.boards.is_available(board.row):
                self._unavailable_s.pop(board.row, None)
            elif board.row not in self._unavailable_s:
                self._unavailable_s[board.row] = self.now_s
                due_s = self.now_s + PIN_GRACE_S
                self._at(due_s, _NORMAL, self._drop_pins, board.row, self.now_s)
        self._wake()

    def _change(self, row: int) -> None:
        change = self._lab.changes[row]
        self._log(_CHANGE, row, -1)
        if change.what == "boards_join":
            for board in self.boards.joining[row]:
                board.present = True
                self._next_fault("board", board.uid, board.faults.board_mean_between_s)
            self.boards.change_members()
            self._update_boards_in_twin(self.boards.joining[row])
            return
        chosen = [
            each
            for each in self.boards.rows
            if each.present
            and (each.uid == change.target_uid or each.group.family == change.family)
        ][: change.count]
        if change.what == "boards_leave":
            for board in chosen:
                attempt = self._attempt_on(board)
                board.present = False
                if attempt is not None:
                    self._end_by_fault(attempt, board.faults.stale_twin_s)
            self.boards.change_members()
        else:
            for board in chosen:
                self.boards.drain(board.row, change.what == "drain")
        self._update_boards_in_twin(chosen)

    def _update_boards_in_twin(self, boards: list[LabBoard]) -> None:
        for board in boards:
            self._update_in_twin([board])
        self._wake()

    def _kind(self, job: LabJob) -> RunKind:
        key = id(job.description)
        if key not in self._kinds:
            self._kinds[key] = kind_of(job.pending(self._time))
        return self._kinds[key]

    def _description(self, job: LabJob) -> JobDescription:
        key = id(job.description)
        if key not in self._descriptions:
            self._descriptions[key] = JobDescription(
                model=model_sha256(job.description.model),
                runtime=job.description.engine,
                benchmark_type=job.description.benchmark_type,
                target=job.family,
                max_retries=job.description.max_retries,
            )
        return self._descriptions[key]

    def _figures(self, states: Sequence[_JobState]) -> dict[str, float]:
        """Return what runs cost, and which share was undisturbed, where the scenario states it."""
        figures = {}
        if self._lab.rates or self._lab.tariff:
            figures["credits"] = self._charged
        if any(each.group.disturbance for each in self.boards.rows):
            done = sum(each.status == runs.COMPLETED for each in states)
            figures["comparable_share"] = self._undisturbed / done if done else math.nan
        return figures

    def result(self, wall_s: float = 0.0) -> SimulatedRun:
        """Return the outcomes of all benchmarks.

        Args:
            wall_s: Real seconds that the simulation took.
        """
        self._dirty = True
        self._note_state()
        states = [self._states.get(job.job_id) for job in self._jobs]
        found = [
            state if state is not None else _JobState(job=job, pending=job.pending(self._time))
            for state, job in zip(states, self._jobs, strict=True)
        ]
        held = np.array(sorted(self._occupancy), dtype=np.float64).reshape(-1, 5)
        series = np.array(self._series, dtype=np.float64).reshape(-1, 4)
        return SimulatedRun(
            meta=RunMeta(
                scenario=self._scenario.name,
                scenario_hash=scenario_hash(self._scenario),
                world="boards",
                policy=self._policy.name,
                seed=self._seed,
                version=__version__,
                wall_s=wall_s,
                cycles=self.cycles,
                events=self._handled,
                events_sha256=self._hash.hexdigest(),
                figures={**self._energy(held), **self._figures(found)},
            ),
            jobs=JobColumns(
                job=np.array([job.job_id for job in self._jobs], dtype=np.str_),
                user=np.array([job.user for job in self._jobs], dtype=np.str_),
                submit_s=np.array([job.submit_s for job in self._jobs], dtype=np.float64),
                start_s=np.array([state.start_s for state in found], dtype=np.float64),
                end_s=np.array([state.end_s for state in found], dtype=np.float64),
                board=np.array([state.board for state in found], dtype=np.int64),
                status=np.array([state.status for state in found], dtype=np.int64),
                attempts=np.array([state.attempts for state in found], dtype=np.int64),
                preemptions=np.array([state.preemptions for state in found], dtype=np.int64),
                deadline_s=np.array(
                    [math.nan if job.deadline_s is None else job.deadline_s for job in self._jobs],
                    dtype=np.float64,
                ),
                procs=np.ones(self.count, dtype=np.int64),
            ),
            occupancy=OccupancyColumns(
                board=held[:, 1].astype(np.int64),
                job=held[:, 2].astype(np.int64),
                from_s=held[:, 0],
                to_s=held[:, 3],
                how=held[:, 4].astype(np.int64),
            ),
            series=SeriesColumns(
                time_s=series[:, 0],
                pending=series[:, 1].astype(np.int64),
                running=series[:, 2].astype(np.int64),
                busy_share=series[:, 3],
                overloaded=np.zeros(len(series), dtype=np.int64),
            ),
            boards=tuple(each.uid for each in self.boards.rows),
            families=tuple(each.group.family for each in self.boards.rows),
        )

    def _energy(self, held: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> dict[str, float]:
        """Return the energy of all boards in joules, where their power is known."""
        groups = [each.group for each in self.boards.rows]
        if any(group.idle_w is None or group.busy_w is None for group in groups):
            return {}
        idle = np.array([group.idle_w for group in groups], dtype=np.float64)
        busy = np.array([group.busy_w for group in groups], dtype=np.float64)
        busy_s = np.bincount(
            held[:, 1].astype(np.int64), weights=held[:, 3] - held[:, 0], minlength=len(groups)
        )
        return {"energy_j": float((busy * busy_s + idle * (self.now_s - busy_s)).sum())}


def _with_double_capacity(events: Events) -> Events:
    """Return the same events with room for twice as many."""
    made = no_events(2 * len(events.times))
    size = int(events.size[0])
    made.times[:size] = events.times[:size]
    made.ranks[:size] = events.ranks[:size]
    made.subjects[:size] = events.subjects[:size]
    made.size[0] = size
    return made


def refuse_backfill_in_labs(policy: Policy) -> None:
    """Check that a policy does not backfill, which makes no difference in a lab.

    Each benchmark takes one whole board, and one that waits could start on no free board. What
    starts before it takes a board that it can't use, so its start never depends on it: EASY and
    conservative backfilling give the schedule of the same policy without them.

    Raises:
        InvalidInput: It does.
    """
    if policy.backfill in (Backfill.EASY, Backfill.CONSERVATIVE):
        raise InvalidInput.at(
            f"--policy {policy.name}",
            f"backfill = '{policy.backfill.value}' makes no difference in a lab, where each "
            "benchmark takes one board and a later one never delays the first",
            "backfill = 'none' (fcfs has the same order), or a scenario of nodes or a log",
        )
