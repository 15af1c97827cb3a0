"""On-device training of tflite models by their own signatures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import TrainingConfig, TrainingResult
from edgeyard.devices.runner.engines.tflite_variables import READ_SIGNATURE, TrainableFile
from edgeyard.devices.runner.training_loop import split_rows
from edgeyard.errors import RunFailed
from tests.builders.networks import DATA, DEMO, digits
from tests.builders.runner import training_engine

CONFIG = TrainingConfig(epochs=6, batch_size=32, learning_rate=0.3, seed=3)
TRAINABLE = DEMO / "digits_trainable.tflite"
FIXED = DATA / "trainable_fixed.tflite"
X, Y = digits("train")


def train(
    folder: Path,
    model: Path = TRAINABLE,
    x: NDArray[Any] = X,
    y: NDArray[Any] = Y,
    config: TrainingConfig = CONFIG,
    **parameters: object,
) -> TrainingResult:
    return training_engine("tflite").train(
        model, config, x, y, folder, lambda percent, phase: None, threads=1, parameters=parameters
    )


def failure(folder: Path, **arguments: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        train(folder, **arguments)
    return caught.value


def answers(model: Path, x: NDArray[Any]) -> NDArray[Any]:
    interpreter = Interpreter(model_path=str(model))
    found: NDArray[Any] = interpreter.get_signature_runner("infer")(x=x.astype(np.float32))[
        "logits"
    ]
    return found


def parsed(model: Path) -> Any:
    return schema.ModelT.InitFromPackedBuf(bytearray(model.read_bytes()), 0)


def test_the_uploaded_file_is_the_trained_network(tmp_path: Path) -> None:
    before = answers(TRAINABLE, X)
    result = train(tmp_path)
    assert result.epoch_losses[-1] < 0.4 * result.epoch_losses[0]
    assert result.validation_losses[-1] < result.validation_losses[0]
    assert len(result.validation_accuracy) == 6
    assert len(result.step_losses) == len(result.step_ms) == 6 * len(range(0, 1150, 32))
    _, validation = split_rows(len(X), CONFIG)

    after = answers(result.model_file, X)
    right = after.argmax(axis=1) == Y
    assert np.mean(right[validation]) == pytest.approx(result.validation_accuracy[-1])
    assert np.mean(right) > 0.9 > 0.3 > np.mean(before.argmax(axis=1) == Y)
    assert "5 variables, 2442 values" in result.trained
    assert [each.name for each in tmp_path.iterdir()] == ["trained.tflite"]


def test_the_uploaded_file_can_be_trained_on(tmp_path: Path) -> None:
    first = train(tmp_path)
    start = tmp_path / "start.tflite"
    first.model_file.rename(start)
    again = train(tmp_path, start)
    assert again.step_losses[0] < 0.5 * first.step_losses[0]
    assert again.epoch_losses[-1] < first.epoch_losses[-1]
    assert abs(again.model_file.stat().st_size - start.stat().st_size) < 2000


def test_it_is_the_model_as_it_was_but_for_its_variables(tmp_path: Path) -> None:
    model, trained = parsed(TRAINABLE), parsed(train(tmp_path).model_file)
    assert [each.signatureKey for each in trained.signatureDefs] == [b"infer", b"train"]
    assert READ_SIGNATURE.encode() not in {each.name for each in trained.subgraphs}
    for ours, theirs in zip(trained.subgraphs, model.subgraphs, strict=True):
        assert [each.opcodeIndex for each in ours.operators] == [
            each.opcodeIndex for each in theirs.operators
        ]


def test_constants_are_aligned_as_the_format_demands(tmp_path: Path) -> None:
    content = train(tmp_path).model_file.read_bytes()
    model = schema.Model.GetRootAs(content, 0)
    places = []
    for number in range(model.BuffersLength()):
        buffer = model.Buffers(number)
        table = buffer._tab
        if buffer.DataLength():
            places.append(table.Vector(table.Offset(4)))
    assert len(places) > 5
    assert {place % 16 for place in places} == {0}


def test_variables_that_begin_with_one_constant_end_with_their_own_values(tmp_path: Path) -> None:
    (begin,) = {
        graph.operators[each.operator].inputs[1]
        for each in TrainableFile(TRAINABLE.read_bytes()).variables
        if each.name in ("hidden_bias", "hidden_mean")
        for graph in [parsed(TRAINABLE).subgraphs[each.subgraph]]
    }
    assert begin >= 0
    result = train(tmp_path)
    file = TrainableFile(result.model_file.read_bytes())
    read = Interpreter(model_content=file.readable()).get_signature_runner(READ_SIGNATURE)()
    values = {each.name: read[each.label] for each in file.variables}
    assert values["hidden_bias"].shape == values["hidden_mean"].shape == (32,)
    assert np.abs(values["hidden_bias"] - values["hidden_mean"]).max() > 0.01


def test_variables_are_read_as_they_are_before_training() -> None:
    file = TrainableFile(TRAINABLE.read_bytes())
    assert sorted(each.name for each in file.variables) == [
        "head", "head_bias", "hidden", "hidden_bias", "hidden_mean",
    ]  # fmt: skip
    read = Interpreter(model_content=file.readable()).get_signature_runner(READ_SIGNATURE)()
    model = parsed(TRAINABLE)
    for each in file.variables:
        tensor = model.subgraphs[each.subgraph].tensors[each.tensor]
        first = model.buffers[tensor.buffer].data.tobytes()
        assert read[each.label].tobytes() == first


def test_the_same_seed_gives_the_same_steps(tmp_path: Path) -> None:
    config = replace(CONFIG, epochs=1)
    first = train(tmp_path, config=config).step_losses
    assert train(tmp_path, config=config).step_losses == first
    assert train(tmp_path, config=replace(config, seed=4)).step_losses != first


def test_the_learning_rate_reaches_a_model_that_takes_one(tmp_path: Path) -> None:
    slow = train(tmp_path, config=replace(CONFIG, epochs=1, learning_rate=1e-6))
    fast = train(tmp_path, config=replace(CONFIG, epochs=1))
    assert slow.epoch_losses[0] > 2 > fast.epoch_losses[0]
    assert "own learning rate" not in fast.trained


def test_a_fixed_batch_and_a_rate_of_its_own(tmp_path: Path) -> None:
    result = train(tmp_path, FIXED, config=replace(CONFIG, epochs=2, batch_size=8))
    assert len(result.step_losses) == 2 * (1150 // 8)
    assert "own learning rate" in result.trained
    _, validation = split_rows(len(X), CONFIG)
    rows = validation[: len(validation) // 8 * 8]
    right = np.concatenate(
        [answers(result.model_file, X[rows[at : at + 8]]) for at in range(0, len(rows), 8)]
    ).argmax(axis=1)
    assert np.mean(right == Y[rows]) == pytest.approx(result.validation_accuracy[-1], abs=0.03)


def test_another_batch_size_than_the_fixed_one_is_refused(tmp_path: Path) -> None:
    found = failure(tmp_path, model=FIXED)
    assert found.category == "user_input"
    assert "exactly 8 rows" in found.sentence


def test_too_few_rows_for_a_fixed_batch_are_refused(tmp_path: Path) -> None:
    found = failure(tmp_path, model=FIXED, x=X[:6], y=Y[:6], config=replace(CONFIG, batch_size=8))
    assert found.category == "user_input"
    assert "one batch of 8" in found.sentence


def test_without_validation_rows_there_is_no_validation(tmp_path: Path) -> None:
    result = train(tmp_path, config=replace(CONFIG, epochs=1, validation_split=0.0))
    assert list(result.validation_losses) == list(result.validation_accuracy) == []
    assert result.model_file.exists()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (DEMO / "digits.tflite", "no variables"),
        (DATA / "train_without_infer.tflite", "train(x, y) and infer(x)"),
    ],
)
def test_models_without_the_signatures_are_refused_with_the_reason(
    tmp_path: Path, model: Path, said: str
) -> None:
    found = failure(tmp_path, model=model)
    assert found.category == "user_model"
    assert said in found.sentence


def renamed(folder: Path, change: Any) -> Path:
    """The trainable model with something changed in its signatures."""
    import flatbuffers

    model = parsed(TRAINABLE)
    change({bytes(each.signatureKey): each for each in model.signatureDefs})
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path = folder / "renamed.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


def name_of(signature: bytes, side: str, place: int, name: bytes) -> Any:
    def change(signatures: Any) -> None:
        getattr(signatures[signature], side)[place].name = name

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (name_of(b"train", "inputs", 0, b"momentum"), "['momentum', 'x', 'y']"),
        (name_of(b"train", "inputs", 1, b"image"), "expected x, y"),
        (
            lambda signatures: setattr(signatures[b"infer"], "signatureKey", b"predict"),
            "predict, train",
        ),
    ],
)
def test_signatures_of_another_form_are_refused_with_the_reason(
    tmp_path: Path, change: Any, said: str
) -> None:
    found = failure(tmp_path, model=renamed(tmp_path, change))
    assert found.category == "user_model"
    assert said in found.sentence


def test_the_only_output_may_have_any_name(tmp_path: Path) -> None:
    def change(signatures: Any) -> None:
        signatures[b"train"].outputs[0].name = b"output_0"
        signatures[b"infer"].outputs[0].name = b"output_0"
        signatures[b"infer"].inputs[0].name = b"image"

    result = train(tmp_path, renamed(tmp_path, change), config=replace(CONFIG, epochs=1))
    assert result.validation_accuracy[0] > 0.3


DATASETS: dict[str, tuple[NDArray[Any], NDArray[Any], str]] = {
    "another shape": (X[:, :, :4], Y, "takes (1, 8, 8)"),
    "flat": (X.reshape(-1, 64), Y, "takes (1, 8, 8)"),
    "one-hot": (X, np.eye(10, dtype=np.float32)[Y], "a row of y"),
    "floats for labels": (X, Y.astype(np.float32), "takes int32"),
    "other rows": (X[:-1], Y, "1436 rows, but y has 1437"),
    "labels out of range": (X, Y.astype(np.int64) + 1, "1 to 10"),
    "not finite": (np.where(X == 3, np.inf, X), Y, "not finite"),
    "no rows": (X[:0], Y[:0], "no rows"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_data_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    x, y, said = DATASETS[name]
    found = failure(tmp_path, x=x, y=y)
    assert found.category == "user_input"
    assert said in found.sentence


def test_a_loss_that_runs_away_names_the_learning_rate(tmp_path: Path) -> None:
    found = failure(tmp_path, config=replace(CONFIG, learning_rate=1e35))
    assert found.category == "user_input"
    assert "lower the learning rate (now 1e+35)" in found.sentence


def test_unknown_options_and_parameters_are_refused(tmp_path: Path) -> None:
    found = failure(tmp_path, config=replace(CONFIG, options={"optimiser": "adam"}))
    assert (found.category, "optimiser" in found.sentence) == ("user_input", True)
    found = failure(tmp_path, warp=9)
    assert (found.category, "warp" in found.sentence) == ("user_input", True)


@pytest.mark.parametrize("length", [0, 8, 1000, 15_000])
def test_a_corrupt_model_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.tflite"
    path.write_bytes(TRAINABLE.read_bytes()[:length])
    assert failure(tmp_path, model=path).category == "user_model"


@pytest.mark.parametrize("content", [b"", b"\x00" * 50, b"\x1c\0\0\0TFL3" + b"\xff" * 400])
def test_the_object_reader_refuses_what_it_can_not_read(content: bytes) -> None:
    with pytest.raises(RunFailed) as caught:
        TrainableFile(content)
    assert caught.value.category == "user_model"
