"""The cluster that runs jobs, and the source of hosts and boards."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from edgeyard.devices.model import Host
from edgeyard.scheduler.model.benchmark import Failure
from edgeyard.scheduler.model.knowledge import HostLoad


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

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
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
