"""A small network in NumPy: trained with Adam, written as ONNX.

``y = relu(x W1 + b1) W2 + x S + b2``; then, for quantiles, the outer two are kept apart from the
middle one by softplus, so that they never cross; for a chance, a sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError

Array = NDArray[np.float64]

QUANTILES = (0.1, 0.5, 0.9)
STEPS = 1200


@dataclass(slots=True, eq=False)
class Network:
    """Weights of one hidden layer and a linear way past it.

    Attributes:
        outputs: 3 for quantiles, 1 for a chance.
        weights: By name: W1, b1, W2, S, b2.
        widened: By how much the outer quantiles are moved outwards.
    """

    outputs: int
    weights: dict[str, Array] = field(default_factory=dict)
    widened: tuple[float, float] = (0.0, 0.0)

    def raw(self, x: Array) -> Array:
        """Before the last step; shape (rows, outputs)."""
        w = self.weights
        hidden = np.maximum(x @ w["W1"] + w["b1"], 0.0)
        return hidden @ w["W2"] + x @ w["S"] + w["b2"]

    def predict(self, x: Array) -> Array:
        """Quantiles, or the chance; shape (rows, outputs)."""
        found = _last(self.raw(np.asarray(x, dtype=np.float64)))
        if self.outputs == len(QUANTILES):
            found[:, 0] -= self.widened[0]
            found[:, 2] += self.widened[1]
        return found


def _last(z: Array) -> Array:
    if z.shape[1] == 1:
        return 1.0 / (1.0 + np.exp(-z))
    middle = z[:, 1]
    return np.stack(
        [middle - np.logaddexp(0, z[:, 0]), middle, middle + np.logaddexp(0, z[:, 2])], axis=1
    )


def start(inputs: int, outputs: int, hidden: int, seed: int) -> Network:
    """He-initialised; the way out of the hidden layer begins at nearly nothing."""
    rng = np.random.default_rng(seed)
    return Network(
        outputs=outputs,
        weights={
            "W1": rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, hidden)),
            "b1": np.zeros(hidden),
            "W2": rng.normal(0.0, 0.01, (hidden, outputs)),
            "S": np.zeros((inputs, outputs)),
            "b2": np.zeros(outputs),
        },
    )


def train(
    network: Network,
    x: Array,
    y: Array,
    *,
    epochs: int | None = None,
    batch: int = 256,
    rate: float = 5e-3,
    decay: float = 3e-3,
    seed: int = 0,
) -> None:
    """Adam (Kingma and Ba, 2015) with weights drawn to where they began.

    Args:
        network: Changed in place.
        x: Shape (rows, inputs).
        y: Shape (rows,): ln seconds for quantiles, 0 or 1 for a chance.
        epochs: Passes over the rows; None: as many as make `STEPS` steps, at least 2.
        decay: Of the distance to the first weights; biases are free.
    """
    gradient = _log_loss if network.outputs == 1 else _pinball
    rng = np.random.default_rng(seed)
    first = {name: value.copy() for name, value in network.weights.items()}
    moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in first.items()}
    step = 0
    per_epoch = -(-len(x) // batch)
    epochs = max(2, STEPS // per_epoch) if epochs is None else epochs
    steps = epochs * per_epoch
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), batch):
            step += 1
            part = order[begin : begin + batch]
            slopes = _slopes(network, x[part], y[part], gradient)
            pace = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, slope in slopes.items():
                if not name.startswith("b"):
                    slope = slope + decay * (network.weights[name] - first[name])
                mean, square = moments[name]
                mean += 0.1 * (slope - mean)
                square += 0.001 * (slope * slope - square)
                network.weights[name] -= (
                    pace * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
                )


def _slopes(
    network: Network, x: Array, y: Array, gradient: Callable[[Array, Array], Array]
) -> dict[str, Array]:
    return slopes(network, x, gradient(network.raw(x), y) / len(x))


def slopes(network: Network, x: Array, out: Array) -> dict[str, Array]:
    """Return the slopes of a sum by the weights.

    Args:
        network: The network.
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


def _pinball(z: Array, y: Array) -> Array:
    found = _last(z)
    # d pinball / d quantile: -q where the truth is above, 1 - q where it is below
    slope = np.where(y[:, None] > found, -np.array(QUANTILES), 1 - np.array(QUANTILES))
    gate = 1.0 / (1.0 + np.exp(-z))
    return np.stack(
        [-slope[:, 0] * gate[:, 0], slope.sum(axis=1), slope[:, 2] * gate[:, 2]], axis=1
    )


def _log_loss(z: Array, y: Array) -> Array:
    return _last(z) - y[:, None]


def merged(networks: Sequence[Network]) -> Network:
    """One network whose numbers before the last step are the mean of theirs."""
    count = len(networks)

    def joined(name: str, axis: int) -> Array:
        return np.concatenate([each.weights[name] for each in networks], axis=axis)

    def mean(name: str) -> Array:
        found: Array = np.stack([each.weights[name] for each in networks]).mean(axis=0)
        return found

    return Network(
        outputs=networks[0].outputs,
        weights={
            "W1": joined("W1", 1),
            "b1": joined("b1", 0),
            "W2": joined("W2", 0) / count,
            "S": mean("S"),
            "b2": mean("b2"),
        },
    )


def network_from_onnx(data: bytes) -> Network:
    """Return the network of which `onnx_bytes` made a file with one output.

    Raises:
        ConfigError: It is another network than these.
    """
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper

    try:
        graph = onnx.load_model_from_string(data).graph
    except DecodeError as error:
        raise ConfigError([f"it is no ONNX file: {error}"]) from error
    weights = {
        each.name: numpy_helper.to_array(each).astype(np.float64) for each in graph.initializer
    }
    network = Network(outputs=1, weights=weights)
    if weights.keys() != {"W1", "b1", "W2", "S", "b2"} or onnx_bytes(network) != data:
        raise ConfigError(
            [
                "it can't be trained: it is no network of one hidden layer and one output as "
                "`edgeyard ste run --train NAME --new` makes"
            ]
        )
    return network


def onnx_bytes(network: Network) -> bytes:
    """As ONNX (opset 13): float32, any number of rows."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def node(kind: str, takes: Sequence[str], gives: str, axis: int | None = None) -> str:
        more: dict[str, Any] = {} if axis is None else {"axis": axis}
        nodes.append(helper.make_node(kind, list(takes), [gives], **more))
        return gives

    def constant(name: str, value: NDArray[np.float64]) -> str:
        constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    own = {name: constant(name, value) for name, value in network.weights.items()}
    hidden = node("Relu", [node("Gemm", ["x", own["W1"], own["b1"]], "before")], "hidden")
    past = node("Gemm", ["x", own["S"], own["b2"]], "past")
    z = node("Gemm", [hidden, own["W2"], past], "z")
    if network.outputs == 1:
        node("Sigmoid", [z], "y")
    else:
        nodes.append(helper.make_node("Split", [z], ["low", "middle", "high"], axis=1))
        gaps = []
        for side, more in zip(("low", "high"), network.widened, strict=True):
            moved = constant(f"{side}_more", np.array([more]))
            gaps.append(
                node("Add", [node("Softplus", [side], f"{side}_soft"), moved], f"{side}_gap")
            )
        ends = node("Sub", ["middle", gaps[0]], "down"), node("Add", ["middle", gaps[1]], "up")
        node("Concat", [ends[0], "middle", ends[1]], "y", axis=1)
    graph = helper.make_graph(
        nodes,
        "edgeyard",
        [
            helper.make_tensor_value_info(
                "x", TensorProto.FLOAT, ["pairs", len(network.weights["W1"])]
            )
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["pairs", network.outputs])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
