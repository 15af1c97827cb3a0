"""The shortest predicted run first (SJF)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of


class ShortestFirst:
    """The least predicted run time first: the mean wait is least that way, if predictions hold.

    What nothing is known of, nor a bound stated, counts as the median of the others. Long ones
    don't starve: past the guard time (``guard_s``) the older comes first and none is overtaken.
    """

    name = "shortest_first"
    time_invariant = True

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal run time the more urgent, then the older."""
        return ranks_of(queue, queue.turns, queue.expected_s, -queue.priorities)

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        if np.isnan(queue.run_times_s[job]):
            return "its run time is not known: in the middle of the others"
        return f"expected to run for about {queue.run_times_s[job]:.2g} s"
