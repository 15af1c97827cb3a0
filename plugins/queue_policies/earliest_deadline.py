"""The nearest deadline first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of


class EarliestDeadline:
    """The least time left to its deadline, less its stated run time, first.

    Who states no deadline has one at the end of the guard time (``guard_s`` after submission), and
    no benchmark has a later one: no deadline is no reason to wait for ever. Past the guard time the
    older comes first. None is overtaken after ``guard_s``; until then only by what is due
    before.
    """

    name = "earliest_deadline"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal time left the more urgent, then the older."""
        return ranks_of(queue, queue.turns, _left_s(queue), -queue.priorities)

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        left_s = f"{_left_s(queue)[job]:.0f} s"
        if np.isnan(queue.slacks_s[job]):
            return f"no deadline: {left_s} until no younger benchmark may overtake it"
        return f"{left_s} left to its deadline"


def _left_s(queue: Queue) -> NDArray[np.float64]:
    return np.fmin(queue.slacks_s, queue.guard_s - queue.ages_s)
