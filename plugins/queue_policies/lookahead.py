"""Look-ahead: the rule under which the present queue would come out best orders it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Outlook, Queue, ranks_of

Floats = NDArray[np.float64]

PLAIN_RULES = ("fcfs", "sjf", "f1", "smallest area", "wfp3", "relative wait")
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
        rule: The rule that ordered them.
        slowdowns: Expected mean bounded slowdown of the jobs by rule; a lower bound where the
            rollout ended early because the rule was worse than one before it.
    """

    jobs: NDArray[np.intp]
    order: NDArray[np.intp]
    rule: str
    slowdowns: Mapping[str, float]


class Lookahead:
    """Orders each pool by the rule with the least expected mean bounded slowdown.

    At each decision the queue of each pool (a family of boards in the lab, the machine in a replay)
    is rolled out to its end under several rules: on the boards that are free now and those that
    come free, with EASY backfilling, without further arrivals. Past the guard time (``guard_s``)
    the older comes first and no benchmark is overtaken.
    """

    name = "lookahead"

    def __init__(
        self,
        *,
        rules: Sequence[str] = PLAIN_RULES,
        request_weight: float = math.inf,
        horizon_s: float = math.inf,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        """Take the rules to try.

        Args:
            rules: Of `edgeyard.scheduler.kernel.rollouts.RULES`.
            request_weight: How much the requested time counts next to each of the samples of the
                run time by earlier runs; inf: it alone counts.
            horizon_s: Delays count less the further away they are; see `roll_out`. inf: they don't.
            max_wait_s: A guard of its own, seconds; the lab's counts too.
        """
        from edgeyard.scheduler.kernel import rollouts

        self._rules = tuple(rules)
        self._numbers = np.array([rollouts.RULES.index(each) for each in rules], dtype=np.int64)
        self._request_weight = request_weight
        self._horizon_s = horizon_s
        self._max_wait_s = max_wait_s

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """Equal places of different pools go by age."""
        places = np.zeros(len(queue.ids))
        for pool in queue.derived(self._pruned):
            places[pool.order] = np.arange(len(pool.order))
        return ranks_of(queue, places, guarded=self._guarded(queue))

    def reason(self, queue: Queue, job: int) -> str:
        if self._guarded(queue)[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        for pool in queue.derived(self._explained):
            if job in pool.jobs:
                return _words(pool)
        return "by age: nothing is known of what it waits for"

    def _guarded(self, queue: Queue) -> NDArray[np.bool_]:
        return queue.guarded | (queue.waits_s >= self._max_wait_s)

    def _pruned(self, queue: Queue) -> tuple[PoolRollout, ...]:
        return self._pools(queue, prune=True)

    def _explained(self, queue: Queue) -> tuple[PoolRollout, ...]:
        return self._pools(queue, prune=False)

    def _pools(self, queue: Queue, *, prune: bool) -> tuple[PoolRollout, ...]:
        outlook = queue.outlook
        if outlook is None:  # nodes of several resources: by age
            return ()
        eldest = np.lexsort((np.array(queue.ids, dtype=np.str_), -queue.ages_s))
        guarded = self._guarded(queue)
        found = []
        for pool in np.unique(outlook.pools).tolist():
            jobs = eldest[outlook.pools[eldest] == pool]
            found.append(self._roll_out(queue, outlook, pool, jobs, guarded, prune))
        return tuple(found)

    def _roll_out(
        self,
        queue: Queue,
        outlook: Outlook,
        pool: int,
        jobs: NDArray[np.intp],
        guarded: NDArray[np.bool_],
        prune: bool,
    ) -> PoolRollout:
        from edgeyard.scheduler.kernel.rollouts import RunningJobs, WaitingJobs, look_ahead

        run_s, weight = self._expected(
            queue.expected_s[jobs],
            outlook.samples_s[jobs],
            outlook.weights[jobs],
            np.zeros(len(jobs)),
        )
        waiting = WaitingJobs(
            submit_s=queue.submit_times_s[jobs],
            wait_s=queue.waits_s[jobs],
            run_s=run_s,
            bound_s=np.maximum(queue.expected_s[jobs], run_s),
            weight=weight,
            procs=queue.processors[jobs],
            first=guarded[jobs].astype(np.int64),
        )
        here = np.flatnonzero(outlook.running_pools == pool)
        elapsed_s = outlook.elapsed_s[here]
        total_s, _ = self._expected(
            outlook.requested_s[here],
            outlook.running_samples_s[here],
            outlook.running_weights[here],
            elapsed_s,
        )
        running = RunningJobs(
            left_s=total_s - elapsed_s,
            bound_s=np.maximum(outlook.requested_s[here], total_s) - elapsed_s,
            procs=outlook.running_processors[here],
        )
        costs = np.zeros(len(self._numbers))
        order = look_ahead(
            self._numbers,
            waiting,
            int(outlook.free[pool]),
            running,
            MAX_JOBS,
            self._horizon_s,
            0.0,  # no later jobs: to assume them gained nothing on logs
            costs,
            prune,
        )
        so_far = float((waiting.wait_s * weight)[:MAX_JOBS].sum())
        count = max(min(len(jobs), MAX_JOBS), 1)
        slowdowns = 1.0 + (costs + so_far) / count
        return PoolRollout(
            jobs=jobs,
            order=jobs[order],
            rule=self._rules[int(np.argmin(costs))],
            slowdowns=dict(zip(self._rules, slowdowns.tolist(), strict=True)),
        )

    def _expected(
        self, requested_s: Floats, samples_s: Floats, weights: Floats, elapsed_s: Floats
    ) -> tuple[Floats, Floats]:
        """Return expected run times and weights, shape (jobs,) each; see `expected_run`."""
        from edgeyard.scheduler.kernel.rollouts import expected_runs

        request_weight = self._request_weight
        if math.isinf(request_weight):
            samples_s, weights, request_weight = samples_s[:, :0], weights[:, :0], 1.0
        return expected_runs(requested_s, samples_s, weights, request_weight, elapsed_s)


def _words(pool: PoolRollout) -> str:
    if len(pool.jobs) == 1:
        return "alone in the queue of its boards"
    best = pool.slowdowns[pool.rule]
    if math.isinf(best):
        return f"order of rule {pool.rule}: none of its boards is available"
    others = sorted((cost, rule) for rule, cost in pool.slowdowns.items() if rule != pool.rule)
    words = f"order of rule {pool.rule}: expected mean bounded slowdown {best:.3g}"
    return words + (f" against {others[0][0]:.3g} by {others[0][1]}" if others else "")
