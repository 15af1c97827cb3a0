"""One life of the simulated server: from its start to its crash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from edgeyard.devices.model import Board
from edgeyard.errors import Conflict, EdgeyardError, NotAuthenticated, Unavailable
from edgeyard.scheduler.clock import SharedClock
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.elected import ElectedEngine
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS, Attempt
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.ports import Store, UnitOfWork
from tests.virtual_service.cluster import Upload


@dataclass(slots=True, kw_only=True)
class SimServer:
    """The parts of a server that runs, built by `edgeyard.benchmark_api.bootstrap`.

    Attributes:
        store: The one that all servers share.
        set_inventory: Replaces the inventory.
        close: Frees what the process held; nothing of the engine is ended properly.
    """

    store: Store
    engine: ElectedEngine
    clock: SharedClock
    set_inventory: Callable[[Sequence[Board]], None]
    close: Callable[[], object]

    def now(self) -> datetime:
        """Return the server's time."""
        return self.clock.now()

    def receive(self, job_id: str, token: str, report: Mapping[str, object]) -> Upload:
        """Take a report as the route of uploads does."""

        def record(uow: UnitOfWork) -> None:
            attempt = _admitted(uow, job_id, token)
            reports = uow.files.reports(attempt.benchmark_id)
            if any(each.attempt == attempt.number for each in reports):
                return
            _check_open(uow, attempt)
            lifecycle.result_received(uow, attempt, report, self.now())

        try:
            self.store.transact(record)
        except Unavailable:
            return Upload.UNAVAILABLE
        except EdgeyardError:
            return Upload.REFUSED
        self.engine.wake()
        return Upload.TAKEN

    def progress(self, job_id: str, token: str, progress: float) -> None:
        """Take a task's progress as the route of progress does; it may be lost."""

        def note(uow: UnitOfWork) -> None:
            attempt = _admitted(uow, job_id, token)
            _check_open(uow, attempt)
            lifecycle.progress_received(uow, attempt, progress, "measuring", self.now())

        try:
            self.store.transact(note)
        except EdgeyardError:
            return


def _admitted(uow: UnitOfWork, job_id: str, token: str) -> Attempt:
    attempt = uow.attempts.by_job_id(job_id)
    if attempt.upload_token_sha256 != hashlib.sha256(token.encode()).hexdigest():
        raise NotAuthenticated("the token is not known")
    return attempt


def _check_open(uow: UnitOfWork, attempt: Attempt) -> None:
    if attempt.state not in LIVE_ATTEMPTS and not attempt.takes_late_result:
        raise Conflict(f"attempt {attempt.number} of {attempt.benchmark_id} has ended")
    if uow.benchmarks.get(attempt.benchmark_id).status in TERMINAL:
        raise NotAuthenticated("the benchmark has ended")
