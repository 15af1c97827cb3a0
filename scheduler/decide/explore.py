"""A stated share of the decisions takes a board at random, so that what is predicted stays known.

A benchmark of a class whose costs are predicted is drawn with the policy's ``explore_share``, by
the seed of the cycle and its id alone; it then gets one of the boards that are free for it, each
with the same probability. With n such boards, the probability of the decision (its *propensity*,
which an honest evaluation of another policy needs) is::

    explore_share / n                          for a board that was drawn and is not the best one
    1 - explore_share + explore_share / n      for the best one, however it was chosen

Benchmarks with a board of their own (reserved, named, the only one), after failures, with a mapping
heuristic or a joint assignment are not drawn: their propensity is 1. Nor is one that a plan holds
back: it is drawn only in the cycle in which it would start, so that each start is drawn once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class, mixed
from edgeyard.scheduler.framework.protocols import Costs
from edgeyard.scheduler.model.decision import PendingBenchmark

_UNIT = float(1 << 53)


class Explorer:
    """Random choices of one cycle: which benchmarks explore, and on which boards."""

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        pairs: Pairs,
        costs: Costs | None,
        share: float,
    ) -> None:
        """Draw for all benchmarks.

        Args:
            batch: The batch; its seed counts.
            pending: The benchmarks, in the batch's order.
            pairs: Which class may use which board.
            costs: What runs are expected to cost; None: no benchmark explores.
            share: Of the decisions, 0 to 1.
        """
        self._drawn: Sequence[bool] = [False] * len(pending)
        if costs is None or not share:
            return
        known = by_class(pairs, costs.total_s, np.fmin, np.nan)
        if np.isnan(known).all():
            return
        ids = np.array([zlib.crc32(each.benchmark_id.encode()) for each in pending], np.uint64)
        first = mixed(ids << np.uint64(32) | np.uint64(batch.seed & 0xFFFFFFFF))
        self._which: NDArray[np.float64] = _shares(mixed(first))
        drawn = (_shares(first) < share) & ~np.isnan(known[batch.class_of_job])
        self._drawn = drawn.tolist()
        self._place = np.empty(batch.shape[1], dtype=np.intp)
        self._place[batch.board_order] = np.arange(batch.shape[1])

    def is_drawn(self, job: int) -> bool:
        """Return whether a benchmark gets a board at random."""
        return self._drawn[job]

    def board(self, job: int, free: NDArray[np.intp]) -> int:
        """Return the board of a benchmark that is drawn.

        Args:
            job: Row of the benchmark.
            free: Rows of the boards that are free for it, one at least.
        """
        ordered = free[np.argsort(self._place[free])]  # not by rows: they come in any order
        return int(ordered[int(self._which[job] * len(ordered))])


def _shares(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers of 64 bits as numbers from 0 to below 1."""
    return (keys >> np.uint64(11)).astype(np.float64) / _UNIT
