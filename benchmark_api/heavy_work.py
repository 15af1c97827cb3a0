"""Work of requests that takes long, on threads of its own: nobody else waits behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from edgeyard.errors import TooMuchHeavyWork

T = TypeVar("T")

THREADS = 2
"""Python computes on one core at a time: with a second thread, what one user has sent never keeps
another's waiting."""


@dataclass(slots=True)
class _Queue:
    """The requests of one user.

    Attributes:
        count: Those that have a place.
        turn: Held by the one that runs.
    """

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Place:
    """A request's place among those of its user; only `HeavyWork.place` makes one."""

    _turn: asyncio.Lock
    _limiter: CapacityLimiter

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns, once it is the user's turn and a thread is free."""
        async with self._turn:
            return await to_thread.run_sync(work, limiter=self._limiter)


class HeavyWork:
    """Runs what takes long, one request of each user at a time. Used on the event loop alone."""

    def __init__(self, max_per_user: Callable[[], int]) -> None:
        """Start with nothing to do.

        Args:
            max_per_user: Places of one user; asked at each request.
        """
        self._max_per_user = max_per_user
        self._queues: dict[str, _Queue] = {}
        self._limiter: CapacityLimiter | None = None

    @contextmanager
    def place(self, user_id: str) -> Iterator[Place]:
        """Yield a place for one request, taken before its body is read: what waits is bounded.

        Raises:
            TooMuchHeavyWork: All places of the user are taken.
        """
        if self._limiter is None:  # which belongs to the event loop
            self._limiter = CapacityLimiter(THREADS)
        queue = self._queues.setdefault(user_id, _Queue())
        if queue.count >= (limit := self._max_per_user()):
            raise TooMuchHeavyWork(limit, f"user {user_id}")
        queue.count += 1
        try:
            yield Place(queue.turn, self._limiter)
        finally:
            queue.count -= 1
            if not queue.count:
                del self._queues[user_id]
