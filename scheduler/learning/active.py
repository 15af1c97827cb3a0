"""What the active registered models predict, where they are certain enough.

A prediction is NaN, so that the history counts instead, where

- an input lies more than `MAX_DISTANCE` standard deviations from what the model learned from,
- an input is missing that was never missing then, or
- the model's own quantiles of the run time are wider than `MAX_DEVIATION`, or it is no time that a
  run can take (`MAX_LOG_S`).

**Errors.** The width of the model's quantiles is the deviation of the next run. Which share of its
variance is the error of the expectation, and not the difference of one run to the next, is taken
from the history's distribution; all of it where the history knows nothing. The error of a chance of
failure is the change of the model's answer where the history's chances rise by their own standard
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.learning.check import CHUNK
from edgeyard.scheduler.learning.features import CHANCES, Encoder, Input
from edgeyard.scheduler.learning.manifest import Manifest
from edgeyard.scheduler.learning.model import Model, any_cause_chance, model_of_content
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.prediction.distributions import (
    TimeDistributions,
    history_distributions,
)
from edgeyard.scheduler.prediction.estimates import RunTimeParts, past_pairs

Floats = NDArray[np.float64]

MAX_DISTANCE = 4.0
"""Maximum distance of an input from its mean in the training, in standard deviations."""

MAX_DEVIATION = 1.0
"""Maximum standard deviation of ln seconds, that of runs of which the history knows nothing."""

MAX_LOG_S = 18.0
"""Maximum predicted ln seconds (two years); the minimum is its negative."""

_NORMAL_FREEDOM = 200.0
"""Degrees of freedom from which on Student's t counts as the normal distribution."""

_HISTORY_COLUMNS = frozenset(
    {
        "log_history_s", "history_spread", "history_error",
        "log_loading_s", "loading_spread", "loading_error",
        *CHANCES,
    }
)  # fmt: skip
"""Columns whose distance from the training is not limited, as they state their own uncertainty."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelPrediction:
    """What an active model predicts for pairs.

    Attributes:
        reference: Of the model, ``run_time/3``.
        values: Shape (pairs,): seconds, or chances; NaN where the history counts instead.
        errors: Shape (pairs,): their standard errors; NaN likewise.
        problem: Why it predicts nothing at all; "" where it predicts.
    """

    reference: str
    values: Floats
    errors: Floats
    problem: str = ""


@lru_cache(maxsize=16)  # the versions in use and those of a replay
def load_active(model: ActiveModel) -> Model:
    """Check and load an active model; once a process.

    The check runs a child process: servers call this before the model takes part in decisions.

    Raises:
        ConfigError: It can't be used, and why.
    """
    if model.problem:
        raise ConfigError([model.problem])
    return model_of_content(model.manifest, model.content, f"model {model.reference}")


def predicted_run_times(batch: Batch, pairs: Pairs) -> ModelPrediction | None:
    """Return what the active model expects runs to take, in seconds; None: none is active."""
    return _predict_once(ModelKind.RUN_TIME, _run_times, batch, pairs)


def predicted_failures(batch: Batch, pairs: Pairs) -> ModelPrediction | None:
    """Return the active model's chances that the next run fails; None: none is active."""
    return _predict_once(ModelKind.FAILURE, _failures, batch, pairs)


def predicted_measurements(batch: Batch, pairs: Pairs) -> ModelPrediction | None:
    """Return the active model's chances that a number is not comparable; None: none is active."""
    return _predict_once(ModelKind.MEASUREMENT, _measurements, batch, pairs)


_Predict = Callable[[Model, Batch, Pairs], tuple[Floats, Floats]]


class _Predictions:
    """Cached predictions of one batch by kind and pairs."""

    def __init__(self, batch: Batch) -> None:
        self.found: dict[object, tuple[Pairs, ModelPrediction]] = {}


def _predict_once(
    kind: ModelKind, predict: _Predict, batch: Batch, pairs: Pairs
) -> ModelPrediction | None:
    active = batch.knowledge.model(kind)
    if active is None:
        return None
    known, key = batch.derived(_Predictions).found, (kind, id(pairs.boards))
    if key not in known:  # the pairs are kept, so that no other array gets this id
        known[key] = pairs, _predicted(active, predict, batch, pairs)
    return known[key][1]


def _predicted(
    active: ActiveModel, predict: _Predict, batch: Batch, pairs: Pairs
) -> ModelPrediction:
    problem = active.problem
    values = errors = np.full(len(pairs), np.nan)
    if not problem:
        try:
            values, errors = predict(load_active(active), batch, pairs)
        except ConfigError as error:
            problem = "; ".join(error.problems)
    return ModelPrediction(
        reference=active.reference, values=values, errors=errors, problem=problem
    )


def active_distributions(batch: Batch, pairs: Pairs) -> TimeDistributions:
    """Return for how long runs hold their boards: by active models, otherwise by past runs."""
    past = history_distributions(batch, pairs)
    run, certain = _corrected(ModelKind.RUN_TIME, batch, pairs, past.run)
    loading, _ = _corrected(ModelKind.LOADING, batch, pairs, past.loading)
    draws = None if past.past is None else past.past.except_for(certain)
    return TimeDistributions(run=run, loading=loading, past=draws)


def _corrected(
    kind: ModelKind, batch: Batch, pairs: Pairs, past: RunTimeParts
) -> tuple[RunTimeParts, NDArray[np.bool_]]:
    """Return the active model's distribution where it is certain, otherwise the history's.

    And where it is certain, shape (pairs,).
    """
    nowhere = np.zeros(len(pairs), dtype=np.bool_)
    active = batch.knowledge.model(kind)
    if active is None or active.problem or not len(pairs):
        return past, nowhere
    try:
        found = _distribution(load_active(active), batch, pairs, past)
    except ConfigError:
        return past, nowhere
    certain = np.isfinite(found.location)
    run = RunTimeParts(
        location=np.where(certain, found.location, past.location),
        noise=np.where(certain, found.noise, past.noise),
        error=np.where(certain, found.error, past.error),
        freedom=np.where(certain, found.freedom, past.freedom),
    )
    return run, certain


def _run_times(model: Model, batch: Batch, pairs: Pairs) -> tuple[Floats, Floats]:
    return _seconds(_distribution(model, batch, pairs, past_pairs(batch, pairs).run_time_parts()))


def _seconds(distribution: RunTimeParts) -> tuple[Floats, Floats]:
    """Return the middle seconds and the errors of the expectation."""
    seconds = np.exp(distribution.location)
    return seconds, seconds * np.sqrt(np.expm1(distribution.error))


def _distribution(model: Model, batch: Batch, pairs: Pairs, past: RunTimeParts) -> RunTimeParts:
    """Return a model's distribution of ln seconds; NaN where it is not certain enough.

    Args:
        model: Loaded.
        pairs: To be predicted.
        past: The history's distribution, which states the share of the error in the variance.
    """
    manifest = model.manifest
    found, certain = _outputs(model, batch, pairs)
    middle = found[:, manifest.quantiles.index(manifest.rank_by)]
    low, high = (NormalDist().inv_cdf(manifest.quantiles[place]) for place in (0, -1))
    deviation = (found[:, -1] - found[:, 0]) / (high - low)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isnan(past.location), 1.0, past.error / (past.error + past.noise))
    certain &= (np.abs(deviation) <= MAX_DEVIATION) & np.isfinite(share)
    certain &= np.abs(middle) <= MAX_LOG_S
    variance = np.where(certain, deviation**2, np.nan)
    return RunTimeParts(
        location=np.where(certain, middle, np.nan),
        noise=variance * (1.0 - share),
        error=variance * share,
        freedom=np.where(certain, _NORMAL_FREEDOM, np.nan),
    )


def _failures(model: Model, batch: Batch, pairs: Pairs) -> tuple[Floats, Floats]:
    past = past_pairs(batch, pairs)
    causes = past.failure_causes()
    errors = {
        "model_failure_rate": causes.model_error,
        "board_failure_rate": causes.board_error,
        "failure_rate": causes.combined()[1],
    }
    return _chances(model, batch, pairs, errors)


def _measurements(model: Model, batch: Batch, pairs: Pairs) -> tuple[Floats, Floats]:
    errors = np.nan_to_num(past_pairs(batch, pairs).measurement_chances()[1])
    return _chances(model, batch, pairs, {"incomparable_rate": errors})


def _chances(
    model: Model, batch: Batch, pairs: Pairs, errors: Mapping[str, Floats]
) -> tuple[Floats, Floats]:
    """Return the chance that any cause strikes, and its error: of each history's chance in turn.

    Args:
        model: Loaded.
        pairs: To be predicted.
        errors: Standard errors of the history's chances by column, shape (pairs,) each.
    """
    found, certain = _outputs(model, batch, pairs)
    chances = any_cause_chance(found)
    change = np.zeros(len(pairs))
    for column in sorted(errors.keys() & {each.column for each in model.manifest.inputs}):
        raised, _ = _outputs(model, batch, pairs, raised={column: errors[column]})
        change = np.hypot(change, any_cause_chance(raised) - chances)
    return np.where(certain, chances, np.nan), np.where(certain, change, np.nan)


def _outputs(
    model: Model, batch: Batch, pairs: Pairs, raised: Mapping[str, Floats] | None = None
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the model's outputs, shape (pairs, outputs), and where its inputs are usual ones.

    Args:
        model: Loaded.
        pairs: To be predicted.
        raised: By column of the history's chances, what is added to it, shape (pairs,).
    """
    manifest = model.manifest
    count = len(manifest.inputs)
    bounded, needed = _bounded_inputs(manifest), _required_columns(manifest)
    inputs = (*manifest.inputs, *(Input(column=f"{name}?") for name in needed))
    found = np.empty((len(pairs), manifest.outputs))
    usual = np.empty(len(pairs), dtype=np.bool_)
    start = 0
    for x in Encoder(batch, pairs.rows, pairs.boards, inputs).chunks(CHUNK):
        part = slice(start, start + len(x))
        own = np.ascontiguousarray(x[:, :count])
        usual[part] = (np.abs(own[:, bounded]) <= MAX_DISTANCE).all(axis=1)
        usual[part] &= (x[:, count:] == 1.0).all(axis=1)
        for place, each in enumerate(manifest.inputs):
            if raised is not None and each.column in raised:
                own[:, place] += raised[each.column][part] / each.scale
        found[part] = model.run(own)
        start += len(x)
    return found, usual


def _bounded_inputs(manifest: Manifest) -> list[int]:
    """Return the positions of inputs whose distance from the training is limited."""
    return [
        place
        for place, each in enumerate(manifest.inputs)
        if each.column not in _HISTORY_COLUMNS and not each.column.endswith("?")
    ]


def _required_columns(manifest: Manifest) -> list[str]:
    """Return the columns that were never missing in the training."""
    names = {each.column for each in manifest.inputs}
    return sorted(
        name
        for name in names - _HISTORY_COLUMNS
        if not name.endswith("?") and f"{name}?" not in names
    )
