"""What the content of files shows at submission: runs that would fail on any board for certain.

Server and client check with the same code: the client before it sends anything.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from edgeyard.devices.runner import file_kind, training
from edgeyard.devices.runner.arrays import headers_of, read_arrays
from edgeyard.devices.runner.dataset import TRUTH, array_of_input, labels_of
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.feeds import (
    batch_size_problem,
    feed_bytes,
    given_problems,
    resolve_shape,
    value_range,
)
from edgeyard.devices.runner.file_kind import HEAD_BYTES, TFLITE, foreign_kind, mismatch
from edgeyard.devices.runner.genai_folder import (
    CONFIG,
    INPUTS,
    GenaiFolder,
    read_files,
    tokens_problem,
)
from edgeyard.devices.runner.generation_request import read_request
from edgeyard.devices.runner.inference import (
    check_array,
    checked_batch_size,
    grouped_names,
    input_of,
)
from edgeyard.devices.runner.metrics import CLASSIFICATION, classes_of, label_problem, truth_problem
from edgeyard.devices.runner.model_archive import (
    IR,
    ONNX,
    PARAM,
    ModelArchive,
    is_archive,
    open_archive,
    open_folder,
)
from edgeyard.devices.runner.ncnn_param import read_param
from edgeyard.devices.runner.onnx_file import class_numbers, inspect, interface_of, open_model
from edgeyard.devices.runner.openvino_ir import read_ir
from edgeyard.devices.runner.tflite_file import tflite_inputs
from edgeyard.devices.sizes import size_text
from edgeyard.errors import (
    EdgeyardError,
    FieldError,
    InvalidInput,
    NotFound,
    RunFailed,
    Unavailable,
)
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
    model_of,
)

TFLITE_IDENTIFIER = b"TFL3"
"""What the bytes 4 to 8 of a LiteRT model are."""

MAX_VALUES_BYTES = 64 * 2**20
"""Maximum size of arrays whose values are checked here; the board checks larger ones."""

_REMEMBERED = 256
_MAX_FIELDS = 300_000
"""Maximum fields of an ONNX file that is checked here; the board checks larger ones."""

_MAX_ELEMENTS = 1_000_000
_MAX_LAYERS = 50_000
_MAX_TEXT_BYTES = 16 * 2**20
"""Maximum sizes of an OpenVINO IR's XML and of an ncnn model's text that are checked here."""

_MAX_CONFIG_BYTES = 2**20
_ARCHIVE_HEAD = b"PK\x03\x04"

Header = tuple[tuple[int, ...], "np.dtype[np.generic]"]
Headers = dict[str, Header]
Interface = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]
"""Inputs and outputs of a model."""

T = TypeVar("T")


class Contents(Protocol):
    """Finds contents, for example a `FileStore`."""

    def path(self, sha256: str) -> Path:
        """Return a local path from which the content can be read.

        A client gives the folder of a model that it has not packed yet.

        Raises:
            NotFound: No such content is stored.
            Unavailable: The place where it is stored does not answer.
        """
        ...


class _Thread(threading.local):
    may_read = True


class UnseenContent(EdgeyardError):
    """This content has not been checked yet, and a unit of work may not wait for the check."""


class ContentChecks:
    """Looks into the files of submissions; what a content shows is remembered by its hash.

    Thread-safe. Nothing is refused because a file can't be read here or is of an engine that is
    not known here: the board decides.
    """

    def __init__(self, files: Contents) -> None:
        """Look into the files of this store."""
        self._files = files
        self._head = lru_cache(_REMEMBERED)(self._read_head)
        self._interface = lru_cache(_REMEMBERED)(self._read_interface)
        self._tflite_inputs = lru_cache(_REMEMBERED)(self._read_tflite_inputs)
        self._headers = lru_cache(_REMEMBERED)(self._read_headers)
        self._archive = lru_cache(_REMEMBERED)(self._read_archive)
        self._pair = lru_cache(_REMEMBERED)(self._read_pair)
        self._genai = lru_cache(_REMEMBERED)(self._read_genai)
        self._not_onnx = lru_cache(_REMEMBERED)(self._find_fault)
        self._values = lru_cache(_REMEMBERED)(self._find_wrong_value)
        self._tokens = lru_cache(_REMEMBERED)(self._find_wrong_tokens)
        self._class_numbers = lru_cache(_REMEMBERED)(self._read_class_numbers)
        self._labels = lru_cache(_REMEMBERED)(self._find_wrong_label)
        self._config = lru_cache(_REMEMBERED)(self._read_config)
        self._thread = _Thread()

    def check(
        self,
        description: JobDescription,
        files: Sequence[BenchmarkFile],
        max_ram_bytes: int | None = None,
    ) -> None:
        """Refuse what fails for certain.

        Args:
            files: Its files; of those whose content is not here yet only the size is compared.
            max_ram_bytes: Of the boards that may run it; None: not known.

        Raises:
            InvalidInput: Naming the field, what is wrong, and what would be accepted.
        """
        model = model_of(files)
        found: list[FieldError] = []
        if model is not None and (
            problem := size_problem(description, model.size_bytes or 0, max_ram_bytes)
        ):
            found.append(problem)
        elif model is not None and model.sha256 is not None:
            found += self._model_problems(description, model.sha256)
            found += [] if found else self._request_problems(description, model.sha256)
            if not found and description.runtime in _EXPECTED:
                found += self._input_problems(description, model.sha256, files, max_ram_bytes)
        config = _first(files, FileRole.ODT_CONFIG)
        if config is not None and config.sha256 is not None:
            found += self._config(config.sha256)
        if found:
            raise InvalidInput(found)

    @contextmanager
    def from_memory(self) -> Iterator[None]:
        """Let this thread read no content for the length of a ``with`` block.

        Its checks raise `UnseenContent` where they need content that is not remembered.
        """
        self._thread.may_read = False
        try:
            yield
        finally:
            self._thread.may_read = True

    def input_names(
        self, description: JobDescription, files: Sequence[BenchmarkFile]
    ) -> frozenset[str] | None:
        """Return the names of the model's inputs; None if they are not known before a run."""
        model = model_of(files)
        if model is None or model.sha256 is None or description.runtime not in _NAMED_IN_FILE:
            return None
        inputs = self._model_inputs(description, model.sha256)
        return frozenset(spec.name for spec in inputs) or None

    def inputs_of(self, sha256: str) -> frozenset[str]:
        """Return the names of the inputs of an ONNX model; none where it is no such file."""
        return frozenset(spec.name for spec in self._inputs(sha256))

    def interface(self, sha256: str) -> tuple[TensorSpec, ...]:
        """Return the inputs of an ONNX or TensorFlow Lite model; none where it is no such file."""
        return self._inputs(sha256) or self._tflite_inputs(sha256, "")

    def known(
        self, description: JobDescription, files: Sequence[BenchmarkFile]
    ) -> Mapping[str, object]:
        """Return the parts of a report that the files show before a run.

        Args:
            description: A description that `check` accepts.
        """
        if description.benchmark_type is BenchmarkType.TYPE2:
            return {"accuracy": {"batch_size": description.parameters.get("batch_size")}}
        model = model_of(files)
        on_random_data = (
            description.benchmark_type is BenchmarkType.TYPE1 and not description.keep_outputs
        )
        if (
            description.runtime not in _NAMED_IN_FILE
            or not on_random_data
            or model is None
            or model.sha256 is None
        ):
            return {}
        inputs = self._model_inputs(description, model.sha256)
        if not inputs or any(not spec.dtype for spec in inputs):
            return {}
        return {
            "feeds": {
                spec.name: {
                    "shape": list(
                        resolve_shape(
                            spec,
                            description.input.get(spec.name, {}).get("shape"),
                            description.parameters.get("batch_size"),
                        )
                    ),
                    "dtype": spec.dtype,
                }
                for spec in inputs
            }
        }

    def _model_problems(self, description: JobDescription, model: str) -> list[FieldError]:
        head = self._head(model)
        if not head:
            return []
        of_engine = {
            "ort": self._onnx_problems,
            "tflite": self._tflite_problems,
            "openvino": self._openvino_problems,
            "ncnn": self._ncnn_problems,
            "ort-genai": self._genai_problems,
        }.get(description.runtime)
        return [] if of_engine is None else of_engine(model, head)

    def _tflite_problems(self, model: str, head: bytes) -> list[FieldError]:
        expected = _EXPECTED["tflite"]
        if head[4:8] == TFLITE_IDENTIFIER:
            return []
        reason = f"is not {expected}: its identifier {TFLITE_IDENTIFIER.decode()} is missing"
        return self._another_kind(model, head, "tflite") or [FieldError("/model", reason, expected)]

    def _onnx_problems(self, model: str, head: bytes) -> list[FieldError]:
        accepted = _EXPECTED["ort"]
        if head.startswith(_ARCHIVE_HEAD):
            if found := self._another_kind(model, head, "ort"):
                return found
            reason = self._archive(model)
            accepted = "an ONNX file, or an uncompressed zip of one with its data files"
        else:
            reason = self._not_onnx(model)
            if "outside the ONNX file" in reason:
                accepted = "a folder or zip with the data files"
            elif reason and (found := self._another_kind(model, head, "ort")):
                return found
        return _of_model(reason, accepted)

    def _openvino_problems(self, model: str, head: bytes) -> list[FieldError]:
        accepted = _EXPECTED["openvino"]
        if found := self._another_kind(model, head, "openvino"):
            return found
        if head.startswith(_ARCHIVE_HEAD) or foreign_kind(head) == file_kind.IR:
            reason = self._pair_fault(model, IR)
            accepted = "a folder or an uncompressed zip of the .xml and its .bin"
            if reason and self._inputs(model):
                reason = "has its weights in data files, which engine openvino does not take"
                accepted = "an ONNX file with its weights inside, or the runtime ort"
        else:
            reason = self._not_onnx(model)
        return _of_model(reason, accepted)

    def _ncnn_problems(self, model: str, head: bytes) -> list[FieldError]:
        accepted = _EXPECTED["ncnn"]
        if found := self._another_kind(model, head, "ncnn"):
            return found
        if head.startswith(_ARCHIVE_HEAD) or foreign_kind(head) == file_kind.PARAM:
            reason = self._pair_fault(model, PARAM)
        else:
            reason = "is no archive of a .param and its .bin"
        return _of_model(reason, accepted)

    def _genai_problems(self, model: str, head: bytes) -> list[FieldError]:
        accepted = _EXPECTED["ort-genai"]
        if found := self._another_kind(model, head, "ort-genai"):
            return found
        if not head.startswith(_ARCHIVE_HEAD):
            return _of_model("is no archive of a folder", accepted)
        folder = self._genai(model)
        return _of_model(folder, accepted) if isinstance(folder, str) else []

    def _request_problems(self, description: JobDescription, model: str) -> list[FieldError]:
        """Return why a language model can't take the request, if its folder states that."""
        if description.benchmark_type is not BenchmarkType.GENAI:
            return []
        folder = self._language_model(description, model)
        if folder is None:
            return []
        problem = read_request(description.parameters).problem(
            folder.context_length, folder.vocabulary, has_tokenizer=folder.has_tokenizer
        )
        name, _, reason = problem.partition(": ")
        accepted = (
            f"prompt and output of at most {folder.context_length} tokens together, with ids from "
            f"0 to {folder.vocabulary - 1}"
        )
        return [FieldError(f"/{name}", reason, accepted)] if problem else []

    def _language_model(self, description: JobDescription, model: str) -> GenaiFolder | None:
        """Return what a language model's folder states; None where that is not known."""
        folder = self._genai(model) if description.runtime == "ort-genai" else None
        return folder if isinstance(folder, GenaiFolder) else None

    def _another_kind(self, model: str, head: bytes, runtime: str) -> list[FieldError]:
        """Return what is wrong with a file of a known kind that an engine does not take."""
        expected = _EXPECTED[runtime]
        kind = foreign_kind(head)
        if head.startswith(_ARCHIVE_HEAD):
            pairs = ((IR, file_kind.IR), (PARAM, file_kind.PARAM))
            packed = next((of for suffix, of in pairs if self._pair_inputs(model, suffix)), None)
            if packed is None and isinstance(self._genai(model), GenaiFolder):
                packed = file_kind.GENAI
            if packed is not None:
                kind = packed
            elif runtime != "tflite":  # an archive that it takes, or that it says more about
                return []
        engines = [name for name, kinds in _TAKES.items() if kind in kinds]
        if kind is None and self._inputs(model):
            kind, engines = "an ONNX file", ["ort", "openvino"]
        if kind is None or runtime in engines:
            return []
        if engines:
            accepted = f"{expected}, or the runtime {' or '.join(engines)}"
            return [FieldError("/model", f"is {kind}, not {expected}", accepted)]
        sentence = mismatch("the model", expected, head) or f"the model is {kind}"
        return _of_model(sentence, expected)

    def _input_problems(
        self,
        description: JobDescription,
        model: str,
        files: Sequence[BenchmarkFile],
        max_ram_bytes: int | None,
    ) -> list[FieldError]:
        inputs = self._model_inputs(description, model)
        if not inputs or any(not spec.dtype for spec in inputs):
            return []
        kind = description.benchmark_type
        if kind is BenchmarkType.TYPE1 and not description.keep_outputs:
            batch_size = description.parameters.get("batch_size")
            if problem := batch_size_problem(inputs, description.input, batch_size):
                return [FieldError("/parameters/batch_size", *problem)]
            found = [
                FieldError(f"/input/{name}", reason, accepted)
                for name, reason, accepted in given_problems(inputs, description.input, batch_size)
            ]
            return (
                found
                or _feed_problems(description, inputs, max_ram_bytes)
                or self._token_problems(description, model)
            )
        datasets = [each for each in files if each.role is FileRole.DATASET]
        if len(datasets) != 1 or datasets[0].sha256 is None:
            return []
        headers = self._headers(datasets[0].sha256)
        if not headers:
            return []
        if isinstance(headers, str):
            if kind is BenchmarkType.TYPE1:
                return [FieldError("/dataset", headers, _NPZ)]
            if kind is BenchmarkType.TYPE2:
                return self._label_problems(description, model, datasets[0].sha256, TRUTH)
            return []
        if kind is BenchmarkType.TYPE1:
            return self._own_input_problems(
                description, inputs, headers, datasets[0].sha256
            ) or self._own_token_problems(description, model, datasets[0].sha256)
        if kind.is_declared:  # its engine alone knows what its dataset contains
            return []
        if kind is BenchmarkType.TYPE2:
            truth = description.parameters.get("truth", TRUTH)
            if not isinstance(truth, str):
                return []
            return (
                _dataset_problems(inputs, headers, truth)
                or self._truth_problems(description, model, headers[truth])
                or self._label_problems(description, model, datasets[0].sha256, truth)
            )
        return [_lacks(name, headers) for name in ("x", "y") if name not in headers]

    def _truth_problems(
        self, description: JobDescription, model: str, truth: Header
    ) -> list[FieldError]:
        """Return what of a TYPE2 dataset's truth can't be compared with the output."""
        if description.parameters.get("raw"):
            return []
        output = self._compared_output(description, model)
        shape = output.shape if output is not None and output.dtype else None
        found = truth_problem(description.parameters.get("metric"), *truth, shape)
        return [FieldError("/dataset", *found)] if found else []

    def _label_problems(
        self, description: JobDescription, model: str, dataset: str, truth: str
    ) -> list[FieldError]:
        """Return which class of a TYPE2 dataset the model can't give, if it states its classes."""
        parameters = description.parameters
        if parameters.get("raw") or parameters.get("metric", CLASSIFICATION) != CLASSIFICATION:
            return []
        output = self._compared_output(description, model)
        if output is None or not output.dtype or output.shape is None:
            return []
        sizes = [size for size in output.shape[1:] if isinstance(size, int) and size > 0]
        if not output.shape or len(sizes) != len(output.shape) - 1:
            return []
        classes, numbers = classes_of(sizes), None
        if not classes:
            numbers = self._class_numbers(model).get(output.name)
            if numbers is None:
                return []
        wishes = json.dumps(parameters.get("preprocessing"))
        problem = self._labels(dataset, wishes, truth, classes, numbers, output.name)
        return [FieldError("/dataset", *problem)] if problem else []

    def _compared_output(self, description: JobDescription, model: str) -> TensorSpec | None:
        """Return the output that is compared with the truth; None where it is not known here."""
        preprocessing = description.parameters.get("preprocessing")
        wish = preprocessing.get("output") if isinstance(preprocessing, dict) else None
        outputs = self._outputs(model) if description.runtime in ("ort", "openvino") else ()
        return next((spec for spec in outputs if wish in (None, spec.name)), None)

    def _own_input_problems(
        self,
        description: JobDescription,
        inputs: Sequence[TensorSpec],
        headers: Headers,
        dataset: str,
    ) -> list[FieldError]:
        takes = ", ".join(f"{spec.name} {spec.shape_text()} {spec.dtype}" for spec in inputs)
        try:
            sets = grouped_names(list(headers), [spec.name for spec in inputs])
            for name, arrays in sets.items():
                for spec in inputs:
                    check_array(spec, *headers[arrays[spec.name]])
                shapes = {spec.name: headers[arrays[spec.name]][0] for spec in inputs}
                checked_batch_size(name, inputs, shapes, description.parameters.get("batch_size"))
        except RunFailed as error:
            prefix = "parameters/batch_size: "
            where = f"/{prefix[:-2]}" if error.sentence.startswith(prefix) else "/dataset"
            return [FieldError(where, error.sentence.removeprefix(prefix), f"inputs: {takes}")]
        if problem := self._values(dataset, tuple(inputs)):
            reason, _, accepted = problem.partition("; accepted are ")
            return [FieldError("/dataset", reason, accepted or f"inputs: {takes}")]
        return []

    def _token_problems(self, description: JobDescription, model: str) -> list[FieldError]:
        """Return why a language model does not take the random tokens that are asked for."""
        folder = self._language_model(description, model)
        if folder is None:
            return []
        given = description.input.get(INPUTS.name, {})
        shape = resolve_shape(INPUTS, given.get("shape"), description.parameters.get("batch_size"))
        low, high = value_range(INPUTS, given)
        problem = tokens_problem(
            shape,
            int(low),
            int(high),
            context_length=folder.context_length,
            vocabulary=folder.vocabulary,
        )
        accepted = f"--input {INPUTS.name}=1x16:0..{folder.vocabulary - 1}:int"
        return [FieldError(f"/input/{INPUTS.name}", problem, accepted)] if problem else []

    def _own_token_problems(
        self, description: JobDescription, model: str, dataset: str
    ) -> list[FieldError]:
        """Return why a language model does not take the tokens of a user's own inputs."""
        folder = self._language_model(description, model)
        if folder is None:
            return []
        problem = self._tokens(dataset, folder.context_length, folder.vocabulary)
        accepted = f"{INPUTS.name}: rows of tokens, ids from 0 to {folder.vocabulary - 1}"
        return [FieldError("/dataset", problem, accepted)] if problem else []

    def _find_wrong_tokens(self, sha256: str, context_length: int, vocabulary: int) -> str:
        """Describe which array of a small archive has no tokens that a language model takes."""

        def read(path: Path) -> str:
            arrays = read_arrays(path, list(headers_of(path)), limit_bytes=MAX_VALUES_BYTES)
            for name, tokens in arrays.items():
                problem = tokens_problem(
                    tokens.shape,
                    int(tokens.min(initial=0)),
                    int(tokens.max(initial=0)),
                    context_length=context_length,
                    vocabulary=vocabulary,
                )
                if problem:
                    return f"{name!r} {problem}"
            return ""

        try:
            return self._of(sha256, read, "")
        except RunFailed:  # too large, or damaged: the board says so
            return ""

    def _read_config(self, sha256: str) -> list[FieldError]:
        def read(path: Path) -> list[FieldError]:
            if path.stat().st_size > _MAX_CONFIG_BYTES:
                return []
            try:
                training.read_config(None, path)
            except RunFailed as error:
                if error.category != "user_input":  # it can't be read here now
                    return []
                keys = "an object of " + ", ".join(training.KEYS)
                return [FieldError("/odt_config", error.sentence, keys)]
            return []

        return self._of(sha256, read, [])

    def _of(self, sha256: str, read: Callable[[Path], T], otherwise: T) -> T:
        """Return what a content shows; ``otherwise`` where it can't be read here now."""
        if not self._thread.may_read:
            raise UnseenContent(f"the content of {sha256} was not looked into")
        try:
            return read(self._files.path(sha256))
        except (NotFound, Unavailable, OSError):
            return otherwise

    def _read_head(self, sha256: str) -> bytes:
        def read(path: Path) -> bytes:
            if path.is_dir():
                return _ARCHIVE_HEAD
            with path.open("rb") as file:
                return file.read(HEAD_BYTES)

        return self._of(sha256, read, b"")

    def _read_archive(self, sha256: str) -> str:
        """Return what is wrong with an archive of a model and its data files; "" for nothing."""

        def read(path: Path) -> str:
            archive = _parts_of(path)
            inspect(archive.model, archive.data, max_fields=_MAX_FIELDS)
            return ""

        return self._fault(sha256, read)

    def _read_pair(self, sha256: str, suffix: str) -> tuple[TensorSpec, ...] | str:
        """Return inputs of an IR (.xml) or ncnn model (.param), or what is wrong with it."""

        def read(path: Path) -> tuple[TensorSpec, ...]:
            weights_bytes = None
            if path.is_dir() or is_archive(path):
                parts = _parts_of(path, suffix)
                content, weights_bytes = parts.model, parts.weights()[1]
            else:
                content = open_model(path)
            if len(content) > _MAX_TEXT_BYTES:
                return ()
            if suffix == IR:
                return read_ir(content, weights_bytes, max_elements=_MAX_ELEMENTS).inputs
            inputs = read_param(content, max_layers=_MAX_LAYERS).inputs
            if weights_bytes is None:
                raise RunFailed("user_model", "the model is incomplete: its .bin is missing")
            return inputs

        unknown: tuple[TensorSpec, ...] = ()
        try:
            return self._of(sha256, read, unknown)
        except RunFailed as error:
            return _fault_of(error) or unknown

    def _read_genai(self, sha256: str) -> GenaiFolder | str | None:
        """Return what a language model's folder states, or what is wrong with it; None: unknown."""

        def read(path: Path) -> GenaiFolder:
            return read_files(_parts_of(path, CONFIG), max_fields=_MAX_FIELDS)

        try:
            return self._of(sha256, read, None)
        except RunFailed as error:
            made_for_another = error.category == "engine_unsupported"
            return error.sentence if made_for_another else _fault_of(error) or None

    def _find_fault(self, sha256: str) -> str:
        """Return why a file is no ONNX model that a board would load, in words; "": it is one."""

        def read(path: Path) -> str:
            inspect(path, max_fields=_MAX_FIELDS)
            return ""

        return self._fault(sha256, read)

    def _fault(self, sha256: str, read: Callable[[Path], str]) -> str:
        try:
            return self._of(sha256, read, "")
        except RunFailed as error:
            return _fault_of(error)

    def _inputs(self, sha256: str) -> tuple[TensorSpec, ...]:
        """Return the inputs of an ONNX file; none where it is no such file."""
        return self._interface(sha256)[0]

    def _outputs(self, sha256: str) -> tuple[TensorSpec, ...]:
        return self._interface(sha256)[1]

    def _read_interface(self, sha256: str) -> Interface:
        """Return the inputs and outputs of an ONNX file; none where it is no such file."""
        unknown: Interface = ((), ())
        return self._of_onnx(sha256, partial(interface_of, max_fields=_MAX_FIELDS), unknown)

    def _read_class_numbers(self, sha256: str) -> Mapping[str, tuple[int, ...]]:
        """Return the class numbers that outputs of an ONNX file can hold; none of another file."""
        unknown: Mapping[str, tuple[int, ...]] = {}
        return self._of_onnx(sha256, partial(class_numbers, max_fields=_MAX_FIELDS), unknown)

    def _of_onnx(self, sha256: str, read: Callable[[Path | memoryview], T], unknown: T) -> T:
        """Return what is read of an ONNX file, or of that in an archive; otherwise `unknown`."""

        def read_model(path: Path) -> T:
            packed = path.is_dir() or is_archive(path)
            return read(_parts_of(path, checksums=False).model if packed else path)

        try:
            return self._of(sha256, read_model, unknown)
        except RunFailed:
            return unknown

    def _model_inputs(self, description: JobDescription, model: str) -> tuple[TensorSpec, ...]:
        """Return a model's inputs by the names that its engine gives them; none where not known."""
        if description.runtime == "ort":
            return self._inputs(model)
        if description.runtime == "openvino":
            return self._inputs(model) or self._pair_inputs(model, IR)
        if description.runtime == "ncnn":
            return self._pair_inputs(model, PARAM)
        if description.runtime == "ort-genai":
            return (INPUTS,) if self._language_model(description, model) else ()
        signature = description.parameters.get("signature", "")
        return self._tflite_inputs(model, signature) if isinstance(signature, str) else ()

    def _pair_fault(self, sha256: str, suffix: str) -> str:
        found = self._pair(sha256, suffix)
        return found if isinstance(found, str) else ""

    def _pair_inputs(self, sha256: str, suffix: str) -> tuple[TensorSpec, ...]:
        """Return the inputs of an IR or of an ncnn model; none where they are not known here."""
        found = self._pair(sha256, suffix)
        return () if isinstance(found, str) else found

    def _read_tflite_inputs(self, sha256: str, signature: str) -> tuple[TensorSpec, ...]:
        return self._of(sha256, lambda path: tflite_inputs(path, signature), ())

    def _read_headers(self, sha256: str) -> Headers | str:
        """Shapes and types of the arrays of a dataset, or why it is no ``.npz``; none: unknown."""
        unreadable: Headers | str = {}
        try:
            return self._of(sha256, lambda path: dict(headers_of(path)), unreadable)
        except RunFailed as error:
            return error.sentence

    def _find_wrong_value(self, sha256: str, inputs: tuple[TensorSpec, ...]) -> str:
        """Describe which array of a small archive holds values that an input does not take."""

        def read(path: Path) -> str:
            names = list(headers_of(path))
            arrays = read_arrays(path, names, limit_bytes=MAX_VALUES_BYTES)
            for of_input in grouped_names(names, [spec.name for spec in inputs]).values():
                for spec in inputs:
                    try:
                        input_of(arrays[of_input[spec.name]], spec, of_input[spec.name])
                    except RunFailed as error:
                        return error.sentence
            return ""

        try:
            return self._of(sha256, read, "")
        except RunFailed:  # too large, or damaged: the board says so
            return ""

    def _find_wrong_label(
        self,
        sha256: str,
        wishes: str,
        truth: str,
        classes: int,
        numbers: tuple[int, ...] | None,
        output: str,
    ) -> tuple[str, str] | None:
        """Return what of a small dataset's classes the model can't give, and what is accepted."""

        def read(path: Path) -> tuple[str, str] | None:
            if path.stat().st_size > MAX_VALUES_BYTES:
                return None
            accepted = f"classes from 0 to {classes - 1}" if classes else "classes that it gives"
            try:
                labels = labels_of(path, json.loads(wishes), truth, classes, MAX_VALUES_BYTES)
            except RunFailed as error:
                reason = error.sentence.removeprefix(f"dataset {path.name!r} ")
                return reason.removeprefix("the dataset "), accepted
            problem = label_problem(labels, classes, numbers, output)
            return None if problem is None else (f"has {problem}", accepted)

        return self._of(sha256, read, None)


def _fault_of(error: RunFailed) -> str:
    """Return what is wrong with a model, in words; "" where that is left to the board."""
    limits = (
        f"{_MAX_FIELDS} fields",
        f"more than {_MAX_ELEMENTS} elements",
        f"more than {_MAX_LAYERS} layers",
    )
    too_large = any(limit in error.sentence for limit in limits)
    return "" if too_large or error.category != "user_model" else error.sentence


def _of_model(sentence: str, accepted: str) -> list[FieldError]:
    """Return what a sentence says is wrong with the model; nothing where it is empty."""
    return [FieldError("/model", sentence.removeprefix("the model "), accepted)] if sentence else []


def _parts_of(path: Path, suffix: str = ONNX, *, checksums: bool = True) -> ModelArchive:
    """Map a model and its other files, from an archive or a folder."""
    if path.is_dir():
        return open_folder(path, (suffix,))
    return open_archive(path, (suffix,), checksums=checksums)


def size_problem(
    description: JobDescription, size_bytes: int, max_ram_bytes: int | None
) -> FieldError | None:
    """Return why a model of this size runs nowhere; None where it may.

    Args:
        size_bytes: Of the model.
        max_ram_bytes: Of the boards that may run it; None: not known.
    """
    return _memory_problem(description, "/model", "has", "a model", size_bytes, max_ram_bytes)


def _feed_problems(
    description: JobDescription, inputs: Sequence[TensorSpec], max_ram_bytes: int | None
) -> list[FieldError]:
    """Return which input is too large for all boards, of shapes that `given_problems` accepts."""
    batch_size = description.parameters.get("batch_size")
    found = {}
    for spec in inputs:
        wish = description.input.get(spec.name, {}).get("shape")
        found[spec.name] = feed_bytes(spec, resolve_shape(spec, wish, batch_size))
    largest = max(found, key=found.__getitem__)
    pointer = f"/input/{largest}"
    if batch_size is not None and "shape" not in description.input.get(largest, {}):
        pointer = "/parameters/batch_size"
    has, size_bytes = "makes inputs of", sum(found.values())
    problem = _memory_problem(description, pointer, has, "inputs", size_bytes, max_ram_bytes)
    return [] if problem is None else [problem]


def _memory_problem(
    description: JobDescription,
    pointer: str,
    has: str,
    what: str,
    size_bytes: int,
    max_ram_bytes: int | None,
) -> FieldError | None:
    if max_ram_bytes is None or size_bytes <= max_ram_bytes:
        return None
    size, ram = size_text(size_bytes), size_text(max_ram_bytes)
    if size == ram:
        size, ram = f"{size_bytes} bytes", f"{max_ram_bytes} bytes"
    boards = f"the boards of {description.family} that may run it have at most"
    if description.target_uid is not None:
        boards = f"{description.target_uid} has"
    return FieldError(
        pointer,
        f"{has} {size}, and {boards} {ram} of memory",
        f"{what} of at most {ram}, or another target",
    )


_EXPECTED = {
    "ort": "an ONNX file",
    "tflite": "a TensorFlow Lite model",
    "openvino": "an ONNX file, or an OpenVINO IR (.xml) with its .bin",
    "ncnn": "a folder or an uncompressed zip of a .param and its .bin",
    "ort-genai": "a folder of a language model, or an uncompressed zip of it: genai_config.json "
    "with the ONNX file that it names, for cpu",
}
"""What the model of each engine that is known here has to be."""

_TAKES = {
    "tflite": (TFLITE,),
    "openvino": (file_kind.IR,),
    "ncnn": (file_kind.PARAM,),
    "ort-genai": (file_kind.GENAI,),
}
"""Kinds of files by the engines that take them, but ONNX files, which have no mark."""

_NAMED_IN_FILE = ("ort", "openvino", "ncnn", "ort-genai")
"""Engines of whose models the names of their inputs are known."""

_NPZ = "an .npz with an array for each input of the model"


def _dataset_problems(
    inputs: Sequence[TensorSpec], headers: Headers, truth: str
) -> list[FieldError]:
    """Return what is wrong with a TYPE2 dataset of arrays for the model's inputs."""
    try:
        names = array_of_input(inputs, truth)
    except RunFailed as error:
        return [FieldError("/dataset", error.sentence, "rows for the inputs, and what is right")]
    found = [_lacks(name, headers) for name in (*names, truth) if name not in headers]
    if found:
        return found
    rows = {name: shape[0] if shape else 0 for name, (shape, _) in headers.items()}
    for name, spec in names.items():
        shape, _ = headers[name]
        if not shape and not spec.shape and len(names) > 1:
            continue  # one value for all rows
        if rows[name] != rows[truth]:
            reason = f"has {rows[name]} rows of {name!r} and {rows[truth]} of {truth!r}"
            found.append(FieldError("/dataset", reason, "as many rows of each"))
        if not spec.takes(shape, first=1):
            takes = spec.shape_text()
            reason = f"has {name!r} of shape {list(shape)}; input {spec.name!r} takes {takes}"
            accepted = f"rows of {spec.shape_text(first=1)}" if spec.shape else "one value"
            found.append(FieldError("/dataset", reason, accepted))
    return found


def _lacks(name: str, headers: Headers) -> FieldError:
    has = ", ".join(headers) or "none"
    return FieldError("/dataset", f"has no array {name!r}; it holds {has}", f"an array {name!r}")


def _first(files: Sequence[BenchmarkFile], role: FileRole) -> BenchmarkFile | None:
    return next((file for file in files if file.role is role), None)
