"""Models and datasets that are in memory, as the files that are uploaded."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from edgeyard.errors import InvalidInput


@runtime_checkable
class ModelProto(Protocol):
    """A model of the package ``onnx``, or anything that is serialised like it."""

    def SerializeToString(self) -> bytes:
        """Return the content of the model's file."""
        ...


InMemory = bytes | ModelProto
"""The content of a model's file, or an ``onnx.ModelProto``."""

_TFLITE = b"TFL3"
"""Identifier in the bytes 4 to 8 of a LiteRT model."""


@contextmanager
def as_files(description: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Give a description whose models and datasets are files, for as long as they are needed.

    Models may be bytes or `ModelProto`, ``dataset`` a mapping of names to arrays. Their files are
    named by their content, so that different ones have different names.

    Raises:
        InvalidInput: A model is empty or too large for one file; an array is not of numbers.
    """
    with tempfile.TemporaryDirectory(prefix="edgeyard-") as name:
        folder = Path(name)
        ready = dict(description)
        model = ready.get("model")
        if isinstance(model, Sequence) and not isinstance(model, str | bytes):
            ready["model"] = [_model_file(one, folder) for one in model]
        else:
            ready["model"] = _model_file(model, folder)
        if isinstance(dataset := ready.get("dataset"), Mapping):
            ready["dataset"] = _dataset_file(dataset, folder)
        yield ready


def _model_file(model: object, folder: Path) -> object:
    if isinstance(model, ModelProto):
        try:
            model = model.SerializeToString()
        except ValueError as error:  # protobuf: over 2 GiB
            raise InvalidInput.at("/model", f"cannot be one file: {error}", "a path") from None
    if not isinstance(model, bytes):
        return model
    if not model:
        raise InvalidInput.at("/model", "is empty", "the content of a model's file")
    suffix = ".tflite" if model[4:8] == _TFLITE else ".onnx"
    path = folder / f"model-{hashlib.sha256(model).hexdigest()[:8]}{suffix}"
    path.write_bytes(model)
    return path


def _dataset_file(arrays: Mapping[str, Any], folder: Path) -> Path:
    import numpy as np

    from edgeyard.benchmark_api.sdk.inference import write_npz

    if not arrays:
        raise InvalidInput.at("/dataset", "has no arrays", "arrays by name, e.g. x and y")
    found: dict[str, Any] = {}
    digest = hashlib.sha256()
    for name, value in arrays.items():
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InvalidInput.at(f"/dataset/{name}", str(error), "an array") from None
        if array.dtype.kind not in "biufc":
            raise InvalidInput.at(
                f"/dataset/{name}", f"has the type {array.dtype}", "an array of numbers"
            )
        found[name] = array
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return write_npz(folder / f"dataset-{digest.hexdigest()[:8]}.npz", found)
