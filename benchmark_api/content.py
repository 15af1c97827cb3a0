"""What the content of files shows at submission: runs that would fail on any board for certain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from edgeyard.devices.runner import training
from edgeyard.devices.runner.arrays import headers_of, read_arrays
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.feeds import given_problems, resolve_shape
from edgeyard.devices.runner.file_kind import HEAD_BYTES, TFLITE, foreign_kind, mismatch
from edgeyard.devices.runner.inference import (
    batch_size_for,
    check_array,
    grouped_names,
    refuse_nan,
)
from edgeyard.devices.runner.model_archive import is_archive, open_archive
from edgeyard.devices.runner.onnx_file import inputs_of, inspect
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError, InvalidInput, NotFound, RunFailed, Unavailable
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.ports import FileStore

MAX_VALUES_BYTES = 64 * 2**20
"""Of arrays whose values are looked at, too; larger ones the board looks at."""

_REMEMBERED = 256
_MAX_FIELDS = 300_000
"""Of an ONNX file that is looked into here; a larger network is left to the board."""

_MAX_CONFIG_BYTES = 2**20

Headers = dict[str, tuple[tuple[int, ...], "np.dtype[np.generic]"]]
T = TypeVar("T")


class ContentChecks:
    """Looks into the files of submissions; what a content shows is remembered by its hash.

    Thread-safe. Nothing is refused because a file can't be read here or is of an engine that is
    not known here: the board decides.
    """

    def __init__(self, files: FileStore) -> None:
        """Look into the files of this store."""
        self._files = files
        self._head = lru_cache(_REMEMBERED)(self._read_head)
        self._inputs = lru_cache(_REMEMBERED)(self._read_inputs)
        self._headers = lru_cache(_REMEMBERED)(self._read_headers)
        self._archive = lru_cache(_REMEMBERED)(self._read_archive)
        self._outside = lru_cache(_REMEMBERED)(self._find_outside)
        self._nan = lru_cache(_REMEMBERED)(self._find_nan)

    def check(
        self,
        asked: JobDescription,
        files: Sequence[BenchmarkFile],
        max_ram_bytes: int | None = None,
    ) -> None:
        """Refuse what fails for certain.

        Args:
            asked: The description.
            files: Its files; those that are fetched later are not looked into.
            max_ram_bytes: Of the boards that may run it; None: not known.

        Raises:
            InvalidInput: Naming the field, what is wrong, and what would be accepted.
        """
        model = _first(files, FileRole.MODEL)
        found: list[FieldError] = []
        if model is not None and model.sha256 is not None:
            found += self._model_problems(asked, model, max_ram_bytes)
            if not found and asked.runtime == "ort":
                found += self._input_problems(asked, model.sha256, files)
        config = _first(files, FileRole.ODT_CONFIG)
        if config is not None and config.sha256 is not None:
            found += self._config_problems(config.sha256)
        if found:
            raise InvalidInput(found)

    def input_names(
        self, asked: JobDescription, files: Sequence[BenchmarkFile]
    ) -> frozenset[str] | None:
        """Return the names of the model's inputs; None if they are not known before a run."""
        model = _first(files, FileRole.MODEL)
        if asked.runtime != "ort" or model is None or model.sha256 is None:
            return None
        return frozenset(spec.name for spec in self._inputs(model.sha256)) or None

    def known(self, asked: JobDescription, files: Sequence[BenchmarkFile]) -> Mapping[str, object]:
        """Return the parts of a report that the files show before a run.

        Args:
            asked: A description that `check` accepts.
            files: Its files.
        """
        if asked.benchmark_type is BenchmarkType.TYPE2:
            return {"accuracy": {"batch_size": asked.parameters.get("batch_size")}}
        model = _first(files, FileRole.MODEL)
        on_random_data = asked.benchmark_type is BenchmarkType.TYPE1 and not asked.keep_outputs
        if asked.runtime != "ort" or not on_random_data or model is None or model.sha256 is None:
            return {}
        inputs = self._inputs(model.sha256)
        if not inputs or any(not spec.dtype for spec in inputs):
            return {}
        return {
            "feeds": {
                spec.name: {
                    "shape": list(resolve_shape(spec, asked.input.get(spec.name, {}).get("shape"))),
                    "dtype": spec.dtype,
                }
                for spec in inputs
            }
        }

    def _model_problems(
        self, asked: JobDescription, model: BenchmarkFile, most: int | None
    ) -> list[FieldError]:
        assert model.sha256 is not None
        size = model.size_bytes or 0
        if most is not None and size > most:
            return [
                FieldError(
                    "/model",
                    f"has {size_text(size)}, more than the memory of any board that may run it",
                    f"a model of less than {size_text(most)}, or another target",
                )
            ]
        head = self._head(model.sha256)
        if asked.runtime not in ("ort", "tflite") or not head:
            return []
        is_tflite = foreign_kind(head) == TFLITE
        if asked.runtime == "tflite" and is_tflite:
            return []
        if asked.runtime == "ort" and head.startswith(b"PK\x03\x04"):
            problem = self._archive(model.sha256)
            accepted = "an ONNX file, or an uncompressed zip of one with its data files"
            return [FieldError("/model", problem, accepted)] if problem else []
        if asked.runtime == "ort" and (problem := self._outside(model.sha256)):
            return [FieldError("/model", problem, "a folder or zip with the data files")]
        expected = "an ONNX file" if asked.runtime == "ort" else "a TensorFlow Lite model"
        if sentence := mismatch("the model", expected, head):
            accepted = f"{expected}, or the runtime tflite" if is_tflite else expected
            return [FieldError("/model", sentence.removeprefix("the model "), accepted)]
        if asked.runtime == "tflite" and self._inputs(model.sha256):
            accepted = f"{expected}, or the runtime ort"
            return [FieldError("/model", f"is an ONNX file, not {expected}", accepted)]
        return []

    def _input_problems(
        self, asked: JobDescription, model: str, files: Sequence[BenchmarkFile]
    ) -> list[FieldError]:
        inputs = self._inputs(model)
        if not inputs or any(not spec.dtype for spec in inputs):
            return []
        kind = asked.benchmark_type
        if kind is BenchmarkType.TYPE1 and not asked.keep_outputs:
            return [
                FieldError(f"/input/{name}", reason, accepted)
                for name, reason, accepted in given_problems(inputs, asked.input)
            ]
        datasets = [each for each in files if each.role is FileRole.DATASET]
        if len(datasets) != 1 or datasets[0].sha256 is None:
            return []
        headers = self._headers(datasets[0].sha256)
        if not headers:
            return []
        if isinstance(headers, str):
            own = kind is BenchmarkType.TYPE1
            return [FieldError("/dataset", headers, _NPZ)] if own else []
        if kind is BenchmarkType.TYPE1:
            return self._own_input_problems(asked, inputs, headers, datasets[0].sha256)
        if kind is BenchmarkType.TYPE2:
            return _dataset_problems(inputs, headers)
        return [_lacks(name, headers) for name in ("x", "y") if name not in headers]

    def _own_input_problems(
        self,
        asked: JobDescription,
        inputs: Sequence[TensorSpec],
        headers: Headers,
        dataset: str,
    ) -> list[FieldError]:
        try:
            for arrays in grouped_names(list(headers), [spec.name for spec in inputs]).values():
                for spec in inputs:
                    check_array(spec, *headers[arrays[spec.name]], any_rows=True)
                shapes = {spec.name: headers[arrays[spec.name]][0] for spec in inputs}
                if batch_size_for(inputs, shapes, asked.parameters.get("batch_size")) is None:
                    for spec in inputs:
                        check_array(spec, *headers[arrays[spec.name]], any_rows=False)
        except RunFailed as error:
            where = "/parameters/batch_size" if "batch_size:" in error.sentence else "/dataset"
            takes = ", ".join(f"{spec.name} {_shape(spec)} {spec.dtype}" for spec in inputs)
            return [FieldError(where, error.sentence, f"inputs: {takes}")]
        if nan := self._nan(dataset):
            return [FieldError("/dataset", nan, "numbers")]
        return []

    def _config_problems(self, sha256: str) -> list[FieldError]:
        def read(path: Path) -> list[FieldError]:
            if path.stat().st_size > _MAX_CONFIG_BYTES:
                return []
            try:
                training.read_config(None, path)
            except RunFailed as error:
                keys = "an object of " + ", ".join(training.KEYS)
                return [FieldError("/odt_config", error.sentence, keys)]
            return []

        return self._of(sha256, read, [])

    def _of(self, sha256: str, read: Callable[[Path], T], otherwise: T) -> T:
        """What a content shows; ``otherwise`` where it can't be read here now."""
        try:
            return read(self._files.path(sha256))
        except (NotFound, Unavailable, OSError):
            return otherwise

    def _read_head(self, sha256: str) -> bytes:
        def read(path: Path) -> bytes:
            with path.open("rb") as file:
                return file.read(HEAD_BYTES)

        return self._of(sha256, read, b"")

    def _read_archive(self, sha256: str) -> str:
        """What is wrong with an archive of a model and its data files; "" where nothing is."""

        def read(path: Path) -> str:
            archive = open_archive(path)
            inspect(archive.model, archive.data, max_fields=_MAX_FIELDS)
            return ""

        try:
            return self._of(sha256, read, "")
        except RunFailed as error:
            return "" if f"{_MAX_FIELDS} fields" in error.sentence else error.sentence

    def _find_outside(self, sha256: str) -> str:
        """Which weights of an ONNX file lie outside of it, in words; "" where none do."""

        def read(path: Path) -> str:
            inspect(path, max_fields=_MAX_FIELDS)
            return ""

        try:
            return self._of(sha256, read, "")
        except RunFailed as error:  # what is no ONNX file may be of another kind
            return error.sentence if "outside the ONNX file" in error.sentence else ""

    def _read_inputs(self, sha256: str) -> tuple[TensorSpec, ...]:
        """Inputs of an ONNX file; none where it is no such file."""

        def read(path: Path) -> tuple[TensorSpec, ...]:
            model = open_archive(path).model if is_archive(path) else path
            return inputs_of(model, max_fields=_MAX_FIELDS)

        try:
            return self._of(sha256, read, ())
        except RunFailed:
            return ()

    def _read_headers(self, sha256: str) -> Headers | str:
        """Shapes and types of the arrays of a dataset, or why it is no ``.npz``; none: unknown."""
        unreadable: Headers | str = {}
        try:
            return self._of(sha256, lambda path: dict(headers_of(path)), unreadable)
        except RunFailed as error:
            return error.sentence

    def _find_nan(self, sha256: str) -> str:
        """Which array of a small archive holds NaN, in words; "" where none does."""

        def read(path: Path) -> str:
            names = [name for name, (_, dtype) in headers_of(path).items() if dtype.kind == "f"]
            for name, values in read_arrays(path, names, limit_bytes=MAX_VALUES_BYTES).items():
                try:
                    refuse_nan(values, name)
                except RunFailed as error:
                    return error.sentence
            return ""

        try:
            return self._of(sha256, read, "")
        except RunFailed:  # too large, or damaged: the board says so
            return ""


_NPZ = "an .npz with an array for each input of the model"


def _dataset_problems(inputs: Sequence[TensorSpec], headers: Headers) -> list[FieldError]:
    """What does not fit in a TYPE2 dataset of arrays."""
    names = {"x": inputs[0]} if len(inputs) == 1 else {spec.name: spec for spec in inputs}
    found = [_lacks(name, headers) for name in (*names, "y") if name not in headers]
    if found:
        return found
    rows = {name: shape[0] if shape else 0 for name, (shape, _) in headers.items()}
    for name, spec in names.items():
        shape, _ = headers[name]
        if rows[name] != rows["y"]:
            reason = f"has {rows[name]} rows of {name!r} and {rows['y']} of 'y'"
            found.append(FieldError("/dataset", reason, "as many rows of each"))
        fits = len(shape) == len(spec.shape) and all(
            not isinstance(want, int) or want == have
            for want, have in zip(spec.shape[1:], shape[1:], strict=True)
        )
        if not fits:
            reason = (
                f"has {name!r} of shape {list(shape)}; input {spec.name!r} takes {_shape(spec)}"
            )
            found.append(FieldError("/dataset", reason, f"rows of {_shape(spec, first=1)}"))
    return found


def _lacks(name: str, headers: Headers) -> FieldError:
    has = ", ".join(headers) or "none"
    return FieldError("/dataset", f"has no array {name!r}; it holds {has}", f"an array {name!r}")


def _shape(spec: TensorSpec, first: int = 0) -> str:
    sizes = ("?" if size is None else str(size) for size in spec.shape[first:])
    return "[" + ", ".join(sizes) + "]"


def _first(files: Sequence[BenchmarkFile], role: FileRole) -> BenchmarkFile | None:
    return next((file for file in files if file.role is role), None)
