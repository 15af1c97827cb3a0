"""UNICEP: who waited long for its size comes first, small jobs before large ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

_MIN_RUN_S = 0.1
_TINY = 1e-15
"""Keeps the logarithm of one processor above 0, and lets the shorter come first at no wait."""


class Unicep:
    """The greatest ``wait / (log2(processors) * run time)`` first.

    Source: Tang, Lan, Desai, Buettner, "Fault-aware, Utility-based Job Scheduling on Blue Gene/P
    Systems", CLUSTER 2009. A job of one processor comes before all others.
    """

    name = "unicep"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal values the older comes first."""
        return ranks_of(queue, -_value(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return f"unicep is {_value(queue)[job]:.6g}, the highest value comes first"


def _value(queue: Queue) -> NDArray[np.float64]:
    size = np.log2(queue.processors + _TINY) * np.maximum(queue.expected_s, _MIN_RUN_S)
    return np.asarray((queue.waits_s + _TINY) / size, dtype=np.float64)
