"""Plots of simulated runs: queue, utilisation, the boards' Gantt chart, distributions."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeyard.benchmark_api.cli.output_files import check_matplotlib, open_output
from edgeyard.benchmark_api.figures.palette import COLOURS
from edgeyard.simulator.comparison import MIN_SEEDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from edgeyard.scheduler.figures.metrics import Interval, JobOutcomes

BINS = 600
"""Number of bins of a curve over time; each point is the mean of its bin."""
MAX_GANTT_BOARDS = 60
"""Maximum number of boards that are drawn; of more the first ones are."""
MAX_VECTORS = 3000
"""Maximum number of bars that are drawn as vectors in SVG; more are drawn as pixels."""
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_MARKER_GAP = 0.15
"""Distance between markers of a curve, as a share of the plot's diagonal."""
JOULES_A_KWH = 3.6e6
_INK = "#010203"
"""Drawn in the colour of the page's text where the SVG is part of a page."""
_FORMATS = ("png", "svg")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlottedRun:
    """What is drawn of one run; times in seconds.

    Attributes:
        label: Of its curves: its policy.
        seed: Of its random numbers.
        time_s: Of the series, ascending; each value holds until the next time.
        pending: Waiting jobs.
        busy_share: Share of boards or processors in use.
        boards: Names of the boards of the Gantt chart; none: the world has no boards.
        bar_board: Row in ``boards`` of each attempt.
        bar_from_s: When it took the board.
        bar_to_s: When it left it.
        bar_ok: Whether it led to a result.
    """

    label: str
    seed: int
    jobs: JobOutcomes
    time_s: NDArray[np.float64]
    pending: NDArray[np.float64]
    busy_share: NDArray[np.float64]
    boards: Sequence[str]
    bar_board: NDArray[np.int64]
    bar_from_s: NDArray[np.float64]
    bar_to_s: NDArray[np.float64]
    bar_ok: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture.

    Attributes:
        name: Of its file, without suffix.
        title: For people.
        caption: What it shows, as a sentence.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Any], None]
    height_in: float = 3.2


def plots(runs: Sequence[PlottedRun], scenario: str = "") -> list[Plot]:
    """Return the plots of one scenario's runs.

    Args:
        runs: Those of the lowest seed are drawn over time; distributions are over all.
        scenario: Added to the titles, if several are plotted.
    """
    lowest = min((run.seed for run in runs), default=0)
    first = list({run.label: run for run in runs if run.seed == lowest}.values())
    until_s = max((run.jobs.until_s for run in runs), default=0.0)
    start_s = min((float(run.jobs.submit_s.min(initial=np.inf)) for run in runs), default=0.0)
    start_s = start_s if np.isfinite(start_s) else 0.0
    scale, unit = _time_unit(until_s - start_s)
    suffix = f" · {scenario}" if scenario else ""

    from edgeyard.simulator.comparison import time_means

    def over_time(values: str, label: str, top: float | None) -> Callable[[Any], None]:
        def draw(axes: Any) -> None:
            edges = np.linspace(start_s, max(until_s, start_s + 1e-9), BINS + 1)
            for run, style in zip(first, _styles(first), strict=True):
                curve = time_means(run.time_s, getattr(run, values), edges)
                axes.plot(
                    (edges[:-1] - start_s) / scale,
                    curve,
                    label=run.label,
                    lw=1.3,
                    alpha=0.85,
                    **style,
                )
            axes.set_xlabel(f"time since the first submission, {unit}")
            axes.set_ylabel(label)
            axes.set_xlim(0, (until_s - start_s) / scale or 1)
            axes.set_ylim(0, top)

        return draw

    found = [
        Plot(
            "queue",
            f"Queue length{suffix}",
            "Waiting jobs over time, averaged over short intervals, for the lowest seed.",
            over_time("pending", "waiting jobs", None),
        ),
        Plot(
            "utilisation",
            f"Utilisation{suffix}",
            "Share of the boards (or processors) in use over time, for the lowest seed.",
            over_time("busy_share", "share in use", 1.02),
        ),
        Plot(
            "wait-cdf",
            f"Waiting time{suffix}",
            "Share of jobs that waited at most so long, over all seeds; higher is better. "
            "Jobs that never started make a curve end below 1.",
            lambda axes: _cdf(axes, runs, "wait_s", "waiting time, s"),
        ),
        Plot(
            "slowdown-cdf",
            f"Bounded slowdown{suffix}",
            "Share of jobs with at most this bounded slowdown, over all seeds; higher is better. "
            "Jobs that did not complete make a curve end below 1.",
            lambda axes: _cdf(axes, runs, "bounded_slowdown", "bounded slowdown (10 s)"),
        ),
    ]
    for number, run in enumerate(first, start=1):
        if len(run.boards):
            found.append(_gantt(run, number, start_s, until_s, scale, unit, suffix))
    return found


def time_against_energy(
    points: Mapping[str, tuple[Interval, Interval]], scenario: str = ""
) -> Plot:
    """Return the plot of the policies' time against their energy.

    Args:
        points: Mean turnaround in seconds and energy of all boards in joules, by policy; ends of
            intervals are NaN where they are not known.
        scenario: Added to the title, if several are plotted.
    """

    def draw(axes: Any) -> None:
        for number, (label, (time_s, joules)) in enumerate(points.items()):
            axes.errorbar(
                time_s.mean,
                joules.mean / JOULES_A_KWH,
                xerr=_reach(time_s, 1.0),
                yerr=_reach(joules, JOULES_A_KWH),
                label=label,
                color=COLOURS[number % len(COLOURS)],
                marker=_MARKERS[(number + number // len(COLOURS)) % len(_MARKERS)],
                capsize=3,
                lw=1.3,
                ls="none",
            )
        lacking = any(_reach(each, 1.0) is None for point in points.values() for each in point)
        note = f"\nno bar: below {MIN_SEEDS} seeds an interval is not known" if lacking else ""
        axes.set_xlabel(f"mean turnaround, s{note}")
        axes.set_ylabel("energy of all boards, kWh")

    suffix = f" · {scenario}" if scenario else ""
    return Plot(
        "time-energy",
        f"Time against energy{suffix}",
        "Mean turnaround and energy of all boards, idle ones too, by policy; left and below is "
        f"better. Bars are 95 % intervals: of the seeds' means from {MIN_SEEDS} seeds on.",
        draw,
    )


def _reach(interval: Interval, unit: float) -> list[list[float]] | None:
    """Return how far the ends of an interval are from its mean; None: they are not known."""
    ends = interval.mean - interval.low, interval.high - interval.mean
    return [[max(0.0, each) / unit] for each in ends] if np.isfinite(ends).all() else None


def save(plot: Plot, folder: Path, prefix: str, form: str) -> Path:
    """Draw a plot into a file of the folder; return its path."""
    path = folder / f"{prefix}{plot.name}.{form}"
    with _figure(plot, form, title=True) as figure, open_output(path, "--plot") as file:
        figure.savefig(file, format=form)
    return path


def svg(plot: Plot, salt: str) -> str:
    """Draw a plot as an ``<svg>`` element for a page: its ink is the colour of the page's text.

    Args:
        salt: Different for each element of the page, so that their internal names differ.
    """
    text = io.StringIO()
    with _figure(plot, "svg", title=False, salt=salt) as figure:
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    element = text.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, count=1, flags=re.DOTALL)
    element = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", element, count=1)
    names = set(re.findall(r'\bid="([^"]+)"', element))
    for name in sorted(names, key=len, reverse=True):  # no element of another plot has its id
        element = re.sub(
            rf'((?:\bid="|href="#|url\(#)){re.escape(name)}(["\)])', rf"\1{salt}-{name}\2", element
        )
    return element.replace(_INK, "currentColor")


@contextmanager
def _figure(plot: Plot, form: str, *, title: bool, salt: str = "") -> Iterator[Any]:
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink = _INK if form == "svg" and not title else "#222222"
    colours = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
    style: Any = {
        **dict.fromkeys(colours, ink),
        "text.parse_math": False,  # names may contain a $
        "font.family": "sans-serif",
        "font.size": 10 if title else 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "svg.hashsalt": salt or plot.name,
        "svg.fonttype": "none",
    }
    with mpl.rc_context(style):
        figure = Figure(
            figsize=(7.2 if title else 6.0, plot.height_in), layout="constrained", dpi=150
        )
        axes = figure.add_subplot()
        plot.draw(axes)
        axes.grid(visible=True, color="#808080", alpha=0.25, lw=0.7)
        if title:
            axes.set_title(plot.title, loc="left", fontsize=11)
        handles, labels = axes.get_legend_handles_labels()
        if len(labels) > 1:
            columns = 1 if max(map(len, labels)) > 30 else min(4, len(labels))
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        yield figure


def _styles(runs: Sequence[PlottedRun]) -> list[dict[str, Any]]:
    """Return a colour and a line style for each label; also without colour they differ.

    Of several labels each has markers, at places of its own: a curve that another one hides is seen
    by its markers.
    """
    labels = list(dict.fromkeys(run.label for run in runs))
    style_of: dict[str, dict[str, Any]] = {
        label: {
            "color": COLOURS[number % len(COLOURS)],
            "ls": _STYLES[(number + number // len(COLOURS)) % len(_STYLES)],
        }
        for number, label in enumerate(labels)
    }
    if len(labels) > 1:
        for number, label in enumerate(labels):
            style_of[label] |= {
                "marker": _MARKERS[(number + number // len(COLOURS)) % len(_MARKERS)],
                "markersize": 4,
                "markevery": (_MARKER_GAP * number / len(labels), _MARKER_GAP),
            }
    return [style_of[run.label] for run in runs]


def _time_unit(span_s: float) -> tuple[float, str]:
    for length, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if span_s >= 3 * length:
            return length, unit
    return 1.0, "s"


def _short(value: float) -> str:
    """Return a number of an axis on which many decades have to fit: 1, 1,000, 10k, 1M."""
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(unit, 1e4):
            return f"{value / unit:,.10g}{suffix}"
    return f"{value:,.10g}"


def _cdf(axes: Any, runs: Sequence[PlottedRun], name: str, label: str) -> None:
    labels = list(dict.fromkeys(run.label for run in runs))
    first = [next(run for run in runs if run.label == each) for each in labels]
    largest, positive = 0.0, []
    for each, style in zip(labels, _styles(first), strict=True):
        figures = [run.jobs.figure(name) for run in runs if run.label == each]
        values = np.concatenate([np.where(one.at_least, np.nan, one.values) for one in figures])
        known = np.sort(values[~np.isnan(values)])
        if not len(known):
            continue
        share = np.arange(1, len(known) + 1) / len(values)
        if len(known) > BINS * 4:
            rows = np.unique(np.linspace(0, len(known) - 1, BINS * 4).astype(int))
            known, share = known[rows], share[rows]
        axes.step(
            np.concatenate([[known[0]], known]),
            np.concatenate([[0.0], share]),
            where="post",
            label=each,
            lw=1.3,
            **style,
        )
        largest = max(largest, float(known[-1]))
        positive.append(known[known > 0])
    smallest = min((float(each.min()) for each in positive if len(each)), default=1.0)
    if largest > 20 * max(smallest, 1e-9):
        if name == "wait_s":
            axes.set_xscale("symlog", linthresh=1.0)
            axes.set_xlim(0, largest * 1.1)
        else:
            axes.set_xscale("log")
        axes.set_xlabel(f"{label} (log)")
        axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    else:
        axes.set_xlabel(label)
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.02)


def _gantt(
    run: PlottedRun,
    number: int,
    start_s: float,
    until_s: float,
    scale: float,
    unit: str,
    suffix: str,
) -> Plot:
    shown = min(len(run.boards), MAX_GANTT_BOARDS)

    def draw(axes: Any) -> None:
        from matplotlib.collections import PolyCollection

        for ok, colour, label in ((True, COLOURS[0], "result"), (False, COLOURS[5], "no result")):
            rows = (run.bar_ok == ok) & (run.bar_board >= 0) & (run.bar_board < shown)
            board = run.bar_board[rows].astype(float)
            left = (run.bar_from_s[rows] - start_s) / scale
            right = (run.bar_to_s[rows] - start_s) / scale
            low, high = board - 0.4, board + 0.4
            corners = np.stack(
                [
                    np.stack(each, axis=1)
                    for each in ((left, low), (left, high), (right, high), (right, low))
                ],
                axis=1,
            )
            many = len(corners) > MAX_VECTORS
            bars = PolyCollection(
                list(corners),
                facecolor=colour,
                edgecolor="white",
                lw=0.0 if many else 0.3,
                rasterized=many,
                label=label if len(corners) else None,
            )
            axes.add_collection(bars)
        axes.set_ylim(shown - 0.5, -0.5)
        axes.set_xlim(0, (until_s - start_s) / scale or 1)
        step = 1 if shown <= 30 else -(-shown // 20)
        names = [each if len(each) <= 24 else f"{each[:23]}…" for each in run.boards[:shown]]
        axes.set_yticks(range(0, shown, step), names[::step], fontsize=8)
        axes.set_xlabel(f"time since the first submission, {unit}")

    cut = f" The first {shown} of {len(run.boards)} boards." if shown < len(run.boards) else ""
    return Plot(
        f"gantt-{number}-{file_name(run.label)}",
        f"Boards under {run.label}{suffix}",
        f"Which board was taken when under {run.label}, for the lowest seed; attempts without a "
        f"result are in another colour.{cut}",
        draw,
        height_in=min(9.0, 1.4 + 0.16 * shown),
    )


def file_name(label: str) -> str:
    """Return a part of a file name for a label."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-.")[:60] or "policy"
