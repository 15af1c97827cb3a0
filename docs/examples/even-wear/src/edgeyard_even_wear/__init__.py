"""Boards take turns, so that they wear alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit

_DAY_S = 86400.0


class EvenWear:
    """The board that worked least first.

    ``1 - wear / most``: wear is the seconds of a board's past runs, halved for each half-life since
    they ended; most is that of the most worn board on the lab's list. Without any past run all
    boards score 1.
    """

    name = "even_wear"
    objective = "wear"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def __init__(self, half_life_days: float = 30.0) -> None:
        """Make one; policies state the arguments as options.

        Args:
            half_life_days: After so many days a run counts half; above 0.

        Raises:
            ValueError: It is not above 0.
        """
        if not half_life_days > 0.0:
            raise ValueError(f"half_life_days is {half_life_days!r}; it must be above 0")
        self._half_life_s = half_life_days * _DAY_S

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`; the same for all classes."""
        runs = batch.knowledge.runs
        past = runs.columns
        ages_s = batch.now.timestamp() - past.ended_s
        # A task that never started wore nothing.
        worn_s = np.nan_to_num(past.run_s) * 0.5 ** (ages_s / self._half_life_s)
        # One more than there are names: number -1, a board without a past, is the last, and 0.
        wear_s = np.bincount(past.boards, worn_s, minlength=len(runs.names.boards.names) + 1)
        column = wear_s[runs.names.boards.of(batch.snapshot.uids)]
        max_s = column.max(initial=0.0)
        score = 1.0 - column / max_s if max_s > 0.0 else np.ones(len(column))
        return score.astype(np.float32)[pairs.boards]


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = EvenWear()
