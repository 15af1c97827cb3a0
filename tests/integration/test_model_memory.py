"""A model that exceeds the memory of the boards is refused before it is packed, hashed or sent."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner, Result

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.sdk import ValidationFailed
from edgeyard.benchmark_api.sdk.preview import sha256_of
from edgeyard.errors import InvalidInput
from tests.builders.api import Api, running
from tests.builders.cli import refusal
from tests.builders.descriptions import description
from tests.builders.networks import DEMO
from tests.builders.runner import linear_model
from tests.fakes.cluster import board

pytestmark = pytest.mark.one_database("sizes are compared; nothing is asked of the database")

GIB = 2**30
BOARDS_OF_4_GIB = "the boards of rpi4b that may run it have at most 4 GiB of memory"
OVER_MEMORY = f"--model: has 5 GiB, and {BOARDS_OF_4_GIB} (accepted: a model of at most 4 GiB, or"
OVER_LIMIT = "--model: the file has 5 GiB, more than the server's limit (accepted: at most 4 GiB"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose data file has 5 GiB, and needs no disk."""
    folder = tmp_path_factory.mktemp("models") / "large"
    folder.mkdir()
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5 * GIB // 4 // 16, 16])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="net.onnx.data")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "ids"], ["y"])],
        "table",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with (folder / "net.onnx.data").open("wb") as file:
        file.truncate(5 * GIB)
    np.save(folder.parent / "ids.npy", np.zeros((1, 4), np.int64))
    (folder.parent / "small.onnx").write_bytes(linear_model(np.ones((4, 3), np.float32)))
    return folder


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server that accepts files of 16 GiB and 64 GiB a user, for boards of 4 GiB."""
    limits = {"model_limit_bytes": 16 * GIB, "user_max_bytes": 64 * GIB}
    with running(tmp_path_factory.mktemp("roomy"), **limits) as api:
        yield api


def refused(api: Api, *words: str) -> str:
    """What a command says that is refused before it packs anything."""
    return refusal(run_without_packing(api, *words))


def run_without_packing(api: Api, *words: str) -> Result:
    """Run a command that may write no file of more than 64 MiB, so that it packs nothing."""
    environment = {
        "EDGEYARD_URL": api.url,
        "EDGEYARD_TOKEN": api.tokens["alice"],
        "EDGEYARD_COLUMNS": "1000",
    }
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 2**20, hard))
    try:
        done = CliRunner().invoke(app, list(words), env=environment)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "uploading" not in done.stderr
    return done


ON_RPI4B = ("--runtime", "ort", "--type", "TYPE1", "--target", "rpi4b")


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--model", "{large}", *ON_RPI4B),
        ("submit", "--model", "{large}", *ON_RPI4B, "--dry-run"),
        ("submit", "--model", "{large}", *ON_RPI4B, "--constraint", "memory.ram >= 2 GiB"),
        ("infer", "--model", "{large}", "--target", "rpi4b", "--inputs", "ids={ids}"),
        (
            *("infer", "--model", "{large}", "--target", "rpi4b", "--inputs", "ids={ids}"),
            "--compare-local",
        ),
        ("check", "--baseline", "{small}", "--model", "{large}", *ON_RPI4B),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_model_of_5_gib_is_refused_for_boards_of_4_gib(
    roomy: Api, folder: Path, words: tuple[str, ...]
) -> None:
    places = {
        "large": folder,
        "ids": folder.parent / "ids.npy",
        "small": folder.parent / "small.onnx",
    }
    said = refused(roomy, *(word.format(**places) for word in words))
    assert OVER_MEMORY in said


def test_of_a_matrix_the_model_that_is_too_large_is_named(roomy: Api, folder: Path) -> None:
    small = str(folder.parent / "small.onnx")
    said = refused(roomy, "submit", "--model", small, "--model", str(folder), *ON_RPI4B)
    assert f"--model: net.onnx.zip: has 5 GiB, and {BOARDS_OF_4_GIB}" in said
    assert "small.onnx" not in said
    targets = ("--target", "rpi5")
    said = refused(roomy, "submit", "--model", str(folder), *ON_RPI4B, *targets)
    assert f"rpi4b: has 5 GiB, and {BOARDS_OF_4_GIB}" in said


def test_a_baseline_that_is_too_large_is_named(roomy: Api, folder: Path) -> None:
    small = str(folder.parent / "small.onnx")
    said = refused(roomy, "check", "--baseline", f"{folder}/", "--model", small, *ON_RPI4B)
    assert OVER_MEMORY.replace("--model", "--baseline") in said


def test_a_clone_with_a_model_that_is_too_large_is_refused(roomy: Api, folder: Path) -> None:
    with Client(roomy.url, roomy.tokens["alice"]) as client:
        small = client.submit(
            model=folder.parent / "small.onnx",
            runtime="ort",
            benchmark_type="TYPE1",
            target="rpi4b",
        )
    for more in ((), ("--dry-run",)):
        words = ("submit", "--clone", small.benchmark_id, "--model", str(folder), *more)
        assert OVER_MEMORY in refused(roomy, *words)


def test_a_file_over_the_limit_of_the_server_is_refused_as_well(
    tmp_path: Path, folder: Path
) -> None:
    with running(tmp_path) as api:
        said = refused(api, "submit", "--model", str(folder), *ON_RPI4B)
        both = said
        assert OVER_LIMIT in both
        assert OVER_MEMORY in both
        said = refused(api, "submit", "--model", str(folder), *ON_RPI4B[:-1], "rpi5")
        assert OVER_LIMIT in said
        assert "memory" not in said


def test_one_board_is_named_with_its_memory(roomy: Api, folder: Path) -> None:
    one = ("--runtime", "ort", "--type", "TYPE1", "--target-uid", "rpi4b-0001-0002")
    said = refused(roomy, "submit", "--model", str(folder), *one)
    assert "--model: has 5 GiB, and rpi4b-0001-0002 has 4 GiB of memory" in said


def test_a_size_is_shown_in_units(roomy: Api, folder: Path) -> None:
    more = ("--constraint", "memory.ram >= 400 GiB")
    said = refused(roomy, "submit", "--model", str(folder), *ON_RPI4B, *more)
    assert "memory.ram >= 400 GiB holds for no known board of rpi4b" in said


def test_only_boards_with_enough_memory_get_a_model(tmp_path: Path) -> None:
    """A family may have boards of different memory: the smaller ones are left out."""
    model = linear_model(np.ones((64, 64), np.float32))
    with running(tmp_path, unknown_devices="allow") as api:
        tiny = board("rpi4b-0001-0008", ram_bytes=len(model) - 1)
        api.engine.unknown = (tiny,)
        with Client(api.url, api.tokens["alice"]) as client:
            fields: dict[str, Any] = {"model": model, "runtime": "ort", "benchmark_type": "TYPE1"}
            made = client.submit(**fields, target="rpi4b")
            assert client.benchmark(made).description["ram"] == len(model)
            with pytest.raises(Exception, match="rpi4b-0001-0008 has 1") as refusal:
                client.submit(**fields, target_uid="rpi4b-0001-0008")
            assert "of memory" in str(refusal.value)
            api.engine.unknown = ()
            made = client.submit(**fields, target="rpi4b")
            assert client.benchmark(made).description["ram"] == 0


def test_a_dry_run_of_a_large_model_uploads_nothing(roomy: Api, folder: Path) -> None:
    """The dry run finds out by the folder's size what its upload would have shown."""
    words = ("submit", "--model", str(folder), "--runtime", "ort", "--type", "TYPE1", "--dry-run")
    before = roomy.as_().get("/v1/files").json()["items"]
    done = run_without_packing(roomy, *words, "--target", "rpi5", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["would"] == "run"
    assert found["workload"]["inputs"] == [{"name": "ids", "shape": [1, 4], "dtype": "int64"}]
    assert found["not_uploaded"] == [{"name": "net.onnx.zip", "size_bytes": folder_bytes(folder)}]
    assert "not uploaded, only checked here: net.onnx.zip (5 GiB)\n" in done.stderr
    both = run_without_packing(roomy, *words, "--target", "rpi5", "--target", "rpi5b")
    assert "--target" in both.stderr
    assert roomy.as_().get("/v1/files").json()["items"] == before


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("share", [0.5, 0.51])
def test_a_model_of_over_half_of_the_memory_is_warned_about(
    roomy: Api, folder: Path, share: float
) -> None:
    size_bytes = int(4 * GIB * share)
    file = f"{size_bytes}::net.onnx"
    asked = description(model="net.onnx", target="rpi4b")
    where = "/v1/benchmarks"
    params = {"dry_run": "true", "local_file": file}
    warnings = [
        roomy.as_().post(where, json=asked, params=params).json()["warnings"],
        roomy.as_()
        .post(f"{where}/check", json=asked, params={"model_bytes": size_bytes})
        .json()["warnings"],
    ]
    if share <= 0.5:
        assert warnings == [[], []]
        return
    for found in warnings:
        (warning,) = found
        assert "the model has 2.04 GiB" in warning
        assert "boards of rpi4b that may run it have 4 GiB of memory" in warning


def test_a_submission_warns_of_a_model_of_over_half_of_the_memory(tmp_path: Path) -> None:
    model = linear_model(np.ones((64, 64), np.float32))
    with running(tmp_path, unknown_devices="allow") as api:
        api.engine.unknown = (board("tiny-0001-0001", ram_bytes=len(model) + 1),)
        with Client(api.url, api.tokens["alice"]) as client:
            fields: dict[str, Any] = {"model": model, "runtime": "ort", "benchmark_type": "TYPE1"}
            (warning,) = client.submit(**fields, target_uid="tiny-0001-0001").warnings
            assert "tiny-0001-0001 has" in warning
            made = client.submit(**{**fields, "model": [model]}, target=["tiny", "rpi4b"])
            assert {len(each.warnings) for each in made} == {1}
            assert client.submit(**fields, target="rpi4b").warnings == ()


def test_a_dry_run_sends_only_what_the_server_compares(tmp_path: Path) -> None:
    model, rows = tmp_path / "net.onnx", tmp_path / "rows.npz"
    model.write_bytes(linear_model(np.ones((4, 3), np.float32)))
    np.savez(rows, x=np.zeros((20, 4), np.float32), y=np.zeros(20, np.int64))
    with running(tmp_path) as api, Client(api.url, api.tokens["alice"]) as client:

        def stored() -> list[str]:
            return [each.name for each in client.files()]

        asked: dict[str, Any] = {
            "model": str(model),
            "runtime": "ort",
            "benchmark_type": "TYPE2",
            "dataset": str(rows),
            "target": "rpi4b",
        }
        (found,) = client.preview(asked)
        assert [each.name for each in found.not_uploaded] == ["net.onnx", "rows.npz"]
        assert found.workload.dataset_sha256 == [sha256_of(rows)]
        assert stored() == []
        for wrong in (rows.with_name("other.npz"), rows.with_name("empty.npz")):
            np.savez(wrong, x=np.zeros((20, 5), np.float32), y=np.zeros(20, np.int64))
        with pytest.raises(InvalidInput, match="takes"):
            client.preview({**asked, "dataset": str(wrong)})
        (uploaded,) = client.preview({**asked, "model": client.upload(model).name})
        assert stored() == ["rows.npz", "net.onnx"]  # it was compared with the model there
        assert uploaded.not_uploaded == []
        assert uploaded.workload == found.workload
        with pytest.raises(ValidationFailed, match="takes"):
            client.preview({**asked, "model": "net.onnx", "dataset": str(wrong)})
        made = client.submit(**asked)
        other = tmp_path / "other.onnx"
        other.write_bytes(linear_model(np.full((4, 3), 2, np.float32)))
        # The server has the dataset of the clone, so that it needs the model.
        assert client.preview_clone(made, {"model": other}).not_uploaded == []
        first = client.submit(**{**asked, "benchmark_type": "TYPE1", "dataset": None})
        third = other.rename(tmp_path / "third.onnx")
        third.write_bytes(linear_model(np.full((4, 3), 3, np.float32)))
        cloned = client.preview_clone(first, {"model": third})
        assert [each.name for each in cloned.not_uploaded] == ["third.onnx"]
        assert cloned.workload.model_sha256 == sha256_of(third)
        assert cloned.workload.inputs
        second = rows.with_name("second.npz")
        second.write_bytes(rows.read_bytes())
        both = {**asked, "dataset": None, "dataset_urls": [str(rows), str(second)]}
        assert client.preview({**both, "model": str(third)})[0].not_uploaded[0].name == "third.onnx"
        urls = client.benchmark(client.submit(**both)).description["dataset_urls"]
        assert isinstance(urls, list)
        assert len(urls) == 2
        many = client.preview({**asked, "model": [str(model), str(third)]})
        assert [[each.name for each in one.not_uploaded] for one in many] == [[], ["third.onnx"]]


def test_a_dry_run_does_not_check_content_of_others(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        sha256 = api.upload("net.onnx", linear_model(np.ones((4, 3), np.float32)))["sha256"]
        asked = description(model="net.onnx", target="rpi4b")
        params = {"dry_run": "true", "local_file": f"100:{sha256}:net.onnx"}
        mine = api.as_("alice").post("/v1/benchmarks", json=asked, params=params).json()
        assert (mine["not_uploaded"], len(mine["workload"]["inputs"])) == ([], 1)
        theirs = api.as_("bob").post("/v1/benchmarks", json=asked, params=params).json()
        assert theirs["not_uploaded"] == [{"name": "net.onnx", "size_bytes": 100}]
        assert theirs["workload"]["inputs"] == []
        assert theirs["workload"]["model_sha256"] is None


@pytest.mark.parametrize("text", ["", "5", "5:net.onnx", "x::net.onnx", "5:abc:net.onnx", "5::"])
def test_a_malformed_local_file_is_refused(roomy: Api, text: str) -> None:
    params = {"dry_run": "true", "local_file": text}
    answer = roomy.as_().post("/v1/benchmarks", json=description(), params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/local_file"
    asked = roomy.as_().post(
        "/v1/benchmarks", json=description(), params={"local_file": "5::net.onnx"}
    )
    assert "with dry_run only" in asked.json()["errors"][0]["reason"]


def test_a_dry_run_counts_what_is_not_uploaded_for_the_quota(tmp_path: Path) -> None:
    with running(tmp_path, user_max_bytes=1000) as api:
        asked = description(model="net.onnx", target="rpi4b")
        params = {"dry_run": "true", "local_file": "1001::net.onnx"}
        refused = api.as_().post("/v1/benchmarks", json=asked, params=params)
        assert refused.status_code >= 400
        assert "max_bytes of user alice is 1000" in refused.json()["detail"]


@pytest.mark.parametrize("targets", [("rpi4b",), ("rpi4b", "rpi5")], ids=["one", "matrix"])
def test_a_dataset_over_the_limit_is_refused_before_anything_is_sent(
    tmp_path: Path, targets: tuple[str, ...]
) -> None:
    model, rows = tmp_path / "net.onnx", tmp_path / "rows.npz"
    model.write_bytes(linear_model(np.ones((4, 3), np.float32)))
    np.savez(rows, x=np.zeros((200_000, 4), np.float32), y=np.zeros(200_000, np.int64))
    with running(tmp_path, dataset_limit_bytes=2 * 2**20) as api:
        with (
            Client(api.url, api.tokens["alice"]) as client,
            pytest.raises(ValidationFailed, match=r"/dataset: the file has .* as a dataset"),
        ):
            client.submit(
                model=model,
                runtime="ort",
                benchmark_type="TYPE2",
                dataset=rows,
                target=targets[0] if len(targets) == 1 else targets,
            )
        assert api.as_().get("/v1/files").json()["items"] == []


IMAGES = {"shape": [2**16, 1, 8, 8]}


@pytest.mark.parametrize(
    ("runtime", "model", "fields", "pointer"),
    [
        ("ort", "digits.onnx", {"input": {"image": IMAGES}}, "/input/image"),
        ("ort", "digits.onnx", {"parameters": {"batch_size": 2**16}}, "/parameters/batch_size"),
        ("openvino", "digits.xml", {"input": {"image": IMAGES}}, "/input/image"),
        ("ncnn", "digits.ncnn.param", {"input": {"image": IMAGES}}, "/input/image"),
    ],
)
def test_inputs_that_exceed_the_memory_are_refused(
    tmp_path: Path, runtime: str, model: str, fields: dict[str, Any], pointer: str
) -> None:
    small = board("rpi4b-0001-0008", ram_bytes=8 * 2**20)
    engines = tuple(replace(small.engines[0], name=each) for each in ("ort", "openvino", "ncnn"))
    job: dict[str, Any] = {"model": DEMO / model, "runtime": runtime, "benchmark_type": "TYPE1"}
    with running(tmp_path, unknown_devices="allow") as api:
        api.engine.unknown = (replace(small, engines=engines),)
        with Client(api.url, api.tokens["alice"]) as client:
            with pytest.raises(ValidationFailed) as refusal:
                client.submit(**job, **fields, target_uid=small.target_uid)
            (problem,) = refusal.value.errors
            said = "makes inputs of 16 MiB, and rpi4b-0001-0008 has 8 MiB of memory"
            assert (problem.pointer, problem.reason) == (pointer, said)
            client.submit(**job, target_uid=small.target_uid)
