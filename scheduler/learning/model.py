"""A model that was checked, in one session of onnxruntime, answering for many pairs at once."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, reason_of
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.learning.check import CHUNK, MAX_FILE_BYTES, CheckedModel, check_model
from edgeyard.scheduler.learning.features import Encoder
from edgeyard.scheduler.learning.manifest import MAX_BYTES, Manifest, parse_manifest

if TYPE_CHECKING:
    import onnxruntime

THREADS = 1
"""Threads of a session: a cycle uses one thread, and the other cores are for API and repair."""

QUEUE_POLICY = "queue_policy"
"""``kind`` of manifests that are read by `edgeyard.scheduler.learning.queue_model`."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model ready to be asked; `predict` may be called on any thread."""

    manifest: Manifest
    checked: CheckedModel
    _session: onnxruntime.InferenceSession

    def predict(
        self, batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return the model's numbers.

        Args:
            rows: Classes, shape (pairs,).
            boards: Boards, shape (pairs,).

        Returns:
            Shape (pairs, outputs), finite.

        Raises:
            ValueError: It gave something else.
        """
        found = np.empty((len(rows), self.manifest.outputs), dtype=np.float32)
        start = 0
        for x in Encoder(batch, rows, boards, self.manifest.inputs).chunks(CHUNK):
            y = self.run(x)
            found[start : start + len(x)] = y
            start += len(x)
        return found

    def run(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the model's numbers for normalised inputs, shape (pairs, inputs).

        Raises:
            ValueError: It gave another shape than (pairs, outputs), NaN or infinity.
        """
        (found,) = self._session.run([self.checked.output_name], {self.checked.input_name: x})
        if found.shape != (len(x), self.manifest.outputs):
            raise ValueError(f"model {self.manifest.name} gave shape {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError(f"model {self.manifest.name} gave NaN or infinity")
        return np.asarray(found, dtype=np.float32)


def any_cause_chance(by_cause: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the chance that any of several causes strikes, shape (pairs,).

    Args:
        by_cause: What a model of failures gave, shape (pairs, causes).
    """
    return np.asarray(1.0 - np.prod(1.0 - np.clip(by_cause, 0.0, 1.0), axis=1), np.float64)


def load_model(manifest_path: Path) -> Model:
    """Read, check and load a manifest with its ONNX file.

    Raises:
        ConfigError: What is wrong, with the file.
    """
    manifest = read_manifest(manifest_path)
    checked, session = load_onnx(
        manifest_path, manifest.onnx, manifest.sha256, len(manifest.inputs), manifest.outputs
    )
    return Model(manifest, checked, session)


def model_of_content(manifest: str, content: bytes, source: str) -> Model:
    """Check and load a model whose manifest and file are at hand.

    Args:
        manifest: Its text.
        content: Of its ONNX file.
        source: Whose they are, for messages.

    Raises:
        ConfigError: What is wrong.
    """
    parsed = parse_manifest(manifest, source=source)
    found = hashlib.sha256(content).hexdigest()
    if found != parsed.sha256:
        raise ConfigError(
            [
                f"{source}: its file's SHA-256 is {found}, but its manifest states "
                f"{parsed.sha256}: the file was changed or replaced"
            ]
        )
    try:
        checked = check_model(content, len(parsed.inputs), parsed.outputs)
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error
    return Model(parsed, checked, open_session(content))


def load_onnx(
    manifest_path: Path, onnx: str, sha256: str, inputs: int, outputs: int
) -> tuple[CheckedModel, onnxruntime.InferenceSession]:
    """Read, check and load the ONNX file of a manifest.

    Args:
        manifest_path: Of the manifest, in whose folder the file is.
        onnx: Plain name of the file.
        sha256: That the manifest states.
        inputs: Columns of the input.
        outputs: Columns of the output.

    Raises:
        ConfigError: What is wrong, with the file.
    """
    path = manifest_path.with_name(onnx)
    data = read_limited(path, MAX_FILE_BYTES)
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ConfigError(
            [
                f"{path}: its SHA-256 is {found}, but {manifest_path.name} states {sha256}: "
                "the file was changed or replaced"
            ]
        )
    try:
        checked = check_model(data, inputs, outputs)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from error
    return checked, open_session(data)


def read_manifest(path: Path) -> Manifest:
    """Return a manifest from its file.

    Raises:
        ConfigError: Every mistake with its place.
    """
    try:
        text = read_limited(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: {error}"]) from error
    return parse_manifest(text, source=str(path))


def manifests(folder: Path) -> Mapping[str, Path]:
    """Return the manifests of scorers in a folder, by the scorers' names.

    Raises:
        ConfigError: One can't be read, or two have one name.
    """
    found: dict[str, Path] = {}
    problems: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        if is_queue_manifest(path):
            continue
        try:
            name = read_manifest(path).name
        except ConfigError as error:
            problems += error.problems
            continue
        if name in found:
            problems.append(f"{path}: {found[name].name} is called {name!r} too")
        found[name] = path
    if problems:
        raise ConfigError(problems)
    return found


def is_queue_manifest(path: Path) -> bool:
    """Return whether a manifest is one of a queue policy, not of a scorer."""
    try:
        data = tomllib.loads(read_limited(path, MAX_BYTES).decode("utf-8"))
    except (ConfigError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return data.get("kind") == QUEUE_POLICY


def open_session(data: bytes) -> onnxruntime.InferenceSession:
    """Return a session of a model that was checked, on one thread."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes files, and reports to its maker
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = THREADS
    options.log_severity_level = 4
    # Memory patterns and arenas keep the largest batch's memory for ever.
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(
        data, sess_options=options, providers=["CPUExecutionProvider"]
    )


def read_limited(path: Path, limit: int) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigError: It can't be read, or has more bytes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ConfigError([f"{path}: {reason_of(error)}"]) from error
    if len(data) > limit:
        raise ConfigError([f"{path}: it has more than {limit} bytes"])
    return data
