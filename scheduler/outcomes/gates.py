"""Judge models of outcomes against the history, on rows that they did not learn from.

Rows are held out by time and by board, never one by one. Differences of losses are paired, with
intervals of a bootstrap over boards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.learning.features import CHANCES, normalise
from edgeyard.scheduler.learning.model import Model
from edgeyard.scheduler.model.registered_models import Gate, ModelKind
from edgeyard.scheduler.outcomes.files import chance_files, quantile_files
from edgeyard.scheduler.outcomes.intervals import Interval, group_means
from edgeyard.scheduler.outcomes.models import (
    FAILURE_COLUMNS,
    FAILURE_RATES,
    LOADING_COLUMNS,
    MEASUREMENT_COLUMNS,
    MEASUREMENT_RATES,
    QUANTILES,
    RUN_TIME_COLUMNS,
    ChanceModel,
    QuantileModel,
    failures_by_cause,
    fit_failures,
    fit_loading,
    fit_measurements,
    fit_run_times,
    history_chances,
    history_quantiles,
    loading_rows,
    measured_rows,
    pinball_losses,
    user_weights,
)
from edgeyard.scheduler.outcomes.rows import OutcomeRows, joined

Floats = NDArray[np.float64]

Predictor = Callable[[OutcomeRows], Floats]
"""Maps rows to ln seconds, shape (rows, quantiles), or to chances, shape (rows, causes)."""

HELD_SHARE = 0.3
"""Share of the decisions, the last ones, that are held out by time."""

BOARD_FOLDS = 5
MAX_COVERAGE_ERROR = 0.05
"""Share of runs by which the 80 % interval may hold too many or too few; likewise of failures."""

MAX_COVERAGE_LOSS = 0.15
"""An active model whose share is off by more is rolled back, and none becomes active of which the
held-out runs don't show that its share is not."""

MAX_USERS = 10
"""Maximum number of users whose runs are left out in turn, those with the most runs."""

MIN_JUDGED_ROWS = 30
MIN_JUDGED_BOARDS = 4
"""Minimum number of boards of an interval."""

_EXPECTED_COVERAGE = QUANTILES[-1] - QUANTILES[0]
_STEPS = np.linspace(0.0, 1.0, 41)


class Fitted(Protocol):
    """A model that was fitted to rows."""

    def predict(self, rows: OutcomeRows) -> Floats:
        """Return ln seconds, shape (rows, quantiles), or chances, shape (rows, causes)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeTarget:
    """What a kind of model predicts, and how it is judged.

    Attributes:
        columns: Next to the history's prediction.
        rows: Of all rows, those that can be learned from and judged.
        unusable: What the others are, for people.
        fit: Fits a model.
        files: Returns the ONNX file and the manifest of a fitted model, and what it was trained on.
        history: Predicts what the history alone does; NaN where it knows nothing.
        losses: Of each row, shape (rows,); lower is better.
        unit: Of the losses.
        calibration: Difference of a share that was seen and the one that was predicted; None:
            no run shows it.
        middle: The number of each prediction that users move, shape (rows,).
        max_user_change: By how much one user's runs may change the predictions for others.
        struck: Of models of chances, what is predicted, shape (rows, causes); None: of seconds.
        events: What strikes, for people.
        form: The card's description.
    """

    columns: tuple[str, ...]
    rows: Callable[[OutcomeRows], OutcomeRows]
    unusable: str
    fit: Callable[[OutcomeRows], Fitted]
    files: Callable[[Any, str], tuple[bytes, str]]
    history: Predictor
    losses: Callable[[Floats, OutcomeRows], Floats]
    unit: str
    calibration: Callable[[Floats, OutcomeRows], Interval | None]
    middle: Callable[[Floats], Floats]
    max_user_change: float
    struck: Callable[[OutcomeRows], NDArray[np.bool_]] | None = None
    events: str = ""
    form: str = ""


def brier_losses(predicted: Floats, struck: NDArray[np.bool_]) -> Floats:
    """Return squared errors of chances (Brier 1950), summed over the causes, shape (rows,)."""
    return np.asarray(((predicted - struck) ** 2).sum(axis=1))


def _coverage_error(predicted: Floats, rows: OutcomeRows) -> Interval | None:
    seen, weights, ended = np.log(rows.run_s), user_weights(rows.users), ~rows.censored
    if not ended.any():
        return None
    inside = (predicted[:, 0] <= seen) & (seen <= predicted[:, -1])
    errors: Floats = inside.astype(np.float64) - _EXPECTED_COVERAGE
    return group_means(errors[ended], rows.boards[ended], weights=weights[ended])


def _rate_error(predicted: Floats, struck: NDArray[np.bool_], rows: OutcomeRows) -> Interval:
    """Return the greatest difference of the share that a cause struck and the one predicted."""
    weights = user_weights(rows.users)
    errors = (group_means(each, rows.boards, weights=weights) for each in (struck - predicted).T)
    return max(errors, key=lambda each: abs(each.mean))


def _any_cause(predicted: Floats) -> Floats:
    return np.asarray(1.0 - np.prod(1.0 - predicted, axis=1))


def _seconds_target(
    kind: ModelKind,
    columns: tuple[str, ...],
    fit: Callable[[OutcomeRows], QuantileModel],
    rows: Callable[[OutcomeRows], OutcomeRows],
    what: str,
) -> OutcomeTarget:
    return OutcomeTarget(
        columns=columns,
        rows=rows,
        unusable=f"without a usable {what}",
        fit=fit,
        files=lambda fitted, words: quantile_files(kind, fitted, words),
        history=history_quantiles,
        losses=pinball_losses,
        unit="mean pinball loss of ln seconds",
        calibration=_coverage_error,
        middle=lambda predicted: predicted[:, predicted.shape[1] // 2],
        max_user_change=0.2,
        form=f"quantiles 0.1, 0.5 and 0.9 of ln seconds of the {what}: those that the history "
        "predicts, shifted by a linear function of the columns, with widths of their own by the "
        "scale and by the standard error of the history; quantiles never cross",
    )


def _chance_target(
    kind: ModelKind,
    columns: tuple[str, ...],
    fit: Callable[[OutcomeRows], ChanceModel],
    rows: Callable[[OutcomeRows], OutcomeRows],
    rates: tuple[str, ...],
    struck: Callable[[OutcomeRows], NDArray[np.bool_]],
    *,
    unusable: str,
    events: str,
    form: str,
) -> OutcomeTarget:
    return OutcomeTarget(
        columns=columns,
        rows=rows,
        unusable=unusable,
        fit=fit,
        files=lambda fitted, words: chance_files(kind, fitted, words),
        history=lambda rows: history_chances(rows, rates),
        losses=lambda predicted, rows: brier_losses(predicted, struck(rows)),
        unit="Brier score" + (", summed over the causes" if len(rates) > 1 else ""),
        calibration=lambda predicted, rows: _rate_error(predicted, struck(rows), rows),
        middle=_any_cause,
        max_user_change=0.1,
        struck=struck,
        events=events,
        form=form + ": log-odds of the history times at least 0.25, shifted by a linear function "
        "of the columns; more faults never mean a lower risk",
    )


TARGETS: Mapping[ModelKind, OutcomeTarget] = {
    ModelKind.RUN_TIME: _seconds_target(
        ModelKind.RUN_TIME,
        RUN_TIME_COLUMNS,
        fit_run_times,
        lambda rows: rows.only(np.isfinite(rows.run_s)),
        "run time",
    ),
    ModelKind.FAILURE: _chance_target(
        ModelKind.FAILURE,
        FAILURE_COLUMNS,
        fit_failures,
        lambda rows: rows.only(rows.countable),
        FAILURE_RATES,
        failures_by_cause,
        unusable="ended by the cluster",
        events="failed",
        form="chances that the next run fails, because of what is run and because of the board",
    ),
    ModelKind.LOADING: _seconds_target(
        ModelKind.LOADING, LOADING_COLUMNS, fit_loading, loading_rows, "time of loading"
    ),
    ModelKind.MEASUREMENT: _chance_target(
        ModelKind.MEASUREMENT,
        MEASUREMENT_COLUMNS,
        fit_measurements,
        measured_rows,
        MEASUREMENT_RATES,
        lambda rows: rows.incomparable[:, None] > 0,
        unusable="without a verdict, or without an earlier one",
        events="had numbers that are not comparable",
        form="chance that the number of a result is not comparable",
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
        calibration: Share seen minus share predicted, -1 to 1; None: no run shows it.
        other_calibration: The same of what it is compared with.
    """

    rows: int
    boards: int
    loss: Interval
    other_loss: Interval
    difference: Interval
    calibration: Interval | None
    other_calibration: Interval | None


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
        calibration=target.calibration(predicted, rows),
        other_calibration=target.calibration(other, rows),
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
        predicted = target.fit(past).predict(later)
        by_time = compare(target, later, predicted, target.history(later))
        against = None
        unseen = np.flatnonzero(later.decided_s > active_until_s)
        if active is not None and len(unseen):
            new = later.only(unseen)
            against = compare(target, new, predicted[unseen], predict_loaded(active, new))
    else:
        by_time = against = None
    gates.append(_better_gate("later", "the history on later decisions", target, by_time))
    metrics["later"] = figures_json(by_time)
    held, guesses, others = [], [], []
    for known, unknown in split_by_boards(rows):
        if len(known):
            held.append(unknown)
            guesses.append(target.fit(known).predict(unknown))
            others.append(target.history(unknown))
    by_boards = None
    if held:
        by_boards = compare(target, joined(held), np.concatenate(guesses), np.concatenate(others))
    gates.append(_better_gate("other_boards", "the history on other boards", target, by_boards))
    metrics["other_boards"] = figures_json(by_boards)
    if active is not None:
        gates.append(
            _better_gate("active", "the active model on what is new to both", target, against)
        )
        metrics["active"] = figures_json(against)
    gates.append(coverage_gate(by_time))
    gates.append(user_gate(target, rows))
    return tuple(gates), metrics


def coverage_gate(found: PredictionFigures | None) -> Gate:
    """Check that the predicted share is right: near the one seen, and known well enough."""
    error = None if found is None else found.calibration
    if error is None:
        words, passed = "not measured", False
    else:
        near = abs(error.mean) <= MAX_COVERAGE_ERROR
        known = max(-error.low, error.high) <= MAX_COVERAGE_LOSS
        passed = near and known
        words = (
            f"off by {100 * error.mean:+.1f} percentage points "
            f"({100 * error.low:+.1f} to {100 * error.high:+.1f})"
        )
        if near and not known:
            words += f": too few runs to know that it is not off by {100 * MAX_COVERAGE_LOSS:.0f}"
    return Gate(
        name="coverage",
        passed=passed,
        figure=None if error is None else error.mean,
        low=None if error is None else error.low,
        high=None if error is None else error.high,
        limit=MAX_COVERAGE_ERROR,
        sentence=f"the predicted share: {words}",
    )


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
            change = target.middle(target.fit(others).predict(others))
            change -= target.middle(whole.predict(others))
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


def monotone_gate(model: Model) -> Gate:
    """Check on the file itself that a greater chance by history is a greater risk."""
    lowest = lowest_rise(model)
    return Gate(
        name="monotone",
        passed=lowest >= 0.0,
        figure=lowest,
        limit=0.0,
        sentence="a greater chance by past runs never means a lower risk: the lowest "
        f"rise between steps is {lowest:.2g}",
    )


def lowest_rise(model: Model) -> float:
    """Return by how little a risk rises with its history's chance, all other inputs alike."""
    inputs = model.manifest.inputs
    rng = np.random.default_rng(0)
    lowest = np.inf
    for place in (row for row, each in enumerate(inputs) if each.column in CHANCES):
        for _ in range(32):
            x = np.tile(rng.standard_normal(len(inputs)), (len(_STEPS), 1))
            x[:, place] = (_STEPS - inputs[place].mean) / inputs[place].scale
            found = _any_cause(model.run(x.astype(np.float32)).astype(np.float64))
            lowest = min(lowest, float(np.diff(found).min()))
    return lowest


def predict_loaded(model: Model, rows: OutcomeRows) -> Floats:
    """Return what a registered model predicts for rows, as it does in use."""
    return model.run(normalise(rows.values, model.manifest.inputs)).astype(np.float64)


def figures_json(found: PredictionFigures | None) -> dict[str, object] | None:
    """Return figures as JSON; None: nothing could be measured."""
    if found is None:
        return None
    return {
        "rows": found.rows,
        "boards": found.boards,
        **{
            name: each and {"mean": each.mean, "low": each.low, "high": each.high}
            for name, each in (
                ("loss", found.loss),
                ("other_loss", found.other_loss),
                ("difference", found.difference),
                ("calibration", found.calibration),
            )
        },
    }


def _better_gate(
    name: str, what: str, target: OutcomeTarget, found: PredictionFigures | None
) -> Gate:
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
