"""Boards that are not in quarantine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class QuarantineFilter(Filter):
    """Refuses boards in quarantine, except to the probe that tests them."""

    name = "quarantine"
    refusals = (Refusal(WaitingReason.BOARD_UNHEALTHY, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        quarantined = batch.knowledge.quarantined
        if not quarantined:
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        in_quarantine = np.array(
            [uid in quarantined for uid in batch.snapshot.uids], dtype=np.uint8
        )
        if not batch.probes.any():
            return in_quarantine[None, :]
        return np.where(batch.probes[:, None], np.uint8(0), in_quarantine[None, :])

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        reason = batch.knowledge.quarantined[batch.snapshot.uids[board]]
        return f"is in quarantine ({reason})" if reason else "is in quarantine"
