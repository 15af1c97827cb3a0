"""What training is whatever the engine."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import TrainingConfig
from edgeyard.devices.runner.training_loop import (
    Evaluation,
    Rows,
    are_classes,
    judge,
    padded,
    split_rows,
    train_epochs,
    with_test_rows,
)
from edgeyard.errors import RunFailed


def config(**changes: object) -> TrainingConfig:
    return TrainingConfig(**{"epochs": 2, "batch_size": 4, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 9, 100])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_each_row_is_for_training_or_validation_and_one_is_for_training(
    rows: int, share: float
) -> None:
    train, validation = split_rows(rows, config(validation_split=share))
    assert sorted([*train, *validation]) == list(range(rows))
    assert len(train) >= 1
    assert len(validation) == min(int(rows * share), rows - 1)


def test_test_rows_of_the_dataset_are_those_of_validation() -> None:
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    arrays = {"x": rows[:3], "y": rows[:3, 0], "x_test": rows[3:], "y_test": rows[3:, 0]}
    x, y, changed = with_test_rows(arrays, config(validation_split=0.9))
    train, validation = split_rows(len(x), changed)
    np.testing.assert_array_equal(x[train], rows[:3])
    np.testing.assert_array_equal(y[validation], rows[3:, 0])


@pytest.mark.parametrize(
    "changes",
    [
        {"x_test": np.zeros((2, 3), np.float32)},
        {"x_test": np.zeros((2, 2), np.float64)},
        {"y_test": np.zeros(3, np.float32)},
        {"x_test": np.zeros((0, 2), np.float32), "y_test": np.zeros(0, np.float32)},
        {"x_test": None},
        {"y_test": None},
    ],
)
def test_test_rows_that_are_shaped_otherwise_are_refused(
    changes: dict[str, NDArray[np.generic] | None],
) -> None:
    rows = np.zeros((5, 2), np.float32)
    whole = {"x": rows[:3], "y": rows[:3, 0], "x_test": rows[3:], "y_test": rows[3:, 0]} | changes
    arrays = {name: array for name, array in whole.items() if array is not None}
    with pytest.raises(RunFailed, match=r"test|rows"):
        with_test_rows(arrays, config())


def test_the_seed_draws_the_validation_rows() -> None:
    first, again, other = (split_rows(50, config(seed=seed))[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def run(
    settings: TrainingConfig, *, losses: list[float] | None = None, whole: bool = False
) -> list[Rows]:
    seen: list[Rows] = []

    def step(batch: Rows) -> float:
        seen.append(batch)
        return losses[len(seen) - 1] if losses else float(len(batch))

    train, validation = np.arange(10), np.arange(10, 12)
    curves = train_epochs(
        settings,
        train,
        validation,
        step,
        lambda rows: Evaluation(loss=0.5, accuracy=None),
        lambda percent, phase: None,
        whole_batches=whole,
    )
    assert curves.validation_losses == [0.5] * settings.epochs
    assert curves.validation_accuracy == []
    return seen


def test_every_epoch_sees_every_row_once_in_another_order() -> None:
    batches = run(config())
    assert [len(each) for each in batches] == [4, 4, 2, 4, 4, 2]
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)


def test_whole_batches_leave_the_rest_out() -> None:
    assert [len(each) for each in run(config(), whole=True)] == [4, 4, 4, 4]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_at_its_step(bad: float) -> None:
    with pytest.raises(RunFailed) as caught:
        run(config(learning_rate=0.25), losses=[1.0, bad, 1.0])
    assert caught.value.category == "user_input"
    assert "at step 2: lower the learning rate (now 0.25)" in caught.value.sentence


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([0, 1]), True),
        (np.array([0, 1], np.uint8), True),
        (np.array([False, True]), True),
        (np.array([0.0, 1.0]), False),
        (np.array([[0], [1]]), False),
    ],
)
def test_class_numbers_are_whole_and_one_a_row(y: NDArray[np.generic], classes: bool) -> None:
    assert are_classes(y) is classes


def test_the_loss_of_classes_is_the_cross_entropy() -> None:
    logits = np.log(np.array([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]], np.float32)) + 5
    y = np.array([0, 1, 1])
    expected = -np.mean(np.log([0.7, 0.6, 0.1]))
    found = judge(logits, y)
    assert found.loss == pytest.approx(expected)
    assert found.accuracy == pytest.approx(2 / 3)


def test_logits_far_apart_do_not_overflow() -> None:
    found = judge(np.array([[1e4, -1e4], [-1e4, 1e4]], np.float32), np.array([0, 1]))
    assert (found.loss, found.accuracy) == (0.0, 1.0)


def test_the_loss_of_targets_is_the_mean_squared_error() -> None:
    found = judge(np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 2.0], [3.0, 3.0]]))
    assert (found.loss, found.accuracy) == (1.0, None)


def test_rows_are_filled_up_with_the_last() -> None:
    np.testing.assert_array_equal(padded(np.array([[1], [2]]), 4), [[1], [2], [2], [2]])
