"""Makes ``digits.onnx`` and ``digits_new_head.onnx``: a small network, really trained, in NumPy.

``python deploy/demo/make_digits.py`` needs NumPy and onnx, and reads the committed digits;
``--data`` makes those first and needs scikit-learn. The same input gives the same files.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
SEED = 7
EPOCHS = 40
BATCH = 32
RATE = 2e-3
TEST_ROWS = 360

Array = NDArray[np.float32]


def make_data() -> None:
    """Write the two datasets from scikit-learn's copy of the digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = digits.images.astype(np.uint8).reshape(-1, 1, 8, 8)
    y = digits.target.astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(x))
    for name, rows in (("test", order[:TEST_ROWS]), ("train", order[TEST_ROWS:])):
        np.savez_compressed(HERE / f"digits_{name}.npz", x=x[rows], y=y[rows])


def read(name: str) -> tuple[Array, NDArray[np.intp]]:
    """Pixels 0-16, shape (rows, 1, 8, 8), and class numbers."""
    with np.load(HERE / f"digits_{name}.npz") as file:
        return file["x"].astype(np.float32), file["y"].astype(np.intp)


def first_weights(seed: int) -> dict[str, Array]:
    """He initialisation (He et al. 2015, eq. 10); biases are 0."""
    rng = np.random.default_rng(seed)
    shapes = {
        "conv1.weight": (8, 1, 3, 3),
        "conv2.weight": (16, 8, 3, 3),
        "hidden.weight": (32, 64),
        "head.weight": (10, 32),
    }
    weights: dict[str, Array] = {}
    for name, shape in shapes.items():
        inputs = int(np.prod(shape[1:]))
        weights[name] = rng.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)
        weights[name.replace("weight", "bias")] = np.zeros(shape[0], np.float32)
    return weights


class Network:
    """Two convolutions with pooling, a hidden layer, a head; forward and backward."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.kept: dict[str, Array] = {}

    def logits(self, x: Array) -> Array:
        """Shape (rows, 10)."""
        kept = self.kept
        kept["pool1"] = self._stage("conv1", x / np.float32(16))
        kept["pool2"] = self._stage("conv2", kept["pool1"])
        kept["flat"] = kept["pool2"].reshape(len(x), -1)
        hidden = kept["flat"] @ self.weights["hidden.weight"].T + self.weights["hidden.bias"]
        kept["hidden"] = np.maximum(hidden, 0)
        return kept["hidden"] @ self.weights["head.weight"].T + self.weights["head.bias"]

    def gradients(self, x: Array, y: NDArray[np.intp]) -> dict[str, Array]:
        """Return the gradients of the mean softmax cross-entropy."""
        kept, weights = self.kept, self.weights
        logits = self.logits(x)
        exps = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = exps / exps.sum(axis=1, keepdims=True)
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        found = {"head.weight": error.T @ kept["hidden"], "head.bias": error.sum(axis=0)}
        error = (error @ weights["head.weight"]) * (kept["hidden"] > 0)
        found |= {"hidden.weight": error.T @ kept["flat"], "hidden.bias": error.sum(axis=0)}
        error = (error @ weights["hidden.weight"]).reshape(kept["pool2"].shape)
        error = self._stage_back("conv2", error, found)
        self._stage_back("conv1", error, found)
        return found

    def _stage(self, name: str, x: Array) -> Array:
        """Convolution 3x3 (same size), ReLU, maximum of 2x2."""
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
        out = np.einsum("nchwij,ocij->nohw", windows, self.weights[f"{name}.weight"], optimize=True)
        out = np.maximum(out + self.weights[f"{name}.bias"][:, None, None], 0)
        rows, channels, height, width = out.shape
        blocks = out.reshape(rows, channels, height // 2, 2, width // 2, 2)
        pooled: Array = blocks.max(axis=(3, 5))
        self.kept[f"{name}.windows"] = windows
        self.kept[f"{name}.mask"] = (blocks == pooled[:, :, :, None, :, None]) & (blocks > 0)
        return pooled

    def _stage_back(self, name: str, error: Array, found: dict[str, Array]) -> Array:
        mask = self.kept[f"{name}.mask"]
        rows, channels, height = mask.shape[:3]
        error = (mask * error[:, :, :, None, :, None]).reshape(rows, channels, 2 * height, -1)
        windows, weight = self.kept[f"{name}.windows"], self.weights[f"{name}.weight"]
        found[f"{name}.weight"] = np.einsum("nchwij,nohw->ocij", windows, error, optimize=True)
        found[f"{name}.bias"] = error.sum(axis=(0, 2, 3))
        padded = np.pad(error, ((0, 0), (0, 0), (1, 1), (1, 1)))
        turned = weight[:, :, ::-1, ::-1]
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
        back: Array = np.einsum("nohwij,ocij->nchw", windows, turned, optimize=True)
        return back


def train(x: Array, y: NDArray[np.intp]) -> dict[str, Array]:
    """Adam (Kingma & Ba 2015, algorithm 1)."""
    network = Network(first_weights(SEED))
    rng = np.random.default_rng(SEED)
    first = {name: np.zeros_like(value) for name, value in network.weights.items()}
    second = {name: np.zeros_like(value) for name, value in network.weights.items()}
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), BATCH):
            rows = order[begin : begin + BATCH]
            step += 1
            for name, gradient in network.gradients(x[rows], y[rows]).items():
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.001 * (gradient**2 - second[name])
                mean = first[name] / (1 - 0.9**step)
                spread = np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
                network.weights[name] -= np.float32(RATE) * (mean / spread).astype(np.float32)
    return network.weights


def to_onnx(weights: dict[str, Array], description: str) -> onnx.ModelProto:
    """The network as PyTorch would export it."""
    nodes = [
        helper.make_node("Div", ["image", "white"], ["scaled"], "scale"),
        helper.make_node(
            "Conv", ["scaled", "conv1.weight", "conv1.bias"], ["c1"], "conv1", pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node(
            "Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["p2"], "pool2", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p2"], ["flat"], "flatten"),
        helper.make_node(
            "Gemm", ["flat", "hidden.weight", "hidden.bias"], ["h"], "hidden", transB=1
        ),
        helper.make_node("Relu", ["h"], ["features"], "relu3"),
        helper.make_node(
            "Gemm", ["features", "head.weight", "head.bias"], ["logits"], "head", transB=1
        ),
    ]
    tensors = {"white": np.array(16, np.float32), **weights}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["rows", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 10])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
        doc_string=description,
    )
    # IR 8 and opset 17: read by every onnxruntime since 1.12, which Jetsons still have.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "edgeyard-demo"
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Write the files and say how well they do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", action="store_true", help="make the datasets, too")
    if parser.parse_args().data:
        make_data()
    x, y = read("train")
    weights = train(x, y)
    # Another seed: the trained network still knows the head that it began with.
    fresh = first_weights(SEED + 1)
    new_head = weights | {name: fresh[name] for name in ("head.weight", "head.bias")}
    test_x, test_y = read("test")
    for name, these, words in (
        ("digits", weights, "8x8 handwritten digits"),
        ("digits_new_head", new_head, "as digits.onnx, but its head is not trained"),
    ):
        onnx.save(to_onnx(these, words), HERE / f"{name}.onnx")
        right = float(np.mean(Network(these).logits(test_x).argmax(axis=1) == test_y))
        print(f"{name}: {right:.4f} right of {len(test_y)} test images")


if __name__ == "__main__":
    main()
