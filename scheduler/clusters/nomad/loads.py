"""Loads of Nomad's nodes, read in the background so that no cycle waits for a node."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from edgeyard.devices.model import Host
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.nomad.client import Json, NomadClient
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import LoadReport

logger = logging.getLogger(__name__)

ASK_EVERY_S = 15.0
"""Time between two requests to a node."""

TIMEOUT_S = 2.0
"""Timeout of a request to a node."""

MAX_CONCURRENT_REQUESTS = 8
"""Requests to nodes that are under way at the same time."""

_MAX_VALUE = 2.0**63  # bytes of memory, percents: anything beyond is no measurement


class LoadWatch:
    """One thread, started when loads are first wanted; `close` joins it.

    Ready nodes with boards are asked; a node's report counts until it reports again or is
    no longer among them, with the time at which it came.
    """

    def __init__(
        self,
        client: NomadClient,
        hosts: Callable[[], Sequence[Host]],
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._hosts = hosts
        self._now = now
        self._lock = threading.Lock()
        self._reports: Mapping[str, LoadReport] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def latest(self) -> Mapping[str, LoadReport]:
        """Return the last known loads by name of host. Any thread."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="nomad-loads")
                self._thread.start()
            return self._reports

    def close(self) -> None:
        """End the thread, after the requests in progress."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="nomad-load") as pool:
            while not self._stop.is_set():
                try:
                    self._ask(pool)
                except Exception:
                    logger.exception("asking for loads broke", extra={"event": "nomad.loads"})
                self._stop.wait(ASK_EVERY_S)

    def _ask(self, pool: ThreadPoolExecutor) -> None:
        """Ask each host once."""
        hosts = [host for host in self._hosts() if host.ready and host.boards]
        before = self._reports
        reports = {
            host.name: report
            for host, report in zip(hosts, pool.map(self._of, hosts), strict=True)
            if report is not None
        }
        kept = {host.name: before[host.name] for host in hosts if host.name in before}
        with self._lock:
            self._reports = kept | reports

    def _of(self, host: Host) -> LoadReport | None:
        if self._stop.is_set():
            return None
        before = self._now()
        try:
            stats = self._client.stats(host.host_id, TIMEOUT_S)
        except ClusterUnreachable as error:
            logger.debug(
                "a node did not report its load",
                extra={"event": "nomad.no_load", "host": host.name, "reason": str(error)},
            )
            return None
        load, now = load_of(stats), self._now()
        if load is None:
            return None
        return LoadReport(load=load, at=now, clock_offset_s=clock_offset_s(stats, before, now))


def load_of(stats: Json) -> HostLoad | None:
    """Return the load in an answer of ``/v1/client/stats``; None if it has none."""
    cores, memory = stats.get("CPU"), stats.get("Memory")
    if not isinstance(cores, list) or not cores or not isinstance(memory, Mapping):
        return None
    idle = [_number(core.get("Idle")) if isinstance(core, Mapping) else None for core in cores]
    available, total = _number(memory.get("Available")), _number(memory.get("Total"))
    known = [each for each in idle if each is not None]
    if len(known) < len(idle) or available is None or not total:
        return None
    return HostLoad(
        cpu=_share(1.0 - sum(known) / len(known) / 100.0), memory=_share(1.0 - available / total)
    )


def clock_offset_s(stats: Json, before: datetime, after: datetime) -> float | None:
    """Return how far a machine's clock is ahead of ours; None if the answer has no time.

    Args:
        stats: Of ``/v1/client/stats``: they are up to a second old, and say when they were made.
        before: When they were asked for, by our clock.
        after: When they came.
    """
    reported_ns = _number(stats.get("Timestamp"))
    if not reported_ns:
        return None
    middle = before + (after - before) / 2
    return round(reported_ns / 1e9 - middle.timestamp(), 3)


def _number(value: object) -> float | None:
    """Return a finite number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 <= value < _MAX_VALUE else None


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
