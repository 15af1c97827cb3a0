"""F1 to F4: functions of request and submission that were found by regression on simulations.

Source: Carastan-Santos, de Camargo, "Obtaining Dynamic Scheduling Policies with Simulation and
Machine Learning", SC'17, table 3. With r the requested (here: expected) time in seconds, n the
processors and s the submission in seconds of the world's clock, the least comes first::

    F1 = log10(r) * n + 870 * log10(s)        F2 = sqrt(r) * n + 25600 * log10(s)
    F3 = r * n + 6860000 * log10(s)           F4 = r * sqrt(n) + 530000 * log10(s)

They were fitted to logs whose clock begins near 0. On a clock far from 0, such as Unix time in the
lab, the term in s hardly differs between jobs, and they order by size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

Floats = NDArray[np.float64]

_ZERO = 0.1
"""Stands for times of 0 in logarithms."""


class _SizeAndAge:
    """What F1 to F4 share."""

    name = ""
    time_invariant = True

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal values the older comes first."""
        return ranks_of(queue, self._value(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return f"{self.name} is {self._value(queue)[job]:.6g}, the lowest value comes first"

    def _value(self, queue: Queue) -> Floats:
        raise NotImplementedError


class F1(_SizeAndAge):
    """``log10(r) * n + 870 * log10(s)``."""

    name = "f1"

    def _value(self, queue: Queue) -> Floats:
        size = _log10(queue.expected_s) * queue.processors
        return np.asarray(size + 870.0 * _log10(queue.submit_times_s), dtype=np.float64)


class F2(_SizeAndAge):
    """``sqrt(r) * n + 25600 * log10(s)``."""

    name = "f2"

    def _value(self, queue: Queue) -> Floats:
        size = np.sqrt(queue.expected_s) * queue.processors
        return np.asarray(size + 25600.0 * _log10(queue.submit_times_s), dtype=np.float64)


class F3(_SizeAndAge):
    """``r * n + 6860000 * log10(s)``."""

    name = "f3"

    def _value(self, queue: Queue) -> Floats:
        size = queue.expected_s * queue.processors
        return np.asarray(size + 6860000.0 * _log10(queue.submit_times_s), dtype=np.float64)


class F4(_SizeAndAge):
    """``r * sqrt(n) + 530000 * log10(s)``."""

    name = "f4"

    def _value(self, queue: Queue) -> Floats:
        size = queue.expected_s * np.sqrt(queue.processors)
        return np.asarray(size + 530000.0 * _log10(queue.submit_times_s), dtype=np.float64)


def _log10(seconds: Floats) -> Floats:
    return np.log10(np.where(seconds > 0.0, seconds, _ZERO))
