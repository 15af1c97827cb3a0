"""Where a series of results changed its level: a suspicion, which nothing has confirmed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.model.series import MIN_CHANGE

MIN_SEGMENT = 3
"""Points on each side of a change, so that one or two outliers are none."""

FIRST_CHANGE = 5
"""Points without a change at the beginning: before them the noise is not known."""

PENALTY = 2.1
"""By how much a further change has to explain a series better, in the units of the kernel.

A lab looks after every run, so that this is chosen on simulated series that are looked at every
night for years, by the generator of `make bench-series` with another seed, not on one look. It is
low, because a suspicion that is wrong costs a few runs, which refute it: 95.7 % of 1500 shifts by
5 % were suspected within four nights, and one false suspicion came in three years. Less finds no
more, and suspects wrongly more often.
"""

LOOK_BACK = 60
"""Number of the newest points that a nightly look considers: older levels show nothing of the last
night."""

_WIDTH = 0.1
"""Factor on the usual inverse bandwidth. Wider than usual, so that the night's noise, which falls
within it, adds up as squares do, and an outlier, which falls outside, is bounded: with 0.5 instead
of 0.1, 87 to 92 instead of 98 % of shifts by 5 % were found in four nights at as many false ones,
in 25 simulated years."""

_NEIGHBOURS = 5
"""Points that are up to this far apart show the noise: most of them are of one level, however many
levels there are. The median distance of all pairs grows with a shift in the middle of a series,
which then hides itself."""

_MIN_NOISE = 0.002
"""Smaller differences of logarithms are equal: clocks and rounding have steps."""

_NORMAL_95 = 1.959964

_MIN_ORDERS = 40
"""With fewer ways to share out the results among two levels, even the whole range of differences
holds less than 95 %: of 3 results and 1, half."""

_MAX_LOG = 700.0
"""Larger differences of logarithms have no finite factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A suspected change of the level of a series.

    Attributes:
        position: Place of the first value after it among all that were given.
        size: Values after it relative to those before it, less 1: 0.05 for 5 % more.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    position: int
    size: float
    low: float
    high: float


def change_points(values: Sequence[float | None], since: int = 0) -> list[Change]:
    """Return the suspected changes of a series, by time.

    The logarithms are split where an RBF kernel shows different distributions (Arlot, Celisse and
    Harchaoui, JMLR 20, 2019; `ruptures.KernelCPD`), whose bounded distance makes an outlier count
    as little as any other point that is far away. The bandwidth comes from the median distance of
    points near each other. A size is the shift of Hodges and Lehmann between the levels before and
    after it, with the interval of the rank-sum test. Only changes whose interval leaves out 0 are
    returned.

    Args:
        values: In the order of time; those that are None, NaN, infinite or not above 0 are left
            out. How much time lies between them has no effect.
        since: Place at which the present level begins, where that is known: earlier values show the
            noise alone, and a change may follow after `MIN_SEGMENT` points.
    """
    places = [at for at, each in enumerate(values) if is_measured(each)]
    known = sum(at < since for at in places)
    first = MIN_SEGMENT if known >= FIRST_CHANGE else FIRST_CHANGE
    if len(places) - known < first + MIN_SEGMENT:
        return []
    logs = np.log(np.array([values[at] for at in places], dtype=np.float64))
    present = logs[known:]
    ends = [0, *_splits(present, logs), len(present)]
    found = []
    for start, split, end in zip(ends, ends[1:], ends[2:], strict=False):
        size, low, high = _shift(present[start:split], present[split:end])
        if split >= first and not low <= 0 <= high:
            found.append(Change(position=places[known + split], size=size, low=low, high=high))
    return found


def level_shift(
    before: Sequence[float | None], after: Sequence[float | None]
) -> tuple[float, float, float] | None:
    """Return the size of a change whose place is known, and its 95 % interval; see `Change`.

    Args:
        before: Results of the old level; those that `change_points` leaves out are left out.
        after: Results of the new level.

    Returns:
        None where the old level has fewer than `MIN_SEGMENT` results, or the new one has none.
    """
    old, new = ([each for each in values if is_measured(each)] for values in (before, after))
    if len(old) < MIN_SEGMENT or not new:
        return None
    return _shift(*(np.log(np.array(each, dtype=np.float64)) for each in (old, new)))


def is_measured(value: float | None) -> bool:
    """Return whether a result has a number of which a logarithm can be taken."""
    return value is not None and math.isfinite(value) and value > 0


def _splits(logs: NDArray[np.float64], noisy: NDArray[np.float64]) -> list[int]:
    """Return where segments begin, except the first.

    Args:
        logs: Of the values to split.
        noisy: Of those that show the noise.
    """
    from ruptures import KernelCPD  # it loads SciPy, which takes a second

    near = [noisy[lag:] - noisy[:-lag] for lag in range(1, _NEIGHBOURS + 1)]
    distances = np.concatenate(near) ** 2
    gamma = _WIDTH / max(float(np.median(distances)), 2 * _MIN_NOISE**2)
    search = KernelCPD(kernel="rbf", params={"gamma": gamma}, min_size=MIN_SEGMENT)
    return [int(each) for each in search.fit(logs.reshape(-1, 1)).predict(pen=PENALTY)[:-1]]


def _shift(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return by how much the level after a change is higher, and its 95 % interval, as shares.

    Both are given as logarithms.

    Where even the whole range of the differences holds less than 95 %, the ends are not known:
    `MIN_CHANGE` and infinity.

    Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., 4.2 and 4.3.
    """
    differences = np.sort((after[:, None] - before[None, :]).ravel())
    count = len(differences)
    error = math.sqrt(count * (len(before) + len(after) + 1) / 12)
    left_out = max(0, math.floor(count / 2 - _NORMAL_95 * error))
    size = _share(np.median(differences))
    if math.comb(len(before) + len(after), len(after)) < _MIN_ORDERS:
        return size, MIN_CHANGE, math.inf
    return size, _share(differences[left_out]), _share(differences[count - 1 - left_out])


def _share(difference: float) -> float:
    """Return the change that a difference of logarithms is, finite and above -1."""
    return max(MIN_CHANGE, math.expm1(min(difference, _MAX_LOG)))
