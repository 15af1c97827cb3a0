"""Retries and circuit breaker of all calls to Nomad."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgeyard.errors import ClusterUnreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Back-off of calls, of the event stream and of the circuit breaker.

    Attributes:
        tries: Of one call; what may have taken effect is only tried again where that is harmless.
        first_s: Wait after the first failure; each further one doubles it.
        max_s: No wait is longer.
        trips_at: Failed calls in a row after which the circuit opens.
    """

    tries: int = 3
    first_s: float = 0.1
    max_s: float = 30.0
    trips_at: int = 5

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row: doubled, capped, and jittered so that
        clients that failed together do not come back together."""
        whole = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return whole * random.uniform(0.5, 1.0)  # jitter needs no seed: it decides nothing


class CircuitBreaker:
    """A circuit breaker: fails calls at once while Nomad does not answer. Thread-safe.

    After ``trips_at`` failures in a row it opens; when the back-off is over one call is let
    through, and its end closes the circuit or opens it for longer.
    """

    def __init__(
        self, policy: RetryPolicy, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._failures = 0
        self._open_until_s = 0.0
        self._last = ""

    def enter(self) -> None:
        """Check whether a call is allowed.

        Raises:
            ClusterUnreachable: The circuit is open; nothing was sent.
        """
        with self._lock:
            if self._failures < self._policy.trips_at:
                return
            left_s = self._open_until_s - self._monotonic_s()
            if left_s > 0:
                raise ClusterUnreachable(
                    f"Nomad failed {self._failures} times in a row ({self._last}); "
                    f"asked again in {left_s:.0f} s"
                )
            # This call is the one that looks; others wait for what it finds.
            self._open_until_s = self._monotonic_s() + self._policy.max_s

    def succeeded(self) -> None:
        """Record that a call was answered, even with an error of the caller."""
        with self._lock:
            self._failures = 0

    def failed(self, reason: str) -> None:
        """Record that a call was not answered, or with an internal error of Nomad."""
        with self._lock:
            self._failures += 1
            self._last = reason
            beyond = self._failures - self._policy.trips_at + 1
            if beyond > 0:
                # A second for a start: an agent that restarts takes some.
                wait_s = max(1.0, self._policy.wait_s(beyond + 3))
                self._open_until_s = self._monotonic_s() + wait_s
