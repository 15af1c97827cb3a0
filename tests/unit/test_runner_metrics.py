"""TYPE2 beyond class numbers: metrics against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeyard.devices.runner.metrics import (
    Detection,
    Metric,
    Regression,
    Segmentation,
    metric_of,
)
from edgeyard.errors import RunFailed


def test_errors_of_a_regression_are_of_all_values_over_all_batches() -> None:
    metric = Regression()
    metric.add(np.array([[1.0], [2.0]], np.float32), np.array([1.0, 4.0]))
    metric.add(np.array([[3.0]], np.float32), np.array([2.0]))
    found = metric.result()
    assert found["mae"] == found["value"] == pytest.approx(1.0)
    assert found["rmse"] == pytest.approx(np.sqrt(5 / 3))


@pytest.mark.parametrize("form", ["classes", "nchw", "nhwc"])
def test_miou_is_over_the_classes_that_occur_without_ignored_pixels(form: str) -> None:
    truth = np.array([[[0, 0, 1], [1, 2, 255]]])
    found = np.array([[[0, 1, 1], [1, 2, 2]]])
    scores = np.eye(4, dtype=np.float32)[found]
    output: Any = {"classes": found, "nchw": scores.transpose(0, 3, 1, 2), "nhwc": scores}[form]
    metric = Segmentation()
    metric.add(output, truth)
    result = metric.result()
    assert result["iou_by_class"] == pytest.approx({"0": 1 / 2, "1": 2 / 3, "2": 1.0})
    assert result["miou"] == pytest.approx((1 / 2 + 2 / 3 + 1) / 3)
    assert result["pixel_accuracy"] == pytest.approx(4 / 5)


def boxes(*rows: tuple[float, ...]) -> Any:
    return np.array([rows], np.float32)


def test_boxes_that_are_right_have_an_average_precision_of_one() -> None:
    metric = Detection()
    metric.add(
        boxes((0, 0, 10, 10, 0.9, 1), (20, 20, 30, 30, 0.8, 2), (0, 0, 0, 0, 0, 0)),
        boxes((0, 0, 10, 10, 1), (20, 20, 30, 30, 2), (0, 0, 0, 0, -1)),
    )
    found = metric.result()
    assert (found["map"], found["map50"]) == (pytest.approx(1), pytest.approx(1))


def test_overlap_missed_boxes_and_false_ones_lower_the_average_precision() -> None:
    metric = Detection()
    # an overlap of 8/12: right up to 0.65, four of the ten thresholds
    metric.add(boxes((2, 0, 12, 10, 0.9, 0)), boxes((0, 0, 10, 10, 0)))
    assert metric.result()["map"] == pytest.approx(4 / 10)
    # one of two boxes is found: precision 1 up to recall 0.5, which are 51 of 101 recalls
    metric = Detection()
    metric.add(boxes((0, 0, 10, 10, 0.9, 0)), boxes((0, 0, 10, 10, 0), (50, 50, 60, 60, 0)))
    assert metric.result()["map50"] == pytest.approx(51 / 101)
    # a false box comes first: precision 1/2 at every recall; the same box twice is false once
    metric = Detection()
    metric.add(
        boxes((70, 70, 80, 80, 0.95, 0), (0, 0, 10, 10, 0.9, 0), (0, 0, 10, 10, 0.5, 0)),
        boxes((0, 0, 10, 10, 0)),
    )
    assert metric.result()["map50"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("metric", "output", "truth", "says"),
    [
        (Regression(), np.zeros((2, 3)), np.zeros((2, 4)), "as many values a row as 'y'"),
        (Segmentation(), np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), "expected class numbers"),
        (Segmentation(), np.zeros((1, 3, 5, 5)), np.zeros((1, 2, 2), int), "a dimension for"),
        (Detection(), np.zeros((1, 5, 6)), np.zeros((1, 4)), "x1, y1, x2, y2, class"),
        (Detection(), np.zeros((1, 5, 4)), np.zeros((1, 2, 5)), "x1, y1, x2, y2, score, class"),
    ],
)
def test_what_does_not_fit_a_metric_is_refused_with_what_it_takes(
    metric: Metric, output: Any, truth: Any, says: str
) -> None:
    with pytest.raises(RunFailed) as refused:
        metric.add(output, truth)
    assert refused.value.category == "user_input"
    assert says in refused.value.sentence


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    assert metric_of(None) is metric_of("classification") is None
    with pytest.raises(RunFailed, match="classification, regression, segmentation, detection"):
        metric_of("f1")
