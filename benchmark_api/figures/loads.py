"""Figures of a result whose load is more than one caller for a number of runs."""

from __future__ import annotations

from edgeyard.benchmark_api.figures.concurrency import concurrency_figures
from edgeyard.benchmark_api.figures.lines import LineFigure
from edgeyard.benchmark_api.figures.soaks import soak_figures
from edgeyard.benchmark_api.schemas.answers import Results


def load_figures(found: Results) -> list[LineFigure]:
    """Return the figures of a soak, or of several callers at once; none of other results."""
    if found.soak is not None:
        return soak_figures(found.soak)
    return [] if found.concurrency is None else concurrency_figures(found.concurrency)
