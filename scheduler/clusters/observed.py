"""A cluster whose calls are counted and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from edgeyard.devices.model import Host
from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.cluster_decorator import ClusterDecorator
from edgeyard.scheduler.ports import (
    Cluster,
    JobState,
    LoadReport,
    LogChunk,
    NodeSource,
    RecurringJob,
)

Observe = Callable[[str, float, Mapping[str, str]], None]


class ClusterWithNodes(Cluster, NodeSource, Protocol):
    """A cluster that also reports its hosts."""


class ObservedCluster(ClusterDecorator[ClusterWithNodes], NodeSource):
    """Reports ``cluster_requests_total`` and ``cluster_request_seconds`` of another cluster."""

    def __init__(self, inner: ClusterWithNodes, observe: Observe) -> None:
        super().__init__(inner)
        self._observe = observe

    def check(self, hcl: str) -> None:
        with self._watched("check"):
            super().check(hcl)

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> str | None:
        with self._watched("dispatch"):
            return super().dispatch(job_id, hcl, secrets)

    def stop(self, job_id: str) -> None:
        with self._watched("stop"):
            super().stop(job_id)

    def recurring(self) -> Mapping[str, RecurringJob]:
        with self._watched("recurring"):
            return super().recurring()

    def job_of_allocation(self, allocation_id: str) -> str | None:
        with self._watched("allocation"):
            return super().job_of_allocation(allocation_id)

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        with self._watched("states"):
            return super().states(job_ids)

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        with self._watched("logs"):
            return super().logs(job_id, stream, offset)

    def hosts(self) -> tuple[Host, ...]:
        with self._watched("hosts"):
            return self._inner.hosts()

    def loads(self) -> Mapping[str, LoadReport]:
        return self._inner.loads()

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        with self._watched("secrets"):
            return super().secrets_of(job_id)

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
