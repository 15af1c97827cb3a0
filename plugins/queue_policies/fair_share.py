"""Equal shares of the lab for its users, with a memory."""

from __future__ import annotations

from typing import Any

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

    Users of a group share as one: among themselves they go by the F above, and benchmark k of
    group g, in that order, has the virtual finish ::

        F(g, k) = (usage(g) + run(g, 1) + ... + run(g, k)) / share(g)

    which is compared with the F of other groups and of users without a group. ``usage(g)`` counts
    the runs of everybody who was a member when the run was placed.

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
        own = f"its user used {queue.usage_board_s[job]:.0f} board-seconds lately{share}"
        if not queue.groups or not queue.groups[job]:
            return own
        weight = queue.group_shares[job]
        share = f", a share of {weight:g}" if weight != 1.0 else ""
        used = queue.group_usage_board_s[job]
        return f"its group {queue.groups[job]} used {used:.0f} board-seconds lately{share}; {own}"


def _finish(queue: Queue) -> NDArray[np.float64]:
    """Shape (jobs,): F of the formula above."""
    if not queue.ids:
        return np.zeros(0)
    run_s = np.nan_to_num(queue.run_times_s, nan=UNKNOWN_RUN_S)
    by_age = (queue.id_texts, -queue.ages_s)
    used_s = _summed(run_s, queue.users, (*by_age, -queue.priorities))
    finish = np.asarray((queue.usage_board_s + used_s) / queue.shares, dtype=np.float64)
    if not queue.groups:
        return finish
    grouped = np.array([bool(each) for each in queue.groups], dtype=bool)
    used_s = _summed(run_s, queue.groups, (*by_age, finish))
    of_group = (queue.group_usage_board_s + used_s) / queue.group_shares
    return np.where(grouped, of_group, finish)


def _summed(
    run_s: NDArray[np.float64], names: tuple[str, ...], keys: tuple[NDArray[Any], ...]
) -> NDArray[np.float64]:
    """Shape (jobs,): run times up to each, of those that have its name, in the order of keys."""
    _, number = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    own = np.lexsort((*keys, number))
    total = np.cumsum(run_s[own])
    first = np.flatnonzero(np.diff(number[own], prepend=-1))
    before = np.repeat(total[first] - run_s[own][first], np.diff(first, append=len(own)))
    summed = np.empty(len(own))
    summed[own] = total - before
    return summed
