"""On-device training for tflite models, by the signatures that they carry.

``train(x, y[, learning_rate]) -> loss`` takes one gradient step, ``infer(x) -> logits`` answers.
Which weights are trained, by which optimiser and loss, is the model's own matter.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.arrays import converted
from edgeyard.devices.runner.engine import Progress, TrainingConfig, TrainingResult
from edgeyard.devices.runner.engines.litert import (
    Options,
    interpreter_of,
    read_model,
    translated,
)
from edgeyard.devices.runner.engines.tflite_variables import READ_SIGNATURE, TrainableFile
from edgeyard.devices.runner.training_loop import (
    Evaluation,
    Rows,
    are_classes,
    check_classes,
    checked_rows,
    judge,
    padded,
    refuse_options,
    split_rows,
    train_epochs,
)
from edgeyard.errors import RunFailed

TRAINED_FILE = "trained.tflite"

TRAIN, INFER = "train", "infer"
X, Y, LEARNING_RATE = "x", "y", "learning_rate"
LOSS, LOGITS = "loss", "logits"

_ROWS_A_RUN = 256
"""Rows that ``infer`` gets at once when validating."""

_CHECKED_ROWS = 64

Array = NDArray[np.generic]


def train(
    model: Path,
    config: TrainingConfig,
    x: Array,
    y: Array,
    out: Path,
    progress: Progress,
    *,
    threads: int,
    parameters: Mapping[str, object],
) -> TrainingResult:
    """Train by the model's own signature; see `TrainingEngine.train`.

    Raises:
        RunFailed: ``user_model``: no such signatures, no variables; ``user_input``: data that
            doesn't fit them, a loss that is not finite.
    """
    options = Options.of(parameters, threads)
    refuse_options(config, "tflite")
    rows = checked_rows(x, y)
    content = read_model(model)
    interpreter_of(content, options)  # checks the file's structure, which its object API doesn't
    file = TrainableFile(content)
    network: _Network = translated("load", _Network, file.readable(), options)
    x, y = network.fitted(x, y)
    if are_classes(y):
        check_classes(y, network.infer_rows(x[:1]).shape[1])
    network.check_batch(config)
    train_rows, validation_rows = split_rows(rows, config)
    before = network.variables()
    progress(0.0, "training")

    def step(batch: Rows) -> float:
        return network.step(x[batch], y[batch], config.learning_rate)

    def evaluate(these: Rows) -> Evaluation:
        return network.judged(x[these], y[these])

    curves = train_epochs(
        config,
        train_rows,
        validation_rows,
        step,
        evaluate,
        progress,
        whole_batches=network.batch is not None,
    )
    after = network.variables()
    trained = out / TRAINED_FILE
    trained.write_bytes(file.with_values(after))
    sample = (validation_rows if len(validation_rows) else train_rows)[:_CHECKED_ROWS]
    _check(trained, options, x[sample], network)
    changed = [each for each in file.variables if not _same(before, after, each.label)]
    if not changed:
        raise RunFailed("user_model", "the model's train signature changes none of its variables")
    return TrainingResult(
        step_losses=curves.step_losses,
        epoch_losses=curves.epoch_losses,
        validation_losses=curves.validation_losses,
        validation_accuracy=curves.validation_accuracy,
        step_ms=curves.step_ms,
        trained=_in_words(
            len(changed),
            sum(after[each.label].size for each in changed),
            len(file.variables),
            own_rate=not network.takes_rate,
        ),
        model_file=trained,
    )


class _Network:
    """A loaded model with its signatures.

    Attributes:
        batch: Rows that ``train`` takes; None: any number.
        takes_rate: The learning rate of the configuration reaches the model.
    """

    def __init__(self, content: bytes, options: Options) -> None:
        # Kept: signature runners don't keep their interpreter alive.
        self._interpreter = interpreter_of(content, options)
        self._train = _runner(self._interpreter, TRAIN)
        self._infer = _runner(self._interpreter, INFER)
        self._variables: Any = None
        if READ_SIGNATURE in self._interpreter.get_signature_list():
            self._variables = self._interpreter.get_signature_runner(READ_SIGNATURE)
        inputs = self._train.get_input_details()
        if not {X, Y} <= set(inputs) <= {X, Y, LEARNING_RATE}:
            raise RunFailed(
                "user_model",
                f"the train signature takes {sorted(inputs)}; expected x, y and, if wanted, "
                "learning_rate",
            )
        self.takes_rate = LEARNING_RATE in inputs
        self._rate_type = inputs[LEARNING_RATE]["dtype"] if self.takes_rate else np.float32
        self._x, self._y = inputs[X], inputs[Y]
        self._loss = _only(self._train.get_output_details(), LOSS, "train")
        infer_inputs = self._infer.get_input_details()
        self._infer_x = _only(infer_inputs, X, "infer")
        self._logits = _only(self._infer.get_output_details(), LOGITS, "infer")
        self.batch = _fixed(self._x)
        self._infer_batch = _fixed(infer_inputs[self._infer_x])

    def fitted(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the data in the types that ``train`` takes.

        Raises:
            RunFailed: ``user_input``: another shape, or kind of number.
        """
        return _fitted(X, x, self._x), _fitted(Y, y, self._y)

    def check_batch(self, config: TrainingConfig) -> None:
        """See that the batch size is one that the model takes."""
        if self.batch not in (None, config.batch_size):
            raise RunFailed(
                "user_input",
                f"batch_size is {config.batch_size}, but the model's train signature takes exactly "
                f"{self.batch} rows",
            )

    def step(self, x: Array, y: Array, rate: float) -> float:
        feeds: dict[str, Any] = {X: x, Y: y}
        if self.takes_rate:
            feeds[LEARNING_RATE] = np.asarray(rate, self._rate_type)
        found = translated("train", lambda: self._train(**feeds))[self._loss]
        if np.size(found) != 1:
            raise RunFailed(
                "user_model", f"the train signature's loss has the shape {np.shape(found)}, not ()"
            )
        return float(np.ravel(found)[0])

    def infer_rows(self, x: Array) -> NDArray[np.floating]:
        """Return what ``infer`` answers, shape (rows, n)."""
        size = self._infer_batch or _ROWS_A_RUN
        parts = []
        for begin in range(0, len(x), size):
            rows = x[begin : begin + size]
            feed = padded(rows, self._infer_batch or len(rows))
            found = translated("run", lambda feed=feed: self._infer(**{self._infer_x: feed}))
            answers = np.asarray(found[self._logits])
            if answers.ndim == 0 or len(answers) != len(feed):
                raise RunFailed(
                    "user_model",
                    f"the infer signature answers {len(feed)} rows with the shape {answers.shape}",
                )
            parts.append(answers[: len(rows)].reshape(len(rows), -1).astype(np.float32))
        return np.concatenate(parts)

    def judged(self, x: Array, y: Array) -> Evaluation:
        outputs = self.infer_rows(x)
        if not are_classes(y) and y.size != outputs.size:
            raise RunFailed(
                "user_model",
                f"infer answers {outputs.shape[1]} values per row, but y has the shape {y.shape}: "
                "set validation_split to 0, or let infer answer what y holds",
            )
        return judge(outputs, y)

    def variables(self) -> dict[str, Array]:
        """Return every variable's value now, by label."""
        found: dict[str, Array] = translated("read the variables of", self._variables)
        return found


def _runner(interpreter: Any, name: str) -> Any:
    names = sorted(set(interpreter.get_signature_list()) - {READ_SIGNATURE})
    if name not in names:
        raise RunFailed(
            "user_model",
            f"training needs the signatures train(x, y) and infer(x), but the tflite model has "
            f"{', '.join(names) or 'none'}",
        )
    return interpreter.get_signature_runner(name)


def _only(details: Mapping[str, Any], preferred: str, signature: str) -> str:
    """Return the input or output of that name, or the only one there is."""
    if preferred in details:
        return preferred
    if len(details) != 1:
        raise RunFailed(
            "user_model",
            f"the {signature} signature has {sorted(details)}; expected {preferred!r} among them",
        )
    return next(iter(details))


def _sizes(detail: Mapping[str, Any]) -> tuple[int, ...]:
    signature = detail["shape_signature"]
    return tuple(int(size) for size in (signature if len(signature) else detail["shape"]))


def _fixed(detail: Mapping[str, Any]) -> int | None:
    sizes = _sizes(detail)
    return sizes[0] if sizes and sizes[0] >= 0 else None


def _fitted(name: str, array: Array, detail: Mapping[str, Any]) -> Array:
    wanted, given = _sizes(detail)[1:], array.shape[1:]
    if len(wanted) != len(given) or any(
        size >= 0 and size != have for size, have in zip(wanted, given, strict=True)
    ):
        shape = tuple(size if size >= 0 else None for size in wanted)
        raise RunFailed(
            "user_input",
            f"a row of {name} has the shape {given}, but the train signature takes {shape}",
        )
    return converted(array, np.dtype(detail["dtype"]), f"{name}: the train signature")


def _same(before: Mapping[str, Array], after: Mapping[str, Array], label: str) -> bool:
    return np.array_equal(before[label], after[label])


def _check(trained: Path, options: Options, x: Array, network: _Network) -> None:
    """See that the file that will be uploaded answers as the model that was trained."""
    again: _Network = translated("load", _Network, trained.read_bytes(), options)
    if not np.allclose(again.infer_rows(x), network.infer_rows(x), rtol=1e-3, atol=1e-4):
        raise RunFailed(
            "unknown", "the written model does not answer as it did while it was trained"
        )


def _in_words(changed: int, values: int, variables: int, *, own_rate: bool) -> str:
    which = "all weights" if changed == variables else f"{changed} of {variables} variables"
    words = (
        f"{which} that the model's train signature changes ({changed} variables, {values} values)"
    )
    if own_rate:
        words += "; with the model's own learning rate, as train takes none"
    return words
