"""TYPE2 with labels that a model can't give: refused where its classes are known, else doubted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edgeyard.benchmark_api.cli.output import accuracy
from edgeyard.devices.runner.accuracy import Accuracy, evaluate
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.metrics import metric_of
from edgeyard.devices.runner.onnx_file import class_numbers
from edgeyard.errors import RunFailed


class Echo:
    """A model whose output is its input, or what is made of it."""

    def __init__(self, *shape: int, dtype: str = "int64", classes: Any = None) -> None:
        self.inputs = (TensorSpec("x", (None, *shape), "float32"),)
        self.outputs: tuple[TensorSpec, ...] = (
            TensorSpec("y", (None, *shape), dtype, classes=classes),
        )
        self.facts: dict[str, object] = {}
        self._dtype = dtype

    def run(self, feeds: Any) -> list[NDArray[Any]]:
        return [feeds["x"].astype(self._dtype)]


def evaluated(folder: Path, session: Any, x: Any, y: Any, metric: str | None = None) -> Accuracy:
    file = folder / "d.npz"
    np.savez(file, x=np.asarray(x, np.float32), y=y)
    comparing = metric_of(metric)
    return evaluate(
        session,
        open_dataset(file, session.inputs, None, classes=comparing is None),
        10,
        Watch(threads=1, wanted_cpus=()),
        lambda percent, phase: None,
        metric=comparing,
        max_warmup_s=0.01,
    )


def doubts(found: Accuracy) -> dict[str, str]:
    reasons = found.measurement.verdict.reasons
    return {each.code: each.sentence for each in reasons if each.code.startswith("labels")}


def refusal(*arguments: Any) -> str:
    with pytest.raises(RunFailed) as refused:
        evaluated(*arguments)
    assert refused.value.category == "user_input"
    return refused.value.sentence


TEN = np.arange(10).repeat(10)
"""Ten rows of each of ten classes."""


def test_labels_that_are_not_among_known_scores_are_refused(tmp_path: Path) -> None:
    scores = np.eye(10)[TEN]
    for labels, odd in ((TEN + 1, 10), (np.where(TEN == 3, 99, TEN), 99)):
        sentence = refusal(tmp_path, Echo(10, dtype="float32"), scores, labels)
        assert f"class {odd}, the model has 10 classes" in sentence


def test_labels_from_another_number_on_are_doubted(tmp_path: Path) -> None:
    # 1001 classes with a background, and a dataset that numbers the other 1000 from 0
    scores = np.eye(11)[TEN + 1]
    found = evaluated(tmp_path, Echo(11, dtype="float32"), scores, TEN)
    assert found.top[1] == 0.0
    assert "with class numbers one higher 100.0% would be" in doubts(found)["labels_shifted"]
    assert found.measurement.verdict.verdict != "comparable"
    found = evaluated(tmp_path, Echo(11, dtype="float32"), np.eye(11)[TEN], TEN + 1)
    assert "one lower 100.0%" in doubts(found)["labels_shifted"]


def test_a_model_of_class_numbers_whose_classes_are_not_known_is_doubted(tmp_path: Path) -> None:
    given = TEN.reshape(-1, 1)
    one_of_a_hundred = np.where(np.arange(100) == 50, 99, TEN)
    for labels, shown in (
        (np.full(100, 99), "the classes 99 (100.0% of it), and the model gave only 0 to 9"),
        (one_of_a_hundred, "the classes 99 (1.0% of it)"),
        (TEN + 1, "the classes 10 (10.0% of it)"),
    ):
        assert shown in doubts(evaluated(tmp_path, Echo(1), given, labels))["labels_not_given"]


def test_classes_that_a_model_states_are_known(tmp_path: Path) -> None:
    session = Echo(1, classes=(1, 2, 3))
    given = np.tile([1, 2, 3], 4).reshape(-1, 1)
    assert "class 0, and output 'y' gives only 1, 2, 3" in refusal(
        tmp_path, session, given, given[:, 0] - 1
    )
    assert evaluated(tmp_path, session, given, given[:, 0]).top[1] == 1.0


def classifier(classes: Sequence[int] | Sequence[str]) -> onnx.ModelProto:
    """A classifier of ONNX that numbers or names its classes; the highest input is the class."""
    count, text = len(classes), isinstance(classes[0], str)
    node = helper.make_node(
        "LinearClassifier",
        ["X"],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        coefficients=np.eye(count, dtype=np.float32).ravel().tolist(),
        intercepts=[0.0] * count,
        post_transform="NONE",
        classlabels_ints=None if text else classes,
        classlabels_strings=classes if text else None,
    )
    kind = TensorProto.STRING if text else TensorProto.INT64
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, count])],
        [
            helper.make_tensor_value_info("label", kind, [None]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, count]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_classifiers_of_onnx_state_their_class_numbers(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(classifier([1, 2, 3]).SerializeToString())
    session = find("ort").load(path, threads=1, parameters={})
    assert [each.classes for each in session.outputs] == [(1, 2, 3), None]
    x, y = np.eye(3)[[0, 1, 2, 0]], np.array([1, 2, 3, 1])
    assert evaluated(tmp_path, session, x, y).top[1] == 1.0
    assert "class 0, and output 'label' gives only 1, 2, 3" in refusal(tmp_path, session, x, y - 1)
    path.write_bytes(classifier([-5, 7]).SerializeToString())
    assert class_numbers(path) == {"label": (-5, 7)}


def test_pixels_with_classes_that_have_no_scores_are_refused(tmp_path: Path) -> None:
    masks = (np.arange(4 * 16) % 3).reshape(4, 4, 4)
    scores = np.eye(3)[masks]
    session = Echo(4, 4, 3, dtype="float32")
    sentence = refusal(tmp_path, session, scores, masks + 1, "segmentation")
    assert "'y' has class 3, and the output has scores of 3 classes" in sentence
    ignored = np.where(masks == 2, 255, masks)
    found = evaluated(tmp_path, session, scores, ignored, "segmentation").as_json()
    assert found["miou"] == 1.0


def test_classes_of_pixels_and_boxes_that_were_never_given_are_doubted(tmp_path: Path) -> None:
    masks = (np.arange(4 * 16) % 3).reshape(4, 4, 4)
    found = evaluated(tmp_path, Echo(4, 4), masks, masks + 1, "segmentation")
    assert "the classes 3 " in doubts(found)["labels_not_given"]
    boxes = np.array([[[0, 0, 4, 4, 0.9, n]] for n in range(4)], np.float32)
    true = np.array([[[0, 0, 4, 4, n + 1]] for n in range(4)], np.float32)
    found = evaluated(tmp_path, Echo(1, 6, dtype="float32"), boxes, true, "detection")
    assert "the classes 4 " in doubts(found)["labels_not_given"]


def test_pixels_and_boxes_from_another_number_on_are_doubted(tmp_path: Path) -> None:
    # as many classes more than the dataset has: none of its numbers is out of range
    masks = (np.arange(4 * 16) % 10).reshape(4, 4, 4)
    scored = Echo(4, 4, 11, dtype="float32")
    found = evaluated(tmp_path, scored, np.eye(11)[masks + 1], masks, "segmentation")
    assert "0.0% of the pixels" in doubts(found)["labels_shifted"]
    assert "one higher 100.0%" in doubts(found)["labels_shifted"]
    right = evaluated(tmp_path, scored, np.eye(11)[masks], masks, "segmentation")
    assert doubts(right) == {}
    # a network of 80 classes from 0 on, boxes of 80 classes from 1 on: 1.3 % have an unknown class
    numbers = np.arange(80)
    boxes = np.array([[[0, 0, 4, 4, 0.9, n], [9, 9, 12, 12, 0.8, 5]] for n in numbers])
    true = np.array([[[0, 0, 4, 4, n + 1]] for n in numbers], np.float32)
    detector = Echo(2, 6, dtype="float32")
    found = evaluated(tmp_path, detector, boxes, true, "detection")
    assert "one lower 100.0%" in doubts(found)["labels_shifted"]
    assert "of the boxes" in doubts(found)["labels_shifted"]
    true[:, :, 4] -= 1
    assert doubts(evaluated(tmp_path, detector, boxes, true, "detection")) == {}


def test_an_output_that_is_no_classes_is_named_with_what_there_is(tmp_path: Path) -> None:
    one_score = refusal(tmp_path, Echo(1, dtype="float32"), TEN.reshape(-1, 1), TEN)
    assert (
        "the model has no other output of numbers, so compare it by parameters/metric" in one_score
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(classifier(["cat", "dog", "owl"]).SerializeToString())
    session = find("ort").load(path, threads=1, parameters={})
    text = refusal(tmp_path, session, np.eye(3)[[0, 1, 2]], np.arange(3))
    assert "output 'label' holds text, not numbers" in text
    assert text.endswith("preprocessing/output: probabilities")


def test_right_and_ordinarily_wrong_labels_are_not_doubted(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    given = np.where(rng.random(100) < 0.3, rng.integers(0, 10, 100), TEN)
    found = evaluated(tmp_path, Echo(1), given.reshape(-1, 1), TEN)
    assert 0.6 < found.top[1] < 0.9
    assert doubts(found) == {}
    # of very many classes the outermost is missed by chance
    many = np.arange(100) * 10
    missed = np.where(many == 990, 0, many)
    assert doubts(evaluated(tmp_path, Echo(1), missed.reshape(-1, 1), many)) == {}
    masks = (np.arange(4 * 16) % 3).reshape(4, 4, 4)
    assert doubts(evaluated(tmp_path, Echo(4, 4), masks, masks, "segmentation")) == {}


def test_an_accuracy_is_marked_where_a_reason_speaks_against_it_and_not_for_the_latency() -> None:
    row: dict[str, Any] = {"accuracy": 0.009, "verdict": "suspect"}
    doubted = {**row, "reasons": [{"code": "labels_shifted", "sentence": ""}]}
    assert accuracy(doubted) == "0.9%?"
    assert accuracy({**row, "reasons": [{"code": "other_load", "sentence": ""}]}) == "0.9%"
    error = {"metric": "MAE", "metric_value": 36.6, "reasons": [{"code": "inputs_clipped"}]}
    assert accuracy(error) == "MAE 36.6?"
