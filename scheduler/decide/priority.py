"""The stated priority: type + user + age + deadline, as whole points, kept within 1..100.

::

    type      points of the benchmark type                       70, 60, 50 for TYPE1, 2, 3
    user      floor(user_points x user priority)                 2 for each of 1-10
    age       floor(age / age_step_s)                            1 for each half hour of waiting
    deadline  floor(deadline_points x (1 - slack / horizon))     0-10 over the last six hours

    priority  = min(100, max(1, type + user + age + deadline))

``slack`` is the time to the deadline less the stated run time, taken between 0 and the horizon.
The constants are the default policy's. Every part is a whole number, so that the parts shown to
people add up; what the bounds take away is a part of its own, ``limit``.

So a TYPE1 benchmark of user priority 5 begins at 70 + 10 = 80. At equal other terms the types are
10 apart: the gap from which on Nomad preempts. Age has no bound of its own: a benchmark reaches
100 after at most (100 - 52) half hours = 24 h, and then only older ones come first: nobody
starves. Documented for users in ``docs/reference/priority.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.policy import Policy, PriorityMode
from edgeyard.scheduler.model.decision import PendingBenchmark

LOWEST, HIGHEST = 1, 100
"""Nomad's bounds: it takes 0 for 50, and refuses 101."""

_MAX_AGE_POINTS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priorities:
    """Priorities of pending benchmarks with what they are made of.

    Attributes:
        values: Shape (jobs,), int64, 1-100.
        parts: Shape (jobs,) each, int64; they add up to ``values``.
    """

    values: NDArray[np.int64]
    parts: Mapping[str, NDArray[np.int64]]

    @property
    def base(self) -> NDArray[np.int64] | None:
        """Priorities without what waiting adds, and without bounds; None in FIFO mode."""
        if "age" not in self.parts:
            return None
        base = self.parts["type"] + self.parts["user"] + self.parts["deadline"]
        strict = self.parts.get("strict")
        return base if strict is None else np.where(strict != 0, self.values, base)

    def parts_of(self, job: int) -> dict[str, float]:
        """Return the parts of one priority; bounds and strict mode only where they changed it."""
        return {
            name: float(column[job])
            for name, column in self.parts.items()
            if column[job] or name not in ("limit", "strict")
        }


def ages_s(pending: Sequence[PendingBenchmark], now: datetime) -> NDArray[np.float64]:
    """Return the time since submission, shape (jobs,); 0 for submissions in the future."""
    ages = [(now - each.submit_time).total_seconds() for each in pending]
    return np.maximum(np.array(ages, dtype=np.float64), 0.0)


def slacks_s(pending: Sequence[PendingBenchmark], now: datetime) -> NDArray[np.float64]:
    """Return the time to the deadline less the stated run time, shape (jobs,); NaN without one."""
    return np.array(
        [
            np.nan
            if each.deadline is None
            else (each.deadline - now).total_seconds() - (each.user_time_s or 0.0)
            for each in pending
        ],
        dtype=float,
    )


def priorities(
    pending: Sequence[PendingBenchmark],
    ages: NDArray[np.float64],
    slacks: NDArray[np.float64],
    strict: NDArray[np.bool_],
    policy: Policy,
) -> Priorities:
    """Compute priorities by the formula above.

    Args:
        pending: The benchmarks.
        ages: From `ages_s`.
        slacks: From `slacks_s`.
        strict: Shape (jobs,), bound to one board.
        policy: Its constants; in FIFO mode all get one, and where ``strict_priority`` is set
            strict ones get that.
    """
    settings = policy.priority
    if policy.priority_mode is PriorityMode.FIFO:
        parts = {"fifo": np.full(len(pending), settings.fifo, dtype=np.int64)}
    else:
        urgency = 1.0 - np.minimum(np.maximum(slacks / settings.deadline_horizon_s, 0.0), 1.0)
        urgency[np.isnan(urgency)] = 0.0
        waited = ages / settings.age_step_s if settings.age_step_s > 0 else np.zeros_like(ages)
        parts = {
            "type": np.array(
                [settings.type_points(each.benchmark_type) for each in pending], np.int64
            ),
            "user": _points(
                np.array([each.user_priority for each in pending], float) * settings.user_points
            ),
            "age": _points(np.minimum(waited, _MAX_AGE_POINTS)),
            "deadline": _points(urgency * settings.deadline_points),
        }
    total = np.zeros(len(pending), dtype=np.int64)
    for points in parts.values():
        total += points
    values = np.minimum(np.maximum(total, LOWEST), HIGHEST)
    parts["limit"] = values - total
    if policy.strict_priority is not None:
        parts["strict"] = np.where(strict, policy.strict_priority - values, 0)
        values = np.where(strict, policy.strict_priority, values)
    return Priorities(values=values, parts=parts)


def _points(points: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(points).astype(np.int64)
