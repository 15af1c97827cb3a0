"""The contract with a cluster that runs commands which are no benchmarks, as batch jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class BatchState(StrEnum):
    """State of a batch job."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "lost"  # the cluster has given up its node: nobody knows how far the run got


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """A command that needs no board.

    Attributes:
        job_id: Unique in the cluster's namespace; a job with this id is the same work.
        command: The program with its arguments. It reads ``input`` from the file
            ``${NOMAD_TASK_DIR}/input`` and writes its result to the folder ``${NOMAD_ALLOC_DIR}``.
        input: Printable ASCII without braces, such as base64.
        driver: ``raw_exec`` or ``docker``.
        image: Of ``docker``.
        cpu_mhz: Reserved.
        memory_mib: Reserved.
    """

    job_id: str
    command: Sequence[str]
    input: str
    driver: str = "raw_exec"
    image: str = ""
    cpu_mhz: int = 500
    memory_mib: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """A batch job as the cluster knows it.

    Attributes:
        run_id: Of the run whose result and log can be read; "": there is none yet.
        reason: Why it failed, or why it waits; "" where nothing is known.
    """

    state: BatchState
    run_id: str = ""
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job neither waits nor runs any more."""
        return self.state in (BatchState.COMPLETED, BatchState.FAILED)


class BatchCluster(Protocol):
    """Runs batch jobs. Every method may raise `ClusterUnreachable`."""

    def submit(self, task: BatchTask) -> None:
        """Create the job, unless there is one of this id already.

        Raises:
            JobRefused: The cluster never takes it.
        """
        ...

    def status(self, job_ids: Sequence[str]) -> Mapping[str, BatchStatus]:
        """Return the states of jobs; jobs that the cluster does not know are missing."""
        ...

    def result(self, run_id: str, name: str) -> bytes:
        """Return a file that a run wrote to its ``alloc`` folder.

        Raises:
            NotFound: There is none, or its node is gone.
        """
        ...

    def log_end(self, run_id: str) -> str:
        """Return the end of what a run wrote to stderr; "" if it can't be read."""
        ...

    def remove(self, job_id: str) -> None:
        """Stop a job and remove all that the cluster knows of it; harmless for unknown ones."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
