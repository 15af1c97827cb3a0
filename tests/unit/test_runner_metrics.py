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
        (Regression(), np.zeros((2, 3)), np.zeros((2, 4)), "values of the shape of 'y'"),
        (Regression(), np.zeros((2, 4, 3)), np.zeros((2, 3, 4)), "values of the shape of 'y'"),
        (Regression(), np.zeros((3, 2)), np.zeros((2, 3)), "values of the shape of 'y'"),
        (Segmentation(), np.zeros((1, 4, 3), int), np.zeros((1, 3, 4), int), "a dimension for"),
        (Segmentation(), np.zeros((1, 4), int), np.zeros((1, 4), int), "(rows, height, width)"),
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


@pytest.mark.parametrize(
    ("metric", "output", "truth", "says"),
    [
        (Segmentation(), np.zeros((1, 2, 2), int), np.full((1, 2, 2), 255), "all are 255"),
        (Detection(), np.zeros((1, 1, 6)), np.full((1, 1, 5), -1.0), "no box in any image"),
        (Regression(), np.zeros((1, 0)), np.zeros((1, 0)), "has no values"),
    ],
)
def test_where_nothing_is_counted_there_is_no_number(
    metric: Metric, output: Any, truth: Any, says: str
) -> None:
    metric.add(output, truth)
    with pytest.raises(RunFailed, match=says) as refused:
        metric.result()
    assert refused.value.category == "user_input"


def test_dimensions_of_one_do_not_count() -> None:
    metric = Regression()
    metric.add(np.ones((3, 1, 2)), np.zeros((3, 2)))
    assert metric.result()["mae"] == 1
    labels = Segmentation()
    labels.add(np.zeros((3, 1, 2, 2), int), np.zeros((3, 2, 2), int))
    assert labels.result()["miou"] == 1


@pytest.mark.parametrize("seed", range(12))
def test_the_average_precision_is_that_of_coco(seed: int) -> None:
    """Equal recalls, scores and overlaps are counted as by ``COCOeval``, whose loop this is."""
    rng = np.random.default_rng(seed)
    images, classes, most = int(rng.integers(1, 8)), int(rng.integers(1, 4)), 10
    truth = np.full((images, most, 5), -1.0)
    found = np.zeros((images, 2 * most, 6))
    for image in range(images):
        count = int(rng.integers(1, most))
        corner, size = rng.integers(0, 40, (count, 2)), rng.integers(5, 40, (count, 2))
        truth[image, :count] = np.c_[corner, corner + size, rng.integers(0, classes, count)]
        for place in range(int(rng.integers(1, 2 * most))):
            box = truth[image, rng.integers(count)]
            moved = box[:4] + rng.integers(-2, 3)
            found[image, place] = [*moved, rng.integers(1, 10) / 10, box[4]]
    metric = Detection()
    metric.add(found, truth)
    assert metric.result()["map"] == pytest.approx(_coco(found, truth, classes), abs=1e-12)


def _overlap(one: Any, other: Any) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:4], other[2:4])
    both = float(np.prod(np.clip(high - low, 0, None)))
    return both / float(np.prod(one[2:4] - one[:2]) + np.prod(other[2:4] - other[:2]) - both)


def _coco(found: Any, truth: Any, classes: int) -> float:
    precisions = []
    for number in range(classes):
        true = [[box for box in image if box[4] == number] for image in truth]
        if not (count := sum(map(len, true))):
            continue
        for threshold in np.linspace(0.5, 0.95, 10):
            scored = []
            for boxes_of, there in zip(found, true, strict=True):
                taken: set[int] = set()
                own = [box for box in boxes_of if box[4] > 0 and box[5] == number]
                for box in sorted(own, key=lambda one: -one[4]):
                    best, match = threshold, -1
                    for place, other in enumerate(there):
                        overlap = _overlap(box, other)
                        if place not in taken and overlap >= best:
                            best, match = overlap, place
                    taken |= {match} - {-1}
                    scored.append((-box[4], match >= 0))
            hits = np.cumsum([hit for _, hit in sorted(scored, key=lambda one: one[0])])
            precision = hits / np.arange(1, len(hits) + 1)
            recall = hits / count
            precision = np.maximum.accumulate(precision[::-1])[::-1]
            places = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
            precisions.append(sum(precision[place] for place in places if place < len(hits)) / 101)
    return float(np.mean(precisions))


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    assert metric_of(None) is metric_of("classification") is None
    with pytest.raises(RunFailed, match="classification, regression, segmentation, detection"):
        metric_of("f1")
