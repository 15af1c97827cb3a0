"""Asks the cluster for its boards and hands the answer to the twin."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.engine.outages import Outages
from edgeyard.scheduler.ports import Clock, NodeSource
from edgeyard.scheduler.twin.twin import Twin

MAX_PREFETCH_AGE_S = 2.0
"""An answer that was asked for longer ago is not used by `TwinRefresher.refresh`."""


class TwinRefresher:
    """Keeps the twin up to date. Safe on any thread."""

    def __init__(
        self, twin: Twin, nodes: NodeSource, clock: Clock, executor: Executor | None = None
    ) -> None:
        """Ask nothing before the first call.

        Args:
            executor: Asks for `prefetch`; None: a thread of its own.
        """
        self.twin = twin
        self._nodes = nodes
        self._clock = clock
        self._asking = threading.Lock()
        self._lock = threading.Lock()
        self._threads = executor or ThreadPoolExecutor(1, "edgeyard-refresh")
        self._prefetched: tuple[Future[None], float] | None = None
        self._outages = Outages()

    def refresh(self) -> None:
        """Bring the twin up to date; wait for an answer that `prefetch` has just asked for."""
        with self._lock:
            prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            answer, asked_s = prefetched
            answer.result()
            if self._clock.monotonic_s() - asked_s <= MAX_PREFETCH_AGE_S:
                return
        self._ask()

    def prefetch(self) -> None:
        """Ask on another thread, so that the next `refresh` need not ask."""
        asked_s = self._clock.monotonic_s()
        answer = self._threads.submit(self._ask)
        with self._lock:
            self._prefetched = answer, asked_s

    def close(self) -> None:
        """End the thread without waiting for it."""
        self._threads.shutdown(wait=False)

    def _ask(self) -> None:
        try:
            with self._asking:  # an older answer never replaces a newer one
                hosts, now = self._nodes.hosts(), self._clock.now()
                self.twin.refresh(hosts, now, self._nodes.loads())
        except ClusterUnreachable as error:
            self.twin.record_failed_refresh(str(error))
            self._outages.failed("twin.refresh_failed", "the cluster did not answer", str(error))
        else:
            self._outages.succeeded("twin.refresh_failed")
