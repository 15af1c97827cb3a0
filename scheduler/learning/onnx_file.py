"""The one writer of ONNX files: a few operators from a table of inputs to a table of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Node = tuple[str, Sequence[str], str]
"""An operator, the names that it takes, and the one that it gives."""


def onnx_file(
    nodes: Sequence[Node],
    constants: Mapping[str, NDArray[np.float64]],
    *,
    inputs: int,
    outputs: int = 1,
) -> bytes:
    """Return a graph as ONNX (opset 13): float32, any number of rows. Equal graphs: equal bytes.

    Args:
        nodes: In the order of their use, from ``x``, shape (rows, inputs), to ``y``, shape (rows,
            outputs).
        constants: By name.
        inputs: Columns of ``x``.
        outputs: Columns of ``y``.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(kind, list(takes), [gives]) for kind, takes, gives in nodes],
        "edgeyard",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", outputs])],
        [
            numpy_helper.from_array(np.asarray(value, dtype=np.float32), name)
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
