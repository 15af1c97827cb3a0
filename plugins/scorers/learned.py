"""Learned scorers: an ONNX file with a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.learning.features import unrated
from edgeyard.scheduler.learning.manifest import Output
from edgeyard.scheduler.learning.model import Model, any_cause_chance, load_model, manifests

SHIPPED = Path(__file__).parent / "models"
"""Models that Edgeyard brings."""


class LearnedScorer(DetailedScorer):
    """What a model says of each pair, in the unit that its manifest's output has.

    ``log_seconds`` are stated in seconds, at the manifest's quantile ``rank_by``. It abstains for
    benchmarks whose ``extra`` lacks a number that the manifest requires.
    """

    kind = ScorerKind.MODEL

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.manifest.name

    @property
    def objective(self) -> str:
        return self._model.manifest.objective

    @property
    def unit(self) -> ScoreUnit:
        return _UNITS[self._model.manifest.output]

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """Return the model's scores.

        The facts are the shape of the model's input and, by its name, whether each input of
        ``extra`` is required (1, otherwise 0): explanations name what a benchmark lacks.
        """
        manifest = self._model.manifest
        found = self._model.predict(batch, pairs.rows, pairs.boards)
        found[unrated(batch, manifest.inputs)[pairs.rows]] = np.nan
        facts = {"rows": float(len(pairs)), "columns": float(len(manifest.inputs))}
        facts |= {
            each.column: float(each.default is None) for each in manifest.inputs if each.is_extra
        }
        if manifest.output is Output.LOG_SECONDS:
            log_s = found[:, manifest.quantiles.index(manifest.rank_by)]
            return Answer(scores=np.exp(log_s), facts=facts)
        if manifest.output is Output.FAILURE:
            return Answer(scores=any_cause_chance(found).astype(np.float32), facts=facts)
        return Answer(scores=np.clip(found[:, 0], 0.0, 1.0), facts=facts)


_UNITS = {
    Output.LOG_SECONDS: ScoreUnit.SECONDS,
    Output.FAILURE: ScoreUnit.FAILURE,
    Output.SCORE: ScoreUnit.PREFERENCE,
}


def learned(folder: Path) -> Mapping[str, Callable[[], LearnedScorer]]:
    """Return factories by name, for the manifests of a folder.

    A factory reads, checks and loads its model when it is called.

    Raises:
        ConfigError: A manifest is wrong.
    """
    return {name: partial(load_learned, path) for name, path in manifests(folder).items()}


def load_learned(manifest: Path) -> LearnedScorer:
    """Return the scorer of one manifest.

    Raises:
        ConfigError: It can't be used, and why.
    """
    return LearnedScorer(load_model(manifest))
