"""Chance: what every other scorer should beat."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, mixed
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class SeededRandom:
    """A number between 0 and 1 for each pair, from the seed, the class and the board's name alone.

    A board's draw and a class's digest, mixed.
    """

    name = "random"
    objective = "chance"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        draws = np.random.default_rng(batch.seed).integers(0, 1 << 63, batch.shape[1], np.uint64)
        of_board = np.empty_like(draws)
        of_board[batch.board_order] = draws
        of_class = np.array([_digest(batch, row) for row in range(batch.shape[0])], dtype=np.uint64)
        drawn = mixed(of_board[pairs.boards] ^ of_class[pairs.rows])
        return (drawn >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


def _digest(batch: Batch, row: int) -> int:
    """Return a digest of a class's requirements, whatever the order of benchmarks."""
    required = (
        batch.families[row],
        batch.target_uids[row],
        batch.ram_bytes[row],
        batch.storage_bytes[row],
        batch.constraints[row],
        batch.kinds[row],
    )
    return int.from_bytes(hashlib.blake2b(repr(required).encode(), digest_size=8).digest())
