"""How many benchmarks of one user may hold boards at once."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Ledger, Refusal, UserFilter
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason


class QuotaFilter(UserFilter):
    """Places no more of a user's benchmarks than the account may have on boards at once.

    It refuses no board: its ledger stops the user, whichever board is free.
    """

    name = "quota"
    refusals = (Refusal(WaitingReason.QUOTA, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return np.zeros((1, batch.shape[1]), dtype=np.uint8)

    def ledger(self, batch: Batch) -> _RunningLedger | None:
        known = batch.knowledge.entitlements
        if not known:
            return None
        max_running = {
            user: known[user].max_running or 0
            for user in sorted(set(batch.job_users) & known.keys())
            if known[user].max_running is not None
        }
        return _RunningLedger(batch, max_running) if max_running else None

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return "takes no benchmark of a user who already has the maximum number on boards"


class _RunningLedger(Ledger):
    """Counts each user's benchmarks on boards."""

    def __init__(self, batch: Batch, max_running: dict[str, int]) -> None:
        self._users = batch.job_users
        self._free = batch.probes[batch.class_of_job]
        self._max_running = max_running
        known = batch.knowledge.entitlements
        self._running = Counter({user: known[user].running for user in max_running})

    def refusal(self, job: int) -> WaitReason | None:
        user = self._users[job]
        limit = self._max_running.get(user)
        if limit is None or self._free[job] or self._running[user] < limit:
            return None
        return waiting_reasons.quota(limit)

    def place(self, job: int) -> None:
        self._running[self._users[job]] += 1

    def withdraw(self, job: int) -> None:
        self._running[self._users[job]] -= 1
