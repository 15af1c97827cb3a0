"""On-device training of ONNX models: the last dense layer, and nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edgeyard.devices.runner.engine import TrainingConfig, TrainingResult
from edgeyard.devices.runner.training_loop import split_rows
from edgeyard.errors import RunFailed
from tests.builders.networks import (
    CLASSES,
    DEMO,
    FEATURES,
    HIDDEN,
    LIGHT,
    blobs,
    digits,
    gemm,
    initializers,
    network,
    saved,
    weights,
)
from tests.builders.runner import training_engine

CONFIG = TrainingConfig(epochs=10, batch_size=16, learning_rate=0.3, seed=3)


def train(
    model: onnx.ModelProto | Path,
    folder: Path,
    x: NDArray[Any],
    y: NDArray[Any],
    config: TrainingConfig = CONFIG,
    **parameters: object,
) -> TrainingResult:
    path = model if isinstance(model, Path) else saved(model, folder)
    return training_engine("ort").train(
        path, config, x, y, folder, lambda percent, phase: None, threads=1, parameters=parameters
    )


def failure(*arguments: Any, **more: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        train(*arguments, **more)
    return caught.value


def answers(model: Path, x: NDArray[Any], output: int = 0) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (name,) = [each.name for each in session.get_inputs()]
    found: NDArray[Any] = session.run(None, {name: x})[output]
    return found


def test_a_new_head_on_trained_convolutions_learns_the_digits(tmp_path: Path) -> None:
    x, y = digits("train")
    path = DEMO / "digits_new_head.onnx"
    config = replace(CONFIG, epochs=5, learning_rate=0.1, batch_size=32)
    result = train(path, tmp_path, x, y, config)

    onnx.checker.check_model(str(result.model_file), full_check=True)
    assert result.epoch_losses[-1] < 0.1 * result.epoch_losses[0]
    assert result.step_losses[0] > 1.5
    assert len(result.step_losses) == len(result.step_ms) == 5 * len(range(0, 1150, 32))
    assert min(result.step_ms) > 0
    assert len(result.validation_losses) == 5

    _, validation = split_rows(len(x), config)
    right = answers(result.model_file, x[validation].astype(np.float32)).argmax(axis=1)
    assert np.mean(right == y[validation]) == pytest.approx(result.validation_accuracy[-1])
    test_x, test_y = digits("test")
    right = answers(result.model_file, test_x.astype(np.float32)).argmax(axis=1)
    assert np.mean(right == test_y) > 0.95

    before, after = initializers(onnx.load(path)), initializers(onnx.load(result.model_file))
    assert before.keys() == after.keys()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}
    assert "last dense layer" in result.trained
    assert "330 values" in result.trained
    assert [each.name for each in tmp_path.iterdir()] == ["trained.onnx"]


def matmul(*nodes: onnx.NodeProto, **tensors: NDArray[Any]) -> onnx.ModelProto:
    return network(
        [helper.make_node("MatMul", ["features", "w"], ["product"], "head"), *nodes],
        {"w": weights(HIDDEN, CLASSES), **tensors},
    )


BIAS = weights(CLASSES, seed=6)


def with_tail(*operators: str) -> onnx.ModelProto:
    names = [*(f"t{number}" for number in range(len(operators))), "logits"]
    nodes = [helper.make_node("Gemm", ["features", "w", "b"], [names[0]], "head")]
    for number, operator in enumerate(operators):
        attributes: dict[str, Any] = {"axis": 1} if operator == "Softmax" else {}
        nodes.append(helper.make_node(operator, [names[number]], [names[number + 1]], **attributes))
    return network(nodes, {"w": weights(HIDDEN, CLASSES), "b": BIAS})


HEADS = {
    "gemm": lambda: gemm(),
    "gemm, transposed": lambda: gemm(transB=1),
    "gemm, scaled": lambda: gemm(alpha=0.5, beta=-2.0, transB=1),
    "gemm, bias not used": lambda: gemm(beta=0.0),
    "gemm, float64": lambda: gemm("float64"),
    "gemm, float16": lambda: gemm("float16"),
    "gemm, no bias": lambda: network(
        [helper.make_node("Gemm", ["features", "w"], ["logits"])], {"w": weights(HIDDEN, CLASSES)}
    ),
    "gemm, bias of one row": lambda: network(
        [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES), "b": BIAS.reshape(1, CLASSES)},
    ),
    "gemm, one bias for all": lambda: network(
        [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES), "b": np.array(0.5, np.float32)},
    ),
    "matmul": lambda: matmul(helper.make_node("Identity", ["product"], ["logits"])),
    "matmul and add": lambda: matmul(helper.make_node("Add", ["product", "b"], ["logits"]), b=BIAS),
    "add and matmul": lambda: matmul(helper.make_node("Add", ["b", "product"], ["logits"]), b=BIAS),
    "softmax": lambda: with_tail("Softmax"),
    "log-softmax": lambda: with_tail("LogSoftmax"),
    "several": lambda: with_tail("Dropout", "Flatten", "Softmax", "Identity"),
    "weights from a node": lambda: network(
        [
            helper.make_node(
                "Constant", [], ["w"], value=numpy_helper.from_array(weights(HIDDEN, CLASSES))
            ),
            helper.make_node("Gemm", ["features", "w", "b"], ["logits"]),
        ],
        {"b": BIAS},
    ),
    "weights that are computed": lambda: network(
        [
            helper.make_node("Transpose", ["stored"], ["w"]),
            helper.make_node("Gemm", ["features", "w", "b"], ["logits"]),
        ],
        {"b": BIAS, "stored": weights(CLASSES, HIDDEN)},
    ),
    "weights that are inputs, too": lambda: network(
        [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES), "b": BIAS},
        weights_are_inputs=True,
    ),
    "another output that needs the head": lambda: network(
        [
            helper.make_node("Gemm", ["features", "w", "b"], ["logits"]),
            helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        ],
        {"w": weights(HIDDEN, CLASSES), "b": BIAS},
        outputs=["label", "logits"],
    ),
    "another output that does not": lambda: network(
        [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES), "b": BIAS},
        outputs=["logits", "features"],
    ),
    "a fixed batch": lambda: network(
        [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES), "b": BIAS},
        batch=7,
    ),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", HEADS)
def test_every_usual_head_is_trained(tmp_path: Path, name: str) -> None:
    model = HEADS[name]()
    x, y = blobs()
    result = train(model, tmp_path, x, y)
    onnx.checker.check_model(str(result.model_file), full_check=True)
    assert result.epoch_losses[-1] < 0.5 * result.epoch_losses[0]
    assert result.validation_accuracy[-1] > 0.9

    trained = onnx.load(result.model_file)
    before, after = initializers(model), initializers(trained)
    for tensor in ("body.weight", "body.bias"):
        np.testing.assert_array_equal(before[tensor], after[tensor])
    assert {each.name: each.type for each in trained.graph.output} == {
        each.name: each.type for each in model.graph.output
    }

    output = [each.name for each in model.graph.output].index("logits")
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    if name == "a fixed batch":
        x, y = x[:7], y[:7]
        assert np.mean(answers(result.model_file, x.astype(kind)).argmax(axis=1) == y) > 0.8
        return
    _, validation = split_rows(len(x), CONFIG)
    right = answers(result.model_file, x[validation].astype(kind), output).argmax(axis=1)
    assert np.mean(right == y[validation]) == pytest.approx(result.validation_accuracy[-1])


def test_weights_that_the_body_uses_too_stay_what_they_are_there(tmp_path: Path) -> None:
    shared = weights(HIDDEN, HIDDEN)
    model = network(
        [helper.make_node("Gemm", ["twice", "w"], ["logits"])],
        {"w": shared},
        extra=[helper.make_node("MatMul", ["features", "w"], ["twice"])],
    )
    x, y = blobs()
    result = train(model, tmp_path, x, y)
    after = initializers(onnx.load(result.model_file))
    np.testing.assert_array_equal(after["w"], shared)
    assert not np.array_equal(after["w_trained"], shared)


def test_a_model_that_is_one_dense_layer_gets_the_data_itself(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", 1, ["n", FEATURES])],
        [helper.make_tensor_value_info("y", 1, ["n", CLASSES])],
        [
            numpy_helper.from_array(np.zeros((FEATURES, CLASSES), np.float32), "w"),
            numpy_helper.from_array(np.zeros(CLASSES, np.float32), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x, y = blobs()
    result = train(model, tmp_path, x, y)
    assert result.step_losses[0] == pytest.approx(np.log(CLASSES))
    assert result.validation_accuracy[-1] > 0.9


def test_targets_are_learnt_by_mean_squared_error(tmp_path: Path) -> None:
    x, _ = blobs()
    model = gemm()
    wanted = answers(saved(model, tmp_path), x) * 2 + 1
    config = replace(CONFIG, epochs=200, learning_rate=0.5)
    result = train(model, tmp_path, x, wanted, config)
    assert result.validation_losses[-1] < 0.01
    assert list(result.validation_accuracy) == []
    np.testing.assert_allclose(answers(result.model_file, x), wanted, atol=0.3)


def test_a_step_is_that_of_the_formula(tmp_path: Path) -> None:
    x, y = blobs(8)
    model = gemm()
    config = TrainingConfig(epochs=1, batch_size=8, learning_rate=0.1, validation_split=0.0)
    result = train(model, tmp_path, x, y, config)
    stored = initializers(model)
    features = np.tanh(x @ stored["body.weight"] + stored["body.bias"])
    logits = features @ stored["w"] + stored["b"]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    error = (chances - np.eye(CLASSES)[y]) / 8
    after = initializers(onnx.load(result.model_file))
    np.testing.assert_allclose(after["w"], stored["w"] - 0.1 * features.T @ error, atol=1e-5)
    np.testing.assert_allclose(after["b"], stored["b"] - 0.1 * error.sum(axis=0), atol=1e-5)
    (loss,) = result.step_losses
    assert loss == pytest.approx(-np.log(chances[np.arange(8), y]).mean(), abs=1e-5)
    assert list(result.validation_losses) == []


def test_the_same_seed_gives_the_same_model(tmp_path: Path) -> None:
    x, y = blobs()
    first = train(gemm(), tmp_path, x, y).model_file.read_bytes()
    again = train(gemm(), tmp_path, x, y).model_file.read_bytes()
    other = train(gemm(), tmp_path, x, y, replace(CONFIG, seed=4)).model_file.read_bytes()
    assert first == again != other


def test_a_real_network_whose_weights_are_made_by_nodes_is_trained(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((4, 3, 224, 224), np.float32)
    config = TrainingConfig(epochs=1, batch_size=2, learning_rate=0.01, validation_split=0.25)
    result = train(LIGHT / "light_shufflenet.onnx", tmp_path, x, np.array([1, 2, 3, 4]), config)
    onnx.checker.check_model(str(result.model_file))
    assert answers(result.model_file, x[:1]).shape == (1, 1000)


@pytest.mark.parametrize("network_name", ["squeezenet", "densenet121"])
def test_a_network_without_a_dense_last_layer_is_refused(tmp_path: Path, network_name: str) -> None:
    x = np.zeros((2, 3, 224, 224), np.float32)
    found = failure(LIGHT / f"light_{network_name}.onnx", tmp_path, x, np.array([0, 1]))
    assert found.category == "user_model"
    assert "last dense layer" in found.sentence


def per_token() -> onnx.ModelProto:
    return network(
        [helper.make_node("MatMul", ["tokens", "w"], ["scores"])],
        {"w": weights(4, CLASSES), "shape": np.array([-1, 2, 4])},
        outputs=["scores"],
        extra=[helper.make_node("Reshape", ["features", "shape"], ["tokens"])],
    )


def two_inputs() -> onnx.ModelProto:
    model = gemm()
    model.graph.input.append(helper.make_tensor_value_info("more", 1, ["rows", 2]))
    return model


MODELS = {
    "per token": (per_token, "one row of floats"),
    "two inputs": (two_inputs, "one input"),
    "both factors from the input": (
        lambda: network(
            [
                helper.make_node("Transpose", ["features"], ["turned"]),
                helper.make_node("MatMul", ["features", "turned"], ["logits"]),
            ],
            {},
        ),
        "ends in MatMul",
    ),
    "bias by row": (
        lambda: network(
            [helper.make_node("Gemm", ["features", "w", "b"], ["logits"])],
            {"w": weights(HIDDEN, CLASSES), "b": weights(1, 2)[:, :1].repeat(2, 0)},
            batch=2,
        ),
        "bias has the shape (2, 1)",
    ),
    "a recurrent end": (
        lambda: network([helper.make_node("Relu", ["features"], ["logits"])], {}),
        "ends in Relu",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_can_not_be_trained_are_refused_with_the_reason(
    tmp_path: Path, name: str
) -> None:
    make, said = MODELS[name]
    found = failure(make(), tmp_path, *blobs())
    assert found.category == "user_model"
    assert said in found.sentence


def test_activations_that_are_not_finite_are_the_models_fault(tmp_path: Path) -> None:
    x, y = blobs()
    model = network(
        [helper.make_node("Gemm", ["logs", "w"], ["logits"])],
        {"w": weights(HIDDEN, CLASSES)},
        extra=[helper.make_node("Log", ["features"], ["logs"])],
    )
    found = failure(model, tmp_path, x, y)
    assert found.category == "user_model"
    assert "not finite" in found.sentence
    assert not (tmp_path / "body.onnx").exists()


X, Y = blobs()
DATA: dict[str, tuple[NDArray[Any], NDArray[Any], str]] = {
    "other features": (X[:, :4], Y, "'x' takes [6]"),
    "one dimension more": (X[:, :, None], Y, "'x' takes [6]"),
    "fewer labels": (X, Y[:-1], "120 rows, but y has 119"),
    "no rows": (X[:0], Y[:0], "no rows"),
    "labels out of range": (X, Y + 1, "1 to 3"),
    "negative labels": (X, Y - 1, "-1 to 1"),
    "targets of another width": (X, X[:, :2], "3 values per row"),
    "NaN in x": (np.where(X[3, 3] == X, np.nan, X), Y, "not finite"),
    "text": (X.astype(str), Y, "instead of numbers"),
    "a single number": (X, np.array(3), "single number"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    x, y, said = DATA[name]
    found = failure(gemm(), tmp_path, x, y)
    assert found.category == "user_input"
    assert said in found.sentence


def test_targets_for_a_softmax_are_refused(tmp_path: Path) -> None:
    found = failure(with_tail("Softmax"), tmp_path, X, np.eye(3, dtype=np.float32)[Y])
    assert found.category == "user_input"
    assert "class number" in found.sentence


def test_floats_for_a_network_of_tokens_are_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["f"], to=1),
            helper.make_node("Gemm", ["f", "w"], ["y"]),
        ],
        "tokens",
        [helper.make_tensor_value_info("x", 7, ["n", FEATURES])],
        [helper.make_tensor_value_info("y", 1, ["n", CLASSES])],
        [numpy_helper.from_array(weights(FEATURES, CLASSES), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert "int64" in failure(model, tmp_path, X, Y).sentence
    assert train(model, tmp_path, (X * 3).astype(np.int16), Y).model_file.exists()


def test_a_loss_that_runs_away_names_the_learning_rate(tmp_path: Path) -> None:
    config = replace(CONFIG, learning_rate=1e30)
    targets = X[:, :3] * 1e3
    found = failure(gemm(), tmp_path, X, targets, config)
    assert found.category == "user_input"
    assert "learning rate (now 1e+30)" in found.sentence


def test_unknown_options_and_parameters_are_refused(tmp_path: Path) -> None:
    found = failure(gemm(), tmp_path, X, Y, replace(CONFIG, options={"momentum": 0.9}))
    assert (found.category, "momentum" in found.sentence) == ("user_input", True)
    found = failure(gemm(), tmp_path, X, Y, CONFIG, warp=9)
    assert (found.category, "warp" in found.sentence) == ("user_input", True)


@pytest.mark.parametrize("length", [0, 1, 100, 2000])
def test_a_corrupt_model_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes((DEMO / "digits.onnx").read_bytes()[:length])
    assert failure(path, tmp_path, *digits("test")).category == "user_model"


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    percents: list[float] = []
    training_engine("ort").train(
        saved(gemm(), tmp_path),
        CONFIG,
        X,
        Y,
        tmp_path,
        lambda percent, phase: percents.append(percent),
        threads=1,
        parameters={},
    )
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0.0, 100.0)
