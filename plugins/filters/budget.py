"""Enough credits: the benchmark's own budget, and what its user's account has left."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Ledger, Refusal, UserFilter
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.run_bounds import MIN_RUN_S
from edgeyard.scheduler.prediction.quick_runs import INFEASIBLE, quick_runs, trial_phrase


class BudgetFilter(UserFilter):
    """Refuses boards on which even a quick run is predicted to cost more than ``user_budget``.

    A run is stopped when its budget is used up. A prediction may be wrong, so it refuses for the
    policy's ``prediction_wait_s`` at most; only a budget that pays for no run at all is refused
    finally. Its ledger also stops users whose account, or group, has fewer credits left than the
    maximum cost of the benchmark, which is reserved when it is placed: its time limit at its
    family's rate.
    """

    name = "budget"
    refusals = (
        Refusal(WaitingReason.BUDGET, never=True),
        Refusal(WaitingReason.BUDGET, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return quick_runs(batch).codes(batch, batch.budget_times_s, of_run=True)

    def ledger(self, batch: Batch) -> _Credits | None:
        known = batch.knowledge.entitlements
        if not known:
            return None
        groups = batch.knowledge.groups
        users = sorted(set(batch.job_users) & known.keys())
        group_of = {user: known[user].group_id or "" for user in users}
        left = _stated({user: known[user].credits_left for user in users})
        named = groups.keys() & group_of.values()
        of_group = _stated({name: groups[name].credits_left for name in named})
        return _Credits(batch, left, group_of, of_group) if left or of_group else None

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        budget = f"its budget of {_cost(batch, row, batch.budget_times_s[row]):g} credits"
        if code == INFEASIBLE:
            return f"can't run anything for {budget}"
        return (
            f"is predicted to be too slow: even a quick run costs more there than {budget}; "
            f"{trial_phrase(batch, row)}"
        )

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return (
            f"its budget of {_cost(batch, row, batch.budget_times_s[row]):g} credits pays for no "
            f"run; accepted: at least {_cost(batch, row, MIN_RUN_S):g}"
        )


class _Credits(Ledger):
    """Counts what the benchmarks of each user, and of each group, reserve."""

    def __init__(
        self,
        batch: Batch,
        left: dict[str, float],
        group_of: Mapping[str, str],
        of_group: dict[str, float],
    ) -> None:
        self._users = batch.job_users
        limits_s = batch.time_limits_s
        costs = np.array([_cost(batch, row, limits_s[row]) for row in range(batch.shape[0])])
        self._max_cost = np.where(batch.probes, 0.0, np.round(costs, 6))[batch.class_of_job]
        self._left = left
        self._group_of, self._of_group = group_of, of_group

    def refusal(self, job: int) -> WaitReason | None:
        user, cost = self._users[job], float(self._max_cost[job])
        if cost > self._left.get(user, math.inf):
            return waiting_reasons.budget(cost)
        group = self._group_of.get(user, "")
        if cost > self._of_group.get(group, math.inf):
            return waiting_reasons.budget(cost, group)
        return None

    def place(self, job: int) -> None:
        self._take(job, float(self._max_cost[job]))

    def withdraw(self, job: int) -> None:
        self._take(job, -float(self._max_cost[job]))

    def _take(self, job: int, credits: float) -> None:
        user = self._users[job]
        for left, name in ((self._left, user), (self._of_group, self._group_of.get(user, ""))):
            if name in left:
                left[name] = round(left[name] - credits, 6)


def _stated(credits: Mapping[str, float | None]) -> dict[str, float]:
    return {name: left for name, left in credits.items() if left is not None}


def _cost(batch: Batch, row: int, seconds: float) -> float:
    return batch.knowledge.rate(batch.families[row], batch.now) * float(seconds)
