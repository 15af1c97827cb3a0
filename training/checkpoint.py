"""Checkpoints, from which a training goes on: arrays by name, and a header for all other values."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import InvalidInput


def save_checkpoint(
    path: Path, header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a checkpoint, which replaces the file as a whole or not at all.

    Args:
        path: Of the file.
        header: What JSON can hold.
        arrays: None of them is called ``header``.
    """
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]  # its stub takes allow_pickle for a column
    with open_atomically(path, sync=True) as file:
        file.write(buffer.getvalue())


@contextmanager
def loaded_checkpoint(
    path: Path, flag: str = "--out", accepted: str = "another folder"
) -> Iterator[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Yield the header and the arrays, and report what is missing or wrong in them as the file's.

    Args:
        path: Of the file.
        flag: Flag or argument that names the training.
        accepted: What would be accepted instead.

    Raises:
        InvalidInput: It is no checkpoint of the training that reads it.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file.items())
        header = json.loads(str(arrays.pop("header")))
        yield header, arrays
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput.at(
            flag, f"{path} is not a checkpoint of a training: {error}", accepted
        ) from error
