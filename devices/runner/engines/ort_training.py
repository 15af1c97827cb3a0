"""On-device training for ONNX models: the last dense layer, by gradient steps in NumPy.

onnxruntime runs models; it does not train them (its training package can't be loaded without
torch). So the graph is cut before its last dense layer, onnxruntime runs the frozen part once over
the training data, NumPy trains the layer on what comes out, and the new weights are written into
the ONNX file. The layer is linear, so that these are the exact gradients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner import onnx_file as onnx
from edgeyard.devices.runner.arrays import converted
from edgeyard.devices.runner.engine import (
    Dimension,
    Progress,
    Session,
    TensorSpec,
    TrainingConfig,
    TrainingResult,
)
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.onnx_head import Head, cut, find_head, replaced
from edgeyard.devices.runner.training_loop import (
    Evaluation,
    Rows,
    are_classes,
    check_classes,
    checked_rows,
    judge,
    log_softmax,
    padded,
    refuse_options,
    split_rows,
    train_epochs,
)
from edgeyard.errors import RunFailed

TRAINED_FILE = "trained.onnx"

_BODY_FILE = "body.onnx"

_ROWS_A_RUN = 32
"""Rows that the frozen part runs at once: bounds its memory whatever the batch size."""

_CHECKED_ROWS = 64

FloatArray = NDArray[np.floating]


def train(
    model: Path,
    config: TrainingConfig,
    x: NDArray[np.generic],
    y: NDArray[np.generic],
    out: Path,
    progress: Progress,
    *,
    threads: int,
    parameters: Mapping[str, object],
) -> TrainingResult:
    """Train the last dense layer; see `TrainingEngine.train`.

    Cross-entropy where ``y`` is class numbers, mean squared error where it is targets.

    Raises:
        RunFailed: ``user_model``: no dense last layer, or one that can't be cut off;
            ``user_input``: data that doesn't fit, a loss that is not finite.
    """
    refuse_options(config, "ort")
    rows = checked_rows(x, y)
    onnx.inspect(model)
    head = find_head(model)
    body = out / _BODY_FILE
    body.write_bytes(cut(model, head))
    progress(0.0, "training")
    try:
        session = _load(body, threads, parameters)
        features, weight, bias = _frozen(session, head, fitted(x, session.inputs))
    finally:
        body.unlink()

    layer = _Layer.of(head, weight, bias)
    targets: NDArray[np.generic]
    if are_classes(y):
        check_classes(y, layer.width)
        targets = y.astype(np.intp)
    else:
        targets = _targets(y, rows, layer.width, head)
    train_rows, validation_rows = split_rows(rows, config)

    def step(batch: Rows) -> float:
        return layer.step(features[batch], targets[batch], config.learning_rate)

    def evaluate(these: Rows) -> Evaluation:
        return judge(layer.outputs(features[these]), targets[these])

    curves = train_epochs(config, train_rows, validation_rows, step, evaluate, progress)
    trained = out / TRAINED_FILE
    patched = replaced(model, head, *layer.stored(head, weight, bias))
    with trained.open("wb") as file:
        file.writelines(patched.chunks())
    sample = (validation_rows if len(validation_rows) else train_rows)[:_CHECKED_ROWS]
    _check(trained, head, layer, x[sample], features[sample], threads, parameters)
    return TrainingResult(
        step_losses=curves.step_losses,
        epoch_losses=curves.epoch_losses,
        validation_losses=curves.validation_losses,
        validation_accuracy=curves.validation_accuracy,
        step_ms=curves.step_ms,
        trained=(
            f"the last dense layer (head) {head.name!r}, "
            f"{layer.weight.size + (layer.bias.size if layer.bias_trained else 0)} values; "
            "all before it is unchanged"
        ),
        model_file=trained,
    )


def fitted(x: NDArray[np.generic], inputs: Iterable[TensorSpec]) -> dict[str, NDArray[np.generic]]:
    """Return the examples as the model's only input takes them.

    Raises:
        RunFailed: ``user_model``: several inputs; ``user_input``: another shape or kind of number.
    """
    specs = list(inputs)
    if len(specs) != 1:
        raise RunFailed(
            "user_model", f"training takes models with one input, but this one has {len(specs)}"
        )
    spec = specs[0]
    if spec.shape == () or not spec.takes(x.shape, first=1):
        raise RunFailed(
            "user_input",
            f"an example in x has the shape {list(x.shape[1:])}, but the model's input "
            f"{spec.name!r} takes {spec.shape_text(first=1)}",
        )
    return {spec.name: converted(x, np.dtype(spec.dtype), f"x: the model's input {spec.name!r}")}


@dataclass
class _Layer:
    """The dense layer while it is trained: ``outputs = features @ weight + bias``.

    Attributes:
        weight: Shape (inputs, width), float32.
        bias: Shape (width,), float32.
        bias_trained: The file has a bias with one value an output.
    """

    weight: FloatArray
    bias: FloatArray
    bias_trained: bool

    @classmethod
    def of(cls, head: Head, weight: FloatArray, bias: FloatArray | None) -> "_Layer":
        weight = weight.astype(np.float32) * np.float32(head.alpha)
        if head.transposed:
            weight = weight.T
        weight = np.ascontiguousarray(weight)
        width = weight.shape[1]
        if bias is None:
            return cls(weight, np.zeros(width, np.float32), bias_trained=False)
        values = bias.astype(np.float32) * np.float32(head.beta)
        if values.size == width and values.shape in ((width,), (1, width)):
            return cls(weight, values.reshape(width).copy(), bias_trained=True)
        if values.size == 1:
            return cls(weight, np.full(width, values.item(), np.float32), bias_trained=False)
        raise RunFailed(
            "user_model", f"the last dense layer's bias has the shape {bias.shape}, not ({width},)"
        )

    def stored(
        self, head: Head, weight: FloatArray, bias: FloatArray | None
    ) -> tuple[FloatArray, FloatArray | None]:
        """Weight and bias as the file holds them, like the given ones; None: left as it is."""
        new_weight = self.weight / np.float32(head.alpha)
        if head.transposed:
            new_weight = new_weight.T
        new_bias = None
        if bias is not None and self.bias_trained:
            new_bias = (self.bias / np.float32(head.beta)).reshape(bias.shape).astype(bias.dtype)
        return new_weight.astype(weight.dtype), new_bias

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])

    def outputs(self, features: FloatArray) -> FloatArray:
        result: FloatArray = features @ self.weight + self.bias
        return result

    def step(self, features: FloatArray, targets: NDArray[np.generic], rate: float) -> float:
        """Take one gradient step on a batch, and return the loss before the step."""
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = self.outputs(features)
            loss = judge(outputs, targets).loss
            if are_classes(targets):
                gradient = np.exp(log_softmax(outputs))
                gradient[np.arange(len(targets)), targets.astype(np.intp)] -= 1.0
                gradient /= len(targets)
            else:
                gradient = 2.0 * (outputs - targets.astype(np.float32)) / outputs.size
            gradient = gradient.astype(np.float32)
            self.weight -= np.float32(rate) * (features.T @ gradient)
            if self.bias_trained:
                self.bias -= np.float32(rate) * gradient.sum(axis=0)
        return loss


def _batch_of(session: Session) -> Dimension:
    """Return how many rows the only input takes; a name or None where this is open."""
    shape = session.inputs[0].shape
    return shape[0] if shape else None


def _frozen(
    session: Session, head: Head, feeds: Mapping[str, NDArray[np.generic]]
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """What the frozen part makes of every row, and the head's weights and bias as they are."""
    ((name, x),) = feeds.items()
    fixed = _batch_of(session)
    size = fixed if isinstance(fixed, int) and fixed > 0 else _ROWS_A_RUN
    parts: list[FloatArray] = []
    constants: list[NDArray[np.generic]] = []
    for begin in range(0, len(x), size):
        rows = x[begin : begin + size]
        found = session.run({name: padded(rows, size if isinstance(fixed, int) else len(rows))})
        features = np.asarray(found[0])
        if features.ndim != 2 or len(features) < len(rows) or features.dtype.kind != "f":
            raise RunFailed(
                "user_model",
                f"the last dense layer gets {features.dtype} of shape {features.shape}; it can "
                "only be trained where it gets one row of floats an example",
            )
        parts.append(features[: len(rows)].astype(np.float32))
        constants = list(found[1:])
    result = np.concatenate(parts)
    if not np.isfinite(result).all():
        raise RunFailed(
            "user_model", "what the last dense layer gets is not finite (NaN or inf) on this data"
        )
    weight, bias = np.asarray(constants[0]), None
    if head.bias:
        bias = np.asarray(constants[1])
    for array in [weight] if bias is None else [weight, bias]:
        if array.dtype.name not in onnx.TENSOR_TYPES:
            raise RunFailed(
                "user_model", f"the last dense layer holds {array.dtype}, which isn't trained"
            )
    inputs = weight.shape[1 if head.transposed else 0] if weight.ndim == 2 else -1
    if inputs != result.shape[1]:
        raise RunFailed("user_model", f"the last layer's weights have the shape {weight.shape}")
    return result, weight, bias


def _targets(y: NDArray[np.generic], rows: int, width: int, head: Head) -> FloatArray:
    if "Softmax" in head.tail or "LogSoftmax" in head.tail:
        raise RunFailed(
            "user_input",
            f"the model ends in {head.tail[0]}: y must be one whole class number per row, "
            f"but is {y.dtype} of shape {y.shape}",
        )
    if y.size != rows * width:
        raise RunFailed(
            "user_input",
            f"y has the shape {y.shape}, but the model gives {width} values per row: expected "
            f"({rows}, {width}), or ({rows},) of class numbers",
        )
    return y.reshape(rows, width).astype(np.float32)


def _check(
    trained: Path,
    head: Head,
    layer: _Layer,
    x: NDArray[np.generic],
    features: FloatArray,
    threads: int,
    parameters: Mapping[str, object],
) -> None:
    """See that the file that will be uploaded answers as the layer that was trained."""
    session = _load(trained, threads, parameters)
    ((name, rows),) = fitted(x, session.inputs).items()
    fixed = _batch_of(session)
    if isinstance(fixed, int) and fixed > 0:
        rows, features = rows[:fixed], features[:fixed]
        rows = padded(rows, fixed)
    answers = np.asarray(session.run({name: rows})[head.output])[: len(features)]
    expected = layer.outputs(features)
    if "Softmax" in head.tail or "LogSoftmax" in head.tail:
        expected = log_softmax(expected)
    if "Softmax" in head.tail:
        expected = np.exp(expected)
    # Half floats carry 3 digits, and onnxruntime adds up in another order than NumPy.
    tolerance = 1e-2 * max(1.0, float(np.abs(expected).max()))
    if answers.size != expected.size or not np.allclose(
        answers.reshape(expected.shape), expected, rtol=0.0, atol=tolerance
    ):
        raise RunFailed(
            "unknown", "the written model does not answer as it did while it was trained"
        )


def _load(model: Path, threads: int, parameters: Mapping[str, object]) -> Session:
    return find("ort").load(model, threads=threads, parameters=parameters)
