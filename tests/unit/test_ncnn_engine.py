"""Engine ``ncnn``: its switches, its rows, and whose fault a failure is."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.sdk.model_folder import with_weights
from edgeyard.devices.runner.engines import find
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO, digits

PARAM, WEIGHTS = DEMO / "digits.ncnn.param", DEMO / "digits.ncnn.bin"
TEST_X, _ = digits("test")
X = TEST_X[:16].astype(np.float32)


@pytest.fixture(scope="module")
def engine() -> Any:
    return find("ncnn")


@pytest.fixture(scope="module")
def model() -> Path:
    return with_weights(PARAM)


def archive(folder: Path, param: bytes, weights: bytes) -> Path:
    path = folder / "net.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("net.param", param)
        file.writestr("net.bin", weights)
    return path


def failure(call: Any, *arguments: Any, **more: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        call(*arguments, **more)
    return caught.value


def test_it_answers_as_onnxruntime_does(engine: Any, model: Path) -> None:
    session = engine.load(model, threads=1, parameters={"fp16": False})
    (logits,) = session.run({"image": X})
    peer: Any = find("ort").load(DEMO / "digits.onnx", threads=1, parameters={})
    np.testing.assert_allclose(logits, peer.run({"image": X})[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("switch", ["fp16", "bf16", "int8"])
def test_a_switch_is_taken_and_stated(engine: Any, model: Path, switch: str) -> None:
    for on in (True, False):
        facts = engine.load(model, threads=1, parameters={switch: on}).facts
        assert facts[switch] is on


def test_bf16_is_used_instead_of_fp16_and_changes_the_numbers(engine: Any, model: Path) -> None:
    exact = engine.load(model, threads=1, parameters={"fp16": False})
    coarse = engine.load(model, threads=1, parameters={"bf16": True})
    assert coarse.facts["fp16"] is False
    (right,), (found,) = exact.run({"image": X}), coarse.run({"image": X})
    error = np.abs(found - right).max()
    assert 0 < error < 0.1 * np.abs(right).max()


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"fp16": 1}, "fp16"),
        ({"fp16": True, "bf16": True}, "bf16"),
        ({"powersave": "tiny"}, "powersave"),
        ({"threads": 0}, "threads"),
    ],
)
def test_wrong_parameters_are_refused_by_name(
    engine: Any, model: Path, parameters: dict[str, object], named: str
) -> None:
    found = failure(engine.load, model, threads=1, parameters=parameters)
    assert found.category == "user_input"
    assert f"parameters/{named}" in found.sentence


def test_powersave_never_leaves_the_cpus_of_the_board(
    engine: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._ncnn, "get_little_cpu_count", lambda: 0)
    none = failure(engine.load, model, threads=1, parameters={"powersave": "little"})
    assert "no little cores" in none.sentence
    before = os.sched_getaffinity(0)
    one = {min(before)}
    monkeypatch.setattr(
        engine._ncnn, "set_cpu_powersave", lambda _: os.sched_setaffinity(0, before)
    )
    try:
        os.sched_setaffinity(0, one)
        if len(before) > 1:
            found = failure(engine.load, model, threads=1, parameters={"powersave": "big"})
            assert found.category == "user_input"
        assert os.sched_getaffinity(0) == one
    finally:
        os.sched_setaffinity(0, before)


def test_a_layer_that_ncnn_lacks_is_the_engines_limit(engine: Any, tmp_path: Path) -> None:
    odd = PARAM.read_bytes().replace(b"Flatten   ", b"Frobnicate")
    path = archive(tmp_path, odd, WEIGHTS.read_bytes())
    found = failure(engine.load, path, threads=1, parameters={})
    assert found.category == "engine_unsupported"
    assert "'Frobnicate'" in found.sentence


@pytest.mark.parametrize("bytes_left", [0, 5, 1000])
def test_weights_that_were_cut_short_are_the_models_fault(
    engine: Any, tmp_path: Path, bytes_left: int
) -> None:
    path = archive(tmp_path, PARAM.read_bytes(), WEIGHTS.read_bytes()[:bytes_left])
    assert failure(engine.load, path, threads=1, parameters={}).category == "user_model"


def test_half_of_a_pair_is_the_models_fault(engine: Any) -> None:
    found = failure(engine.load, PARAM, threads=1, parameters={})
    assert found.category == "user_model"
    assert ".bin" in found.sentence


def test_an_input_without_a_stated_size_takes_rows_of_any(engine: Any, tmp_path: Path) -> None:
    param = b"7767517\n2 2\nInput in 0 1 a\nReLU relu 1 1 a b\n"
    session = engine.load(archive(tmp_path, param, b"\0"), threads=1, parameters={})
    assert session.inputs[0].shape is None
    for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 5)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(session.run({"a": x})[0], np.maximum(x, 0))
        assert session.outputs[0].shape == (None, *shape[1:])
    for odd in ((2,), (0, 3), (1, 2, 3, 4, 5, 6)):
        found = failure(session.run, {"a": np.zeros(odd, np.float32)})
        assert found.category == "user_input"
