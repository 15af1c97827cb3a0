"""Judge models of outcomes against the history, on rows that they did not learn from.

Rows are held out by time and by board, never one by one. Differences of losses are paired, with
intervals of a bootstrap over boards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.learning.features import normalise
from edgeyard.scheduler.learning.model import Model
from edgeyard.scheduler.model.registered_models import Gate, ModelKind
from edgeyard.scheduler.training.intervals import Interval, group_means
from edgeyard.scheduler.training.outcome_models import (
    QUANTILES,
    fit_failures,
    fit_run_times,
    history_quantiles,
    pinball_losses,
    user_weights,
)
from edgeyard.scheduler.training.outcome_rows import OutcomeRows, joined

Floats = NDArray[np.float64]

Predictor = Callable[[OutcomeRows], Floats]
"""Rows to ln seconds, shape (rows, quantiles), or to chances of a failure, shape (rows,)."""

HELD_SHARE = 0.3
"""Of the decisions: the last ones are held out by time."""

BOARD_FOLDS = 5
MAX_COVERAGE_ERROR = 0.05
"""Share of runs by which the 80 % interval may hold too many or too few; likewise of failures."""

MAX_USERS = 10
"""Users whose runs are left out in turn: those with most runs."""

MIN_JUDGED_ROWS = 30
MIN_JUDGED_BOARDS = 4
"""An interval over fewer boards says nothing."""

_EXPECTED_COVERAGE = QUANTILES[-1] - QUANTILES[0]
_STEPS = np.linspace(0.0, 1.0, 41)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeTarget:
    """What a kind of model predicts, and how it is judged.

    Attributes:
        rows: Of all rows, those that can be learned from and judged.
        fit: Fits a model and returns how it predicts.
        history: Predicts what the history alone does; NaN where it knows nothing.
        losses: Of each row, shape (rows,); lower is better.
        unit: Of the losses.
        calibration: Difference of a share that was seen and the one that was predicted.
        max_user_change: By how much one user's runs may change the predictions for others.
    """

    rows: Callable[[OutcomeRows], OutcomeRows]
    fit: Callable[[OutcomeRows], Predictor]
    history: Predictor
    losses: Callable[[Floats, OutcomeRows], Floats]
    unit: str
    calibration: Callable[[Floats, OutcomeRows], float]
    max_user_change: float


def brier_losses(predicted: Floats, rows: OutcomeRows) -> Floats:
    """Return squared errors of chances (Brier 1950), shape (rows,)."""
    return np.asarray((predicted - rows.failed) ** 2)


def _coverage_error(predicted: Floats, rows: OutcomeRows) -> float:
    seen = np.log(rows.run_s)
    inside = (predicted[:, 0] <= seen) & (seen <= predicted[:, -1])
    weights = user_weights(rows.users) * ~rows.censored
    if not weights.any():
        return float("nan")
    return float((inside * weights).sum() / weights.sum() - _EXPECTED_COVERAGE)


def _rate_error(predicted: Floats, rows: OutcomeRows) -> float:
    weights = user_weights(rows.users)
    return float(((rows.failed - predicted) * weights).sum() / weights.sum())


TARGETS: Mapping[ModelKind, OutcomeTarget] = {
    ModelKind.RUN_TIME: OutcomeTarget(
        rows=lambda rows: rows.only(np.isfinite(rows.run_s)),
        fit=lambda rows: fit_run_times(rows).predict,
        history=history_quantiles,
        losses=pinball_losses,
        unit="mean pinball loss of ln seconds",
        calibration=_coverage_error,
        max_user_change=0.2,
    ),
    ModelKind.FAILURE: OutcomeTarget(
        rows=lambda rows: rows.only(rows.countable),
        fit=lambda rows: fit_failures(rows).predict,
        history=lambda rows: rows.failure_rate,
        losses=brier_losses,
        unit="Brier score",
        calibration=_rate_error,
        max_user_change=0.1,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFigures:
    """How good a predictor is on rows that it did not learn from.

    Attributes:
        rows: That were judged.
        boards: Of these rows.
        loss: Of the predictor.
        other_loss: Of what it is compared with, on the same rows.
        difference: Of the two, paired; below 0 where the predictor is better.
        calibration_error: Share seen minus share predicted, -1 to 1.
    """

    rows: int
    boards: int
    loss: Interval
    other_loss: Interval
    difference: Interval
    calibration_error: float


def compare(
    target: OutcomeTarget, rows: OutcomeRows, predicted: Floats, other: Floats
) -> PredictionFigures | None:
    """Compare two predictions where both exist; None: too few rows or boards."""
    numbers = np.hstack([each.reshape(len(rows), -1) for each in (predicted, other)])
    both = np.flatnonzero(np.isfinite(numbers).all(axis=1))
    rows, predicted, other = rows.only(both), predicted[both], other[both]
    boards = len(np.unique(rows.boards))
    if len(rows) < MIN_JUDGED_ROWS or boards < MIN_JUDGED_BOARDS:
        return None
    own, others = target.losses(predicted, rows), target.losses(other, rows)
    weights = user_weights(rows.users)
    return PredictionFigures(
        rows=len(rows),
        boards=boards,
        loss=group_means(own, rows.boards, weights=weights),
        other_loss=group_means(others, rows.boards, weights=weights),
        difference=group_means(own - others, rows.boards, weights=weights),
        calibration_error=target.calibration(predicted, rows),
    )


def split_by_time(rows: OutcomeRows) -> tuple[OutcomeRows, OutcomeRows]:
    """Return rows to learn from, all ended before the first decision of the others."""
    begin = float(np.quantile(rows.decided_s, 1.0 - HELD_SHARE))
    return rows.only(rows.ended_s < begin), rows.only(rows.decided_s >= begin)


def split_by_boards(rows: OutcomeRows) -> Iterator[tuple[OutcomeRows, OutcomeRows]]:
    """Yield rows to learn from and the rows of the boards that are held out."""
    boards = np.random.default_rng(0).permutation(np.unique(rows.boards))
    for fold in range(min(BOARD_FOLDS, len(boards))):
        held = np.isin(rows.boards, boards[fold::BOARD_FOLDS])
        yield rows.only(~held), rows.only(held)


def measure_gates(
    kind: ModelKind,
    rows: OutcomeRows,
    active: Model | None,
    active_until_s: float = -np.inf,
) -> tuple[tuple[Gate, ...], dict[str, object]]:
    """Return the conditions that can be measured on held-out rows, and the figures behind them.

    Args:
        kind: Of the model.
        rows: Usable ones of this kind.
        active: The model that is active now, loaded; None: there is none.
        active_until_s: Time of the last decision that it learned from, seconds since 1970; the two
            are compared on later ones.
    """
    target = TARGETS[kind]
    past, later = split_by_time(rows)
    metrics: dict[str, object] = {}
    gates: list[Gate] = []
    if len(past) and len(later):
        predicted = target.fit(past)(later)
        by_time = compare(target, later, predicted, target.history(later))
        against = None
        unseen = np.flatnonzero(later.decided_s > active_until_s)
        if active is not None and len(unseen):
            new = later.only(unseen)
            against = compare(target, new, predicted[unseen], predict_loaded(active, new))
    else:
        by_time = against = None
    gates.append(_better("later", "the history on later decisions", target, by_time))
    metrics["later"] = figures_json(by_time)
    held, guesses, others = [], [], []
    for known, unknown in split_by_boards(rows):
        if len(known):
            held.append(unknown)
            guesses.append(target.fit(known)(unknown))
            others.append(target.history(unknown))
    by_boards = None
    if held:
        by_boards = compare(target, joined(held), np.concatenate(guesses), np.concatenate(others))
    gates.append(_better("other_boards", "the history on other boards", target, by_boards))
    metrics["other_boards"] = figures_json(by_boards)
    if active is not None:
        gates.append(_better("active", "the active model on what is new to both", target, against))
        metrics["active"] = figures_json(against)
    gates.append(_calibrated(by_time))
    gates.append(user_gate(target, rows))
    return tuple(gates), metrics


def user_gate(target: OutcomeTarget, rows: OutcomeRows) -> Gate:
    """Check that no single user moves the predictions for the others.

    The model is fitted again without the runs of each of the users with most runs. The figure is
    the greatest median change of what is predicted for runs of the others: ln seconds, or a chance.
    """
    users, counts = np.unique(rows.users, return_counts=True)
    whole = target.fit(rows)
    worst, name = 0.0, ""
    if len(users) > 1:
        for user in users[np.argsort(-counts, kind="stable")][:MAX_USERS].tolist():
            others = rows.only(rows.users != user)
            change = _middle(target.fit(others)(others)) - _middle(whole(others))
            found = float(np.median(np.abs(change)))
            if found > worst:
                worst, name = found, user
    return Gate(
        name="one_user",
        passed=worst <= target.max_user_change,
        figure=worst,
        limit=target.max_user_change,
        sentence="no single user changes the predictions much: "
        + (
            f"without the runs of {name}, the median change for the others is {worst:.3f}"
            if name
            else "all runs are of one user"
        ),
    )


def _middle(predicted: Floats) -> Floats:
    return predicted if predicted.ndim == 1 else predicted[:, predicted.shape[1] // 2]


def monotone_gate(model: Model) -> Gate:
    """Check on the file itself that a greater chance of a failure by history is a greater risk."""
    lowest = lowest_rise(model)
    return Gate(
        name="monotone",
        passed=lowest >= 0.0,
        figure=lowest,
        limit=0.0,
        sentence="a greater chance of a failure by history never means a lower risk: the lowest "
        f"rise between steps is {lowest:.2g}",
    )


def lowest_rise(model: Model) -> float:
    """Return by how little the risk rises with the history's chance, all other inputs alike."""
    inputs = model.manifest.inputs
    place = [each.column for each in inputs].index("failure_rate")
    rng = np.random.default_rng(0)
    lowest = np.inf
    for _ in range(32):
        x = np.tile(rng.standard_normal(len(inputs)), (len(_STEPS), 1))
        x[:, place] = (_STEPS - inputs[place].mean) / inputs[place].scale
        found = model.run(x.astype(np.float32))[:, 0].astype(np.float64)
        lowest = min(lowest, float(np.diff(found).min()))
    return lowest


def predict_loaded(model: Model, rows: OutcomeRows) -> Floats:
    """Return what a registered model predicts for rows, as it does in use."""
    found = model.run(normalise(rows.values, model.manifest.inputs)).astype(np.float64)
    return found if model.manifest.quantiles else found[:, 0]


def figures_json(found: PredictionFigures | None) -> dict[str, object] | None:
    """Return figures as JSON; None: nothing could be measured."""
    if found is None:
        return None
    return {
        "rows": found.rows,
        "boards": found.boards,
        "calibration_error": _number(found.calibration_error),
        **{
            name: {"mean": each.mean, "low": each.low, "high": each.high}
            for name, each in (
                ("loss", found.loss),
                ("other_loss", found.other_loss),
                ("difference", found.difference),
            )
        },
    }


def _better(name: str, what: str, target: OutcomeTarget, found: PredictionFigures | None) -> Gate:
    if found is None:
        return Gate(
            name=name,
            passed=False,
            figure=None,
            limit=0.0,
            sentence=f"better than {what}: not measured, because there are fewer than "
            f"{MIN_JUDGED_ROWS} held-out runs or {MIN_JUDGED_BOARDS} boards",
        )
    return Gate(
        name=name,
        passed=found.difference.high < 0.0,
        figure=found.difference.mean,
        low=found.difference.low,
        high=found.difference.high,
        limit=0.0,
        sentence=f"better than {what}: {target.unit} {found.difference} against it, on "
        f"{found.rows} runs of {found.boards} boards",
    )


def _calibrated(found: PredictionFigures | None) -> Gate:
    error = None if found is None else _number(found.calibration_error)
    return Gate(
        name="coverage",
        passed=error is not None and abs(error) <= MAX_COVERAGE_ERROR,
        figure=error,
        limit=MAX_COVERAGE_ERROR,
        sentence="the predicted share: "
        + ("not measured" if error is None else f"off by {100 * error:+.1f} percentage points"),
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
