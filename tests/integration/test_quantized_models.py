"""The runner on quantized models: what it uploads is in real numbers, and says so."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders.runner import UploadServer, make_task, upload_server
from tests.builders.tflite import Quantized, requantizing_model
from tests.integration.test_own_inputs import outputs_of, own_inputs
from tests.integration.test_runner import failure_of, report_of

X, Y = Quantized("int8", 0.05, -3), Quantized("int8", 0.08, 5)


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def stated(how: Quantized) -> dict[str, Any]:
    return {"scales": [pytest.approx(how.scale)], "zero_points": [how.zero_point], "axis": 0}


def test_the_error_of_an_int8_model_is_that_of_real_numbers(
    server: UploadServer, tmp_path: Path
) -> None:
    real = np.random.default_rng(3).uniform(-5, 5, (40, 3)).astype(np.float32)
    file = tmp_path / "d.npz"
    np.savez(file, x=X.whole(real), y=real)
    make_task(
        tmp_path,
        server,
        requantizing_model((3,), X, Y),
        datasets={"d.npz": file},
        engine="tflite",
        benchmark_type="TYPE2",
        parameters={"metric": "regression"},
    ).complete()
    report = report_of(server)
    expected = Y.real(Y.whole(X.real(X.whole(real))))
    assert report["accuracy"]["mae"] == pytest.approx(np.abs(expected - real).mean(), abs=0.005)
    assert report["inputs"][0]["quantization"] == stated(X)
    assert report["outputs"][0]["quantization"] == stated(Y)
    assert report["outputs"][0]["dtype"] == "int8"


def test_own_inputs_may_be_real_and_outputs_are(server: UploadServer, tmp_path: Path) -> None:
    real = np.linspace(-5, 5, 12, dtype=np.float32).reshape(4, 3)
    model = requantizing_model((3,), X, Y)
    own_inputs(tmp_path, server, model, arrays={"x": real}, engine="tflite").complete()
    report = report_of(server)
    [one] = report["inference"]
    assert one["outputs"] == {"y": {"shape": [4, 3], "dtype": "float32", "raw_dtype": "int8"}}
    assert one["feeds"] == {"x": {"shape": [4, 3], "dtype": "int8"}}
    np.testing.assert_allclose(outputs_of(server)["inputs/y"], real, atol=0.065 + 1e-6)


def test_a_dataset_of_two_readings_fails_with_both(server: UploadServer, tmp_path: Path) -> None:
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (8, 8), 9).save(file, "PNG")
    path = tmp_path / "d.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("cat/c1/1.png", "cat/c2/1.png", "dog/c1/1.png"):
            archive.writestr(name, file.getvalue())
    failure = failure_of(
        make_task(
            tmp_path,
            server,
            requantizing_model((8, 8, 3), X, Y),
            datasets={"d.zip": path},
            engine="tflite",
            benchmark_type="TYPE2",
        )
    )
    assert failure["category"] == "user_input"
    assert '{"class_folder": "outermost"} (all 3 images, 2 classes' in failure["sentence"]
