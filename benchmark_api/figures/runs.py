"""Figures of one run: how its latencies are distributed, and in which order they came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, distribution_figure, run_figure

MAX_LATENCIES = 1_000_000
"""Latencies at most of a run that is drawn; a file with more is not."""

_MAX_HEADER_BYTES = 256
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00.{2}"
    rb"\{'descr': '<f8', 'fortran_order': False, 'shape': \((\d{1,9}),\), \} *\n",
    re.DOTALL,
)
"""How NumPy begins a file with a list of 64-bit floats: read as text, nothing is evaluated."""

_AXIS = Axis(title="latency", unit="ms", direction="lower")


def read_latencies(file: BinaryIO) -> list[float]:
    """Return what ``latencies.npy`` holds, ms; [] where it is no such file.

    A host has written it, so the length that its header states is checked against the file.
    """
    found = _HEADER.match(file.read(_MAX_HEADER_BYTES))
    if found is None or not 0 < int(found[1]) <= MAX_LATENCIES:
        return []
    file.seek(found.end())
    data = file.read(8 * int(found[1]))
    if len(data) != 8 * int(found[1]):
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
