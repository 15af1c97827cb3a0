"""A random order: what every other queue policy should beat."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, mixed, ranks_of

_BITS = np.uint64(11)
"""A draw keeps 53 bits: as many as a 64-bit float holds."""


class SeededRandomOrder:
    """A draw for each benchmark that depends on its id and the seed alone: it never changes.

    Past the guard time (``guard_s``) the older comes first and no benchmark is overtaken.
    """

    name = "random"
    time_invariant = True

    def __init__(self, seed: int = 0) -> None:
        """Take the seed of the draws."""
        self._seed = seed

    def order(self, queue: Queue) -> NDArray[np.intp]:
        return ranks_of(queue, self._draws(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return "in a random place, which depends on its id"

    def _draws(self, queue: Queue) -> NDArray[np.float64]:
        """Return draws from 0 to 1, shape (jobs,)."""
        keys = np.array([zlib.crc32(each.encode()) for each in queue.ids], dtype=np.uint64)
        drawn = mixed(keys + mixed(np.array([self._seed], dtype=np.uint64)))
        return np.asarray((drawn >> _BITS) / float(1 << 53), dtype=np.float64)
