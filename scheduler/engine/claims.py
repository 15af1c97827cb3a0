"""Results that a task could not upload are fetched from the host where they lie."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from edgeyard.devices.runner.result import LOG, REPORT, SCHEMA
from edgeyard.errors import Conflict, NotFound, TooLarge
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.model.records import ResultFile, StoredFile
from edgeyard.scheduler.ports import Clock, Cluster, FileStore, Store, UnitOfWork

logger = logging.getLogger(__name__)

MAX_REPORT_BYTES = 16 * 2**20
MAX_KEPT_FILES = 64


class Claims:
    """Fetches what runners left on their hosts.

    Args:
        limit_bytes: Largest result file that is taken.
        defaults: Gives the quotas of users whose accounts have none of their own.
    """

    def __init__(
        self,
        store: Store,
        files: FileStore,
        cluster: Cluster,
        clock: Clock,
        limit_bytes: int,
        defaults: Callable[[], Quotas] = Quotas,
    ) -> None:
        self._store = store
        self._files = files
        self._cluster = cluster
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._defaults = defaults

    def claim(self, attempt: Attempt) -> bool:
        """Fetch the result of a live attempt and record it.

        Returns:
            Whether there is one now; False where its host keeps none that could be taken.

        Raises:
            ClusterUnreachable: The host does not answer; a later try may succeed.
        """
        try:
            report = self._report(attempt)
            stored = {name: self._fetched(attempt, name, sha) for name, sha in _listed(report)}
            with suppress(NotFound):
                stored[LOG] = self._fetched(attempt, LOG, None)
        except (NotFound, TooLarge, ValueError, RecursionError) as error:
            logger.info(
                "no result could be claimed",
                extra={"event": "result.absent", "job_id": attempt.job_id, "reason": str(error)},
            )
            return False
        try:
            self._store.transact(lambda uow: self._record(uow, attempt, report, stored))
        except TooLarge as error:
            logger.info(
                "no result could be claimed",
                extra={"event": "result.absent", "job_id": attempt.job_id, "reason": str(error)},
            )
            return False
        except Conflict:
            return True  # the task itself, or another attempt, was quicker
        logger.info(
            "a result was claimed from its host",
            extra={
                "event": "result.claimed",
                "benchmark_id": attempt.benchmark_id,
                "job_id": attempt.job_id,
            },
        )
        return True

    def _report(self, attempt: Attempt) -> Mapping[str, object]:
        data = b""
        for block in self._cluster.kept_file(attempt.job_id, REPORT):
            data += block
            if len(data) > MAX_REPORT_BYTES:
                raise ValueError(f"its report is longer than {MAX_REPORT_BYTES} bytes")
        report = json.loads(data)
        if not isinstance(report, dict):
            raise ValueError("its report is no object")
        said = tuple(report.get(name) for name in ("schema", "benchmark_id", "job_id", "attempt"))
        if said != (SCHEMA, attempt.benchmark_id, attempt.job_id, attempt.number):
            raise ValueError(f"its report is that of another run: {said}")
        if report.get("status") not in ("ok", "failed"):
            raise ValueError("its report has no status")
        return report

    def _fetched(self, attempt: Attempt, name: str, sha256: str | None) -> StoredFile:
        writer = self._files.writer(self._limit_bytes, urgent=True)
        digest = hashlib.sha256()
        try:
            for block in self._cluster.kept_file(attempt.job_id, name):
                digest.update(block)
                writer.write(block)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise ValueError(f"{name} is not the file that its report names")
            return writer.commit()
        finally:
            writer.abort()

    def _record(
        self,
        uow: UnitOfWork,
        attempt: Attempt,
        report: Mapping[str, object],
        stored: Mapping[str, StoredFile],
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
        owner = uow.benchmarks.get(current.benchmark_id).user_id
        allowed = quotas.of_account(uow, owner, self._defaults())
        quotas.check_run(uow, current.benchmark_id, current.number, owner, allowed)
        lifecycle.result_received(uow, current, report, now)


def _listed(report: Mapping[str, object]) -> Iterator[tuple[str, str | None]]:
    """Names and hashes of a result's files; raises ValueError for what no runner writes."""
    files = report.get("files")
    entries = files if isinstance(files, list) else []
    if len(entries) > MAX_KEPT_FILES:
        raise ValueError(f"its report names more than {MAX_KEPT_FILES} files")
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        sha256 = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(sha256, str) or not _is_plain(name):
            raise ValueError("its report names a file that is none of a result")
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
