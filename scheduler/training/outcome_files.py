"""Models of outcomes as the files that the scheduler loads: ONNX and a manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.learning.features import Input
from edgeyard.scheduler.learning.manifest import Manifest, Output, manifest_text
from edgeyard.scheduler.training.outcome_models import (
    MAX_RATE,
    MIN_RATE,
    QUANTILES,
    FailureModel,
    RunTimeModel,
)

Floats = NDArray[np.float64]

_MIDDLE_S, _WIDTH = 4.0, 2.0
"""Normalisation of ln seconds: `features` cuts values beyond 8 widths, here e^20 s."""


def run_time_files(model: RunTimeModel, trained_on: str) -> tuple[bytes, str]:
    """Return the ONNX file and the manifest of a model of run times.

    One matrix: the quantiles are linear in the inputs.
    """
    count = len(QUANTILES)
    inputs = (
        Input(column="log_history_s", mean=_MIDDLE_S, scale=_WIDTH),
        Input(column="log_history_s?"),
        Input(column="history_spread"),
        *model.inputs,
    )
    matrix = np.vstack(
        [
            np.full((1, count), _WIDTH),
            _MIDDLE_S - model.alone[None, :],
            model.by_scale[None, :],
            np.repeat(model.weights[:, None], count, axis=1),
        ]
    )

    def nodes(add: _Add) -> None:
        add("Gemm", ["x", "W", "b"], "y")

    data = _onnx(nodes, {"W": matrix, "b": model.alone}, len(inputs), count)
    return data, manifest_text(
        Manifest(
            name="run_time",
            version=1,
            objective="completion",
            output=Output.LOG_SECONDS,
            quantiles=QUANTILES,
            rank_by=0.5,
            onnx="run_time.onnx",
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=inputs,
            trained_on=trained_on,
        )
    )


def failure_files(model: FailureModel, trained_on: str) -> tuple[bytes, str]:
    """Return the ONNX file and the manifest of a model of failures."""
    inputs = (Input(column="failure_rate"), *model.inputs)
    first = np.zeros((len(inputs), 1))
    first[0, 0] = 1.0
    rest = np.concatenate([[0.0], model.weights])[:, None]

    def nodes(add: _Add) -> None:
        add("MatMul", ["x", "first"], "rate")
        add("Clip", ["rate", "min", "max"], "chance")
        add("Log", ["chance"], "log_chance")
        add("Sub", ["one", "chance"], "other")
        add("Log", ["other"], "log_other")
        add("Sub", ["log_chance", "log_other"], "odds")
        add("Mul", ["odds", "a"], "history")
        add("Gemm", ["x", "W", "b"], "correction")
        add("Add", ["history", "correction"], "z")
        add("Sigmoid", ["z"], "y")

    constants = {
        "first": first,
        "min": np.array(MIN_RATE),
        "max": np.array(MAX_RATE),
        "one": np.array(1.0),
        "a": np.array(model.history_weight),
        "W": rest,
        "b": np.array([model.offset]),
    }
    data = _onnx(nodes, constants, len(inputs), 1)
    return data, manifest_text(
        Manifest(
            name="failure",
            version=1,
            objective="reliability",
            output=Output.FAILURE,
            onnx="failure.onnx",
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=inputs,
            trained_on=trained_on,
        )
    )


_Add = Callable[[str, Sequence[str], str], None]


def _onnx(
    nodes: Callable[[_Add], None], constants: dict[str, Floats], inputs: int, outputs: int
) -> bytes:
    """Return a graph as ONNX (opset 13): float32, any number of rows."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    made: list[onnx.NodeProto] = []

    def add(kind: str, takes: Sequence[str], gives: str) -> None:
        made.append(helper.make_node(kind, list(takes), [gives]))

    nodes(add)
    graph = helper.make_graph(
        made,
        "edgeyard",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["pairs", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["pairs", outputs])],
        [
            numpy_helper.from_array(np.asarray(value, dtype=np.float32), name)
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
