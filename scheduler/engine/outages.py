"""Reports of what fails again and again: at its beginning, now and then, and at its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

REPEAT_S = 300.0
"""What goes on failing is logged again after so long."""


@dataclass(slots=True)
class _Outage:
    """Something that fails.

    Attributes:
        since_s: Monotonic time of the first failure in a row.
        logged_s: Monotonic time of the last line in the log.
        unlogged: Failures since then.
    """

    since_s: float
    logged_s: float
    unlogged: int = 0


class Outages:
    """Logs failures by what failed. Any thread."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Nothing has failed."""
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._outages: dict[str, _Outage] = {}

    def failed(self, event: str, message: str, reason: str) -> None:
        """Log a failure, unless it was logged a short while ago.

        Args:
            event: What failed, as the log names it.
            message: In words.
            reason: Why, as it is now.
        """
        now_s = self._monotonic_s()
        with self._lock:
            outage = self._outages.get(event)
            if outage is not None and now_s - outage.logged_s < REPEAT_S:
                outage.unlogged += 1
                return
            extra: dict[str, object] = {"event": event, "reason": reason}
            if outage is None:
                self._outages[event] = _Outage(now_s, now_s)
            else:
                extra |= {"for_s": round(now_s - outage.since_s), "unlogged": outage.unlogged}
                outage.logged_s, outage.unlogged = now_s, 0
        logger.warning(message, extra=extra)

    def succeeded(self, event: str) -> None:
        """Log that it works again, if it failed."""
        if event not in self._outages:
            return
        with self._lock:
            outage = self._outages.pop(event, None)
        if outage is not None:
            for_s = round(self._monotonic_s() - outage.since_s)
            logger.info("works again", extra={"event": f"{event}.over", "failed_for_s": for_s})
