"""Real numbers of quantised tensors, and the whole numbers that stand for them.

What a user gives or gets as real numbers are floats; whole numbers are those that the model itself
takes and returns. Conversions are outside of timed runs.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.arrays import converted
from edgeyard.devices.runner.engine import Quantization, TensorSpec
from edgeyard.devices.runner.trust import Reason, inputs_clipped
from edgeyard.errors import RunFailed

Array = NDArray[np.generic]


def quantization_of(
    dtype: str, scales: Sequence[float], zero_points: Sequence[int], axis: int
) -> Optional[Quantization]:
    """Return the quantization that a model states for a tensor; None where it states none.

    A scale of 1 with a zero point of 0 changes nothing and counts as none.

    Args:
        dtype: Of the tensor; floats are never quantised, whatever is stated.
        scales: Empty or 0: not quantised.
        zero_points: As many, or fewer where the rest are 0.
        axis: Dimension of several scales.
    """
    found = tuple(float(scale) for scale in scales)
    if not dtype.startswith(("int", "uint")) or not found:
        return None
    if not all(math.isfinite(scale) and scale > 0 for scale in found):
        return None
    zeros = tuple(int(zero) for zero in zero_points)[: len(found)]
    zeros += (0,) * (len(found) - len(zeros))
    if set(found) == {1.0} and set(zeros) == {0}:
        return None
    return Quantization(found, zeros, axis)


def real_values(values: object, spec: TensorSpec) -> object:
    """Return an output's real numbers, as float32; what is not quantised is returned as it is."""
    if spec.quantization is None or not isinstance(values, np.ndarray):
        return values
    scales, zeros = _along(spec.quantization, values.ndim)
    # NumPy's arithmetic turns arrays of no dimensions into numbers
    return np.asarray((values - zeros) * scales, dtype=np.float32)


def input_values(values: Array, spec: TensorSpec, what: str) -> Array:
    """Return the values of an array as an input takes them.

    A quantised input takes floats, which are real numbers and become the nearest whole ones, with
    those out of range clipped, or whole numbers of its own type, which are taken as they are.

    Args:
        values: Shape (rows, ...).
        spec: The input.
        what: What takes the values, for the error: "input 'x'".

    Raises:
        RunFailed: ``user_input``: as `input_type_problem` states, or as `converted` raises.
    """
    dtype = np.dtype(spec.dtype)
    if spec.quantization is None:
        return converted(values, dtype, what)
    if problem := input_type_problem(spec, values.dtype):
        raise RunFailed("user_input", f"{what} {problem}")
    if values.dtype == dtype:
        return values
    if not np.isfinite(values).all():
        raise RunFailed("user_input", f"{what} has values that are no finite numbers")
    bounds = np.iinfo(dtype)
    scales, zeros = _along(spec.quantization, values.ndim)
    nearest = np.asarray(values / scales.astype(np.result_type(values.dtype, np.float32)))
    np.rint(nearest, out=nearest)
    nearest += zeros.astype(nearest.dtype)
    return np.asarray(np.clip(nearest, bounds.min, bounds.max), dtype=dtype)


def input_type_problem(spec: TensorSpec, dtype: np.dtype[np.generic]) -> str:
    """Return why a quantised input takes no values of a type; "" where it does."""
    if dtype.kind == "f" or dtype.name == spec.dtype:
        return ""
    low, high = real_range(spec)
    return (
        f"is quantised and takes no {dtype}: accepted are floats, which are real numbers from "
        f"{low:.4g} to {high:.4g}, or {spec.dtype}, the model's own whole numbers"
    )


def real_range(spec: TensorSpec) -> Tuple[float, float]:
    """Return the smallest and the largest real number that a quantised tensor can state."""
    assert spec.quantization is not None
    bounds = np.iinfo(np.dtype(spec.dtype))
    found = [
        scale * (float(whole) - zero)
        for scale, zero in zip(spec.quantization.scales, spec.quantization.zero_points, strict=True)
        for whole in (bounds.min, bounds.max)
    ]
    return min(found), max(found)


class Clipping:
    """Counts the real numbers that a quantised input can't state."""

    def __init__(self, spec: TensorSpec) -> None:
        """Count for this input."""
        self._spec = spec
        self._values = self._clipped = 0

    def count(self, values: Array) -> None:
        """Count values before they are converted; whole numbers are taken as they are."""
        if self._spec.quantization is None or values.dtype.kind != "f":
            return
        bounds = np.iinfo(np.dtype(self._spec.dtype))
        scales, zeros = _along(self._spec.quantization, values.ndim)
        low, high = (bounds.min - zeros - 0.5) * scales, (bounds.max - zeros + 0.5) * scales
        self._values += values.size
        real = np.asarray(values, dtype=np.result_type(values.dtype, np.float32))
        self._clipped += int(((real < low) | (real > high)).sum())

    def reasons(self) -> List[Reason]:
        """Return what speaks against the values that were counted."""
        if not self._clipped:
            return []
        share = self._clipped / self._values
        return list(inputs_clipped(self._spec.name, share, *real_range(self._spec)))


def _along(
    quantization: Quantization, dimensions: int
) -> Tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scales and zero points, in a shape that fits a tensor of so many dimensions."""
    shape = [1] * dimensions
    if len(quantization.scales) > 1:
        shape[quantization.axis] = len(quantization.scales)
    scales = np.array(quantization.scales, dtype=np.float64)
    zeros = np.array(quantization.zero_points, dtype=np.float64)
    return scales.reshape(shape), zeros.reshape(shape)
