"""Makes ``scheduler/engine/probe.onnx``: ``python -m deploy.make_probe``.

A network that any board with ONNX Runtime runs in a moment: two small dense layers with fixed
weights. What it computes doesn't matter; that a board can load it, run it and give the result back
is what a probe finds out.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TARGET = Path(__file__).parents[1] / "scheduler" / "engine" / "probe.onnx"
WIDTHS = (16, 32, 4)


def make() -> bytes:
    """The file, the same at each call."""
    rng = np.random.default_rng(0)
    nodes, initializers, value = [], [], "input"
    for layer, (fan_in, fan_out) in enumerate(pairwise(WIDTHS)):
        weights = rng.normal(0, fan_in**-0.5, (fan_in, fan_out)).astype(np.float32)
        initializers.append(numpy_helper.from_array(weights, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"sum{layer}"]))
        value = "output" if layer == len(WIDTHS) - 2 else f"layer{layer}"
        nodes.append(helper.make_node("Tanh", [f"sum{layer}"], [value]))
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, WIDTHS[0]])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, WIDTHS[-1]])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    TARGET.write_bytes(make())
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
