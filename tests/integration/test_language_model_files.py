"""Language models have a file role of their own, wherever a benchmark's files are read."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeyard.devices.model import BoardEngine
from edgeyard.devices.runner.engines import BUILT_IN
from edgeyard.scheduler.engine.dispatch import TaskLimits, spec_of
from edgeyard.scheduler.hcl.build import JobFile, environment
from edgeyard.scheduler.model.benchmark import Benchmark, FileRole
from edgeyard.scheduler.model.workload import workload
from edgeyard.scheduler.prediction.history import variant_of
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.hcl import a_request
from tests.builders.language_models import TINY_LLAMA, unchecked_archive
from tests.builders.model_files import a_model_file
from tests.builders.pages import as_
from tests.builders.records import a_benchmark_file, an_attempt
from tests.fakes.cluster import board
from tests.integration.test_api_benchmarks import refusal

GENAI: dict[str, Any] = {
    "runtime": "ort-genai",
    "benchmark_type": "GENAI",
    "model": "llama.zip",
    "nb_inference": ...,
}
TYPES = {
    "ort": BUILT_IN["ort"].types,
    "ort-genai": BUILT_IN["ort-genai"].types,
    "own": ("TYPE1", "GENAI"),
}
MODEL_BYTES, LANGUAGE_MODEL_BYTES = 100_000, 2 * 2**20


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("model") / "llama"
    folder.mkdir()
    for each in TINY_LLAMA.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    return unchecked_archive(folder).read_bytes()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, archive: bytes) -> Iterator[Api]:
    engines = tuple(BoardEngine(name, "1", frozenset(types)) for name, types in TYPES.items())
    limits = {
        "model_limit_bytes": MODEL_BYTES,
        "language_model_limit_bytes": LANGUAGE_MODEL_BYTES,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.builders.api.BOARDS", (board("rpi4b-0001-0001", engines=engines),))
        with running(tmp_path_factory.mktemp("api"), **limits) as started:
            started.upload("llama.zip", archive)
            started.upload("net.onnx", a_model_file())
            yield started


def stored(api: Api, benchmark_id: str) -> Benchmark:
    with api.store.read() as uow:
        return uow.benchmarks.get(benchmark_id)


def roles(api: Api, benchmark_id: str) -> list[str]:
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()
    return [each["role"] for each in shown["files"]]


def clone(api: Api, benchmark_id: str, **changes: object) -> str:
    answer = api.as_().post(f"/v1/benchmarks/{benchmark_id}/clone", json=changes)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["benchmark_id"])


ONE_PASS: dict[str, Any] = {
    "benchmark_type": "TYPE1",
    "nb_inference": 20,
    "input": {"input_ids": {"shape": [1, 16]}},
}


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        (GENAI, "language_model"),
        ({**GENAI, **ONE_PASS}, "language_model"),
        ({**GENAI, "runtime": "own", "model": "net.onnx"}, "language_model"),
        ({"runtime": "own", "model": "net.onnx"}, "model"),
        ({"model": "net.onnx"}, "model"),
    ],
    ids=["genai", "one pass of genai", "tokens of another engine", "another engine", "ort"],
)
def test_what_is_asked_for_tokens_is_a_language_model(
    api: Api, changes: dict[str, Any], role: str
) -> None:
    assert roles(api, api.submit(**changes)) == [role]


def test_a_clone_has_the_role_that_its_own_engine_and_type_need(api: Api) -> None:
    benchmark_id = api.submit(**GENAI)
    assert roles(api, clone(api, benchmark_id, tags=["again"])) == ["language_model"]
    own = api.submit(**{**GENAI, "runtime": "own", "model": "net.onnx"})
    as_type1 = clone(api, own, benchmark_type="TYPE1", parameters={})
    assert roles(api, as_type1) == ["model"]
    assert roles(api, clone(api, as_type1, benchmark_type="GENAI")) == ["language_model"]
    other = clone(api, as_type1, benchmark_type="GENAI", model="llama.zip")
    assert [each.name for each in stored(api, other).files] == ["llama.zip"]


def test_its_content_is_that_of_the_benchmarks_model(api: Api, archive: bytes) -> None:
    benchmark = stored(api, api.submit(**GENAI))
    (file,) = benchmark.files
    assert (file.role, file.size_bytes) == (FileRole.LANGUAGE_MODEL, len(archive))
    assert benchmark.model_sha256 == file.sha256
    assert workload(benchmark, {})["model_sha256"] == file.sha256
    spec = spec_of(benchmark, an_attempt(benchmark.benchmark_id), "http://x", TaskLimits())
    assert spec["model"] == {
        "filename": "llama.zip",
        "sha256": file.sha256,
        "size_bytes": len(archive),
    }
    assert spec["datasets"] == []
    data = a_benchmark_file(role=FileRole.DATASET, name="d.npz")
    other_content = (replace(file, sha256="0" * 64),)
    assert variant_of(replace(benchmark, files=other_content)) == variant_of(benchmark)
    assert variant_of(replace(benchmark, files=(file, data))) != variant_of(benchmark)


def test_the_job_names_it_as_the_model(api: Api) -> None:
    benchmark = stored(api, api.submit(**GENAI))
    files = tuple(
        JobFile(role=each.role, filename=each.name, download=each.name) for each in benchmark.files
    )
    request = a_request(description=benchmark.description, files=files)
    assert environment(request, "http://x")["MODEL_FILENAME"] == "llama.zip"


def test_its_page_lists_it_with_its_role(api: Api) -> None:
    benchmark_id = api.submit(**GENAI)
    sha256 = stored(api, benchmark_id).model_sha256 or ""
    shown = " ".join(as_(api).get(f"/ui/benchmarks/{benchmark_id}").text.split())
    file = r'llama\.zip <span class="hint">language model, [0-9.]+ KiB, SHA-256 '
    assert re.search(file + sha256[:8], shown)


def test_it_has_a_limit_of_its_own(api: Api, archive: bytes) -> None:
    assert MODEL_BYTES < len(archive) < LANGUAGE_MODEL_BYTES
    api.submit(**GENAI)
    [error] = refusal(
        api.as_().post("/v1/benchmarks", json=description(runtime="own", model="llama.zip"))
    )["errors"]
    assert error["pointer"] == "/model"
    assert error["accepted"].endswith("as a model")
    params = {"model_bytes": LANGUAGE_MODEL_BYTES + 1}
    [error] = refusal(
        api.as_().post("/v1/benchmarks/check", json=description(**GENAI), params=params)
    )["errors"]
    assert (error["pointer"], error["accepted"]) == ("/model", "at most 2 MiB as a language model")
    shown = {each["name"]: each for each in api.as_().get("/v1/limits").json()["items"]}
    assert shown["language_model_limit_bytes"]["value"] == LANGUAGE_MODEL_BYTES


def test_a_language_model_of_an_address_is_fetched_within_its_own_limit(api: Api) -> None:
    url = "https://models.example/llama.zip"
    benchmark_id = api.submit(**{**GENAI, "model": ..., "model_url": url})
    (file,) = stored(api, benchmark_id).files
    assert (file.role, file.url, file.name) == (FileRole.LANGUAGE_MODEL, url, "llama.zip")
    assert api.services.settings.file_limits[file.role] == LANGUAGE_MODEL_BYTES


def test_a_language_model_that_was_deleted_is_reported_as_the_model(
    api: Api, archive: bytes, tmp_path: Path
) -> None:
    benchmark_id = api.submit(**GENAI)
    sha256 = stored(api, benchmark_id).model_sha256 or ""
    path = api.files.path(sha256)
    moved = path.rename(tmp_path / "moved")
    try:
        answer = api.as_().post(f"/v1/benchmarks/{benchmark_id}/clone", json={})
        [error] = refusal(answer)["errors"]
    finally:
        moved.rename(path)
    assert error["pointer"] == "/model"


@pytest.mark.parametrize(
    "name", ["model_limit_bytes", "language_model_limit_bytes", "dataset_limit_bytes"]
)
def test_an_upload_over_the_largest_limit_names_the_setting_that_states_it(
    tmp_path: Path, name: str
) -> None:
    settings = ("model_limit_bytes", "language_model_limit_bytes", "dataset_limit_bytes")
    limits = dict.fromkeys(settings, 1000) | {name: 2000}
    with running(tmp_path, **limits) as api:
        whole = api.as_().post("/v1/files", files={"file": ("x.bin", bytes(2001))})
        headers = {"Upload-Length": "2001", "Upload-Metadata": "filename eC5iaW4="}
        begun = api.as_().post("/v1/uploads", headers=headers)
    for answer in (whole, begun):
        assert answer.status_code == 413, answer.text
        limit = answer.json()["limit"]
        assert (limit["name"], limit["value"]) == (name, 2000)


def test_a_form_with_a_file_over_both_limits_of_models_names_the_larger_one(tmp_path: Path) -> None:
    limits = {"model_limit_bytes": 2000, "language_model_limit_bytes": 1000}
    with running(tmp_path, **limits) as api:
        browser = as_(api)
        refused = browser.http.post(
            "/ui/submit",
            data={"csrf": browser.csrf("/ui/submit")},
            files={"model_file": ("x.onnx", bytes(2001))},
        )
    assert refused.status_code == 413
    assert "over the limit of 2000 bytes (model_limit_bytes of" in refused.text
