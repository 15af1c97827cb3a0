"""Models of what happens to runs that correct the lab's history, in forms that cannot go wrong.

All begin at what the history predicts and learn what to add. With x the normalised columns; m, s
and v the middle, the scale and the middle's standard error of the history's distribution of ln
seconds; and k = 1 where it has one, else 0::

    seconds   ln T_q = k (m + c_q s + e_q v) + (1 - k) d_q + w x     c_q, e_q, d_q ascending in q
    chance    P_c    = sigmoid(a_c logit(p_c) + b_c + w_c x)         a_c >= 0.25

Seconds are run times and times of loading. Chances are those of a failure by cause (what is run, or
the board), and of a number that is not comparable. Quantiles never cross, because s > 0 and v >= 0.

s hardly changes with the number of past runs, and v falls with it. What the columns explain leaves
s too wide, and v as it was, so that each has a weight of its own: with one weight for both,
intervals that are right for the first runs of a kind would hold too many of the later ones.

A chance rises with the history's chance p of the same cause, which rises with each fault of a board
(or number that was not comparable), and nothing else in the model depends on faults: more faults
never mean a lower risk.

Seconds are fitted to the sum of the pinball losses of the quantiles (Koenker & Bassett 1978), for
runs that a limit ended with predictions cut at the limit (Powell 1986); chances to the log loss.
Weights are drawn to 0. A user counts for at most as many rows as the median user has, so that one
user's many runs do not outvote the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.learning.features import Input, normalise
from edgeyard.scheduler.outcomes.rows import OutcomeRows
from edgeyard.scheduler.prediction.estimates import student_quantiles

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.5, 0.9)

RUN_TIME_COLUMNS = (
    "log_nb_inference", "log_model_bytes", "log_board_ram_bytes", "log_board_cores",
    "host_cpu", "host_memory", "host_busy", "type_2", "type_3", "engine_tflite",
)  # fmt: skip
"""Next to the history's distribution. The time limit is none of them: it does not make a run
long."""

FAILURE_COLUMNS = ("log_bound_s", *RUN_TIME_COLUMNS)
"""Next to the history's chances of a failure."""

LOADING_COLUMNS = (
    "log_model_bytes", "log_board_cores", "host_cpu", "host_memory", "host_busy",
    "lab_utilisation", "engine_tflite",
)  # fmt: skip
"""Next to the history's distribution of loading."""

MEASUREMENT_COLUMNS = (
    "hour_sin", "hour_cos", "host_cpu", "host_memory", "host_busy", "lab_utilisation",
    "log_nb_inference", "log_model_bytes", "log_board_cores", "type_2", "type_3", "engine_tflite",
)  # fmt: skip
"""Next to the history's chance that a number is not comparable."""

FAILURE_RATES = ("model_failure_rate", "board_failure_rate")
"""The history's chances of a failure by cause, the first of what is run."""

MEASUREMENT_RATES = ("incomparable_rate",)

MIN_HISTORY_WEIGHT = 0.25
"""Minimum weight of the history's log-odds, so that faults always raise the risk."""

MIN_RATE, MAX_RATE = 0.001, 0.999
"""The history's chance of a failure is cut here: its log-odds are finite."""

MIN_RUNS_PER_CAUSE = 5
"""Minimum number of runs that failed by a cause, and that did not, to learn a correction from."""

_RIDGE = 5.0
"""How strongly weights are drawn to 0, in rows: a weight of 1 costs as much as their loss of 1."""

_START_BY_ERROR = 0.3
"""The fit begins here: what a standard error of 1 adds, as a share of the normal width."""

_MIN_DEVIATION = 1e-3
_SMOOTHING_WIDTH = 0.02
"""Width in ln seconds within which the pinball loss is rounded, so that it has slopes."""


def user_weights(users: NDArray[np.str_]) -> Floats:
    """Return weights of rows, shape (rows,), with mean 1; see the module."""
    _, of_row, counts = np.unique(users, return_inverse=True, return_counts=True)
    middle = np.sort(counts)[(len(counts) - 1) // 2]  # the lower one: one of two users is bounded
    weights = np.minimum(1.0, middle / counts)[of_row]
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def varying_inputs(rows: OutcomeRows, columns: Sequence[str]) -> tuple[Input, ...]:
    """Return the columns that vary, normalised to mean 0 and deviation 1.

    A column that is missing in some rows has a second input, which states whether it is there.
    """
    found: list[Input] = []
    for name in columns:
        values = rows.values[name]
        known = values[np.isfinite(values)]
        if len(known) and float(known.std()) > _MIN_DEVIATION:
            found.append(Input(column=name, mean=float(known.mean()), scale=float(known.std())))
        if 0 < len(known) < len(values):
            found.append(Input(column=f"{name}?"))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class QuantileModel:
    """A fitted model of the quantiles of ln seconds.

    Attributes:
        inputs: Of ``weights``, in the same order.
        weights: Shape (inputs,).
        by_scale: ``c_q``, shape (quantiles,).
        by_error: ``e_q``, shape (quantiles,).
        alone: ``d_q``, shape (quantiles,).
    """

    inputs: tuple[Input, ...]
    weights: Floats
    by_scale: Floats
    by_error: Floats
    alone: Floats

    def predict(self, rows: OutcomeRows) -> Floats:
        """Return ln seconds, shape (rows, quantiles)."""
        known = np.isfinite(rows.location)[:, None]
        location, scale, error = (
            np.nan_to_num(each)[:, None] for each in (rows.location, rows.scale, rows.error)
        )
        quantiles = location + scale * self.by_scale + error * self.by_error
        return np.asarray(np.where(known, quantiles, self.alone) + self._linear_part(rows)[:, None])

    def _linear_part(self, rows: OutcomeRows) -> Floats:
        if not self.inputs:
            return np.zeros(len(rows))
        x = normalise(rows.values, self.inputs).astype(np.float64)
        return np.asarray(x @ self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class ChanceModel:
    """A fitted model of the chances of failures by cause.

    Attributes:
        rates: Columns of the history's chances, one per cause.
        inputs: Of ``weights``, in the same order.
        weights: Shape (inputs, causes).
        history_weights: ``a``, shape (causes,).
        offsets: ``b``, shape (causes,).
    """

    rates: tuple[str, ...]
    inputs: tuple[Input, ...]
    weights: Floats
    history_weights: Floats
    offsets: Floats

    def predict(self, rows: OutcomeRows) -> Floats:
        """Return chances, shape (rows, causes)."""
        z = self.history_weights * log_odds(history_chances(rows, self.rates)) + self.offsets
        if self.inputs:
            z = z + normalise(rows.values, self.inputs).astype(np.float64) @ self.weights
        return _sigmoid(z)


def history_chances(rows: OutcomeRows, rates: Sequence[str]) -> Floats:
    """Return the history's chances by cause, shape (rows, causes); NaN for unknown."""
    return np.stack([rows.values[name] for name in rates], axis=1)


def failures_by_cause(rows: OutcomeRows) -> NDArray[np.bool_]:
    """Return whether each cause of `FAILURE_RATES` struck, shape (rows, 2)."""
    return np.stack([rows.failed & ~rows.board_failed, rows.failed & rows.board_failed], axis=1)


def loading_rows(rows: OutcomeRows) -> OutcomeRows:
    """Return the rows with a time of loading, which takes the place of the run time."""
    known = rows.only(np.isfinite(rows.loading_s))
    return replace(
        known,
        location=known.values["log_loading_s"],
        scale=known.values["loading_spread"],
        error=known.values["loading_error"],
        freedom=known.loading_freedom,
        run_s=known.loading_s,
        censored=np.zeros(len(known), np.bool_),
    )


def measured_rows(rows: OutcomeRows) -> OutcomeRows:
    """Return the rows whose numbers were judged, of kinds of which the history knows any."""
    judged = np.isfinite(rows.incomparable)
    return rows.only(judged & np.isfinite(rows.values["incomparable_rate"]))


def history_quantiles(rows: OutcomeRows) -> Floats:
    """Return what the history predicts: ln seconds, shape (rows, quantiles); NaN for unknown."""
    columns = [rows.location + rows.scale * student_quantiles(rows.freedom, q) for q in QUANTILES]
    return np.stack(columns, axis=1)


def pinball_losses(predicted: Floats, rows: OutcomeRows) -> Floats:
    """Return the mean pinball loss of each row's quantiles, shape (rows,), in ln seconds.

    A run that a limit ended costs nothing where the prediction is beyond the limit (Powell 1986).
    """
    levels = np.array(QUANTILES)
    seen = np.log(rows.run_s)[:, None]
    cut = np.where(rows.censored[:, None], np.minimum(predicted, seen), predicted)
    rest = seen - cut
    return np.asarray(np.maximum(levels * rest, (levels - 1.0) * rest).mean(axis=1))


def log_odds(rates: Floats) -> Floats:
    """Return ``ln(p / (1 - p))`` of chances, cut to be finite; an unknown one counts as 0."""
    cut = np.clip(np.nan_to_num(rates), MIN_RATE, MAX_RATE)
    return np.asarray(np.log(cut) - np.log(1.0 - cut))


def fit_run_times(rows: OutcomeRows) -> QuantileModel:
    """Fit the model of run times.

    Args:
        rows: Each has a run time.
    """
    return _fit_quantiles(rows, RUN_TIME_COLUMNS)


def fit_loading(rows: OutcomeRows) -> QuantileModel:
    """Fit the model of times of loading.

    Args:
        rows: From `loading_rows`.
    """
    return _fit_quantiles(rows, LOADING_COLUMNS)


def fit_failures(rows: OutcomeRows) -> ChanceModel:
    """Fit the model of failures by cause.

    Args:
        rows: The end of each says something of model or board.
    """
    return _fit_chances(rows, FAILURE_RATES, failures_by_cause(rows), FAILURE_COLUMNS)


def fit_measurements(rows: OutcomeRows) -> ChanceModel:
    """Fit the model of numbers that are not comparable.

    Args:
        rows: From `measured_rows`.
    """
    struck = rows.incomparable[:, None] > 0
    return _fit_chances(rows, MEASUREMENT_RATES, struck, MEASUREMENT_COLUMNS)


def _fit_quantiles(rows: OutcomeRows, columns: Sequence[str]) -> QuantileModel:
    from scipy.optimize import minimize
    from scipy.stats import norm

    inputs = varying_inputs(rows, columns)
    x = normalise(rows.values, inputs).astype(np.float64) if inputs else np.empty((len(rows), 0))
    known = np.isfinite(rows.location)
    location, scale, error = (
        np.nan_to_num(each)[:, None] for each in (rows.location, rows.scale, rows.error)
    )
    weight, levels = user_weights(rows.users), np.array(QUANTILES)
    y = np.log(rows.run_s)
    own = y[~known] if (~known).any() else y
    spread = max(float(own.std()), 0.1)
    normal = norm.ppf(levels)
    # middle and ln of the widths of both sides, for known distributions and for unknown ones; ln of
    # what the error adds to these widths
    first = np.concatenate(
        [
            np.zeros(len(inputs)),
            [0.0, np.log(normal[2]), np.log(normal[2])],
            [float(np.median(own)), np.log(normal[2] * spread), np.log(normal[2] * spread)],
            [np.log(_START_BY_ERROR * normal[2])] * 2,
        ]
    )
    count = len(inputs)

    def parts(given: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        by_scale, alone = given[count : count + 3], given[count + 3 : count + 6]
        by_error = _ascending(np.append(0.0, given[count + 6 :]))  # widths alone
        return given[:count], _ascending(by_scale), by_error, _ascending(alone)

    def loss(given: Floats) -> tuple[float, Floats]:
        weights, by_scale, by_error, alone = parts(given)
        quantiles = np.where(known[:, None], location + scale * by_scale + error * by_error, alone)
        predicted = quantiles + (x @ weights)[:, None]
        seen = y[:, None]
        beyond = rows.censored[:, None] & (predicted > seen)
        rest = np.where(beyond, 0.0, seen - predicted)
        # the pinball loss, rounded: q r + s ln(1 + exp(-r / s))
        each = levels * rest + _SMOOTHING_WIDTH * np.logaddexp(0.0, -rest / _SMOOTHING_WIDTH)
        slope = (
            np.where(beyond, 0.0, _sigmoid(-rest / _SMOOTHING_WIDTH) - levels)
            * weight[:, None]
            / 3.0
        )
        total = float((weight[:, None] * each).sum()) / 3.0 + 0.5 * _RIDGE * float(
            weights @ weights
        )
        by_distribution = np.where(known[:, None], slope, 0.0)
        by_alone = slope - by_distribution
        return total, np.concatenate(
            [
                x.T @ slope.sum(axis=1) + _RIDGE * weights,
                _ascending_slope(given[count : count + 3], (scale * by_distribution).sum(axis=0)),
                _ascending_slope(given[count + 3 : count + 6], by_alone.sum(axis=0)),
                _ascending_slope(
                    np.append(0.0, given[count + 6 :]), (error * by_distribution).sum(axis=0)
                )[1:],
            ]
        )

    bounds = [(-5.0, 5.0)] * count + [(None, None), (-4.0, 4.0), (-4.0, 4.0)] * 2
    bounds += [(-6.0, 4.0)] * 2
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds)
    return QuantileModel(inputs, *parts(np.asarray(found.x, dtype=np.float64)))


def _fit_chances(
    rows: OutcomeRows, rates: tuple[str, ...], struck: NDArray[np.bool_], columns: Sequence[str]
) -> ChanceModel:
    """Fit each cause by itself; one that struck too seldom to learn from stays the history's.

    Args:
        rows: To learn from.
        rates: Columns of the history's chances.
        struck: Shape (rows, causes).
        columns: Of the corrections.
    """
    inputs = varying_inputs(rows, columns)
    x = normalise(rows.values, inputs).astype(np.float64) if inputs else np.empty((len(rows), 0))
    odds, weight = log_odds(history_chances(rows, rates)), user_weights(rows.users)
    fitted = np.array(
        [
            _fit_chance(x, odds[:, cause], struck[:, cause].astype(np.float64), weight)
            for cause in range(len(rates))
        ]
    )
    return ChanceModel(rates, inputs, fitted[:, :-2].T, fitted[:, -2], fitted[:, -1])


def _fit_chance(x: Floats, odds: Floats, struck: Floats, weight: Floats) -> Floats:
    """Return weights of the inputs, then of the history, then the offset."""
    from scipy.optimize import minimize

    count = x.shape[1]
    first = np.concatenate([np.zeros(count), [1.0, 0.0]])
    if min(struck.sum(), (1.0 - struck).sum()) < MIN_RUNS_PER_CAUSE:
        return first

    def loss(given: Floats) -> tuple[float, Floats]:
        weights, a, b = given[:-2], given[-2], given[-1]
        z = x @ weights + a * odds + b
        total = (weight * (np.logaddexp(0.0, z) - struck * z)).sum()
        total += 0.5 * _RIDGE * (weights @ weights + (a - 1.0) ** 2 + 0.1 * b * b)
        slope = weight * (_sigmoid(z) - struck)
        by_a = slope @ odds + _RIDGE * (a - 1.0)
        by_b = slope.sum() + 0.1 * _RIDGE * b
        return float(total), np.concatenate([x.T @ slope + _RIDGE * weights, [by_a, by_b]])

    bounds = [(-5.0, 5.0)] * count + [(MIN_HISTORY_WEIGHT, 4.0), (-10.0, 10.0)]
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x, dtype=np.float64)


def _ascending(given: Floats) -> Floats:
    """Return low, middle and high of a middle and the logarithms of two widths."""
    middle, low, high = given
    return np.array([middle - np.exp(low), middle, middle + np.exp(high)])


def _ascending_slope(given: Floats, by_value: Floats) -> Floats:
    """Return slopes by what `_ascending` takes from those by what it returns."""
    _, low, high = given
    return np.array([by_value.sum(), -np.exp(low) * by_value[0], np.exp(high) * by_value[2]])


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))
