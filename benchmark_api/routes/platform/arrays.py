"""Raw arrays, as the client uploads them for a training, as one dataset of ours."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, cast

import numpy as np

from edgeyard.benchmark_api.services import Services
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.model.files import StoredFile, UserFile
from edgeyard.scheduler.ports import FileWriter

MAX_DIMENSIONS = 16
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class _RawArray:
    """Rows of one file: each has this shape and type."""

    file: UserFile
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def rows(self) -> int:
        return self.file.size_bytes // (math.prod(self.shape) * self.dtype.itemsize)


class _Sink(io.RawIOBase):
    """A file writer as what `zipfile` writes to, front to back."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(cast(bytes, data))
        self._writer.write(content)
        return len(content)


def combined(
    services: Services, sections: Mapping[str, Mapping[str, object]], found: Mapping[str, UserFile]
) -> StoredFile:
    """Store the four files of a training as one ``.npz``: ``x``, ``y``, ``x_test``, ``y_test``.

    Args:
        services: Of the app.
        sections: ``input`` and ``output`` of the configuration: shape, dtype and files.
        found: The uploaded files, by reference.

    Raises:
        InvalidInput: A file does not hold whole rows, or inputs and outputs differ in number.
        TooLarge: All four together are over the limit of a dataset.
    """
    arrays = {
        name: _array(sections[section], section, key, found)
        for name, section, key in (
            ("x", "input", "train_file"),
            ("y", "output", "train_file"),
            ("x_test", "input", "test_file"),
            ("y_test", "output", "test_file"),
        )
    }
    for x, y, key in (("x", "y", "train_file"), ("x_test", "y_test", "test_file")):
        if arrays[x].rows != arrays[y].rows:
            raise InvalidInput.at(
                f"/config/output/{key}",
                f"has {arrays[y].rows} rows, and input/{key} has {arrays[x].rows}",
                "as many outputs as inputs",
            )
    writer = services.files.writer(services.settings.dataset_limit_bytes)
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _Sink(writer)), "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write(services, array, name, member)
        return writer.commit()
    except BaseException:
        writer.abort()
        raise


def _write(services: Services, array: _RawArray, name: str, member: IO[bytes]) -> None:
    shape = (array.rows, *array.shape)
    # class numbers are one number per row
    if name.startswith("y") and array.dtype.kind in "iu" and math.prod(array.shape) == 1:
        shape = (array.rows,)
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(member, header)
    with services.files.path(array.file.sha256).open("rb") as content:
        while chunk := content.read(_CHUNK):
            member.write(chunk)


def _array(
    section: Mapping[str, object], where: str, key: str, found: Mapping[str, UserFile]
) -> _RawArray:
    pointer = f"/config/{where}"
    shape, name, reference = section.get("shape"), section.get("dtype"), section.get(key)
    if not isinstance(reference, str) or reference not in found:
        raise InvalidInput.at(
            f"{pointer}/{key}", "is not a dataset that you uploaded", "its reference"
        )
    given = shape if isinstance(shape, list) else [None]
    sizes = [each for each in given if type(each) is int and each > 0]
    if len(sizes) != len(given) or len(sizes) > MAX_DIMENSIONS or math.prod(sizes) > 2**40:
        raise InvalidInput.at(
            f"{pointer}/shape",
            "is not the shape of one row",
            "whole numbers above 0, without the batch",
        )
    dtype = _dtype(name, pointer)
    file = found[reference]
    row_bytes = math.prod(sizes) * dtype.itemsize
    if file.size_bytes % row_bytes:
        raise InvalidInput(
            [
                FieldError(
                    f"{pointer}/{key}",
                    f"has {file.size_bytes} bytes, and a row of shape {sizes} and type {dtype} "
                    f"has {row_bytes}",
                    "a file of whole rows, as numpy's tofile() writes it",
                )
            ]
        )
    return _RawArray(file, tuple(sizes), dtype)


def _dtype(name: object, pointer: str) -> np.dtype[np.generic]:
    try:
        dtype = np.dtype(name) if isinstance(name, str) and len(name) <= 16 else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in "biuf" or dtype.shape or dtype.itemsize > 8:
        raise InvalidInput.at(f"{pointer}/dtype", "is not a numeric type", "e.g. float32 or int64")
    if isinstance(name, str) and name[0] in ">!":
        raise InvalidInput.at(
            f"{pointer}/dtype", f"{name} is big-endian", f"little-endian rows, as {dtype.name}"
        )
    return dtype.newbyteorder("<")
