"""Jobs whose state may have changed, collected until somebody compares them."""

from __future__ import annotations

import threading


class Hints:
    """A set of job ids that several threads add to and one takes. Thread-safe."""

    def __init__(self) -> None:
        """Begin empty."""
        self._changed = threading.Condition()
        self._hints: dict[str, None] = {}  # in the order in which they came

    def put(self, job_id: str) -> None:
        """Add a job; "" stands for all jobs."""
        with self._changed:
            self._hints[job_id] = None
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is a hint; return whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._hints), timeout_s)

    def take(self) -> tuple[str, ...]:
        """Return all hints and forget them."""
        with self._changed:
            taken, self._hints = self._hints, {}
            return tuple(taken)

    def __bool__(self) -> bool:
        return bool(self._hints)
