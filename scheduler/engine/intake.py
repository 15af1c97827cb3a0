"""What happens to a benchmark before it can be placed: its files are fetched, its cron fires."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from edgeyard.errors import (
    Cancelled,
    Conflict,
    EdgeyardError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    RunFailed,
    TooLarge,
    Unavailable,
    UrlRefused,
)
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.crontab import next_fire, next_time
from edgeyard.scheduler.engine.quotas import check_queue, check_stored, of_account
from edgeyard.scheduler.engine.retry import is_retryable
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    CronBy,
    Failure,
    FailureCategory,
    FileRole,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.quotas import NO_QUOTAS, Quotas, quotas_of
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.model.wire import description_from_json, description_to_json
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork, UrlFetcher

logger = logging.getLogger(__name__)

_NOT_STARTED = frozenset({Status.PENDING, Status.SCHEDULED})

FETCH_PAUSES_S = (2.0, 10.0, 30.0)
"""Before each further try of a download that failed on the way."""

UNAVAILABLE_PAUSE_S = 5.0
"""After a download that the store or the disk could not take, before it begins again."""

CANCEL_CHECK_S = 2.0
"""Interval between checks whether a benchmark whose files are downloaded has ended."""


def fetch_files(
    store: Store,
    fetcher: UrlFetcher,
    benchmark_id: str,
    clock: Clock,
    limits_bytes: Mapping[FileRole, int],
    pause: Callable[[float], object],
    stopping: Callable[[], bool],
    quotas: Quotas = NO_QUOTAS,
    discard: Callable[[str], object] = lambda sha256: None,
) -> None:
    """Download what a benchmark still misses; what can't be had ends it.

    A download is given up within seconds when its benchmark has ended (cancelled, for example) or
    the engine stops; in the latter case it begins again with the next start.

    Args:
        pause: Waits for so many seconds, or less when the engine stops.
        stopping: Whether the engine stops.
        quotas: Of users whose accounts have none of their own.
        discard: Removes content, by its hash, that was downloaded and got no name.

    Raises:
        Unavailable: The store or the disk can't take it now, after a pause; try again.
    """
    with _pause_if_unavailable(pause):
        with store.read() as uow:
            benchmark = uow.benchmarks.get(benchmark_id)
            allowed = of_account(uow, benchmark.user_id, quotas)
        cancelled = _WantedCheck(store, benchmark_id, clock, stopping)
        for file in benchmark.files:
            if file.sha256 is not None or file.url is None or benchmark.status in TERMINAL:
                continue
            limit_bytes = limits_bytes[file.role]
            if allowed.max_bytes is not None:
                limit_bytes = min(limit_bytes, allowed.max_bytes)
            try:
                found = _fetched(fetcher, file, limit_bytes, pause, cancelled)
            except Cancelled:
                logger.info(
                    "download given up",
                    extra={"event": "fetch.cancelled", "benchmark_id": benchmark_id},
                )
                return
            if isinstance(found, BenchmarkFile):
                try:
                    if not _note_fetched(store, benchmark_id, found, clock, quotas):
                        discard(found.sha256 or "")
                    continue
                except QuotaExceeded as error:
                    discard(found.sha256 or "")
                    sentence = f"{file.name}: {error}"
                    found = Failure(category=FailureCategory.USER_INPUT, sentence=sentence)
            _fail(store, benchmark_id, found, clock)
            return


@contextmanager
def _pause_if_unavailable(pause: Callable[[float], object]) -> Iterator[None]:
    """Pause before the error goes on: tried again at once, a full disk would keep all threads busy.

    Raises:
        Unavailable: After the pause.
    """
    try:
        yield
    except Unavailable:
        pause(UNAVAILABLE_PAUSE_S)
        raise


def _fail(store: Store, benchmark_id: str, failure: Failure, clock: Clock) -> None:
    try:
        store.transact(lambda uow: lifecycle.fail(uow, benchmark_id, failure, clock.now()))
    except Conflict:
        logger.info("benchmark ended meanwhile", extra={"event": "fetch.late"})


class _WantedCheck:
    """Says whether a benchmark's files are no longer wanted; asks the store every few seconds."""

    def __init__(
        self, store: Store, benchmark_id: str, clock: Clock, stopping: Callable[[], bool]
    ) -> None:
        self._store = store
        self._benchmark_id = benchmark_id
        self._clock = clock
        self._stopping = stopping
        self._asked_at_s = clock.monotonic_s()

    def __call__(self) -> bool:
        if self._stopping():
            return True
        if self._clock.monotonic_s() < self._asked_at_s + CANCEL_CHECK_S:
            return False
        self._asked_at_s = self._clock.monotonic_s()
        try:
            with self._store.read() as uow:
                return uow.benchmarks.get(self._benchmark_id).status in TERMINAL
        except NotFound:
            return True
        except Unavailable:
            return False


def _fetched(
    fetcher: UrlFetcher,
    file: BenchmarkFile,
    limit_bytes: int,
    pause: Callable[[float], object],
    cancelled: Callable[[], bool],
) -> BenchmarkFile | Failure:
    """Return the file with its content known, or why it can't be had.

    Raises:
        Cancelled: The benchmark has ended, or the server stops.
    """
    assert file.url is not None
    pauses = iter(FETCH_PAUSES_S)
    while True:
        try:
            failpoint("fetch:before")
            stored = fetcher.fetch(file.url, limit_bytes, cancelled)
            failpoint("fetch:after")
            return replace(file, sha256=stored.sha256, size_bytes=stored.size_bytes)
        except UrlRefused as error:
            reason = error.errors[0].reason
            sentence = f"{file.name}: its URL, or one that it redirects to, {reason}"
            return Failure(category=FailureCategory.USER_INPUT, sentence=sentence)
        except TooLarge as error:
            sentence = f"{file.name}: {error}"
            return Failure(category=FailureCategory.USER_INPUT, sentence=sentence)
        except RunFailed as error:
            failure = Failure(
                category=FailureCategory(error.category), sentence=f"{file.name}: {error.sentence}"
            )
        except EdgeyardError:
            raise
        except Exception:  # tried without end, it would hold a thread and fill the log
            logger.exception("download broke", extra={"event": "fetch.broke"})
            sentence = f"{file.name}: the server can't download it; its log says why"
            failure = Failure(category=FailureCategory.UNKNOWN, sentence=sentence)
        wait_s = next(pauses, None)
        unforeseen = failure.category is FailureCategory.UNKNOWN
        if wait_s is None or not (unforeseen or is_retryable(failure)):
            return failure
        pause(wait_s)
        if cancelled():
            raise Cancelled


def _note_fetched(
    store: Store, benchmark_id: str, fetched: BenchmarkFile, clock: Clock, quotas: Quotas
) -> bool:
    """Record a file that was fetched; False where its benchmark has ended meanwhile."""

    def note(uow: UnitOfWork) -> bool:
        benchmark = uow.benchmarks.get(benchmark_id)
        if benchmark.status in TERMINAL:
            return False
        files = tuple(
            fetched if (file.role, file.position) == (fetched.role, fetched.position) else file
            for file in benchmark.files
        )
        uow.benchmarks.save_files(replace(benchmark, files=files))
        check_stored(uow, benchmark.user_id, of_account(uow, benchmark.user_id, quotas))
        uow.log.append(
            Event(
                at=clock.now(),
                kind="file.fetched",
                benchmark_id=benchmark_id,
                user_id=benchmark.user_id,
                data={"name": fetched.name, "sha256": fetched.sha256},
            )
        )
        return True

    return store.transact(note)


def add_schedule(
    uow: UnitOfWork,
    description: JobDescription,
    user_id: str,
    files: Sequence[BenchmarkFile],
    now: datetime,
) -> CronSchedule:
    """Keep a description with a ``cron``; each firing makes a benchmark of its own.

    Raises:
        InvalidInput: The crontab is none.
    """
    cron = description.cron or ""
    schedule = CronSchedule(
        schedule_id=f"cron-{secrets.token_hex(8)}",
        user_id=user_id,
        cron=cron,
        description=packed(
            replace(description, cron=None, prohibit_overlap=False, cron_by=CronBy.EDGEYARD), files
        ),
        created_at=now,
        next_fire=next_fire(cron, now),
        prohibit_overlap=description.prohibit_overlap,
        cron_by=description.cron_by,
    )
    uow.schedules.add(schedule)
    return schedule


def fire_due(
    store: Store, clock: Clock, quotas: Quotas = NO_QUOTAS, max_pending_total: int | None = None
) -> int:
    """Make the benchmarks of schedules that are due; each firing and its next time commit together.

    A schedule of an account that is disabled, gone or may submit nothing makes nothing; its limits
    are those of now.
    While the last benchmark of a schedule waits, or has not ended where the schedule prohibits
    overlaps, no other is made: the firing is skipped. A schedule that fails, or whose user's quota
    is full, holds up no other: that firing is skipped, too.

    Args:
        store: Has the schedules.
        clock: Decides which are due.
        quotas: Of users whose accounts have none of their own.
        max_pending_total: Pending benchmarks of all users together; None: no bound.

    Returns:
        How many were made. Firings missed while the server was down are made up for once.

    Raises:
        Unavailable: The store can't take it now.
    """
    now = clock.certain()
    with store.read() as uow:
        due = uow.schedules.due(now)
    made = 0
    for schedule in due:
        try:
            fire = partial(_fire_one, schedule.schedule_id, now, quotas, max_pending_total)
            made += store.transact(fire)
        except Unavailable:
            raise
        except QuotaExceeded as error:
            store.transact(partial(_skip_broken, schedule.schedule_id, now, str(error)))
        except Exception as error:
            logger.exception(
                "a schedule could not be fired",
                extra={"event": "schedule.broke", "schedule_id": schedule.schedule_id},
            )
            reason = str(error) if isinstance(error, EdgeyardError) else type(error).__name__
            store.transact(partial(_skip_broken, schedule.schedule_id, now, reason))
    return made


def _fire_one(
    schedule_id: str,
    now: datetime,
    quotas: Quotas,
    max_pending_total: int | None,
    uow: UnitOfWork,
) -> bool:
    """Fire a schedule once; whether that made a benchmark."""
    schedule = uow.schedules.get(schedule_id)
    if not schedule.active or schedule.next_fire > now:
        return False  # another request changed it meanwhile
    following = _following(schedule, now)
    last = last_benchmark(uow, schedule)
    overlap = None if last is None else _overlap(schedule, last)
    if last is not None and overlap is not None:
        log_skipped(uow, schedule, overlap, now, benchmark_id=last.benchmark_id)
        uow.schedules.save(replace(following, skipped=schedule.skipped + 1))
        return False
    made = submit_firing(uow, schedule, now)
    if made is not None:
        owner = uow.accounts.user(schedule.user_id)
        max_pending = None if owner.role is Role.OPERATOR else max_pending_total
        check_queue(uow, owner, quotas_of(owner, quotas), max_pending)
        following = replace(following, last_benchmark_id=made.benchmark_id)
    uow.schedules.save(following)
    return made is not None


def _following(schedule: CronSchedule, now: datetime) -> CronSchedule:
    """Return a schedule with its next time; ended where this was its last one.

    Raises:
        InvalidInput: Its crontab is none.
    """
    following = next_time(schedule.cron, now)
    if following is None:
        return replace(schedule, active=False)
    return replace(schedule, next_fire=following)


def last_benchmark(uow: UnitOfWork, schedule: CronSchedule) -> Benchmark | None:
    """Return the last benchmark of a schedule; None before the first, or if it was removed."""
    if schedule.last_benchmark_id is None:
        return None
    try:
        return uow.benchmarks.get(schedule.last_benchmark_id)
    except NotFound:
        return None


def _overlap(schedule: CronSchedule, last: Benchmark) -> str | None:
    """Return why the last benchmark makes a firing be skipped; None if it does not."""
    if last.status in _NOT_STARTED:
        return (
            f"its last benchmark {last.benchmark_id} has not started yet; a schedule has "
            "at most one that waits"
        )
    if schedule.prohibit_overlap and last.status not in TERMINAL:
        return f"its last benchmark {last.benchmark_id} has not ended, and it prohibits overlaps"
    return None


def _skip_broken(schedule_id: str, now: datetime, reason: str, uow: UnitOfWork) -> None:
    """Leave out a firing that failed; a schedule without a next time is ended."""
    schedule = uow.schedules.get(schedule_id)
    sentence = f"it could not be fired: {reason}"
    try:
        following = _following(schedule, now)
    except InvalidInput as error:
        end_schedule(uow, schedule, str(error), now)
        return
    if not following.active:
        sentence += "; it has no next time, and is ended"
    uow.schedules.save(replace(following, skipped=schedule.skipped + 1))
    log_skipped(uow, schedule, sentence, now)


def end_schedule(uow: UnitOfWork, schedule: CronSchedule, reason: str, now: datetime) -> None:
    """End a schedule that can't go on, and record why."""
    uow.schedules.save(replace(schedule, active=False, problem=reason, retry_at=None))
    log_event(uow, schedule, "schedule.ended", reason, now)


def log_skipped(
    uow: UnitOfWork,
    schedule: CronSchedule,
    sentence: str,
    now: datetime,
    *,
    benchmark_id: str | None = None,
) -> None:
    """Record that a schedule made no benchmark at one of its times, and why."""
    log_event(uow, schedule, "schedule.skipped", sentence, now, benchmark_id=benchmark_id)


def log_event(
    uow: UnitOfWork,
    schedule: CronSchedule,
    kind: str,
    sentence: str,
    now: datetime,
    *,
    benchmark_id: str | None = None,
) -> None:
    """Record an event of a schedule, with a sentence for its owner."""
    uow.log.append(
        Event(
            at=now,
            kind=kind,
            benchmark_id=benchmark_id,
            user_id=schedule.user_id,
            data={"schedule_id": schedule.schedule_id, "sentence": sentence},
        )
    )


def submit_firing(uow: UnitOfWork, schedule: CronSchedule, now: datetime) -> Benchmark | None:
    """Make the benchmark of one firing of a schedule; None where the account may make none."""
    try:
        owner = uow.accounts.user(schedule.user_id)
    except NotFound:
        return None
    if not owner.may_submit:
        return None
    description, files = firing_of(schedule, owner)
    return lifecycle.submit(
        uow, description, schedule.user_id, files, now, schedule_id=schedule.schedule_id
    )


def firing_of(
    schedule: CronSchedule, owner: User
) -> tuple[JobDescription, Sequence[BenchmarkFile]]:
    """Return what a firing of a schedule asks for now, within the bounds of its owner's account."""
    return unpacked(schedule.description, owner)


def packed(description: JobDescription, files: Sequence[BenchmarkFile]) -> Mapping[str, object]:
    """Return what is to be submitted later, as JSON."""
    return {
        "description": description_to_json(description),
        "files": [
            {
                "role": file.role.value,
                "position": file.position,
                "name": file.name,
                "url": file.url,
                "sha256": file.sha256,
                "size_bytes": file.size_bytes,
            }
            for file in files
        ],
    }


def unpacked(
    kept: Mapping[str, object], owner: User
) -> tuple[JobDescription, Sequence[BenchmarkFile]]:
    """Return what was `packed`, within the bounds that the account of its owner has now."""
    files, description = kept["files"], kept["description"]
    assert isinstance(files, list)
    assert isinstance(description, Mapping)
    submitted = description_from_json(description)
    budget = submitted.user_budget
    if budget is not None and owner.max_budget is not None:
        budget = min(budget, owner.max_budget)
    bounded = replace(
        submitted,
        user_priority=min(submitted.user_priority, owner.max_priority),
        user_budget=budget,
    )
    return bounded, [BenchmarkFile(**{**file, "role": FileRole(file["role"])}) for file in files]
