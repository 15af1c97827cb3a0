"""Equal shares of the lab for its users, with a memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of

UNKNOWN_RUN_S = 60.0
"""Run time of a benchmark without any prediction."""


class FairShare:
    """Who used least of the lab for their share comes first.

    Weighted fair queueing over board-seconds: benchmark k of user u, in u's own order (priority,
    then age), has the virtual finish ::

        F(u, k) = (usage(u) + run(u, 1) + ... + run(u, k)) / share(u)

    and the least F comes first. ``usage`` is what u's runs used, halved each half-life: who waited
    last week gets the boards now, and who filled the lab last month is forgiven. A board is what
    all compete for, so board-seconds are each user's dominant resource.

    While two users both have benchmarks waiting for the same boards, what each gets by its share
    differs from the other by no more than one run of each; a single benchmark is not overtaken
    by younger ones past the guard time (``guard_s``).
    """

    name = "fair_share"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal finish the older comes first."""
        return ranks_of(queue, _finish(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        share = f", a share of {queue.shares[job]:g}" if queue.shares[job] != 1.0 else ""
        return f"its user used {queue.usage_board_s[job]:.0f} board-seconds lately{share}"


def _finish(queue: Queue) -> NDArray[np.float64]:
    """Shape (jobs,): F of the formula above."""
    if not queue.ids:
        return np.zeros(0)
    run_s = np.nan_to_num(queue.run_times_s, nan=UNKNOWN_RUN_S)
    _, user = np.unique(np.array(queue.users, dtype=np.str_), return_inverse=True)
    own = np.lexsort((np.array(queue.ids, dtype=np.str_), -queue.ages_s, -queue.priorities, user))
    total = np.cumsum(run_s[own])
    first = np.flatnonzero(np.diff(user[own], prepend=-1))
    before = np.repeat(total[first] - run_s[own][first], np.diff(first, append=len(own)))
    finish = np.empty(len(own))
    finish[own] = total - before
    return np.asarray((queue.usage_board_s + finish) / queue.shares, dtype=np.float64)
