"""Tetris: the job whose needs are aligned best with what is free, weighed against short runs.

Source: Grandl, Ananthanarayanan, Kandula, Rao, Akella, "Multi-Resource Packing for Cluster
Schedulers", SIGCOMM 2014, sections 3.2 and 3.3: alignment is the sum over resources of need times
what is free, as shares; the expected run time is subtracted, weighed so that both have equal means.
(For jobs of one task, work instead of time would cancel the alignment of equally long ones.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

Floats = NDArray[np.float64]


class TetrisOrder:
    """The greatest alignment with what is free first; in the lab all are aligned alike.

    Each benchmark of the lab takes one board, so that only the expected run time is left there.
    Past the guard time (``guard_s``) the older comes first and no benchmark is overtaken.
    """

    name = "tetris"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal values the older comes first."""
        return ranks_of(queue, -self._value(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return (
            f"alignment minus run time is {self._value(queue)[job]:.3g}, the highest "
            "value comes first"
        )

    def _value(self, queue: Queue) -> Floats:
        count = len(queue.ids)
        needs = np.ones((count, 1)) if queue.needs is None else queue.needs
        free = np.ones(needs.shape[1]) if queue.free is None else queue.free
        alignment = needs @ free
        run_s = queue.expected_s
        if count and run_s.mean() > 0.0:
            alignment = alignment - alignment.mean() / run_s.mean() * run_s
        return np.asarray(alignment, dtype=np.float64)
