"""One thread reads the event log for all listeners; each has a bounded queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Store

logger = logging.getLogger(__name__)

POLL_S = 0.1
"""How late an event of another process may come; reading an unchanged log is one cheap query."""
RETRY_S = 1.0
BATCH = 500
QUEUE_SIZE = 1000
"""Events that a listener may be behind before it is cut; it can come back for what it missed."""


class Listener:
    """One reader's queue, on its event loop. ``None`` in it: cut, or the server stops."""

    def __init__(self, benchmark_id: str | None, since: int) -> None:
        self.benchmark_id = benchmark_id
        self.since = since
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_SIZE + 1)
        self.cut = False

    def offer(self, event: Event | None) -> None:
        """Put it into the queue, or cut the reader; on its loop only."""
        if self.cut:
            return
        if event is None or self.queue.qsize() >= QUEUE_SIZE:
            self.cut = True
            event = None
        self.queue.put_nowait(event)


class LogTail:
    """Tails the log while somebody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: set[Listener] = set()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow the log; may be called once."""
        self._thread = threading.Thread(target=self._run, name="edgeyard-log-tail")
        self._thread.start()

    def stop(self) -> None:
        """End the thread and all listeners."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
            for listener in self._listeners:
                self._give(listener, None)
        if self._thread is not None:
            self._thread.join(5)

    @contextmanager
    def listening(self, benchmark_id: str | None, since: int) -> Iterator[Listener]:
        """Events of a benchmark from now on; called on the listener's loop.

        Args:
            benchmark_id: None: events of everything.
            since: The log's last number, read before: where an idle reader begins. What lies
                between it and now, the listener reads for itself once it listens.
        """
        listener = Listener(benchmark_id, since)
        with self._changed:
            self._listeners.add(listener)
            self._changed.notify_all()
        if self._stop.is_set():
            listener.offer(None)
        try:
            yield listener
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def _run(self) -> None:
        after: int | None = None
        while not self._stop.is_set():
            with self._changed:
                if not self._listeners:
                    after = None
                    self._changed.wait()
                    continue
                if after is None:
                    after = min(listener.since for listener in self._listeners)
            try:
                after = self._pass_on(after)
            except EdgeyardError as error:
                logger.warning(
                    "event log can't be read", extra={"event": "tail.failed", "reason": str(error)}
                )
                self._stop.wait(RETRY_S)
            except Exception:
                logger.exception("event log's reader broke", extra={"event": "tail.broke"})
                self._stop.wait(RETRY_S)

    def _pass_on(self, after: int) -> int:
        """Hand out what came after; returns how far it is now."""
        with self._store.read() as uow:
            events = uow.log.events(after=after, limit=BATCH)
        if not events:
            self._stop.wait(POLL_S)
            return after
        with self._changed:
            listeners = tuple(self._listeners)
        for event in events:
            for listener in listeners:
                if listener.benchmark_id in (None, event.benchmark_id):
                    self._give(listener, event)
        return events[-1].seq

    @staticmethod
    def _give(listener: Listener, event: Event | None) -> None:
        with suppress(RuntimeError):  # its loop has ended, and the listener with it
            listener.loop.call_soon_threadsafe(listener.offer, event)
