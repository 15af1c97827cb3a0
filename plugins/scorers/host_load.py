"""Boards of hosts with little to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class HostLoad:
    """The least busy host first: its other work disturbs what is measured.

    ``1 - max(cpu, memory)``, 0-1 each. Abstains for hosts that do not report it.
    """

    name = "host_load"
    objective = "load"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """All classes get the same scores."""
        loads = batch.knowledge.host_loads
        if not loads:
            return np.full(len(pairs), np.nan, dtype=np.float32)
        column = np.array(
            [
                np.nan if (load := loads.get(host)) is None else 1.0 - max(load.cpu, load.memory)
                for host in batch.snapshot.hosts
            ],
            dtype=np.float32,
        )
        return np.clip(column, 0.0, 1.0)[pairs.boards]
