"""Engine tflite: loading and running; training is in test_tflite_training."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Session
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.feeds import random_feeds
from edgeyard.devices.runner.tflite_file import tflite_inputs
from edgeyard.errors import RunFailed
from tests.builders.networks import DATA, DEMO, digits
from tests.builders.tflite import Quantized, custom_model, requantizing_model

WHOLE = Quantized("int8", 0.1, 0)


def answers(session: Session, **feeds: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = session.run(feeds)[0]
    return found


def load(model: Path, threads: int = 1, **parameters: object) -> Session:
    return find("tflite").load(model, threads=threads, parameters=parameters)


def failure(model: Path) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        load(model)
    return caught.value


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (custom_model("Teleport"), "'Teleport'"),
        (requantizing_model((4,), WHOLE, WHOLE, version=99), "'QUANTIZE' of version 99"),
        (custom_model("FlexErf"), "TensorFlow's own"),
    ],
    ids=["custom", "newer", "tensorflow"],
)
def test_an_operator_that_litert_lacks_is_the_engines_limit(
    tmp_path: Path, content: bytes, named: str
) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(content)
    with pytest.raises(RunFailed) as caught:
        load(model).run({"x": np.zeros((1, 4), np.int8)})
    assert caught.value.category == "engine_unsupported"
    assert named in caught.value.sentence


def test_it_answers_as_the_onnx_file_with_the_same_weights() -> None:
    x, y = digits("test")
    feed = x.astype(np.float32)
    ours = answers(load(DEMO / "digits.tflite"), image=feed)
    theirs = find("ort").load(DEMO / "digits.onnx", threads=1, parameters={})
    np.testing.assert_allclose(ours, answers(theirs, image=feed), atol=1e-3)
    assert np.mean(ours.argmax(axis=1) == y) > 0.97


def test_inputs_and_outputs_have_the_signatures_names_and_open_dimensions() -> None:
    session = load(DEMO / "digits.tflite")
    (image,) = session.inputs
    assert (image.name, image.shape, image.dtype) == ("image", (None, 1, 8, 8), "float32")
    assert [each.name for each in session.outputs] == ["logits"]


@pytest.mark.parametrize(
    ("model", "signature"),
    [
        (DEMO / "digits.tflite", ""),
        (DEMO / "digits_trainable.tflite", ""),
        (DEMO / "digits_trainable.tflite", "train"),
        (DATA / "trainable_fixed.tflite", ""),
        (DATA / "train_without_infer.tflite", "train"),
    ],
)
def test_the_inputs_of_a_file_are_known_without_the_engine(model: Path, signature: str) -> None:
    asked: dict[str, Any] = {"signature": signature} if signature else {}
    found = sorted(tflite_inputs(model, signature), key=lambda one: one.name)
    assert found == sorted(load(model, **asked).inputs, key=lambda one: one.name)
    assert tflite_inputs(model, "absent") == ()


def test_a_damaged_file_states_no_inputs(tmp_path: Path) -> None:
    content = (DEMO / "digits.tflite").read_bytes()
    for damaged in (b"", content[:8], content[:200], b"\xff" * 4 + content[4:], b"x" * 300):
        (tmp_path / "net.tflite").write_bytes(damaged)
        assert tflite_inputs(tmp_path / "net.tflite") == ()


def test_facts_name_version_provider_and_threads() -> None:
    facts = dict(load(DEMO / "digits.tflite", threads=4).facts)
    assert facts["threads"] == 4
    assert facts["execution_provider"] == "XNNPACK"
    assert facts["signature"] == "serving_default"
    assert str(facts["version"])[0].isdigit()
    facts = dict(load(DEMO / "digits.tflite", threads=4, xnnpack=False).facts)
    assert facts["execution_provider"] == "CPU"


def test_the_batch_may_change_from_run_to_run() -> None:
    session = load(DEMO / "digits.tflite")
    x = digits("test")[0].astype(np.float32)
    whole = answers(session, image=x)
    for size in (1, 7, 7, 1):
        np.testing.assert_allclose(answers(session, image=x[:size]), whole[:size], atol=1e-4)


def test_without_xnnpack_the_answers_are_the_same() -> None:
    x = digits("test")[0].astype(np.float32)
    fast = answers(load(DEMO / "digits.tflite"), image=x)
    plain = answers(load(DEMO / "digits.tflite", xnnpack=False), image=x)
    np.testing.assert_allclose(fast, plain, atol=1e-3)


def test_a_trainable_model_runs_by_its_infer_signature() -> None:
    session = load(DEMO / "digits_trainable.tflite")
    x = digits("test")[0][:5].astype(np.float32)
    assert session.run({"x": x})[0].shape == (5, 10)
    assert session.facts["signature"] == "infer"


def test_another_signature_can_be_asked_for() -> None:
    session = load(DEMO / "digits_trainable.tflite", signature="train")
    x, y = digits("test")
    feeds = {
        "x": x[:8].astype(np.float32),
        "y": y[:8].astype(np.int32),
        "learning_rate": np.array(0.1, np.float32),
    }
    losses = [float(session.run(feeds)[0]) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert [each.name for each in session.inputs] == ["learning_rate", "x", "y"]
    assert [each.name for each in session.outputs] == ["loss"]


@pytest.mark.parametrize("signature", ["infer", "train"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x", np.zeros((2, 1, 8, 9), np.float32), "[2, 1, 8, 9]"),
        ("x", np.zeros((2, 8, 8), np.float32), "[?, 1, 8, 8]"),
        ("x", np.zeros((2, 1, 8, 8), np.float64), "float64"),
        ("z", np.zeros((2, 1, 8, 8), np.float32), "'z'"),
    ],
)
def test_feeds_that_do_not_fit_are_the_users_input(
    signature: str, name: str, value: Any, said: str
) -> None:
    session = load(DEMO / "digits_trainable.tflite", signature=signature)
    feeds = {
        each.name: np.zeros(
            [size if isinstance(size, int) else 2 for size in each.shape or ()], each.dtype
        )
        for each in session.inputs
    }
    session.run(feeds)
    del feeds["x"]
    with pytest.raises(RunFailed) as caught:
        session.run({**feeds, name: value})
    assert caught.value.category == "user_input"
    assert said in caught.value.sentence


def test_scalars_are_taken_and_returned_as_arrays_without_dimensions() -> None:
    session = load(DEMO / "digits_trainable.tflite", signature="train")
    assert [spec.shape for spec in session.inputs if spec.name == "learning_rate"] == [()]
    batch = {"x": {"shape": [2, 1, 8, 8]}, "y": {"shape": [2]}}
    (loss,) = session.run(random_feeds(session.inputs, batch))
    assert (type(loss), loss.shape) == (np.ndarray, ())


def test_a_wrong_type_after_a_right_one_of_the_same_shape_is_refused() -> None:
    session = load(DEMO / "digits.tflite")
    session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    with pytest.raises(RunFailed) as caught:
        session.run({"image": np.zeros((1, 1, 8, 8), np.float64)})
    assert caught.value.category == "user_input"


def test_a_fixed_batch_is_kept_to() -> None:
    session = load(DATA / "trainable_fixed.tflite")
    assert session.run({"x": np.zeros((8, 1, 8, 8), np.float32)})[0].shape == (8, 10)
    with pytest.raises(RunFailed) as caught:
        session.run({"x": np.zeros((4, 1, 8, 8), np.float32)})
    assert caught.value.category == "user_input"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"threads": 0}, "1 to 2"),
        ({"threads": 3}, "1 to 2"),
        ({"threads": True}, "1 to 2"),
        ({"threads": "2"}, "1 to 2"),
        ({"xnnpack": 1}, "true or false"),
        ({"signature": 1}, "name of a signature"),
        ({"signature": "predict"}, "serving_default"),
        ({"delegate": "libevil.so"}, "unknown"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(RunFailed) as caught:
        find("tflite").load(DEMO / "digits.tflite", threads=2, parameters=parameters)
    found = caught.value
    assert found.category == "user_input"
    assert next(iter(parameters)) in found.sentence
    assert said in found.sentence


CONTENT = (DEMO / "digits.tflite").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"TFL3",
        b"\x1c\x00\x00\x00TFL3",
        b"PK\x03\x04" * 100,
        CONTENT[:100],
        CONTENT[: len(CONTENT) // 2],
        CONTENT[:8] + b"\xff" * 500,
        (DEMO / "digits.onnx").read_bytes(),
    ],
)
def test_a_corrupt_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    assert failure(path).category == "user_model"


def test_a_web_page_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"<!DOCTYPE html><html></html>" + bytes(100))
    assert failure(path).sentence.startswith("the model is a web page, not a TensorFlow Lite file")


def test_without_the_package_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    found = failure(DEMO / "digits.tflite")
    assert found.category == "engine_unsupported"
    assert "pip install ai-edge-litert" in found.sentence
