"""WFP3: who waited long for its size comes first, large jobs before small ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

_MIN_RUN_S = 0.1


class Wfp3:
    """The greatest ``(wait / run time)^3 * processors`` first.

    Source: Tang, Lan, Desai, Buettner, "Fault-aware, Utility-based Job Scheduling on Blue Gene/P
    Systems", CLUSTER 2009. The wait is the true one; RLScheduler's code has a negative one there.
    """

    name = "wfp3"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal values the older comes first."""
        return ranks_of(queue, -_value(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return f"wfp3 is {_value(queue)[job]:.6g}, the highest value comes first"


def _value(queue: Queue) -> NDArray[np.float64]:
    relative = queue.waits_s / np.maximum(queue.expected_s, _MIN_RUN_S)
    return np.asarray(relative**3 * queue.processors, dtype=np.float64)
