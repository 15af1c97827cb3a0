"""Inference on own inputs: arrays in, the outputs of the board back, with their latency."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.sdk.errors import ValidationFailed
from edgeyard.benchmark_api.sdk.results import Results
from edgeyard.errors import InvalidInput, RunFailed
from edgeyard.home import expanded
from edgeyard.installing import extra_command

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ONLY_INPUT = "x"
"""Name of an array that is given without one: the only input of the model."""

INPUTS, OUTPUTS = "inputs.npz", "outputs.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOutputs:
    """What came back for one set of inputs.

    Attributes:
        outputs: By output name, of all rows.
        measured: Latency, shapes and verdict.
        comparison: With the local run, by output; empty without ``compare_local``.
    """

    name: str
    outputs: Mapping[str, Any] = field(repr=False)
    measured: shapes.InferenceSet
    comparison: Mapping[str, OutputComparison] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """The outputs of a board for own inputs.

    Attributes:
        sets: In the order of the inputs.
        results: All that the benchmark led to.
    """

    benchmark_id: str
    sets: tuple[SetOutputs, ...]
    results: Results

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Outputs of the only set.

        Raises:
            InvalidInput: There are several sets: take them from ``sets``.
        """
        if len(self.sets) != 1:
            names = ", ".join(each.name for each in self.sets)
            raise InvalidInput.at("/outputs", f"there are {len(self.sets)} sets", names)
        return self.sets[0].outputs

    def save(self, path: str | Path) -> Path:
        """Write the outputs as an ``.npz``: by name, of several sets as ``SET/OUTPUT``."""
        arrays = {
            name if len(self.sets) == 1 else f"{each.name}/{name}": value
            for each in self.sets
            for name, value in each.outputs.items()
        }
        return write_npz(Path(path), arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """How far an output of the board is from the same one of a local run.

    Attributes:
        psnr_db: Peak signal-to-noise ratio: 20 log10 of the local output's range over the root
            mean square error; None for equal outputs and for a range of 0.
        cosine: Cosine similarity of all values; None where one side is 0 everywhere.
        top1_agreement: Share of rows whose largest value is at the same place; None where the
            output has no rows of at least two values.
    """

    max_error: float
    mean_error: float
    psnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a metric of the user's own gave for the outputs of a board."""

    benchmark_id: str
    value: Any
    inference: Inference = field(repr=False)


def split_dataset(dataset: object, truth: str) -> tuple[dict[str, Any], Any]:
    """Return the inputs of a dataset and what is right.

    Args:
        dataset: Arrays by name, or an ``.npz`` of them.
        truth: Name of the array with what is right.

    Raises:
        InvalidInput: It lacks one of them, or they have different numbers of rows.
    """
    if isinstance(dataset, str | Path):
        arrays = read_inputs(expanded(dataset))
    else:
        arrays = named_inputs(dataset)
    if truth not in arrays or len(arrays) < 2:
        raise InvalidInput.at(
            "/data",
            f"holds {', '.join(arrays)}",
            f"{truth}, and x or an array for each input of the model",
        )
    y = arrays.pop(truth)
    for name, rows in arrays.items():
        if y.ndim == 0 or (rows.ndim and len(rows) != len(y)):
            raise InvalidInput.at(
                "/data", f"{name!r} and {truth!r} have different rows", "as many rows of each"
            )
    return arrays, y


def evaluation_of(found: Inference, y: Any, metric: Any) -> Evaluation:
    """Run a metric on outputs.

    Raises:
        InvalidInput: It raised.
    """
    try:
        value = metric(found.outputs, y)
    except Exception as error:  # whatever the user's own function raises
        raise InvalidInput.at(
            "/metric",
            f"it raised {type(error).__name__}: {error}; the outputs are kept",
            f"a function of outputs and y; client.inference({found.benchmark_id!r}) returns them",
        ) from error
    return Evaluation(benchmark_id=found.benchmark_id, value=value, inference=found)


@contextmanager
def inputs_file(inputs: object) -> Iterator[Path]:
    """Give the path of an ``.npz`` with the inputs, checked as far as is possible here.

    Raises:
        InvalidInput: They are none, hold NaN, or are not numbers.
    """
    if isinstance(inputs, str | Path):
        path = expanded(inputs)
        read_inputs(path)
        yield path
        return
    named = named_inputs(inputs)
    with tempfile.TemporaryDirectory(prefix="edgeyard-") as folder:
        yield write_npz(Path(folder) / INPUTS, named)


def named_inputs(inputs: object) -> dict[str, Any]:
    """Return arrays by the names that they have in an archive, checked.

    Raises:
        InvalidInput: They are none, hold NaN, or are not numbers.
    """
    import numpy as np

    if not isinstance(inputs, Mapping):
        inputs = {ONLY_INPUT: inputs}
    found: dict[str, Any] = {}
    sets = [isinstance(value, Mapping) for value in inputs.values()]
    if any(sets) and not all(sets):
        raise InvalidInput.at(
            "/inputs", "mixes arrays and sets of arrays", "arrays by input, or sets of those"
        )
    for key, value in inputs.items():
        arrays = value if isinstance(value, Mapping) else {None: value}
        if isinstance(value, Mapping) and (not key or "/" in str(key)):
            raise InvalidInput.at(
                "/inputs", f"{key!r} is not a valid name of a set", "a name without /"
            )
        for name, array in arrays.items():
            full = str(key) if name is None else f"{key}/{name}"
            try:
                found[full] = np.asarray(array)
            except ValueError as error:
                raise InvalidInput.at(f"/inputs/{full}", f"is not an array: {error}") from error
    _check(found)
    return found


def read_inputs(path: Path) -> dict[str, Any]:
    """Read the arrays of an ``.npz``, checked.

    Raises:
        InvalidInput: It is none, or holds NaN or what are not numbers.
    """
    from edgeyard.devices.runner.arrays import names_in, read_arrays

    if not path.is_file():
        reason = f"{path} is not a regular file" if path.exists() else f"there is no file {path}"
        raise InvalidInput.at("/inputs", reason, "an .npz with an array for each input")
    try:
        arrays = read_arrays(path, names_in(path))
    except RunFailed as error:
        raise InvalidInput.at(
            "/inputs", error.sentence, "an .npz with an array for each input of the model"
        ) from error
    _check(arrays)
    return dict(arrays)


def _check(arrays: Mapping[str, Any]) -> None:
    from edgeyard.devices.runner.inference import FINITE, not_finite

    if not arrays:
        raise InvalidInput.at("/inputs", "there are none", "an array for each input of the model")
    for name, array in arrays.items():
        where = f"/inputs/{name}"
        if array.dtype.kind not in "biuf":
            reason = f"the array {name!r} has type {array.dtype}"
            raise InvalidInput.at(where, reason, "numbers or booleans")
        if problem := not_finite(array):
            raise InvalidInput.at(where, f"the array {name!r} has {problem}", FINITE)


class _Stream:
    """Only written to: devices such as ``/dev/null`` state a wrong position."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write, self.flush, self.close = file.write, file.flush, file.close


def write_npz(path: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays by their names as an ``.npz``, whole or not at all, and return its path.

    Raises:
        InvalidInput: The file cannot be written.
    """
    import zipfile

    import numpy as np

    try:
        # not numpy.savez: it takes no array that is called "file"
        with (
            open_atomically(path) as target,
            zipfile.ZipFile(_Stream(target), "w", allowZip64=True) as archive,
        ):
            for name, value in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
    except OSError as error:
        raise InvalidInput.at("/out", f"can't write {path}: {error.strerror}") from error
    return path


def inference_of(results: Results, folder: Path) -> Inference:
    """Fetch and read the outputs of a benchmark with ``keep_outputs``.

    Raises:
        InvalidInput: It has none, or they are damaged.
    """
    from edgeyard.devices.runner.arrays import read_arrays

    measured = results.answer.inference
    if not measured:
        raise InvalidInput.at(
            "/benchmark_id", f"{results.benchmark_id} kept no outputs", "one with keep_outputs"
        )
    file = results.download(OUTPUTS, folder / OUTPUTS)
    names = [f"{each.name}/{name}" for each in measured for name in each.outputs]
    try:
        arrays = read_arrays(file, names)
    except RunFailed as error:
        raise InvalidInput.at("/outputs", error.sentence) from error
    return Inference(
        benchmark_id=results.benchmark_id,
        sets=tuple(
            SetOutputs(
                name=each.name,
                outputs={name: arrays[f"{each.name}/{name}"] for name in each.outputs},
                measured=each,
            )
            for each in measured
        ),
        results=results,
    )


def about_inputs(error: ValidationFailed | InvalidInput) -> ValidationFailed | InvalidInput:
    """Return a refusal that names the inputs where it names the dataset that holds them."""
    errors = [
        replace(one, pointer="/inputs") if one.pointer == "/dataset" else one
        for one in error.errors
    ]
    if isinstance(error, ValidationFailed):
        return ValidationFailed(error.status, error.code, error.detail, errors)
    return InvalidInput(errors)


def compare_outputs(board: ArrayLike, local: ArrayLike) -> OutputComparison:
    """Compare an output of a board with the local one.

    Raises:
        InvalidInput: They have different shapes.
    """
    import numpy as np

    one, other = np.asarray(board), np.asarray(local)
    if one.shape != other.shape:
        raise InvalidInput.at(
            "/compare_local", f"the board's output has shape {one.shape}, the local {other.shape}"
        )
    a, b = one.astype(np.float64), other.astype(np.float64)
    error = np.abs(a - b)
    equal = bool(np.array_equal(a, b))
    mean_square = float((error**2).mean()) if error.size else 0.0
    span = float(b.max() - b.min()) if b.size else 0.0
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    psnr = None
    if mean_square > 0 and span > 0:
        psnr = float(20 * np.log10(span) - 10 * np.log10(mean_square))
    top1 = None
    rows = a.shape
    while len(rows) > 2 and rows[-1] == 1:  # scores as (rows, classes, 1, 1)
        rows = rows[:-1]
    if len(rows) >= 2 and rows[-1] >= 2 and a.size:
        top1 = float((a.reshape(rows).argmax(axis=-1) == b.reshape(rows).argmax(axis=-1)).mean())
    return OutputComparison(
        max_error=float(error.max()) if error.size else 0.0,
        mean_error=float(error.mean()) if error.size else 0.0,
        psnr_db=psnr,
        cosine=min(1.0, float(a.ravel() @ b.ravel()) / norms) if norms > 0 else None,
        top1_agreement=top1,
        equal=equal,
    )


def check_single(given: Mapping[str, object]) -> None:
    """Refuse a list where one value is needed.

    Raises:
        InvalidInput: Naming the argument.
    """
    for name, value in given.items():
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            raise InvalidInput.at(
                f"/{name}",
                f"is a list of {len(value)}, and one run has one {name}",
                f"one {name}; a call for each, or submit(keep_outputs=True) with the list",
            )


def local_model(model: object) -> Path:
    """Return the file of a model that is on this machine.

    Raises:
        InvalidInput: It is not.
    """
    path = expanded(str(model))
    if not path.is_file() and not path.is_dir():
        raise InvalidInput.at(
            "/compare_local", f"{model} is not a file on this machine", "a local model"
        )
    return path


class LocalModel:
    """A model that is run on this machine, by the same code that boards run."""

    def __init__(self, model: Path, runtime: str, parameters: Mapping[str, object]) -> None:
        """Load it.

        Raises:
            InvalidInput: The engine is not installed here, or can't load the model.
        """
        from edgeyard.benchmark_api.sdk.model_folder import packed, with_weights
        from edgeyard.devices.runner import engines

        settings = {name: value for name, value in parameters.items() if name != "threads"}
        self._batch_size = settings.pop("batch_size", None)
        for of_board in ("execution_provider", "device", "powersave"):
            settings.pop(of_board, None)
        try:
            engine = engines.find(runtime)
            file = packed(model) if model.is_dir() else with_weights(model)
            self._session = engine.load(file, threads=1, parameters=settings)
        except RunFailed as error:
            raise InvalidInput.at(
                "/compare_local",
                f"the model can't be run on this machine: {error.sentence}",
                f"{extra_command(runtime)}, or no comparison",
            ) from error

    def run(self, inputs: Path) -> dict[str, dict[str, Any]]:
        """Return the outputs of each set of an ``.npz``, by set and name.

        Raises:
            InvalidInput: The inputs do not fit the model.
        """
        from edgeyard.devices.runner.inference import open_inputs, outputs_of

        try:
            sets = open_inputs(inputs, self._session.inputs, self._batch_size)
            return {each.name: outputs_of(self._session, each).arrays for each in sets}
        except RunFailed as error:
            raise InvalidInput.at("/inputs", error.sentence) from error


def with_comparison(found: Inference, local: Mapping[str, Mapping[str, Any]]) -> Inference:
    """Return an inference with each output compared with the local one."""
    sets: Sequence[SetOutputs] = [
        replace(
            each,
            comparison={
                name: compare_outputs(value, local[each.name][name])
                for name, value in each.outputs.items()
            },
        )
        for each in found.sets
    ]
    return replace(found, sets=tuple(sets))
