"""How many benchmarks of one user, or group, may hold boards at once."""

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
        users = sorted(set(batch.job_users) & known.keys())
        groups = batch.knowledge.groups
        bounded = any(
            each is not None and each.max_running is not None
            for user in users
            for each in (known[user], groups.get(known[user].group_id or ""))
        )
        return _RunningLedger(batch) if bounded else None

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return (
            "takes no benchmark of a user, or group, that already has the maximum number on boards"
        )


class _RunningLedger(Ledger):
    """Counts the benchmarks on boards of each user, and of each group."""

    def __init__(self, batch: Batch) -> None:
        self._users = batch.job_users
        self._free = batch.probes[batch.class_of_job]
        self._known, self._groups = batch.knowledge.entitlements, batch.knowledge.groups
        self._running = Counter({user: each.running for user, each in self._known.items()})
        self._of_group = Counter({name: each.running for name, each in self._groups.items()})

    def refusal(self, job: int) -> WaitReason | None:
        known = self._known.get(self._users[job])
        if known is None or self._free[job]:
            return None
        if known.max_running is not None and self._running[self._users[job]] >= known.max_running:
            return waiting_reasons.quota(known.max_running)
        group = self._groups.get(known.group_id or "")
        if group is None or group.max_running is None or known.group_id is None:
            return None
        if self._of_group[known.group_id] < group.max_running:
            return None
        return waiting_reasons.quota(group.max_running, known.group_id)

    def place(self, job: int) -> None:
        self._count(job, 1)

    def withdraw(self, job: int) -> None:
        self._count(job, -1)

    def _count(self, job: int, more: int) -> None:
        user = self._users[job]
        self._running[user] += more
        if user in self._known and (group_id := self._known[user].group_id) is not None:
            self._of_group[group_id] += more
