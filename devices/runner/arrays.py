"""Arrays out of an ``.npz`` file that somebody else made.

Such a file is a zip whose members may unpack to any size and whose headers may promise any; NumPy
would believe them. Nothing is unpickled.
"""

from __future__ import annotations

import math
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Sequence, Tuple, cast

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import RunFailed

MAX_ARRAYS_BYTES = 8 * 1024**3
MAX_HEADER = 10_000
_MAX_RATIO = 1100
"""Maximum ratio of the sizes before and after compression; Deflate reaches at most 1032."""


def array_names(archive: zipfile.ZipFile) -> Sequence[str]:
    """Names of the arrays in an ``.npz``; empty for any other zip."""
    return [name[: -len(".npy")] for name in archive.namelist() if name.endswith(".npy")]


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except RunFailed:
        raise
    except OSError as error:
        raise _wrong(path, f"can't be read: {error}") from error
    except Exception as error:  # zipfile, its decompressors and NumPy have errors of many kinds
        raise _wrong(path, f"is not a readable .npz: {error}") from error


def names_in(path: Path) -> Sequence[str]:
    """Names of the arrays of an ``.npz``, in its order.

    Raises:
        RunFailed: ``user_input``: not a readable ``.npz``, or without an array.
    """
    with _archive(path) as archive:
        found = array_names(archive)
    if not found:
        raise _wrong(path, "is not an .npz: it holds no array")
    for position, name in enumerate(found):
        if name in found[:position]:
            raise _wrong(path, f"holds {name!r} twice")
    return found


def headers_of(path: Path) -> Dict[str, Tuple[Tuple[int, ...], np.dtype[np.generic]]]:
    """Return shape and type of each array of an ``.npz``, from their headers.

    Raises:
        RunFailed: ``user_input``: not a readable ``.npz``, or an array of Python objects.
    """
    names = names_in(path)
    with _archive(path) as archive:
        found = {}
        for name in names:
            info = archive.getinfo(f"{name}.npy")
            with archive.open(info) as opened:
                shape, _, dtype = _header(cast(BinaryIO, opened), info, path)
            found[name] = (shape, dtype)
        return found


def read_arrays(
    path: Path,
    names: Sequence[str],
    *,
    optional: Sequence[str] = (),
    limit_bytes: int = MAX_ARRAYS_BYTES,
) -> Dict[str, NDArray[np.generic]]:
    """Return the named arrays of an ``.npz``.

    Args:
        path: Of the file.
        names: Arrays that have to be there.
        optional: Arrays that are read where they are there.
        limit_bytes: All of them may have together, unpacked.

    Raises:
        RunFailed: ``user_input``: not an ``.npz``, an array is missing, too large, of Python
            objects, or not what its header says.
    """
    with _archive(path) as archive:
        found = array_names(archive)
        missing = [name for name in names if name not in found]
        if missing:
            has = ", ".join(found) or "none"
            raise _wrong(path, f"has no array {missing[0]!r}; it holds {has}")
        arrays = {}
        for name in (*names, *(name for name in optional if name in found)):
            arrays[name] = _read(archive, f"{name}.npy", path, limit_bytes)
            limit_bytes -= arrays[name].nbytes
        return arrays


def read_all_arrays(
    paths: Sequence[Path], names: Sequence[str], *, optional: Sequence[str] = ()
) -> Dict[str, NDArray[np.generic]]:
    """Return the named arrays of several files, their rows one after another.

    Raises:
        RunFailed: ``user_input``: as `read_arrays`; or arrays do not fit together.
    """
    found = read_arrays(paths[0], names, optional=optional)
    limit_bytes = MAX_ARRAYS_BYTES - sum(each.nbytes for each in found.values())
    for path in paths[1:]:
        more = read_arrays(path, names, optional=optional, limit_bytes=limit_bytes)
        limit_bytes -= sum(each.nbytes for each in more.values())
        for name, rows in more.items():
            first = found.setdefault(name, rows[:0])
            if rows.dtype != first.dtype or rows.shape[1:] != first.shape[1:]:
                raise _wrong(
                    path,
                    f"has {name!r} with rows of {list(rows.shape[1:])} {rows.dtype}, and "
                    f"{paths[0].name!r} of {list(first.shape[1:])} {first.dtype}",
                )
            found[name] = np.concatenate([first, rows])
    return found


def converted(
    values: NDArray[np.generic], dtype: np.dtype[np.generic], what: str
) -> NDArray[np.generic]:
    """Return the same values in another type, or an error where that type cannot hold them.

    Whole numbers and booleans become floats or other whole numbers, without rounding; floats become
    other floats, rounded to the next one.

    Args:
        what: What takes the values, for the error: "input 'x'".

    Raises:
        RunFailed: ``user_input``, naming the value and what is accepted.
    """
    given = values.dtype
    if given == dtype:
        return values
    if given.kind not in "biuf" or dtype.kind not in "biuf":
        raise RunFailed("user_input", f"{what} takes {dtype}, and not {given}")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            result = values.astype(dtype)
        lost = np.isinf(result) & np.isfinite(values)
        if lost.any():
            limit = float(np.finfo(dtype).max)  # type: ignore[type-var]
            raise RunFailed(
                "user_input",
                f"{what} takes {dtype}, which cannot hold {values[lost][0]}; "
                f"accepted are values from {-limit:g} to {limit:g}",
            )
        inexact = values[~_is_exact(values, dtype)] if given.kind in "iu" else None
        if inexact is not None and inexact.size:
            limit = 2 ** (np.finfo(dtype).nmant + 1)  # type: ignore[type-var]
            raise RunFailed(
                "user_input",
                f"{what} takes {dtype}, which cannot hold {inexact[0]} exactly; accepted are whole "
                f"numbers from {-limit} to {limit}, or an array of {dtype}, which is rounded",
            )
        return result
    low, high = (0, 1) if dtype.kind == "b" else _bounds(dtype)
    if given.kind == "f":
        odd = values[~(np.isfinite(values) & (values == np.floor(values)))]
        example = f", such as {odd[0]}" if odd.size else ""
        raise RunFailed(
            "user_input",
            f"{what} takes {dtype}, and not {given}{example}; accepted are whole numbers from "
            f"{low} to {high}, in an array of whole numbers",
        )
    if values.size:
        # as Python's numbers: NumPy would compare int64 and uint64 as floats
        for extreme in (int(values.min()), int(values.max())):
            if not low <= extreme <= high:
                raise RunFailed(
                    "user_input",
                    f"{what} takes {dtype}, which cannot hold {extreme}; accepted are whole "
                    f"numbers from {low} to {high}",
                )
    return values.astype(dtype)


def _is_exact(values: NDArray[np.generic], dtype: np.dtype[np.generic]) -> NDArray[np.bool_]:
    """Return which whole numbers a type of floats holds: those of few enough significant bits."""
    bits = values.astype(np.uint64)
    size = np.where(values < 0, np.uint64(0) - bits, bits)  # type: ignore[operator]
    lowest_bit = np.maximum(size & (np.uint64(0) - size), np.uint64(1))
    significant = size // lowest_bit
    limit = 2 ** (int(np.finfo(dtype).nmant) + 1)  # type: ignore[type-var]
    exact: NDArray[np.bool_] = significant < np.uint64(limit)
    return exact


def _bounds(dtype: np.dtype[np.generic]) -> Tuple[int, int]:
    found = np.iinfo(dtype)  # type: ignore[type-var]
    return int(found.min), int(found.max)


def _read(
    archive: zipfile.ZipFile, member: str, path: Path, limit_bytes: int
) -> NDArray[np.generic]:
    info = archive.getinfo(member)
    if info.file_size > limit_bytes:
        raise _wrong(path, f"unpacks to more than {limit_bytes} bytes")
    with archive.open(info) as opened:
        file = cast(BinaryIO, opened)
        shape, fortran, dtype = _header(file, info, path)
        count = math.prod(shape)
        data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise _wrong(path, f"{member} is shorter than its header says")
    flat = np.frombuffer(data, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(
    file: BinaryIO, info: zipfile.ZipInfo, path: Path
) -> Tuple[Tuple[int, ...], bool, np.dtype[np.generic]]:
    """Shape, whether columns come first, and type of the array that begins here."""
    member = info.filename
    ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MAX_RATIO}.get(info.compress_type)
    too_large = ratio is not None and info.file_size > info.compress_size * ratio
    if too_large or info.compress_size > path.stat().st_size:
        raise _wrong(path, f"{member} is shorter than the archive's directory says")
    try:
        version = np.lib.format.read_magic(file)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(file, max_header_size=MAX_HEADER)
    except (ValueError, SyntaxError, TypeError) as error:
        reason = str(error).partition("\n")[0]  # what follows is advice to NumPy's callers
        raise _wrong(path, f"{member} is not an array: {reason}") from error
    if dtype.hasobject:
        raise _wrong(path, f"{member} holds Python objects, which are never loaded")
    stated_bytes = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or stated_bytes > info.file_size:
        raise _wrong(path, f"{member} is shorter than its header says")
    return shape, fortran, dtype


def _wrong(path: Path, reason: str) -> RunFailed:
    return RunFailed("user_input", f"dataset {path.name!r} {reason}")
