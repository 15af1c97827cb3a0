"""The parts of training that all engines share: rows, epochs, batches, curves.

Imported on boards: only the standard library and NumPy, Python 3.10.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Progress, TrainingConfig
from edgeyard.errors import RunFailed

Rows = NDArray[np.intp]
"""Row numbers of the training data."""


@dataclass(frozen=True)
class Evaluation:
    """How well the model does on the validation rows.

    Attributes:
        loss: Mean over the rows.
        accuracy: Share of right answers; None where the labels are not classes.
    """

    loss: float
    accuracy: float | None


@dataclass
class Curves:
    """What training left behind, step by step and epoch by epoch."""

    step_losses: list[float] = field(default_factory=list)
    epoch_losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_accuracy: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)


def checked_rows(x: NDArray[np.generic], y: NDArray[np.generic]) -> int:
    """Return how many examples there are.

    Raises:
        RunFailed: ``user_input``: x and y don't go together, or hold something else than numbers.
    """
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "biuf":
            raise RunFailed("user_input", f"{name} holds {array.dtype} instead of numbers")
        if array.ndim == 0:
            raise RunFailed("user_input", f"{name} is a single number, not one row an example")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RunFailed("user_input", f"{name} holds values that are not finite (NaN or inf)")
    if len(x) != len(y):
        raise RunFailed("user_input", f"x has {len(x)} rows, but y has {len(y)}")
    if len(x) == 0:
        raise RunFailed("user_input", "the training data has no rows")
    return len(x)


def with_test_rows(
    arrays: Mapping[str, NDArray[np.generic]], config: TrainingConfig
) -> tuple[NDArray[np.generic], NDArray[np.generic], TrainingConfig]:
    """``x`` and ``y`` of a dataset with its test rows at their end, and how many there are.

    Raises:
        RunFailed: ``user_input``: ``x_test`` and ``y_test`` don't go with ``x`` and ``y``.
    """
    x, y = arrays["x"], arrays["y"]
    if "x_test" not in arrays and "y_test" not in arrays:
        return x, y, config
    for name, array in (("x", x), ("y", y)):
        test = arrays.get(f"{name}_test")
        if test is None or test.shape[1:] != array.shape[1:] or test.dtype != array.dtype:
            has = "is missing" if test is None else f"has rows of {test.shape[1:]} {test.dtype}"
            raise RunFailed(
                "user_input",
                f"the dataset's {name}_test {has}; {name} has rows of {array.shape[1:]} "
                f"{array.dtype}",
            )
    checked_rows(x, y)
    count = checked_rows(arrays["x_test"], arrays["y_test"])
    return (
        np.concatenate([x, arrays["x_test"]]),
        np.concatenate([y, arrays["y_test"]]),
        replace(config, validation_rows=count),
    )


def are_classes(y: NDArray[np.generic]) -> bool:
    """Return whether ``y`` is one class number per row; otherwise it is targets."""
    return y.ndim == 1 and y.dtype.kind in "biu"


def check_classes(y: NDArray[np.generic], classes: int) -> None:
    """Check that every class number is one that the model can answer.

    Raises:
        RunFailed: ``user_input``.
    """
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise RunFailed(
            "user_input",
            f"y holds class numbers {low} to {high}, but the model distinguishes {classes} classes "
            f"(0 to {classes - 1})",
        )


def refuse_options(config: TrainingConfig, engine: str) -> None:
    """Refuse training options, of which no engine has any: an unknown one must not be ignored.

    Raises:
        RunFailed: ``user_input``.
    """
    if config.options:
        names = ", ".join(sorted(str(name)[:50] for name in config.options))
        raise RunFailed("user_input", f"engine {engine} has no training options ({names} given)")


def split_rows(rows: int, config: TrainingConfig) -> tuple[Rows, Rows]:
    """Training and validation rows, drawn by the seed; at least one row is for training.

    Test rows of the dataset's own are the validation rows where it has some: they lie at the end.
    """
    if config.validation_rows is not None:
        first = rows - config.validation_rows
        return np.arange(first), np.arange(first, rows)
    order = np.random.default_rng(config.seed).permutation(rows)
    kept = min(int(rows * config.validation_split), rows - 1)
    return np.sort(order[kept:]), np.sort(order[:kept])


def train_epochs(
    config: TrainingConfig,
    train: Rows,
    validation: Rows,
    step: Callable[[Rows], float],
    evaluate: Callable[[Rows], Evaluation],
    progress: Progress,
    *,
    whole_batches: bool = False,
) -> Curves:
    """Go through the training rows, in another order each epoch.

    Args:
        step: One gradient step on these rows; returns their mean loss before it.
        evaluate: Called after each epoch, where there are validation rows.
        whole_batches: Leave out what doesn't fill a batch (models with a fixed batch size).

    Raises:
        RunFailed: ``user_input``: the loss is no longer finite, or no batch can be filled.
    """
    size = config.batch_size
    steps = len(train) // size if whole_batches else math.ceil(len(train) / size)
    if steps == 0:
        raise RunFailed("user_input", f"{len(train)} training rows don't fill one batch of {size}")
    shuffle = np.random.default_rng([config.seed, 1])
    curves = Curves()
    for epoch in range(config.epochs):
        order = shuffle.permutation(train)
        weighted = seen = 0.0
        for number in range(steps):
            batch = order[number * size : (number + 1) * size]
            begun = time.perf_counter()
            loss = step(batch)
            curves.step_ms.append((time.perf_counter() - begun) * 1e3)
            _check_loss(loss, len(curves.step_losses) + 1, config)
            curves.step_losses.append(loss)
            weighted += loss * len(batch)
            seen += len(batch)
            progress(100.0 * (epoch * steps + number + 1) / (config.epochs * steps), "training")
        curves.epoch_losses.append(weighted / seen)
        if len(validation):
            found = evaluate(validation)
            _check_loss(found.loss, len(curves.step_losses), config)
            curves.validation_losses.append(found.loss)
            if found.accuracy is not None:
                curves.validation_accuracy.append(found.accuracy)
    return curves


def padded(rows: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    """Rows up to a fixed batch size; the last one is repeated."""
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.floating]:
    """Logarithms of the class probabilities, shape as ``logits`` (rows, classes)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: NDArray[np.floating] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def judge(outputs: NDArray[np.floating], y: NDArray[np.generic]) -> Evaluation:
    """Loss and accuracy of outputs.

    Args:
        outputs: Shape (rows, n): logits for classes, predictions for targets.
        y: Class numbers (cross-entropy, accuracy) or targets (mean squared error).
    """
    if not are_classes(y):
        error = outputs.astype(np.float64) - y.reshape(outputs.shape).astype(np.float64)
        return Evaluation(loss=float(np.mean(error**2)), accuracy=None)
    classes = y.astype(np.intp)
    right = float(np.mean(outputs.argmax(axis=1) == classes))
    logs = log_softmax(outputs)
    return Evaluation(loss=float(-logs[np.arange(len(classes)), classes].mean()), accuracy=right)


def _check_loss(loss: float, step: int, config: TrainingConfig) -> None:
    if not math.isfinite(loss):
        raise RunFailed(
            "user_input",
            f"the loss is not finite ({loss}) at step {step}: lower the learning rate "
            f"(now {config.learning_rate:g}), or scale the data to about -1 to 1",
        )
