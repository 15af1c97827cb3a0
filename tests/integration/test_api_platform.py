"""The doors of the platform's client, with a cluster and an engine that are faked."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeyard.benchmark_api.schemas import parameters
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.runner.engines import litert, ncnn, openvino, ort
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.model.benchmark import FileRole
from edgeyard.scheduler.model.files import UserFile
from edgeyard.scheduler.model.retention import RetentionClass
from tests.builders.api import MODEL, Api, running
from tests.builders.cluster import eventually
from tests.builders.model_files import a_model_file


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("platform")) as found:
        yield found


def start(api: Api, who: str = "alice", model: bytes = MODEL, **fields: str) -> httpx.Response:
    form = {"device": "rpi4b", "engine": "ort", "nb_inference": "20", **fields}
    files = {"model": ("model.onnx", model)}
    return api.as_(who).post("/api/benchmarks/run", data=form, files=files)


def dataset(api: Api, content: bytes, name: str = "data.bin", who: str = "alice") -> str:
    digest = hashlib.sha256(content).hexdigest()
    answer = api.as_(who).post(
        "/api/benchmarks/datasets/upload",
        data={"hash": digest},
        files={"dataset": (name, content)},
    )
    assert answer.status_code == 207, answer.text
    return f"{name}_{digest}"


def test_what_is_submitted_is_a_benchmark_of_v1_with_the_same_meaning(api: Api) -> None:
    answer = start(
        api,
        target_uids=json.dumps(["rpi4b-0001-0001", "rpi4b-0001-0002"]),
        parameters=json.dumps({"threads": 2}),
    )
    assert answer.status_code == 200, answer.text
    shown = api.as_().get(f"/v1/benchmarks/{answer.json()['id']}").json()
    asked = shown["description"]
    assert (asked["target"], asked["runtime"], asked["benchmark_type"]) == ("rpi4b", "ort", "TYPE1")
    assert asked["nb_inference"] == 20
    assert asked["parameters"] == {"threads": 2}
    (constraint,) = asked["constraints"]
    assert constraint["value"] == "rpi4b-0001-0001,rpi4b-0001-0002"
    (file,) = shown["files"]
    assert file["sha256"] == hashlib.sha256(MODEL).hexdigest()


def test_models_of_one_name_do_not_get_mixed_up(api: Api) -> None:
    """Each submission keeps the content that came with it; none of them is a named file."""
    contents = (a_model_file(fill=b"1"), a_model_file(fill=b"2"))
    ids = [start(api, model=content).json()["id"] for content in contents]
    hashes = []
    for each in ids:
        (file,) = api.as_().get(f"/v1/benchmarks/{each}").json()["files"]
        hashes.append(file["sha256"])
    assert hashes == [hashlib.sha256(content).hexdigest() for content in contents]


def test_four_raw_files_become_one_dataset(api: Api) -> None:
    import io

    x, y = np.arange(24, dtype=np.float32).reshape(6, 2, 2), np.arange(6, dtype=np.int64)
    config: dict[str, Any] = {
        "learning_parameters": {"batch_size": 2, "epochs": 1},
        "input": {
            "name": "x",
            "shape": [2, 2],
            "dtype": "float32",
            "train_file": dataset(api, x[:4].tobytes()),
            "test_file": dataset(api, x[4:].tobytes()),
        },
        "output": {
            "name": "y",
            "shape": [1],
            "dtype": "int64",
            "train_file": dataset(api, y[:4].tobytes()),
            "test_file": dataset(api, y[4:].tobytes()),
        },
    }

    def train(**changes: Any) -> httpx.Response:
        reported = config | changes
        return api.as_().post(
            "/api/benchmarks/train",
            data={"device": "rpi5", "engine": "ort"},
            files={"model": ("m.onnx", MODEL), "config": ("config", json.dumps(reported))},
        )

    answer = train()
    assert answer.status_code == 200, answer.text
    with api.store.read() as uow:
        benchmark = uow.benchmarks.get(answer.json()["id"])
    (file,) = [each for each in benchmark.files if each.role is FileRole.DATASET]
    assert file.sha256 is not None
    arrays = np.load(io.BytesIO(api.files.path(file.sha256).read_bytes()))
    assert np.array_equal(arrays["x"], x[:4])
    assert np.array_equal(arrays["x_test"], x[4:])
    assert np.array_equal(arrays["y"], y[:4])
    assert np.array_equal(arrays["y_test"], y[4:])
    assert benchmark.description.odt_config == {"batch_size": 2, "epochs": 1}

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input": config["input"] | {"shape": [3]}}, "not whole rows|and a row of shape"),
        ({"input": config["input"] | {"shape": []}}, "has 96 rows|rows"),
        ({"input": config["input"] | {"shape": [0]}}, "/config/input/shape"),
        ({"input": config["input"] | {"shape": [2**50]}}, "/config/input/shape"),
        ({"input": config["input"] | {"dtype": "object"}}, "/config/input/dtype"),
        ({"input": config["input"] | {"dtype": "V8"}}, "/config/input/dtype"),
        ({"input": config["input"] | {"dtype": ">f4"}}, ">f4 is big-endian"),
        ({"input": config["input"] | {"train_file": "nothing"}}, "not a dataset that you uploaded"),
        ({"output": config["output"] | {"test_file": config["output"]["train_file"]}}, "rows"),
        ({"learning_parameters": {"epochs": 0}}, "/config/learning_parameters/epochs"),
        ({"learning_parameters": {"epochs": 1, "optimizer": "adam"}}, "optimizer"),
        ({"learning_parameters": 7}, "/config/learning_parameters"),
    ]
    for changes, reported in wrong:
        refused = train(**changes)
        assert refused.status_code == 422, refused.text
        assert any(each in refused.json()["error"] for each in reported.split("|")), refused.text
        assert "odt_config" not in refused.text, "the client's user knows no such field"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"threads": -1}, "1 or more"),
        ({"threads": 0}, "1 or more"),
        ({"threads": True}, "a value of type integer"),
        ({"batch_size": 4}, "there is none"),
        ({"preprocessing": {"resize": 224}}, "there is none"),
    ],
)
def test_parameters_without_an_effect_or_out_of_range_are_refused(
    api: Api, values: dict[str, object], said: str
) -> None:
    refused = start(api, parameters=json.dumps(values))
    assert refused.status_code == 422
    assert f"/parameters/{next(iter(values))}" in refused.json()["error"]
    assert said in refused.json()["error"]


@pytest.mark.parametrize("path", ["/api/benchmarks", "/api/benchmarks/public"])
def test_a_type_that_does_not_exist_is_refused_with_those_that_do(api: Api, path: str) -> None:
    refused = api.as_().get(path, params={"benchmark_type": "TYPE100"})
    assert refused.status_code == 422
    assert "/benchmark_type" in refused.json()["error"]
    assert "TYPE1, TYPE2, TYPE3" in refused.json()["error"]
    assert api.as_().get(path, params={"benchmark_type": "TYPE3"}).status_code == 200


def test_an_unimplemented_route_is_not_logged_as_a_server_error(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    def levels() -> list[int]:
        return [
            record.levelno
            for record in caplog.records
            if record.getMessage() == "request answered" and getattr(record, "status", None) == 501
        ]

    with caplog.at_level(logging.INFO):
        assert api.as_().get("/api/benchmarks/fl").status_code == 501
        eventually(lambda: bool(levels()), "the answer, which has arrived, is logged")
    assert levels() == [logging.INFO]


def test_a_full_quota_is_no_error_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, user_max_registrations=0) as api, caplog.at_level(logging.WARNING):
        family = {"name": "family", "display_name": "x"}
        answer = api.as_().post("/api/targets/hardware-types", json=family)
        assert answer.status_code == 507
        assert "user_max_registrations" in answer.json()["error"]
    levels = [record.levelno for record in caplog.records if "answered" in record.getMessage()]
    assert levels == [logging.WARNING]


def test_all_files_are_listed_however_many_there_are(api: Api) -> None:
    """The client has no pages for them, and takes a dataset that is not listed for absent."""
    upload = {"model": ("first.onnx", MODEL)}
    assert api.as_("bob").post("/api/models/download", files=upload).status_code == 201
    first = dataset(api, b"the first rows", who="bob")
    with api.store.write() as uow:
        for number in range(1001):
            uow.files.add_user_file(
                UserFile(
                    file_id=f"file-listed-{number}",
                    user_id="bob",
                    name=f"{number}.bin",
                    sha256=hashlib.sha256(b"%d" % number).hexdigest(),
                    size_bytes=1,
                    created_at=api.clock.now(),
                )
            )
    assert first in api.as_("bob").get("/api/benchmarks/datasets").json()
    listed = api.as_("bob").get("/api/models/list").json()["user_models"]
    assert [each["model"] for each in listed] == ["first.onnx"]


def test_a_batch_size_goes_with_a_dataset(api: Api) -> None:
    reference = dataset(api, b"\0" * 64)
    asked = {"device": "rpi5", "engine": "ort", "dataset_name": reference}
    for size, status in ((2, 200), (0, 422), (65_537, 422)):
        answer = api.as_().post(
            "/api/benchmarks/run",
            data=asked | {"parameters": json.dumps({"batch_size": size})},
            files={"model": ("m.onnx", MODEL)},
        )
        assert answer.status_code == status, answer.text


def test_a_dataset_is_its_owner_s_and_its_hash_is_checked(api: Api) -> None:
    reference = dataset(api, b"rows of alice")
    assert dataset(api, b"rows of alice") == reference
    assert reference in api.as_().get("/api/benchmarks/datasets").json()
    assert reference not in api.as_("bob").get("/api/benchmarks/datasets").json()
    assert api.as_("bob").delete(f"/api/benchmarks/datasets/{reference}").status_code == 404
    wrong = api.as_().post(
        "/api/benchmarks/datasets/upload",
        data={"hash": "0" * 64},
        files={"dataset": ("data.bin", b"x")},
    )
    assert wrong.status_code == 400
    assert "SHA-256" in wrong.json()["error"]
    assert api.as_().delete(f"/api/benchmarks/datasets/{reference}").status_code == 200
    assert api.as_().delete(f"/api/benchmarks/datasets/{reference}").status_code == 404


def test_deleting_cancels_and_hides_a_benchmark_that_v1_still_shows(api: Api) -> None:
    made = start(api).json()["id"]
    assert api.as_("bob").delete(f"/api/benchmarks/{made}").status_code == 404
    assert api.as_().delete(f"/api/benchmarks/{made}").status_code == 200
    assert api.as_().delete(f"/api/benchmarks/{made}").status_code == 404
    assert api.as_().get(f"/api/benchmarks/{made}/status").status_code == 404
    listed = api.as_().get("/api/benchmarks").json()["benchmarks"]
    assert made not in [each["id"] for each in listed]
    assert api.as_().get(f"/v1/benchmarks/{made}").json()["status"] == "cancelled"


def run_of(api: Api, benchmark_id: str) -> tuple[str, dict[str, str]]:
    """Dispatch a benchmark and upload a report, a log and an output; the job and their hashes."""
    attempt = api.dispatched(benchmark_id)
    job = attempt.job_id.removeprefix("benchmark-")
    headers = {"Authorization": "Bearer upload-token-1"}
    hashes = {}
    for name in ("raw_output.bin", "runner.log", "report.json"):
        content = json.dumps({"of": benchmark_id, "name": name}).encode()
        path = f"/upload/{job}/{name}"
        assert api.as_(None).put(path, content=content, headers=headers).status_code == 201
        hashes[name] = hashlib.sha256(content).hexdigest()
    return attempt.job_id, hashes


def data_of(api: Api, benchmark_id: str) -> list[object]:
    """Return what is stored of what its runs uploaded."""
    with api.store.read() as uow:
        return [*uow.files.results(benchmark_id), *uow.files.reports(benchmark_id)]


def test_deleting_removes_the_data_and_v1_keeps_the_record(api: Api) -> None:
    model, shared = a_model_file(fill=b"of this alone"), a_model_file(fill=b"shared")
    made, other = start(api, model=model).json()["id"], start(api, model=shared).json()["id"]
    same = start(api, model=shared).json()["id"]
    hashes = {}
    for each in (made, other):
        _, hashes[each] = run_of(api, each)
        api.ended(each)
    assert api.as_().delete(f"/api/benchmarks/{made}").status_code == 200
    assert data_of(api, made) == []
    for gone in (hashlib.sha256(model).hexdigest(), hashes[made]["raw_output.bin"]):
        assert not api.files.contains(gone)
    shown = api.as_().get(f"/v1/benchmarks/{made}").json()
    assert shown["status"] == "completed"
    assert shown["attempts"][0]["target_uid"]
    results = api.as_().get(f"/v1/benchmarks/{made}/results").json()
    assert results["reports"] == results["files"] == []
    # What is of others stays.
    assert api.as_().delete(f"/api/benchmarks/{other}").status_code == 200
    assert api.files.contains(hashlib.sha256(shared).hexdigest()), "another benchmark waits with it"
    assert api.as_().get(f"/api/benchmarks/{same}").json()["status"] == "queued"


def test_deleting_what_runs_removes_the_data_when_the_run_has_ended(api: Api) -> None:
    model = a_model_file(fill=b"deleted while it runs")
    made = start(api, model=model).json()["id"]
    _, hashes = run_of(api, made)
    assert api.as_().delete(f"/api/benchmarks/{made}").status_code == 200
    collect_garbage(api.store, api.files, api.clock, {})
    assert api.files.contains(hashlib.sha256(model).hexdigest()), "the task may still read it"
    api.ended(made)
    dry = collect_garbage(api.store, api.files, api.clock, {}, dry_run=True)
    assert dry.pruned[RetentionClass.EXPIRED].rows >= 1
    assert data_of(api, made)
    collect_garbage(api.store, api.files, api.clock, {})
    assert data_of(api, made) == []
    with api.store.read() as uow:
        assert not uow.files.referenced(hashlib.sha256(model).hexdigest())
        assert not uow.files.referenced(hashes["raw_output.bin"])
    again = collect_garbage(api.store, api.files, api.clock, {})
    assert again.pruned[RetentionClass.EXPIRED].rows == 0


def test_pages_follow_each_other_and_end(api: Api) -> None:
    for _ in range(3):
        start(api, "bob")
    everything = api.as_("bob").get("/api/benchmarks").json()
    ids = [each["id"] for each in everything["benchmarks"]]
    for status in (None, "queued"):
        paged = []
        for page in range(1, 4):
            params = {"page": page, "page_length": 1} | ({"status": status} if status else {})
            body = api.as_("bob").get("/api/benchmarks", params=params).json()
            paged += [each["id"] for each in body["benchmarks"]]
        assert paged == ids[:3]
    last = api.as_("bob").get("/api/benchmarks", params={"page": len(ids) + 1, "page_length": 1})
    assert last.status_code == 404
    assert "does not exist" in last.json()["error"]


def test_the_client_lists_exactly_what_the_engines_accept() -> None:
    """Those of the engine and those of the runner, with the choices and bounds of the engine."""
    engines = {"ort": ort, "tflite": litert, "openvino": openvino, "ncnn": ncnn}
    content = {name: {each.key for each in parameters.of_engine(name)} for name in engines}
    runner = {"batch_size", "preprocessing"}
    assert content == {name: {*each.PARAMETERS} | runner for name, each in engines.items()}
    known = {each.key: each for each in parameters.BUILT_IN}
    assert known["performance_hint"].choices == openvino.HINTS
    assert known["streams"].max_value == openvino.MAX_STREAMS
    assert known["powersave"].choices == ncnn.POWERSAVE


def test_the_default_configuration_is_an_entry_of_the_boards_file(api: Api) -> None:
    made = api.as_().post(
        "/api/targets/hardware-instances",
        json={"hardware_type_id": "rpi4b", "engine_ids": ["ort"], "notes": "", "serial_number": ""},
    )
    assert made.status_code == 201, made.text
    uid = made.json()["inventory_id"]
    path = f"/api/targets/hardware-instances/{uid}/default-config"
    document = api.as_().get(path).json()
    (board,) = Inventory.from_json(document).boards
    assert board.target_uid == uid
    assert uid not in {"rpi4b-0001-0001", "rpi4b-0001-0002"}
    assert api.as_("bob").get(path).status_code == 404
    assert api.as_().delete(f"/api/targets/hardware-instances/{uid}").status_code == 200


def test_boards_of_a_new_family_are_numbered_from_1(api: Api) -> None:
    family = {"name": "newfamily", "display_name": "New", "description": ""}
    assert api.as_().post("/api/targets/hardware-types", json=family).status_code == 201
    board = {"hardware_type_id": "newfamily", "engine_ids": ["ort"]}
    made = [api.as_().post("/api/targets/hardware-instances", json=board) for _ in range(2)]
    uids = [each.json()["inventory_id"] for each in made]
    assert uids == ["newfamily-0001-0001", "newfamily-0001-0002"]


def _problem(answer: httpx.Response) -> tuple[str, str]:
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    return error["pointer"], error["reason"]


def test_target_uids_that_no_constraint_holds_are_refused_by_the_client_s_name(api: Api) -> None:
    uids = json.dumps([f"rpi4b-0001-{number:04}" for number in range(1, 40)])
    pointer, reason = _problem(start(api, target_uids=uids))
    assert pointer == "/target_uids"
    assert "too many" in reason


@pytest.mark.parametrize("uid", ["rpi4b-0001-0099", "rpi5-0001-0001", "x", 7, None])
def test_each_of_the_target_uids_must_be_a_board_of_the_family(api: Api, uid: object) -> None:
    """Also beside one that is: a misspelt name would narrow the choice without a word."""
    answer = start(api, target_uids=json.dumps(["rpi4b-0001-0001", uid]))
    pointer, reason = _problem(answer)
    assert pointer == "/target_uids"
    assert reason.startswith("holds what is not a board of rpi4b: ")
    assert str(uid) in reason or uid is None
    (error,) = answer.json()["errors"]
    assert "rpi4b-0001-0001" in error["accepted"]
    assert "rpi4b-0001-0002" in error["accepted"]


def test_a_registered_target_without_a_board_is_refused_with_that_reason(api: Api) -> None:
    doors = api.as_()
    family = {"name": "announced", "display_name": "x"}
    assert doors.post("/api/targets/hardware-types", json=family).status_code == 201
    engine = {"name": "announcedtoo", "display_name": "x"}
    assert doors.post("/api/targets/engines", json=engine).status_code == 201
    refused = {
        "/device": start(api, device="announced"),
        "/engine": start(api, engine="announcedtoo"),
    }
    for where, answer in refused.items():
        pointer, reason = _problem(answer)
        assert pointer == where
        assert reason == "is registered, but the lab has no board for it"
    _, reason = _problem(start(api, device="unheardof"))
    assert reason == "no such family is known"


def test_parameters_are_shown_as_they_were_sent(api: Api) -> None:
    rows = dataset(api, np.zeros(4, np.float32).tobytes(), "shown.bin")
    made = start(api, dataset_name=rows, parameters=json.dumps({"threads": 1}))
    assert made.status_code == 200, made.text
    shown = api.as_().get(f"/api/benchmarks/{made.json()['id']}").json()
    assert shown["benchmark_type"] == "TYPE2"
    assert shown["parameters"] == {"threads": 1}


def test_a_board_of_an_unknown_family_is_refused_with_those_that_there_are(api: Api) -> None:
    board = {"hardware_type_id": "unheardof", "engine_ids": ["ort"]}
    answer = api.as_().post("/api/targets/hardware-instances", json=board)
    assert _problem(answer) == ("/hardware_type_id", "no such family is known")
    (error,) = answer.json()["errors"]
    assert "rpi4b" in error["accepted"]


@pytest.mark.parametrize("count", ["9" * 25, "1.5", "1_0", "\u0661", "x", ""])
def test_an_invalid_number_of_inferences_is_refused(api: Api, count: str) -> None:
    pointer, reason = _problem(start(api, nb_inference=count))
    assert (pointer, reason) == ("/nb_inference", "is not a whole number in this range")


def test_a_model_s_url_is_refused_by_the_client_s_name(api: Api) -> None:
    form = {"device": "rpi4b", "engine": "ort", "model_ref": "http://169.254.169.254/x.onnx"}
    pointer, _ = _problem(api.as_().post("/api/benchmarks/run", data=form))
    assert pointer == "/model_ref"


def test_a_model_with_any_letters_is_started_by_its_reference(api: Api) -> None:
    """The client sends a reference in a form without files, which is urlencoded."""
    upload = {"model": ("modèle-模型.onnx", MODEL)}
    made = api.as_().post("/api/models/download", files=upload)
    assert made.json()["model"] == "modèle-模型.onnx"
    form = {"device": "rpi4b", "engine": "ort", "model_ref": made.json()["model"]}
    started = api.as_().post("/api/benchmarks/run", data=form)
    assert started.status_code == 200, started.text
    listed = api.as_().get(f"/api/benchmarks/{started.json()['id']}").json()
    assert listed["model"] == "modèle-模型.onnx"
    content = b"device=rpi4b&engine=ort&model_ref=%ff"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    refused = api.as_().post("/api/benchmarks/run", content=content, headers=headers)
    assert _problem(refused) == ("/model_ref", "is not UTF-8")


def test_a_conversion_needs_a_format_and_a_list_without_parameters_has_a_reason(api: Api) -> None:
    upload = {"model": ("given.onnx", MODEL)}
    assert api.as_().post("/api/models/download", files=upload).status_code == 201
    for to, status in (("", 422), (" ", 422), (".onnx", 200), ("tflite", 501)):
        query = {"resource_identifier": "given.onnx", "convert_to": to}
        assert api.as_().post("/api/models/convert", params=query).status_code == status
    none = api.as_("bob").get("/api/targets/engine-parameters")
    assert (none.status_code, none.json()["error"]) == (404, "you have registered no parameters")


def test_what_the_client_has_not_uploaded_is_refused_in_its_words(api: Api) -> None:
    form = {"device": "rpi4b", "engine": "ort", "model_ref": "absent.onnx"}
    refused = api.as_().post("/api/benchmarks/run", data=form)
    assert "you have no file 'absent.onnx'" in refused.json()["error"]
    assert "uploadModel" in refused.json()["error"]
    assert "/v1/" not in refused.text
    form = {"device": "rpi5", "engine": "ort", "dataset_name": "absent.bin"}
    refused = api.as_().post("/api/benchmarks/run", data=form, files={"model": ("m.onnx", MODEL)})
    assert "uploadDataset" in refused.json()["error"]
    assert "/v1/" not in refused.text


@pytest.mark.parametrize("suffix", ["onnx", ".tar.gz", "", ".x y"])
def test_an_invalid_file_extension_is_refused_with_a_sentence(api: Api, suffix: str) -> None:
    engine = {"name": "withsuffix", "display_name": "x", "supported_file_extensions": [suffix]}
    pointer, reason = _problem(api.as_().post("/api/targets/engines", json=engine))
    assert pointer == "/supported_file_extensions/0"
    assert "is not a file extension" in reason


def test_a_file_in_a_field_of_texts_is_named(api: Api) -> None:
    form = {"device": "rpi4b", "engine": "ort"}
    files = {"modell": ("model.onnx", b"\xff\xfe")}
    answer = api.as_().post("/api/benchmarks/run", data=form, files=files)
    pointer, reason = _problem(answer)
    assert (pointer, reason) == ("/modell", "is not UTF-8")


def test_doors_of_forms_ask_for_a_form(api: Api) -> None:
    for path in ("/api/benchmarks/run", "/api/benchmarks/datasets/upload"):
        answer = api.as_().post(path, json={"device": "rpi4b"})
        assert answer.status_code == 415
        assert "multipart/form-data" in answer.json()["detail"]
        assert "send application/json" not in answer.json()["detail"]


_TEXT = st.text(max_size=30)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.dictionaries(
    st.sampled_from(
        [
            *("device", "engine", "target_uids", "nb_inference", "parameters", "model_ref"),
            *("dataset_name", "config", "hash"),
        ]
    ),
    _TEXT
    | _JSON.map(json.dumps)
    | st.sampled_from(["rpi4b", "rpi5", "ort", "[]", "{}", "20", "-1", "null", "NaN", "1e999"]),
    max_size=9,
)
_FORMS = ("/api/benchmarks/run", "/api/benchmarks/train", "/api/benchmarks/datasets/upload")
_OBJECTS = (
    ("POST", "/api/users/login"),
    ("POST", "/api/users/token/refresh"),
    ("POST", "/api/targets/hardware-types"),
    ("POST", "/api/targets/engines"),
    ("POST", "/api/targets/hardware-instances"),
    ("POST", "/api/targets/engine-parameters"),
    ("PATCH", "/api/targets/engine-parameters/x"),
    ("POST", "/api/targets/engines/ort/parameters"),
)
_KEYS = st.sampled_from(
    [
        *("email", "password", "refresh", "name", "display_name", "description", "key", "type"),
        *("hardware_type_id", "engine_ids", "default_values", "supported_file_extensions"),
    ]
)
_RELAXED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _is_sensible(answer: httpx.Response) -> bool:
    return answer.status_code < 500 and (answer.status_code < 400 or bool(answer.json()["error"]))


@_RELAXED
@given(path=st.sampled_from(_FORMS), fields=_FIELDS, file=st.binary(max_size=20) | st.none())
def test_no_input_makes_a_server_error(
    api: Api, path: str, fields: dict[str, str], file: bytes | None
) -> None:
    name = "dataset" if path.endswith("upload") else "model"
    files = None if file is None else {name: ("file.onnx", file)}
    try:
        answer = api.as_().post(path, data=fields, files=files)
    except UnicodeEncodeError:
        return  # a lone surrogate, which the client can't send either
    assert _is_sensible(answer), answer.text


@_RELAXED
@given(where=st.sampled_from(_OBJECTS), tree=st.dictionaries(_KEYS, _JSON, max_size=5))
def test_no_object_makes_a_server_error(
    api: Api, where: tuple[str, str], tree: dict[str, Any]
) -> None:
    method, path = where
    try:
        content = json.dumps(tree).encode()
    except ValueError:
        return
    answer = api.as_().request(
        method, path, content=content, headers={"Content-Type": "application/json"}
    )
    assert _is_sensible(answer), answer.text


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/api/benchmarks", {"page": "0"}),
        ("/api/benchmarks", {"page": "x"}),
        ("/api/benchmarks", {"page": "99999999999999999999"}),
        ("/api/benchmarks", {"page": "1000000", "page_length": "1000"}),
        ("/api/benchmarks", {"status": "sleeping"}),
        ("/api/benchmarks/config", {"full": "maybe"}),
        ("/api/benchmarks/%00/status", {}),
        ("/api/benchmarks/..%2f..%2fetc/results", {}),
        ("/api/models/list", {"platform": "huggingface"}),
        ("/api/targets/engine-parameters/%ff", {}),
        ("/api/targets/hardware-instances/x/default-config", {}),
        ("/api/nothing", {}),
    ],
)
def test_unknown_and_invalid_objects_are_client_errors(
    api: Api, path: str, params: dict[str, str]
) -> None:
    answer = api.as_().get(path, params=params)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]


@pytest.mark.parametrize("text", ["\x00", "\ud800", "x" * 3000, "'; --", "%"])
def test_no_filter_makes_a_server_error(api: Api, text: str) -> None:
    for name in ("engine", "platform", "benchmark_type", "model"):
        query = f"{name}={quote(text, errors='surrogatepass')}"
        assert api.as_().get(f"/api/benchmarks?{query}").status_code < 500


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"resource_identifier": "http://127.0.0.1/x.onnx"}, 422),
        ({"resource_identifier": "file:///etc/passwd"}, 422),
        ({"resource_identifier": "https://example.org/x.onnx"}, 201),
        ({"resource_identifier": "absent.onnx"}, 404),
        ({"platform": "huggingface", "resource_identifier": "x"}, 422),
        ({}, 404),
    ],
)
def test_a_model_is_named_by_a_reference_or_a_url(
    api: Api, query: dict[str, str], status: int
) -> None:
    answer = api.as_().post("/api/models/download", params=query)
    assert answer.status_code == status, answer.text
    if status == 201:
        assert answer.json()["model"] == query["resource_identifier"]


def test_the_list_that_needs_no_token_does_not_grow_by_links(api: Api) -> None:
    doors = api.as_()
    parameter = {"key": "linked", "display_name": "x", "type": "string"}
    assert doors.post("/api/targets/engine-parameters", json=parameter).status_code == 201
    linked = []
    for number in range(11):
        engine = {"name": f"linked{number}", "display_name": "x"}
        assert doors.post("/api/targets/engines", json=engine).status_code == 201
        answer = doors.post(f"/api/targets/engines/linked{number}/parameters/linked")
        linked.append(answer.status_code)
    assert linked == [200] * 10 + [409]
    (listed,) = [
        each
        for each in api.as_(None).get("/api/targets/engines/all").json()
        if each["name"] == "linked0"
    ]
    assert listed["parameters"] == [
        {"id": "linked", "key": "linked", "display_name": "x", "type": "string"}
    ]
    assert doors.delete("/api/targets/engines/linked0/parameters/linked").status_code == 200
    answer = doors.post("/api/targets/engines/linked10/parameters/linked")
    assert answer.status_code == 200


def test_what_is_refused_leaves_no_content_behind(api: Api) -> None:
    content = b"refused " * 1000
    digest = hashlib.sha256(content).hexdigest()
    doors = api.as_()
    model = {"model": ("model.onnx", content)}
    form = {"device": "no-such-family", "engine": "ort", "nb_inference": "20"}
    assert doors.post("/api/benchmarks/run", data=form, files=model).status_code == 422
    assert not api.files.contains(digest)
    assert doors.post("/api/benchmarks/train", data=form, files=model).status_code in (400, 422)
    assert not api.files.contains(digest)
    no_text: dict[str, Any] = {"device": b"\xff", "engine": "ort"}
    assert doors.post("/api/benchmarks/run", data=no_text, files=model).status_code == 422
    assert not api.files.contains(digest)
    answer = doors.post(
        "/api/benchmarks/datasets/upload",
        data={"hash": "0" * 64},
        files={"dataset": ("data.bin", content)},
    )
    assert answer.status_code == 400
    assert not api.files.contains(digest)
    # What somebody has already stays.
    reference = dataset(api, content)
    assert doors.post("/api/benchmarks/run", data=form, files=model).status_code == 422
    assert api.files.contains(digest)
    assert doors.delete(f"/api/benchmarks/datasets/{reference}").status_code == 200
