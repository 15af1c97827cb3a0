"""A cluster that passes every call on: what others change of that, they override."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from edgeyard.scheduler.ports import Cluster, JobState, LogChunk

_Inner = TypeVar("_Inner", bound=Cluster)


class ClusterDecorator(Generic[_Inner]):
    """See `edgeyard.scheduler.ports.Cluster` for each method."""

    def __init__(self, inner: _Inner) -> None:
        """Pass calls on to ``inner``."""
        self._inner = inner

    def check(self, hcl: str) -> None:
        """See `Cluster.check`."""
        self._inner.check(hcl)

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        """See `Cluster.dispatch`."""
        self._inner.dispatch(job_id, hcl, secrets)

    def stop(self, job_id: str) -> None:
        """See `Cluster.stop`."""
        self._inner.stop(job_id)

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        """See `Cluster.states`."""
        return self._inner.states(job_ids)

    def state_index(self) -> int | None:
        """See `Cluster.state_index`."""
        return self._inner.state_index()

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        """See `Cluster.logs`."""
        return self._inner.logs(job_id, stream, offset)

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        """See `Cluster.retained_file`."""
        return self._inner.retained_file(job_id, name)

    def events(self, stop: threading.Event) -> Iterator[str]:
        """See `Cluster.events`."""
        return self._inner.events(stop)

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        """See `Cluster.secrets_of`."""
        return self._inner.secrets_of(job_id)

    def strays(self) -> Mapping[str, str | None]:
        """See `Cluster.strays`."""
        return self._inner.strays()

    def page_of(self, job_id: str) -> str | None:
        """See `Cluster.page_of`."""
        return self._inner.page_of(job_id)

    def retire(self) -> None:
        """See `Cluster.retire`."""
        self._inner.retire()

    def close(self) -> None:
        """See `Cluster.close`."""
        self._inner.close()


if TYPE_CHECKING:

    def _conforms(cluster: ClusterDecorator[Cluster]) -> Cluster:
        return cluster
