"""Virtual time: a clock that advances without waiting, and the events to come."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class VirtualTime:
    """Seconds of virtual time, the same for all machines."""

    now_s: float = 0.0


class VirtualClocks:
    """The two clocks of a machine in virtual time: its time of day, and its monotonic clock.

    Attributes:
        was_set: Whether somebody has ever set the time of day.
    """

    def __init__(self, time: VirtualTime, start: datetime) -> None:
        """Show ``start``, aware UTC, at the beginning of ``time``."""
        self._time = time
        self._start = start
        self._set_by_s = 0.0
        self.was_set = False

    def wall(self) -> datetime:
        """Return the machine's time of day, which may have been set."""
        return self._start + timedelta(seconds=self._time.now_s + self._set_by_s)

    def monotonic_s(self) -> float:
        """Return seconds of a clock that can't be set."""
        return self._time.now_s

    def set_wall(self, by_s: float) -> None:
        """Set the time of day ``by_s`` seconds ahead; no time passes."""
        self._set_by_s += by_s
        self.was_set = True


class ActionQueue:
    """Actions in the order of their times; those of one time in the order of scheduling."""

    def __init__(self) -> None:
        """Create an empty queue."""
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()

    @property
    def next_s(self) -> float:
        """Virtual time of the next action; inf if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def schedule(self, time_s: float, action: Callable[[], object]) -> None:
        """Run an action at a virtual time."""
        heapq.heappush(self._heap, (time_s, next(self._number), action))

    def pop(self) -> Callable[[], object]:
        """Remove the next action and return it."""
        return heapq.heappop(self._heap)[2]


class InlineExecutor(Executor):
    """Runs each call at once, on the calling thread."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Call ``fn``; its exceptions go into the future, as from a thread."""
        done: Future[_T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
