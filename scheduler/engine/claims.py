"""Results that a task could not upload are fetched from the host where they lie."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgeyard.devices.runner.result import LOG, REPORT, SCHEMA
from edgeyard.errors import (
    ClusterUnreachable,
    Conflict,
    EdgeyardError,
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
)
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.engine.contents import SeenContent, see_content
from edgeyard.scheduler.engine.reports import check_report
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import TERMINAL, Benchmark
from edgeyard.scheduler.model.files import ResultFile, StoredFile
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.ports import Clock, Cluster, FileStore, Store, UnitOfWork

logger = logging.getLogger(__name__)

MAX_REPORT_BYTES = 16 * 2**20
MAX_KEPT_FILES = 64

DEFAULT_TIMEOUT_S = 300.0

RETRY_S = 5.0
"""Interval between tries to fetch a result whose host does not answer."""


@dataclass(slots=True)
class _Claim:
    """A result that is wanted from a host.

    Attributes:
        host: Whose it is: hosts take turns.
        asked_s: Monotonic time at which it was asked for.
        due_s: Monotonic time from which on it is tried.
        failing_since_s: Monotonic time at which the first try began that its host broke off or did
            not answer; None before.
        silent_since_s: Monotonic time of the last that its host sent; of that beginning, where it
            sent nothing.
        running: Whether a thread fetches it.
        ended: Whether there is nothing more to wait for.
        reason: Why the last try did not succeed.
    """

    attempt: Attempt
    host: str
    asked_s: float
    due_s: float
    failing_since_s: float | None = None
    silent_since_s: float = 0.0
    running: bool = False
    ended: bool = False
    reason: str = ""


class Claims:
    """Fetches results that runners left on their hosts. Thread-safe.

    One host is asked for one result at a time, and those that were asked last come last: a host
    that is slow takes one thread, for `timeout_s` at most.
    """

    def __init__(
        self,
        store: Store,
        files: FileStore,
        cluster: Cluster,
        clock: Clock,
        limit_bytes: Callable[[], int],
        *,
        read_json: Callable[[bytes], object],
        grace_s: float,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        defaults: Callable[[], Quotas] = Quotas,
        host_of: Callable[[str], str] = lambda target_uid: target_uid,
    ) -> None:
        """Nothing is fetched before it is asked for.

        Args:
            store: Takes the results.
            files: Take their content.
            cluster: Whose hosts keep them.
            clock: Its monotonic time counts.
            limit_bytes: Gives the largest result file that is taken; all of one attempt have twice
                as much.
            read_json: Reads a report as strictly as one that is uploaded; raises InvalidInput.
            grace_s: How long a host that does not answer is asked again.
            timeout_s: Bound on the time of one try, all its files together.
            defaults: Gives the quotas of users whose accounts have none of their own.
            host_of: Name of the host of a board.
        """
        self._store = store
        self._files = files
        self._cluster = cluster
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._read_json = read_json
        self._defaults = defaults
        self._grace_s = grace_s
        self._timeout_s = timeout_s
        self._host_of = host_of
        self._changed = threading.Condition()
        self._claims: dict[str, _Claim] = {}  # by job id, in the order in which they are tried

    def ask(self, attempt: Attempt) -> bool:
        """Have the result of a live attempt fetched.

        Returns:
            Whether to wait for it; False once it is recorded, or where there is none to be had.
        """
        now_s = self._clock.monotonic_s()
        with self._changed:
            if attempt.job_id not in self._claims:
                host = self._host_of(attempt.target_uid or "")
                self._claims[attempt.job_id] = _Claim(attempt, host, now_s, now_s)
                self._changed.notify_all()
        return self.waits(attempt.job_id)

    def waits(self, job_id: str) -> bool:
        """Return whether the result of a job still has to be fetched."""
        with self._changed:
            claim = self._claims.get(job_id)
            return claim is not None and not claim.ended

    def is_due(self) -> bool:
        """Return whether there is a result to be fetched now."""
        with self._changed:
            return self._next() is not None

    def waiting(self) -> Mapping[str, tuple[float, str]]:
        """Return for how many seconds results have been awaited, and why, by job id."""
        now_s = self._clock.monotonic_s()
        with self._changed:
            return {
                job_id: (
                    now_s - claim.asked_s,
                    claim.reason
                    or ("it is being fetched" if claim.running else f"{claim.host} is busy"),
                )
                for job_id, claim in self._claims.items()
                if not claim.ended
            }

    def retain(self, job_ids: Container[str]) -> None:
        """Forget all other jobs, but those that are being fetched just now."""
        with self._changed:
            self._claims = {
                job_id: claim
                for job_id, claim in self._claims.items()
                if claim.running or job_id in job_ids
            }

    def turn(self, wait_s: float = 0.0, stopped: Callable[[], bool] = lambda: False) -> str | None:
        """Fetch one result.

        Args:
            wait_s: For one to be asked for.
            stopped: Whether to give up between two blocks.

        Returns:
            Id of a job whose result need not be waited for any more; None where there is none.
        """
        with self._changed:
            claim = self._changed.wait_for(self._next, wait_s)
            if claim is None or stopped():
                return None
            job_id = claim.attempt.job_id
            # Those of its host come last, itself at the very end.
            for each in [job for job, other in self._claims.items() if other.host == claim.host]:
                self._claims[each] = self._claims.pop(each)
            self._claims[job_id] = self._claims.pop(job_id)
            claim.running = True
        started_s = heard_s = self._clock.monotonic_s()

        def hear() -> None:
            nonlocal heard_s
            heard_s = self._clock.monotonic_s()

        reason: str | None = "it was not fetched"
        silent = True  # also after an unexpected error
        try:
            self._claim(claim.attempt, started_s + self._timeout_s, stopped, hear)
            reason = None
        except ClusterUnreachable as error:
            reason = str(error)
        except EdgeyardError as error:  # no fault of the host's: a full disk, or the database
            reason, silent = str(error), False
        finally:
            with self._changed:
                now_s = self._clock.monotonic_s()
                claim.running = False
                if silent and (claim.failing_since_s is None or heard_s > started_s):
                    claim.failing_since_s = claim.failing_since_s or started_s
                    claim.silent_since_s = heard_s
                claim.due_s = now_s + RETRY_S
                claim.reason = reason or ""
                given_up = silent and self._is_given_up(claim, now_s)
                claim.ended = reason is None or given_up
                self._changed.notify_all()
        if reason is not None:
            logger.info(
                "a result could not be claimed",
                extra={
                    "event": "result.absent" if claim.ended else "result.waits",
                    "job_id": job_id,
                    "reason": reason,
                },
            )
        return job_id if claim.ended else None

    def _is_given_up(self, claim: _Claim, now_s: float) -> bool:
        """Return whether a host is silent for too long, or breaks off again and again."""
        failing_s = now_s - (claim.failing_since_s or now_s)
        silent_s = now_s - claim.silent_since_s
        return silent_s > self._grace_s or failing_s > max(self._timeout_s, self._grace_s)

    def _next(self) -> _Claim | None:
        """Return the first that is due, of a host that is not being asked already."""
        now_s = self._clock.monotonic_s()
        busy = {claim.host for claim in self._claims.values() if claim.running}
        for claim in self._claims.values():
            if not (claim.running or claim.ended or claim.host in busy) and claim.due_s <= now_s:
                return claim
        return None

    def _claim(
        self,
        attempt: Attempt,
        until_s: float,
        stopped: Callable[[], bool],
        hear: Callable[[], object],
    ) -> None:
        """Fetch a result and record it; what is no whole result of the attempt is left.

        Raises:
            ClusterUnreachable: The host does not answer in time; a later try may succeed.
            Unavailable: The server stops.
        """
        limit_bytes = self._limit_bytes()
        try:
            with self._store.read() as uow:
                benchmark = uow.benchmarks.get(attempt.benchmark_id)
            fetch = _Fetch(
                attempt=attempt,
                benchmark=benchmark,
                cluster=self._cluster,
                files=self._files,
                clock=self._clock,
                read_json=self._read_json,
                limit_bytes=limit_bytes,
                left_bytes=2 * limit_bytes,
                until_s=until_s,
                stopped=stopped,
                hear=hear,
            )
            report = fetch.report()
            stored = {name: fetch.file(name, sha) for name, sha in _listed(report)}
            with suppress(NotFound):
                stored[LOG] = fetch.file(LOG, None)
        except (NotFound, TooLarge, InvalidInput, ValueError, RecursionError) as error:
            logger.info(
                "no result could be claimed",
                extra={"event": "result.absent", "job_id": attempt.job_id, "reason": str(error)},
            )
            return
        names = {file.sha256: name for name, file in stored.items()}
        seen = see_content(self._store, self._files, names)
        try:
            try:
                self._store.transact(lambda uow: self._record(uow, attempt, report, stored, seen))
            except TooLarge as error:
                logger.info(
                    "the files of a claimed result are too large; its report is kept alone",
                    extra={"event": "result.files", "job_id": attempt.job_id, "reason": str(error)},
                )
                alone = {name: file for name, file in stored.items() if name == REPORT}
                self._store.transact(lambda uow: self._record(uow, attempt, report, alone, seen))
        except Conflict:
            return  # the task itself, or another attempt, was quicker
        logger.info(
            "a result was claimed from its host",
            extra={
                "event": "result.claimed",
                "benchmark_id": attempt.benchmark_id,
                "job_id": attempt.job_id,
            },
        )

    def _record(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        report: Mapping[str, object],
        stored: Mapping[str, StoredFile],
        seen: SeenContent,
    ) -> None:
        now = self._clock.now()
        current = uow.attempts.by_job_id(attempt.job_id)
        ended = uow.benchmarks.get(current.benchmark_id).status in TERMINAL
        if ended or current.state is AttemptState.ENDED or current.result_at is not None:
            raise Conflict(f"attempt {current.number} of {current.benchmark_id} needs no result")
        for name, file in stored.items():
            uow.files.add_result(
                ResultFile(
                    benchmark_id=current.benchmark_id,
                    attempt=current.number,
                    name=name,
                    sha256=file.sha256,
                    size_bytes=file.size_bytes,
                    received_at=now,
                )
            )
        seen.check(uow)
        if any(name != REPORT for name in stored):
            owner = uow.benchmarks.get(current.benchmark_id).user_id
            allowed = quotas.of_account(uow, owner, self._defaults())
            quotas.check_run(uow, current.benchmark_id, current.number, owner, allowed)
        lifecycle.result_received(uow, current, report, now)


@dataclass(slots=True, kw_only=True)
class _Fetch:
    """One try to fetch what an attempt left, within one bound on its time and its bytes.

    Attributes:
        read_json: Reads the report.
        limit_bytes: Of one file.
        left_bytes: Of all that are still to come.
        until_s: Monotonic time at which the try ends.
        hear: Called for each block that comes.
    """

    attempt: Attempt
    benchmark: Benchmark
    cluster: Cluster
    files: FileStore
    clock: Clock
    read_json: Callable[[bytes], object]
    limit_bytes: int
    left_bytes: int
    until_s: float
    stopped: Callable[[], bool]
    hear: Callable[[], object]

    def report(self) -> Mapping[str, object]:
        """Return the report; a ValueError or InvalidInput where it is not one of this attempt."""
        attempt = self.attempt
        data = bytearray()
        for block in self._blocks(REPORT):
            data += block
            if len(data) > MAX_REPORT_BYTES:
                raise ValueError(f"its report is longer than {MAX_REPORT_BYTES} bytes")
        report = self.read_json(bytes(data))
        if not isinstance(report, dict):
            raise ValueError("its report is not an object")
        said = tuple(report.get(name) for name in ("schema", "benchmark_id", "job_id", "attempt"))
        if said != (SCHEMA, attempt.benchmark_id, attempt.job_id, attempt.number):
            raise ValueError(f"its report is that of another run: {said}")
        if report.get("status") not in ("ok", "failed"):
            raise ValueError("its report has no status")
        check_report(report, self.benchmark)
        return report

    def file(self, name: str, sha256: str | None) -> StoredFile:
        """Return one file, in the file store; a ValueError where its hash is another one."""
        writer = self.files.writer(self.limit_bytes, urgent=True)
        digest = hashlib.sha256()
        try:
            for block in self._blocks(name):
                digest.update(block)
                writer.write(block)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise ValueError(f"{name} is not the file that its report names")
            return writer.commit()
        finally:
            writer.abort()

    def _blocks(self, name: str) -> Iterator[bytes]:
        with closing(self.cluster.retained_file(self.attempt.job_id, name)) as blocks:
            for block in blocks:
                self.hear()
                self.left_bytes -= len(block)
                if self.left_bytes < 0:
                    raise ValueError("its files are too large together")
                if self.stopped():
                    raise Unavailable("the server stops")  # no silence of the host
                if self.clock.monotonic_s() > self.until_s:
                    raise ClusterUnreachable("its host did not send it in time")
                yield block


def _listed(report: Mapping[str, object]) -> Iterator[tuple[str, str | None]]:
    """Yield the names and hashes of a result's files; ValueError for what no runner writes."""
    files = report.get("files")
    entries = files if isinstance(files, list) else []
    if len(entries) > MAX_KEPT_FILES:
        raise ValueError(f"its report names more than {MAX_KEPT_FILES} files")
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        sha256 = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(sha256, str) or not _is_plain(name):
            raise ValueError("its report names a file that results do not have")
        if name not in (REPORT, LOG):
            yield name, sha256
    yield REPORT, None


def _is_plain(name: str) -> bool:
    return (
        name == PurePosixPath(name).name
        and not name.startswith(".")
        and name.isprintable()
        and len(name.encode()) <= 255
    )
