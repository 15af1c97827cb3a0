"""A small network in NumPy: its slopes, and its ONNX file.

``z = relu(x W1 + b1) W2 + x S + b2``; the file has one output, ``sigmoid(z)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.learning.onnx_file import onnx_file

Array = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Network:
    """Weights of one hidden layer and a linear way past it.

    Attributes:
        weights: By name: W1, b1, W2, S, b2.
    """

    weights: dict[str, Array] = field(default_factory=dict)

    def raw(self, x: Array) -> Array:
        """Before the last step; shape (rows, outputs)."""
        w = self.weights
        hidden = np.maximum(x @ w["W1"] + w["b1"], 0.0)
        return hidden @ w["W2"] + x @ w["S"] + w["b2"]

    def predict(self, x: Array) -> Array:
        """Return the sigmoid of `raw`; shape (rows, outputs)."""
        found: Array = 1.0 / (1.0 + np.exp(-self.raw(np.asarray(x, dtype=np.float64))))
        return found


def start(inputs: int, outputs: int, hidden: int, seed: int) -> Network:
    """He-initialised; the way out of the hidden layer begins at nearly nothing."""
    rng = np.random.default_rng(seed)
    return Network(
        weights={
            "W1": rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, hidden)),
            "b1": np.zeros(hidden),
            "W2": rng.normal(0.0, 0.01, (hidden, outputs)),
            "S": np.zeros((inputs, outputs)),
            "b2": np.zeros(outputs),
        },
    )


def slopes(network: Network, x: Array, out: Array) -> dict[str, Array]:
    """Return the slopes of a sum by the weights.

    Args:
        x: Shape (rows, inputs).
        out: Slopes of the sum by what `Network.raw` gives, shape (rows, outputs).
    """
    w = network.weights
    before = x @ w["W1"] + w["b1"]
    hidden = np.maximum(before, 0.0)
    back = (out @ w["W2"].T) * (before > 0)
    return {
        "W1": x.T @ back,
        "b1": back.sum(axis=0),
        "W2": hidden.T @ out,
        "S": x.T @ out,
        "b2": out.sum(axis=0),
    }


def network_from_onnx(data: bytes) -> Network:
    """Return the network of which `onnx_bytes` made a file.

    Raises:
        ConfigError: It is another network than these.
    """
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper

    try:
        graph = onnx.load_model_from_string(data).graph
    except DecodeError as error:
        raise ConfigError([f"it is not an ONNX file: {error}"]) from error
    weights = {
        each.name: numpy_helper.to_array(each).astype(np.float64) for each in graph.initializer
    }
    network = Network(weights=weights)
    if weights.keys() != {"W1", "b1", "W2", "S", "b2"} or onnx_bytes(network) != data:
        raise ConfigError(
            [
                "it can't be trained: it is not a network of one hidden layer and one output as "
                "`edgeyard ste run --train NAME --new` makes"
            ]
        )
    return network


def onnx_bytes(network: Network) -> bytes:
    """Return the sigmoid of a network with one output as an ONNX file."""
    return onnx_file(
        [
            ("Gemm", ["x", "W1", "b1"], "before"),
            ("Relu", ["before"], "hidden"),
            ("Gemm", ["x", "S", "b2"], "past"),
            ("Gemm", ["hidden", "W2", "past"], "z"),
            ("Sigmoid", ["z"], "y"),
        ],
        network.weights,
        inputs=len(network.weights["W1"]),
    )
