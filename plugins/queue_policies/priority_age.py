"""Priority first, then age, then campaigns that have started."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

AGE_STEP_S = 60.0
"""Ages within one such step count as equal: to the microsecond no two ever would be."""


class PriorityAge:
    """Higher priority first; at equal priority the older; at equal age the partly running.

    A user's benchmarks beyond their first turn (`edgeyard.scheduler.framework.batch.TURN_SIZE`)
    come after the first turns of all others. Waiting raises the priority where the policy says so
    (``age_step_s``); past the guard time (``guard_s``) the older comes first in any case.
    """

    name = "priority_age"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """What is still equal goes by id."""
        steps = np.floor(queue.ages_s / AGE_STEP_S)
        not_begun = (~queue.partly_running).astype(np.float64)
        return ranks_of(queue, queue.turns, -queue.priorities, -steps, not_begun)

    def reason(self, queue: Queue, job: int) -> str:
        campaign = ", its campaign has started" if queue.partly_running[job] else ""
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return f"priority {queue.priorities[job]}, waiting for {queue.ages_s[job]:.0f} s{campaign}"
