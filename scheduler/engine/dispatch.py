"""From a prepared attempt to a registered job: one attempt at a time, create-only, crash-safe."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from edgeyard.errors import (
    ClusterUnreachable,
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
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    Failure,
    FailureCategory,
    FileRole,
)
from edgeyard.scheduler.model.records import DownloadGrant
from edgeyard.scheduler.ports import Clock, Cluster, Store, UnitOfWork

logger = logging.getLogger(__name__)

ODT_CONFIG_FILENAME = "odt_config.json"

_CRON_MARGIN = timedelta(seconds=2)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Bounds that every task gets unless its description says otherwise.

    Attributes:
        user_time_s: Longest run of one attempt.
        no_output_timeout_s: Longest silence of the engine's process.
    """

    user_time_s: float = 3600.0
    no_output_timeout_s: float = 900.0


Verify = Callable[[NomadJob, str], None]
"""Raises `HclError` unless the text means the job; the authority is the cluster's own parser."""


class Dispatcher:
    """Hands prepared attempts to the cluster. Thread-safe; an attempt is handled by one thread."""

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
        self._lock = threading.Lock()
        self._in_flight: set[str] = set()

    @property
    def in_flight(self) -> frozenset[str]:
        """Job ids that a thread of this process is dispatching: not for the reconciler."""
        with self._lock:
            return frozenset(self._in_flight)

    def dispatch(self, job_id: str) -> None:
        """Register the job of a prepared attempt; nothing is raised for what a job can do wrong."""
        with self._lock:
            if job_id in self._in_flight:
                return
            self._in_flight.add(job_id)
        try:
            self._dispatch(job_id)
        finally:
            with self._lock:
                self._in_flight.discard(job_id)

    def _dispatch(self, job_id: str) -> None:
        token = "eyu_" + secrets.token_urlsafe(32)
        try:
            job = self._committed(job_id, token)
        except (InvalidInput, NotFound, ValueError) as error:
            # Nothing that waiting would mend: a prepared attempt would come back for ever.
            self._refuse(job_id, error)
            return
        if job is None:
            return
        text = render(job)
        try:
            self._verify(job, text)
            failpoint("dispatch:before")
            self._cluster.dispatch(job_id, text, {UPLOAD_TOKEN: token})
            failpoint("dispatch:after")
        except JobExists:
            pass  # an earlier call took effect: create-only changed nothing
        except ClusterUnreachable as error:
            logger.warning(
                "dispatch with unknown outcome",
                extra={"event": "dispatch.unknown", "job_id": job_id, "reason": str(error)},
            )
            self._note(job_id, AttemptState.UNKNOWN)
            return
        except (JobRefused, HclError) as error:
            self._refuse(job_id, error)
            return
        self._note(job_id, AttemptState.QUEUED)
        logger.info("job dispatched", extra={"event": "dispatched", "job_id": job_id})

    def _committed(self, job_id: str, token: str) -> NomadJob | None:
        """Commit to the call, then give its job; None: there is nothing to dispatch any more."""
        with self._store.write() as uow:
            attempt = uow.attempts.by_job_id(job_id)
            benchmark = uow.benchmarks.get(attempt.benchmark_id)
            now = self._clock.now()
            if attempt.state is not AttemptState.PREPARED:
                return None
            if benchmark.status in TERMINAL:
                lifecycle.lost(uow, attempt, "ended before it was dispatched", now, counts=False)
                return None
            job = self._job(uow, benchmark, attempt)
            lifecycle.to_state(
                uow,
                replace(
                    attempt,
                    hcl=render(job, masked=True),
                    upload_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                ),
                AttemptState.DISPATCHING,
                now,
            )
            return job

    def _refuse(self, job_id: str, error: Exception) -> None:
        """End an attempt whose job no cluster will ever take."""
        logger.error(
            "job refused", extra={"event": "dispatch.refused", "job_id": job_id, "why": str(error)}
        )
        failure = Failure(category=FailureCategory.UNKNOWN, sentence=str(error))
        with self._store.write() as uow:
            lifecycle.refused(uow, uow.attempts.by_job_id(job_id), failure, self._clock.now())

    def _note(self, job_id: str, state: AttemptState) -> None:
        """Say what became of the call, unless the task itself has told more already."""
        with self._store.write() as uow:
            attempt = uow.attempts.by_job_id(job_id)
            if attempt.state in (AttemptState.DISPATCHING, AttemptState.UNKNOWN):
                lifecycle.to_state(uow, attempt, state, self._clock.now())

    def _job(self, uow: UnitOfWork, benchmark: Benchmark, attempt: Attempt) -> NomadJob:
        """The job of an attempt, its downloads granted."""
        spec = json.dumps(
            spec_of(benchmark, attempt, self._settings, self._limits), allow_nan=False
        ).encode()
        files = [self._granted(uow, attempt, file) for file in benchmark.files]
        config = benchmark.description.odt_config
        if isinstance(config, Mapping):
            content = json.dumps(dict(config)).encode()
            files.append(
                self._inline(uow, attempt, FileRole.ODT_CONFIG, ODT_CONFIG_FILENAME, content)
            )
        files.append(self._inline(uow, attempt, None, SPEC_FILENAME, spec))
        start = benchmark.description.start_time
        # A cron that is past by the time it is registered never fires.
        early = start is not None and start > self._clock.now() + _CRON_MARGIN
        request = JobRequest.of(benchmark, attempt, files, start_at=start if early else None)
        return build_job(request, self._settings)

    def _granted(self, uow: UnitOfWork, attempt: Attempt, file: BenchmarkFile) -> JobFile:
        if file.sha256 is None:
            raise NotFound("fetched file", file.name)
        grant = DownloadGrant(
            name=_unguessable(file.name),
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            filename=file.name,
            sha256=file.sha256,
            size_bytes=file.size_bytes or 0,
        )
        uow.files.add_grant(grant)
        return JobFile(role=file.role, filename=file.name, sha256=file.sha256, download=grant.name)

    def _inline(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        role: FileRole | None,
        filename: str,
        content: bytes,
    ) -> JobFile:
        grant = DownloadGrant(
            name=_unguessable(filename),
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            filename=filename,
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            content=content,
        )
        uow.files.add_grant(grant)
        return JobFile(role=role, filename=filename, sha256=grant.sha256, download=grant.name)


def spec_of(
    benchmark: Benchmark, attempt: Attempt, settings: RenderSettings, limits: TaskLimits
) -> dict[str, object]:
    """``spec.json``: what the runner needs beyond the seed's eleven variables."""
    asked = benchmark.description
    config = asked.odt_config

    def told(file: BenchmarkFile) -> dict[str, object]:
        return {"filename": file.name, "sha256": file.sha256, "size_bytes": file.size_bytes}

    by_role = {
        role: [told(file) for file in benchmark.files if file.role is role] for role in FileRole
    }
    short = attempt.job_id.removeprefix("benchmark-")
    return {
        "version": 1,
        "benchmark_id": benchmark.benchmark_id,
        "attempt": attempt.number,
        "job_id": attempt.job_id,
        "engine": asked.runtime,
        "benchmark_type": asked.benchmark_type.value,
        "model": by_role[FileRole.MODEL][0],
        "datasets": by_role[FileRole.DATASET],
        "odt_config": dict(config) if isinstance(config, Mapping) else None,
        "nb_inference": asked.nb_inference,
        "precision": asked.precision,
        "input": {name: dict(value) for name, value in asked.input.items()},
        "parameters": dict(asked.parameters),
        "user_time_s": asked.user_time_s or limits.user_time_s,
        "no_output_timeout_s": limits.no_output_timeout_s,
        "upload_url": f"{settings.public_url}/upload/{short}/",
        "progress_url": f"{settings.public_url}/v1/runs/{short}/progress",
    }


def _unguessable(filename: str) -> str:
    return f"{secrets.token_urlsafe(24)}-{_UNSAFE.sub('_', filename)[-80:]}"
