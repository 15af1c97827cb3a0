"""Predictors next to the plain history: simple baselines, and what could replace it.

Run times: each predictor states a distribution of ln seconds, a Student's t. Fits use the censored
likelihood: the density of a run that led to a result, and the probability of lasting longer than it
did of a run that a limit ended. Two fits correct the history: they begin at its distribution, and
learn what to add to its middle and its scale.

Failures: each predictor states a probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm, t

from benchmarks.examples import Array, Examples, Run, examples, joined
from edgeyard.scheduler.learning.features import Input, normalise
from edgeyard.training.ste.network import Network, slopes, start

RUN_TIME_COLUMNS = (
    "log_history_s", "history_spread", "failure_rate", "log_nb_inference", "log_model_bytes",
    "log_board_ram_bytes", "log_board_cores",
)  # fmt: skip
"""The bound is none of them: a long bound does not make a run long."""

FAILURE_COLUMNS = (*RUN_TIME_COLUMNS, "log_bound_s")
OPTIONAL_COLUMNS = ("log_history_s", "log_model_bytes", "log_board_cores")
"""Each has an input that states whether it is there."""

COLUMNS = FAILURE_COLUMNS

HIDDEN = 16
MEMBERS = 3
STEPS = 600
RATE = 5e-3
MAX_BATCH = 2048
"""Rows of one step; where there are no more, each step takes all of them."""

PASTS = 4
MAX_FREEDOM = 1e6
"""Degrees of freedom of what is a normal distribution."""

RIDGE = 1.0
MIN_RIDGE = 1e-6

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Distributions of ln seconds, shape (rows,) each."""

    location: Array
    scale: Array
    freedom: Array

    def loss(self, log_s: Array, censored: Mask) -> Array:
        """Return the negative log likelihood of each run, in nats; lower is better."""
        z = (log_s - self.location) / self.scale
        density = t.logpdf(z, self.freedom) - np.log(self.scale)
        found: Array = -np.where(censored, t.logsf(z, self.freedom), density)
        return found

    def quantile(self, level: float) -> Array:
        """Return a quantile of ln seconds."""
        found: Array = self.location + self.scale * t.ppf(level, self.freedom)
        return found


RunTimePredictor = Callable[[Examples], Distribution]
FailurePredictor = Callable[[Examples], Array]


def training_rows(runs: Sequence[Run], seed: int) -> Examples:
    """Return each run as it looks with much, little and nothing known of its board.

    No run is in the past that it is seen with.
    """
    rng = np.random.default_rng(seed)
    parts = []
    groups = sorted({run.group for run in runs})
    for turn in range(PASTS):
        if turn % 2:
            part_of = {name: int(rng.integers(3)) for name in groups}  # boards never seen before
            parts_of_runs = np.array([part_of[run.group] for run in runs])
        else:
            parts_of_runs = rng.integers(0, 3, len(runs))  # boards with a past
        share = (1.0, 0.7, 0.5, 0.3)[turn % 4]
        for part in range(3):
            mine = [run for run, its in zip(runs, parts_of_runs, strict=True) if its == part]
            rest = [run for run, its in zip(runs, parts_of_runs, strict=True) if its != part]
            kept = [run for run in rest if rng.random() < share]
            if mine:
                parts.append(examples(mine, kept, COLUMNS))
    return joined([*parts, examples(runs, [], COLUMNS)])


def inputs_for(values: Mapping[str, Array], columns: Sequence[str]) -> tuple[Input, ...]:
    """Return columns normalised to mean 0 and deviation 1 of the training rows."""
    inputs = []
    for name in columns:
        known = values[name][~np.isnan(values[name])]
        deviation = float(known.std()) if len(known) else 0.0
        mean = float(known.mean()) if len(known) else 0.0
        inputs.append(Input(column=name, mean=mean, scale=deviation if deviation > 1e-3 else 1.0))
    return (*inputs, *(Input(column=f"{name}?") for name in OPTIONAL_COLUMNS))


def history_distribution(rows: Examples) -> Distribution:
    """Return what the history alone predicts; needs no fit."""
    return Distribution(rows.location, rows.scale, rows.freedom)


def fit_lookup(known: Examples) -> RunTimePredictor:
    """Look up model and engine: a mean each, shrunk to that of all, and one scale.

    It also learns how run times grow with the runs that are asked for.
    """
    names = {name: row for row, name in enumerate(np.unique(known.workloads).tolist())}
    counts = np.bincount([names[each] for each in known.workloads.tolist()], ~known.censored)

    def table(rows: Examples) -> Array:
        x = np.zeros((len(rows), 2 + len(names)))
        x[:, 0] = 1.0
        x[:, 1] = rows.values["log_nb_inference"]
        for row, name in enumerate(rows.workloads.tolist()):
            if name in names:
                x[row, 2 + names[name]] = 1.0
        return x

    ridge = np.full(2 + len(names), RIDGE)
    ridge[:2] = MIN_RIDGE
    unit = np.ones(len(known))
    weights, scale = fit_censored(table(known), known.log_s, known.censored, unit, ridge)

    def predict(rows: Examples) -> Distribution:
        runs = np.array([counts[names[n]] if n in names else 0.0 for n in rows.workloads.tolist()])
        spread = np.sqrt(scale**2 + 1.0 / (RIDGE + runs / scale**2))
        return Distribution(table(rows) @ weights, spread, np.full(len(rows), MAX_FREEDOM))

    return predict


def fit_regression(rows: Examples) -> RunTimePredictor:
    """Correct the history by a linear function of the columns, and its scale by a factor."""
    rows = rows.only(np.isfinite(rows.location))
    inputs = inputs_for(rows.values, RUN_TIME_COLUMNS)

    def table(of: Examples) -> Array:
        x = normalise(of.values, inputs).astype(np.float64)
        return np.hstack([np.ones((len(x), 1)), x])

    ridge = np.full(len(inputs) + 1, RIDGE)
    ridge[0] = MIN_RIDGE
    rest = rows.log_s - rows.location
    weights, factor = fit_censored(table(rows), rest, rows.censored, rows.scale, ridge)

    def predict(of: Examples) -> Distribution:
        return Distribution(of.location + table(of) @ weights, of.scale * factor, of.freedom)

    return predict


def fit_network(rows: Examples) -> RunTimePredictor:
    """Correct the history by a small network of the columns, its scale too."""
    rows = rows.only(np.isfinite(rows.location))
    inputs = inputs_for(rows.values, RUN_TIME_COLUMNS)
    x = normalise(rows.values, inputs).astype(np.float64)
    rest, unit, censored = rows.log_s - rows.location, rows.scale, rows.censored

    def slope(out: Array, part: Rows) -> Array:
        cut = censored[part]
        scale = unit[part] * np.exp(out[:, 1])
        z = (rest[part] - unit[part] * out[:, 0]) / scale
        hazard = np.exp(norm.logpdf(z) - norm.logsf(z))
        by_z = np.where(cut, hazard, z)
        by_scale = np.where(cut, -hazard * z, 1.0 - z * z)
        return np.stack([-by_z * unit[part] / scale, by_scale], axis=1)

    networks = [_trained(x, 2, slope, seed) for seed in range(MEMBERS)]

    def predict(of: Examples) -> Distribution:
        given = normalise(of.values, inputs).astype(np.float64)
        out = np.mean([each.raw(given) for each in networks], axis=0)
        return Distribution(
            of.location + of.scale * out[:, 0], of.scale * np.exp(out[:, 1]), of.freedom
        )

    return predict


def fit_censored(
    x: Array, y: Array, censored: Mask, unit: Array, ridge: Array
) -> tuple[Array, float]:
    """Fit a normal distribution with mean ``x @ weights`` and deviation ``unit * scale``.

    Args:
        x: Shape (rows, inputs).
        y: Shape (rows,): values, or what they exceed where they are censored.
        censored: Shape (rows,).
        unit: Shape (rows,), above 0.
        ridge: Shape (inputs,): by how much each weight is drawn to 0.

    Returns:
        The weights, shape (inputs,), and the scale.
    """

    def loss(given: Array) -> tuple[float, Array]:
        weights, log_scale = given[:-1], given[-1]
        scale = unit * np.exp(log_scale)
        z = (y - x @ weights) / scale
        survival = norm.logsf(z)
        each = np.where(censored, -survival, 0.5 * z * z + np.log(scale))
        hazard = np.exp(norm.logpdf(z) - survival)
        by_z = np.where(censored, hazard, z)
        by_scale = np.where(censored, -hazard * z, 1.0 - z * z).sum()
        slope = -x.T @ (by_z / scale) + ridge * weights
        total = each.sum() + 0.5 * (ridge * weights * weights).sum()
        return float(total), np.append(slope, by_scale)

    bounds: list[Any] = [(None, None)] * x.shape[1] + [(-4.0, 4.0)]
    found = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", bounds=bounds)
    return found.x[:-1], float(np.exp(found.x[-1]))


def history_failures(rows: Examples) -> Array:
    """Return the rate of failures by the history alone; needs no fit."""
    return rows.failure_rate


def fit_rate(rows: Examples) -> FailurePredictor:
    """Predict the same for all: the rate of the known runs."""
    rate = float(rows.censored.mean())
    return lambda of: np.full(len(of), rate, dtype=np.float64)


def ratios(rows: Examples) -> Array:
    """Return ln of three ratios: size to memory, expected time to bound, failures to results."""
    rate = np.clip(rows.failure_rate, 0.01, 0.99)
    found: Array = np.stack(
        [
            rows.values["log_model_bytes"] - rows.values["log_board_ram_bytes"],
            rows.location - rows.values["log_bound_s"],
            np.log(rate / (1.0 - rate)),
        ],
        axis=1,
    )
    return np.where(np.isnan(found), 0.0, found)


def fit_ratios(rows: Examples) -> FailurePredictor:
    """Fit a logistic regression of `ratios`."""
    given = ratios(rows)
    mean, scale = given.mean(axis=0), np.maximum(given.std(axis=0), 1e-3)

    def table(of: Examples) -> Array:
        return np.hstack([np.ones((len(of), 1)), (ratios(of) - mean) / scale])

    x, failed = table(rows), rows.censored.astype(np.float64)

    def loss(weights: Array) -> tuple[float, Array]:
        z = x @ weights
        total = (np.logaddexp(0.0, z) - failed * z).sum() + 0.5 * RIDGE * (weights[1:] ** 2).sum()
        slope = x.T @ (_chance(z) - failed) + RIDGE * np.append(0.0, weights[1:])
        return float(total), slope

    weights = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda of: _chance(table(of) @ weights)


def fit_failure_network(rows: Examples) -> FailurePredictor:
    """Fit a small network of the columns, the effective bound too."""
    inputs = inputs_for(rows.values, FAILURE_COLUMNS)
    x = normalise(rows.values, inputs).astype(np.float64)
    failed = rows.censored.astype(np.float64)[:, None]

    def slope(out: Array, part: Rows) -> Array:
        return _chance(out) - failed[part]

    networks = [_trained(x, 1, slope, seed) for seed in range(MEMBERS)]

    def predict(of: Examples) -> Array:
        given = normalise(of.values, inputs).astype(np.float64)
        return _chance(np.mean([each.raw(given)[:, 0] for each in networks], axis=0))

    return predict


def _chance(z: Array) -> Array:
    found: Array = 1.0 / (1.0 + np.exp(-z))
    return found


def _trained(x: Array, outputs: int, slope: Callable[[Array, Rows], Array], seed: int) -> Network:
    """Train by Adam (Kingma & Ba 2015), with weights drawn to their start.

    Args:
        x: Shape (rows, inputs).
        outputs: Of the network.
        slope: Returns the slopes of the loss by the outputs for some of the rows.
        seed: Of the first weights, and of the rows that are drawn where there are many.
    """
    rng = np.random.default_rng(seed)
    part: Rows = np.arange(len(x))
    network = start(x.shape[1], outputs, HIDDEN, seed)
    first = {name: value.copy() for name, value in network.weights.items()}
    moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in first.items()}
    for step in range(1, STEPS + 1):
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * step / STEPS))
        if len(x) > MAX_BATCH:
            part = rng.integers(0, len(x), MAX_BATCH)
        found = slopes(network, x[part], slope(network.raw(x[part]), part) / len(part))
        for name, by_weight in found.items():
            if not name.startswith("b"):
                by_weight = by_weight + 3e-3 * (network.weights[name] - first[name])
            mean, square = moments[name]
            mean += 0.1 * (by_weight - mean)
            square += 0.001 * (by_weight * by_weight - square)
            root = np.sqrt(square / (1.0 - 0.999**step)) + 1e-8
            network.weights[name] -= rate * (mean / (1.0 - 0.9**step)) / root
    return network
