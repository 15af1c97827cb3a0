"""For how long the next runs hold their boards: the model of past runs, and those runs themselves.

The hierarchical model (`edgeyard.scheduler.prediction.estimates`) is normal in ``ln(run time)``.
Runs of one user or model are not: some fail early, others run to their bound. So the distribution
G of a run is the posterior of a Dirichlet process (Ferguson 1973; nested: Teh et al. 2006), whose
base measure is the model's prediction and whose data are past runs alike, at most the newest
`MAX_RUNS` of each group ::

    G_g = (K G_parent + sum of the runs of g) / (K + n_g),  K = `MODEL_RUNS`

For a model that ran on the family before: model's prediction > runs of the model > of the kind. For
one that never did, what its user's runs of that engine and type took there says most of it:
model's prediction > runs of the user. Runs are compared without what their boards and their number
of inferences add to their logarithm.

Runs of one user that wait at the same time are more alike than any two past ones: where one fails
early, so do the others. So they are not drawn independently, but with the correlation r of runs
that followed each other in their group (a normal copula) ::

    level of a run = cdf(sqrt(r) z_user + sqrt(1 - r) z_run)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.prediction.estimates import PastPairs, RunsAlike, RunTimeParts

MODEL_RUNS = 8.0
"""Weight of what is above in the mixture, in runs (K): two past runs alone say little of a tail."""

MAX_RUNS = 200
"""Newest runs of a group that count: older ones say less of the next, and each costs time."""

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeDistributions:
    """For how long a run holds its board.

    Attributes:
        run: Distribution of ln seconds of the run.
        loading: Distribution of ln seconds from the placement to the start of the task.
        past: Past runs that the next ones are like, with their weight against ``run``; None: none.
    """

    run: RunTimeParts
    loading: RunTimeParts
    past: PastRunDraws | None = None


def history_distributions(batch: Batch, pairs: Pairs) -> TimeDistributions:
    """Return what past runs say of pairs."""
    past = PastPairs(batch, pairs.rows, pairs.boards)
    return TimeDistributions(
        run=past.run_time_parts(), loading=past.loading_parts(), past=PastRunDraws(past)
    )


@dataclass(frozen=True, slots=True, eq=False)
class WeightedRuns:
    """Past runs that a run is like.

    Attributes:
        log_s: Shape (runs,), ascending, without what boards and numbers of inferences add.
        levels: Shape (runs,), ascending to their weight: the share of the mixture up to each.
        similarity: Correlation of runs that follow each other, 0-1.
    """

    log_s: Floats
    levels: Floats
    similarity: float = 0.0

    @property
    def weight(self) -> float:
        """Share of the mixture, 0-1; the rest is the model's prediction."""
        return float(self.levels[-1]) if len(self.levels) else 0.0

    def at(self, levels: Floats) -> Floats:
        """Return the runs at levels below `weight`."""
        return self.log_s[np.searchsorted(self.levels, levels, side="right")]

    def beyond(self, log_s: float) -> WeightedRuns:
        """Return those that lasted longer, with the weights that they have here."""
        first = int(np.searchsorted(self.log_s, log_s, side="right"))
        passed = self.levels[first - 1] if first else 0.0
        return WeightedRuns(self.log_s[first:], self.levels[first:] - passed)


_NO_RUNS = WeightedRuns(np.zeros(0), np.zeros(0))


class PastRunDraws:
    """Past runs by pair of class and board and by user."""

    def __init__(self, past: PastPairs, certain: NDArray[np.bool_] | None = None) -> None:
        """Take what the history says.

        Args:
            past: The pairs.
            certain: Shape (pairs,): where something else than past runs predicts; None: nowhere.
        """
        self._past, self._certain = past, certain
        self._offsets = past.offsets()
        self._known: dict[tuple[int, str], WeightedRuns] = {}

    def except_for(self, certain: NDArray[np.bool_]) -> PastRunDraws:
        """Return the same without the pairs, shape (pairs,), of which a model knows more."""
        return PastRunDraws(self._past, certain)

    def of(self, pair: int, user_id: str) -> tuple[WeightedRuns, float]:
        """Return the past runs that one of the user is like, and what to add to ``log_s`` there."""
        combination, offset = int(self._past.combination[pair]), float(self._offsets[pair])
        runs, load_s = self._of(combination, user_id), self._past.load_s[combination]
        if not load_s:
            return runs, offset
        return replace(runs, log_s=np.log(load_s + np.exp(runs.log_s + offset))), 0.0

    def _of(self, combination: int, user_id: str) -> WeightedRuns:
        key = combination, user_id
        if key not in self._known:
            self._known[key] = _weighted(self._past.runs_alike(*key, MAX_RUNS))
        return self._known[key]

    def draw(self, pairs: Rows, user_id: str, alone: Floats, shared: Floats) -> Floats:
        """Draw from the mixture.

        Args:
            pairs: Shape (samples,).
            user_id: Whose run it is.
            alone: Shape (samples,), standard normal.
            shared: Shape (samples,), standard normal, the same for all runs of the user.

        Returns:
            Shape (samples,), ln seconds; NaN where the draw is one of the model's prediction.
        """
        from scipy.special import ndtr  # takes a moment: the CLI does without it

        found = np.full(len(pairs), np.nan)
        groups = self._past.combination[pairs]
        for group in np.unique(groups).tolist():
            here = np.flatnonzero(groups == group)
            runs = self._of(group, user_id)
            r = runs.similarity
            levels = ndtr(np.sqrt(r) * shared[here] + np.sqrt(1.0 - r) * alone[here])
            drawn = levels < runs.weight
            here = here[drawn]
            found[here] = runs.at(levels[drawn]) + self._offsets[pairs[here]]
            if load_s := self._past.load_s[group]:
                found[here] = np.log(load_s + np.exp(found[here]))
        if self._certain is not None:
            found[self._certain[pairs]] = np.nan
        return found


def _weighted(alike: RunsAlike) -> WeightedRuns:
    """Mix groups of runs."""
    weights = np.zeros(0)
    for each in alike.groups:
        whole = len(each) + MODEL_RUNS
        weights = np.append(weights * MODEL_RUNS / whole, np.full(len(each), 1.0 / whole))
    if not len(weights):
        return _NO_RUNS
    log_s = np.concatenate(alike.groups)
    order = np.argsort(log_s, kind="stable")
    return WeightedRuns(log_s[order], np.cumsum(weights[order]), alike.similarity)
