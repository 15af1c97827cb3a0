"""Campaigns and benchmarks found by name, schedule and time of submission."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from onnx import helper

from edgeyard import Client
from edgeyard.devices.model import BoardEngine
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.engine.intake import fire_due
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.networks import DEMO
from tests.builders.runner import model_of
from tests.fakes.cluster import board


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


def campaign(api: Api, name: str = "", **common: object) -> str:
    shared = {key: value for key, value in description(**common).items() if key != "target"}
    body: dict[str, object] = {"matrix": {"target": ["rpi4b"]}, "description": shared}
    if name:
        body["name"] = name
    answer = api.as_().post("/v1/campaigns", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["campaign_id"])


def listed(api: Api, path: str, who: str = "alice") -> list[Any]:
    answer = api.as_(who).get(path)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_campaigns_are_listed_newest_first_with_their_counts(api: Api) -> None:
    first = campaign(api, "nightly")
    api.clock.ahead += timedelta(seconds=60)
    second = campaign(api, "weekly")
    items = listed(api, "/v1/campaigns")
    assert [each["campaign_id"] for each in items] == [second, first]
    assert items[0]["counts"] == {"pending": 1}
    assert items[0]["benchmarks"] == 1
    assert [each["name"] for each in listed(api, "/v1/campaigns?name=nightly")] == ["nightly"]
    page = api.as_().get("/v1/campaigns?limit=1").json()
    rest = listed(api, f"/v1/campaigns?limit=1&cursor={page['next_cursor']}")
    assert [each["campaign_id"] for each in rest] == [first]
    assert api.as_().get("/v1/campaigns?cursor=x").status_code == 422
    assert listed(api, "/v1/campaigns", "bob") == []
    assert len(listed(api, "/v1/campaigns", "operator")) == 2


def test_the_name_of_the_members_is_that_of_their_campaign(api: Api) -> None:
    made = campaign(api, "sweep")
    assert listed(api, "/v1/campaigns")[0]["name"] == "sweep"
    (member,) = listed(api, "/v1/benchmarks?name=sweep")
    assert (member["campaign_id"], member["name"]) == (made, "sweep")
    shared = {**description(name="shared"), "target": ...}
    body = {
        "matrix": {"target": ["rpi4b"]},
        "description": {key: value for key, value in shared.items() if value is not ...},
    }
    assert api.as_().post("/v1/campaigns", json=body).status_code == 202
    assert listed(api, "/v1/campaigns?name=shared")[0]["benchmarks"] == 1


def test_benchmarks_are_found_by_name_and_time(api: Api) -> None:
    old = api.submit(name="nightly", tags=["ci"])
    api.clock.ahead += timedelta(seconds=3600)
    new = api.submit(name="nightly")
    api.submit()
    between = (api.clock.now() - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    ids = [each["benchmark_id"] for each in listed(api, "/v1/benchmarks?name=nightly")]
    assert ids == [new, old]
    recent = f"/v1/benchmarks?name=nightly&submitted_from={between}"
    assert [each["benchmark_id"] for each in listed(api, recent)] == [new]
    assert api.as_().get(f"{recent}&total=true").json()["total"] == 1
    before = f"/v1/benchmarks?tag=ci&submitted_before={between}"
    assert [each["benchmark_id"] for each in listed(api, before)] == [old]
    pending = f"/v1/benchmarks?status=pending&submitted_before={between}"
    assert [each["benchmark_id"] for each in listed(api, pending)] == [old]
    assert api.as_().get("/v1/benchmarks?submitted_from=2026-11-01").status_code == 422


def test_benchmarks_of_a_schedule_are_found_by_it(api: Api) -> None:
    asked = description(cron="0 3 * * *")
    schedule = api.as_().post("/v1/benchmarks", json=asked).json()["schedule_id"]
    api.clock.ahead += timedelta(seconds=86400)
    assert fire_due(api.store, api.clock) == 1
    (found,) = listed(api, f"/v1/benchmarks?schedule_id={schedule}")
    assert found["schedule_id"] == schedule
    assert listed(api, "/v1/benchmarks?schedule_id=absent") == []


def network(*inputs: str) -> bytes:
    """Return a model that adds inputs whose sizes are all open."""
    return model_of(
        [helper.make_node("Sum", list(inputs), ["out"])],
        {name: ["rows", "columns"] for name in inputs},
        {"out": [None, None]},
    )


def matrix(api: Api, path: str, models: list[str], **shared: object) -> httpx.Response:
    common = {"runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi4b", **shared}
    return api.as_().post(path, json={"matrix": {"model": models}, "description": common})


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize("path", ["/v1/campaigns", "/v1/campaigns?dry_run=true"])
def test_a_matrix_lists_the_mistakes_of_all_files_with_their_names(
    api: Api, path: str, by_url: bool
) -> None:
    contents = {
        "open.onnx": network("p"),
        "page.onnx": b"<!DOCTYPE html><html></html>",
        "good.onnx": network("p", "q"),
        "other.onnx": b"<html></html>",
    }
    urls = {name: put(api, name, data) for name, data in contents.items()}
    models = [urls[name] if by_url else name for name in contents]
    answer = matrix(api, path, [*models, *([] if by_url else ["gone.onnx"])])
    assert answer.status_code == 422, answer.text
    errors = {
        (each["pointer"], each["reason"].split(": check")[0]) for each in answer.json()["errors"]
    }
    assert ("/matrix/model", "page.onnx, other.onnx: is a web page, not an ONNX file") in errors
    open_p = "the model leaves dimension 1 of [rows, columns] open"
    assert ("/description/input/p", f"open.onnx, good.onnx: {open_p}") in errors
    assert ("/description/input/q", f"good.onnx: {open_p}") in errors
    if not by_url:
        assert ("/matrix/model", "you have no file 'gone.onnx'") in errors


def test_each_model_of_a_matrix_gets_the_inputs_that_it_has(api: Api) -> None:
    for name, inputs in {"one.onnx": "p", "two.onnx": "pq"}.items():
        put(api, name, network(*inputs))
    shapes = {name: {"shape": [1, 4]} for name in "pq"}
    dry = matrix(api, "/v1/campaigns?dry_run=true", ["one.onnx", "two.onnx"], input=shapes)
    assert dry.status_code == 200, dry.text
    found = [item["description"]["input"] for item in dry.json()["items"]]
    assert [sorted(each) for each in found] == [["p"], ["p", "q"]]
    made = matrix(api, "/v1/campaigns", ["one.onnx", "two.onnx"], input=shapes)
    assert made.status_code == 202, made.text
    foreign = matrix(
        api, "/v1/campaigns", ["one.onnx", "two.onnx"], input={**shapes, "z": {"shape": [1]}}
    )
    reasons = [each["reason"] for each in foreign.json()["errors"]]
    assert reasons == [f"{name}.onnx: the model has no input 'z'" for name in ("one", "two")]


def test_a_client_gives_each_local_model_of_a_matrix_its_inputs(api: Api, tmp_path: Path) -> None:
    models = {name: tmp_path / f"{name}.onnx" for name in ("one", "two")}
    models["one"].write_bytes(network("p"))
    models["two"].write_bytes(network("q"))
    asked: dict[str, Any] = {
        "model": list(models.values()),
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        "input": {name: {"shape": [1, 4]} for name in "pq"},
    }
    with Client(api.url, api.tokens["alice"]) as client:
        found = client.preview(asked)
        assert [[each["name"] for each in one.workload.inputs] for one in found] == [["p"], ["q"]]
        client.upload(models["one"])  # the server knows the inputs of one of them
        assert [one.would for one in client.preview(asked)] == ["run", "run"]
        assert len(client.submit(**asked)) == 2
        with pytest.raises(InvalidInput, match="no input 'z'"):
            client.submit(**{**asked, "input": {**asked["input"], "z": {"shape": [1]}}})


def test_a_matrix_is_checked_before_its_files_are_there(api: Api) -> None:
    answer = matrix(api, "/v1/campaigns/check", ["later.onnx", "too.onnx"])
    assert answer.status_code == 200, answer.text
    refused = matrix(api, "/v1/campaigns/check", ["later.onnx"], target="nosuch")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/description/target"


TFLITE = (DEMO / "digits.tflite").read_bytes()
BOTH = {"model": ["net.onnx", "net.tflite"], "runtime": ["ort", "tflite"]}
"""Of these four combinations two can't work."""


@pytest.fixture
def api_of_two_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Boards of rpi4b have both engines, those of rpi5 have ort alone."""
    both = tuple(BoardEngine(name, "1", frozenset({"TYPE1"})) for name in ("ort", "tflite"))
    boards = (board("rpi4b-0001-0001", engines=both), board("rpi5-0001-0001"))
    monkeypatch.setattr("tests.builders.api.BOARDS", boards)
    with running(tmp_path) as found:
        put(found, "net.onnx", (DEMO / "digits.onnx").read_bytes())
        put(found, "net.tflite", TFLITE)
        yield found


def test_a_family_without_an_engine_is_left_out_of_it_alone(api_of_two_engines: Api) -> None:
    api = api_of_two_engines
    body = {
        "matrix": {**BOTH, "target": ["rpi4b", "rpi5"]},
        "description": {"benchmark_type": "TYPE1"},
    }
    answer = api.as_().post("/v1/campaigns", json=body)
    assert answer.status_code == 202, answer.text
    shown = api.as_().get(answer.json()["links"]["self"]).json()["benchmarks"]
    fields = ("model", "target", "runtime")
    assert {tuple(each["description"][name] for name in fields) for each in shown} == {
        ("net.onnx", "rpi4b", "ort"),
        ("net.onnx", "rpi5", "ort"),
        ("net.tflite", "rpi4b", "tflite"),
    }
    assert len(answer.json()["left_out"]) == 5


@pytest.mark.parametrize("path", ["/v1/campaigns", "/v1/campaigns?dry_run=true"])
def test_pairs_that_can_not_work_are_left_out_and_named(api_of_two_engines: Api, path: str) -> None:
    api = api_of_two_engines
    common = {"benchmark_type": "TYPE1", "target": "rpi4b"}
    answer = api.as_().post(path, json={"matrix": BOTH, "description": common})
    assert answer.status_code in (200, 202), answer.text
    body = answer.json()
    assert len(body.get("items") or body["benchmarks"]) == 2
    assert [(each["position"], list(each["values"].values())) for each in body["left_out"]] == [
        (1, ["net.onnx", "tflite"]),
        (2, ["net.tflite", "ort"]),
    ]
    assert all("not" in reason for each in body["left_out"] for reason in each["reasons"])
    if "warnings" in body:
        assert [text.split(":")[0] for text in body["warnings"][:2]] == [
            "left out net.onnx × tflite",
            "left out net.tflite × ort",
        ]
        shown = api.as_().get(body["links"]["self"]).json()["benchmarks"]
        assert {each["description"]["runtime"] for each in shown} == {"ort", "tflite"}


def test_a_value_that_works_in_no_combination_is_refused(api: Api) -> None:
    put(api, "net.onnx", (DEMO / "digits.onnx").read_bytes())
    put(api, "net.tflite", TFLITE)
    common = {"benchmark_type": "TYPE1", "target": "rpi4b"}
    matrix_ = {"model": ["net.onnx", "net.tflite"], "runtime": ["ort"]}
    answer = api.as_().post("/v1/campaigns", json={"matrix": matrix_, "description": common})
    assert answer.status_code == 422
    assert "net.tflite" in answer.json()["errors"][0]["reason"]


def test_a_client_leaves_out_pairs_of_local_files_and_says_which(
    api_of_two_engines: Api, tmp_path: Path
) -> None:
    api = api_of_two_engines
    models = [tmp_path / "net.onnx", tmp_path / "net.tflite"]
    models[0].write_bytes((DEMO / "digits.onnx").read_bytes())
    models[1].write_bytes(TFLITE)
    notices: list[str] = []
    asked: dict[str, Any] = {
        "model": models,
        "runtime": ["ort", "tflite"],
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
    }
    with Client(api.url, api.tokens["alice"], on_notice=notices.append) as client:
        found = client.preview(asked)
        assert [one.workload.engine for one in found] == ["ort", "tflite"]
        assert [text.split(":")[0] for text in notices] == [
            "left out net.onnx × tflite",
            "left out net.tflite × ort",
        ]
        made = client.submit(**asked)
        assert len(made) == 2
        assert [text.split(":")[0] for text in made[0].warnings[:2]] == [
            "left out net.onnx × tflite",
            "left out net.tflite × ort",
        ]
        with pytest.raises(InvalidInput, match=r"net\.tflite: is a TensorFlow Lite model"):
            client.submit(**{**asked, "runtime": ["ort"]})


def put(api: Api, name: str, content: bytes) -> str:
    answer = api.as_().post("/v1/files", files={"file": (name, content)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["url"])
