"""Figures of a result whose load is more than one caller for a number of runs."""

from __future__ import annotations

from edgeyard.benchmark_api.figures.concurrency import concurrency_figures
from edgeyard.benchmark_api.figures.lines import LineFigure
from edgeyard.benchmark_api.figures.load import load_test_figures
from edgeyard.benchmark_api.figures.soaks import soak_figures
from edgeyard.benchmark_api.schemas.answers import Results


def load_figures(found: Results) -> list[LineFigure]:
    """Return the figures of a soak, of several callers, or of a load by LoadGen's rules."""
    if found.soak is not None:
        return soak_figures(found.soak)
    if found.load_test is not None:
        return load_test_figures(found.load_test)
    return [] if found.concurrency is None else concurrency_figures(found.concurrency)
