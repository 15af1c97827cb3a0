"""Figures of a soak: the p50, the temperature and the clock of each window."""

from __future__ import annotations

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.schemas.answers import SoakResult, SoakWindow, SteadyPart

_MINUTE_S = 60.0
_LONG_S = 180.0
"""From this duration on, time is shown in minutes."""

_SIGNS = {
    "reported": "firmware or kernel report it",
    "clock": "the clock is 5 % below that of the first window",
}


def soak_figures(found: SoakResult) -> list[LineFigure]:
    """Return the figures of a soak on one time axis.

    What is of a whole window is drawn at its middle, so that it stands right of a mark at the
    window's begin; a temperature at the end. Temperature and clock are left out if the board does
    not report them.
    """
    scale, unit = (_MINUTE_S, "min") if found.duration_s >= _LONG_S else (1.0, "s")
    time = Axis(title="since the begin", unit=unit)
    marks = []
    if found.steady is not None:
        begin_s = 0.0 if _is_all_steady(found) else found.steady.begin_s
        marks.append(Mark(x=begin_s / scale, text="steady from here on"))
    if found.throttling.after_s is not None:
        why = _SIGNS.get(found.throttling.sign or "", "")
        marks.append(Mark(x=found.throttling.after_s / scale, text=f"throttling: {why}"))
    marks.sort(key=lambda each: each.x)
    latencies = [
        Sample(
            verdict="",
            x=_middle_s(each) / scale,
            value=each.p50_ms,
            low=each.p50_low_ms,
            high=each.p50_high_ms,
        )
        for each in found.windows
    ]
    sensors = [
        (
            "Temperature at the end of each window",
            Axis(title="temperature", unit="°C"),
            [(each.end_s, each.temperature_c) for each in found.windows],
        ),
        (
            "Mean clock of each window",
            Axis(title="clock", unit="MHz"),
            [(_middle_s(each), each.clock_mhz) for each in found.windows],
        ),
    ]
    figures = [
        LineFigure(
            title=f"Median latency of each {found.window_s:g} s",
            x_axis=time,
            axis=Axis(title="p50", unit="ms", direction="lower"),
            series=[Series(name="", samples=latencies)],
            marks=marks,
        )
    ]
    for title, axis, numbers in sensors:
        samples = [
            Sample(verdict="", x=at_s / scale, value=value)
            for at_s, value in numbers
            if value is not None
        ]
        if samples:
            figures.append(
                LineFigure(
                    title=title,
                    x_axis=time,
                    axis=axis,
                    series=[Series(name="", samples=samples)],
                    marks=marks,
                )
            )
    return figures


def _middle_s(window: SoakWindow) -> float:
    return (window.begin_s + window.end_s) / 2


def is_steady(window: SoakWindow, steady: SteadyPart | None) -> bool:
    """Return whether a window of a soak is of its steady part; no window is if there is none."""
    return steady is not None and window.begin_s >= steady.begin_s


def soak_sentence(found: SoakResult) -> str:
    """Return when the board was steady and throttled, and what measuring took, in words."""
    if found.steady is None:
        steady = (
            f"Not steady within {_duration_text(found.duration_s)}: the result is of all of it."
        )
    elif _is_all_steady(found):
        steady = f"Steady from its begin on, p50 {found.steady.p50_ms:.4g} ms."
    else:
        steady = (
            f"Steady from {_duration_text(found.steady.begin_s)} on, p50 "
            f"{found.steady.p50_ms:.4g} ms: the result is of this part."
        )
    seen = found.throttling
    if seen.after_s is not None:
        why = _SIGNS.get(seen.sign or "", "")
        throttled = f"Throttling after {_duration_text(seen.after_s)}: {why}."
    elif seen.watched:
        throttled = "No throttling was seen."
    else:
        throttled = "This board reports neither throttling nor its clock."
    return f"{steady} {throttled} Edgeyard itself took {100 * found.overhead:.2g} % of a core."


def _is_all_steady(found: SoakResult) -> bool:
    """Return whether the steady part begins with the first window."""
    return bool(found.windows) and is_steady(found.windows[0], found.steady)


def _duration_text(seconds: float) -> str:
    """Return a time since the begin of a soak, in minutes where it is long."""
    return f"{seconds / _MINUTE_S:.3g} min" if seconds >= _LONG_S else f"{seconds:.3g} s"
