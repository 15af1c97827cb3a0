"""Learned scorers: an ONNX file with a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.learning.manifest import Output
from edgeyard.scheduler.learning.model import Model, load_model, manifests


class LearnedScorer:
    """What a model says of each pair, as a score.

    * ``log_seconds``: with t the run time at the manifest's quantile, ``t_best / t``: 1 for the
      fastest board of a class, a half for one that takes twice as long;
    * ``failure``: ``1 - p``;
    * ``score``: as it is.
    """

    kind = ScorerKind.AI

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """Of the manifest."""
        return self._model.manifest.name

    @property
    def objective(self) -> str:
        """Of the manifest."""
        return self._model.manifest.objective

    def answer(self, batch: Batch, pairs: Pairs) -> tuple[NDArray[np.float32], Mapping[str, float]]:
        """Return scores, and the shape of the model's input; see `DiagnosticScorer.answer`."""
        columns = len(self._model.manifest.inputs)
        return self.score(batch, pairs), {"rows": float(len(pairs)), "columns": float(columns)}

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        manifest = self._model.manifest
        found = self._model.predict(batch, pairs.rows, pairs.boards)
        if manifest.output is Output.LOG_SECONDS:
            log_s = found[:, manifest.quantiles.index(manifest.rank_by)]
            best = by_class(pairs, log_s, np.fmin, 0.0)
            log_s -= best[pairs.rows]
            return np.exp(-log_s)
        value = np.clip(found[:, 0], 0.0, 1.0)
        return 1.0 - value if manifest.output is Output.FAILURE else value


def learned(folder: Path | None = None) -> Mapping[str, Callable[[], LearnedScorer]]:
    """Factories by name, for the manifests of a folder, else for those that Edgeyard brings.

    A factory reads, checks and loads its model when it is called.

    Raises:
        ConfigError: A manifest is wrong.
    """
    return {name: partial(load_learned, path) for name, path in manifests(folder).items()}


def shipped(name: str) -> LearnedScorer:
    """One of the scorers that Edgeyard brings.

    Raises:
        ConfigError: It can't be used, and why.
    """
    return load_learned(manifests()[name])


def load_learned(manifest: Path) -> LearnedScorer:
    """Return the scorer of one manifest.

    Raises:
        ConfigError: It can't be used, and why.
    """
    return LearnedScorer(load_model(manifest))


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Callable[[Path], Scorer] = load_learned
