"""Quantized models: data sets, inputs and outputs are real numbers wherever a user meets them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.benchmark_api.sdk.inference import LocalModel
from edgeyard.devices.runner.accuracy import Accuracy, evaluate
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import Quantization, Session, TensorSpec
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.inference import open_inputs, outputs_of
from edgeyard.devices.runner.metrics import metric_of
from edgeyard.devices.runner.quantization import input_values, real_values
from edgeyard.devices.runner.tflite_file import tflite_inputs
from edgeyard.errors import RunFailed
from tests.builders.tflite import Quantized, dense_model, requantizing_model

X = {"int8": Quantized("int8", 0.05, -3), "uint8": Quantized("uint8", 0.05, 125)}
Y = {"int8": Quantized("int8", 0.08, 5), "uint8": Quantized("uint8", 0.08, 133)}
PIXELS = {"int8": Quantized("int8", 1 / 255, -128), "uint8": Quantized("uint8", 1 / 255, 0)}
TYPES = ("int8", "uint8")


def load(folder: Path, content: bytes) -> Session:
    path = folder / "net.tflite"
    path.write_bytes(content)
    return find("tflite").load(path, threads=1, parameters={})


def evaluated(
    session: Session, file: Path, metric: str | None = None, wishes: object = None
) -> Accuracy:
    comparing = metric_of(metric)
    dataset = open_dataset(file, session.inputs, wishes, classes=comparing is None)
    return evaluate(
        session,
        dataset,
        1,
        Watch(threads=1, wanted_cpus=()),
        lambda percent, phase: None,
        metric=comparing,
        max_warmup_s=0.01,
    )


def rows(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).uniform(-5, 5, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("given", ["real", "whole"])
def test_errors_of_a_regression_are_those_of_real_numbers(
    tmp_path: Path, dtype: str, given: str
) -> None:
    x, y = X[dtype], Y[dtype]
    session = load(tmp_path, requantizing_model((3,), x, y))
    real = rows(20, 3)
    np.savez(tmp_path / "d.npz", x=real if given == "real" else x.whole(real), y=real + 1)
    found = evaluated(session, tmp_path / "d.npz", "regression").as_json()
    # requantized twice, so that a number is at most half a step of each scale off
    assert found["mae"] == pytest.approx(1, abs=(x.scale + y.scale) / 2)


@pytest.mark.parametrize("dtype", TYPES)
def test_boxes_are_compared_as_real_numbers(tmp_path: Path, dtype: str) -> None:
    low = np.iinfo(dtype).min
    how = Quantized(dtype, 0.08, low)
    session = load(tmp_path, requantizing_model((2, 6), how, how))
    found = np.array([[[1, 1, 9, 9, 0.9, 1], [2, 2, 12, 12, 0.8, 0]]], np.float32)
    assert how.real(how.whole(1.0)) < 1, "its class is stated only nearly"
    true = np.array([[[1, 1, 9, 9, 1], [2, 2, 12, 12, 0]]], np.float32)
    np.savez(tmp_path / "d.npz", x=found, y=true)
    found_map = evaluated(session, tmp_path / "d.npz", "detection").as_json()["map"]
    assert found_map == pytest.approx(1.0)


def test_scores_with_scales_of_their_own_are_compared_as_real_numbers(tmp_path: Path) -> None:
    # 100 of the scale 0.01 is less than 2 of the scale 1
    output = TensorSpec("y", (1, 2, 1, 1), "int8", Quantization((0.01, 1.0), (0, 0), axis=1))
    raw = np.array([100, 2], np.int8).reshape(1, 2, 1, 1)
    real = real_values(raw, output)
    assert isinstance(real, np.ndarray)
    assert real.dtype == np.float32
    np.testing.assert_allclose(real.ravel(), [1.0, 2.0], rtol=1e-6)
    segmentation = metric_of("segmentation")
    assert segmentation is not None
    segmentation.add(real, np.ones((1, 1, 1), np.int64))
    assert segmentation.result()["miou"] == 1.0


@pytest.mark.parametrize("dtype", TYPES)
def test_classes_of_arrays_and_a_single_score_that_is_no_class(tmp_path: Path, dtype: str) -> None:
    x, y = X[dtype], Quantized(dtype, 0.4, Y[dtype].zero_point)
    weights = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], np.float32)
    session = load(tmp_path, dense_model((4,), weights, x, y))
    real = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0]] * 4
    np.savez(tmp_path / "d.npz", x=real, y=np.array([0, 1, 2, 2, 0]))
    assert evaluated(session, tmp_path / "d.npz").top[1] == 1.0
    one = load(tmp_path, dense_model((4,), weights[:1], x, y))
    with pytest.raises(RunFailed, match="one score a class"):
        evaluated(one, tmp_path / "d.npz")


@pytest.mark.parametrize("dtype", TYPES)
def test_images_reach_a_quantized_model_as_they_reach_its_float_original(
    tmp_path: Path, dtype: str
) -> None:
    weights = np.zeros((3, 8 * 8 * 3), np.float32)
    for channel in range(3):  # scores are the means of red, green and blue
        weights[channel, channel::3] = 1 / 64
    session = load(
        tmp_path,
        dense_model((8, 8, 3), weights, PIXELS[dtype], Quantized(dtype, 1 / 127, 0)),
    )
    colours = {"0": (250, 60, 10), "1": (30, 80, 40), "2": (0, 120, 130)}
    file = tmp_path / "images.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name, colour in colours.items():
            archive.writestr(f"{name}/1.png", png(colour))
    dataset = open_dataset(file, session.inputs, None)
    image = dataset.batch(0, 1)[session.inputs[0].name]
    assert image.dtype == np.dtype(dtype)
    np.testing.assert_allclose(
        PIXELS[dtype].real(image)[0, 4, 4], np.array(colours["0"]) / 255, atol=1e-6
    )
    found = evaluated(session, file)
    assert found.top[1] == 1.0
    assert codes(found).isdisjoint({"input_range", "inputs_clipped"})
    wishes = {"scale": 1 / 127.5, "mean": 1.0}
    stated = open_dataset(file, session.inputs, wishes).batch(0, 1)[session.inputs[0].name]
    expected = np.clip(np.array(colours["0"]) / 127.5 - 1, 0, 1)
    np.testing.assert_allclose(PIXELS[dtype].real(stated)[0, 4, 4], expected, atol=0.5 / 255)


def test_images_for_another_range_than_the_default_one_are_doubted(tmp_path: Path) -> None:
    how = Quantized("uint8", 2 / 255, 128)  # trained on -1 to 1
    weights = np.full((2, 192), 1 / 192, np.float32)
    session = load(tmp_path, dense_model((8, 8, 3), weights, how, Quantized("uint8", 1 / 64, 128)))
    file = tmp_path / "images.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0/1.png", png((1, 2, 3)))
        archive.writestr("1/1.png", png((250, 250, 250)))
    found = evaluated(session, file)
    assert "input_range" in codes(found)
    assert found.measurement.verdict.verdict != "comparable"
    stated = evaluated(session, file, wishes={"scale": 1 / 127.5, "mean": 1.0})
    assert "input_range" not in codes(stated)


def test_numbers_that_the_input_can_not_state_are_clipped_and_doubted(tmp_path: Path) -> None:
    session = load(tmp_path, requantizing_model((3,), X["int8"], Y["int8"]))
    # -6.25 to 6.5 can be stated: as pixels, which nobody scaled, nearly all are beyond
    np.savez(tmp_path / "d.npz", x=np.full((4, 3), 255.0, np.float32), y=np.full((4, 3), 6.5))
    found = evaluated(session, tmp_path / "d.npz", "regression")
    assert found.as_json()["mae"] <= 0.1  # type: ignore[operator]
    assert "inputs_clipped" in codes(found)
    np.savez(tmp_path / "i.npz", x=np.full((4, 3), 255.0, np.float32))
    [one] = open_inputs(tmp_path / "i.npz", session.inputs, None)
    assert [each.code for each in one.reasons] == ["inputs_clipped"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("given", ["real", "whole"])
def test_outputs_of_own_inputs_are_real_numbers(tmp_path: Path, dtype: str, given: str) -> None:
    x, y = X[dtype], Y[dtype]
    session = load(tmp_path, requantizing_model((3,), x, y))
    real = rows(5, 3)
    np.savez(tmp_path / "i.npz", x=real if given == "real" else x.whole(real))
    [one] = open_inputs(tmp_path / "i.npz", session.inputs, None)
    assert one.batches[0]["x"].dtype == np.dtype(dtype)
    found = outputs_of(session, one)
    assert found.arrays["y"].dtype == np.float32
    assert found.raw_dtypes == {"y": dtype}
    output: Any = found.arrays["y"]
    np.testing.assert_allclose(output, real, atol=(x.scale + y.scale) / 2 + 1e-6)
    local = LocalModel(tmp_path / "net.tflite", "tflite", {}).run(tmp_path / "i.npz")
    np.testing.assert_array_equal(local["inputs"]["y"], found.arrays["y"])


@pytest.mark.parametrize("values", [np.zeros((1, 3), np.int64), np.zeros((1, 3), np.uint8)])
def test_whole_numbers_of_another_type_are_neither_raw_nor_real(
    tmp_path: Path, values: Any
) -> None:
    session = load(tmp_path, requantizing_model((3,), X["int8"], Y["int8"]))
    np.savez(tmp_path / "d.npz", x=values, y=np.zeros((1, 3)))
    np.savez(tmp_path / "i.npz", x=values)
    for call in (
        lambda: evaluated(session, tmp_path / "d.npz", "regression"),
        lambda: open_inputs(tmp_path / "i.npz", session.inputs, None),
    ):
        with pytest.raises(RunFailed, match=r"real numbers from -6.25 to 6.5, or int8") as refused:
            call()
        assert refused.value.category == "user_input"


def test_a_file_states_its_quantization_without_the_engine(tmp_path: Path) -> None:
    session = load(tmp_path, requantizing_model((3,), X["int8"], Y["int8"]))
    (own,) = session.inputs
    assert own.quantization is not None
    assert own.quantization.zero_points == (-3,)
    assert list(own.quantization.scales) == [pytest.approx(0.05)]
    assert tflite_inputs(tmp_path / "net.tflite") == tuple(session.inputs)
    assert own.as_json()["quantization"] == own.quantization.as_json()


def test_a_scale_of_one_from_zero_on_changes_nothing(tmp_path: Path) -> None:
    pixels = Quantized("uint8", 1.0, 0)
    session = load(tmp_path, requantizing_model((3,), pixels, pixels))
    assert [each.quantization for each in (*session.inputs, *session.outputs)] == [None, None]


def test_numbers_of_each_place_have_its_scale() -> None:
    spec = TensorSpec("x", (None, 2), "int8", Quantization((0.5, 0.25), (0, 10), axis=1))
    found = input_values(np.array([[1.0, 1.0], [-100.0, 2.0]]), spec, "input 'x'")
    np.testing.assert_array_equal(found, np.array([[2, 14], [-128, 18]], np.int8))
    np.testing.assert_array_equal(real_values(found, spec), [[1.0, 1.0], [-64.0, 2.0]])


def codes(found: Accuracy) -> set[str]:
    return {each.code for each in found.measurement.verdict.reasons}


def png(colour: tuple[int, int, int]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(file, "PNG")
    return file.getvalue()
