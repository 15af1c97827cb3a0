"""A cluster whose calls are counted and timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from edgeyard.devices.model import Host
from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.ports import Cluster, JobState, LoadReport, LogChunk, NodeSource

Observe = Callable[[str, float, Mapping[str, str]], None]


class ClusterWithNodes(Cluster, NodeSource, Protocol):
    """Both doors of one cluster."""


class ObservedCluster:
    """Passes every call on; tells ``cluster_requests_total`` and ``cluster_request_seconds``."""

    def __init__(self, inner: ClusterWithNodes, observe: Observe) -> None:
        self._inner = inner
        self._observe = observe

    def check(self, hcl: str) -> None:
        """See `Cluster.check`."""
        with self._watched("check"):
            self._inner.check(hcl)

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        """See `Cluster.dispatch`."""
        with self._watched("dispatch"):
            self._inner.dispatch(job_id, hcl, secrets)

    def stop(self, job_id: str) -> None:
        """See `Cluster.stop`."""
        with self._watched("stop"):
            self._inner.stop(job_id)

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        """See `Cluster.states`."""
        with self._watched("states"):
            return self._inner.states(job_ids)

    def state_index(self) -> int | None:
        """See `Cluster.state_index`."""
        return self._inner.state_index()

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        """See `Cluster.logs`."""
        with self._watched("logs"):
            return self._inner.logs(job_id, stream, offset)

    def kept_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        """See `Cluster.kept_file`."""
        return self._inner.kept_file(job_id, name)

    def events(self, stop: threading.Event) -> Iterator[str]:
        """See `Cluster.events`."""
        return self._inner.events(stop)

    def hosts(self) -> tuple[Host, ...]:
        """See `NodeSource.hosts`."""
        with self._watched("hosts"):
            return self._inner.hosts()

    def loads(self) -> Mapping[str, LoadReport]:
        """See `NodeSource.loads`: what is known already, so nothing to time."""
        return self._inner.loads()

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        """See `Cluster.secrets_of`."""
        with self._watched("secrets"):
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

    @contextmanager
    def _watched(self, op: str) -> Iterator[None]:
        began = time.monotonic()
        code = "ok"
        try:
            yield
        except EdgeyardError as error:
            code = type(error).__name__
            raise
        finally:
            self._observe("cluster_requests_total", 1, {"op": op, "code": code})
            self._observe("cluster_request_seconds", time.monotonic() - began, {"op": op})


if TYPE_CHECKING:

    def _conforms(cluster: ObservedCluster) -> ClusterWithNodes:
        return cluster
