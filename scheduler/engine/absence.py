"""Jobs that the cluster does not list: being absent once is not being lost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MIN_ABSENT_READS = 3

STILL_INDEX_FACTOR = 4.0
"""Where the cluster's index does not move, nothing proves that its answers are new: the grace time
is that many times as long."""


@dataclass(slots=True)
class _Absence:
    since_s: float
    index: int
    after_restart: bool
    reads: int = 0


class Absences:
    """Counts consistent reads in which a job was absent. One thread.

    Args:
        grace_s: How long a job has to be absent before it is lost.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._absent: dict[str, _Absence] = {}
        self._seen_at: dict[str, int] = {}

    def present(self, job_id: str, index: int | None) -> None:
        """Note that the cluster listed a job, in an answer of this index."""
        self._absent.pop(job_id, None)
        if index is not None:
            self._seen_at[job_id] = index

    def absent(
        self, job_id: str, index: int | None, now_s: float, *, after_restart: bool
    ) -> bool | None:
        """Note that a job was absent from an answer.

        Args:
            index: Of the cluster's state; None for a cluster that lives in this process, whose
                word is final.
            now_s: On a monotonic clock.
            after_restart: Whether this is the first look of this process.

        Returns:
            None while it may still appear. Otherwise it is lost: True where it was never seen since
            a restart of this process, and False otherwise.
        """
        if index is None:
            return after_restart
        base = self._seen_at.get(job_id, index)
        found = self._absent.setdefault(job_id, _Absence(now_s, base, after_restart))
        found.reads += 1
        absent_s = now_s - found.since_s
        factor = 1.0 if index != found.index else STILL_INDEX_FACTOR
        if found.reads < MIN_ABSENT_READS or absent_s < self._grace_s * factor:
            return None
        return found.after_restart

    def retain(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        for known in (self._absent, self._seen_at):
            for job_id in set(known) - set(job_ids):
                del known[job_id]
