"""A cluster that does what the test says."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.devices.model import Board, BoardEngine, Host
from edgeyard.errors import ClusterUnreachable, JobExists, JobRefused, NotFound
from edgeyard.scheduler.model.benchmark import Failure
from edgeyard.scheduler.model.recurring import is_parent, parent_of
from edgeyard.scheduler.ports import (
    JobRun,
    JobState,
    LoadReport,
    LogChunk,
    RecurringJob,
    StartedRun,
)


def board(uid: str, **changes: object) -> Board:
    """A board that runs ort, all types."""
    plain = Board(
        target_uid=uid,
        family=uid.split("-")[0],
        ram_bytes=4 * 2**30,
        storage_bytes=16 * 2**30,
        engines=(BoardEngine("ort", "1", frozenset({"TYPE1", "TYPE2", "TYPE3"})),),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


class FakeCluster:
    """Jobs by id; `start` and `end` play the tasks. Unplugged, it answers nothing.

    With ``refuses`` it takes no job: for this reason, and whether it never will.
    """

    def __init__(self, now: Callable[[], datetime], *boards: Board) -> None:
        self._now = now
        self.boards = list(boards)
        self.host_name = "host"
        self.jobs: dict[str, JobState] = {}
        self.texts: dict[str, str] = {}
        self.secrets: dict[str, Mapping[str, str]] = {}
        self.stopped: list[str] = []
        self.dispatched: list[str] = []
        self.host_loads: dict[str, LoadReport] = {}
        self.stray_jobs: dict[str, str | None] = {}
        self.reachable = True
        self.answers_after_the_effect = True
        self.index: int | None = None
        self.kept: dict[tuple[str, str], bytes] = {}
        self.hosts_answer = True
        self.allocations: dict[str, str] = {}
        self.refuses: tuple[str, bool] | None = None

    def hosts(self) -> tuple[Host, ...]:
        self._reach()
        return (Host("host-1", self.host_name, True, tuple(self.boards)),)

    def loads(self) -> Mapping[str, LoadReport]:
        return self.host_loads

    def check(self, hcl: str) -> None:
        self._reach()

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        self._reach()
        if job_id in self.jobs:
            raise JobExists(job_id)
        if self.refuses is not None:
            reason, lasting = self.refuses
            raise JobRefused(job_id, reason, lasting=lasting)
        self.dispatched.append(job_id)
        self.jobs[job_id] = JobState(job_id=job_id, run=JobRun.QUEUED)
        self.texts[job_id] = hcl
        self.secrets[job_id] = secrets
        if not self.answers_after_the_effect:
            raise ClusterUnreachable("the answer was lost")

    def stop(self, job_id: str) -> None:
        self._reach()
        self.stopped.append(job_id)
        if job_id in self.jobs and self.jobs[job_id].run is not JobRun.ENDED:
            self.jobs[job_id] = replace(
                self.jobs[job_id], run=JobRun.ENDED, stopped=True, ended_at=self._now()
            )

    def recurring(self) -> Mapping[str, RecurringJob]:
        self._reach()
        found: dict[str, RecurringJob] = {}
        for job_id, job in sorted(self.jobs.items()):
            parent, live = parent_of(job_id), job.run is not JobRun.ENDED
            if parent is None:
                continue
            known = found.setdefault(parent, RecurringJob(live=False))
            if is_parent(job_id):
                found[parent] = replace(known, live=live)
            else:
                run = StartedRun(job_id=job_id, live=live)
                found[parent] = replace(known, runs=(*known.runs, run))
        return found

    def job_of_allocation(self, allocation_id: str) -> str | None:
        self._reach()
        job_id = self.allocations.get(allocation_id)
        live = job_id is not None and self.jobs[job_id].run is not JobRun.ENDED
        return job_id if live else None

    def launch(self, parent_id: str, at: datetime) -> tuple[str, str]:
        """Start a run of a parent job, as Nomad does; its id and its allocation's."""
        job_id = f"{parent_id}/periodic-{int(at.timestamp())}"
        self.jobs[job_id] = JobState(job_id=job_id, run=JobRun.QUEUED)
        allocation_id = str(uuid.uuid5(uuid.NAMESPACE_URL, job_id))
        self.allocations[allocation_id] = job_id
        return job_id, allocation_id

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        self._reach()
        return {job_id: self.jobs[job_id] for job_id in job_ids if job_id in self.jobs}

    def state_index(self) -> int | None:
        return self.index

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        if job_id not in self.jobs:
            raise NotFound("log", job_id)
        return LogChunk(data=b"", next_offset=offset, ended=True)

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        self._reach()
        if not self.hosts_answer:
            raise ClusterUnreachable("the host does not answer")
        if (job_id, name) not in self.kept:
            raise NotFound("result file", name)
        yield self.kept[job_id, name]

    def events(self, stop: threading.Event) -> Iterator[str]:
        yield ""
        stop.wait()

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        return self.secrets.get(job_id, {})

    def strays(self) -> Mapping[str, str | None]:
        return self.stray_jobs

    def page_of(self, job_id: str) -> str | None:
        return f"http://nomad.test/ui/jobs/{job_id}"

    def retire(self) -> None:
        pass

    def close(self) -> None:
        pass

    def start(self, job_id: str, uid: str, *, at: datetime | None = None) -> None:
        self.jobs[job_id] = replace(
            self.jobs[job_id], run=JobRun.RUNNING, target_uid=uid, started_at=at or self._now()
        )

    def end(
        self,
        job_id: str,
        failure: Failure | None = None,
        *,
        began: bool = True,
        at: datetime | None = None,
        host_lost: bool = False,
        stopped: bool = False,
    ) -> None:
        job = self.jobs[job_id]
        self.jobs[job_id] = replace(
            job,
            run=JobRun.ENDED,
            failure=failure,
            started_at=job.started_at or (self._now() if began else None),
            ended_at=at or self._now(),
            host_lost=host_lost,
            stopped=stopped,
        )

    def _reach(self) -> None:
        if not self.reachable:
            raise ClusterUnreachable("it is unplugged")
