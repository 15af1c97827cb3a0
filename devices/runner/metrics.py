"""TYPE2 beyond class numbers: regression, segmentation and detection.

What ``y`` of the dataset holds and what the model has to return is in
``docs/reference/datasets.md``.
"""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Protocol, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.trust import Reason, labels_not_given, labels_shifted
from edgeyard.errors import RunFailed

CLASSIFICATION = "classification"
NAMES = (CLASSIFICATION, "regression", "segmentation", "detection")

IGNORED_LABEL = 255
"""Label of pixels without a class."""

MAX_CLASSES = 1000
MAX_BOXES = 100
"""Maximum boxes of a class in an image, by score."""

_THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)

Array = NDArray[np.generic]


def truth_problem(
    name: object,
    truth: Tuple[int, ...],
    dtype: np.dtype[np.generic],
    output: Optional[Sequence[object]],
) -> Optional[Tuple[str, str]]:
    """Return why ``y`` cannot be compared with the output of any run, and what is accepted.

    Args:
        name: Of the metric; None: classification.
        truth: Shape of ``y``.
        dtype: Of ``y``.
        output: Shape of the output with its rows, as the model states it; what is no whole number
            is open. None: not known.
    """
    metric = CLASSIFICATION if name is None else name
    if not isinstance(metric, str) or metric not in _TRUTH:
        return None
    kinds, takes = _TRUTH[metric]
    fits = bool(truth) and dtype.kind in kinds
    if metric == CLASSIFICATION:
        fits = fits and (len(truth) == 1 or truth[1:] == (1,))
    elif metric == "segmentation":
        fits = fits and len(truth) >= 3
    elif metric == "detection":
        fits = fits and len(truth) == 3 and truth[2] == 5
    if not fits:
        return f"has 'y' of shape {list(truth)} and type {dtype}", f"y: {takes}"
    sizes = [size for size in (output or ())[1:] if isinstance(size, int) and size > 0]
    if not output or len(sizes) != len(output) - 1:
        return None
    own = (truth[0], *sizes)
    if metric == "regression":
        fits = _same_shape(own, truth)
    elif metric == "segmentation":
        of_pixels = len(own) == 4 and truth[-2:] in (own[2:], own[1:3])
        fits = of_pixels or _same_shape(own, truth)
    elif metric == "detection":
        fits = len(own) == 3 and own[2] == 6
    if fits:
        return None
    shown = ", ".join(map(str, ("rows", *sizes)))
    return (
        f"has 'y' of shape {list(truth)}, and the output has shape [{shown}]",
        f"y: {takes}; or another output by preprocessing/output",
    )


def classes_of(row: Sequence[int]) -> int:
    """Return how many scores of classes an output has a row; 0: it holds something else.

    Args:
        row: Shape of the output without its rows.
    """
    per_row = math.prod(row)
    return per_row if per_row > 1 and max(row) == per_row else 0


def label_problem(
    labels: NDArray[np.int64], classes: int, numbers: Optional[Sequence[int]], output: str
) -> Optional[str]:
    """Return which class of a dataset a model can't give, in words; None: it can give all.

    Args:
        labels: Shape (rows,): class numbers from 0 on.
        classes: Scores a row; 0: the output holds class numbers.
        numbers: That the output can hold, where the model states them.
        output: Its name.
    """
    highest = int(labels.max())
    if classes:
        if highest < classes:
            return None
        return f"class {highest}, the model has {classes} classes from 0 on"
    odd = sorted({*labels.tolist()} - {*numbers}) if numbers is not None else []
    if numbers is None or not odd:
        return None
    gives = ", ".join(map(str, numbers[:8])) + (", ..." if numbers[8:] else "")
    return f"class {odd[0]}, and output {output!r} gives only {gives}"


_TRUTH = {
    CLASSIFICATION: ("iu", "class numbers from 0 on, of shape (rows,)"),
    "regression": ("biuf", "numbers, of the shape of the output"),
    "segmentation": ("iu", "class numbers of pixels, of shape (rows, height, width)"),
    "detection": ("biuf", "(rows, boxes, 5): x1, y1, x2, y2, class"),
}
"""Kinds of types that ``y`` may have, and what it holds, by metric."""


class Metric(Protocol):
    """Compares outputs with the truth, batch by batch."""

    def add(self, output: Array, truth: Array) -> None:
        """Count rows; both have as many.

        Raises:
            RunFailed: ``user_input``: they do not fit.
        """
        ...

    def result(self) -> Dict[str, object]:
        """Return the metric's numbers for the report; comparisons show ``value``."""
        ...

    def reasons(self) -> Sequence[Reason]:
        """Return what speaks against the classes of ``y`` being those of the model."""
        ...


def metric_of(name: object) -> Optional[Metric]:
    """Return the metric of that name; None for classification, which has its own counting.

    Raises:
        RunFailed: ``user_input``: no such metric.
    """
    if name in (None, CLASSIFICATION):
        return None
    if name == "regression":
        return Regression()
    if name == "segmentation":
        return Segmentation()
    if name == "detection":
        return Detection()
    raise RunFailed("user_input", f"parameters/metric: {name!r} is not one of {', '.join(NAMES)}")


class Regression:
    """Mean absolute and root mean square error over all values."""

    def __init__(self) -> None:
        self._absolute = self._square = 0.0
        self._values = 0

    def add(self, output: Array, truth: Array) -> None:
        """Count rows; see `Metric.add`."""
        rows = len(truth)
        if not _same_shape(output.shape, truth.shape):
            raise _unfit(output, truth, "values of the shape of 'y'")
        wrong = output.reshape(rows, -1).astype(np.float64) - truth.reshape(rows, -1).astype(
            np.float64
        )
        self._absolute += float(np.abs(wrong).sum())
        self._square += float((wrong * wrong).sum())
        self._values += wrong.size

    def result(self) -> Dict[str, object]:
        """MAE and RMSE; see `Metric.result`."""
        if not self._values:
            raise RunFailed("user_input", "'y' has no values, so that there is no error to state")
        mae = self._absolute / self._values
        rmse = float(np.sqrt(self._square / self._values))
        return {"metric": "regression", "name": "MAE", "value": mae, "mae": mae, "rmse": rmse}

    def reasons(self) -> Sequence[Reason]:
        """Implement `Metric.reasons`: there are no classes."""
        return ()


class Segmentation:
    """Mean intersection over union of the classes of pixels."""

    def __init__(self) -> None:
        self._confusion = np.zeros((0, 0), dtype=np.int64)
        self._scored = False

    def add(self, output: Array, truth: Array) -> None:
        """Count pixels; see `Metric.add`."""
        if truth.dtype.kind not in "iu":
            raise RunFailed("user_input", f"'y' has type {truth.dtype}; expected class numbers")
        found = _classes_of_pixels(output, truth)
        true = truth.reshape(found.shape).astype(np.int64)
        counted = true != IGNORED_LABEL
        classes = _scored_classes(output, truth)
        self._scored = classes > 0
        if classes and (odd := true[counted & (true >= classes)]).size:
            raise RunFailed(
                "user_input",
                f"'y' has class {odd[0]}, and the output has scores of {classes} classes from 0 "
                f"on; {IGNORED_LABEL} is ignored",
            )
        found, true = found[counted], true[counted]
        if not true.size:
            return
        highest = int(max(found.max(), true.max()))
        if highest >= MAX_CLASSES or min(int(found.min()), int(true.min())) < 0:
            raise RunFailed("user_input", f"class numbers go from 0 to {MAX_CLASSES - 1}")
        size = max(highest + 1, len(self._confusion))
        if size > len(self._confusion):
            grown = np.zeros((size, size), dtype=np.int64)
            grown[: len(self._confusion), : len(self._confusion)] = self._confusion
            self._confusion = grown
        self._confusion += np.bincount(true * size + found, minlength=size * size).reshape(
            size, size
        )

    def result(self) -> Dict[str, object]:
        """MIoU over the classes that occur, and pixel accuracy; see `Metric.result`."""
        hits = np.diag(self._confusion).astype(np.float64)
        union = self._confusion.sum(axis=0) + self._confusion.sum(axis=1) - hits
        occurs = union > 0
        if not occurs.any():
            raise RunFailed(
                "user_input",
                f"no pixel of 'y' has a class: all are {IGNORED_LABEL}, which is ignored, so that "
                "there is no mIoU to state",
            )
        shares = hits[occurs] / union[occurs]
        miou = float(shares.mean())
        return {
            "metric": "segmentation",
            "name": "mIoU",
            "value": miou,
            "miou": miou,
            "pixel_accuracy": float(hits.sum() / self._confusion.sum()),
            "iou_by_class": {
                str(number): float(share)
                for number, share in zip(np.flatnonzero(occurs), shares, strict=True)
            },
        }

    def reasons(self) -> Sequence[Reason]:
        """Implement `Metric.reasons`; classes with scores of their own are known and checked."""
        by_step = {step: int(np.trace(self._confusion, offset=step)) for step in (1, -1)}
        hits, count = int(np.trace(self._confusion)), int(self._confusion.sum())
        found = list(labels_shifted(hits, by_step, count, "pixels"))
        if not self._scored:
            rows = self._confusion.sum(axis=1)
            by_class = {int(number): int(rows[number]) for number in np.flatnonzero(rows)}
            given = np.flatnonzero(self._confusion.sum(axis=0)).tolist()
            found += labels_not_given(by_class, given)
        return found


class Detection:
    """Mean average precision of boxes, as COCO has it: over ten overlaps and 101 recalls."""

    def __init__(self) -> None:
        self._images = 0
        self._found: Dict[int, List[Tuple[float, NDArray[np.bool_]]]] = {}
        self._true: Dict[int, int] = {}
        self._by_step = {0: 0, 1: 0, -1: 0}

    def add(self, output: Array, truth: Array) -> None:
        """Match the boxes of images; see `Metric.add`."""
        if truth.ndim != 3 or truth.shape[2] != 5:
            raise RunFailed(
                "user_input",
                f"'y' has shape {list(truth.shape)}; detection takes (rows, boxes, 5): "
                "x1, y1, x2, y2, class, and a class below 0 where there is no box",
            )
        if output.ndim != 3 or output.shape[2] != 6 or len(output) != len(truth):
            raise _unfit(output, truth, "(rows, boxes, 6): x1, y1, x2, y2, score, class")
        for found, true in zip(output.astype(np.float64), truth.astype(np.float64), strict=True):
            self._images += 1
            boxes, there = found[found[:, 4] > 0], true[true[:, 4] >= 0]
            # rounded: quantised outputs state whole numbers only nearly
            given, wanted = np.rint(boxes[:, 5]).astype(int), np.rint(there[:, 4]).astype(int)
            self._count_steps(boxes, given, there, wanted)
            for number in {*given.tolist(), *wanted.tolist()}:
                self._match(number, boxes[given == number], there[wanted == number, :4])

    def _count_steps(
        self,
        boxes: NDArray[np.float64],
        given: NDArray[np.int_],
        there: NDArray[np.float64],
        wanted: NDArray[np.int_],
    ) -> None:
        """Count true boxes by how far their class is from that of the best box in their place."""
        if not len(boxes) or not len(there):
            return
        in_place = _overlaps(boxes[:, :4], there[:, :4]) >= _THRESHOLDS[0]
        best = np.where(in_place, boxes[:, 4:5], -1.0).argmax(axis=0)
        steps = (given[best] - wanted)[in_place.any(axis=0)]
        for step in self._by_step:
            self._by_step[step] += int((steps == step).sum())

    def _match(self, number: int, boxes: NDArray[np.float64], there: NDArray[np.float64]) -> None:
        """Let each box, best first, take the free true box that it overlaps most."""
        self._true[number] = self._true.get(number, 0) + len(there)
        matches = self._found.setdefault(number, [])
        boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")[:MAX_BOXES]]
        overlaps = _overlaps(boxes[:, :4], there)
        taken = np.zeros((len(_THRESHOLDS), len(there)), dtype=bool)
        for place in range(len(boxes)):
            hit = np.zeros(len(_THRESHOLDS), dtype=bool)
            for level, threshold in enumerate(_THRESHOLDS):
                free = np.where(taken[level], -1.0, overlaps[place])
                if free.size and free.max() >= threshold:  # of equal ones the last, as COCO has it
                    taken[level, free.size - 1 - int(free[::-1].argmax())] = True
                    hit[level] = True
            matches.append((float(boxes[place, 4]), hit))

    def result(self) -> Dict[str, object]:
        """MAP of all overlaps and of 50 %; see `Metric.result`."""
        precisions = [
            self._average_precisions(number) for number, count in self._true.items() if count
        ]
        if not precisions:
            raise RunFailed(
                "user_input", "'y' has no box in any image, so that there is no mAP to state"
            )
        by_level = np.mean(precisions, axis=0)
        value = float(by_level.mean())
        return {
            "metric": "detection",
            "name": "mAP",
            "value": value,
            "map": value,
            "map50": float(by_level[0]),
            "images": self._images,
        }

    def reasons(self) -> Sequence[Reason]:
        """Implement `Metric.reasons`."""
        by_class = {number: count for number, count in self._true.items() if count}
        given = [key for key, found in self._found.items() if found]
        by_step = {step: count for step, count in self._by_step.items() if step}
        return [
            *labels_not_given(by_class, given),
            *labels_shifted(self._by_step[0], by_step, sum(by_class.values()), "boxes"),
        ]

    def _average_precisions(self, number: int) -> NDArray[np.float64]:
        """Average precision of a class at each overlap."""
        found = sorted(self._found.get(number, []), key=lambda one: -one[0])
        if not found:
            return np.zeros(len(_THRESHOLDS))
        hits = np.array([hit for _, hit in found]).T.cumsum(axis=1)
        recall = hits / self._true[number]
        precision = hits / (np.arange(1, len(found) + 1) + np.spacing(1))
        precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        averages = np.zeros(len(_THRESHOLDS))
        for level in range(len(_THRESHOLDS)):
            places = np.searchsorted(recall[level], _RECALLS, side="left")
            reached = places < len(found)
            averages[level] = precision[level][places[reached]].sum() / len(_RECALLS)
        return averages


def _overlaps(boxes: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union: shape (boxes, true boxes)."""
    low = np.maximum(boxes[:, None, :2], there[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], there[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(axis=2)

    def area(of: NDArray[np.float64]) -> NDArray[np.float64]:
        sides: NDArray[np.float64] = np.clip(of[:, 2:] - of[:, :2], 0, None)
        return sides[:, 0] * sides[:, 1]

    union = area(boxes)[:, None] + area(there)[None, :] - both
    shares: NDArray[np.float64] = both / np.where(union > 0, union, 1.0)
    return shares


def _scored_classes(output: Array, truth: Array) -> int:
    """Return of how many classes the output has scores; 0: it holds class numbers."""
    if output.ndim != 4 or (output.dtype.kind in "iu" and _same_shape(output.shape, truth.shape)):
        return 0
    channels_first = output.shape[2:] == truth.shape[-2:]
    return int(output.shape[1 if channels_first else 3])


def _classes_of_pixels(output: Array, truth: Array) -> NDArray[np.int64]:
    """Class number of each pixel: shape (rows, height, width)."""
    if truth.ndim < 3 or truth.size != len(truth) * math.prod(truth.shape[-2:]):
        raise RunFailed(
            "user_input",
            f"'y' has shape {list(truth.shape)}; segmentation takes (rows, height, width)",
        )
    size = (len(truth), *truth.shape[-2:])
    if output.dtype.kind in "iu" and _same_shape(output.shape, truth.shape):
        return output.reshape(size).astype(np.int64)
    if output.ndim == 4 and output.shape[0] == size[0]:
        if output.shape[2:] == size[1:]:
            return np.asarray(output.argmax(axis=1), dtype=np.int64)
        if output.shape[1:3] == size[1:]:
            return np.asarray(output.argmax(axis=3), dtype=np.int64)
    raise _unfit(
        output, truth, "class numbers of the shape of 'y', or scores with a dimension for classes"
    )


def _same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether arrays have the same rows and the same shape, but for dimensions of 1.

    Equal sizes are not enough: the values of a transposed output would be compared with others.
    """
    if not one or not other or one[0] != other[0]:
        return False
    return [size for size in one[1:] if size != 1] == [size for size in other[1:] if size != 1]


def _unfit(output: Array, truth: Array, takes: str) -> RunFailed:
    return RunFailed(
        "user_input",
        f"the output has shape {list(output.shape)} for 'y' of shape {list(truth.shape)}; this "
        f"metric takes {takes}; name another output by preprocessing/output",
    )
