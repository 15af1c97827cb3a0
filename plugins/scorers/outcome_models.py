"""Boards by the lab's own models: the registered ones that are active, otherwise by past runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgeyard.plugins.scorers.comparable import Comparable
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.scorers.reliable import Reliable
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.learning.active import (
    ModelPrediction,
    predicted_failures,
    predicted_measurements,
    predicted_run_times,
)

_Predict = Callable[[Batch, Pairs], ModelPrediction | None]


class _OfActiveModel(DetailedScorer):
    """The numbers of an active model, and the history's where it has none.

    Each answer states which of the two it is by its kind.
    """

    kind = ScorerKind.HISTORY

    def __init__(self, history: DetailedScorer, predict: _Predict) -> None:
        self._history, self._predict = history, predict

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """The facts are the model and its number of pairs."""
        return _corrected(self._history.answer(batch, pairs), self._predict(batch, pairs))


class RunTimeModel(_OfActiveModel):
    """The run time that the active model of run times expects, with its standard error.

    Where no model is active, or it is uncertain, it answers as `Fastest` does.
    """

    name = "run_time_model"
    objective = "run time"
    unit = ScoreUnit.SECONDS

    def __init__(self) -> None:
        """Take the history's answer from the scorer that states it."""
        super().__init__(Fastest(), predicted_run_times)


class FailureModel(_OfActiveModel):
    """The chance of a failure that the active model of failures expects, with its standard error.

    Where no model is active, or it is uncertain, it answers as `Reliable` does.
    """

    name = "failure_model"
    objective = "failures"
    unit = ScoreUnit.FAILURE

    def __init__(self) -> None:
        """Take the history's answer from the scorer that states it."""
        super().__init__(Reliable(), predicted_failures)


class MeasurementModel(_OfActiveModel):
    """The chance that the number is comparable, as the active model of measurements expects.

    Where no model is active, or it is uncertain, it answers as `Comparable` does.
    """

    name = "measurement_model"
    objective = "comparable numbers"
    unit = ScoreUnit.PREFERENCE

    def __init__(self) -> None:
        """Take the history's answer from the scorer that states it."""
        super().__init__(Comparable(), _chances_of_comparable)


def _chances_of_comparable(batch: Batch, pairs: Pairs) -> ModelPrediction | None:
    found = predicted_measurements(batch, pairs)
    return None if found is None else replace(found, values=1.0 - found.values)


def _corrected(history: Answer, found: ModelPrediction | None) -> Answer:
    """Return the model's numbers where it has any, and the history's otherwise."""
    if found is None or not len(history.scores):
        return history
    known = ~np.isnan(found.values)
    if found.problem or not known.any():
        why = found.problem or f"model {found.reference} is uncertain of all boards"
        return Answer(
            scores=history.scores, errors=history.errors, fallback=f"past runs, because {why}"
        )
    scores = np.where(known, found.values, history.scores).astype(np.float32)
    others = np.full(len(scores), np.nan) if history.errors is None else history.errors
    errors = np.where(known, found.errors, others)
    return Answer(
        scores=scores,
        errors=None if history.errors is None else errors.astype(np.float32),
        facts={found.reference: float(known.sum())},
        kind=ScorerKind.MODEL,
    )
