"""Limits how often a thread that others wake takes a turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MIN_INTERVAL_S = 0.05
"""Shortest time that a turn counts for: a flood of events is handled in batches."""

AT_ONCE_S = 0.15
"""Turns that count for so long need no rest before the next: what leads from a board that falls
free to the next job on it takes a few of them."""

MAX_REST_S = 1.0


class Throttle:
    """Keeps turns to half of the time, except for a few in a row after a pause. One thread.

    Other threads have work for the same processor.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._spare_s = AT_ONCE_S
        self._idle_since_s = monotonic_s()

    @contextmanager
    def turn(self, rest: Callable[[float], object]) -> Iterator[None]:
        """Take one, and rest for as long as it asks for."""
        began_s = self._monotonic_s()
        self._spare_s = min(AT_ONCE_S, self._spare_s + began_s - self._idle_since_s)
        yield
        self._idle_since_s = self._monotonic_s()
        self._spare_s -= max(MIN_INTERVAL_S, self._idle_since_s - began_s)
        self._spare_s = max(self._spare_s, -MAX_REST_S)
        if self._spare_s < 0:
            rest(-self._spare_s)
