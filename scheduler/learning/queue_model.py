"""Learned queue policies: an ONNX file with a manifest that says ``kind = "queue_policy"``.

The model takes the inputs of `edgeyard.scheduler.kernel.queue_inputs`, one row per job, and
gives one number per job; the lowest comes first.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tomli_w
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.learning.check import CheckedModel
from edgeyard.scheduler.learning.manifest import MAX_BYTES
from edgeyard.scheduler.learning.model import (
    QUEUE_POLICY,
    is_queue_manifest,
    load_onnx,
    read_limited,
)

if TYPE_CHECKING:
    import onnxruntime

NAME = re.compile("[a-z][a-z0-9_]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.onnx")
_KEYS = ("kind", "name", "version", "inputs", "onnx", "sha256", "trained_on")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManifest:
    """What a manifest states.

    Attributes:
        name: By which policies call it.
        onnx: Plain name of the file in the manifest's folder.
        sha256: Of that file.
        inputs: Names of the columns, in order.
        trained_on: For people.
    """

    name: str
    onnx: str
    sha256: str
    inputs: tuple[str, ...]
    trained_on: str = ""

    @property
    def text(self) -> str:
        """TOML that `read_queue_manifest` reads back as the same."""
        return tomli_w.dumps(
            {
                "kind": QUEUE_POLICY,
                "name": self.name,
                "version": 1,
                "onnx": self.onnx,
                "sha256": self.sha256,
                "trained_on": self.trained_on,
                "inputs": list(self.inputs),
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class QueueModel:
    """A loaded model of a queue policy."""

    manifest: QueueManifest
    checked: CheckedModel
    _session: onnxruntime.InferenceSession

    def scores(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one number per job, the least comes first.

        Args:
            table: Shape (jobs, inputs).

        Raises:
            ValueError: The model gave something else.
        """
        given = {self.checked.input_name: table.astype(np.float32)}
        (found,) = self._session.run([self.checked.output_name], given)
        if found.shape != (len(table), 1) or not np.isfinite(found).all():
            raise ValueError(f"model {self.manifest.name} gave no finite number for each job")
        scores: NDArray[np.float64] = found[:, 0].astype(np.float64)
        return scores


def queue_manifests(folder: Path) -> Mapping[str, Path]:
    """Return the manifests of queue policies of a folder, by their names.

    Raises:
        ConfigError: One is wrong, or two have one name.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.toml")):
        if is_queue_manifest(path):
            name = read_queue_manifest(path).name
            if name in found:
                raise ConfigError([f"{path}: {found[name].name} is called {name!r} too"])
            found[name] = path
    return found


def read_queue_manifest(path: Path) -> QueueManifest:
    """Return a manifest from its file.

    Raises:
        ConfigError: Every mistake with its place.
    """
    try:
        data = tomllib.loads(read_limited(path, MAX_BYTES).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError([f"{path}: is not a TOML file: {error}"]) from error
    problems = [f"{path}: {key}: is unknown" for key in sorted(data.keys() - set(_KEYS))]
    patterns = (
        ("kind", re.compile(QUEUE_POLICY), f'"{QUEUE_POLICY}"'),
        ("name", NAME, "a name in lower case (a-z, 0-9, _)"),
        ("onnx", _FILE, "the plain name of an .onnx file in the manifest's folder"),
        ("sha256", re.compile("[0-9a-f]{64}"), "64 hexadecimal digits"),
    )
    for key, pattern, what in patterns:
        if not isinstance(data.get(key), str) or not pattern.fullmatch(data[key]):
            problems.append(f"{path}: {key}: is not {what}")
    if data.get("version") != 1:
        problems.append(f"{path}: version: is not 1")
    inputs = data.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(each, str) for each in inputs):
        problems.append(f"{path}: inputs: is not a list of names")
    if problems:
        raise ConfigError(problems)
    return QueueManifest(
        name=data["name"],
        onnx=data["onnx"],
        sha256=data["sha256"],
        inputs=tuple(data["inputs"]),
        trained_on=str(data.get("trained_on", "")),
    )


def load_queue_model(path: Path, names: Sequence[str]) -> QueueModel:
    """Read, check and load a manifest with its ONNX file.

    Args:
        path: Of the manifest.
        names: The inputs that there are.

    Raises:
        ConfigError: What is wrong, with the file.
    """
    manifest = read_queue_manifest(path)
    if manifest.inputs != tuple(names):
        raise ConfigError([f"{path}: inputs: are not {', '.join(names)}: train it again"])
    checked, session = load_onnx(path, manifest.onnx, manifest.sha256, len(names), 1)
    return QueueModel(manifest, checked, session)
