"""Figures of one run: how its latencies are distributed, and in which order they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, distribution_figure, run_figure

MAX_LATENCIES = 1_000_000
"""Of one run; a file with more is not drawn."""

_AXIS = Axis(title="latency", unit="ms", direction="lower")


def read_latencies(file: BinaryIO) -> list[float]:
    """Return what ``latencies.npy`` holds, ms; [] where it is no such file.

    A host has written it: its header is believed only as far as the file is long.
    """
    try:
        if npy.read_magic(file) != (1, 0):
            return []
        shape, _, dtype = npy.read_array_header_1_0(file)
    except (ValueError, OSError, EOFError):
        return []
    if dtype != np.dtype("<f8") or len(shape) != 1 or not 0 < shape[0] <= MAX_LATENCIES:
        return []
    data = file.read(8 * shape[0])
    if len(data) != 8 * shape[0]:
        return []
    values = np.frombuffer(data, dtype="<f8")
    return [float(each) for each in values[np.isfinite(values) & (values > 0)]]


def figures_of_run(warm_up: Sequence[float], measured: Sequence[float]) -> list[LineFigure]:
    """Return the figures of a run.

    Args:
        warm_up: Latencies before the timed ones, ms.
        measured: The timed ones, ms, in their order.
    """
    if len(measured) < 2:
        return []
    return [
        distribution_figure("Distribution of the latencies", _AXIS, [("", measured)]),
        run_figure("Latencies in their order", _AXIS, warm_up, measured),
    ]
