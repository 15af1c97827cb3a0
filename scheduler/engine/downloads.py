"""Whose files are downloaded next: a few at a time for each user, in the order of requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

DEFAULT_PER_USER = 2


@dataclass(frozen=True, slots=True)
class Download:
    """The files that one benchmark misses."""

    benchmark_id: str
    user_id: str


@dataclass(slots=True)
class DownloadQueue:
    """Hands out downloads so that no user's slow addresses take all threads. Thread-safe.

    Attributes:
        max_per_user: Downloads of one user that run at the same time.
    """

    max_per_user: int = DEFAULT_PER_USER
    _waiting: dict[str, Download] = field(default_factory=dict)
    _running: dict[str, Download] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def replace(self, wanted: Collection[Download]) -> None:
        """State all downloads that are wanted now; the others that wait are forgotten."""
        with self._changed:
            by_id = {each.benchmark_id: each for each in wanted}
            kept = [each for each in self._waiting.values() if each.benchmark_id in by_id]
            self._waiting = {each.benchmark_id: each for each in [*kept, *by_id.values()]}
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Download | None:
        """Take the first download whose user has a place; None if there is none in time."""
        with self._changed:
            found = self._changed.wait_for(self._first, timeout_s)
            if found is not None:
                self._running[found.benchmark_id] = self._waiting.pop(found.benchmark_id)
            return found

    def has_next(self) -> bool:
        """Return whether there is a download whose user has a place."""
        with self._changed:
            return self._first() is not None

    def done(self, download: Download) -> None:
        """State that a download that was taken has ended, however it did."""
        with self._changed:
            self._running.pop(download.benchmark_id)
            self._changed.notify_all()

    def _first(self) -> Download | None:
        running = Counter(each.user_id for each in self._running.values())
        for each in self._waiting.values():
            if each.benchmark_id not in self._running and running[each.user_id] < self.max_per_user:
                return each
        return None
