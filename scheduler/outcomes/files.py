"""Models of outcomes as the files that the scheduler loads: ONNX and a manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.learning.features import Input
from edgeyard.scheduler.learning.manifest import Manifest, Output, manifest_text
from edgeyard.scheduler.learning.onnx_file import onnx_file
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.outcomes.models import (
    MAX_RATE,
    MIN_RATE,
    QUANTILES,
    ChanceModel,
    QuantileModel,
)

Floats = NDArray[np.float64]

_MIDDLE_S, _WIDTH = 4.0, 2.0
"""Normalisation of ln seconds: `features` cuts values beyond 8 widths, here e^20 s."""

DISTRIBUTION_COLUMNS: Mapping[ModelKind, tuple[str, str, str]] = {
    ModelKind.RUN_TIME: ("log_history_s", "history_spread", "history_error"),
    ModelKind.LOADING: ("log_loading_s", "loading_spread", "loading_error"),
}
"""Columns of the middle, the scale and the middle's standard error of the history's
distributions."""

_OBJECTIVES = {
    ModelKind.RUN_TIME: "completion",
    ModelKind.LOADING: "completion",
    ModelKind.FAILURE: "reliability",
    ModelKind.MEASUREMENT: "measurement",
}


def quantile_files(kind: ModelKind, model: QuantileModel, trained_on: str) -> tuple[bytes, str]:
    """Return the ONNX file and the manifest of a model of seconds.

    One matrix: the quantiles are linear in the inputs.

    Args:
        kind: One of `DISTRIBUTION_COLUMNS`.
        model: Fitted.
        trained_on: For people.
    """
    count = len(QUANTILES)
    middle, spread, error = DISTRIBUTION_COLUMNS[kind]
    inputs = (
        Input(column=middle, mean=_MIDDLE_S, scale=_WIDTH),
        Input(column=f"{middle}?"),
        Input(column=spread),
        Input(column=error),
        *model.inputs,
    )
    matrix = np.vstack(
        [
            np.full((1, count), _WIDTH),
            _MIDDLE_S - model.alone[None, :],
            model.by_scale[None, :],
            model.by_error[None, :],
            np.repeat(model.weights[:, None], count, axis=1),
        ]
    )

    data = onnx_file(
        [("Gemm", ["x", "W", "b"], "y")],
        {"W": matrix, "b": model.alone},
        inputs=len(inputs),
        outputs=count,
    )
    return data, _manifest(kind, data, inputs, trained_on, Output.LOG_SECONDS, quantiles=QUANTILES)


def chance_files(kind: ModelKind, model: ChanceModel, trained_on: str) -> tuple[bytes, str]:
    """Return the ONNX file and the manifest of a model of chances, one output per cause.

    Args:
        kind: Of the model.
        model: Fitted.
        trained_on: For people.
    """
    causes = len(model.rates)
    inputs = (*(Input(column=name) for name in model.rates), *model.inputs)
    first = np.zeros((len(inputs), causes))
    first[:causes] = np.eye(causes)
    rest = np.vstack([np.zeros((causes, causes)), model.weights])

    nodes = (
        ("MatMul", ["x", "first"], "rate"),
        ("Clip", ["rate", "min", "max"], "chance"),
        ("Log", ["chance"], "log_chance"),
        ("Sub", ["one", "chance"], "other"),
        ("Log", ["other"], "log_other"),
        ("Sub", ["log_chance", "log_other"], "odds"),
        ("Mul", ["odds", "a"], "history"),
        ("Gemm", ["x", "W", "b"], "correction"),
        ("Add", ["history", "correction"], "z"),
        ("Sigmoid", ["z"], "y"),
    )
    constants = {
        "first": first,
        "min": np.array(MIN_RATE),
        "max": np.array(MAX_RATE),
        "one": np.array(1.0),
        "a": model.history_weights,
        "W": rest,
        "b": model.offsets,
    }
    data = onnx_file(nodes, constants, inputs=len(inputs), outputs=causes)
    names = tuple(name.removesuffix("_failure_rate") for name in model.rates)
    return data, _manifest(
        kind, data, inputs, trained_on, Output.FAILURE, causes=names if causes > 1 else ()
    )


def _manifest(
    kind: ModelKind,
    data: bytes,
    inputs: tuple[Input, ...],
    trained_on: str,
    output: Output,
    *,
    quantiles: tuple[float, ...] = (),
    causes: tuple[str, ...] = (),
) -> str:
    return manifest_text(
        Manifest(
            name=kind.value,
            version=1,
            objective=_OBJECTIVES[kind],
            output=output,
            quantiles=quantiles,
            causes=causes,
            rank_by=0.5,
            onnx=f"{kind.value}.onnx",
            sha256=hashlib.sha256(data).hexdigest(),
            inputs=inputs,
            trained_on=trained_on,
        )
    )
