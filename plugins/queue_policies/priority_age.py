"""Priority first, then age, then campaigns that have started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue

AGE_STEP_S = 60.0
"""Ages within one such step count as equal: to the microsecond no two ever would be."""


class PriorityAge:
    """Higher priority first; at equal priority the older; at equal age the partly running."""

    name = "priority_age"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """See `QueuePolicy.order`; what is still equal goes by id."""
        order = np.lexsort(
            (
                np.array(queue.ids, dtype=np.str_),
                -queue.ages_s,
                ~queue.partly_running,
                -np.floor(queue.ages_s / AGE_STEP_S),
                -queue.priorities,
            )
        )
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return ranks

    def reason(self, queue: Queue, job: int) -> str:
        """See `QueuePolicy.reason`."""
        campaign = ", its campaign has started" if queue.partly_running[job] else ""
        return f"priority {queue.priorities[job]}, waiting for {queue.ages_s[job]:.0f} s{campaign}"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import QueuePolicy

    _: QueuePolicy = PriorityAge()
