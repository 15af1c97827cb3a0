"""Schedules that are left to Nomad: their parent jobs, and the runs that Nomad starts of them.

A schedule has one live parent job. What it is made of has a digest: where that changes, another
version is registered, and the old one is stopped. A registration of unknown outcome is given up in
the same way. Each run becomes a benchmark of the schedule, with its attempt, in one transaction
that also moves ``launched_until`` of the schedule: no run is taken twice, even if two
servers find it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from edgeyard.errors import (
    ClusterUnreachable,
    Conflict,
    EdgeyardError,
    HclError,
    InvalidInput,
    JobExists,
    JobRefused,
    NotFound,
    Unavailable,
)
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.backoff import Backoff
from edgeyard.scheduler.engine.crontab import next_time
from edgeyard.scheduler.engine.dispatch import ODT_CONFIG_FILENAME, Verify, job_file, unguessable
from edgeyard.scheduler.engine.intake import (
    end_schedule,
    firing_of,
    last_benchmark,
    log_event,
    log_skipped,
    submit_firing,
)
from edgeyard.scheduler.engine.quotas import check_queue
from edgeyard.scheduler.hcl.build import (
    SPEC_FILENAME,
    UPLOAD_TOKEN,
    JobRequest,
    RenderSettings,
    build_job,
)
from edgeyard.scheduler.hcl.job import NomadJob, Periodic
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    BenchmarkFile,
    Binding,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.quotas import Quotas, quotas_of
from edgeyard.scheduler.model.recurring import (
    ScheduleGrant,
    ScheduleJob,
    ScheduleJobState,
    launched_at,
    parent_id_of,
    schedule_of,
)
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.model.wire import description_to_json
from edgeyard.scheduler.ports import (
    Clock,
    Cluster,
    RecurringJob,
    StartedRun,
    Store,
    UnitOfWork,
)

logger = logging.getLogger(__name__)

MAX_REFRESH_INTERVAL_S = 5.0
"""Maximum interval between reads of Nomad's jobs while nothing has changed."""

RETRY_INTERVAL_S = 10.0
"""A job that is gone, or whose registration was not answered, is replaced no sooner: one that Nomad
ends at once must not be registered in every turn."""

MAX_RETRY_INTERVAL_S = 300.0
"""Longest pause after failures of one schedule."""

LAST_START_GRACE = timedelta(seconds=60)
"""After its last time a schedule is ended no sooner: Nomad makes the start by its own clock."""

_UNREGISTERED = "its job can't be registered in Nomad, so the schedule has ended: {}"

_T = TypeVar("_T")
_NO_JOB = RecurringJob(live=False)


class _EndNotKnown(Exception):
    """The schedule's last run has ended in Nomad, and its attempt has not ended here yet."""


@dataclass(frozen=True, slots=True)
class _StoredSchedule:
    """A schedule as it is stored, with its jobs, and its owner if there still is one."""

    schedule: CronSchedule
    jobs: Sequence[ScheduleJob]
    owner: User | None

    @classmethod
    def of(cls, uow: UnitOfWork, schedule: CronSchedule) -> _StoredSchedule:
        try:
            owner = uow.accounts.user(schedule.user_id)
        except NotFound:
            owner = None
        return cls(schedule, uow.schedules.jobs(schedule.schedule_id), owner)


class RecurringStarts:
    """Keeps Nomad's jobs in line with the schedules, and adopts the runs. Any thread."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        clock: Clock,
        settings: RenderSettings,
        verify: Verify,
        *,
        quotas: Callable[[], Quotas] = Quotas,
        max_pending_total: Callable[[], int | None] = lambda: None,
        max_run_s: float,
        tariff: Tariff | None = None,
    ) -> None:
        """Nothing is read before `turn`.

        Args:
            verify: The cluster's reading of a job's text, compared with the job.
            quotas: Gives the quotas of users whose accounts have none of their own.
            max_pending_total: Gives how many benchmarks of all users may wait; None: any number.
            max_run_s: Bound on a run that states no ``user_time``, seconds.
            tariff: Factors on the rates by hour of the day; None: 1 at all hours.
        """
        self._store = store
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._verify = verify
        self._quotas = quotas
        self._max_pending_total = max_pending_total
        self._max_run_s, self._tariff = max_run_s, tariff
        self._lock = threading.Lock()
        self._refreshed_s: float | None = None
        self._failing = Backoff(RETRY_INTERVAL_S, MAX_RETRY_INTERVAL_S)
        self._refused = Backoff(RETRY_INTERVAL_S, MAX_RETRY_INTERVAL_S)
        self._launched_until: dict[str, datetime] = {}

    def turn(self, *, refresh: bool = False) -> tuple[str, ...]:
        """Register and stop what is to be, and adopt what Nomad has started.

        A schedule that fails holds up no other.

        Args:
            refresh: Read them also where they were read lately: there is news of Nomad's jobs.

        Returns:
            Job ids of the runs that became attempts.

        Raises:
            ClusterUnreachable: Nomad's jobs are not known.
            Unavailable: The store can't take it now.
        """
        with self._lock:
            with self._store.read() as uow:
                found = [_StoredSchedule.of(uow, each) for each in uow.schedules.left_to_nomad()]
            now_s = self._clock.monotonic_s()
            for backoff in (self._failing, self._refused):
                backoff.retain({each.schedule.schedule_id for each in found})
            due = [e for e in found if not self._failing.waits(e.schedule.schedule_id, now_s)]
            fresh = (
                self._refreshed_s is not None and now_s - self._refreshed_s < MAX_REFRESH_INTERVAL_S
            )
            if fresh and not refresh:
                due = [each for each in due if not self._guarded(each, self._is_settled, True)]
            if not due:
                return ()
            seen = self._cluster.recurring()
            if refresh or not fresh:
                self._refreshed_s = now_s
            adopted: list[str] = []
            for kept in due:
                adopted += self._guarded(kept, lambda each: self._one(each, seen), ())
            return tuple(adopted)

    def is_news(self, job_id: str) -> bool:
        """Return whether an event is about a parent job, or about a run that is not adopted yet."""
        schedule_id, launched = schedule_of(job_id), launched_at(job_id)
        if schedule_id is None:
            return False
        until = self._launched_until.get(schedule_id)
        return launched is None or until is None or launched > until

    def _guarded(
        self, kept: _StoredSchedule, step: Callable[[_StoredSchedule], _T], otherwise: _T
    ) -> _T:
        """Take a step for a schedule; one that fails holds up no other, and is left for a while."""
        schedule_id, reason, unforeseen = kept.schedule.schedule_id, "", None
        try:
            return step(kept)
        except (Unavailable, ClusterUnreachable):
            raise
        except EdgeyardError as error:
            reason = str(error)
        except Exception as error:
            reason, unforeseen = type(error).__name__, error
        self._failing.failed(schedule_id, reason, self._clock.monotonic_s())
        logger.warning(
            "a schedule could not be kept in line with Nomad",
            exc_info=unforeseen,
            extra={"event": "schedule.broke", "schedule_id": schedule_id, "reason": reason},
        )
        return otherwise

    def _is_settled(self, kept: _StoredSchedule) -> bool:
        """Return whether nothing is to be done for a schedule unless Nomad has news."""
        wanted = self._fingerprint(kept)
        last = kept.jobs[-1] if kept.jobs else None
        if kept.schedule.active and kept.schedule.next_fire <= self._clock.now():
            return False
        if wanted is None or self._waits_for_registration(kept.schedule):
            return all(job.state is ScheduleJobState.ENDED for job in kept.jobs)
        return last is not None and (wanted, ScheduleJobState.REGISTERED) == (
            last.fingerprint,
            last.state,
        )

    def _one(self, kept: _StoredSchedule, seen: Mapping[str, RecurringJob]) -> Sequence[str]:
        jobs = {job.job_id: seen.get(job.job_id, _NO_JOB) for job in kept.jobs}
        runs = [run for job in jobs.values() for run in job.runs]
        adopted = self._adopt_all(kept.schedule, runs)
        kept = replace(kept, schedule=self._with_next_time(kept.schedule))
        wanted = self._fingerprint(kept)
        last = kept.jobs[-1] if kept.jobs else None
        is_current = (
            wanted is not None
            and last is not None
            and (last.fingerprint, last.state) == (wanted, ScheduleJobState.REGISTERED)
            and jobs[last.job_id].live
        )
        for job in kept.jobs:
            if is_current and job is last:
                continue
            if jobs[job.job_id].live:
                self._cluster.stop(job.job_id)
            elif job.state is not ScheduleJobState.ENDED and not any(
                run.live for run in jobs[job.job_id].runs
            ):
                self._save_job(replace(job, state=ScheduleJobState.ENDED))
        waits = self._waits_for_registration(kept.schedule)
        if wanted is not None and not is_current and not waits and self._may_register(last, wanted):
            self._register(kept, wanted)
        self._failing.succeeded(kept.schedule.schedule_id)
        return adopted

    def _waits_for_registration(self, schedule: CronSchedule) -> bool:
        """Return whether Nomad did not take the schedule's job a while ago."""
        return self._refused.waits(schedule.schedule_id, self._clock.monotonic_s())

    def _may_register(self, last: ScheduleJob | None, wanted: str) -> bool:
        """Return whether the same job was not registered a moment ago."""
        if last is None or last.fingerprint != wanted:
            return True
        return (self._clock.now() - last.created_at).total_seconds() >= RETRY_INTERVAL_S

    def _fingerprint(self, kept: _StoredSchedule) -> str | None:
        """Return the digest of what a schedule's job is to be made of; None: there is to be none.

        That is its firing within the account's bounds of now, and the settings.
        """
        schedule, owner = kept.schedule, kept.owner
        if not schedule.active or owner is None or not owner.may_submit:
            return None
        description, files = firing_of(schedule, owner)
        made_of = [
            schedule.cron,
            schedule.prohibit_overlap,
            description_to_json(description),
            [(file.role.value, file.position, file.name, file.sha256) for file in files],
            repr(self._settings),
            self._settings.auth_password,
        ]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def _register(self, kept: _StoredSchedule, fingerprint: str) -> None:
        """Register the next version of a schedule's job, after it is stored."""
        schedule, owner = kept.schedule, kept.owner
        assert owner is not None
        version = max((job.version for job in kept.jobs), default=0) + 1
        job_id = parent_id_of(schedule.schedule_id, version)
        token = "eys_" + secrets.token_urlsafe(32)
        try:
            job, grants = self._job(schedule, owner, job_id)
            text = render(job)
            self._verify(job, text)
        except ClusterUnreachable as error:
            self._postpone(schedule.schedule_id, job_id, str(error))
            return
        except (HclError, InvalidInput, NotFound, ValueError) as error:
            self._end(schedule.schedule_id, _UNREGISTERED.format(error))
            return
        stored = ScheduleJob(
            job_id=job_id,
            schedule_id=schedule.schedule_id,
            version=version,
            token_sha256=hashlib.sha256(token.encode()).hexdigest(),
            fingerprint=fingerprint,
            hcl=render(job, masked=True),
            created_at=self._clock.now(),
        )
        self._store.transact(lambda uow: uow.schedules.add_job(stored, grants))
        failpoint("recurring:before")
        try:
            self._cluster.dispatch(job_id, text, {UPLOAD_TOKEN: token})
        except ClusterUnreachable as error:  # it may have taken effect: a later turn stops it
            self._postpone(schedule.schedule_id, job_id, str(error))
            return
        except JobRefused as error:
            self._save_job(replace(stored, state=ScheduleJobState.ENDED))
            if error.lasting:
                self._end(schedule.schedule_id, _UNREGISTERED.format(error.reason))
            else:
                self._postpone(schedule.schedule_id, job_id, error.reason)
            return
        except JobExists:  # of a database that an older backup has replaced: the next turn stops it
            return
        failpoint("recurring:after")
        registered = replace(stored, state=ScheduleJobState.REGISTERED)
        self._store.transact(partial(_note_registered, registered))
        self._refused.succeeded(schedule.schedule_id)
        logger.info(
            "schedule registered in Nomad",
            extra={"event": "schedule.registered", "job_id": job_id},
        )

    def _save_job(self, job: ScheduleJob) -> None:
        self._store.transact(lambda uow: uow.schedules.save_job(job))

    def _end(self, schedule_id: str, reason: str) -> CronSchedule:
        """End a schedule that can't go on, unless its owner has ended it meanwhile."""

        def end(uow: UnitOfWork) -> CronSchedule:
            schedule = uow.schedules.get(schedule_id)
            if schedule.active:
                end_schedule(uow, schedule, reason, self._clock.now())
            return uow.schedules.get(schedule_id)

        return self._store.transact(end)

    def _postpone(self, schedule_id: str, job_id: str, reason: str) -> None:
        """Try later, after longer and longer waits, to register a job that Nomad did not take."""
        # The number in the job's id grows with each try, and is not news.
        reason = reason.replace(job_id, f"benchmark-{schedule_id}")
        count, wait_s = self._refused.failed(schedule_id, reason, self._clock.monotonic_s())
        logger.warning(
            "a schedule's job was not registered in Nomad",
            extra={
                "event": "schedule.postponed",
                "schedule_id": schedule_id,
                "reason": reason,
                "failures": count,
                "wait_s": wait_s,
            },
        )

        def note(uow: UnitOfWork) -> None:
            schedule, now = uow.schedules.get(schedule_id), self._clock.now()
            if not schedule.active:
                return
            sentence = f"Nomad does not have its job now: {reason}"
            if sentence != schedule.problem:
                log_event(uow, schedule, "schedule.postponed", sentence, now)
            later = now + timedelta(seconds=wait_s)
            uow.schedules.save(replace(schedule, problem=sentence, retry_at=later))

        self._store.transact(note)

    def _job(
        self, schedule: CronSchedule, owner: User, job_id: str
    ) -> tuple[NomadJob, Sequence[ScheduleGrant]]:
        description, files = firing_of(schedule, owner)
        granted = [(file.role, _grant(job_id, file)) for file in files]
        if isinstance(description.odt_config, Mapping):
            content = json.dumps(dict(description.odt_config)).encode()
            inline = _inline(job_id, ODT_CONFIG_FILENAME, content)
            granted.append((FileRole.ODT_CONFIG, inline))
        short = job_id.removeprefix("benchmark-")
        exchange = {
            "version": 1,
            "exchange_url": f"{self._settings.public_url}/v1/runs/{short}/exchange",
        }
        spec = _inline(job_id, SPEC_FILENAME, json.dumps(exchange).encode())
        request = JobRequest(
            job_id=job_id,
            description=description,
            priority=min(100, max(1, 10 * description.user_priority)),
            binding=_binding(description),
            files=(*(job_file(role, grant) for role, grant in granted), job_file(None, spec)),
            target_uid=description.target_uid,
            recurs=Periodic(
                cron=" ".join(schedule.cron.split()),
                prohibit_overlap=schedule.prohibit_overlap,
                time_zone="UTC",
            ),
            user_id=schedule.user_id,
        )
        return build_job(request, self._settings), [*(grant for _, grant in granted), spec]

    def _with_next_time(self, schedule: CronSchedule) -> CronSchedule:
        """Return a schedule with its next time, stored; ended a while after its last one."""
        now = self._clock.now()
        if not schedule.active or schedule.next_fire > now:
            return schedule

        def move(uow: UnitOfWork) -> CronSchedule:
            kept = uow.schedules.get(schedule.schedule_id)
            if not kept.active or kept.next_fire > now:
                return kept
            following = next_time(kept.cron, now)
            if following is not None:
                moved = replace(kept, next_fire=following)
            else:
                moved = replace(kept, active=now < kept.next_fire + LAST_START_GRACE)
            uow.schedules.save(moved)
            return moved

        try:
            return self._store.transact(move)
        except InvalidInput as error:  # its crontab is none, by the rules of now
            return self._end(schedule.schedule_id, str(error))

    def _adopt_all(self, schedule: CronSchedule, runs: Sequence[StartedRun]) -> Sequence[str]:
        """Adopt the runs that are new, in the order of their starts.

        Of runs that have ended unseen, because no server was there, the newest is made up for,
        and the others are skipped. Where overlaps are prohibited, a run waits until the end of the
        one before it is known here.
        """
        until = schedule.launched_until
        live = {each.job_id for each in runs if each.live}
        new = sorted(
            (each for each in runs if until is None or _launched_at(each) > until),
            key=_launched_at,
        )
        adopted: list[str] = []
        for run in new:
            missed = not run.live and run is not new[-1]
            reason = "it ended before a server saw it, and later ones followed" if missed else ""
            if not reason:
                try:
                    adopt = partial(self._adopt, schedule.schedule_id, run, live)
                    if self._store.transact(adopt):
                        adopted.append(run.job_id)
                    until = _launched_at(run)
                    continue
                except _EndNotKnown:
                    self._refreshed_s = None  # the next turn reads again
                    break
                except (Unavailable, Conflict):
                    raise
                except EdgeyardError as error:
                    reason = str(error)
                except Exception as error:  # a deleted schedule has its job stopped
                    logger.exception(
                        "a run could not be adopted",
                        extra={"event": "schedule.broke", "schedule_id": schedule.schedule_id},
                    )
                    reason = type(error).__name__
            skip = partial(self._skip, schedule.schedule_id, run, reason)
            if self._store.transact(skip) and run.live:
                self._cluster.stop(run.job_id)
            until = _launched_at(run)
        if until is not None:
            self._launched_until[schedule.schedule_id] = until
        self._stop_unknown([each for each in runs if each.live and each not in new])
        return adopted

    def _stop_unknown(self, runs: Sequence[StartedRun]) -> None:
        """Stop runs that became no attempts: the call that was to stop them may have failed."""
        unknown = []
        if runs:
            with self._store.read() as uow:
                unknown = [each.job_id for each in runs if not _is_attempt(uow, each.job_id)]
        for job_id in unknown:
            self._cluster.stop(job_id)

    def _adopt(
        self, schedule_id: str, run: StartedRun, live: Collection[str], uow: UnitOfWork
    ) -> bool:
        """Make a run the first attempt of a benchmark; whether it was not one yet.

        Args:
            live: Runs of the schedule that have not ended in Nomad.

        Raises:
            QuotaExceeded: Its user would have too many.
            InvalidInput: Its user's account may make no benchmark, or can't pay for one; or it has
                ended unseen, and so has the schedule; or it would overlap with the last one.
            _EndNotKnown: The run before it has ended, and its attempt has not yet.
        """
        now = self._clock.now()
        schedule = uow.schedules.get(schedule_id)
        if schedule.launched_until is not None and _launched_at(run) <= schedule.launched_until:
            return False
        if not (run.live or schedule.active):
            raise InvalidInput.at("", "it ended before a server saw it, and its schedule has ended")
        _check_overlap(uow, schedule, live)
        made = submit_firing(uow, schedule, now)
        if made is None:
            raise InvalidInput.at("", "its account is disabled, gone or may submit nothing")
        owner = uow.accounts.user(schedule.user_id)
        max_pending = None if owner.role is Role.OPERATOR else self._max_pending_total()
        check_queue(uow, owner, quotas_of(owner, self._quotas()), max_pending)
        attempt = Attempt(
            benchmark_id=made.benchmark_id,
            number=1,
            job_id=run.job_id,
            state=AttemptState.QUEUED,
            binding=Binding.LOOSE,  # whatever the job says, Nomad chose the board and the moment
            priority=min(100, max(1, 10 * made.description.user_priority)),
            created_at=now,
            family=made.description.family,
            target_uid=made.description.target_uid,
            queued_at=now,
        )
        prepared = lifecycle.prepare(
            uow, [(made, attempt)], now, max_run_s=self._max_run_s, tariff=self._tariff
        )
        if not prepared:
            raise InvalidInput.at("", "its account can't pay for another run now")
        uow.schedules.save(
            replace(schedule, launched_until=_launched_at(run), last_benchmark_id=made.benchmark_id)
        )
        failpoint("recurring:adopted")
        return True

    def _skip(self, schedule_id: str, run: StartedRun, reason: str, uow: UnitOfWork) -> bool:
        """Note that a run makes no benchmark; whether it was new."""
        schedule = uow.schedules.get(schedule_id)
        if schedule.launched_until is not None and _launched_at(run) <= schedule.launched_until:
            return False
        uow.schedules.save(
            replace(schedule, launched_until=_launched_at(run), skipped=schedule.skipped + 1)
        )
        sentence = f"Nomad's run {run.job_id} makes no benchmark: {reason}"
        log_skipped(uow, schedule, sentence, self._clock.now())
        return True


def _check_overlap(uow: UnitOfWork, schedule: CronSchedule, live: Collection[str]) -> None:
    """Refuse another run while the last benchmark waits or runs, and overlaps are prohibited.

    Nomad prohibits overlaps of the runs of one job. It knows neither of a benchmark that Edgeyard
    runs again, or has taken back because its run got no board, nor of an earlier job's runs.

    Raises:
        InvalidInput: The last benchmark has not ended.
        _EndNotKnown: Its run has ended, and its outcome is not decided yet.
    """
    last = last_benchmark(uow, schedule) if schedule.prohibit_overlap else None
    if last is None or last.status in TERMINAL:
        return
    latest = max(uow.attempts.of(last.benchmark_id), key=lambda each: each.number)
    of_nomad = latest.state is not AttemptState.ENDED and launched_at(latest.job_id) is not None
    if of_nomad and latest.job_id not in live:
        raise _EndNotKnown
    reason = f"its last benchmark {last.benchmark_id} has not ended, and it prohibits overlaps"
    raise InvalidInput.at("", reason)


def _note_registered(job: ScheduleJob, uow: UnitOfWork) -> None:
    """Store that Nomad has a job; what prevented that before is over."""
    uow.schedules.save_job(job)
    schedule = uow.schedules.get(job.schedule_id)
    if schedule.active and schedule.problem is not None:
        uow.schedules.save(replace(schedule, problem=None, retry_at=None))


def _launched_at(run: StartedRun) -> datetime:
    found = launched_at(run.job_id)
    assert found is not None
    return found


def _is_attempt(uow: UnitOfWork, job_id: str) -> bool:
    try:
        uow.attempts.by_job_id(job_id)
    except NotFound:
        return False
    return True


def _binding(description: JobDescription) -> Binding:
    """Return how a job is bound whose board is chosen when a run starts."""
    if description.target_uid is not None:
        return Binding.STRICT
    return Binding.LOOSE if description.binding is Binding.LOOSE else Binding.FILTERED


def _grant(job_id: str, file: BenchmarkFile) -> ScheduleGrant:
    if file.sha256 is None:
        raise NotFound("stored file", file.name)
    return ScheduleGrant(
        name=unguessable(file.name),
        job_id=job_id,
        filename=file.name,
        sha256=file.sha256,
        size_bytes=file.size_bytes or 0,
    )


def _inline(job_id: str, filename: str, content: bytes) -> ScheduleGrant:
    return ScheduleGrant(
        name=unguessable(filename),
        job_id=job_id,
        filename=filename,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        content=content,
    )
