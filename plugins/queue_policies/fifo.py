"""First come, first served."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of


class Fifo:
    """The oldest first, whatever its priority.

    No benchmark is ever overtaken: with ``k`` benchmarks ahead that want the same boards, it starts
    after ``k`` runs on one board.
    """

    name = "fifo"
    time_invariant = True

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """What came at the same time goes by id."""
        return ranks_of(queue, guarded=queue.past_guard)

    def reason(self, queue: Queue, job: int) -> str:
        return f"in order of submission, waiting for {queue.ages_s[job]:.0f} s"
