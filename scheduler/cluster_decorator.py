"""A cluster that forwards every call; decorators of clusters override what they change."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from edgeyard.scheduler.ports import Cluster, JobState, LogChunk, RecurringJob

_Inner = TypeVar("_Inner", bound=Cluster)


class ClusterDecorator(Cluster, Generic[_Inner]):
    """Forwards every call to another cluster."""

    def __init__(self, inner: _Inner) -> None:
        """Forward calls to ``inner``."""
        self._inner = inner

    def check(self, hcl: str) -> None:
        self._inner.check(hcl)

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> str | None:
        return self._inner.dispatch(job_id, hcl, secrets)

    def stop(self, job_id: str) -> None:
        self._inner.stop(job_id)

    def recurring(self) -> Mapping[str, RecurringJob]:
        return self._inner.recurring()

    def job_of_allocation(self, allocation_id: str) -> str | None:
        return self._inner.job_of_allocation(allocation_id)

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        return self._inner.states(job_ids)

    def state_index(self) -> int | None:
        return self._inner.state_index()

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        return self._inner.logs(job_id, stream, offset)

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        return self._inner.retained_file(job_id, name)

    def events(self, stop: threading.Event) -> Iterator[str]:
        return self._inner.events(stop)

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        return self._inner.secrets_of(job_id)

    def strays(self) -> Mapping[str, str | None]:
        return self._inner.strays()

    def page_of(self, job_id: str) -> str | None:
        return self._inner.page_of(job_id)

    def retire(self) -> None:
        self._inner.retire()

    def close(self) -> None:
        self._inner.close()
