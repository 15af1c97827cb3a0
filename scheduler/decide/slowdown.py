"""Whether a candidate is slower than a baseline: a sequential decision, from pairs of runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from edgeyard.devices.metrics import HIGHER, Metric
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.checks import MIN_PAIRS, Check, CheckStatus, Pair

ERROR = 0.05
"""Probability of a wrong decision, over all looks at the interval together."""


_MIN_ROBUST = 6
_FAR = 4 * 1.4826
"""In median absolute deviations: four standard deviations of a normal distribution."""
_MAX_OUTLIERS = 0.2
"""Part of the numbers that may be outliers. Of runs at one of two speeds, four of six pairs may
share a difference by chance; if the others counted as outliers, 16 % of checks would decide
wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the pairs of a check mean.

    Attributes:
        status: How it ends; `CheckStatus.RUNNING`: another pair is to be measured.
        reason: Why, as a sentence; "" while it runs.
        slowdown: By how much the candidate is slower, e.g. 0.03; negative: it is faster. Where
            higher numbers are better it is slower if its number falls. None without a valid pair.
        low: Lower end of the interval of the slowdown; None: there are too few pairs.
        high: Upper end.
        level: Confidence level of this interval. It is above 95 %, so that all intervals of a
            check, one after each pair, hold together with 95 %.
        errors: What is wrong with the request, if that is why it ends.
    """

    status: CheckStatus
    reason: str
    slowdown: float | None
    low: float | None
    high: float | None
    level: float
    errors: tuple[FieldError, ...] = ()


def judge_check(check: Check) -> Judgement:
    """Decide a check by its pairs so far, as `judge` does."""
    return judge(
        check.pairs, check.metric, max_slowdown=check.max_slowdown, max_pairs=check.max_pairs
    )


def judge(
    pairs: Sequence[Pair], metric: Metric, *, max_slowdown: float, max_pairs: int
) -> Judgement:
    """Decide by the pairs so far; the same pairs lead to the same decision.

    Args:
        pairs: In the order in which they were measured.
        metric: What was measured; where higher numbers are better, a smaller one is slower.
        max_slowdown: Slowdown that is accepted, a share; below 0: the candidate has to be faster by
            that much.
        max_pairs: Maximum number of pairs.
    """
    looks = max_pairs - MIN_PAIRS + 1
    ratios = [each.ratio for each in pairs if each.counts and each.ratio is not None]
    slowdown = low = high = None
    if len(ratios) >= MIN_PAIRS:
        mean, *ends = interval_of(ratios, looks)
        slowdown = metric.slowdown(mean)
        low, high = sorted(map(metric.slowdown, ends))
    elif ratios:
        slowdown = metric.slowdown(_exp(sum(map(math.log, ratios)) / len(ratios)))
    errors = slowdown_errors(metric, max_slowdown) if pairs else ()
    if errors:
        status, why = CheckStatus.ERROR, f"the accepted slowdown {errors[0].reason}"
    elif len(pairs) - len(ratios) >= MIN_PAIRS:
        status, why = CheckStatus.UNDECIDED, _unusable(pairs)
    elif high is not None and high <= max_slowdown:
        status, why = CheckStatus.PASSED, _passed(max_slowdown)
    elif low is not None and low > max_slowdown:
        status, why = CheckStatus.FAILED, _failed(max_slowdown)
    elif len(pairs) >= max_pairs:
        status, why = CheckStatus.UNDECIDED, _undecided(len(pairs), len(ratios))
    else:
        status, why = CheckStatus.RUNNING, ""
    return Judgement(
        status=status,
        reason=why,
        slowdown=slowdown,
        low=low,
        high=high,
        level=level_of(max_pairs),
        errors=errors,
    )


def slowdown_errors(metric: Metric, max_slowdown: float) -> tuple[FieldError, ...]:
    """Return what is wrong with an accepted slowdown of a metric; (): nothing."""
    if metric.better != HIGHER or max_slowdown < 1:
        return ()
    reason = f"is {max_slowdown:.2%}, and {metric.name} cannot fall that far"
    return (FieldError("/max_slowdown", reason, "a share below 100 %"),)


def level_of(max_pairs: int) -> float:
    """Return the confidence level of each interval of a check with so many pairs at most."""
    return 1 - ERROR / (max_pairs - MIN_PAIRS + 1)


def spent(budget_s: float, pairs: int) -> str:
    """Return that the time of a check was used up after so many pairs."""
    return f"the budget of {budget_s:g} s was spent after {_count(pairs)}"


def interval_of(ratios: Sequence[float], looks: int) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and its interval.

    The interval is Student's of the logarithms. Because a check looks at it after each pair and
    stops when it decides, its error is divided by the number of looks (Bonferroni), so that a
    decision is wrong with a probability of at most `ERROR` whenever the check stops.

    Args:
        ratios: At least two positive numbers.
        looks: How often the interval is looked at, at most.
    """
    logs = _with_bounded_outliers([math.log(each) for each in ratios])
    count = len(logs)
    mean = sum(logs) / count
    variance = sum((each - mean) ** 2 for each in logs) / (count - 1)
    half = student_quantile(1 - ERROR / looks / 2, count - 1) * math.sqrt(variance / count)
    return _exp(mean), _exp(mean - half), _exp(mean + half)


def _with_bounded_outliers(logs: Sequence[float]) -> list[float]:
    """Return the numbers with outliers moved to the limit of outliers (winsorized).

    One run in forty that waited for something else is a multiple of the spread away, and would
    make an interval of ten pairs too wide to decide anything. With fewer than `_MIN_ROBUST`
    numbers it is not known which of them is the outlier, and more than `_MAX_OUTLIERS` are none.
    """
    middle = statistics.median(logs)
    far = _FAR * statistics.median(abs(each - middle) for each in logs)
    outliers = sum(abs(each - middle) > far for each in logs)
    if len(logs) < _MIN_ROBUST or far == 0 or outliers > _MAX_OUTLIERS * len(logs):
        return list(logs)
    return [min(max(each, middle - far), middle + far) for each in logs]


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t (Hill, Communications of the ACM 13, 1970, algorithm 396).

    Args:
        probability: Above 0.5.
        degrees: Degrees of freedom, 1 or more.
    """
    tails = 2 * (1 - probability)
    n = float(degrees)
    if degrees == 1:
        return 1 / math.tan(tails * math.pi / 2)
    if degrees == 2:
        return math.sqrt(2 / (tails * (2 - tails)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tails) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(1 - tails / 2)
        y = x**2
        if degrees < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y**2)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


def _exp(log: float) -> float:
    """Return a ratio, which stays a number that JSON has, however wide an interval is."""
    return math.exp(min(log, 700.0))


def _passed(max_slowdown: float) -> str:
    if max_slowdown < 0:
        return f"it is faster by at least {-max_slowdown:.2%}"
    return f"the slowdown is at most {max_slowdown:.2%}"


def _failed(max_slowdown: float) -> str:
    if max_slowdown < 0:
        return f"it is not faster by {-max_slowdown:.2%}"
    return f"the slowdown is more than {max_slowdown:.2%}"


def _count(pairs: int) -> str:
    return "1 pair" if pairs == 1 else f"{pairs} pairs"


def _unusable(pairs: Sequence[Pair]) -> str:
    left_out = [each for each in pairs if not each.counts]
    last = f" (of the last pair, {'; '.join(left_out[-1].reasons)})"
    why = last if left_out[-1].reasons else ""
    return f"{len(left_out)} pairs do not count, because a number of each is invalid{why}"


def _undecided(measured: int, valid: int) -> str:
    if valid == measured:
        return f"{_count(measured)} did not decide it"
    return f"the {valid} of {measured} pairs that count did not decide it"
