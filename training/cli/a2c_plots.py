"""Learning curves of the paper's agent as an image."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np

from edgeyard.benchmark_api.cli.output_files import check_matplotlib
from edgeyard.benchmark_api.figures.palette import COLOURS

Curve = Sequence[tuple[float, float]]
"""Episodes and a figure of each generation."""


def curve_image(
    series: Mapping[str, Sequence[Curve]],
    rules: Mapping[str, float] | None = None,
    y_label: str = "mean slowdown",
) -> bytes:
    """Draw a figure by episodes as PNG.

    Args:
        series: By label: the curves of some seeds, of which mean and range are drawn.
        rules: By label: the figures of simple rules, drawn as lines.
        y_label: What the figure is.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for place, (label, curves) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        length = min(len(each) for each in curves)
        values = np.array([[value for _, value in each[:length]] for each in curves])
        episodes = [number for number, _ in curves[0][:length]]
        axes.plot(episodes, values.mean(axis=0), color=colour, label=label)
        if len(curves) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(episodes, low, high, color=colour, alpha=0.2, linewidth=0)
    for place, (label, value) in enumerate((rules or {}).items()):
        axes.axhline(value, color="#555555", linestyle=("--", ":", "-.")[place % 3], label=label)
    axes.set_xlabel("episodes")
    axes.set_ylabel(y_label)
    axes.legend()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()
