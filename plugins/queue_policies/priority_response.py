"""Priority first, then the response ratio: waiting time over expected run time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.queue_policies.priority_age import AGE_STEP_S, PriorityAge
from edgeyard.scheduler.framework.batch import Queue, ranks_of

MIN_RUN_S = 1.0
"""Shorter expectations count as this one: a start alone takes about as long."""


class PriorityResponse:
    """The order of `PriorityAge`, in which neighbours that differ only by age change places.

    Of neighbours with the same points for type, user and deadline the one with the highest response
    ratio comes first::

        (whole minutes of waiting + 1) x 60 s / expected run time

    So among those that have just come the shortest is first, and each that waits comes to the front
    the sooner the shorter it is, but all do. Source: Brinch Hansen, "An Analysis of Response Ratio
    Scheduling", IFIP Congress 1971 (highest response ratio next); the minute lets short ones that
    have just come pass. Who comes before one with other points is as with `PriorityAge`, and past
    the guard time (``guard_s``) the older comes first.

    A user's benchmarks beyond their first turn (`edgeyard.scheduler.framework.batch.TURN_SIZE`), in
    this order, come after the first turns of all others. What nothing is known of, nor a bound
    stated, counts as the median of the others.
    """

    name = "priority_response"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal ratio the older, then those whose campaign has started, then by id."""
        base = queue.base_priorities
        if base is None:
            return PriorityAge().order(queue)
        steps = np.floor(queue.ages_s / AGE_STEP_S)
        not_begun = (~queue.partly_running).astype(np.float64)
        keys = (-queue.priorities, -steps, not_begun)
        own = _by_ratio(queue, ranks_of(queue, *keys), base)
        turns = queue.turns_in(own)
        if not turns.any():
            return own
        return _by_ratio(queue, ranks_of(queue, turns, *keys), base, turns)

    def reason(self, queue: Queue, job: int) -> str:
        words = PriorityAge().reason(queue, job)
        if queue.guarded[job] or queue.base_priorities is None:
            return words
        if np.isnan(queue.run_times_s[job]):
            return f"{words}, its run time is not known"
        ratio, run_s = queue.derived(_ratios)[job], queue.run_times_s[job]
        expected = f"{run_s:.0f}" if run_s >= 10.0 else f"{run_s:.2g}"
        return f"{words}, expected to run for about {expected} s: response ratio {ratio:.2g}"


def _ratios(queue: Queue) -> NDArray[np.float64]:
    """Return the response ratio of each benchmark, shape (jobs,)."""
    waits_s = (np.floor(queue.waits_s / AGE_STEP_S) + 1.0) * AGE_STEP_S
    return np.asarray(waits_s / np.maximum(queue.expected_s, MIN_RUN_S), dtype=np.float64)


def _by_ratio(queue: Queue, ranks: NDArray[np.intp], *same: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return ranks in which neighbours with the same values are in the order of their ratios.

    Those that are past the guard keep their places.
    """
    order = np.argsort(ranks)
    differs = queue.guarded[order]
    for values in same:
        differs[1:] |= np.diff(values[order]) != 0
    differs[1:] |= queue.guarded[order][:-1]
    if differs[1:].all():  # no run time has to be predicted
        return ranks
    block = np.cumsum(differs)
    order = order[np.lexsort((-queue.derived(_ratios)[order], block))]
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return found
