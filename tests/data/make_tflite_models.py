"""Makes the ``.tflite`` files of ``deploy/demo`` and ``tests/data``.

Needs TensorFlow, which is no dependency of Edgeyard: in a throw-away environment,
``pip install tensorflow-cpu`` (2.21 was used) and ``python tests/data/make_tflite_models.py``.

Gradients are written out: TensorFlow's own gradient operators (``ReluGrad``,
``SparseSoftmaxCrossEntropyWithLogits``...) are not built into LiteRT.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "deploy" / "demo"
SEED = 7
EPOCHS = 40
BATCH = 32
CLASSES = 10


def pixels(x: Any) -> Any:
    """0-16 to 0-1, as rows of 64."""
    return tf.reshape(x, [-1, 64]) / 16.0


class Trainable(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """A network of two layers that can be trained on a board.

    Args:
        rows: Rows a batch; None: any number.
        own_rate: The learning rate is the model's own; None: ``train`` takes it.
    """

    def __init__(self, rows: int | None, own_rate: float | None) -> None:
        super().__init__()
        rng = np.random.default_rng(SEED)
        self.w1 = tf.Variable(rng.normal(0, 0.18, (64, 32)).astype(np.float32), name="hidden")
        self.b1 = tf.Variable(tf.zeros([32]), name="hidden_bias")
        # A running mean, as normalisation keeps one: a variable that is no weight, and that begins
        # with the same values as another.
        self.mean = tf.Variable(tf.zeros([32]), name="hidden_mean")
        self.w2 = tf.Variable(rng.normal(0, 0.25, (32, CLASSES)).astype(np.float32), name="head")
        self.b2 = tf.Variable(tf.zeros([CLASSES]), name="head_bias")
        image = tf.TensorSpec([rows, 1, 8, 8], tf.float32, name="x")
        label = tf.TensorSpec([rows], tf.int32, name="y")
        rate = tf.TensorSpec([], tf.float32, name="learning_rate")
        if own_rate is None:
            self.train = tf.function(self._train, input_signature=[image, label, rate])
        else:
            self.train = tf.function(
                lambda x, y: self._train(x, y, own_rate), input_signature=[image, label]
            )
        self.infer = tf.function(self._infer, input_signature=[image])

    def _infer(self, x: Any) -> dict[str, Any]:
        hidden = tf.nn.relu(pixels(x) @ self.w1 + self.b1)
        return {"logits": hidden @ self.w2 + self.b2}

    def _train(self, x: Any, y: Any, learning_rate: Any) -> dict[str, Any]:
        flat = pixels(x)
        hidden = tf.nn.relu(flat @ self.w1 + self.b1)
        chances = tf.nn.softmax(hidden @ self.w2 + self.b2)
        wanted = tf.one_hot(y, CLASSES)
        loss = -tf.reduce_mean(tf.reduce_sum(wanted * tf.math.log(chances + 1e-30), axis=1))
        error = (chances - wanted) / tf.cast(tf.shape(flat)[0], tf.float32)
        back = tf.matmul(error, self.w2, transpose_b=True) * tf.cast(hidden > 0, tf.float32)
        for variable, gradient in (
            (self.w2, tf.matmul(hidden, error, transpose_a=True)),
            (self.b2, tf.reduce_sum(error, axis=0)),
            (self.w1, tf.matmul(flat, back, transpose_a=True)),
            (self.b1, tf.reduce_sum(back, axis=0)),
        ):
            variable.assign_sub(learning_rate * gradient)
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(hidden, axis=0))
        return {"loss": loss}


class Classifier(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """The network of ``digits.onnx``, with its trained weights, for engine tflite."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = _trained_weights()
        image = tf.TensorSpec([None, 1, 8, 8], tf.float32, name="image")
        self.infer = tf.function(self._infer, input_signature=[image])

    def _infer(self, image: Any) -> dict[str, Any]:
        weights = self.weights
        x = tf.reshape(image, [-1, 8, 8, 1]) / 16.0
        for name in ("conv1", "conv2"):
            kernel = weights[f"{name}.weight"].transpose(2, 3, 1, 0)
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + weights[f"{name}.bias"])
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        # ONNX flattens channels first.
        x = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [-1, 64])
        x = tf.nn.relu(x @ weights["hidden.weight"].T + weights["hidden.bias"])
        return {"logits": x @ weights["head.weight"].T + weights["head.bias"]}


def _trained_weights() -> dict[str, Any]:
    """The weights in ``digits.onnx``, read as the runner does: no onnx package is needed."""
    sys.path.insert(0, str(HERE.parents[1] / "src"))
    from edgeyard.devices.runner import onnx_file as onnx
    from edgeyard.devices.runner.onnx_wire import Message

    graph = Message(onnx.open_model(DEMO / "digits.onnx")).messages(onnx.MODEL_GRAPH)[0]
    weights = {}
    for tensor in graph.messages(onnx.GRAPH_INITIALIZER):
        dims = tensor.integers(onnx.TENSOR_DIMS, onnx.MAX_DIMENSIONS)
        values = np.frombuffer(tensor.content(onnx.TENSOR_RAW), np.float32)
        weights[tensor.string(onnx.TENSOR_NAME)] = values.reshape(dims)
    return weights


def convert(module: Any, signatures: dict[str, Any]) -> bytes:
    """A tflite file of built-in operators only."""
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter.experimental_enable_resource_variables = True
        content: bytes = converter.convert()
        return content


def trainable(rows: int | None, own_rate: float | None) -> bytes:
    """A trainable model with both signatures."""
    model = Trainable(rows, own_rate)
    return convert(
        model,
        {
            "train": model.train.get_concrete_function(),
            "infer": model.infer.get_concrete_function(),
        },
    )


def main() -> None:
    """Write every file."""
    classifier = Classifier()
    infer_only = Trainable(None, None)
    files = {
        DEMO / "digits.tflite": convert(
            classifier, {"serving_default": classifier.infer.get_concrete_function()}
        ),
        DEMO / "digits_trainable.tflite": trainable(None, None),
        HERE / "trainable_fixed.tflite": trainable(8, 0.1),
        HERE / "train_without_infer.tflite": convert(
            infer_only, {"train": infer_only.train.get_concrete_function()}
        ),
    }
    for path, content in files.items():
        path.write_bytes(content)
        sys.stdout.write(f"{path.name}: {len(content)} bytes\n")


if __name__ == "__main__":
    main()
