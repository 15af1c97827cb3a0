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
    """How far a job is, as its cluster reports it."""

    QUEUED = "queued"  # registered; its task does not run yet
    RUNNING = "running"
    ENDED = "ended"  # its task ended, successfully or not


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of one job.

    Attributes:
        target_uid: Board on which it was placed; None before that.
        reason: Why it is queued, or why the cluster does not know how it ended, for people; ""
            otherwise.
        started_at: By the server's clock: the cluster corrects the host's time by the offset of
            the host's clock, or gives the time at which it learned of the start.
        ended_at: End, by the server's clock in the same way.
        failure: Why it failed; None when it succeeded. Its category is ``preempted`` where the
            cluster itself gave its board to a more urgent job. Of a stopped job: how it was
            stopped, where the cluster says so.
        stopped: Whether it ended because it was stopped: by Edgeyard, by an operator in the
            cluster, who may have drained its host, or because the disk of its host was full. Where
            Edgeyard did not stop it, that is nobody's failure.
        host_lost: Whether its host was lost; the cluster may not know whether its task had begun.
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
    """Some bytes of a task's log.

    Attributes:
        next_offset: Where the next chunk begins.
        ended: Whether no more bytes will follow.
    """

    data: bytes
    next_offset: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """A run that the cluster started by itself.

    Attributes:
        job_id: As in `edgeyard.scheduler.model.recurring`.
        live: Whether it has not ended.
    """

    job_id: str
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringJob:
    """A parent job, as the cluster has it.

    Attributes:
        live: Whether the cluster may start more runs of it.
        runs: In the order of their starts; ended ones only until the cluster forgets them.
    """

    live: bool
    runs: tuple[StartedRun, ...] = ()


class Cluster(Protocol):
    """Runs jobs on boards. Thread-safe. Contract: ``tests/contract/test_cluster.py``."""

    def check(self, hcl: str) -> None:
        """Raise `JobRefused` or `HclError` if the cluster would refuse this job."""
        ...

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> str | None:
        """Register the job, create-only.

        Args:
            secrets: Environment variables of the task that must not appear in the job.

        Returns:
            Id of the evaluation that this began; None where the cluster has none.

        Raises:
            JobExists: The id is taken; nothing changed.
            JobRefused: The cluster does not accept this job, now or ever.
            ClusterUnreachable: It is unknown whether the cluster accepted the job.
        """
        ...

    def stop(self, job_id: str) -> None:
        """End the job's task and free its board, without waiting; ignore an unknown job.

        No more runs of a parent job are started; those that were started go on.
        """
        ...

    def recurring(self) -> Mapping[str, RecurringJob]:
        """Return all parent jobs with their runs, by id; empty where the cluster starts no runs.

        Raises:
            ClusterUnreachable: None is known.
        """
        ...

    def job_of_allocation(self, allocation_id: str) -> str | None:
        """Return the id of the job whose task this allocation is to run, or runs.

        Returns:
            None if the cluster knows no such allocation, or it has ended or is being stopped.

        Raises:
            ClusterUnreachable: It is not known.
        """
        ...

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        """Return the states of those jobs that the cluster knows, by id.

        Raises:
            ClusterUnreachable: No state is known.
        """
        ...

    def state_index(self) -> int | None:
        """Return the index of the cluster's state that `states` read last.

        Two answers of the same index come from the same state. None means that the cluster lives
        in this process, so that a job that it does not know is gone.
        """
        ...

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        """Return a part of the task's log; ``stream`` is ``stdout`` or ``stderr``.

        Raises:
            NotFound: The job or its log is gone.
        """
        ...

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        """Yield the content of a result file that a task left on its host.

        Raises:
            NotFound: The host does not have this file, or no longer.
            ClusterUnreachable: The host does not answer.
        """
        ...

    def events(self, stop: threading.Event) -> Iterator[str]:
        """Yield ids of jobs whose state may have changed, until ``stop`` is set.

        "" stands for all jobs and boards. Events are hints: they may be lost, repeated or late.
        """
        ...

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        """Return the secrets with which the job was dispatched; empty for an unknown job.

        Raises:
            ClusterUnreachable: No secrets are known.
        """
        ...

    def strays(self) -> Mapping[str, str | None]:
        """Return jobs under our names that our database does not know, and the boards they hold.

        The likely cause is a database restored from an older backup, or another Edgeyard in the
        same namespace. The answer is that of the last refresh, so the call never waits. A job
        that holds no board maps to None.
        """
        ...

    def page_of(self, job_id: str) -> str | None:
        """Return the address of the cluster's own web page of the job; None if it has none."""
        ...

    def retire(self) -> None:
        """End tasks that run inside this process, because another server leads now."""
        ...

    def close(self) -> None:
        """Release all resources; an embedded cluster ends its tasks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How busy a host was.

    Attributes:
        at: When the load was measured, by the server's clock.
        clock_offset_s: How far the host's clock is ahead of the server's; None: not measured.
    """

    load: HostLoad
    at: datetime
    clock_offset_s: float | None = None


class NodeSource(Protocol):
    """Reports hosts and their boards."""

    def hosts(self) -> tuple[Host, ...]:
        """Return all hosts with their boards as they are now.

        Raises:
            ClusterUnreachable: No host is known.
        """
        ...

    def loads(self) -> Mapping[str, LoadReport]:
        """Return the newest load of each host that reported one, by host name; never waits."""
        ...
