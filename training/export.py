"""Trained functions as the files that the scheduler loads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.atomic_files import open_atomically
from edgeyard.scheduler.kernel.queue_inputs import INPUTS, NAMES
from edgeyard.scheduler.learning.onnx_file import onnx_file
from edgeyard.scheduler.learning.queue_model import QueueManifest


def export_queue(
    folder: Path, name: str, weights: NDArray[np.float64], hidden: int, trained_on: str
) -> Path:
    """Write ``NAME.onnx`` and then its manifest ``NAME.toml``; return the manifest's path.

    Args:
        folder: Must exist.
        name: By which policies call it: a-z, 0-9 and _.
        weights: As `edgeyard.training.windows.score` reads them.
        hidden: Units.
        trained_on: For people.
    """
    manifest, data = queue_model(name, weights, hidden, trained_on)
    return _write(folder, name, data, manifest.text)


def queue_model(
    name: str, weights: NDArray[np.float64], hidden: int, trained_on: str
) -> tuple[QueueManifest, bytes]:
    """Return the manifest and the ONNX file; see `export_queue` for arguments."""
    layer = weights[: (INPUTS + 1) * hidden].reshape(hidden, INPUTS + 1)
    rest = weights[(INPUTS + 1) * hidden :]
    data = _queue_onnx(layer[:, :INPUTS], layer[:, INPUTS], rest[:hidden], rest[hidden:])
    manifest = QueueManifest(
        name=name,
        onnx=f"{name}.onnx",
        sha256=hashlib.sha256(data).hexdigest(),
        inputs=NAMES,
        trained_on=trained_on,
    )
    return manifest, data


def _queue_onnx(
    weights: NDArray[np.float64], biases: NDArray[np.float64], out: NDArray[np.float64],
    linear: NDArray[np.float64],
) -> bytes:  # fmt: skip
    """Return an ONNX file of a dense layer with softsign and a linear way past it.

    Args:
        weights: Shape (hidden, inputs).
        biases: Shape (hidden,).
        out: Shape (hidden,).
        linear: Shape (inputs,).
    """
    return onnx_file(
        [
            ("MatMul", ["x", "W"], "xW"),
            ("Add", ["xW", "b"], "z"),
            ("Abs", ["z"], "abs"),
            ("Add", ["abs", "one"], "below"),
            ("Div", ["z", "below"], "h"),
            ("MatMul", ["h", "V"], "hV"),
            ("MatMul", ["x", "L"], "xL"),
            ("Add", ["hV", "xL"], "y"),
        ],
        {"W": weights.T, "b": biases, "one": np.ones(1), "V": out[:, None], "L": linear[:, None]},
        inputs=weights.shape[1],
    )


def _write(folder: Path, name: str, data: bytes, manifest: str) -> Path:
    for path, content in (
        (folder / f"{name}.onnx", data),
        (folder / f"{name}.toml", manifest.encode()),
    ):
        with open_atomically(path) as file:
            file.write(content)
    return folder / f"{name}.toml"
