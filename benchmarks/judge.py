"""How good predictions are, with intervals: a bootstrap over groups of truly equal systems.

Runs of one group are alike, so groups are drawn with replacement, not runs, the same ones for all
predictors: differences are paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.predictors import Distribution
from edgeyard.scheduler.outcomes.intervals import Interval, group_means

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

HISTORY = "history"


@dataclass(frozen=True, slots=True)
class JudgmentRow:
    """One line of a table.

    Attributes:
        rows: Runs that were predicted.
        loss: Mean loss of a run; lower is better.
        difference: To the loss of the history; below 0 where this one is better.
        figures: Further figures by their names.
    """

    case: str
    predictor: str
    rows: int
    loss: Interval
    difference: Interval | None
    figures: Mapping[str, float]

    def row(self) -> str:
        """Return the cells of a Markdown row."""
        difference = "" if self.difference is None else str(self.difference)
        return " | ".join(
            [self.case, self.predictor, str(self.rows), str(self.loss), difference]
            + [f"{each:.2f}" for each in self.figures.values()]
        )


def judge_run_times(
    case: str,
    distributions: Mapping[str, Distribution],
    log_s: Array,
    censored: Mask,
    groups: NDArray[np.str_],
) -> list[JudgmentRow]:
    """Judge distributions of run times: censored log loss, error of the median, coverage of 80 %.

    All are judged on the same runs: those for which every predictor states a distribution. The two
    figures are of the runs that led to a result."""
    known = np.logical_and.reduce([np.isfinite(each.location) for each in distributions.values()])
    log_s, censored, groups = log_s[known], censored[known], groups[known]
    distributions = {
        name: Distribution(each.location[known], each.scale[known], each.freedom[known])
        for name, each in distributions.items()
    }
    losses = {name: each.loss(log_s, censored) for name, each in distributions.items()}
    found = []
    for name, distribution in distributions.items():
        low, high = distribution.quantile(0.1)[~censored], distribution.quantile(0.9)[~censored]
        results = log_s[~censored]
        error = np.abs(results - distribution.location[~censored])
        figures = {
            "error factor": float(np.exp(np.median(error))),
            "in the 80 % interval": float(((low <= results) & (results <= high)).mean()),
        }
        found.append(_row(case, name, losses, groups, figures))
    return found


def judge_failures(
    case: str, chances: Mapping[str, Array], failed: Mask, groups: NDArray[np.str_]
) -> list[JudgmentRow]:
    """Judge probabilities of a failure: Brier score, area under the ROC curve."""
    losses = {name: (chance - failed) ** 2 for name, chance in chances.items()}
    return [
        _row(case, name, losses, groups, {"AUC": area(chance, failed)})
        for name, chance in chances.items()
    ]


def _row(
    case: str,
    name: str,
    losses: Mapping[str, Array],
    groups: NDArray[np.str_],
    figures: Mapping[str, float],
) -> JudgmentRow:
    loss = losses[name]
    difference = None if name == HISTORY else group_means(loss - losses[HISTORY], groups)
    return JudgmentRow(case, name, len(loss), group_means(loss, groups), difference, figures)


def area(chance: Array, failed: Mask) -> float:
    """Return the chance that a failed run was given more than a good one; ties count half."""
    bad = int(failed.sum())
    ranks = rankdata(chance)
    return float((ranks[failed].sum() - bad * (bad + 1) / 2) / (bad * (len(failed) - bad)))
