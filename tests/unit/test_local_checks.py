"""What the client knows to be wrong is refused before a byte is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from edgeyard import Client
from edgeyard.benchmark_api.sdk.errors import ValidationFailed
from edgeyard.errors import InvalidInput
from tests.builders.model_files import a_model_file
from tests.builders.runner import linear_model

NETWORK = linear_model(np.ones((4, 3), np.float32))
"""Takes x: [batch, 4]."""


def client() -> Client:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"{request.method} {request.url} was sent")

    return Client("http://server.test", "token", transport=httpx.MockTransport(refuse))


def submit(folder: Path, content: bytes = NETWORK, **changes: Any) -> None:
    model = folder / "net.onnx"
    model.write_bytes(content)
    description: Mapping[str, Any] = {
        "model": model,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        **changes,
    }
    with client() as one:
        one.submit_description(description)


@pytest.mark.parametrize(
    ("content", "runtime", "expected"),
    [
        (
            b"<!DOCTYPE html><html>login</html>",
            "ort",
            r"/model: net\.onnx: is a web page",
        ),
        (b"abc", "ort", r"/model: net\.onnx: is damaged or not a valid ONNX file"),
        (
            b"PK\x03\x04" + bytes(100),
            "ort",
            r"/model: net\.onnx: the model's archive can't",
        ),
        (b"PK\x03\x04" + bytes(100), "tflite", r"/model: net\.onnx: is a ZIP archive"),
        (NETWORK, "tflite", r"/model: net\.onnx: is an ONNX file, not a TensorFlow Lite model"),
        (b"", "ort", r"/model: net\.onnx is empty"),
    ],
)
def test_a_file_that_is_no_model_is_not_sent(
    tmp_path: Path, content: bytes, runtime: str, expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        submit(tmp_path, content, runtime=runtime)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input": {"y": {"shape": [1, 4]}}}, "/input/y: the model has no input 'y'"),
        ({"input": {"x": {"shape": [1, 5]}}}, r"/input/x: .*\[1, 5\]"),
        ({"deadline": "tomorrow"}, "/deadline: "),
        ({"user_priority": 11}, "/user_priority: "),
        ({"precision": "2 %", "nb_inference": 30}, "/precision: can't be combined"),
        ({"benchmark_type": "TYPE100"}, "/benchmark_type: "),
    ],
)
def test_a_wrong_field_is_refused_before_the_model_is_sent(
    tmp_path: Path, changes: Mapping[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        submit(tmp_path, **changes)


def test_a_dataset_that_does_not_fit_is_not_sent(tmp_path: Path) -> None:
    rows = {"x": np.zeros((2, 7), np.float32), "y": [0, 1]}
    with pytest.raises(InvalidInput, match=r"/dataset: has 'x' of shape \[2, 7\]"):
        submit(tmp_path, benchmark_type="TYPE2", dataset=rows)


def test_own_inputs_that_do_not_fit_are_not_sent(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(NETWORK)
    with client() as one, pytest.raises(InvalidInput, match="/inputs: "):
        one.infer(model, {"x": np.zeros((2, 7), np.float32)}, "rpi4b")


def test_each_wrong_model_of_a_matrix_is_named(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    contents = (b"abc", NETWORK, b"<html>")
    for folder, content in zip(folders, contents, strict=True):
        folder.mkdir()
        (folder / f"{folder.name}.onnx").write_bytes(content)
    models = [folder / f"{folder.name}.onnx" for folder in folders]
    with pytest.raises(InvalidInput) as refused:
        submit(tmp_path, model=models)
    reasons = [error.reason for error in refused.value.errors]
    assert [reason.split(":")[0] for reason in reasons] == ["a.onnx", "c.onnx"]


def test_models_of_one_name_are_each_looked_into(tmp_path: Path) -> None:
    for name, content in (("base", NETWORK), ("candidate", b"abc")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.onnx").write_bytes(content)
    models = [tmp_path / name / "net.onnx" for name in ("base", "candidate")]
    with pytest.raises(InvalidInput, match="not a valid ONNX file"):
        submit(tmp_path, model=models)


def test_a_model_of_an_engine_that_is_not_known_here_is_left_to_the_server(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was sent"):
        submit(tmp_path, b"of another kind", runtime="other")


def test_a_small_model_is_not_sent_for_a_description_that_the_server_refuses(
    tmp_path: Path,
) -> None:
    """The server knows the boards; the client does not."""
    paths = []

    def refuse(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        problem = {
            "type": "about:blank",
            "title": "Unprocessable Content",
            "status": 422,
            "detail": "no board",
            "errors": [{"pointer": "/target", "reason": "is unknown", "accepted": "rpi4b"}],
        }
        return httpx.Response(422, json=problem)

    (tmp_path / "net.onnx").write_bytes(NETWORK)
    with (
        Client("http://server.test", "token", transport=httpx.MockTransport(refuse)) as one,
        pytest.raises(ValidationFailed),
    ):
        one.submit(
            model=tmp_path / "net.onnx", runtime="ort", benchmark_type="TYPE1", target="none"
        )
    assert paths == ["/v1/benchmarks/check"]


def test_what_fits_is_sent(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was sent"):
        submit(tmp_path, a_model_file())


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_file_that_is_no_regular_one_is_named(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "net.onnx"
        os.mkfifo(path)
    with client() as one, pytest.raises(InvalidInput, match=r"/model: .* is not a regular file"):
        one.submit(model=path, runtime="ort", benchmark_type="TYPE1", target="rpi4b")
    with client() as one, pytest.raises(InvalidInput, match=r"/file: .* is not a regular file"):
        one.upload(path)


def test_an_empty_baseline_is_named(tmp_path: Path) -> None:
    (tmp_path / "old.onnx").write_bytes(b"")
    (tmp_path / "net.onnx").write_bytes(NETWORK)
    with client() as one, pytest.raises(InvalidInput, match=r"--baseline: old\.onnx is empty"):
        one.check(
            tmp_path / "old.onnx",
            model=tmp_path / "net.onnx",
            runtime="ort",
            benchmark_type="TYPE1",
            target="rpi4b",
        )
