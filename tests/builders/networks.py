"""Small ONNX networks, and the committed sample models and data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "deploy" / "demo"
DATA = ROOT / "tests" / "data"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""The real networks that come with the onnx package, with constant weights."""

FEATURES, HIDDEN, CLASSES = 6, 8, 3


def digits(name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """x and y of ``digits_train`` or ``digits_test``."""
    with np.load(DEMO / f"digits_{name}.npz") as file:
        return file["x"], file["y"]


def blobs(rows: int = 120, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Three well separated clouds of points, and the number of the cloud."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    centres = np.random.default_rng(99).normal(0, 3, (CLASSES, FEATURES))
    x = centres[y] + rng.normal(0, 0.3, (rows, FEATURES))
    return x.astype(np.float32), y


def weights(*shape: int, dtype: str = "float32", seed: int = 5) -> NDArray[np.generic]:
    """Small random numbers."""
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(dtype)


def network(
    head: Sequence[onnx.NodeProto],
    tensors: dict[str, NDArray[np.generic]],
    *,
    outputs: Sequence[str] = ("logits",),
    dtype: str = "float32",
    batch: int | str = "rows",
    weights_are_inputs: bool = False,
    extra: Sequence[onnx.NodeProto] = (),
    input_shape: Sequence[int] = (FEATURES,),
) -> onnx.ModelProto:
    """A hidden layer that gives ``features`` from ``x``, then the nodes of ``head``."""
    body: dict[str, NDArray[np.generic]] = {
        "body.weight": weights(FEATURES, HIDDEN, dtype=dtype, seed=1),
        "body.bias": weights(HIDDEN, dtype=dtype, seed=2),
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Gemm", ["x", "body.weight", "body.bias"], ["h"], "body"),
        helper.make_node("Tanh", ["h"], ["features"], "tanh"),
        *extra,
        *head,
    ]
    stored = [numpy_helper.from_array(value, name) for name, value in {**body, **tensors}.items()]
    inputs = [helper.make_tensor_value_info("x", kind, [batch, *input_shape])]
    if weights_are_inputs:
        inputs += [
            helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in stored
        ]
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [helper.make_tensor_value_info(name, *_type_of(name, kind)) for name in outputs],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def _type_of(name: str, kind: int) -> tuple[int, list[str]]:
    """Class numbers are called ``label``, what has a row a token ``scores``."""
    return (
        (TensorProto.INT64, ["rows"])
        if name == "label"
        else (
            kind,
            ["rows", "tokens", name] if name == "scores" else ["rows", name],
        )
    )


def gemm(dtype: str = "float32", **attributes: Any) -> onnx.ModelProto:
    """A head as PyTorch exports it."""
    transposed = bool(attributes.get("transB", 0))
    shape = (CLASSES, HIDDEN) if transposed else (HIDDEN, CLASSES)
    head = helper.make_node("Gemm", ["features", "w", "b"], ["logits"], "head", **attributes)
    tensors = {"w": weights(*shape, dtype=dtype), "b": weights(CLASSES, dtype=dtype, seed=6)}
    return network([head], tensors, dtype=dtype)


def initializers(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """By name."""
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """The model in a file."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
