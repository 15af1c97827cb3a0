"""Compares what the store believes with what the cluster reports, and repairs the store."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from edgeyard.errors import (
    ClusterUnreachable,
    Conflict,
    EdgeyardError,
    LeadershipLost,
    NotFound,
    Unavailable,
)
from edgeyard.scheduler.clock import Stopwatches
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.absence import Absences
from edgeyard.scheduler.engine.backoff import Backoff
from edgeyard.scheduler.engine.claims import Claims
from edgeyard.scheduler.engine.dispatch import Dispatcher, TaskLimits
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    Binding,
    Failure,
    FailureCategory,
    Status,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Clock, Cluster, JobRun, JobState, Store, UnitOfWork

logger = logging.getLogger(__name__)

END_GRACE_S = 10.0
"""A task ends within a second of its report, and its cluster knows that within a few more. After
this time the report alone ends its attempt."""

RUN_TIME_MARGIN_S = 20.0
"""The runner holds ``user_time`` itself; the scheduler steps in this much later."""

BLOCKED_REPORT_AFTER_S = 5.0
"""A job that the cluster does not start for so long is one whose owner sees why."""

RESTART_S = 5.0
"""What ended up to so long after our start may still have failed because we were not there; also
covers clocks of hosts that differ a little."""

OVERDUE_GRACE_S = 120.0
"""After our start no task is stopped for its time for so long: it may have ended its run while we
were away, and be about to upload the result. The runner tries that every 30 s at least."""

REPAIR_BACKOFF_S = 5.0
MAX_REPAIR_BACKOFF_S = 300.0
"""An attempt whose repair fails is left alone for so long: at first, and at most."""

REPORTED_REPAIR_FAILURES = 3
"""After so many failed repairs in a row an event is recorded for the attempt's owner."""

MAX_SEEN_ENDED = 4096
"""Jobs whose end was seen and which are remembered."""

_STOPPED_IN_THE_CLUSTER = Failure(
    category=FailureCategory.CLUSTER, sentence="an operator stopped its job in the cluster"
)

_Change = Callable[[UnitOfWork, Attempt], object]

UnusableSince = Callable[[str], tuple[datetime, str] | None]
"""Since when a board's own host has found it unusable, and why; None while it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRules:
    """How long to wait for what.

    Attributes:
        upload_grace_s: For a result after its task ended.
        start_grace_s: For a job that the cluster has to be given a board; then it is taken back,
            and decided on anew.
        setup_grace_s: For a job that has its board to start its task there: it is set up and
            downloads its files meanwhile; then it is taken back as well.
        board_grace_s: For a board that its host finds unusable while it runs a task; then the
            task is stopped as the board's fault.
        lost_grace_s: For a job that the cluster no longer lists, which may be a wrong answer or a
            registration that takes effect late; then its attempt is lost.
    """

    upload_grace_s: float = 30.0
    start_grace_s: float = 300.0
    setup_grace_s: float = 3600.0
    board_grace_s: float = 30.0
    lost_grace_s: float = 15.0


class Reconciler:
    """Brings live attempts in line with the cluster. One thread.

    Attributes:
        moved: Whether the last run changed what can be decided: an attempt ended, for example.
    """

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        dispatcher: Dispatcher,
        rules: ReconcileRules,
        limits: TaskLimits,
        clock: Clock,
        unusable_since: UnusableSince = lambda target_uid: None,
        claims: Claims | None = None,
        is_forbidden: Callable[[str], bool] = lambda target_uid: False,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._dispatcher = dispatcher
        self._rules = rules
        self._limits = limits
        self._clock = clock
        self._unusable_since = unusable_since
        self._claims = claims
        self._is_forbidden = is_forbidden
        self._queued_behind: dict[str, datetime] = {}
        self.moved = False
        self._restarted_at: datetime | None = None
        self._restarted_s = -math.inf
        self._absences = Absences(rules.lost_grace_s)
        self._seen_ended: OrderedDict[str, None] = OrderedDict()
        self._failing = Backoff(REPAIR_BACKOFF_S, MAX_REPAIR_BACKOFF_S)
        self._stopwatches: Stopwatches[tuple[str, str]] = Stopwatches(clock)

    def failing(self) -> Mapping[str, str]:
        """Return why the last repair of an attempt failed, by job id. Any thread."""
        return self._failing.reasons()

    def run(
        self,
        job_ids: Sequence[str] | None = None,
        *,
        after_restart: bool = False,
        ended: Callable[[], object] = lambda: None,
    ) -> tuple[str, ...]:
        """Compare these jobs, or all live ones, with the cluster.

        An attempt whose repair fails holds up no other: it is reported, and tried again later.

        Args:
            after_restart: The first comparison of this process: what it finds half-done was lost
                with the last one.
            ended: Called once where the cluster says that some are at their end, so that their
                boards are free; before that is written down, which takes a moment.

        Returns:
            Job ids of attempts that are prepared and wait for a dispatcher.

        Raises:
            ClusterUnreachable: Nothing was changed.
        """
        self._follow_clock()
        if after_restart:
            self._restarted_at = self._clock.now()
            self._restarted_s = self._clock.monotonic_s()
            self._store.transact(lifecycle.reset_losses)
        with self._store.read() as uow:
            attempts = uow.attempts.live(job_ids)
            owners = {
                benchmark.benchmark_id: benchmark
                for benchmark in uow.benchmarks.get_many(
                    [attempt.benchmark_id for attempt in attempts]
                )
            }
        self.moved = False
        if job_ids is None:
            live = {attempt.job_id for attempt in attempts}
            self._failing.retain(live)
            self._absences.retain(live)
            if self._claims is not None:
                self._claims.retain(live)
            self._stopwatches.retain(lambda key: key[0] in live)
            self._queued_behind = {
                job_id: at for job_id, at in self._queued_behind.items() if job_id in live
            }
        else:
            self._stop_orphans(set(job_ids) - {attempt.job_id for attempt in attempts})
        now_s = self._clock.monotonic_s()
        in_flight = self._dispatcher.in_flight
        looked_at = [
            attempt
            for attempt in attempts
            if attempt.job_id not in in_flight and not self._failing.waits(attempt.job_id, now_s)
        ]
        try:
            states, unread = self._states([attempt.job_id for attempt in looked_at])
        except ClusterUnreachable:
            for attempt in looked_at:
                self._end_reported(attempt)
            raise
        if any(job.run is JobRun.ENDED for job in states.values()):
            ended()
        waiting: list[str] = []
        blocked: list[tuple[Benchmark, Attempt, str]] = []
        for attempt in looked_at:
            benchmark = owners[attempt.benchmark_id]
            if attempt.state is AttemptState.PREPARED and benchmark.status not in TERMINAL:
                waiting.append(attempt.job_id)
                continue
            try:
                if attempt.job_id in unread:
                    raise unread[attempt.job_id]
                job = states.get(attempt.job_id)
                self._one(attempt, benchmark, job, after_restart)
                if job is not None and self._stays_blocked(attempt, benchmark, job):
                    blocked.append((benchmark, attempt, job.reason))
            except LeadershipLost:
                raise
            except Unavailable as error:
                self._store.ping()  # raises where it is the store's trouble, not the attempt's
                self._report_failure(attempt, benchmark, error)
            except Exception as error:
                self._report_failure(attempt, benchmark, error)
            else:
                self._failing.succeeded(attempt.job_id)
        self._store_blocked(blocked)
        return tuple(waiting)

    def _follow_clock(self) -> None:
        """Where the machine's clock was set for good, move the times of what is live with it.

        Run times, charges and waits are differences of these: they stay what they were. The time
        of the lease moves in the same transaction, which also stores that this machine's step has
        been taken: a process that starts after this one has died goes on from the new time, and
        does not take the step again.
        """
        step_s = self._clock.pending_step_s()
        if not step_s:
            return

        def move(uow: UnitOfWork) -> None:
            uow.checks.move_times(step_s)
            uow.series.move_times(step_s)
            uow.benchmarks.move_times(step_s)
            uow.leadership.move_time(step_s, record)

        record = self._clock.record(step_s)
        self._store.transact(move)
        self._clock.take_step(step_s)
        if self._restarted_at is not None:
            self._restarted_at += timedelta(seconds=step_s)

    def _states(
        self, job_ids: Sequence[str]
    ) -> tuple[Mapping[str, JobState], Mapping[str, Exception]]:
        """Return what the cluster says of these jobs; and why of some it can't be read.

        Raises:
            ClusterUnreachable: Nothing is known.
        """
        apart = [job_id for job_id in job_ids if job_id in self._failing]
        together = [job_id for job_id in job_ids if job_id not in self._failing]
        states: dict[str, JobState] = {}
        unread: dict[str, Exception] = {}
        try:
            states.update(self._cluster.states(together))
        except ClusterUnreachable:
            raise
        except Exception:  # one of them hides all others
            apart = list(job_ids)
        for job_id in apart:
            try:
                states.update(self._cluster.states([job_id]))
            except ClusterUnreachable:
                raise
            except Exception as error:
                unread[job_id] = error
        return states, unread

    def _report_failure(self, attempt: Attempt, benchmark: Benchmark, error: Exception) -> None:
        """Leave an attempt alone for a while; record an event once, when that lasts."""
        reason = str(error) if isinstance(error, EdgeyardError) else type(error).__name__
        count, wait_s = self._failing.failed(attempt.job_id, reason, self._clock.monotonic_s())
        logger.log(
            logging.ERROR if count == 1 else logging.WARNING,
            "an attempt could not be repaired",
            exc_info=error if count == 1 and not isinstance(error, EdgeyardError) else None,
            extra={
                "event": "repair.attempt_failed",
                "job_id": attempt.job_id,
                "reason": reason,
                "next_try_s": wait_s,
            },
        )
        if count != REPORTED_REPAIR_FAILURES:
            return
        event = Event(
            at=self._clock.now(),
            kind="attempt.repair_failed",
            benchmark_id=benchmark.benchmark_id,
            user_id=benchmark.user_id,
            data={
                "attempt": attempt.number,
                "job_id": attempt.job_id,
                "reason": reason,
                "sentence": "its state could not be compared with the cluster's; "
                "this is tried again",
            },
        )
        self._store.transact(lambda uow: uow.log.append(event))

    def _one(
        self, attempt: Attempt, benchmark: Benchmark, job: JobState | None, after_restart: bool
    ) -> None:
        now = self._clock.now()
        index = self._cluster.state_index()
        if (job is None or job.run is not JobRun.ENDED) and self._end_reported(attempt):
            self._cluster.stop(attempt.job_id)
            return
        if job is None:
            lost_by_restart = self._absences.absent(
                attempt.job_id, index, self._clock.monotonic_s(), after_restart=after_restart
            )
            if lost_by_restart is not None:
                self._unknown_to_the_cluster(attempt, lost_by_restart)
            return
        self._absences.present(attempt.job_id, index)
        job = _with_possible_times(job, attempt, now)
        if job.run is JobRun.ENDED:
            self._note_ended(attempt.job_id)
            failure = job.failure
            if job.stopped:
                failure = attempt.stopping or _with_progress(
                    failure or _STOPPED_IN_THE_CLUSTER, attempt, job
                )
            elif job.host_lost and failure is not None:
                failure = _with_progress(failure, attempt, job)
            if failure is not None and (
                self._missed_us(attempt, job, failure)
                or (
                    _never_began(attempt, job)
                    # its host was lost: whatever happened to it, the benchmark had no try there
                    and (job.stopped or failure.category is FailureCategory.BOARD_FAULT)
                )
            ):
                self._never_ran(attempt, benchmark, job, failure)
            elif self._waits_for_claim(attempt, benchmark, failure):
                return
            elif attempt.task_ended_at is None:
                self._apply(
                    attempt,
                    lambda uow, it: lifecycle.task_ended(
                        uow,
                        it,
                        failure,
                        job.ended_at or now,
                        now,
                        target_uid=job.target_uid,
                        started_at=job.started_at,
                        stopped=job.stopped,
                    ),
                )
            elif benchmark.status in TERMINAL or self._grace_over(attempt):
                self._apply(
                    attempt,
                    lambda uow, it: lifecycle.settle(
                        uow, it, now, upload_grace_over=True, reason=job.reason
                    ),
                )
            return
        if job.target_uid is not None and job.target_uid != attempt.target_uid:
            # Where it is as assumed, the start or the end notes it without a commit of its own.
            self._apply(attempt, lambda uow, it: lifecycle.placed(uow, it, job.target_uid, now))
            attempt = attempt.on_board(placed=job.target_uid)
        why = self._stop_reason(attempt, benchmark, job)
        if why is not None:
            if self._note_stopping(attempt, why):
                self._cluster.stop(attempt.job_id)
            return
        if job.run is JobRun.RUNNING and attempt.state not in (
            AttemptState.RUNNING,
            AttemptState.UPLOADING,
        ):
            self._apply(
                attempt,
                lambda uow, it: lifecycle.task_started(
                    uow, it, job.target_uid, job.started_at or now, now
                ),
                moves=False,
            )
        elif job.run is JobRun.QUEUED and attempt.state in (
            AttemptState.DISPATCHING,
            AttemptState.UNKNOWN,
        ):
            self._apply(
                attempt,
                lambda uow, it: lifecycle.to_state(uow, it, AttemptState.QUEUED, now),
                moves=False,
            )

    def _note_stopping(self, attempt: Attempt, why: Failure) -> bool:
        """Write why a task is stopped, unless the attempt has moved on since it was judged."""
        if attempt.stopping is not None:
            return True
        noted = False

        def change(uow: UnitOfWork, it: Attempt) -> None:
            nonlocal noted
            judged = (attempt.state, attempt.result_at, attempt.stopping)
            noted = (it.state, it.result_at, it.stopping) == judged
            if noted:
                uow.attempts.save(replace(it, stopping=why))

        self._apply(attempt, change)
        return noted

    def _waits_for_claim(
        self, attempt: Attempt, benchmark: Benchmark, failure: Failure | None
    ) -> bool:
        """Have a result fetched that was not uploaded; whether it is still to be waited for."""
        if (
            self._claims is None
            or failure is None
            or failure.category is not FailureCategory.UPLOAD
            or attempt.result_at is not None
            or attempt.task_ended_at is not None
            or benchmark.status in TERMINAL
        ):
            return False
        return self._claims.ask(attempt)

    def _stop_orphans(self, job_ids: Collection[str]) -> None:
        """Stop jobs that live on though their attempts have ended.

        A registration whose answer was lost can take effect after its attempt was given up.
        """
        suspects = [job_id for job_id in job_ids if job_id and job_id not in self._seen_ended]
        if not suspects:
            return
        ended: dict[str, Attempt] = {}
        with self._store.read() as uow:
            for job_id in suspects:
                with suppress(NotFound):
                    found = uow.attempts.by_job_id(job_id)
                    if found.state is AttemptState.ENDED:
                        ended[job_id] = found
        for job_id, job in self._cluster.states(list(ended)).items() if ended else ():
            if job.run is JobRun.ENDED:
                self._note_ended(job_id)
                continue
            logger.warning(
                "a job outlived its attempt and is stopped",
                extra={"event": "job.orphaned", "job_id": job_id},
            )
            self._cluster.stop(job_id)

    def _note_ended(self, job_id: str) -> None:
        """Remember that a job has ended, so that late news of it is not looked into."""
        self._seen_ended[job_id] = None
        while len(self._seen_ended) > MAX_SEEN_ENDED:
            self._seen_ended.popitem(last=False)

    def _never_ran(
        self, attempt: Attempt, benchmark: Benchmark, job: JobState, failure: Failure
    ) -> None:
        now = self._clock.now()
        waited = job.target_uid is None and attempt.stopping is not None
        pinned = benchmark.description.target_uid is not None and not benchmark.unpinned
        since = _due(attempt, benchmark) if waited and pinned else None

        def change(uow: UnitOfWork, it: Attempt) -> None:
            on_board = it.on_board(placed=job.target_uid)
            lifecycle.never_ran(
                uow, on_board, failure, now, stopped=job.stopped, unavailable_since=since
            )

        self._apply(attempt, change)

    def _missed_us(self, attempt: Attempt, job: JobState, failure: Failure) -> bool:
        """Return whether its task never began because the server was away and sent no files."""
        return (
            self._restarted_at is not None
            and failure.category is FailureCategory.CLUSTER
            and job.started_at is None
            and attempt.started_at is None
            and job.ended_at is not None
            and job.ended_at <= self._restarted_at + timedelta(seconds=RESTART_S)
        )

    def _unknown_to_the_cluster(self, attempt: Attempt, after_restart: bool) -> None:
        now = self._clock.now()
        sentence = (
            "its job was lost with a restart of the server"
            if after_restart
            else "the cluster no longer knows its job"
        )
        logger.warning(
            "job is unknown to the cluster",
            extra={"event": "job.lost", "job_id": attempt.job_id, "state": attempt.state.value},
        )
        # A job that was never registered has not used up a try of the user's.
        counts = not after_restart and attempt.state not in (
            AttemptState.DISPATCHING,
            AttemptState.UNKNOWN,
            AttemptState.PREPARED,
        )
        self._apply(attempt, lambda uow, it: lifecycle.lost(uow, it, sentence, now, counts=counts))
        self._cluster.stop(attempt.job_id)  # nothing of it is left behind, were it its secrets

    def _stop_reason(self, attempt: Attempt, benchmark: Benchmark, job: JobState) -> Failure | None:
        """Return why a job that has not ended has to; None: let it go on."""
        if attempt.stopping is not None:
            return attempt.stopping
        if benchmark.status is Status.COMPLETED:
            return Failure(
                category=FailureCategory.CLUSTER,
                sentence="the result of an earlier attempt arrived after all",
            )
        if benchmark.status in TERMINAL:
            return Failure(
                category=FailureCategory.TIMEOUT, sentence=f"it is {benchmark.status.value}"
            )
        if self._clock.disagreement_s():
            return None  # a clock is wrong, perhaps ours: no time is up
        if self._outlives_report(attempt):
            return Failure(
                category=FailureCategory.CLUSTER, sentence="its task did not end after its report"
            )
        if job.run is JobRun.QUEUED:
            return self._start_overdue(attempt, benchmark, job)
        description = benchmark.description
        bound_s = attempt.time_limit_s or description.user_time_s or self._limits.user_time_s
        overdue = attempt.started_at is not None and (
            self._elapsed_s(attempt, "run", attempt.started_at) > bound_s + RUN_TIME_MARGIN_S
        )
        if overdue and self._clock.monotonic_s() - self._restarted_s > OVERDUE_GRACE_S:
            return Failure(
                category=FailureCategory.TIMEOUT,
                sentence=f"it ran longer than its time limit of {bound_s:g} s",
            )
        return self._board_fault(attempt, job)

    def _end_reported(self, attempt: Attempt) -> bool:
        """End an attempt whose task has reported, and of whose end the cluster says nothing.

        Its host is away, perhaps, or the cluster does not answer; its result is safe.

        Returns:
            Whether it has ended.
        """
        if not self._outlives_report(attempt):
            return False
        now, ended = self._clock.now(), False

        def change(uow: UnitOfWork, it: Attempt) -> None:
            nonlocal ended
            lifecycle.reported(uow, it, now)
            ended = uow.attempts.by_job_id(it.job_id).state is AttemptState.ENDED

        self._apply(attempt, change)
        return ended

    def _outlives_report(self, attempt: Attempt) -> bool:
        if attempt.result_at is None or self._clock.disagreement_s():
            return False
        return self._elapsed_s(attempt, "reported", attempt.result_at) >= END_GRACE_S

    def _board_fault(self, attempt: Attempt, job: JobState) -> Failure | None:
        """Return why its board is not waited for; a task may not notice that its board is gone."""
        uid = job.target_uid or attempt.target_uid
        if uid and attempt.binding is Binding.LOOSE and self._is_forbidden(uid):
            return Failure(
                category=FailureCategory.CLUSTER,
                sentence=f"the cluster gave it {uid}, which is not in the inventory",
            )
        unusable = self._unusable_since(uid) if uid and job.run is JobRun.RUNNING else None
        if unusable is None:
            return None
        since, reason = unusable
        if self._elapsed_s(attempt, "unusable", since) < self._rules.board_grace_s:
            return None
        return Failure(
            category=FailureCategory.BOARD_FAULT,
            sentence=f"its board {uid} has been unusable for {self._rules.board_grace_s:g} s "
            f"while it ran: {reason}",
        )

    def _stays_blocked(self, attempt: Attempt, benchmark: Benchmark, job: JobState) -> bool:
        """Return whether a job that the cluster does not start has a new reason to be shown."""
        if job.run is not JobRun.QUEUED or job.target_uid is not None or not job.reason:
            return False
        waiting = benchmark.waiting
        waits_s = self._elapsed_s(attempt, "start", _due(attempt, benchmark))
        return waits_s > BLOCKED_REPORT_AFTER_S and (
            waiting is None or waiting.sentence != job.reason
        )

    def _start_overdue(
        self, attempt: Attempt, benchmark: Benchmark, job: JobState
    ) -> Failure | None:
        """Return why a job that the cluster has not started in its grace time is taken back."""
        if attempt.state is not AttemptState.QUEUED:
            return None
        placed = job.target_uid is not None  # it is set up there, and downloads its files
        grace_s = self._rules.setup_grace_s if placed else self._rules.start_grace_s
        due = _due(attempt, benchmark)
        since = max(due, self._queued_behind.get(attempt.job_id, due))
        if self._elapsed_s(attempt, "start" if since == due else "queued", since) <= grace_s:
            return None
        if attempt.binding is Binding.LOOSE and not placed and self._runs_others(benchmark):
            self._queued_behind[attempt.job_id] = self._clock.now()
            return None
        if placed:
            sentence = f"its task did not start on {job.target_uid} within {grace_s:g} s"
        elif attempt.binding is Binding.STRICT:
            sentence = f"its board {attempt.target_uid} did not take it within {grace_s:g} s"
        else:
            sentence = f"the cluster gave it no board within {grace_s:g} s"
        return Failure(
            category=FailureCategory.CLUSTER,
            sentence=f"{sentence}: {job.reason}" if job.reason else sentence,
        )

    def _runs_others(self, benchmark: Benchmark) -> bool:
        """Return whether boards of its family run others: a loose job waits in Nomad's queue."""
        with self._store.read() as uow:
            running = [
                each.benchmark_id
                for each in uow.attempts.live()
                if each.state is AttemptState.RUNNING
            ]
            owners = uow.benchmarks.get_many(running)
        return any(each.description.family == benchmark.description.family for each in owners)

    def _grace_over(self, attempt: Attempt) -> bool:
        ended = attempt.task_ended_at
        if ended is None or self._clock.disagreement_s():
            return False
        return self._elapsed_s(attempt, "upload", ended) > self._rules.upload_grace_s

    def _elapsed_s(self, attempt: Attempt, what: str, since: datetime) -> float:
        return self._stopwatches.elapsed_s((attempt.job_id, what), since)

    def _store_blocked(self, blocked: Sequence[tuple[Benchmark, Attempt, str]]) -> None:
        """Store why jobs do not start: many at once where a lab is full."""
        if not blocked:
            return

        def work(uow: UnitOfWork) -> None:
            uow.benchmarks.lock(benchmark.benchmark_id for benchmark, _, _ in blocked)
            versions = uow.attempts.live_versions()
            same = [each for each in blocked if versions.get(each[1].job_id) == each[1].version]
            lifecycle.blocked(uow, same, self._clock.now())

        self._store.transact(work)

    def _apply(self, attempt: Attempt, change: _Change, *, moves: bool = True) -> None:
        """Change an attempt as it is now in the store; a concurrent change wins.

        Args:
            moves: Whether that may change what can be decided.
        """

        def work(uow: UnitOfWork) -> None:
            current = uow.attempts.by_job_id(attempt.job_id)
            if current.state is not AttemptState.ENDED:
                change(uow, current)

        try:
            self._store.transact(work)
            self.moved |= moves
        except Conflict:
            logger.info(
                "attempt changed meanwhile",
                extra={"event": "reconcile.conflict", "job_id": attempt.job_id},
            )


def _with_possible_times(job: JobState, attempt: Attempt, now: datetime) -> JobState:
    """Replace a time that can't be, because some clock was wrong, by that of its receipt."""

    def possible(at: datetime | None, earliest: datetime) -> datetime | None:
        return at if at is None or earliest <= at <= now else now

    started_at = possible(job.started_at, attempt.created_at)
    ended_at = possible(job.ended_at, attempt.started_at or started_at or attempt.created_at)
    if (started_at, ended_at) == (job.started_at, job.ended_at):
        return job
    return replace(job, started_at=started_at, ended_at=ended_at)


def _never_began(attempt: Attempt, job: JobState) -> bool:
    """Return whether neither the cluster nor the task itself has reported a start."""
    return job.started_at is None and attempt.started_at is None and attempt.result_at is None


def _with_progress(failure: Failure, attempt: Attempt, job: JobState) -> Failure:
    """Say how far a task had come when its host was lost, or an operator stopped it.

    The task may know more than the host.
    """
    if _never_began(attempt, job):
        when = "before it began"
    elif attempt.progress is None or attempt.phase is None:
        when = "while it ran"
    else:
        when = f"while it ran; it last reported {attempt.phase}, {attempt.progress:.0f} %"
    return replace(failure, sentence=f"{failure.sentence} {when}")


def _due(attempt: Attempt, benchmark: Benchmark) -> datetime:
    """Return from when on the cluster should have an attempt's job running."""
    queued_at = attempt.queued_at or attempt.created_at
    return max(queued_at, benchmark.description.start_time or queued_at)
