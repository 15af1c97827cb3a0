"""Makes ``probe.onnx`` and a canary, ``dense.onnx``: ``python -m deploy.make_probe``.

Networks of dense layers with fixed weights that any board runs in a moment. What they compute
doesn't matter; that a board can load one, run it and give the result back is what a probe finds
out, and how long that takes is what a canary does.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_ENGINE = Path(__file__).parents[1] / "scheduler" / "engine"
TARGETS = {
    _ENGINE / "probe.onnx": (16, 32, 4),
    _ENGINE / "canary_models" / "dense.onnx": (32, 64, 64, 8),
}
"""Widths of the layers, by file."""


def make(widths: tuple[int, ...]) -> bytes:
    """The file, the same at each call."""
    rng = np.random.default_rng(0)
    nodes, initializers, value = [], [], "input"
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        weights = rng.normal(0, fan_in**-0.5, (fan_in, fan_out)).astype(np.float32)
        initializers.append(numpy_helper.from_array(weights, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"sum{layer}"]))
        value = "output" if layer == len(widths) - 2 else f"layer{layer}"
        nodes.append(helper.make_node("Tanh", [f"sum{layer}"], [value]))
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, widths[0]])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, widths[-1]])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    for target, layers in TARGETS.items():
        target.write_bytes(make(layers))
        print(f"{target}: {target.stat().st_size} bytes")
