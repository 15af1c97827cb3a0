"""What the past says of run times and failures, for pairs of a class and a board.

Where there are few runs of just this kind on just this board, broader groups say most of it:

::

    all > (engine, type) > (family, engine, type) > (family, .., model) > (family, kind) > board

**Run times.** A hierarchical normal model of ``y = ln(run time) - b ln(runs asked for)``, of runs
that led to a result; empirical Bayes, all in closed form (Gelman et al., *Bayesian Data Analysis*,
3rd ed., section 5.4; Searle, Casella & McCulloch, *Variance Components*, 1992, section 3.6). Runs
that a limit ended count with the time that they are expected to have lasted
(`_with_expected_times`). A group g of n runs with mean y_g below its parent p ::

    spread of children    t2  = max(0, (SSB - (k - p) MSW) / (N - sum_p sum_c n_c^2 / N_p))  ANOVA
    its mean's error      e_g = MSW / n_g + t2_below sum_c n_c^2 / n_g^2
    mean                  m_g = (y_g / e_g + m_p / (t2 + v_p)) / (1 / e_g + 1 / (t2 + v_p))
    and its variance      v_g = 1 / (1 / e_g + 1 / (t2 + v_p))
    spread of runs        s2_g = (K s2_p + SS_g) / (K + df_g),  K = 4 runs' worth of the parent

b is how y grows with the number of runs within models, 0 to 1. Where that differs within none, b is
1 with variance `_SLOPE_VARIANCE`, which counts for what asks for other numbers than its group.
A group without runs has its parent's mean, moved by what the model is elsewhere against its peers,
and what the board is on other kinds against its peers; both shrunk to 0 by the same rule. The
quantile q of the *next* run, not of the mean, is ``exp(m + t_q(K + df) sqrt(s2 + v))`` times
``runs ^ b``, with Student's t.

A load of a stated length L (a soak, a trial) lasts so long on any board: of such runs, y is of what
they took beyond it, no less than `_MIN_REST` of the run, and the next run takes ``L + exp(..)``.
Given as a distribution of its logarithm again, to first order ::

    m' = ln(L + exp(m)),  s' = s exp(m) / (L + exp(m))

**Failures.** Two causes, each a chain of Beta-Bernoulli estimates with ``K`` pseudo-runs at the
parent's rate, ``p_g = (failures_g + K p_parent) / (n_g + K)``: what follows the model
(all > family, engine, type > .., model), and what follows the board (all > family > board). A run
fails if either strikes: ``1 - (1 - p_model) (1 - p_board)``. Runs count half as much every
`HALF_LIFE_S`, so that a board that got well is trusted again.

**Loading.** From the placement to the start of the task, as run times, but without growth with the
number of runs.

**Energy.** Joules of runs that led to a result and state them, as run times; of a load of a stated
length, watts, by the same model without growth, times the run time.

**Measurements.** The chance that the number of a result is not comparable: one chain (all > family
> board > board, model), like failures.

All are fitted to `History.settled`: all runs up to 200, and all but up to one per cent beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import OF_BOARDS, Batch, Pairs, family_numbers
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.history import History

PSEUDO_RUNS = 4.0
"""Weight, in runs, of a group's parent in the estimate of the group's spread and failures."""

HALF_LIFE_S = 7 * 86400.0
"""Half-life of the weight of a failure or success: boards are repaired within days."""

_UNKNOWN_VARIANCE = 1.0
"""Variance of groups about their parent, and of runs, where it is unknown: a factor of e."""

_UNKNOWN_FAMILY_VARIANCE = 0.01
"""The same between boards of a family, and between runs of a kind on a board: 10 %."""

_SLOPE_VARIANCE = 0.6
"""Variance of b = 1 where all runs of each model asked for as many runs: b = 0 (such runs are all
set-up) is its 10th percentile, so that an unknown growth alone keeps nothing waiting for its
bound."""

_MAX_SIMILARITY = 0.95
"""Runs that follow each other never are quite the same."""

_MAX_CELLS = 16_000_000
"""A table of pairs up to this size (64 MB) is filled; beyond, each pair is looked for."""

UNKNOWN_RUN_S = 60.0
"""Run time without any past runs and without a stated bound; the same on all boards."""

RETRY_S = 10.0
"""Cost of another attempt in addition to its run: the first backoff."""

BOARD_FAILURES = frozenset(
    {FailureCategory.BOARD_FAULT, FailureCategory.THERMAL, FailureCategory.UPLOAD}
)
"""Failures that another board might not have had; more may turn out so: `unknown`, time-outs."""

INCONCLUSIVE_FAILURES = frozenset(
    {
        FailureCategory.CLUSTER,
        FailureCategory.NETWORK,
        FailureCategory.PREEMPTED,
        FailureCategory.PREEMPTED_TOO_OFTEN,
        FailureCategory.REJECTED,
    }
)
"""Failures that show nothing about the model or the board; a rejected job never ran."""

_MODEL, _BOARD = 3, 5
"""Levels of the groups above, from 0, whose names have an effect wherever they occur."""

MIN_HANG_RATIO = 2.0
"""A run that a limit ended hung if it lasted this many times as long as the longest result of its
kind on boards of its family."""

_MIN_REST = 0.001
"""Share of a run that it takes at least beyond the stated length of its load: clocks differ."""

_COMPLETIONS = 20
"""Rounds of EM; the missing share shrinks the error by that share in each."""

_ROUNDS = 2
"""Rounds of fitting; the second removes the boards' own effects from the means of all kinds."""

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def run_times(batch: Batch, rows: Rows, boards: Rows, quantile: float = 0.5) -> Floats:
    """Predict how long the next run takes.

    Args:
        batch: Its knowledge holds the past.
        rows: Classes, shape (pairs,), for instance of ``np.nonzero(feasible)``.
        boards: Boards, shape (pairs,).
        quantile: 0-1, exclusive, of the next run's time.

    Returns:
        Shape (pairs,), seconds; NaN where nothing at all is known.
    """
    return PastPairs(batch, rows, boards).run_times(quantile)


def run_time_distribution(batch: Batch, rows: Rows, boards: Rows) -> tuple[Floats, Floats, Floats]:
    """Return location, scale and degrees of freedom of ``ln(run time)``, which is Student's t.

    Returns:
        Shape (pairs,) each; NaN where nothing at all is known.
    """
    return PastPairs(batch, rows, boards).run_time_distribution()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunTimeParts:
    """Distribution of ``ln(run time)``, its scale in two parts; shape (pairs,), NaN if unknown.

    Attributes:
        location: Its middle.
        noise: Variance of one run to the next: another run, another draw.
        error: Variance of the location, as far as it is known: the same for all runs alike.
        freedom: Degrees of freedom of Student's t.
    """

    location: Floats
    noise: Floats
    error: Floats
    freedom: Floats

    def quantile(self, quantile: float) -> Floats:
        """Return a quantile of the next run's value, shape (pairs,); NaN: unknown."""
        scale = np.sqrt(self.noise + self.error)
        return np.exp(self.location + scale * student_quantiles(self.freedom, quantile))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailureCauses:
    """Chances that the next run fails by cause, with standard errors; shape (pairs,) each.

    Attributes:
        model: Because of what is run: the model, its input, the engine, a limit.
        model_error: Its standard error.
        board: Because of the board: another one might not have failed.
        board_error: Its standard error.
    """

    model: Floats
    model_error: Floats
    board: Floats
    board_error: Floats

    def combined(self) -> tuple[Floats, Floats]:
        """Return the chance that either strikes, and its standard error."""
        error = np.hypot(
            (1.0 - self.model) * self.board_error, (1.0 - self.board) * self.model_error
        )
        return combined_chance(self.model, self.board), error


def combined_chance(model: Floats, board: Floats) -> Floats:
    """Return the chance that one of two causes strikes that do not depend on each other."""
    return np.asarray(1.0 - (1.0 - model) * (1.0 - board))


def run_time_parts(batch: Batch, rows: Rows, boards: Rows) -> RunTimeParts:
    """Return `run_time_distribution` with its scale in parts, for drawing several runs."""
    return PastPairs(batch, rows, boards).run_time_parts()


def run_counts(batch: Batch, rows: Rows, boards: Rows) -> Floats:
    """Count the successful runs that a prediction rests on: of the model, on boards of the family.

    Args:
        batch: As for `run_times`.
        rows: As for `run_times`.
        boards: As for `run_times`.

    Returns:
        Shape (pairs,).
    """
    return PastPairs(batch, rows, boards).run_counts()


def failure_rates(batch: Batch, rows: Rows, boards: Rows) -> Floats:
    """Predict the chance that the next run fails.

    Args:
        batch: As for `run_times`.
        rows: As for `run_times`.
        boards: As for `run_times`.

    Returns:
        Shape (pairs,), 0-1; 0 where nothing at all is known.
    """
    return PastPairs(batch, rows, boards).failure_rates()


def past_pairs(batch: Batch, pairs: Pairs) -> PastPairs:
    """Return what the past says of a cycle's pairs, made once for all plugins that ask."""
    known: dict[object, tuple[Rows, PastPairs]] = batch.derived(_PastPairsByPairs).known
    key = id(pairs.boards)
    if key not in known:  # the array is kept, so that no other one gets its id
        known[key] = pairs.boards, PastPairs(batch, pairs.rows, pairs.boards)
    return known[key][1]


class _PastPairsByPairs:
    def __init__(self, batch: Batch) -> None:
        self.known: dict[object, tuple[Rows, PastPairs]] = {}


def student_quantiles(freedom: Floats, quantile: float) -> Floats:
    """Return quantiles of Student's t, with degrees of freedom rounded down."""
    from scipy.special import stdtrit  # takes a moment: the CLI does without it

    whole = np.minimum(np.nan_to_num(freedom, nan=1.0), 200.0).astype(np.intp)
    table = stdtrit(np.arange(whole.max(initial=1) + 1).clip(1), quantile)
    return np.asarray(table[whole], dtype=np.float64)


class PastPairs:
    """Pairs by the history's numbers, and the few (class, family) that they are made of.

    For who asks several things of the same pairs.
    """

    def __init__(self, batch: Batch, rows: Rows, boards: Rows) -> None:
        """Take the arguments of `run_times`."""
        names = batch.knowledge.runs.names
        family_of, local = family_numbers(batch)
        used = np.zeros((len(batch.kinds), len(family_of)), dtype=np.bool_)
        cells = rows * len(family_of) + local[boards]
        used.ravel()[cells] = True
        place = np.cumsum(used) - 1
        self._history = batch.knowledge.runs.settled
        self.rows, self.boards = rows, boards
        self.combination: Rows = place[cells]
        row_of, local_of = np.nonzero(used)
        kinds = batch.derived(_KindCodes)
        families = names.families.of(family_of)
        self.row = row_of
        self.shape = batch.shape
        self.family: Codes = families[local_of]
        self.kind: Codes = kinds.kind[row_of]
        self.stem: Codes = kinds.stem[row_of]
        self.base: Codes = kinds.base[row_of]
        self.log_runs: Floats = kinds.log_runs[row_of]
        self.load_s: Floats = kinds.load_s[row_of]
        self.board: Codes = batch.derived(_board_codes)

    def run_times(self, quantile: float = 0.5) -> Floats:
        """Return the same as the function of that name."""
        return self.run_time_parts().quantile(quantile)

    def loading_times(self, quantile: float = 0.5) -> Floats:
        """Return a quantile of the seconds from placement to the task's start; NaN: unknown."""
        return self.loading_parts().quantile(quantile)

    def run_time_distribution(self) -> tuple[Floats, Floats, Floats]:
        """Return the same as the function of that name."""
        distribution = self.run_time_parts()
        return (
            distribution.location,
            np.sqrt(distribution.noise + distribution.error),
            distribution.freedom,
        )

    def run_time_parts(self) -> RunTimeParts:
        """Return the same as the function of that name."""
        parts = self._history.derived(_RunTimes).parts(self)
        if not self.load_s.any():
            return parts
        rest_s = np.exp(parts.location)
        run_s = self.load_s[self.combination] + rest_s
        share = rest_s / run_s
        return replace(
            parts,
            location=np.log(run_s),
            noise=parts.noise * share**2,
            error=parts.error * share**2,
        )

    def offsets(self) -> Floats:
        """Return what boards and numbers of inferences add to ln seconds, shape (pairs,).

        Of a load of a stated length, of what a run takes beyond it, as `runs_alike`.
        """
        return self._history.derived(_RunTimes).offsets(self)

    def runs_alike(self, combination: int, user_id: str, max_runs: int) -> RunsAlike:
        """Return the newest runs of the groups that a run is of.

        Its model's and its kind's on boards of its family; of a model that never ran there, the
        user's of its engine and type.

        Args:
            combination: Number of class and family, see ``combination``.
            user_id: Whose run it is.
            max_runs: Of each group.
        """
        user = int(self._history.names.users.of([user_id])[0])
        return self._history.derived(_RunTimes).alike(self, combination, user, max_runs)

    def run_counts(self) -> Floats:
        """Return the same as the function of that name."""
        return self._history.derived(_RunTimes).counts(self)

    def failure_rates(self) -> Floats:
        """Return the same as the function of that name."""
        return self.failure_chances()[0]

    def failure_chances(self) -> tuple[Floats, Floats]:
        """Return the chance that the next run fails, and its standard error; shape (pairs,)."""
        return self.failure_causes().combined()

    def failure_causes(self) -> FailureCauses:
        """Return the chances that the next run fails because of its model and of its board."""
        return self._history.derived(_Failures).causes(self)

    def loading_parts(self) -> RunTimeParts:
        """Return the distribution of ln of the seconds from placement to the task's start."""
        return self._history.derived(_LoadingTimes).parts(self)

    def energy_parts(self) -> RunTimeParts:
        """Return the distribution of ln of the joules of the next run."""
        joules = self._history.derived(_Energies).parts(self)
        if not self.load_s.any():
            return joules
        loads = self.load_s[self.combination] > 0
        watts = self._history.derived(_Powers).parts(self)
        times = self.run_time_parts()
        return RunTimeParts(
            location=np.where(loads, watts.location + times.location, joules.location),
            noise=np.where(loads, watts.noise + times.noise, joules.noise),
            error=np.where(loads, watts.error + times.error, joules.error),
            freedom=np.where(loads, np.fmin(watts.freedom, times.freedom), joules.freedom),
        )

    def measurement_chances(self) -> tuple[Floats, Floats]:
        """Return the chance that a result's number is not comparable, and its standard error.

        Shape (pairs,) each; NaN where no number of any run was judged.
        """
        return self._history.derived(_Measurements).chances(self)


def of_boards(batch: Batch, other: Batch) -> None:
    """Let a batch of the same boards and history use what was derived from these."""
    batch.pass_on(other, _board_codes, *OF_BOARDS)


def _board_codes(batch: Batch) -> Codes:
    return batch.knowledge.runs.names.boards.of(batch.snapshot.uids)


class _KindCodes:
    """Numbers of the batch's kinds, and of the broader ones that they belong to."""

    def __init__(self, batch: Batch) -> None:
        known = batch.knowledge.runs.settled.derived(_Stems)
        self.kind = batch.knowledge.runs.names.kinds.of(batch.kinds)
        new = np.flatnonzero((self.kind < 0) | (self.kind >= len(known.stem_of_kind)))
        self.kind[new] = -1
        self.stem = np.append(known.stem_of_kind, -1)[self.kind]
        self.base = np.append(known.base_of_kind, -1)[self.kind]
        for row in new.tolist():
            kind = batch.kinds[row]
            base = kind.engine, kind.benchmark_type
            self.stem[row] = known.stems.get((*base, kind.model_sha256), -1)
            self.base[row] = known.bases.get(base, -1)
        self.log_runs = np.log(
            np.array([max(kind.nb_inference, 1) for kind in batch.kinds], dtype=np.float64)
        )
        self.load_s = np.array([kind.load_s for kind in batch.kinds], dtype=np.float64)


class _Stems:
    """What kinds are made of: a *base* is engine and type, a *stem* is a base and a model."""

    def __init__(self, history: History) -> None:
        self.stems: dict[tuple[object, ...], int] = {}
        self.bases: dict[tuple[object, ...], int] = {}
        kinds = tuple(history.names.kinds.names)
        stem_of, base_of = [], []
        for kind in kinds:
            base = (kind.engine, kind.benchmark_type)
            stem_of.append(self.stems.setdefault((*base, kind.model_sha256), len(self.stems)))
            base_of.append(self.bases.setdefault(base, len(self.bases)))
        self.stem_of_kind: Codes = np.array(stem_of, dtype=np.int64)
        self.base_of_kind: Codes = np.array(base_of, dtype=np.int64)
        self.log_runs_of_kind: Floats = np.log(
            np.array([max(kind.nb_inference, 1) for kind in kinds], dtype=np.float64)
        )
        self.load_s_of_kind: Floats = np.array([kind.load_s for kind in kinds], dtype=np.float64)


def _key(left: Codes, right: Codes) -> Codes:
    """Return one number for two; -1 where either is unknown."""
    return np.where((left < 0) | (right < 0), -1, (left << 32) | right)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Groups:
    """Runs by a key.

    Attributes:
        keys: Shape (groups,), sorted.
        of_run: Shape (runs,): group of each run.
        first: Shape (groups,): a run of each.
        counts: Shape (groups,).
        means: Shape (groups,), of y.
        squares: Shape (groups,), sum of (y - mean)^2 and of the variances of y.
        variances: Shape (runs,), of y where it was not measured; 0 for none.
    """

    keys: Codes
    of_run: Rows
    first: Rows
    counts: Floats
    means: Floats
    squares: Floats
    variances: Floats | float = 0.0

    @classmethod
    def of(cls, keys: Codes, y: Floats, variances: Floats | float = 0.0) -> _Groups:
        """Group runs by these keys, shape (runs,)."""
        found, first, of_run = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(of_run, minlength=len(found)).astype(np.float64)
        return cls(
            keys=found,
            of_run=of_run,
            first=first,
            counts=counts,
            means=counts,
            squares=counts,
            variances=variances,
        ).with_values(y)

    def with_values(self, y: Floats) -> _Groups:
        """Return the same groups with other values."""
        means = np.bincount(self.of_run, weights=y) / self.counts
        squares = np.bincount(self.of_run, weights=(y - means[self.of_run]) ** 2 + self.variances)
        return replace(self, means=means, squares=squares.astype(np.float64, copy=False))

    def find(self, keys: Codes) -> Rows:
        """Return the group of each key; -1 where there is none."""
        if not len(self.keys):
            return np.full(keys.shape, -1, dtype=np.intp)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, place, -1)

    @property
    def within(self) -> float:
        """Pooled variance within groups (MSW); NaN where no group has two runs."""
        freedom = self.counts.sum() - len(self.counts)
        return float(self.squares.sum() / freedom) if freedom > 0 else np.nan


def _spread(children: _Groups, parents: _Groups, otherwise: float) -> float:
    """Estimate the variance of children's means about their parents' by ANOVA."""
    parent = parents.of_run[children.first]
    total = parents.counts
    squares = np.bincount(parent, weights=children.counts**2, minlength=len(total))
    unlike = float(total.sum() - (squares / total).sum())
    if not unlike > 0:
        return otherwise
    between = float((children.counts * (children.means - parents.means[parent]) ** 2).sum())
    freedom = len(children.counts) - len(total)
    within = children.within
    return max((between - freedom * (0.0 if np.isnan(within) else within)) / unlike, 1e-6)


@dataclass(frozen=True, slots=True, eq=False)
class RunsAlike:
    """Past runs that a run is like.

    Attributes:
        groups: ln seconds, oldest first, broadest group first; without what boards and numbers of
            inferences add.
        similarity: Correlation of one run of the group with the next, 0-1.
    """

    groups: Sequence[Floats]
    similarity: float


class _RunsByKey:
    """Runs of each group, oldest first.

    Attributes:
        similarity: Correlation of a run with the one before it in its group, 0-1, pooled.
    """

    def __init__(self, keys: Codes, y: Floats) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._y = keys[order], y[order]
        groups = _Groups.of(self._keys, self._y)
        scale = np.sqrt(groups.squares / groups.counts)[groups.of_run]
        off = (self._y - groups.means[groups.of_run]) / np.maximum(scale, 1e-9)
        follows = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        # of n runs about their own mean it is 1 / n too low
        products = off[follows] * off[follows + 1] + 1.0 / groups.counts[groups.of_run[follows]]
        found = float(products.sum()) / (len(follows) + PSEUDO_RUNS)
        self.similarity = min(max(found, 0.0), _MAX_SIMILARITY)

    def newest(self, left: int, right: int, count: int) -> Floats:
        """Return the last ``count`` of the group with these two numbers."""
        if left < 0 or right < 0:
            return self._y[:0]
        first, last = np.searchsorted(self._keys, ((left << 32) | right) + np.arange(2))
        return self._y[max(first, last - count) : last]


class _Level:
    """Posterior means of the groups of one level."""

    def __init__(
        self,
        groups: _Groups,
        spread: float,
        error: Floats,
        prior: Floats,
        prior_variance: Floats,
    ) -> None:
        own, given = 1.0 / error, 1.0 / (spread + prior_variance)
        self.groups = groups
        self.spread = spread
        self.variance: Floats = 1.0 / (own + given)
        self.mean: Floats = (groups.means * own + prior * given) * self.variance


class _RunTimes:
    """The model of run times, fitted to a history."""

    def __init__(self, history: History) -> None:
        columns = history.columns
        good = (columns.failures < 0) & _is_positive(columns.run_s)
        load_s = history.derived(_Stems).load_s_of_kind[columns.kinds]
        rest_s = np.maximum(columns.run_s - load_s, _MIN_REST * columns.run_s)
        self._fit_to(history, rest_s, good, _cut_runs(history, good))

    def _fit_to(
        self,
        history: History,
        seconds: Floats,
        good: NDArray[np.bool_],
        cut: NDArray[np.bool_],
        *,
        grows: bool = True,
    ) -> None:
        """Fit all levels.

        Args:
            history: The past.
            seconds: Shape (runs,).
            good: Shape (runs,): which are whole times.
            cut: Shape (runs,): which would have lasted longer.
            grows: Whether times grow with the number of inferences that were asked for.
        """
        known, columns = history.derived(_Stems), history.columns
        used = np.flatnonzero(good | cut)
        cut = cut[used]
        self.empty = not len(used)
        if self.empty:
            return
        kind = columns.kinds[used].astype(np.int64)
        family = columns.families[used].astype(np.int64)
        board = columns.boards[used].astype(np.int64)
        stem, base = known.stem_of_kind[kind], known.base_of_kind[kind]
        x = known.log_runs_of_kind[kind]
        y = np.log(seconds[used])
        self._slope, self._slope_variance = 0.0, 0.0
        if grows:
            stems = _key(family, stem)[~cut]
            self._slope, self._slope_variance = _slope(stems, x[~cut], y[~cut])
        y = y - self._slope * x
        unseen: Floats | float = 0.0
        if cut.any():
            y, unseen = _with_expected_times(_key(board, kind), y, cut)
        keys = (
            np.zeros_like(base),
            base,
            _key(family, base),
            _key(family, stem),
            _key(family, kind),
            _key(board, kind),
        )
        groups = [_Groups.of(key, y, unseen) for key in keys]
        self._of_boards = _Effect.none()
        for _ in range(_ROUNDS):
            shift = self._of_boards.of(board)
            groups = [each.with_values(y - shift) for each in groups]
            self._fit_means(groups, stem, board)
        self._shift = shift[groups[_BOARD].first]
        self._log_runs = [each.with_values(x).means for each in groups[:_BOARD]]
        boards, kinds = groups[_BOARD], groups[_BOARD - 1]
        own = boards.means - kinds.means[kinds.of_run[boards.first]]
        spread = self._levels[_BOARD].spread
        self._offsets = self._shift + own * spread / (spread + self._noises[0][0] / boards.counts)
        plain = y - self._offsets[boards.of_run]
        bases = groups[_MODEL - 1]
        users = _key(bases.of_run.astype(np.int64), columns.users[used].astype(np.int64))
        self._alike = tuple(
            _RunsByKey(key, plain) for key in (users, _key(family, stem), _key(family, kind))
        )
        model = groups[_MODEL]
        self._successes = np.bincount(model.of_run, weights=~cut, minlength=len(model.keys))

    def _fit_means(self, groups: list[_Groups], stem: Codes, board: Codes) -> None:
        """Fit all levels, given what boards were found to add."""
        within = groups[-1].within
        within = _UNKNOWN_FAMILY_VARIANCE if np.isnan(within) else max(within, 1e-6)
        otherwise = (
            _UNKNOWN_VARIANCE,
            _UNKNOWN_VARIANCE,
            _UNKNOWN_VARIANCE,
            _UNKNOWN_VARIANCE,
            _UNKNOWN_FAMILY_VARIANCE,
        )
        spreads = [
            _spread(below, above, default)
            for (above, below), default in zip(pairwise(groups), otherwise, strict=True)
        ]
        self._fit(groups, spreads, within, stem, board)
        self._fit_noise(groups, within)

    def _fit(
        self,
        groups: list[_Groups],
        spreads: list[float],
        within: float,
        stem: Codes,
        board: Codes,
    ) -> None:
        """Compute means from the top down, with the effects of models and boards on the way."""
        errors = [
            _error(above, below, spread, within)
            for (above, below), spread in zip(pairwise(groups), spreads, strict=True)
        ]
        errors.append(within / groups[-1].counts)
        top = groups[0]
        self._levels = [_Level(top, 0.0, errors[0], top.means, np.full(1, np.inf))]
        self._levels[0].variance = errors[0]
        self._levels[0].mean = top.means
        for number, (below, spread, error) in enumerate(
            zip(groups[1:], spreads, errors[1:], strict=True), start=1
        ):
            above = self._levels[-1]
            parent = above.groups.of_run[below.first]
            prior, variance = above.mean[parent], above.variance[parent]
            if number == _MODEL:
                name = stem[below.first]
                effect = self._of_models = _Effect(name, below.means - prior, error, spread)
                prior = prior + effect.of(name)
                spread = max(spread - effect.spread, 0.1 * spread)
            if number == _BOARD:
                name = board[below.first]
                left_out = self._of_boards.of(name)
                residuals = below.means + left_out - prior
                whole = spread + self._of_boards.spread
                self._of_boards = _Effect(name, residuals, error, whole)
                prior = prior + self._of_boards.of(name) - left_out
            self._levels.append(_Level(below, spread, error, prior, variance))

    def _fit_noise(self, groups: list[_Groups], within: float) -> None:
        """Compute the spread of single runs by level, each shrunk towards the one above."""
        boards = groups[_BOARD]
        base = self._noise(groups[1], boards, np.full(len(groups[1].keys), within))
        family = self._noise(groups[2], boards, base[groups[1].of_run[groups[2].first]])
        model = self._noise(groups[3], boards, family[groups[2].of_run[groups[3].first]])
        kind = self._noise(groups[4], boards, model[groups[3].of_run[groups[4].first]])
        board = self._noise(boards, boards, kind[groups[4].of_run[boards.first]])
        self._noises = [np.full(1, within), base, family, model, kind, board]
        self._freedoms = [
            np.bincount(
                each.of_run[boards.first], weights=boards.counts - 1, minlength=len(each.keys)
            )
            for each in groups
        ]

    @staticmethod
    def _noise(groups: _Groups, boards: _Groups, prior: Floats) -> Floats:
        group = groups.of_run[boards.first]
        squares = np.bincount(group, weights=boards.squares, minlength=len(groups.keys))
        freedom = np.bincount(group, weights=boards.counts - 1, minlength=len(groups.keys))
        return (PSEUDO_RUNS * prior + squares) / (PSEUDO_RUNS + freedom)

    def parts(self, pairs: PastPairs) -> RunTimeParts:
        """Return what `run_time_parts` returns."""
        if self.empty or not len(pairs.rows):
            nothing = np.full(len(pairs.rows), np.nan)
            return RunTimeParts(location=nothing, noise=nothing, error=nothing, freedom=nothing)
        keys = (
            pairs.base,
            _key(pairs.family, pairs.base),
            _key(pairs.family, pairs.stem),
            _key(pairs.family, pairs.kind),
        )
        mean = np.full(len(pairs.base), self._levels[0].mean[0])
        variance = np.full(len(pairs.base), self._levels[0].variance[0])
        noise = np.full(len(pairs.base), self._noises[0][0])
        freedom = np.full(len(pairs.base), self._freedoms[0][0])
        log_runs = np.full(len(pairs.base), self._log_runs[0][0])
        for number, key in enumerate(keys, start=1):
            level = self._levels[number]
            found = level.groups.find(key)
            some = found >= 0
            log_runs = np.where(some, self._log_runs[number][found], log_runs)
            expected, loose = mean, np.full(len(mean), level.spread)
            if number == _MODEL:
                expected = mean + self._of_models.of(pairs.stem)
                loose += self._of_models.variance_of(pairs.stem)
            mean = np.where(some, level.mean[found], expected)
            variance = np.where(some, level.variance[found], variance + loose)
            noise = np.where(some, self._noises[number][found], noise)
            freedom = np.where(some, self._freedoms[number][found], freedom)
        mean = mean + self._slope * pairs.log_runs
        variance = variance + self._slope_variance * (pairs.log_runs - log_runs) ** 2
        return self._on_boards(pairs, mean, variance, noise, freedom)

    def offsets(self, pairs: PastPairs) -> Floats:
        """Implement `PastPairs.offsets`."""
        if self.empty or not len(pairs.rows):
            return np.zeros(len(pairs.rows))
        own = _own_groups(pairs, self._levels[_BOARD].groups)
        of_boards = np.where(
            own >= 0, self._offsets[own], self._of_boards.of(pairs.board)[pairs.boards]
        )
        return np.asarray(of_boards + self._slope * pairs.log_runs[pairs.combination])

    def alike(self, pairs: PastPairs, combination: int, user: int, max_runs: int) -> RunsAlike:
        """Implement `PastPairs.runs_alike`."""
        if self.empty:
            return RunsAlike((), 0.0)
        family, base, stem, kind = (
            int(each[combination]) for each in (pairs.family, pairs.base, pairs.stem, pairs.kind)
        )
        of_users, of_stems, of_kinds = self._alike
        of_model = of_stems.newest(family, stem, max_runs)
        if len(of_model):
            groups = (of_model, of_kinds.newest(family, kind, max_runs))
            return RunsAlike(groups, of_kinds.similarity)
        bases = self._levels[_MODEL - 1].groups
        at = int(bases.find(_key(np.array([family]), np.array([base])))[0])
        return RunsAlike((of_users.newest(at, user, max_runs),), of_users.similarity)

    def counts(self, pairs: PastPairs) -> Floats:
        """Return what `run_counts` returns."""
        if self.empty or not len(pairs.rows):
            return np.zeros(len(pairs.rows))
        groups = self._levels[_MODEL].groups
        found = groups.find(_key(pairs.family, pairs.stem))
        counts = np.where(found >= 0, self._successes[found], 0.0)
        return np.asarray(counts[pairs.combination], dtype=np.float64)

    def _on_boards(
        self, pairs: PastPairs, mean: Floats, variance: Floats, noise: Floats, freedom: Floats
    ) -> RunTimeParts:
        level = self._levels[_BOARD]
        shift = self._of_boards.of(pairs.board)
        loose = level.spread + self._of_boards.variance_of(pairs.board)
        combination = pairs.combination
        location = mean[combination] + shift[pairs.boards]
        error = variance[combination] + loose[pairs.boards]
        noise = noise[combination]
        degrees = (freedom + PSEUDO_RUNS)[combination]
        own = _own_groups(pairs, level.groups)
        at = np.flatnonzero(own >= 0)
        own = own[at]
        offset = self._slope * pairs.log_runs[combination[at]]
        location[at] = level.mean[own] + self._shift[own] + offset
        error[at] = level.variance[own]
        noise[at] = self._noises[_BOARD][own]
        degrees[at] = self._freedoms[_BOARD][own] + PSEUDO_RUNS
        return RunTimeParts(location=location, noise=noise, error=error, freedom=degrees)


class _LoadingTimes(_RunTimes):
    """Predict the times from placements to the starts of tasks, by the same model."""

    def __init__(self, history: History) -> None:
        seconds = history.columns.loading_s
        good = _is_positive(seconds)
        self._fit_to(history, seconds, good, np.zeros_like(good), grows=False)


class _Energies(_RunTimes):
    """Predict the energies of runs without a load of a stated length, by the same model."""

    def __init__(self, history: History) -> None:
        columns = history.columns
        loads = history.derived(_Stems).load_s_of_kind[columns.kinds] > 0
        good = (columns.failures < 0) & _is_positive(columns.energy_j) & ~loads
        self._fit_to(history, columns.energy_j, good, np.zeros_like(good))


class _Powers(_RunTimes):
    """Predict the mean power of runs, watts, by the same model."""

    def __init__(self, history: History) -> None:
        columns = history.columns
        good = (columns.failures < 0) & _is_positive(columns.energy_j) & _is_positive(columns.run_s)
        watts = columns.energy_j / columns.run_s
        self._fit_to(history, watts, good, np.zeros_like(good), grows=False)


class _Effect:
    """What a name (a model, a board) adds to the mean wherever it occurs, shrunk to 0."""

    _means: Floats
    _variances: Floats

    def __init__(self, names: Codes, residuals: Floats, errors: Floats, spread: float) -> None:
        size = int(names.max()) + 1
        count = np.bincount(names, minlength=size)
        total = np.bincount(names, weights=residuals, minlength=size)
        squares = np.bincount(names, weights=residuals**2, minlength=size)
        twos = float((count * (count - 1)).sum())
        # Products of residuals in different places have the effect's variance in common, no more.
        shared = float((total**2 - squares).sum()) / twos if twos else 0.0
        self.spread = min(max(shared, 0.0), spread)
        weight = 1.0 / (errors + spread - self.spread + 1e-9)
        precision = np.bincount(names, weights=weight, minlength=size)
        weighted = np.bincount(names, weights=weight * residuals, minlength=size)
        given = 1.0 / self.spread if self.spread > 0 else np.inf
        self._means = np.append(weighted / (precision + given), 0.0)
        self._variances = np.append(1.0 / (precision + given), self.spread)

    @classmethod
    def none(cls) -> _Effect:
        """Return an effect without names."""
        flat = cls.__new__(cls)
        flat.spread, flat._means, flat._variances = 0.0, np.zeros(1), np.zeros(1)
        return flat

    def of(self, names: Codes) -> Floats:
        """Return the effects of names; 0 for unknown ones."""
        return self._means[self._place(names)]

    def variance_of(self, names: Codes) -> Floats:
        """Return the variances of the effects; the whole spread for unknown names."""
        return self._variances[self._place(names)]

    def _place(self, names: Codes) -> Codes:
        return np.where((names < 0) | (names >= len(self._means) - 1), -1, names)


def _error(above: _Groups, below: _Groups, spread: float, within: float) -> Floats:
    """Return the variance of each mean above, whose runs come from a few groups below."""
    parent = above.of_run[below.first]
    squares = np.bincount(parent, weights=below.counts**2, minlength=len(above.keys))
    return within / above.counts + spread * squares / above.counts**2


def _slope(keys: Codes, x: Floats, y: Floats) -> tuple[float, float]:
    """Return how y grows with x within groups, 0 to 1: run time with the number of runs.

    And its variance: where x differs within no group, the growth is unknown. Where it does differ,
    the variance is small against the others, and 0 here.
    """
    _, of_run = np.unique(keys, return_inverse=True)
    counts = np.bincount(of_run)
    x = x - (np.bincount(of_run, weights=x) / counts)[of_run]
    y = y - (np.bincount(of_run, weights=y) / counts)[of_run]
    spread = float((x * x).sum())
    if spread <= 1e-9:
        return 1.0, _SLOPE_VARIANCE
    return float(np.clip((x * y).sum() / spread, 0.0, 1.0)), 0.0


def _is_positive(seconds: Floats) -> NDArray[np.bool_]:
    return np.asarray((seconds > 0) & np.isfinite(seconds), dtype=np.bool_)


def _cut_runs(history: History, good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the runs that a limit ended and that say how long such runs last.

    Not one that lasted twice as long as the longest result of its kind on boards of its family, or
    on a board without any result of its kind: it may have hung. Nor one that ended before the
    shortest of its board's results: it says next to nothing, however many of them there are.

    Args:
        history: The past.
        good: Shape (runs,): which led to a result.

    Returns:
        Shape (runs,).
    """
    columns = history.columns
    (timeout,) = history.names.failures.of([FailureCategory.TIMEOUT.value])
    cut = (columns.failures == timeout) & _is_positive(columns.run_s)
    if timeout < 0 or not cut.any():
        return np.zeros_like(good)
    kinds, run_s = columns.kinds.astype(np.int64), columns.run_s[good]
    places = _key(columns.boards.astype(np.int64), kinds)
    results = _Groups.of(places[good], run_s)
    min_s = np.append(np.full(len(results.keys), np.inf), np.inf)  # the last: of no result
    np.minimum.at(min_s, results.of_run, run_s)
    families = _key(columns.families.astype(np.int64), kinds)[good][results.first]
    _, alike = np.unique(families, return_inverse=True)
    max_s = np.zeros(len(results.keys))
    np.maximum.at(max_s, alike[results.of_run], run_s)
    max_s = np.append(max_s[alike], 0.0)
    place, limit_s = results.find(places[cut]), columns.run_s[cut]
    cut[cut] = (min_s[place] < limit_s) & (limit_s < MIN_HANG_RATIO * max_s[place])
    return np.asarray(cut, dtype=np.bool_)


def _with_expected_times(keys: Codes, y: Floats, cut: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Replace runs that a limit ended by what they are expected to have lasted.

    The expectation of a normal variable above the limit c, by EM (Dempster, Laird & Rubin, 1977;
    Little & Rubin, *Statistical Analysis with Missing Data*, 2nd ed., chapter 8), with a mean for
    each group and one variance ::

        a = (c - m) / s,  h = pdf(a) / (1 - cdf(a)),  E = m + s h,  Var = s2 (1 + a h - h^2)

    Args:
        keys: Shape (runs,): groups, each with at least one run that was not cut.
        y: Shape (runs,): ln of the time, of cut ones until the limit.
        cut: Shape (runs,).

    Returns:
        The values, and their variances, 0 of measured ones; shape (runs,) each.
    """
    from scipy.special import log_ndtr  # takes a moment: the CLI does without it

    good = _Groups.of(keys[~cut], y[~cut])
    group, limit = good.find(keys[cut]), y[cut]
    with_cut, of_cut = np.unique(group, return_inverse=True)
    results, result_means = good.counts[with_cut], good.means[with_cut]
    counts = results + np.bincount(of_cut)
    squares_of_results = float(good.squares.sum())
    variance = max(squares_of_results / max(good.counts.sum() - len(good.keys), 1.0), 1e-6)
    freedom = max(len(y) - len(good.keys), 1)
    means = result_means
    for _ in range(_COMPLETIONS):  # only over what changes: the runs that were cut
        spread = np.sqrt(variance)
        a = (limit - means[of_cut]) / spread
        h = np.exp(-0.5 * (a * a + np.log(2 * np.pi)) - log_ndtr(-a))
        expected = means[of_cut] + spread * h
        means = (results * result_means + np.bincount(of_cut, weights=expected)) / counts
        squares = squares_of_results + float((results * (result_means - means) ** 2).sum())
        squares += float(((expected - means[of_cut]) ** 2).sum())
        unseen = variance * (1.0 + a * h - h * h)
        variance = max((squares + float(unseen.sum())) / freedom, 1e-6)
    found, variances = y.copy(), np.zeros(len(y))
    found[cut], variances[cut] = expected, unseen
    return found, variances


def _own_groups(pairs: PastPairs, groups: _Groups) -> Rows:
    """Return the group of each pair's board and kind; -1 where the board never ran it."""
    kinds, boards = groups.keys & 0xFFFFFFFF, groups.keys >> 32
    rows = np.flatnonzero(np.isin(pairs.kind, kinds))
    cells = (len(rows) + 1) * pairs.shape[1]
    kind_of_row = np.full(pairs.shape[0], -1, dtype=np.int64)
    kind_of_row[pairs.row] = pairs.kind
    if cells > _MAX_CELLS:
        return groups.find(_key(pairs.board[pairs.boards], kind_of_row[pairs.rows]))
    line_of_kind = np.zeros(int(max(kinds.max(), pairs.kind.max())) + 2, dtype=np.intp)
    wanted = np.unique(pairs.kind[rows])
    line_of_kind[wanted] = np.arange(1, len(wanted) + 1)
    column_of_board = np.full(int(max(boards.max(), pairs.board.max())) + 2, -1, dtype=np.intp)
    column_of_board[pairs.board] = np.arange(len(pairs.board))
    column_of_board[-1] = -1
    table = np.full((len(wanted) + 1, pairs.shape[1]), -1, dtype=np.int32)
    lines, columns = line_of_kind[kinds], column_of_board[boards]
    there = np.flatnonzero((lines > 0) & (columns >= 0))
    table[lines[there], columns[there]] = there
    return table[line_of_kind[kind_of_row][pairs.rows], pairs.boards].astype(np.intp)


class _Failures:
    """The model of failures, fitted to a history."""

    def __init__(self, history: History) -> None:
        known = history.derived(_Stems)
        columns = history.columns
        causes = np.array(
            [
                0 if name in INCONCLUSIVE_FAILURES else 2 if name in BOARD_FAILURES else 1
                for name in history.names.failures.names
            ]
            + [3],
            dtype=np.int8,
        )
        cause = causes[columns.failures]  # the last one is of no failure
        used = np.flatnonzero(cause > 0)
        cause = cause[used]
        kind = columns.kinds[used].astype(np.int64)
        family = columns.families[used].astype(np.int64)
        board = columns.boards[used].astype(np.int64)
        newest = columns.ended_s[used].max(initial=0.0)
        weight = np.exp2(-(newest - columns.ended_s[used]) / HALF_LIFE_S)
        stem, base = known.stem_of_kind[kind], known.base_of_kind[kind]
        self._by_model = _NestedRates(
            (_key(family, base), _key(family, stem)), weight, (cause == 1) * weight
        )
        self._by_board = _NestedRates((family, board), weight, (cause == 2) * weight)

    def causes(self, pairs: PastPairs) -> FailureCauses:
        """Return `PastPairs.failure_causes` of the pairs."""
        of_model, model_variance = self._by_model.rates(
            (_key(pairs.family, pairs.base), _key(pairs.family, pairs.stem))
        )
        family_of_board = np.full(pairs.shape[1], -1, dtype=np.int64)
        family_of_board[pairs.boards] = pairs.family[pairs.combination]
        of_board, board_variance = self._by_board.rates((family_of_board, pairs.board))
        return FailureCauses(
            model=of_model[pairs.combination],
            model_error=np.sqrt(model_variance)[pairs.combination],
            board=of_board[pairs.boards],
            board_error=np.sqrt(board_variance)[pairs.boards],
        )


class _Measurements:
    """The model of verdicts, fitted to a history."""

    def __init__(self, history: History) -> None:
        columns = history.columns
        used = np.flatnonzero(columns.comparable >= 0)
        self._empty = not len(used)
        stem = history.derived(_Stems).stem_of_kind[columns.kinds[used]]
        board = columns.boards[used].astype(np.int64)
        ended_s = columns.ended_s[used]
        weight = np.exp2(-(ended_s.max(initial=0.0) - ended_s) / HALF_LIFE_S)
        self._nested = _NestedRates(
            (columns.families[used].astype(np.int64), board, _key(board, stem)),
            weight,
            (columns.comparable[used] == 0) * weight,
        )

    def chances(self, pairs: PastPairs) -> tuple[Floats, Floats]:
        """Return `PastPairs.measurement_chances` of the pairs."""
        if self._empty:
            nothing = np.full(len(pairs.rows), np.nan)
            return nothing, nothing
        board = pairs.board[pairs.boards]
        stem = pairs.stem[pairs.combination]
        rates, variance = self._nested.rates(
            (pairs.family[pairs.combination], board, _key(board, stem))
        )
        return rates, np.sqrt(variance)


class _NestedRates:
    """Rates of nested groups, each shrunk to the one above it."""

    def __init__(self, keys: tuple[Codes, ...], counts: Floats, failures: Floats) -> None:
        total = float(counts.sum())
        self._top = float(failures.sum()) / (total + PSEUDO_RUNS)
        self._levels: list[tuple[Codes, Floats, Floats]] = []
        above = np.full(len(counts), self._top)
        for key in keys:
            found, group = np.unique(key, return_inverse=True)
            runs = np.bincount(group, weights=counts, minlength=len(found)).astype(np.float64)
            failed = np.bincount(group, weights=failures, minlength=len(found))
            prior = np.zeros(len(found))
            prior[group] = above
            rates = (failed + PSEUDO_RUNS * prior) / (runs + PSEUDO_RUNS)
            self._levels.append((found, rates, runs))
            above = rates[group]

    def rates(self, keys: tuple[Codes, ...]) -> tuple[Floats, Floats]:
        """Return rates by the keys of each level, and the variance of their Beta distributions.

        Where there is no group, the rate is the broader group's, known from pseudo-runs alone.
        """
        rates = np.full(len(keys[0]), self._top)
        counts = np.zeros(len(rates))
        for key, (known, found, runs) in zip(keys, self._levels, strict=True):
            counts = np.zeros(len(rates))
            if len(known):
                place = np.minimum(np.searchsorted(known, key), len(known) - 1)
                there = known[place] == key
                rates = np.where(there, found[place], rates)
                counts = np.where(there, runs[place], 0.0)
        return rates, rates * (1.0 - rates) / (counts + PSEUDO_RUNS + 1.0)
