"""How far a board's repeated numbers lie apart, beyond what one run can know of itself.

The launches of one run follow one another within seconds. What moves a machine's speed over minutes
(temperature, frequency, where memory lies, other machines of its host) is the same for all of them,
so a run's own interval cannot contain it. Numbers of the same work on the same board can: their
variance, less the mean variance that the runs state themselves, is the variance *between runs*
(the one-way random effects model; in metrology, the difference of intermediate precision and
repeatability, ISO 5725-3).

It differs between works: a model that fits into a cache does not vary with the memory. So each work
of a board has its own, shrunk to that of the board's other works, that to the family's other
boards, and that to a default, each of which counts as much as `PRIOR_DEGREES` repeats would (Smyth,
Statistical Applications in Genetics and Molecular Biology 3, 2004). Numbers that follow one another
are alike: a short series spreads less than a long one and has fewer degrees of freedom than
numbers, by the time of its first-order autocorrelation. Gross outliers are drawn to
`MAX_DEVIATIONS` robust standard deviations; nearer ones belong to what repeats have to expect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edgeyard.devices.metrics import primary_metric
from edgeyard.devices.runner.interval import dependence, half_width_of, student_quantile
from edgeyard.scheduler.model.history import RepeatedNumber

DEFAULT_SHARE = 0.01
"""Standard deviation between runs of a board without repeated numbers, relative to the number.

About the geometric mean of the series that the tests hold: 0.9 % of 0.2 to 3.4 % (what spreads
over such factors has its centre on a logarithmic scale).
"""

PRIOR_DEGREES = 2.0
"""How many repeats count as much as what is assumed before the first one.

Smyth's estimate from these series, whose shares differ so much, is about 1; with 1, two numbers
without repeats differ for certain only from 20 % on; with 2, from 6 % on.
"""

MAX_DEVIATIONS = 8.0

MAX_HALF_WIDTH = 3.0
"""Maximum half width of a logarithm; a number that may be 20 times as large is unknown."""

_MIN_SERIES = 6
"""Minimum numbers that show outliers and how they depend on one another."""

_MAX_DEGREES = 20.0
"""Maximum degrees of freedom of one workload, so that none decides alone what a board varies by."""

_MIN_SPREAD = 0.1
_NORMAL_MAD = 1.4826


class VariationSource(StrEnum):
    """Where an estimate of the variance between runs comes from."""

    BOARD = "board"
    FAMILY = "family"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVariation:
    """What numbers of one work on one board vary by between runs.

    Attributes:
        share: Standard deviation between runs, relative to the number.
        degrees: Degrees of freedom of its square.
        numbers: Repeated numbers that it comes from; 0 for the default.
    """

    share: float
    degrees: float
    source: VariationSource
    numbers: int

    @property
    def sentence(self) -> str:
        """What an interval includes, and where that comes from."""
        included = f"includes {self.share:.1%} between runs"
        match self.source:
            case VariationSource.BOARD:
                return f"{included}, from {self.numbers} repeated numbers of this board"
            case VariationSource.FAMILY:
                return f"{included}, from {self.numbers} repeated numbers of its family's boards"
            case _:
                return f"{included}, the default, because this board has no repeated numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNumber:
    """A number as comparisons use it. All errors are those of its logarithm.

    Attributes:
        value: The number, above 0, in the unit of its metric.
        low: Lower end of the 95 % interval that its own run states, above 0.
        high: Upper end; the number is between the two.
        degrees: Degrees of freedom of that interval.
        target_uid: Its board.
        variation: None: nothing is known between runs, and only the runs' own intervals count.
    """

    value: float
    low: float
    high: float
    degrees: float
    target_uid: str
    variation: RunVariation | None

    @property
    def error(self) -> float:
        """Standard error that its own run states.

        It is the mean of both sides: ranks make an interval lopsided by chance.
        """
        return math.log(self.high / self.low) / 2 / student_quantile(self.degrees)

    def repeat_interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of another run's number; None if unknown.

        It contains the run's own interval, whose sides may differ: of a series that has two levels
        only the other one is far. So what runs vary by is added to each side by itself.
        """
        below = self._side(math.log(self.value / self.low))
        above = self._side(math.log(self.high / self.value))
        if max(below, above) > MAX_HALF_WIDTH:
            return None
        return (
            min(self.low, self.value * math.exp(-below)),
            max(self.high, self.value * math.exp(above)),
        )

    def _side(self, width: float) -> float:
        """Return a side of the interval, of this width within the run, with what runs vary by."""
        degrees = max(1.0, self.degrees)
        error = width / student_quantile(degrees)
        return half_width_of([(error**2, degrees), *self._between()])

    def ratio_interval(self, other: MeasuredNumber) -> tuple[float, float] | None:
        """Return the 95 % interval of this number over another one; None if unknown."""
        ratio, half = self.value / other.value, self.ratio_half_width(other)
        if half > MAX_HALF_WIDTH:
            return None
        return ratio * math.exp(-half), ratio * math.exp(half)

    def ratio_half_width(self, other: MeasuredNumber) -> float:
        """Half the 95 % interval of the logarithm of the two numbers' ratio."""
        between = [*self._between(), *other._between()]
        if self._shares_variation(other):  # one estimate, used twice
            variance = sum(one for one, _ in between)
            between = [(variance, min(degrees for _, degrees in between))]
        return half_width_of([self._own(), other._own(), *between])

    def _own(self) -> tuple[float, float]:
        return self.error**2, max(1.0, self.degrees)

    def _between(self) -> list[tuple[float, float]]:
        found = self.variation
        return [] if found is None else [(found.share**2, found.degrees)]

    def _shares_variation(self, other: MeasuredNumber) -> bool:
        if self.variation is None or other.variation is None:
            return False
        is_own = VariationSource.BOARD in (self.variation.source, other.variation.source)
        return self.target_uid == other.target_uid or not is_own


@dataclass(frozen=True, slots=True)
class _ExcessVariance:
    """Variance of a work's numbers on one board beyond their own; may be negative by chance."""

    variance: float
    degrees: float
    numbers: int


def measured_number(
    value: object,
    low: object,
    high: object,
    degrees: object,
    *,
    target_uid: str,
    variation: RunVariation | None,
) -> MeasuredNumber | None:
    """Return a number as comparisons use it; None where its run states no interval around it."""
    stated = (value, low, high, degrees)
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in stated):
        return None
    middle, first, last, known = (float(one) for one in stated if isinstance(one, int | float))
    if not 0 < first <= middle <= last:
        return None
    return MeasuredNumber(
        value=middle,
        low=first,
        high=last,
        degrees=known,
        target_uid=target_uid,
        variation=variation,
    )


def reported_number(
    report: Mapping[str, object], target_uid: str = "", variation: RunVariation | None = None
) -> MeasuredNumber | None:
    """Return a report's primary metric as comparisons use it; None where it has no interval."""
    primary = primary_metric(report)
    if primary is None:
        return None
    return measured_number(
        primary.value,
        primary.low,
        primary.high,
        primary.degrees,
        target_uid=target_uid,
        variation=variation,
    )


class Repeatability:
    """The variances between runs of the boards of one family."""

    def __init__(self, numbers: Sequence[RepeatedNumber]) -> None:
        """Estimate them.

        Args:
            numbers: Comparable numbers of the family's boards, in the order of their ends.
        """
        self._series: dict[tuple[str, str], list[RepeatedNumber]] = {}
        for number in numbers:
            self._series.setdefault((number.target_uid, number.workload), []).append(number)
        self._excess = {
            key: excess
            for key, series in self._series.items()
            if (excess := _excess(series)) is not None
        }

    def of(self, target_uid: str, workload: str, *, without: str = "") -> RunVariation:
        """Return what numbers of this work on this board vary by.

        Args:
            target_uid: The board.
            workload: Digest of the work.
            without: Benchmark whose own number does not count: no number is judged by itself.
        """
        own_key = (target_uid, workload)
        series = self._series.get(own_key, [])
        others = [number for number in series if number.benchmark_id != without]
        own = self._excess.get(own_key) if len(others) == len(series) else _excess(others)
        family = [each for key, each in self._excess.items() if key[0] != target_uid]
        board = [
            each for key, each in self._excess.items() if key[0] == target_uid and key != own_key
        ]
        variance, degrees = DEFAULT_SHARE**2, PRIOR_DEGREES
        variance, _ = _shrunk(family, variance, _MAX_DEGREES)
        variance, _ = _shrunk(board, variance, _MAX_DEGREES)
        if own is not None:
            variance, degrees = _shrunk([own], variance, math.inf)
            board.append(own)
        source, counted = VariationSource.DEFAULT, 0
        if board:
            source, counted = VariationSource.BOARD, sum(each.numbers for each in board)
        elif family:
            source, counted = VariationSource.FAMILY, sum(each.numbers for each in family)
        return RunVariation(
            share=math.sqrt(variance), degrees=degrees, source=source, numbers=counted
        )


def _excess(series: Sequence[RepeatedNumber]) -> _ExcessVariance | None:
    """Return the variance between the runs of a series; None where nothing repeats."""
    count = len(series)
    if count < 2:
        return None
    logs = np.log([number.value for number in series])
    own = float(np.mean([number.error**2 for number in series]))
    degrees, spread = count - 1.0, 1 - 1 / count
    if count >= _MIN_SERIES:
        middle = float(np.median(logs))
        deviation = _NORMAL_MAD * float(np.median(np.abs(logs - middle)))
        reach = MAX_DEVIATIONS * max(deviation, math.sqrt(own))
        logs = np.clip(logs, middle - reach, middle + reach)
        phi = dependence(logs)
        time = (1 + phi) / (1 - phi)
        degrees = max(1.0, count / time - 1)
        spread = max(_MIN_SPREAD, 1 - time / count)
    return _ExcessVariance(float(logs.var()) / spread - own, degrees, count)


def _shrunk(
    found: Sequence[_ExcessVariance], prior: float, max_degrees: float
) -> tuple[float, float]:
    """Variances pooled with a prior one: variance, from 0 on, and degrees of freedom."""
    weights = [min(max_degrees, each.degrees) for each in found]
    total = PRIOR_DEGREES * prior + sum(
        weight * each.variance for weight, each in zip(weights, found, strict=True)
    )
    degrees = PRIOR_DEGREES + sum(weights)
    return max(0.0, total / degrees), degrees
