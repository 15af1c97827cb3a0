"""Look-ahead: the rule under which the queue comes out best in futures like the past orders it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Outlook, Queue, ranks_of

if TYPE_CHECKING:
    from edgeyard.scheduler.kernel.rollouts import ArrivedJobs

Floats = NDArray[np.float64]

MAX_JOBS = 1000
"""The oldest so many of a pool are rolled out; those behind them follow the same rule."""
MAX_WAIT_S = 30 * 86400.0
"""Who has waited so long is not overtaken any more, also where no guard is set."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolRollout:
    """Order and rule that were found for the jobs of one pool.

    Attributes:
        jobs: Shape (its jobs,): rows of the queue, the oldest first.
        order: The same rows, the first to the last.
        rule: The rule that ordered them; None: none of its boards is available, so it is by age.
        base: The rule that is left only for one that is better beyond chance.
        gain: Share of the expected delay that ``rule`` saves against the base.
        error: Twice its standard error; NaN: there was one future alone.
        futures: In how many futures the queue was rolled out.
    """

    jobs: NDArray[np.intp]
    order: NDArray[np.intp]
    rule: str | None
    base: str = ""
    gain: float = 0.0
    error: float = math.nan
    futures: int = 0


class Lookahead:
    """Orders each pool by the rule with the least expected delay, in slowdowns.

    At each decision the queue of each pool (a family of boards in the lab, the machine in a replay)
    is rolled out under several rules in the same futures: on the boards that are free now and those
    that come free, with EASY backfilling, with jobs that arrive as in parts of the past where it is
    known. The base, the least squared run time times processors, is left only for a rule that is
    better beyond two standard errors. Past the guard time (``guard_s``) the older comes first and
    no benchmark is overtaken.
    """

    name = "lookahead"

    def __init__(self, *, max_wait_s: float = MAX_WAIT_S) -> None:
        """Take the guard.

        Args:
            max_wait_s: A guard of its own, seconds; the lab's counts too.
        """
        self._max_wait_s = max_wait_s

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """Equal places of different pools go by age."""
        places = np.zeros(len(queue.ids))
        for pool in queue.derived(self._pools):
            places[pool.order] = np.arange(len(pool.order))
        return ranks_of(queue, places, guarded=self._guarded(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if self._guarded(queue)[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        for pool in queue.derived(self._pools):
            if job in pool.jobs:
                return _words(pool)
        return "by age: nothing is known of what it waits for"

    def _guarded(self, queue: Queue) -> NDArray[np.bool_]:
        return queue.guarded | (queue.waits_s >= self._max_wait_s)

    def _pools(self, queue: Queue) -> tuple[PoolRollout, ...]:
        outlook = queue.outlook
        if outlook is None:  # nodes of several resources: by age
            return ()
        eldest = np.lexsort((np.array(queue.ids, dtype=np.str_), -queue.ages_s))
        guarded = self._guarded(queue)
        found = []
        for pool in np.unique(outlook.pools).tolist():
            jobs = eldest[outlook.pools[eldest] == pool]
            found.append(self._roll_out(queue, outlook, pool, jobs, guarded))
        return tuple(found)

    def _roll_out(
        self,
        queue: Queue,
        outlook: Outlook,
        pool: int,
        jobs: NDArray[np.intp],
        guarded: NDArray[np.bool_],
    ) -> PoolRollout:
        from edgeyard.scheduler.kernel import rollouts

        here = np.flatnonzero(outlook.running_pools == pool)
        free = int(outlook.free[pool])
        if not free and not len(here):
            return PoolRollout(jobs=jobs, order=jobs, rule=None)
        waiting = rollouts.waiting_jobs(
            submit_s=queue.submit_times_s[jobs],
            wait_s=queue.waits_s[jobs],
            requested_s=queue.expected_s[jobs],
            samples_s=outlook.samples_s[jobs],
            weights=outlook.weights[jobs],
            procs=queue.processors[jobs],
            first=guarded[jobs],
        )
        running = rollouts.running_jobs(
            elapsed_s=outlook.elapsed_s[here],
            requested_s=outlook.requested_s[here],
            samples_s=outlook.running_samples_s[here],
            weights=outlook.running_weights[here],
            procs=outlook.running_processors[here],
        )
        costs = np.empty((len(rollouts.RULES), rollouts.FUTURES))
        oldest = rollouts.first_of(waiting, MAX_JOBS)
        rule, order = rollouts.look_ahead(oldest, running, free, _past(outlook, pool), costs)
        if len(jobs) > MAX_JOBS:
            keys = np.empty(len(jobs))
            rollouts.rule_keys(rule, waiting, keys)
            order = rollouts.order_by(keys, waiting)
        gain, error, futures = _gain(costs, rule)
        return PoolRollout(
            jobs=jobs,
            order=jobs[order],
            rule=rollouts.RULES[rule],
            base=rollouts.RULES[0],
            gain=gain,
            error=error,
            futures=futures,
        )


def _past(outlook: Outlook, pool: int) -> ArrivedJobs:
    """Return what has arrived for a pool."""
    from edgeyard.scheduler.kernel.rollouts import ArrivedJobs, arrived_jobs

    past = outlook.past
    if past is None:
        none = np.zeros(0)
        return ArrivedJobs(none, none, none, none, np.zeros(0, dtype=np.int64))
    here = np.flatnonzero(past.pools == pool)
    return arrived_jobs(
        ago_s=past.ago_s[here],
        requested_s=past.requested_s[here],
        samples_s=past.samples_s[here],
        weights=past.weights[here],
        run_s=past.run_s[here],
        procs=past.processors[here],
    )


def _gain(costs: Floats, rule: int) -> tuple[float, float, int]:
    """Return which share of the base's costs a rule saves, twice its standard error, futures."""
    futures = int(np.count_nonzero(~np.isnan(costs[0])))
    base, its = costs[0, :futures], costs[rule, :futures]
    mean = float(base.mean())
    if mean <= 0.0:
        return 0.0, math.nan, futures
    error = 2.0 * float((base - its).std(ddof=1)) / math.sqrt(futures) if futures > 1 else math.nan
    return float((base - its).mean()) / mean, error / mean, futures


def _words(pool: PoolRollout) -> str:
    if len(pool.jobs) == 1:
        return "alone in the queue of its boards"
    if pool.rule is None:
        return "by age: none of its boards is available"
    many = f" in {pool.futures} futures like the past" if pool.futures > 1 else ""
    if pool.rule == pool.base:
        return f"order of rule {pool.rule}: no other rule is expected to delay less{many}"
    within = "" if math.isnan(pool.error) else f", ± {100.0 * pool.error:.0f}"
    return (
        f"order of rule {pool.rule}: expected {100.0 * pool.gain:.0f} % less delay than by "
        f"{pool.base}{many}{within}"
    )
