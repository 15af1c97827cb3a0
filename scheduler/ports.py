"""The doors between Edgeyard's parts: contracts only, no code.

Adapters live in `scheduler.store`, `scheduler.clusters` and `scheduler.files`;
only `edgeyard.benchmark_api.bootstrap` builds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from edgeyard.devices.model import Host
from edgeyard.scheduler.model.accounts import Balance, Charge, Quarantine
from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.benchmark import Benchmark, Failure, Status, WaitingReason
from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord, ExplainingCycle
from edgeyard.scheduler.model.history import PastRunColumns
from edgeyard.scheduler.model.knowledge import HostLoad, Lease
from edgeyard.scheduler.model.quotas import Usage
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.model.records import (
    ApiToken,
    BoardOverride,
    Campaign,
    CronSchedule,
    Delivery,
    DownloadGrant,
    Event,
    LeaderLease,
    Login,
    PolicyActivation,
    PolicyOverride,
    PolicySeat,
    Registration,
    RegistrationKind,
    Report,
    ResultFile,
    StoredFile,
    StoredPolicy,
    User,
    UserFile,
    Webhook,
)
from edgeyard.scheduler.model.retention import Limits, PruneReport, RetentionClass


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC; it runs on evenly while the machine's clock is set."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds for durations; nobody can set them."""
        ...

    def certain(self) -> datetime:
        """Return the time of day that has surely come.

        It is `now` while wall and monotonic time agree, and stands still while they do not: what
        can't be taken back, such as an expiry, compares with it.
        """
        ...

    def disagreement_s(self) -> float:
        """Return how far the machine's clock is ahead of `now`; 0.0 while they agree.

        Meanwhile nothing that can't be taken back is done because of a time.
        """
        ...

    def pending_step_s(self) -> float:
        """Return by how much the machine's clock was set for good, and `now` has yet to follow."""
        ...

    def take_step(self, step_s: float) -> None:
        """Let `now` follow such a step: the times of what is live have been moved by as much."""
        ...


# --- the cluster --------------------------------------------------------------------------------


class JobRun(StrEnum):
    """What the cluster says of a job."""

    QUEUED = "queued"  # registered, its task does not run yet
    RUNNING = "running"
    ENDED = "ended"  # its task ended, well or not


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of one job.

    Attributes:
        target_uid: Board that it was placed on; None before it was.
        reason: Why it is queued, in words; "" otherwise.
        started_at: By the server's clock: the cluster corrects what a host says by how far that
            host's clock is off, or gives the time at which it learnt of it.
        ended_at: In the same way.
        failure: Why it ended, None when it ended well; ``preempted`` where the cluster itself
            gave its board to a more urgent job.
        stopped: It ended because it was asked to.
        host_lost: Its host was lost: whether its task had begun may not be known to the cluster.
    """

    job_id: str
    run: JobRun
    target_uid: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    failure: Failure | None = None
    stopped: bool = False
    host_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Bytes of a task's log from ``offset`` on; ``next_offset`` to go on; ``ended`` for ever."""

    data: bytes
    next_offset: int
    ended: bool


class Cluster(Protocol):
    """Runs jobs on boards. Thread-safe. Contract: ``tests/contract/test_cluster.py``."""

    def check(self, hcl: str) -> None:
        """Raise `JobRefused` or `HclError` if the cluster would not take this job."""
        ...

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        """Register the job, create-only.

        Args:
            secrets: Environment of the task that must not be seen in the job, by name.

        Raises:
            JobExists: The id is taken; nothing changed.
            JobRefused: It will never be taken.
            ClusterUnreachable: Whether it was taken is unknown.
        """
        ...

    def stop(self, job_id: str) -> None:
        """End the job's task and free its board; no error if there is none. Returns at once."""
        ...

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        """States by id; an id that the cluster does not know is absent.

        Raises:
            ClusterUnreachable: Nothing is known.
        """
        ...

    def state_index(self) -> int | None:
        """Return the index of the cluster's state that `states` read last.

        Answers of one index say the same thing twice. None where the cluster lives in this process:
        a job that it does not know is gone.
        """
        ...

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        """Log of the task, ``stream`` is ``stdout`` or ``stderr``.

        Raises:
            NotFound: The job, or its log, is gone.
        """
        ...

    def kept_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        """Yield the content of a result file that a task left on its host.

        Raises:
            NotFound: The host keeps no such file (any more).
            ClusterUnreachable: The host does not answer.
        """
        ...

    def events(self, stop: threading.Event) -> Iterator[str]:
        """Yield ids of jobs to look at, until ``stop``; "" means: look at all of them, and boards.

        A hint, never the truth: may be lost, doubled or late.
        """
        ...

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        """Secrets that the job of this id was dispatched with; empty where it is not known.

        Raises:
            ClusterUnreachable: Nothing is known.
        """
        ...

    def strays(self) -> Mapping[str, str | None]:
        """Live jobs under our names that our database does not know, with the boards they hold.

        Most likely the database is an older backup, or another Edgeyard uses the same namespace.
        As of the last look, which never waits; jobs that hold no board have None.
        """
        ...

    def page_of(self, job_id: str) -> str | None:
        """Address of the cluster's own page on the job, for people; None where it has none."""
        ...

    def retire(self) -> None:
        """Another server leads now: end tasks that run within this one, which nobody awaits."""
        ...

    def close(self) -> None:
        """Release what is held; an embedded cluster ends its tasks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How busy a host was, and when that was measured.

    Attributes:
        at: By the server's clock.
        clock_offset_s: How far the host's clock is ahead of the server's; None: not measured.
    """

    load: HostLoad
    at: datetime
    clock_offset_s: float | None = None


class NodeSource(Protocol):
    """Tells what boards there are."""

    def hosts(self) -> tuple[Host, ...]:
        """All hosts with their boards, now.

        Raises:
            ClusterUnreachable: Nothing is known.
        """
        ...

    def loads(self) -> Mapping[str, LoadReport]:
        """The newest load of each host by its name, of those that told one; never waits."""
        ...


# --- files --------------------------------------------------------------------------------------


class FileWriter(Protocol):
    """One file on its way in; nothing is visible before `commit`."""

    def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            TooLarge: Over the limit; the file is dropped.
        """
        ...

    def commit(self) -> StoredFile:
        """Sync to disk and make it visible; the same content is stored once."""
        ...

    def abort(self) -> None:
        """Drop it; harmless after `commit`."""
        ...


class FileStore(Protocol):
    """Content-addressed files."""

    def writer(self, limit_bytes: int, *, urgent: bool = False) -> FileWriter:
        """Begin a file.

        Args:
            limit_bytes: It may not be longer.
            urgent: It may take the room that is reserved for results of what runs.
        """
        ...

    def path(self, sha256: str) -> Path:
        """Where the content lies, for reading.

        Raises:
            NotFound: No such content.
        """
        ...

    def kept(self, sha256: str) -> bool:
        """Return whether the content is stored now, where all servers find it.

        Raises:
            NotFound: It is no hash.
            Unavailable: The place where it is stored does not answer.
        """
        ...

    def free_bytes(self) -> int:
        """Room that is left."""
        ...

    def contents(self) -> Iterator[StoredFile]:
        """Content that nobody committed lately; for finding what nothing names."""
        ...

    def remove(self, sha256: str, *, named_at: datetime | None = None) -> bool:
        """Drop content that nothing names any more; True if it went.

        What was committed within the last minute stays, because it may be about to be named.

        Args:
            sha256: Of the content.
            named_at: When its last name was given: if nobody committed it again since, it goes
                at once.
        """
        ...

    def sweep_temporary(self) -> int:
        """Remove files that were begun and left; returns how many."""
        ...


class UrlFetcher(Protocol):
    """Brings what a user's URL names into the file store, within the address rules."""

    def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
        """Download it; bounded in time, however slowly the other side sends.

        Args:
            cancelled: Whether nobody wants the file any more; asked a few times a second.

        Raises:
            UrlRefused: The address rules forbid it, or a redirect of it.
            RunFailed: It could not be had: ``user_input`` where the user must act, ``timeout``
                where it took too long as a whole, or ``network``.
            TooLarge: Over the limit.
            Cancelled: As ``cancelled`` says.
        """
        ...


class WebhookPost(Protocol):
    """Sends a message to a user's URL, within the address rules."""

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        cancelled: Callable[[], bool],
    ) -> int:
        """Send it once; the status of the answer. Bounded in time; follows no redirect.

        Raises:
            UrlRefused: The address rules forbid it.
            RunFailed: There was no answer.
            Cancelled: As ``cancelled`` says, which is asked a few times a second.
        """
        ...


# --- the store ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFilter:
    """Which benchmarks to list; None: any.

    Attributes:
        with_deleted: Also those that their users deleted.
    """

    user_id: str | None = None
    status: frozenset[Status] | None = None
    family: str | None = None
    engine: str | None = None
    benchmark_type: str | None = None
    campaign_id: str | None = None
    target_uid: str | None = None
    model: str | None = None
    tag: str | None = None
    with_deleted: bool = True


class Benchmarks(Protocol):
    """Benchmarks and their descriptions."""

    def add(self, benchmark: Benchmark) -> None:
        """Store a new one.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def move_times(self, by_s: float) -> None:
        """Move the times of all that are not at their end, and of their attempts.

        The server's clock was set by that many seconds: their ages and durations stay right.
        """
        ...

    def bound_pending(self, max_pending: int) -> None:
        """Refuse the commit where it would leave more pending benchmarks than this.

        The commit raises QuotaExceeded.
        """
        ...

    def lock(self, benchmark_ids: Iterable[str]) -> None:
        """Let nobody else change these, or what belongs to them, until the end of the unit of work.

        `get` and `save` do so too: this is for those who are about to change several.
        """
        ...

    def get(self, benchmark_id: str) -> Benchmark:
        """Raises NotFound. In a unit of work that writes, nobody else changes it until the end."""
        ...

    def save(self, benchmark: Benchmark) -> Benchmark:
        """Replace it if its ``version`` is the stored one; returns it with the next version.

        What was submitted never changes: description, owner, campaign and time are not written;
        nor are files.

        Raises:
            Conflict: Somebody changed it meanwhile, or the move of its status is not allowed.
        """
        ...

    def save_all(self, changed: Sequence[Benchmark], before: Status) -> Sequence[Benchmark]:
        """As `save`, for benchmarks that all leave ``before`` for one other status.

        Raises:
            Conflict: As `save`, for one of them; keep none of it.
        """
        ...

    def save_waiting(self, changed: Sequence[Benchmark]) -> Sequence[Benchmark]:
        """As `save`, for what changed nothing but ``waiting``, ``priority`` and
        ``unavailable_since``.

        Raises:
            Conflict: As `save`, for one of them; keep none of it.
        """
        ...

    def save_files(self, benchmark: Benchmark) -> Benchmark:
        """As `save`, with its files."""
        ...

    def unchanged(self, seen: Sequence[Benchmark]) -> frozenset[str]:
        """Ids of those whose ``version`` is the stored one.

        For units of work that write: nobody else changes them until the end of it.
        """
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Id to version of every benchmark that is not at its end; cheap, for caches."""
        ...

    def waiting_after_losses(self) -> Sequence[str]:
        """Ids of pending ones whose last attempts were lost: ``lost_in_a_row`` is not 0."""
        ...

    def get_many(self, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        """Those that exist, in no order."""
        ...

    def delete(self, benchmark_id: str, at: datetime) -> None:
        """Leave it out of lists ``with_deleted=False``; retention removes it, as any other.

        Raises:
            NotFound: It was deleted before.
        """
        ...

    def deleted(self, benchmark_id: str) -> bool:
        """Return whether its user deleted it."""
        ...

    def page(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None, skip: int = 0
    ) -> tuple[Sequence[Benchmark], str | None]:
        """Newest first, and the cursor of the next page.

        Args:
            skip: Benchmarks that are left out first.

        Raises:
            InvalidInput: The cursor is none of ours.
        """
        ...

    def count(self, which: BenchmarkFilter) -> int:
        """How many match."""
        ...

    def counts_by_status(self) -> Mapping[Status, int]:
        """For metrics; kept cheap with many stored."""
        ...

    def counts_by_waiting_reason(self) -> Mapping[WaitingReason, int]:
        """Pending benchmarks by the reason that they wait for; for metrics."""
        ...


class Attempts(Protocol):
    """Dispatches."""

    def add_all(self, new: Sequence[Attempt]) -> Sequence[Attempt]:
        """Store new ones; returns those that could be.

        Left out is whose (benchmark, number) or job's id is taken, or whose benchmark has another
        one that is live.
        """
        ...

    def save(self, attempt: Attempt) -> Attempt:
        """As `Benchmarks.save`, with `ATTEMPT_MOVES`."""
        ...

    def save_all(self, changed: Sequence[Attempt]) -> Sequence[Attempt]:
        """As `save`, for attempts that are to be in one state; after a Conflict keep none of it."""
        ...

    def of(self, benchmark_id: str) -> Sequence[Attempt]:
        """In order of number."""
        ...

    def last_numbers(self, benchmark_ids: Sequence[str]) -> Mapping[str, int]:
        """Number of the last attempt of each of these benchmarks that had one."""
        ...

    def live(self, job_ids: Sequence[str] | None = None) -> Sequence[Attempt]:
        """All that have not ended, oldest first; those of these jobs only, where some are named."""
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Job id to version of every attempt that has not ended; cheap, for caches."""
        ...

    def holders(self) -> Mapping[str, str]:
        """Which benchmark holds each board that a live attempt is bound to."""
        ...

    def progress(self) -> Mapping[str, float]:
        """Job id to progress of every attempt that runs; no version changes with it."""
        ...

    def by_job_id(self, job_id: str) -> Attempt:
        """Raises NotFound."""
        ...

    def none_yet(self) -> bool:
        """Whether this store has never seen an attempt: it is new, or its data was lost."""
        ...

    def add_outcome(self, outcome: Outcome) -> None:
        """Keep it; idempotent by (benchmark, attempt). Numbered when the unit of work commits."""
        ...

    def replace_outcome(self, outcome: Outcome) -> None:
        """Keep what an attempt led to after all, in place of what was learned too early.

        The earlier one stays stored for cycles that were decided with it, and counts no longer.
        """
        ...

    def outcomes(self, *, since: datetime | None = None) -> Sequence[Outcome]:
        """Oldest first; those that ended at ``since`` are among them."""
        ...

    def outcomes_after(self, seq: int, *, newest: int) -> Sequence[Outcome]:
        """Those of higher numbers, in their order: the newest up to that many.

        None of a lower number is committed later.
        """
        ...

    def past_runs_after(self, seq: int, *, newest: int) -> PastRunColumns:
        """As `outcomes_after`, in columns, and only those whose board is known."""
        ...


class Files(Protocol):
    """Names of stored content: users' files, downloads, results."""

    def add_user_file(self, file: UserFile) -> UserFile:
        """Give content a name; the same content under its newest name again renews that one."""
        ...

    def user_file(self, user_id: str, name: str) -> UserFile:
        """Newest of that name. Raises NotFound."""
        ...

    def user_file_by_id(self, file_id: str) -> UserFile:
        """Raises NotFound."""
        ...

    def user_files(self, user_id: str | None, *, limit: int) -> Sequence[UserFile]:
        """Newest first; None: everybody's."""
        ...

    def remove_user_file(self, file_id: str) -> UserFile:
        """Forget the name; returns what it was.

        With the user's last name of a content, their ended benchmarks stop keeping it, too.
        Raises NotFound, and Conflict where an active schedule of the user runs with it.
        """
        ...

    def drop_files(self, benchmark_id: str, user_id: str) -> Sequence[str]:
        """Let an ended benchmark keep no files and results but its report; returns their hashes."""
        ...

    def add_grants(self, opened: Sequence[DownloadGrant]) -> None:
        """Open names under ``/download/`` for attempts. Raises Conflict: one is taken."""
        ...

    def grant(self, name: str) -> DownloadGrant:
        """Of a live attempt only. Raises NotFound."""
        ...

    def add_result(self, result: ResultFile) -> bool:
        """Replace one of the same name; False if the same content was there already."""
        ...

    def results(self, benchmark_id: str) -> Sequence[ResultFile]: ...

    def add_report(self, report: Report) -> None:
        """The first of an attempt stays; another content is a Conflict."""
        ...

    def amend_report(self, report: Report) -> None:
        """Replace what a stored report says; the file that arrived stays as it is."""
        ...

    def reports(self, benchmark_id: str) -> Sequence[Report]: ...

    def reports_of_many(self, benchmark_ids: Sequence[str]) -> Sequence[Report]:
        """All reports of all of them, in no order; for tables."""
        ...

    def referenced(self, sha256: str) -> bool:
        """Whether any name, grant, result, benchmark or schedule still uses the content."""
        ...


class Accounts(Protocol):
    """Users and tokens."""

    def add_user(self, user: User) -> None:
        """Raises Conflict: the id is taken."""
        ...

    def save_user(self, user: User) -> None:
        """Raises NotFound."""
        ...

    def user(self, user_id: str, *, to_change: bool = False) -> User:
        """Raises NotFound; one that is to be changed is changed by nobody else until the end."""
        ...

    def users(self) -> Sequence[User]: ...

    def add_token(self, token: ApiToken) -> None: ...

    def save_token(self, token: ApiToken) -> None:
        """Raises NotFound."""
        ...

    def token_by_hash(self, sha256: str) -> ApiToken:
        """Raises NotFound."""
        ...

    def tokens(self, user_id: str | None) -> Sequence[ApiToken]: ...

    def remove_expired_sessions(self, user_id: str, before: datetime) -> None:
        """Forget a user's tokens of sessions that expired or were revoked before that time."""
        ...

    def revoke_sessions(self, user_id: str, at: datetime, session_id: str | None = None) -> None:
        """Revoke a user's tokens of one session, or of all."""
        ...

    def put_login(self, login: Login) -> None:
        """Set a user's, in place of the one there was. Raises Conflict: another has the address."""
        ...

    def remove_login(self, user_id: str) -> None:
        """Raises NotFound."""
        ...

    def login(self, user_id: str) -> Login:
        """Raises NotFound."""
        ...

    def login_by_email(self, email: str) -> Login:
        """Raises NotFound."""
        ...


class Log(Protocol):
    """Events, decisions, and small facts that outlive a restart."""

    def append(self, event: Event) -> None:
        """Numbered when the unit of work commits."""
        ...

    def events(self, *, after: int, limit: int, benchmark_id: str | None = None) -> Sequence[Event]:
        """In order of ``seq``."""
        ...

    def last_seq(self) -> int: ...

    def remember(
        self, key: str, user_id: str, body_sha256: str, answer: Mapping[str, object]
    ) -> None:
        """Keep an answer under an idempotency key."""
        ...

    def remembered(self, key: str, user_id: str) -> tuple[str, Mapping[str, object]] | None:
        """Hash of the body and the answer, if the key was used (within a day)."""
        ...


class Cycles(Protocol):
    """Recorded decision cycles, and which of them explains a benchmark."""

    def keep(self, record: CycleRecord, *, shadow_of: int | None = None) -> int:
        """Store a cycle; returns its number. What cycles share is stored once."""
        ...

    def get(self, seq: int) -> CycleRecord:
        """Raises NotFound: there is none of that number (any more)."""
        ...

    def page(
        self,
        *,
        after: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
        shadows: bool = False,
    ) -> Sequence[CycleHead]:
        """Cycles of numbers above ``after``, decided within [since, until), lowest first."""
        ...

    def shadows(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[CycleHead]:
        """Cycles of shadow policies, decided within [since, until), newest first."""
        ...

    def newest(self, *, since: int, limit: int) -> Sequence[CycleHead]:
        """Cycles that were acted upon, of number ``since`` or higher, highest first."""
        ...

    def explain(self, benchmark_id: str, explained: ExplainingCycle) -> None:
        """Say which cycle explains a benchmark from now on."""
        ...

    def explained(self, benchmark_id: str) -> ExplainingCycle:
        """Raises NotFound: no cycle has looked at it yet."""
        ...

    def activate(self, activation: PolicyActivation) -> None:
        """Put a policy to work; takes the place of the one of its seat."""
        ...

    def deactivate(self, seat: PolicySeat) -> None:
        """Leave a seat to the configured policy; the shadow's to none."""
        ...

    def activated(self) -> Mapping[PolicySeat, PolicyActivation]:
        """The policies that operators put to work."""
        ...

    def keep_policy(self, policy: StoredPolicy, *, anew: bool = False) -> None:
        """Keep a policy's text by its name and version.

        Args:
            policy: The policy.
            anew: In place of another text, if there is one.

        Raises:
            Conflict: Another text is kept, and this is not to take its place.
        """
        ...

    def policies(self) -> Sequence[StoredPolicy]:
        """All that are kept, by name and version."""
        ...

    def override(self, benchmark_id: str, override: PolicyOverride | None) -> None:
        """Have one benchmark decided by a policy of its own; None: no longer."""
        ...

    def overrides(self) -> Mapping[str, PolicyOverride]:
        """Policies of their own, of benchmarks that wait for a board; by benchmark."""
        ...


class Lab(Protocol):
    """Campaigns, boards' overrides and schedules."""

    def add_campaign(self, campaign: Campaign) -> None: ...

    def campaign(self, campaign_id: str) -> Campaign:
        """Raises NotFound."""
        ...

    def campaigns_started(self, campaign_ids: Sequence[str]) -> frozenset[str]:
        """Those of which a member has left `pending`."""
        ...

    def set_override(self, override: BoardOverride) -> None: ...

    def overrides(self) -> Mapping[str, BoardOverride]:
        """By board."""
        ...

    def register(self, registration: Registration) -> None:
        """Raises Conflict: the name is taken."""
        ...

    def save_registration(self, registration: Registration) -> None:
        """Raises NotFound."""
        ...

    def unregister(self, kind: RegistrationKind, name: str) -> None:
        """Raises NotFound."""
        ...

    def registration(self, kind: RegistrationKind, name: str) -> Registration:
        """Raises NotFound."""
        ...

    def registrations(self, kind: RegistrationKind) -> Sequence[Registration]:
        """Everybody's, by name."""
        ...

    def add_schedule(self, schedule: CronSchedule) -> None: ...

    def save_schedule(self, schedule: CronSchedule) -> None:
        """Raises NotFound."""
        ...

    def schedule(self, schedule_id: str) -> CronSchedule:
        """Raises NotFound."""
        ...

    def schedules(self, user_id: str | None) -> Sequence[CronSchedule]:
        """Active and not, newest first."""
        ...

    def due_schedules(self, now: datetime) -> Sequence[CronSchedule]:
        """Active ones with ``next_fire`` not after ``now``."""
        ...


class Webhooks(Protocol):
    """Webhooks, and the deliveries that are still to be made."""

    def put(self, webhook: Webhook) -> None:
        """Set a user's, in place of the one there was."""
        ...

    def remove(self, user_id: str) -> None:
        """Drop a user's with all that was still to be told to it; no error if there is none."""
        ...

    def of(self, user_id: str) -> Webhook:
        """Raises NotFound."""
        ...

    def all(self) -> Sequence[Webhook]: ...

    def note_seen(self, seq: int) -> None:
        """All events up to this one have been looked at for all of them."""
        ...

    def note_trouble(self, user_id: str, trouble: str) -> None:
        """What was wrong with the last delivery; "" when nothing was."""
        ...

    def add_delivery(self, delivery: Delivery) -> None:
        """Idempotent by the event."""
        ...

    def due_users(self, now: datetime) -> Sequence[str]:
        """Users who have deliveries whose time has come."""
        ...

    def due(self, user_id: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        """A user's deliveries whose time has come, oldest event first."""
        ...

    def put_off(self, user_id: str, now: datetime, until: datetime, *, max_tries: int) -> int:
        """Count a failed try of all of a user's that are due, and keep them until then.

        Returns:
            How many were dropped, since they failed ``max_tries`` times.
        """
        ...

    def done(self, event_seq: int) -> None:
        """It was made."""
        ...

    def waiting(self, user_id: str) -> int:
        """How many are still to be made."""
        ...


class Credits(Protocol):
    """Balances of users, charges of attempts, rates of families.

    Only `edgeyard.scheduler.engine.charging` changes them.
    """

    def balance(self, user_id: str, *, to_change: bool = False) -> Balance:
        """Zero, without a bound, for a user who never had or used anything.

        Args:
            to_change: It is nobody else's to change until the end of the unit of work.
        """
        ...

    def balances(self) -> Sequence[Balance]:
        """Of all who ever had or used something."""
        ...

    def save_balance(self, balance: Balance) -> None:
        """Replace it; read it in the same unit of work before."""
        ...

    def running(self, user_id: str) -> int:
        """How many of the user's attempts have not ended."""
        ...

    def open_charges(self) -> Sequence[Charge]:
        """Of attempts that have not ended."""
        ...

    def charge(self, benchmark_id: str, attempt: int) -> Charge | None:
        """Of an attempt; None for one that was made before there were charges."""
        ...

    def add_charges(self, opened: Sequence[Charge]) -> None:
        """Raises Conflict: an attempt has one."""
        ...

    def settle_charge(self, charge: Charge) -> bool:
        """Keep what it did cost; False, and nothing changes, if it was settled before."""
        ...

    def charges(self, user_id: str, *, limit: int) -> Sequence[Charge]:
        """Newest first."""
        ...

    def rates(self) -> Mapping[str, float]:
        """Credits a board-second, by family; families that are not named cost 1."""
        ...

    def set_rate(self, family: str, rate: float) -> None:
        """From the next attempt on."""
        ...


class Reservations(Protocol):
    """Boards that are kept from the queue: leases and quarantine."""

    def add_lease(self, lease: Lease) -> None:
        """Raises Conflict: the board is kept for somebody in that time, or the id is taken."""
        ...

    def lease(self, lease_id: str) -> Lease:
        """Raises NotFound."""
        ...

    def end_lease(self, lease_id: str, at: datetime) -> Lease:
        """Let it end at ``at``, or never begin; one that has ended stays. Raises NotFound."""
        ...

    def leases(self, now: datetime) -> Sequence[Lease]:
        """Present and future ones, the earliest first."""
        ...

    def set_quarantine(self, quarantine: Quarantine) -> None:
        """The newest of a board counts."""
        ...

    def quarantines(self) -> Mapping[str, Quarantine]:
        """By board; lifted ones too."""
        ...


class Scoring(Protocol):
    """What is remembered of scorers, by name and version of the policy: ``default/1``."""

    def states(self, policy: str) -> Mapping[str, ScorerState]:
        """By scorer; those of which nothing is remembered are missing."""
        ...

    def policies(self) -> Sequence[str]:
        """All of which anything is remembered."""
        ...

    def save(self, state: ScorerState) -> None:
        """Replace what was remembered of the scorer."""
        ...

    def add_round(self, round_: RewardRound) -> None: ...

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        """The last ones, newest first."""
        ...

    def rate(self, ratings: Sequence[PlacementRating]) -> None:
        """Keep what was said of placements until they end."""
        ...

    def ended(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        """Rated placements that have ended, in the order of their ends."""
        ...

    def settle(self, ratings: Sequence[PlacementRating]) -> None:
        """Forget them: what was said was held against how they ended."""
        ...


class Leadership(Protocol):
    """The lease of the one server whose engine may write.

    Whether a lease is over is judged by the observer's own monotonic clock, from a count that the
    leader raises: no two machines' clocks are compared.
    """

    def current(self) -> LeaderLease:
        """Who leads, as the database has it."""
        ...

    def take(self, seen: LeaderLease, server_id: str, url: str, at: datetime) -> LeaderLease | None:
        """Begin the next epoch; None where the lease was renewed or taken since ``seen``.

        Waits for all transactions of the present epoch to end.
        """
        ...

    def renew(self, epoch: int, now: datetime) -> None:
        """Show that the leader of this epoch is alive, and its time. Raises LeadershipLost."""
        ...

    def release(self, epoch: int) -> None:
        """Let another server lead at once; no effect where one does already."""
        ...

    def hold(self, epoch: int) -> None:
        """Keep others from taking the lease until this transaction ends. Raises LeadershipLost."""
        ...


class UsageCounts(Protocol):
    """What users have stored and started, for quotas."""

    def lock(self, user_id: str) -> None:
        """Let nobody else add to what the user has until the end of the unit of work."""
        ...

    def stored_bytes(self, user_id: str) -> int:
        """Bytes of the user's content, with what this unit of work names."""
        ...

    def files(self, user_id: str) -> int: ...

    def pending(self, user_id: str) -> int: ...

    def live(self, user_id: str) -> int: ...

    def schedules(self, user_id: str) -> int: ...

    def tokens(self, user_id: str, now: datetime) -> int: ...

    def run(self, benchmark_id: str, attempt: int) -> tuple[int, int]:
        """Number and bytes of the files that an attempt uploaded."""
        ...

    def of(self, user_id: str, now: datetime) -> Usage:
        """All that a user has."""
        ...

    def all(self, now: datetime) -> Sequence[Usage]:
        """Of every account, in order of id."""
        ...


class UnitOfWork(Protocol):
    """One transaction; leaving its ``with`` block commits, an exception rolls back."""

    @property
    def benchmarks(self) -> Benchmarks: ...
    @property
    def attempts(self) -> Attempts: ...
    @property
    def files(self) -> Files: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def log(self) -> Log: ...
    @property
    def cycles(self) -> Cycles: ...
    @property
    def lab(self) -> Lab: ...
    @property
    def webhooks(self) -> Webhooks: ...
    @property
    def credits(self) -> Credits: ...
    @property
    def reservations(self) -> Reservations: ...
    @property
    def scoring(self) -> Scoring: ...
    @property
    def leadership(self) -> Leadership: ...
    @property
    def usage(self) -> UsageCounts: ...


_Result = TypeVar("_Result")


class Store(Protocol):
    """Opens transactions. Thread-safe; a unit of work belongs to one thread."""

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """For reading only."""
        ...

    @property
    def short_of_space(self) -> bool:
        """Whether only room for making room is left."""
        ...

    def transact(
        self, work: Callable[[UnitOfWork], _Result], *, makes_room: bool = False
    ) -> _Result:
        """Run a unit of work that reads and writes until it is committed; returns what it returns.

        Args:
            work: May be called several times, each time in a new transaction: it reads all that
                it decides about from the unit of work that it is given.
            makes_room: It lets room become free, or is an operator's: on a full disk it takes what
                is kept for that.

        Raises:
            Unavailable: The database is locked or gone, or others were first every time.
        """
        ...

    def write(self) -> AbstractContextManager[UnitOfWork]:
        """One try, for new rows that nobody else knows; all else is for `transact`.

        Holds the write lock from its start (SQLite: BEGIN IMMEDIATE).

        Raises:
            ConcurrentUpdate: Others changed what it had read.
            Unavailable: The database is locked or gone.
        """
        ...

    def fenced(self, epoch: int) -> Store:
        """The same store for the engine of the leader of this epoch.

        Its transactions that write raise `LeadershipLost` once another epoch has begun; none of
        them can commit after that.
        """
        ...

    def ping(self) -> None:
        """Raises Unavailable."""
        ...

    def note_progress(self, attempt: Attempt, progress: float) -> None:
        """Keep how far a running attempt is in its phase; written with others once a second.

        Whoever reads this store sees it at once. A crash may lose it.
        """
        ...

    def prune(
        self, limits: Limits, *, dry_run: bool = False
    ) -> Mapping[RetentionClass, PruneReport]:
        """Delete what is past its limit and not needed; returns what went of each class."""
        ...

    def close(self) -> None: ...
