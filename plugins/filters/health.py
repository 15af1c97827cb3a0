"""Boards that are offline or unhealthy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class HealthFilter(Filter):
    """Refuses boards that no ready host reports, and those that their host finds unusable."""

    name = "health"
    refusals = (
        Refusal(WaitingReason.BOARD_OFFLINE, never=False),
        Refusal(WaitingReason.BOARD_UNHEALTHY, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        snapshot = batch.snapshot
        offline = (~snapshot.online).view(np.uint8)
        return np.where(snapshot.healthy, offline, np.uint8(2))[None, :]

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        state = "offline" if code == 1 else "unhealthy"
        reason = batch.snapshot.reasons[board]
        return f"is {state} ({reason})" if reason else f"is {state}"
