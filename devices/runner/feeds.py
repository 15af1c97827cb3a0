"""Random data for a model's inputs, as TYPE1 runs on it.

``parameters.batch_size`` says how many rows a run has: the size of each open first dimension.

Per input the job description may say ``shape`` (all dimensions; none for a scalar), ``low``,
``high`` and ``integers``. Without a word: floats are uniform in [0, 1), 8-bit integers take their
whole range (pixels), other integers are 0 or 1 (a legal index into any table of two rows), booleans
are random. Bounds of integers are both included. The report states what was invented.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Dimension, TensorSpec, is_fixed
from edgeyard.errors import RunFailed

Feeds = Dict[str, NDArray[np.generic]]

_KEYS = ("shape", "low", "high", "integers")
MAX_DIMENSIONS = 32
MAX_BATCH_SIZE = 65536


def random_feeds(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Mapping[str, object]],
    *,
    batch_size: object = None,
    seed: int = 0,
    limit_bytes: Optional[int] = None,
) -> Feeds:
    """Return a random array for every input; of no dimensions for a scalar.

    Args:
        given: The job description's ``input``.
        batch_size: Rows of a run, as ``parameters.batch_size`` states them; None: the model's own.
        limit_bytes: Largest sum of the arrays; None: no bound.

    Raises:
        RunFailed: ``user_input``, naming the input and what it takes.
    """
    names = [spec.name for spec in inputs]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise RunFailed(
            "user_input",
            f"input: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, names))}",
        )
    if problem := batch_size_problem(inputs, given, batch_size):
        raise RunFailed("user_input", f"parameters/batch_size: {problem[0]}")
    rng = np.random.default_rng(seed)
    feeds: Feeds = {}
    total = 0
    for spec in inputs:
        wish = given.get(spec.name, {})
        odd = sorted(set(wish) - set(_KEYS))
        if odd:
            raise _wrong(spec, f"{odd[0]!r} is not known; known are {', '.join(_KEYS)}")
        shape = resolve_shape(spec, wish.get("shape"), batch_size)
        dtype = _dtype(spec)
        size = feed_bytes(spec, shape)
        total += size
        if limit_bytes is not None and total > limit_bytes:
            raise _wrong(spec, f"shape {list(shape)} takes {size} bytes, more than the board has")
        # NumPy's arithmetic turns arrays of no dimensions into numbers, which engines do not take
        feeds[spec.name] = np.asarray(_values(rng, spec, shape, dtype, wish))
    return feeds


def feed_bytes(spec: TensorSpec, shape: Sequence[int]) -> int:
    """Return the memory that an array for an input takes."""
    size: int = _dtype(spec).itemsize
    for dimension in shape:
        size *= max(1, dimension)  # NumPy bounds the other sizes of an empty array, too
    return size


def described(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Mapping[str, object]],
    feeds: Feeds,
    batch_size: object = None,
) -> Dict[str, Dict[str, object]]:
    """Return what random data a model is run on, as the report states it.

    Args:
        given: The job description's ``input``.
        feeds: What `random_feeds` made of all.
        batch_size: Rows of a run that the job description states; None: it states none.

    Returns:
        By input the shape, the type, and in words what neither the model nor the user states.
    """
    return {
        spec.name: {
            "shape": list(feeds[spec.name].shape),
            "dtype": str(feeds[spec.name].dtype),
            "invented": _invented(spec, given.get(spec.name, {}), batch_size is not None),
        }
        for spec in inputs
    }


def _invented(spec: TensorSpec, wish: Mapping[str, object], has_rows: bool) -> List[str]:
    found = []
    if wish.get("shape") is None:
        for axis, size in enumerate(spec.shape or ()):
            if not is_fixed(size) and not (axis == 0 and has_rows):
                name = f" ({size})" if isinstance(size, str) else ""
                found.append(f"dimension {axis}{name} is 1")
    dtype = _dtype(spec)
    if dtype.kind == "b":
        found.append("values are true or false")
    elif wish.get("low") is None or wish.get("high") is None:
        low, high, whole = _range(spec, dtype, wish)
        kind = "whole numbers" if whole else "floats"
        found.append(f"values are {kind} from {low:g} to {high:g}")
    return found


def check_feeds(inputs: Sequence[TensorSpec], feeds: Mapping[str, NDArray[np.generic]]) -> None:
    """Check that feeds are what the inputs take.

    Raises:
        RunFailed: ``user_input``, naming the input.
    """
    names = {spec.name for spec in inputs}
    if names != set(feeds):
        raise RunFailed(
            "user_input", f"the model takes the inputs {sorted(names)}, not {sorted(feeds)}"
        )
    for spec in inputs:
        value = feeds[spec.name]
        if not spec.takes(value.shape):
            raise RunFailed(
                "user_input",
                f"input {spec.name!r} takes {spec.shape_text()}, but got {list(value.shape)}",
            )
        if value.dtype.name != spec.dtype:
            raise RunFailed(
                "user_input", f"input {spec.name!r} takes {spec.dtype}, but got {value.dtype.name}"
            )


def given_problems(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Mapping[str, object]],
    batch_size: object = None,
) -> List[Tuple[str, str, str]]:
    """Return all that keeps random data from being made, for every input at once.

    Args:
        batch_size: Rows of a run, for which `batch_size_problem` finds nothing.

    Returns:
        For each problem the input, what is wrong, and what would be accepted.
    """
    names = [spec.name for spec in inputs]
    has = ", ".join(names)
    found = [
        (name, f"the model has no input {name!r}", f"one of {has}")
        for name in sorted(set(given) - set(names))
    ]
    shapes: Dict[str, Sequence[int]] = {}
    for spec in inputs:
        wish = given.get(spec.name, {}).get("shape")
        flag = f"--input '{spec.name}={_flag_shape(_example(spec))}'"
        if wish is None and spec.shape is None:
            found.append((spec.name, _UNRANKED, f"its sizes, e.g. {flag}"))
            continue
        open_ones = [str(axis) for axis in _open_axes(spec)]
        if wish is None and open_ones:
            which = "dimension" if len(open_ones) == 1 else "dimensions"
            reason = f"the model leaves {which} {', '.join(open_ones)} of {_show(spec)} open"
            found.append((spec.name, reason, f"all sizes, e.g. {flag}"))
            continue
        try:
            _dtype(spec)
            shapes[spec.name] = resolve_shape(spec, wish, batch_size)
        except RunFailed as error:
            prefix = f"input {spec.name!r}: "
            found.append((spec.name, error.sentence.removeprefix(prefix), flag))
    if not found and (problem := shared_size_problem(inputs, shapes)):
        name, reason = problem
        known: Dict[Dimension, int] = {}
        for spec in inputs:
            for dimension, size in zip(spec.shape or (), shapes[spec.name], strict=False):
                if isinstance(dimension, str):
                    known.setdefault(dimension, size)
        (own,) = (spec for spec in inputs if spec.name == name)
        sizes = _flag_shape(
            [
                known.get(dimension, size)
                for dimension, size in zip(own.shape or (), shapes[name], strict=False)
            ]
        )
        found.append((name, reason, f"--input '{name}={sizes}', or other sizes for all"))
    return found


def batch_size_problem(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Mapping[str, object]],
    batch_size: object,
) -> Optional[Tuple[str, str]]:
    """Return why a run can't have so many rows, and what would be accepted; None if it can.

    Args:
        given: The job description's ``input``.
        batch_size: ``parameters.batch_size``; None: it is not stated.
    """
    if batch_size is None:
        return None
    accepted = f"a whole number from 1 to {MAX_BATCH_SIZE}"
    if type(batch_size) is not int or not 1 <= batch_size <= MAX_BATCH_SIZE:
        return f"not {accepted}", accepted
    rows = {
        spec.name: _rows_of(spec, given.get(spec.name, {}).get("shape"))
        for spec in inputs
        if spec.shape is None or spec.shape
    }
    fixed = {name: size for name, size in rows.items() if size not in (None, batch_size)}
    if fixed:
        name, size = next(iter(fixed.items()))
        whose = "the shape stated" if given.get(name, {}).get("shape") else "the model"
        takes = f"{whose} has {size} rows in input {name!r}, not {batch_size}"
        return takes, f"{size}, or a model that leaves its first dimension open"
    if not rows:
        return "the model's inputs have no dimension for rows", "no batch_size"
    return None


def _rows_of(spec: TensorSpec, wish: object) -> Optional[int]:
    """Return the first size of an input that model or user state; None: it is open."""
    first = wish[0] if isinstance(wish, (list, tuple)) and wish else None
    if first is None and spec.shape and is_fixed(spec.shape[0]):
        first = spec.shape[0]
    return first if isinstance(first, int) else None


def shared_size_problem(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]]
) -> Optional[Tuple[str, str]]:
    """Return what contradicts that dimensions of one name have one size in all inputs.

    Args:
        inputs: Of the model; a dimension that is not fixed may have a name.
        shapes: By input, of one run.

    Returns:
        The second of two inputs that contradict each other, and why, as a sentence; None: nothing.
    """
    seen: Dict[str, Tuple[str, int]] = {}
    for spec in inputs:
        for name, size in zip(spec.shape or (), shapes[spec.name], strict=False):
            if not isinstance(name, str):
                continue
            first, known = seen.setdefault(name, (spec.name, size))
            if known != size:
                return spec.name, (
                    f"dimension {name!r} is {known} in input {first!r} "
                    f"{list(shapes[first])} and {size} in input {spec.name!r} "
                    f"{list(shapes[spec.name])}; the model takes one size"
                )
    return None


def resolve_shape(spec: TensorSpec, wish: object, batch_size: object = None) -> Tuple[int, ...]:
    """Return the shape to run with: the stated one, otherwise the model's.

    Args:
        wish: Sizes that the job description states; None: none.
        batch_size: Size of an open first dimension; None: 1.

    Raises:
        RunFailed: ``user_input``: it doesn't fit the model, or a size is open and nobody said it.
    """
    if wish is None:
        if spec.shape is None:
            raise _wrong(spec, _UNRANKED, _how_to(spec))
        if open_ones := _open_axes(spec):
            raise _wrong(
                spec,
                f"the model leaves dimension {open_ones[0]} of {_show(spec)} open",
                _how_to(spec),
            )
        sizes = _example(spec)
        if isinstance(batch_size, int) and sizes and not is_fixed(spec.shape[0]):
            sizes[0] = batch_size
        return tuple(sizes)
    if (
        not isinstance(wish, (list, tuple))
        or len(wish) > MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size < 2**31 for size in wish)
    ):
        raise _wrong(spec, "shape is not a list of whole numbers from 0 on", _how_to(spec))
    shape = tuple(wish)
    if not spec.takes(shape):
        raise _wrong(spec, f"the model takes {_show(spec)}, not {list(shape)}")
    return shape


_UNRANKED = "the model does not state how many dimensions it takes"


def _open_axes(spec: TensorSpec) -> List[int]:
    """Dimensions whose size has to be stated: an open first one is the batch, which is 1."""
    return [axis for axis, size in enumerate(spec.shape or ()) if axis > 0 and not is_fixed(size)]


def _example(spec: TensorSpec) -> List[int]:
    """Return sizes that the model takes, with 1 for those that it leaves open."""
    if spec.shape is None:
        return [1]
    return [size if isinstance(size, int) and size >= 0 else 1 for size in spec.shape]


def _flag_shape(sizes: Sequence[int]) -> str:
    """Return a shape as ``--input`` takes it."""
    return "x".join(map(str, sizes)) or "scalar"


def _values(
    rng: np.random.Generator,
    spec: TensorSpec,
    shape: Tuple[int, ...],
    dtype: np.dtype[np.generic],
    wish: Mapping[str, object],
) -> NDArray[np.generic]:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    low, high, whole = _range(spec, dtype, wish)
    if whole:
        if low < -(2.0**63) or high > 2.0**63 - 1:
            raise _wrong(spec, "integers go from -2**63 to 2**63 - 1")
        drawn = rng.integers(int(low), int(high), shape, dtype=np.int64, endpoint=True)
        return drawn.astype(dtype, copy=False)
    wide = np.dtype(np.float64) if dtype.itemsize == 8 else np.dtype(np.float32)
    values = rng.random(shape, dtype=wide.type)
    return (values * wide.type(high - low) + wide.type(low)).astype(dtype, copy=False)


def value_range(spec: TensorSpec, wish: Mapping[str, object]) -> Tuple[float, float]:
    """Return the lowest and the highest value of an input's random array.

    Args:
        wish: What the job description states of the input.

    Raises:
        RunFailed: ``user_input``: there are no such values.
    """
    low, high, _ = _range(spec, _dtype(spec), wish)
    return low, high


def _range(
    spec: TensorSpec, dtype: np.dtype[np.generic], wish: Mapping[str, object]
) -> Tuple[float, float, bool]:
    integral = dtype.kind in "iu"
    low, high = 0.0, 1.0
    if integral and dtype.itemsize == 1:
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)  # type: ignore[type-var]
    given = [wish.get("low"), wish.get("high")]
    for value in given:
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300
        ):
            raise _wrong(spec, f"{value!r} is not a number")
    if isinstance(given[0], (int, float)):
        low, high = float(given[0]), max(high, float(given[0]) + (0 if integral else 1))
    if isinstance(given[1], (int, float)):
        high = float(given[1])
    if not low <= high:
        raise _wrong(spec, f"low {low:g} is above high {high:g}")
    if integral:
        bounds = np.iinfo(dtype)  # type: ignore[type-var]
        if low < bounds.min or high > float(bounds.max):
            raise _wrong(spec, f"{spec.dtype} holds {bounds.min} to {bounds.max}")
    else:
        limit = float(np.finfo(dtype).max)  # type: ignore[type-var]
        if low < -limit or high > limit or high - low > limit:
            raise _wrong(spec, f"{spec.dtype} holds {-limit:g} to {limit:g}")
    return low, high, integral or bool(wish.get("integers"))


def _dtype(spec: TensorSpec) -> np.dtype[np.generic]:
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise _wrong(spec, f"random data can't be made for type {spec.dtype!r}")
    return dtype


def _show(spec: TensorSpec) -> str:
    """The shape with the names of its open dimensions, which ``--input`` may have to agree on."""
    if spec.shape is None:
        return spec.shape_text()
    return "[" + ", ".join("?" if size is None else str(size) for size in spec.shape) + "]"


def _how_to(spec: TensorSpec) -> str:
    return f'; state it by "input": {{"{spec.name}": {{"shape": {_example(spec)}}}}}'


def _wrong(spec: TensorSpec, reason: str, how: str = "") -> RunFailed:
    return RunFailed("user_input", f"input {spec.name!r}: {reason}{how}")
