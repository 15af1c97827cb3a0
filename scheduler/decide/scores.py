"""The scorers' answers, made one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Proposal
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import PluginRunner

NEUTRAL = 0.5
"""Score of a board of which nobody says anything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """What was said of the boards.

    Attributes:
        combined: Shape (classes, boards), in [0, 1]; NaN nowhere.
        proposals: Of the scorers that answered.
        rewards: By scorer, from the evaluator.
        fallback: No scorer of the policy answered.
    """

    combined: NDArray[np.float32]
    proposals: tuple[Proposal, ...]
    rewards: Mapping[str, float]
    fallback: bool


def score(
    batch: Batch, feasible: NDArray[np.bool_], plugins: Plugins, runner: PluginRunner
) -> Scores:
    """Ask all scorers, the fallback if none answers; if that fails too, all boards are equal."""
    proposals = [
        proposal
        for scorer, weight in plugins.scorers
        if (proposal := runner.score(scorer, weight, batch, feasible)) is not None
    ]
    fallback = not proposals and plugins.fallback is not None
    if not proposals and plugins.fallback is not None:
        answer = runner.score(plugins.fallback, 1.0, batch, feasible)
        proposals = [answer] if answer is not None else []
    rewards: Mapping[str, float] = {}
    if plugins.evaluator is not None and proposals:
        rewards = runner.evaluate(plugins.evaluator, batch, proposals)
    combined = runner.combine(plugins.aggregator, batch, proposals) if proposals else None
    if combined is None:
        combined = np.broadcast_to(np.float32(NEUTRAL), batch.shape)
    elif np.isnan(combined).any():
        combined = np.nan_to_num(combined, nan=NEUTRAL)
    return Scores(combined=combined, proposals=tuple(proposals), rewards=rewards, fallback=fallback)
