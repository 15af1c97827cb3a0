"""Tables of policies on the judged sequences of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.training.windows import Window, best_rule, slowdowns

Floats = NDArray[np.float64]

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Mean bounded slowdowns of a policy on sequences of a log.

    Attributes:
        mean: Of the sequences' means.
        low: Lower end of its 95 % interval, a bootstrap of the sequences.
        high: Upper end.
        median: Of the sequences' means.
        worst: The greatest of the sequences' means.
        max_wait_s: Longest wait of any job.
        best_rule: Mean of the simple rule (fcfs, sjf, f1) that is best on these sequences.
        ratio: ``mean / best_rule``.
    """

    mean: float
    low: float
    high: float
    median: float
    worst: float
    max_wait_s: float
    best_rule: float
    ratio: float


def judge(windows: Sequence[Window], ends: Callable[[Window], Floats]) -> Judgement:
    """Replay each sequence; return its figures.

    Args:
        windows: At least one.
        ends: Returns when the jobs of a window end under the policy.
    """
    means, waits = [], []
    for window in windows:
        end = ends(window)
        means.append(float(slowdowns(window, end).mean()))
        waits.append(float((end - window.jobs.run - window.jobs.submit).max()))
    found = np.array(means)
    draws = np.random.default_rng(0).integers(0, len(found), (_RESAMPLES, len(found)))
    low, high = np.quantile(found[draws].mean(axis=1), (0.025, 0.975))
    rule = float(best_rule(windows).mean(axis=0).min())
    return Judgement(
        mean=float(found.mean()),
        low=float(low),
        high=float(high),
        median=float(np.median(found)),
        worst=float(found.max()),
        max_wait_s=max(waits),
        best_rule=rule,
        ratio=float(found.mean()) / rule,
    )
