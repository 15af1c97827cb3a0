"""Random data for a model's inputs, as TYPE1 runs on it.

Per input the job description may say ``shape`` (all dimensions), ``low``, ``high`` and
``integers``. Without a word: floats are uniform in [0, 1), 8-bit integers take their whole range
(pixels), other integers are 0 or 1 (a legal index into any table of two rows), booleans are random.
Bounds of integers are both included.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.errors import RunFailed

Feeds = Dict[str, NDArray[np.generic]]

_KEYS = ("shape", "low", "high", "integers")
MAX_DIMENSIONS = 32


def random_feeds(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Mapping[str, object]],
    *,
    seed: int = 0,
    limit_bytes: Optional[int] = None,
) -> Feeds:
    """Return a random array for every input.

    Args:
        given: The job description's ``input``.
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
    rng = np.random.default_rng(seed)
    feeds: Feeds = {}
    total = 0
    for spec in inputs:
        wish = given.get(spec.name, {})
        odd = sorted(set(wish) - set(_KEYS))
        if odd:
            raise _wrong(spec, f"{odd[0]!r} is not known; known are {', '.join(_KEYS)}")
        shape = resolve_shape(spec, wish.get("shape"))
        dtype = _dtype(spec)
        size = dtype.itemsize
        for dimension in shape:
            size *= dimension
        total += size
        if limit_bytes is not None and total > limit_bytes:
            raise _wrong(spec, f"shape {list(shape)} takes {size} bytes, more than the board has")
        feeds[spec.name] = _values(rng, spec, shape, dtype, wish)
    return feeds


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
        fits = len(value.shape) == len(spec.shape) and all(
            not isinstance(size, int) or size == have
            for size, have in zip(spec.shape, value.shape, strict=True)
        )
        if not fits:
            raise RunFailed(
                "user_input",
                f"input {spec.name!r} takes the shape {spec.shape}, but got {value.shape}",
            )
        if value.dtype.name != spec.dtype:
            raise RunFailed(
                "user_input", f"input {spec.name!r} takes {spec.dtype}, but got {value.dtype.name}"
            )


def given_problems(
    inputs: Sequence[TensorSpec], given: Mapping[str, Mapping[str, object]]
) -> List[Tuple[str, str, str]]:
    """Return all that keeps random data from being made, for every input at once.

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
        sizes = "x".join(str(size) if _fixed(size) else "1" for size in spec.shape)
        flag = f"--input '{spec.name}={sizes}'" if sizes else f"no shape for {spec.name}"
        open_ones = [
            str(axis) for axis, size in enumerate(spec.shape) if axis > 0 and not _fixed(size)
        ]
        if wish is None and open_ones:
            which = "dimension" if len(open_ones) == 1 else "dimensions"
            reason = f"the model leaves {which} {', '.join(open_ones)} of {_show(spec.shape)} open"
            found.append((spec.name, reason, f"all sizes, e.g. {flag}"))
            continue
        try:
            _dtype(spec)
            shapes[spec.name] = resolve_shape(spec, wish)
        except RunFailed as error:
            prefix = f"input {spec.name!r}: "
            found.append((spec.name, error.sentence.removeprefix(prefix), flag))
    if not found and (problem := shared_size_problem(inputs, shapes)):
        name, reason = problem
        known: Dict[object, int] = {}
        for spec in inputs:
            for dimension, size in zip(spec.shape, shapes[spec.name], strict=True):
                known.setdefault(dimension, size)
        (own,) = (spec for spec in inputs if spec.name == name)
        sizes = "x".join(str(known[dimension]) for dimension in own.shape)
        found.append((name, reason, f"--input '{name}={sizes}', or other sizes for all"))
    return found


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
        for name, size in zip(spec.shape, shapes[spec.name], strict=False):
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


def resolve_shape(spec: TensorSpec, wish: object) -> Tuple[int, ...]:
    """Return the shape to run with: the wished one, else the model's with a batch of 1.

    Raises:
        RunFailed: ``user_input``: it doesn't fit the model, or a size is open and nobody said it.
    """
    if wish is None:
        open_ones = [axis for axis, size in enumerate(spec.shape) if axis > 0 and not _fixed(size)]
        if open_ones:
            raise _wrong(
                spec,
                f"the model leaves dimension {open_ones[0]} of {_show(spec.shape)} open",
                _how_to(spec),
            )
        return tuple(size if isinstance(size, int) and size > 0 else 1 for size in spec.shape)
    if (
        not isinstance(wish, (list, tuple))
        or len(wish) > MAX_DIMENSIONS
        or not all(type(size) is int and 0 < size < 2**31 for size in wish)
    ):
        raise _wrong(spec, "shape is not a list of whole numbers from 1 on", _how_to(spec))
    shape = tuple(wish)
    fits = len(shape) == len(spec.shape) and all(
        not _fixed(size) or size == wished for size, wished in zip(spec.shape, shape, strict=False)
    )
    if not fits:
        raise _wrong(spec, f"the model takes {_show(spec.shape)}, not {list(shape)}")
    return shape


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


def _fixed(size: object) -> bool:
    return isinstance(size, int) and size > 0


def _show(shape: Sequence[object]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _how_to(spec: TensorSpec) -> str:
    sizes: List[str] = [str(size) if _fixed(size) else "1" for size in spec.shape]
    return f'; state it by "input": {{"{spec.name}": {{"shape": [{", ".join(sizes)}]}}}}'


def _wrong(spec: TensorSpec, reason: str, how: str = "") -> RunFailed:
    return RunFailed("user_input", f"input {spec.name!r}: {reason}{how}")
