"""From a prepared attempt to a registered job: create-only, crash-safe."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial

from edgeyard.errors import (
    ClusterUnreachable,
    EdgeyardError,
    HclError,
    InvalidInput,
    JobExists,
    JobRefused,
    NotFound,
)
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.hcl.build import (
    SPEC_FILENAME,
    UPLOAD_TOKEN,
    JobFile,
    JobRequest,
    RenderSettings,
    build_job,
)
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.render import has_login, render
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    Failure,
    FailureCategory,
    FileRole,
    model_of,
)
from edgeyard.scheduler.model.files import DownloadGrant
from edgeyard.scheduler.model.recurring import ScheduleGrant
from edgeyard.scheduler.model.run_bounds import (
    DEFAULT_MAX_RUN_S,
    DEFAULT_MAX_SILENCE_S,
    DEFAULT_MAX_UPLOAD_S,
)
from edgeyard.scheduler.ports import Clock, Cluster, Store, UnitOfWork

logger = logging.getLogger(__name__)

ODT_CONFIG_FILENAME = "odt_config.json"

MAX_COMMIT_DELAY_S = 0.25
"""The outcome of a call is committed no later, however long others take."""

MAX_CALLS_IN_FLIGHT = 64
"""Maximum of calls that are begun and not committed: a crash repeats all of them."""

_CRON_MARGIN = timedelta(seconds=2)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Bounds that every task gets unless its description says otherwise.

    Attributes:
        user_time_s: Longest run of one attempt.
        no_output_timeout_s: Longest silence of the engine's process.
        upload_timeout_s: How long a task tries to upload its result; then it stays on the host.
    """

    user_time_s: float = DEFAULT_MAX_RUN_S
    no_output_timeout_s: float = DEFAULT_MAX_SILENCE_S
    upload_timeout_s: float = DEFAULT_MAX_UPLOAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """An attempt whose job is to be registered.

    Attributes:
        attempt: As it is committed.
        token: Of its uploads; only its hash is kept.
        verified: Raises what came of the cluster's reading of the text.
    """

    attempt: Attempt
    benchmark: Benchmark
    job: NomadJob = field(repr=False)
    text: str = field(repr=False)
    token: str = field(repr=False)
    verified: Future[None]

    @classmethod
    def of(
        cls,
        job: NomadJob,
        benchmark: Benchmark,
        attempt: Attempt,
        verify: Callable[[NomadJob, str], Future[None]],
    ) -> _Call:
        """Return it with a token of its own."""
        token = "eyu_" + secrets.token_urlsafe(32)
        text = render(job)
        shown = render(job, masked=True) if has_login(job) else text
        return cls(
            attempt=replace(
                attempt,
                hcl=shown,
                upload_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
            ),
            benchmark=benchmark,
            job=job,
            text=text,
            token=token,
            verified=verify(job, text),
        )


@dataclass(frozen=True, slots=True)
class _CallResult:
    """A call and its outcome: the attempt's state, or the error that refused it; or unknown."""

    call: _Call
    outcome: AttemptState | EdgeyardError | None
    evaluation_id: str | None = None


Verify = Callable[[NomadJob, str], None]
"""Raises `HclError` unless the text means the job; the authority is the cluster's own parser."""


class Dispatcher:
    """Hands prepared attempts to the cluster.

    One thread takes turns: it commits to the calls before they are made and stores the outcomes of
    them, many in one commit; the calls, which wait for the cluster, are made by an executor.
    """

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        settings: RenderSettings,
        limits: TaskLimits,
        clock: Clock,
        verify: Verify = check_round_trip,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._verify = verify
        self._news = threading.Condition()  # guards all below
        self._in_flight: set[str] = set()
        self._wanted: deque[str] = deque()
        self._calling = 0
        self._called: list[_CallResult] = []

    @property
    def in_flight(self) -> frozenset[str]:
        """Job ids that this process is dispatching: not for the reconciler. Any thread."""
        with self._news:
            return frozenset(self._in_flight)

    def put(self, *job_ids: str) -> None:
        """Have the jobs of prepared attempts registered. Any thread."""
        with self._news:
            new = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in self._in_flight]
            self._in_flight.update(new)
            self._wanted.extend(new)
            self._news.notify_all()

    def await_done(self, timeout_s: float) -> None:
        """Wait until the outcomes of all calls are stored. Any thread except that of `turn`."""
        with self._news:
            self._news.wait_for(lambda: not self._in_flight, timeout_s)

    def turn(self, calls: Executor, timeout_s: float = MAX_COMMIT_DELAY_S) -> None:
        """Store the outcomes of calls and begin others; raise nothing for what a job does wrong.

        Args:
            calls: Makes them; this thread does not wait for it.
            timeout_s: Longest wait for something to do. The outcome of a call while others are
                under way is noted no later.

        Raises:
            Unavailable: The database does not answer; the reconciler will find what was in hand.
        """
        with self._news:
            self._news.wait_for(self._due, timeout_s)
        self.note()
        with self._news:
            room = MAX_CALLS_IN_FLIGHT - self._calling if self._has_room() else 0
            wanted = [self._wanted.popleft() for _ in range(min(room, len(self._wanted)))]
        begun: Sequence[_Call] = ()
        try:
            begun = self._begun(wanted, calls)
        finally:
            self._let_go(set(wanted) - {call.attempt.job_id for call in begun})
        with self._news:
            self._calling += len(begun)
        for call in begun:
            calls.submit(self._make, call)

    def note(self) -> None:
        """Store the outcomes of calls that have been made.

        Raises:
            Unavailable: See `turn`.
        """
        with self._news:
            called, self._called = self._called, []
        try:
            self._note(called)
        finally:
            self._let_go(each.call.attempt.job_id for each in called)

    def _due(self) -> bool:
        return bool((self._called and not self._calling) or (self._wanted and self._has_room()))

    def _has_room(self) -> bool:
        # Only for many at once: what is begun together is committed together.
        return self._calling <= MAX_CALLS_IN_FLIGHT // 2

    def _let_go(self, job_ids: Iterable[str]) -> None:
        with self._news:
            self._in_flight.difference_update(job_ids)
            self._news.notify_all()

    def _begun(self, job_ids: Sequence[str], executor: Executor) -> Sequence[_Call]:
        if not job_ids:
            return ()
        calls, wrong, ended = self._committed(job_ids, executor)
        for job_id in ended:
            self._give_up(job_id)
        for job_id, error in wrong.items():
            self._refuse(job_id, error)
        return calls

    def _make(self, call: _Call) -> None:
        """The outermost of its thread."""
        outcome: AttemptState | EdgeyardError | None = None
        evaluation_id = None
        try:
            outcome, evaluation_id = self._outcome(call)
        except Exception:
            logger.exception("dispatch broke", extra={"event": "dispatch.broke"})
        with self._news:
            self._calling -= 1
            self._called.append(_CallResult(call, outcome, evaluation_id))
            self._news.notify_all()

    def _outcome(self, call: _Call) -> tuple[AttemptState | EdgeyardError, str | None]:
        """Return the outcome of an attempt's call, and the id of its evaluation.

        An error: it was refused.
        """
        job_id = call.attempt.job_id
        evaluation_id = None
        try:
            call.verified.result()
            failpoint("dispatch:before")
            evaluation_id = self._cluster.dispatch(job_id, call.text, {UPLOAD_TOKEN: call.token})
            failpoint("dispatch:after")
        except JobExists:
            # An earlier call took effect: create-only changed nothing.
            try:
                self._take_over(call)
            except ClusterUnreachable:
                return AttemptState.UNKNOWN, None
        except ClusterUnreachable as error:
            logger.warning(
                "dispatch with unknown outcome",
                extra={"event": "dispatch.unknown", "job_id": job_id, "reason": str(error)},
            )
            return AttemptState.UNKNOWN, None
        except (JobRefused, HclError) as error:
            return error, None
        logger.info("job dispatched", extra={"event": "dispatched", "job_id": job_id})
        return AttemptState.QUEUED, evaluation_id

    def _take_over(self, call: _Call) -> None:
        """Accept the token of a job that was there already, instead of the one that was made now.

        The database may not know it: it is an older backup, or the earlier call's process died.
        """
        token = self._cluster.secrets_of(call.attempt.job_id).get(UPLOAD_TOKEN)
        if token is None or token == call.token:
            return
        digest = hashlib.sha256(token.encode()).hexdigest()

        def keep(uow: UnitOfWork) -> None:
            current = uow.attempts.by_job_id(call.attempt.job_id)
            if current.state is not AttemptState.ENDED:
                uow.attempts.save(replace(current, upload_token_sha256=digest))

        self._store.transact(keep)

    def _committed(
        self, job_ids: Sequence[str], executor: Executor
    ) -> tuple[list[_Call], dict[str, Exception], list[str]]:
        """Commit to the calls; and the jobs that can't be made, which no waiting would mend.

        Third come the jobs of attempts whose benchmark has ended.

        Texts are read by the cluster meanwhile, which changes nothing there.
        """

        def verify(job: NomadJob, text: str) -> Future[None]:
            return executor.submit(self._verify, job, text)

        def work(uow: UnitOfWork) -> tuple[list[_Call], dict[str, Exception], list[str]]:
            calls: list[_Call] = []
            ended: list[str] = []
            wrong: dict[str, Exception] = {}
            now = self._clock.now()
            attempts = [
                attempt
                for attempt in uow.attempts.live(job_ids)
                if attempt.state is AttemptState.PREPARED
            ]
            owners = uow.benchmarks.get_many([attempt.benchmark_id for attempt in attempts])
            owner_by_id = {benchmark.benchmark_id: benchmark for benchmark in owners}
            opened: list[DownloadGrant] = []
            for attempt in attempts:
                benchmark = owner_by_id[attempt.benchmark_id]
                if benchmark.status in TERMINAL:
                    ended.append(attempt.job_id)
                    continue
                try:
                    job, grants = self._job(benchmark, attempt)
                    call = _Call.of(job, benchmark, attempt, verify)
                except (HclError, InvalidInput, NotFound, ValueError) as error:
                    wrong[attempt.job_id] = error
                    continue
                opened += grants
                calls.append(call)
            uow.files.add_grants(opened)
            moved = [(call.attempt, call.benchmark) for call in calls]
            sent = lifecycle.all_to_state(uow, moved, AttemptState.DISPATCHING, now)
            calls = [replace(c, attempt=attempt) for c, attempt in zip(calls, sent, strict=True)]
            return calls, wrong, ended

        return self._store.transact(work)

    def _give_up(self, job_id: str) -> None:
        """End an attempt whose benchmark ended before the cluster was called.

        An attempt that an older backup did not know has a job there nevertheless.
        """
        try:
            self._cluster.stop(job_id)
        except ClusterUnreachable as error:  # the repair does it
            logger.info(
                "a job could not be stopped",
                extra={"event": "dispatch.not_stopped", "job_id": job_id, "reason": str(error)},
            )
            return

        def end(uow: UnitOfWork) -> None:
            for attempt in uow.attempts.live([job_id]):
                if attempt.state is AttemptState.PREPARED:
                    why = "ended before it was dispatched"
                    lifecycle.lost(uow, attempt, why, self._clock.now(), counts=False)

        self._store.transact(end)

    def _refuse(self, job_id: str, error: Exception) -> None:
        """End an attempt whose job the cluster does not take; again later if that may pass."""
        logger.error(
            "job refused", extra={"event": "dispatch.refused", "job_id": job_id, "why": str(error)}
        )
        passing = isinstance(error, JobRefused) and not error.lasting
        category = FailureCategory.CLUSTER if passing else FailureCategory.REJECTED
        failure = Failure(category=category, sentence=str(error))

        def refuse(uow: UnitOfWork) -> None:
            attempt = uow.attempts.by_job_id(job_id)
            if attempt.state is not AttemptState.ENDED:
                lifecycle.refused(uow, attempt, failure, self._clock.now())

        self._store.transact(refuse)

    def _note(self, called: Sequence[_CallResult]) -> None:
        """Store the outcomes of calls, unless their tasks have reported more already."""
        moved: list[tuple[_Call, AttemptState, str | None]] = []
        for each in called:
            if isinstance(each.outcome, AttemptState):
                moved.append((each.call, each.outcome, each.evaluation_id))
            elif each.outcome is not None:
                self._refuse(each.call.attempt.job_id, each.outcome)
        if not moved:
            return
        self._store.transact(partial(self._note_moved, moved))

    def _note_moved(
        self, moved: Sequence[tuple[_Call, AttemptState, str | None]], uow: UnitOfWork
    ) -> None:
        now = self._clock.now()
        live = uow.attempts.live([call.attempt.job_id for call, _, _ in moved])
        current_by_job_id = {
            attempt.job_id: attempt
            for attempt in live
            if attempt.state in (AttemptState.DISPATCHING, AttemptState.UNKNOWN)
        }
        for state in {state for _, state, _ in moved}:
            same = [
                (
                    replace(current_by_job_id[call.attempt.job_id], evaluation_id=evaluation_id),
                    call.benchmark,
                )
                for call, it, evaluation_id in moved
                if it is state and call.attempt.job_id in current_by_job_id
            ]
            lifecycle.all_to_state(uow, same, state, now)

    def _job(
        self, benchmark: Benchmark, attempt: Attempt
    ) -> tuple[NomadJob, Sequence[DownloadGrant]]:
        """Return the job of an attempt, and the downloads that it needs."""
        spec = json.dumps(
            spec_of(benchmark, attempt, self._settings.public_url, self._limits), allow_nan=False
        ).encode()
        opened = [(file.role, _grant(attempt, file)) for file in benchmark.files]
        config = benchmark.description.odt_config
        if isinstance(config, Mapping):
            content = json.dumps(dict(config)).encode()
            opened.append((FileRole.ODT_CONFIG, _inline(attempt, ODT_CONFIG_FILENAME, content)))
        files = [job_file(role, grant) for role, grant in opened]
        inline = _inline(attempt, SPEC_FILENAME, spec)
        files.append(job_file(None, inline))
        start = benchmark.description.start_time
        # A cron that is past by the time it is registered never fires.
        early = start is not None and start > self._clock.now() + _CRON_MARGIN
        request = JobRequest.of(benchmark, attempt, files, start_at=start if early else None)
        return build_job(request, self._settings), [*(grant for _, grant in opened), inline]


def spec_of(
    benchmark: Benchmark, attempt: Attempt, public_url: str, limits: TaskLimits
) -> dict[str, object]:
    """Return ``spec.json``: what the runner needs beyond the platform's eleven variables."""
    description = benchmark.description
    config = description.odt_config

    def file_data(file: BenchmarkFile) -> dict[str, object]:
        return {"filename": file.name, "sha256": file.sha256, "size_bytes": file.size_bytes}

    model = model_of(benchmark.files)
    datasets = [file for file in benchmark.files if file.role is FileRole.DATASET]
    short = attempt.job_id.removeprefix("benchmark-")
    if "/" in short:  # Nomad named it; the benchmark's id is as good with the attempt's token
        short = benchmark.benchmark_id
    return {
        "version": 1,
        "benchmark_id": benchmark.benchmark_id,
        "attempt": attempt.number,
        "job_id": attempt.job_id,
        "engine": description.runtime,
        "benchmark_type": description.benchmark_type.value,
        "model": None if model is None else file_data(model),
        "datasets": [file_data(file) for file in datasets],
        "odt_config": dict(config) if isinstance(config, Mapping) else None,
        "nb_inference": description.nb_inference,
        "precision": description.precision,
        "soak_s": description.soak_s,
        "soak_window_s": description.soak_window_s,
        "concurrency": list(description.concurrency),
        "load": None if description.load_rules is None else asdict(description.load_rules),
        "input": {name: dict(value) for name, value in description.input.items()},
        "parameters": dict(description.parameters),
        "keep_outputs": description.keep_outputs,
        "profile_layers": description.profile_layers,
        "user_time_s": attempt.time_limit_s or description.user_time_s or limits.user_time_s,
        "no_output_timeout_s": limits.no_output_timeout_s,
        "upload_timeout_s": limits.upload_timeout_s,
        "upload_url": f"{public_url}/upload/{benchmark.benchmark_id}/",
        "progress_url": f"{public_url}/v1/runs/{short}/progress",
    }


def _grant(attempt: Attempt, file: BenchmarkFile) -> DownloadGrant:
    if file.sha256 is None:
        raise NotFound("fetched file", file.name)
    return DownloadGrant(
        name=unguessable(file.name),
        benchmark_id=attempt.benchmark_id,
        attempt=attempt.number,
        filename=file.name,
        sha256=file.sha256,
        size_bytes=file.size_bytes or 0,
    )


def _inline(attempt: Attempt, filename: str, content: bytes) -> DownloadGrant:
    return DownloadGrant(
        name=unguessable(filename),
        benchmark_id=attempt.benchmark_id,
        attempt=attempt.number,
        filename=filename,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        content=content,
    )


def job_file(role: FileRole | None, grant: DownloadGrant | ScheduleGrant) -> JobFile:
    """Return a file of a job that its task downloads by this grant."""
    return JobFile(role=role, filename=grant.filename, sha256=grant.sha256, download=grant.name)


def unguessable(filename: str) -> str:
    """Return a name for a download that ends with that of its file."""
    return f"{secrets.token_urlsafe(24)}-{_UNSAFE.sub('_', filename)[-80:]}"
