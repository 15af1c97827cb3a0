"""A figure of series: numbers over time, over a run, or the distribution of latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from edgeyard.benchmark_api.figures.axes import Axis, Scale, label_of, scale_of, tick_text
from edgeyard.benchmark_api.figures.measurement import Measurement

MAX_SAMPLES = 160
"""Points of a run or a distribution that are drawn; a screen has few more."""

_TIMES = ((600, "%m-%d %H:%M:%S"), (2 * 86_400, "%m-%d %H:%M"))
"""How times are written, by the seconds that all of them are within."""

_LEGEND = {
    "suspect": "half filled: suspect",
    "invalid": "hollow: invalid, not joined",
    "stopped": "hollow: the trial was stopped, not joined",
}
"""What the shape of a marker means, by the verdict that it shows."""
_FAILED = "cross: failed"

UNJOINED = ("invalid", "stopped")
"""Verdicts of points that no line joins, and whose markers are hollow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Measurement):
    """One point of a series.

    Args:
        x: Seconds since 1970 in UTC, a number in the run, or a latency.
    """

    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points by x, with the name that stands at their end."""

    name: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place on the x axis where something changed, such as the engine's version."""

    x: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigure:
    """Series on common axes.

    Args:
        title: Its heading.
        x_axis: What x is; the unit "UTC" means time.
        axis: What the values are.
        series: At least one with a point, or the drawing is empty.
        marks: Numbered from left to right and described below the drawing.
        failures: Runs that failed: crosses on the horizontal axis.
        warm_up_until: End of the part of a run that does not count; None: there is none.
        steps: Whether a value holds until the next point, as in a distribution.
        dots: Whether each point has a marker.
        from_zero: Whether the vertical axis contains 0, unless it is logarithmic.
    """

    title: str
    x_axis: Axis
    axis: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    failures: Sequence[Mark] = ()
    warm_up_until: float | None = None
    steps: bool = False
    dots: bool = True
    from_zero: bool = True

    @property
    def is_over_time(self) -> bool:
        """Whether x is seconds since 1970."""
        return self.x_axis.unit == "UTC"

    @property
    def x_scale(self) -> Scale:
        """The horizontal axis."""
        places = [sample.x for each in self.series for sample in each.samples]
        places += [mark.x for mark in (*self.marks, *self.failures)]
        if self.is_over_time and places:
            low, high = min(places), max(places)
            return Scale(low=low, high=high) if high > low else Scale(low=low - 60, high=low + 60)
        if not self.steps and places:  # numbers of a run are never logarithmic
            return Scale(low=0.0, high=max(1.0, *places))
        return scale_of(places, from_zero=False)

    @property
    def scale(self) -> Scale:
        """The vertical axis; that of a distribution is a share."""
        if self.steps:
            return Scale(low=0.0, high=1.0)
        samples = [sample for each in self.series for sample in each.samples]
        values = [sample.value for sample in samples]
        ends = [end for sample in samples for end in sample.ends or ()]
        if not self.dots:  # the smallest and largest numbers of a run, which are all drawn
            values += ends
        return scale_of(values, ends, from_zero=self.from_zero)

    def x_ticks(self, count: int) -> list[float]:
        """Return the places on the x axis to be labelled; over time, that many."""
        scale = self.x_scale
        if not self.is_over_time:
            return scale.ticks
        span = scale.high - scale.low
        return [scale.low + span * each / (count - 1) for each in range(count)]

    @property
    def x_label(self) -> str:
        """What x is, with the day where all times are of one."""
        scale = self.x_scale
        day = f", {_at(scale.low):%Y-%m-%d}" if self._is_within_a_day(scale) else ""
        return label_of(self.x_axis, scale) + day

    @property
    def remarks(self) -> list[str]:
        """What is written below the drawing about its marks and the warm-up."""
        scale = self.x_scale
        texts = []
        for number, mark in enumerate(self.marks, start=1):
            at = f"{mark.x:.4g} {self.x_axis.unit}".rstrip()
            text = f"{mark.text}: {at}"
            if self.is_over_time:
                text = f"{self.x_text(mark.x, scale)}: {mark.text}"
            texts.append(f"{number} {text}")
        if self.warm_up_until is not None:
            texts.append("grey: warm-up, which does not count")
        return texts

    @property
    def legend(self) -> list[str]:
        """What the shapes of markers mean, as far as they occur."""
        verdicts = {sample.verdict for each in self.series for sample in each.samples}
        words = [words for verdict, words in _LEGEND.items() if verdict in verdicts]
        return [*words, _FAILED] if self.failures else words

    def labelled(self, series: Series) -> Sample:
        """Return the point of a series at which its name belongs: the last, or the median."""
        if not self.steps:
            return series.samples[-1]
        return next(sample for sample in series.samples if sample.value >= 0.5)

    def tick_text(self, x: float) -> str:
        """Return a place on the x axis as it stands beside the axis."""
        if not self.is_over_time:
            return tick_text(x)
        scale = self.x_scale
        if self._is_within_a_day(scale):
            return f"{_at(x):{'%H:%M:%S' if scale.high - scale.low < _TIMES[0][0] else '%H:%M'}}"
        return self.x_text(x, scale)

    def _is_within_a_day(self, scale: Scale) -> bool:
        return self.is_over_time and _at(scale.low).date() == _at(scale.high).date()

    def x_text(self, x: float, scale: Scale | None = None) -> str:
        """Return a place on the x axis: of time with its minute within two days, or its second.

        Args:
            x: The place.
            scale: `x_scale`, where it is known already.
        """
        if not self.is_over_time:
            return f"{x:.6g}"
        scale = scale or self.x_scale
        span_s = scale.high - scale.low
        form = next((form for below_s, form in _TIMES if span_s < below_s), "%Y-%m-%d")
        return f"{_at(x):{form}}"


def _at(x: float) -> datetime:
    return datetime.fromtimestamp(x, UTC)


def numbered(places: Sequence[float], gap: float) -> list[tuple[str, float]]:
    """Return the numbers of marks, from left to right, and the middle of each.

    Args:
        places: Of the marks, in their order.
        gap: Marks that are nearer to each other have their numbers in one text, such as "1, 2".
    """
    groups: list[list[float]] = []
    for x in places:
        if groups and x - groups[-1][-1] < gap:
            groups[-1].append(x)
        else:
            groups.append([x])
    found, first = [], 1
    for group in groups:
        numbers = range(first, first + len(group))
        found.append((", ".join(map(str, numbers)), (group[0] + group[-1]) / 2))
        first += len(group)
    return found


def run_figure(
    title: str, axis: Axis, warm_up: Sequence[float], measured: Sequence[float]
) -> LineFigure:
    """Return the numbers of a run in their order, those of the warm-up first and marked.

    Of many numbers, each point is the median of several that follow one another; its interval is
    from the smallest to the largest of them.
    """
    size = max(1, -(-(len(warm_up) + len(measured)) // MAX_SAMPLES))
    samples = _groups(warm_up, 1, size) + _groups(measured, 1 + len(warm_up), size)
    counted = Axis(title=f"number in the run{f', {size} in each point' if size > 1 else ''}")
    return LineFigure(
        title=title,
        x_axis=counted,
        axis=axis,
        series=[Series(name="", samples=samples)],
        warm_up_until=len(warm_up) + 0.5 if warm_up else None,
        dots=False,
    )


def _groups(numbers: Sequence[float], first: int, size: int) -> list[Sample]:
    samples = []
    for start in range(0, len(numbers), size):
        group = numbers[start : start + size]
        ends = (min(group), max(group)) if len(group) > 1 else (None, None)
        x = first + start + (len(group) - 1) / 2
        samples.append(Sample(x=x, value=median(group), low=ends[0], high=ends[1]))
    return samples


def distribution_figure(
    title: str, axis: Axis, named: Sequence[tuple[str, Sequence[float]]]
) -> LineFigure:
    """Return which share of latencies is at most so long (ECDF), a line for each name.

    Args:
        title: Its heading.
        axis: What the latencies are; logarithmic by the rule of all axes.
        named: Names with their latencies, in any order.
    """
    return LineFigure(
        title=title,
        x_axis=axis,
        axis=Axis(title="share of at most this"),
        series=[Series(name=name, samples=_shares(numbers)) for name, numbers in named],
        steps=True,
        dots=False,
    )


def _shares(numbers: Sequence[float]) -> list[Sample]:
    ordered = sorted(numbers)
    count = len(ordered)
    if count <= MAX_SAMPLES:
        ranks = list(range(1, count + 1))
    else:  # the tail whole: a few slow ones are what one looks for
        tail = MAX_SAMPLES // 4
        body = MAX_SAMPLES - tail
        ranks = [1 + (count - tail - 1) * each // body for each in range(body)]
        ranks += range(count - tail + 1, count + 1)
    return [Sample(x=ordered[rank - 1], value=rank / count) for rank in ranks]
