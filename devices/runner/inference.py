"""Inference on the user's own inputs: the model's outputs, and a latency for each set of inputs.

The inputs are arrays of an ``.npz``, one for each input of the model, under its name. Several sets,
for example of different shapes, are named ``SET/INPUT``. Rows beyond the model's batch are run
batch by batch, and the outputs of all batches are joined.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.arrays import names_in, read_arrays
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import Progress, Session, TensorSpec, is_fixed
from edgeyard.devices.runner.feeds import MAX_BATCH_SIZE, Feeds, shared_size_problem
from edgeyard.devices.runner.first_run import first_outputs
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    MIN_MEASURING_S,
    WARMED_PERCENT,
    Measurement,
    StopRule,
    check_finite,
    measure,
)
from edgeyard.devices.runner.quantization import (
    Clipping,
    input_type_problem,
    input_values,
    real_values,
)
from edgeyard.devices.runner.trust import Reason, doubted
from edgeyard.errors import RunFailed

MAX_SETS = 64
"""Each is measured for about half a second at least."""

ONLY_SET = "inputs"
"""Name of the set where the archive names none."""

ONLY_INPUT = "x"
"""May stand for the only input of a model, as in datasets."""


Array = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class InputSet:
    """Arrays for all inputs of the model, ready to run.

    Attributes:
        batches: What each run takes; all have equal shapes.
        rows: Rows of all batches together, without those that fill the last one up; None: the
            arrays are run as they are.
        batch_size: Rows of a run; None: the arrays are run as they are.
        reasons: What speaks against the arrays.
    """

    name: str
    batches: Sequence[Feeds]
    rows: Optional[int] = None
    batch_size: Optional[int] = None
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a model gave for a set.

    Attributes:
        arrays: By output name, of all rows; of quantised outputs the real numbers, as float32.
        raw_dtypes: Of quantised outputs, the type of the whole numbers that the model returned.
        left_out: Outputs that are no arrays of numbers, with what they are.
        first_ms: How long the first run took.
    """

    arrays: Dict[str, Array]
    raw_dtypes: Dict[str, str]
    left_out: Dict[str, str]
    first_ms: float


@dataclass(frozen=True, kw_only=True)
class SetResult:
    """Measurement and outputs of one set of inputs."""

    inputs: InputSet
    measurement: Measurement
    outputs: Outputs

    def as_json(self) -> Dict[str, object]:
        """Return the values as the report contains them."""
        found = self.measurement.as_json()
        first = self.inputs.batches[0]
        kept = (
            "inference_latency",
            "nb_inference",
            "inner_loops",
            "runs_per_s",
            "rows_per_s",
            "verdict",
        )
        return {
            "name": self.inputs.name,
            "rows": self.inputs.rows,
            "batch_size": self.inputs.batch_size,
            "batches": len(self.inputs.batches),
            "feeds": {name: _shown(value) for name, value in first.items()},
            "outputs": {
                name: {**_shown(value), **self._raw(name)}
                for name, value in self.outputs.arrays.items()
            },
            "left_out": dict(self.outputs.left_out),
            "first_inference_ms": self.outputs.first_ms,
            **{name: found[name] for name in kept},
        }

    def _raw(self, name: str) -> Dict[str, object]:
        raw_dtype = self.outputs.raw_dtypes.get(name)
        return {} if raw_dtype is None else {"raw_dtype": raw_dtype}


def grouped_names(names: Sequence[str], inputs: Sequence[str]) -> Dict[str, Dict[str, str]]:
    """Sort the arrays of an archive into sets.

    Args:
        names: Of the arrays.
        inputs: Of the model's inputs.

    Returns:
        By set, in the archive's order: the name of the array of each input.

    Raises:
        RunFailed: ``user_input``: a set lacks an input, has one that the model does not know, or
            there are too many sets.
    """
    if set(names) == set(inputs) or (len(inputs) == 1 and list(names) == [ONLY_INPUT]):
        sets = {ONLY_SET: {name: name for name in names}}
    elif names and all("/" in name for name in names):
        sets = {}
        for name in names:
            set_name, _, input_name = name.partition("/")
            sets.setdefault(set_name, {})[input_name] = name
    else:
        sets = {ONLY_SET: {name: name for name in names}}
    if len(sets) > MAX_SETS:
        raise _wrong(f"has {len(sets)} sets of arrays; at most {MAX_SETS} are accepted")
    for set_name, arrays in sets.items():
        if len(inputs) == 1 and list(arrays) == [ONLY_INPUT]:
            sets[set_name] = {inputs[0]: arrays[ONLY_INPUT]}
            continue
        which = f"set {set_name!r} " if set_name != ONLY_SET else ""
        unknown = [name for name in arrays if name not in inputs]
        lacking = [name for name in inputs if name not in arrays]
        takes = "the model takes " + ", ".join(map(repr, inputs))
        if unknown:
            raise _wrong(f"{which}has an array {unknown[0]!r}; {takes}")
        if lacking:
            raise _wrong(f"{which}has no array {lacking[0]!r}; {takes}")
    return sets


def check_array(spec: TensorSpec, shape: Sequence[int], dtype: np.dtype[np.generic]) -> None:
    """See that an array of this type and of rows of this shape fits an input.

    Raises:
        RunFailed: ``user_input``, naming the input and what it takes.
    """
    wanted = np.dtype(spec.dtype) if spec.dtype != "string" else None
    if wanted is None or wanted.kind not in "biuf":
        raise _wrong(f"can't hold values for input {spec.name!r} of type {spec.dtype!r}")
    if dtype.kind not in "biuf":
        raise _wrong(f"has type {dtype} for input {spec.name!r}, which takes {wanted}")
    if spec.quantization is not None:
        if problem := input_type_problem(spec, dtype):
            raise _wrong(f"does not fit: input {spec.name!r} {problem}")
    elif dtype.kind == "f" and wanted.kind != "f":
        raise _wrong(
            f"has type {dtype} for input {spec.name!r}, which takes {wanted}: whole numbers"
        )
    fitting_shape(spec, shape, any_rows=True)


def fitting_shape(spec: TensorSpec, shape: Sequence[int], *, any_rows: bool) -> None:
    """See that an array of this shape fits an input.

    Args:
        spec: The input.
        shape: Of the array.
        any_rows: Rows beyond the model's batch are run batch by batch.

    Raises:
        RunFailed: ``user_input``, naming the input and what it takes.
    """
    if not spec.takes(shape, first=1 if any_rows else 0):
        raise _wrong(
            f"has shape {list(shape)} for input {spec.name!r}, which takes {spec.shape_text()}"
            + (" or more rows" if any_rows and spec.shape else "")
        )


def batch_size_for(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]], wish: object
) -> Optional[int]:
    """Rows of a run of these arrays; None: they are run as they are.

    Args:
        wish: ``parameters.batch_size``; None: the model's own batch where it has one.

    Raises:
        RunFailed: ``user_input``: no whole number, not the model's, or the arrays have different
            numbers of rows.
    """
    if wish is not None and (type(wish) is not int or not 1 <= wish <= MAX_BATCH_SIZE):
        raise RunFailed(
            "user_input", f"parameters/batch_size: not a whole number from 1 to {MAX_BATCH_SIZE}"
        )
    fixed = {
        spec.shape[0]
        for spec in inputs
        if spec.shape and isinstance(spec.shape[0], int) and spec.shape[0] > 0
    }
    if isinstance(wish, int) and fixed and fixed != {wish}:
        takes = " and ".join(map(str, sorted(fixed, key=str)))
        raise RunFailed(
            "user_input", f"parameters/batch_size: the model takes {takes} rows, not {wish}"
        )
    whole = all(
        not spec.shape or not is_fixed(spec.shape[0]) or shapes[spec.name][0] == spec.shape[0]
        for spec in inputs
    )
    if wish is None and (whole or len(fixed) != 1):
        return None
    rows = {shape[0] for shape in shapes.values() if shape}  # a scalar is one for all batches
    if len(rows) != 1 or 0 in rows:
        counts = ", ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items())
        how = "arrays with different numbers of rows" if len(rows) > 1 else "arrays without rows"
        raise _wrong(f"has {how} ({counts}), so no batches")
    size = wish if isinstance(wish, int) else next(iter(fixed))
    assert isinstance(size, int)
    return size


def open_inputs(
    path: Path, inputs: Sequence[TensorSpec], wish: object, *, limit_bytes: Optional[int] = None
) -> List[InputSet]:
    """Read the sets of an archive, checked and in batches.

    Args:
        wish: ``parameters.batch_size``.
        limit_bytes: All arrays may have together; None: the reader's own bound.

    Raises:
        RunFailed: ``user_input``: not an ``.npz``, or what does not fit the model, with the input
            and what it takes.
    """
    by_name = {spec.name: spec for spec in inputs}
    sets = grouped_names(names_in(path), [spec.name for spec in inputs])
    names = [name for arrays in sets.values() for name in arrays.values()]
    if limit_bytes is None:
        arrays = read_arrays(path, names)
    else:
        arrays = read_arrays(path, names, limit_bytes=limit_bytes)
    found = []
    for set_name, of_input in sets.items():
        feeds: Feeds = {}
        reasons: List[Reason] = []
        for input_name, spec in by_name.items():
            value = arrays[of_input[input_name]]
            check_array(spec, value.shape, value.dtype)
            feeds[input_name] = input_of(value, spec, of_input[input_name])
            clipping = Clipping(spec)
            clipping.count(value)
            reasons += clipping.reasons()
        found.append(replace(_set_of(set_name, feeds, inputs, wish), reasons=reasons))
    return found


def not_finite(values: Array) -> str:
    """Return how many values are NaN or infinite, in words; "" if all are finite numbers."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return ""
    nan = int(np.isnan(values).sum())
    infinite = int(np.isinf(values).sum())
    what = "NaN or infinite" if nan and infinite else "NaN" if nan else "infinite"
    return f"{nan + infinite} of {values.size} values that are {what}"


FINITE = "finite numbers; for a mask the type's lowest instead of -inf, e.g. -3.4e38 for float32"
"""What is accepted instead."""


def input_of(values: Array, spec: TensorSpec, name: str) -> Array:
    """Return the values of an array as an input takes them.

    Args:
        values: The array; of a quantised input as `input_values` takes them.
        spec: The input.
        name: Of the array, ``INPUT`` or ``SET/INPUT``.

    Raises:
        RunFailed: ``user_input``, naming the array: it has NaN or infinite values, or values that
            the input's type cannot hold.
    """
    if problem := not_finite(values):
        raise _wrong(f"has {problem} in {name!r}; accepted are {FINITE}")
    what = f"input {spec.name!r}" + (f" (array {name!r})" if name != spec.name else "")
    # not numpy.ascontiguousarray: it makes an array of one dimension of a scalar
    return np.asarray(input_values(values, spec, what), order="C")


def _set_of(name: str, feeds: Feeds, inputs: Sequence[TensorSpec], wish: object) -> InputSet:
    shapes = {key: value.shape for key, value in feeds.items()}
    size = checked_batch_size(name, inputs, shapes, wish)
    if size is None:
        return InputSet(name=name, batches=[feeds])
    rows = next(len(value) for value in feeds.values() if value.ndim)
    batches = [
        {
            key: _filled(value[start : start + size], size) if value.ndim else value
            for key, value in feeds.items()
        }
        for start in range(0, rows, size)
    ]
    return InputSet(name=name, batches=batches, rows=rows, batch_size=size)


def checked_batch_size(
    name: str, inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]], wish: object
) -> Optional[int]:
    """Return the rows of a run of a set of arrays; None if they are run as they are.

    Args:
        name: Of the set.
        inputs: Of the model.
        shapes: Of the arrays, by input.
        wish: ``parameters.batch_size``.

    Raises:
        RunFailed: ``user_input``: as `batch_size_for` and `check_shared_sizes`; or an array that is
            run as it is does not fit.
    """
    size = batch_size_for(inputs, shapes, wish)
    if size is None:
        for spec in inputs:
            fitting_shape(spec, shapes[spec.name], any_rows=False)
    else:
        shapes = {key: (size, *shape[1:]) if shape else () for key, shape in shapes.items()}
    if problem := shared_size_problem(inputs, shapes):
        which = f"set {name!r}: " if name != ONLY_SET else ""
        raise _wrong(f"does not fit: {which}{problem[1]}")
    return size


def _filled(rows: Array, size: int) -> Array:
    """Return the rows of a batch; a last one that is too short repeats its last row."""
    lacking = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)]) if lacking else rows


def infer(
    session: Session,
    sets: Sequence[InputSet],
    *,
    runs: int,
    max_s: float,
    watch_of: Callable[[], Watch],
    progress: Progress,
    max_warmup_s: float = math.inf,
) -> List[SetResult]:
    """Run every set once for its outputs, then measure its first batch.

    Args:
        runs: Timed runs of each set, at least.
        max_s: For all of it: each set measures for its share of what is left at most.

    Raises:
        RunFailed: ``user_model``: outputs are not finite; ``user_input``: outputs of several
            batches can't be joined; and what `Session.run` raises.
    """
    began = time.monotonic()
    results: List[SetResult] = []
    for number, one in enumerate(sets):
        part = _part(progress, number, len(sets))
        outputs = outputs_of(session, one)
        left_s = max(0.0, max_s - (time.monotonic() - began))
        measurement = measure(
            session,
            one.batches[0],
            StopRule(runs=runs, max_s=left_s / (len(sets) - number), min_s=MIN_MEASURING_S),
            watch_of(),
            part,
            max_warmup_s=max_warmup_s / len(sets),
        )
        measurement = replace(measurement, verdict=doubted(measurement.verdict, one.reasons))
        if one.batch_size is not None:
            measurement = replace(measurement, rows_a_run=one.batch_size)
        results.append(SetResult(inputs=one, measurement=measurement, outputs=outputs))
    return results


def write_outputs(path: Path, results: Sequence[SetResult]) -> None:
    """Write all outputs as an ``.npz``, each named ``SET/OUTPUT``."""
    np.savez(
        path,
        **{  # type: ignore[arg-type]  # the names hold a slash: none is an argument of savez
            f"{one.inputs.name}/{name}": value
            for one in results
            for name, value in one.outputs.arrays.items()
        },
    )


def outputs_of(session: Session, one: InputSet) -> Outputs:
    """Run all batches of a set and join their outputs.

    Raises:
        RunFailed: As `infer`.
    """
    parts: Dict[str, List[Array]] = {}
    left_out: Dict[str, str] = {}
    first_ms = 0.0
    filled = len(one.batches) > 1 or (one.rows is not None and one.rows != one.batch_size)
    for number, feeds in enumerate(one.batches):
        began = time.perf_counter()
        values = first_outputs(session, feeds) if number == 0 else session.run(feeds)
        if number == 0:
            first_ms = (time.perf_counter() - began) * 1e3
        check_finite(session, values)
        for spec, raw in zip(session.outputs, values, strict=True):
            value = real_values(raw, spec)
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
                left_out[spec.name] = (
                    f"an array of {value.dtype}"
                    if isinstance(value, np.ndarray)
                    else f"a {type(value).__name__}"
                )
                continue
            if filled and (value.ndim == 0 or len(value) != one.batch_size):
                raise RunFailed(
                    "user_input",
                    f"output {spec.name!r} of a batch of {one.batch_size} rows has shape "
                    f"{list(value.shape)}, so the outputs of several batches can't be joined; run "
                    "the batches as sets of their own (SET/INPUT)",
                )
            parts.setdefault(spec.name, []).append(np.array(value))
    joined = {
        name: values[0] if not filled else np.concatenate(values)[: one.rows]
        for name, values in parts.items()
    }
    raw_dtypes = {
        spec.name: spec.dtype for spec in session.outputs if spec.quantization is not None
    }
    return Outputs(arrays=joined, raw_dtypes=raw_dtypes, left_out=left_out, first_ms=first_ms)


def _part(progress: Progress, number: int, count: int) -> Progress:
    """Progress of one set as progress of the whole."""
    if count == 1:
        return progress
    span = MEASURED_PERCENT - WARMED_PERCENT

    def report(percent: float, phase: str) -> None:
        if number == 0 and phase != "measuring":
            progress(percent, phase)
        else:
            progress(WARMED_PERCENT + span * (number + percent / 100) / count, "measuring")

    return report


def _shown(value: Array) -> Dict[str, object]:
    return {"shape": list(value.shape), "dtype": str(value.dtype)}


def _wrong(reason: str) -> RunFailed:
    return RunFailed("user_input", f"the inputs' file {reason}")
