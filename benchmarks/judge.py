"""How good predictions are, next to what anybody would try first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.examples import Examples

Array = NDArray[np.float64]
Fold = tuple[Examples, Array, Array, Examples]
"""Rows that were held out, predicted quantiles, predicted chances, rows that were known."""


@dataclass(frozen=True, slots=True)
class JudgmentRow:
    """One line of a table."""

    case: str
    who: str
    rows: int
    figures: Mapping[str, float]

    def row(self) -> str:
        """Cells of a Markdown row."""
        return " | ".join(
            [
                self.case,
                self.who,
                str(self.rows),
                *(f"{each:.3f}" for each in self.figures.values()),
            ]
        )


def pinball_and_mape(
    case: str, folds: Sequence[Fold], quantiles: Sequence[float]
) -> list[JudgmentRow]:
    """Run times: mean pinball loss of ln seconds, MAPE of the median, coverage of the interval.

    All are judged on the same rows: those of which every one has something to say.
    """
    said: dict[str, list[Array]] = {"learned": [], "history": [], "per model": []}
    truth: list[Array] = []
    for tested, predicted, _, known in folds:
        good = known.failed == 0
        by_model = {
            name: np.quantile(known.log_s[good & (known.models == name)], quantiles)
            for name in np.unique(known.models[good])
        }
        plain = np.array([by_model.get(name, [np.nan] * len(quantiles)) for name in tested.models])
        with np.errstate(invalid="ignore"):
            history = np.log(tested.history_s)
        ok = (
            (tested.failed == 0) & np.isfinite(plain).all(axis=1) & np.isfinite(history).all(axis=1)
        )
        truth.append(tested.log_s[ok])
        for name, value in (("learned", predicted), ("history", history), ("per model", plain)):
            said[name].append(value[ok])
    y = np.concatenate(truth)
    found = []
    for name, parts in said.items():
        q = np.concatenate(parts)
        over = y[:, None] - q
        level = np.array(quantiles)
        found.append(
            JudgmentRow(
                case,
                name,
                len(y),
                {
                    "pinball": float(np.maximum(level * over, (level - 1) * over).mean()),
                    "MAPE": float(np.abs(np.expm1(q[:, len(quantiles) // 2] - y)).mean()),
                    "coverage": float(((y >= q[:, 0]) & (y <= q[:, -1])).mean()),
                },
            )
        )
    return found


def brier_and_auc(case: str, folds: Sequence[Fold]) -> list[JudgmentRow]:
    """Failures: Brier score and area under the ROC curve."""
    said: dict[str, list[Array]] = {
        "learned": [],
        "history": [],
        "per model": [],
        "rate of all": [],
    }
    for tested, _, chance, known in folds:
        rate = float(known.failed.mean())
        by_model = {
            name: (known.failed[known.models == name].sum() + rate)
            / ((known.models == name).sum() + 1)
            for name in np.unique(known.models)
        }
        said["learned"].append(chance)
        said["history"].append(tested.failure_rate)
        said["per model"].append(np.array([by_model.get(each, rate) for each in tested.models]))
        said["rate of all"].append(np.full(len(tested), rate))
    y = np.concatenate([tested.failed for tested, *_ in folds])
    return [
        JudgmentRow(
            case,
            name,
            len(y),
            {
                "Brier": float(((np.concatenate(parts) - y) ** 2).mean()),
                "AUC": _area(np.concatenate(parts), y),
            },
        )
        for name, parts in said.items()
    ]


def _area(chance: Array, failed: Array) -> float:
    """Chance that a failed run was given a higher one than a good run; ties count half."""
    bad = int(failed.sum())
    ranks = rankdata(chance)
    return float((ranks[failed == 1].sum() - bad * (bad + 1) / 2) / (bad * (len(failed) - bad)))
