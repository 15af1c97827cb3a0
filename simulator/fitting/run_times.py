"""Run times by kind of benchmark and board: log-normal, and shrunk where there are few runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.simulator.fitting.estimates import Floats

Integers = NDArray[np.int64]

_PRIOR_SPREAD = 0.5
"""Prior spread of run times, with the weight of one degree of freedom."""
_SPREAD_WEIGHT = 5.0
"""Weight, in runs, with which the spread of a kind is shrunk to that of all kinds."""
_PRIOR_VARIANCE = 1.0
"""Prior variance of the logarithm between kinds, and between families, with the weight of one."""
_ROUNDS = 20
_MAX_SPREAD = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Fitted run times of kinds, each of which belongs to one family.

    Attributes:
        mean: Of the logarithm of seconds, over the boards on which its family ran, each with the
            same weight; shape (kinds,).
        error: Standard error of that mean.
        spread: Standard deviation of the logarithm of the next run: the spread of runs, widened by
            the error.
        count: Runs of each kind.
        boards: What is added to the mean on each board; shape (kinds, boards).
    """

    mean: Floats
    error: Floats
    spread: Floats
    count: Integers
    boards: Floats


def fit_run_times(
    kind: Integers, board: Integers, log_s: Floats, families: Integers, boards: int
) -> RunTimes:
    """Fit run times.

    The logarithm of a run time is the mean of its kind, plus what its board adds to all kinds, plus
    what its board adds to this kind, plus chance. Each of these effects is shrunk to 0, and the
    mean of a kind to that of its family. How far follows from their variances, which are estimated
    by the method of moments (DerSimonian and Laird 1986).

    Args:
        kind: Of each run; shape (runs,).
        board: Of each run.
        log_s: Logarithm of the seconds.
        families: Of each kind; shape (kinds,).
        boards: How many there are.
    """
    kinds = len(families)
    count = np.bincount(kind, minlength=kinds)
    cell = kind * boards + board
    common = _within(cell, log_s)
    cells_of_kind = np.bincount(np.unique(cell) // boards, minlength=kinds)
    comparable = cells_of_kind[kind] > 1
    of_board, board_error = np.zeros(boards), np.zeros(boards)
    mean = np.zeros(kinds)
    for _ in range(_ROUNDS):
        mean = _means(kind, log_s - of_board[board], kinds)
        rest = log_s - mean[kind]
        of_board, board_error = _effects(board[comparable], rest[comparable], boards, common)
    mean = _means(kind, log_s - of_board[board], kinds)
    rest = log_s - mean[kind] - of_board[board]
    of_cell, cell_error = _effects(cell[comparable], rest[comparable], kinds * boards, common)
    rest = rest - of_cell[cell]
    mean, of_board, by_cell = _centred(
        mean, of_board, of_cell.reshape(kinds, boards), kind, board, families
    )
    squares = np.bincount(kind, weights=rest**2, minlength=kinds)
    variance = (_SPREAD_WEIGHT * common + squares) / (_SPREAD_WEIGHT + np.maximum(count - 1, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.bincount(kind, weights=board_error[board] + cell_error[cell], minlength=kinds)
        own_error = np.where(count > 0, variance / count + shared / count, np.inf)
    mean, error = _shrunk_to_families(mean, own_error, families)
    return RunTimes(
        mean=mean,
        error=np.sqrt(error),
        spread=np.minimum(np.sqrt(variance + error), _MAX_SPREAD),
        count=count,
        boards=of_board[None, :] + by_cell,
    )


def _centred(
    mean: Floats,
    of_board: Floats,
    by_cell: Floats,
    kind: Integers,
    board: Integers,
    families: Integers,
) -> tuple[Floats, Floats, Floats]:
    """Move what boards have in common into the means, so that effects of boards add up to 0."""
    count = int(families.max()) + 1
    family_of_board = np.full(len(of_board), -1)
    family_of_board[board] = families[kind]
    seen = family_of_board >= 0
    common = _means(family_of_board[seen], of_board[seen], count)
    of_board = np.where(seen, of_board - common[family_of_board], 0.0)
    ran = np.zeros(by_cell.shape, dtype=np.bool_)
    ran[kind, board] = True
    own = (by_cell * ran).sum(axis=1) / np.maximum(ran.sum(axis=1), 1)
    return mean + common[families] + own, of_board, np.where(ran, by_cell - own[:, None], 0.0)


def _means(group: Integers, values: Floats, groups: int) -> Floats:
    count = np.bincount(group, minlength=groups)
    return np.bincount(group, weights=values, minlength=groups) / np.maximum(count, 1)


def _within(cell: Integers, log_s: Floats) -> float:
    """Return the variance of runs of one kind on one board."""
    _, place = np.unique(cell, return_inverse=True)
    cells = int(place.max()) + 1
    rest = log_s - _means(place, log_s, cells)[place]
    freedom = len(log_s) - cells
    return float(((rest**2).sum() + _PRIOR_SPREAD**2) / (freedom + 1.0))


def _effects(group: Integers, rest: Floats, groups: int, variance: float) -> tuple[Floats, Floats]:
    """Return the shrunk mean of each group, and the variance of its error; shape (groups,) each."""
    count = np.bincount(group, minlength=groups).astype(np.float64)
    mean = _means(group, rest, groups)
    total, seen = count.sum(), np.count_nonzero(count)
    if seen < 2:
        return np.zeros(groups), np.zeros(groups)
    spare = total - (count**2).sum() / total
    between = max(float((count * mean**2).sum() - (seen - 1) * variance) / spare, 0.0)
    if not between:
        return np.zeros(groups), np.zeros(groups)
    weight = count * between / (count * between + variance)
    return weight * mean, between * (1.0 - weight)


def _shrunk_to_families(
    mean: Floats, own_error: Floats, families: Integers
) -> tuple[Floats, Floats]:
    """Return the means of kinds, shrunk to those of their families, and the errors' variances."""
    seen = np.isfinite(own_error)
    count = int(families.max()) + 1
    with_runs = np.bincount(families[seen], minlength=count) > 0
    of_family = _means(families[seen], mean[seen], count)
    of_all = float(of_family[with_runs].mean())
    between_families = (
        float(((of_family[with_runs] - of_all) ** 2).sum()) + _PRIOR_VARIANCE
    ) / int(with_runs.sum())
    of_family = np.where(with_runs, of_family, of_all)
    squares = float(((mean[seen] - of_family[families[seen]]) ** 2).sum())
    between = (squares + _PRIOR_VARIANCE) / (int(seen.sum()) - int(with_runs.sum()) + 1)
    prior = between + np.where(with_runs, 0.0, between_families)[families]
    weight = np.where(seen, prior / (prior + np.where(seen, own_error, 0.0)), 0.0)
    return weight * mean + (1.0 - weight) * of_family[families], prior * (1.0 - weight)
