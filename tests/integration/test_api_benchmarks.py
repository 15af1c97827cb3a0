"""Submitting, listing, changing benchmarks over HTTP, on a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from edgeyard.devices.model import Host
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import Benchmark, FileRole
from edgeyard.scheduler.model.decision import PlannedStart, PlanReason
from edgeyard.scheduler.twin.twin import Twin
from tests.builders import records as make
from tests.builders.api import BOARDS, MODEL, Api, running
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api"), model_limit_bytes=100_000) as found:
        found.upload("model.onnx")
        found.upload("data.npz", b"data")
        found.upload("odt.json", b"{}")
        yield found


def refusal(answer: Any, status: int = 422) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["code"]
    return dict(body)


def test_a_submission_is_accepted_stored_and_the_engine_woken(api: Api) -> None:
    woken = api.engine.woken
    answer = api.as_().post("/v1/benchmarks", json=description(tags=["a"]))
    assert answer.status_code == 202
    body = answer.json()
    assert body["status"] == "pending"
    assert answer.headers["location"] == body["links"]["self"]
    assert api.engine.woken > woken
    shown = api.as_().get(answer.headers["location"]).json()
    assert shown["description"]["tags"] == ["a"]
    assert shown["user_id"] == "alice"
    assert shown["files"][0]["size_bytes"] == len(MODEL)
    events = api.as_().get(body["links"]["events"]).json()["items"]
    assert [event["kind"] for event in events] == ["benchmark.submitted"]


def test_what_the_server_knows_itself_is_ignored_with_a_warning(api: Api) -> None:
    body = (
        api.as_()
        .post(
            "/v1/benchmarks",
            json=description(user_id="bob", submit_time="2020-01-01T00:00:00Z"),
        )
        .json()
    )
    assert len(body["warnings"]) == 2
    assert api.as_().get(body["links"]["self"]).json()["user_id"] == "alice"


@pytest.mark.parametrize(
    ("changes", "pointer", "accepted"),
    [
        ({"target": "rpi4"}, "/target", "one of rpi4b, rpi5; did you mean rpi4b?"),
        ({"target": ..., "target_uid": "rpi4b-0001-0009"}, "/target_uid", "rpi4b-0001-0001"),
        ({"runtime": "orrt"}, "/runtime", "did you mean ort?"),
        ({"ram": "5 GiB"}, "/ram", "at most 4 GiB"),
        ({"storage": "1 TiB"}, "/storage", "at most 16 GiB"),
        ({"user_priority": 6}, "/user_priority", "1 to 5"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "/deadline", "a time after"),
        ({"start_time": "2020-01-01T00:00:00Z"}, "/start_time", "a time after"),
        ({"cron": "every day"}, "/cron", "minute hour day"),
        ({"cron": "0 3 * * *", "start_time": "2099-01-01T00:00:00Z"}, "/cron", "one of them"),
        ({"prohibit_overlap": True}, "/prohibit_overlap", "a cron"),
        ({"cron": "0 3 * * *", "deadline": "2099-01-01T00:00:00Z"}, "/cron", "one of them"),
        ({"model": "absent.onnx"}, "/model", "a file that you uploaded"),
        ({"model_url": "http://127.0.0.1:1/x"}, "/model_url", "public address"),
        ({"model": "http://[::1]/m.onnx"}, "/model_url", "public address"),
        (
            {"benchmark_type": "TYPE2", "dataset_urls": ["ftp://x/y"]},
            "/dataset_urls/0",
            "public address",
        ),
        ({"nb_inferense": 3}, "/nb_inferense", "did you mean nb_inference?"),
        ({"benchmark_type": "TYPE2"}, "/dataset", "an uploaded file's name"),
        ({"benchmark_type": "TYPE3"}, "/odt_config", "epochs"),
    ],
)
def test_a_refusal_names_field_reason_and_what_would_be_accepted(
    api: Api, changes: dict[str, object], pointer: str, accepted: str
) -> None:
    body = refusal(api.as_().post("/v1/benchmarks", json=description(**changes)))
    error = next(each for each in body["errors"] if each["pointer"] == pointer)
    assert error["reason"]
    assert accepted in error["accepted"]


@pytest.mark.parametrize(
    ("changes", "pointer", "accepted"),
    [
        ({"runtime": ...}, "/runtime", "ort"),
        ({"benchmark_type": ...}, "/benchmark_type", "TYPE1 latency, TYPE2 accuracy"),
        ({"max_retries": 1.5}, "/max_retries", "a whole number, at least 0, at most 10"),
        ({"max_retries": 11}, "/max_retries", "at most 10"),
        ({"preemptible": "yes"}, "/preemptible", "true or false"),
        ({"tags": "x"}, "/tags", "a list"),
        ({"extra": []}, "/extra", "an object"),
        ({"constraints": [{"operator": "="}]}, "/constraints/0/attribute", "a value"),
        ({"input": {"x": {"shapes": [1]}}}, "/input/x/shapes", "no such field"),
        ({"version": 2}, "/version", "1"),
    ],
)
def test_every_refusal_says_what_would_be_accepted(
    api: Api, changes: dict[str, object], pointer: str, accepted: str
) -> None:
    answer = api.as_().post("/v1/benchmarks", json=description(**changes))
    assert answer.status_code == 422
    found = {error["pointer"]: error["accepted"] for error in answer.json()["errors"]}
    assert accepted in found[pointer]


@pytest.mark.parametrize(
    ("path", "pointer", "accepted"),
    [
        ("/v1/queue?limit=x", "/query/limit", "a whole number"),
        ("/v1/queue?limit=0", "/query/limit", "at least 1"),
        ("/v1/benchmarks?total=perhaps", "/query/total", "true or false"),
        ("/v1/benchmarks/x/logs?stream=other", "/query/stream", "'stdout' or 'stderr'"),
    ],
)
def test_a_wrong_parameter_is_refused_with_what_is_accepted(
    api: Api, path: str, pointer: str, accepted: str
) -> None:
    answer = api.as_().get(path)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert accepted in error["accepted"]


def test_an_empty_submission_is_refused_with_all_required_fields(api: Api) -> None:
    errors = refusal(api.as_().post("/v1/benchmarks", json={}))["errors"]
    required = {"/model", "/runtime", "/benchmark_type", "/target"}
    assert {error["pointer"] for error in errors} == required


def test_a_campaign_without_a_matrix_is_refused_with_the_reason(api: Api) -> None:
    [error] = api.as_().post("/v1/campaigns", json={}).json()["errors"]
    assert error["pointer"] == "/matrix"
    assert "model" in error["accepted"]


@pytest.mark.parametrize(
    ("config", "what"),
    [({"epochs": -1}, "epochs"), ({"epoch": 1}, "epoch"), ({"learning_rate": "x"}, "learning")],
)
def test_a_training_that_can_not_be_is_refused_at_once(
    api: Api, config: dict[str, object], what: str
) -> None:
    asked = description(benchmark_type="TYPE3", dataset="model.onnx", odt_config=config)
    answer = api.as_().post("/v1/benchmarks", json=asked)
    [error] = [each for each in answer.json()["errors"] if each["pointer"] == "/odt_config"]
    assert what in error["reason"]
    assert "learning_rate" in error["accepted"]


def test_a_training_needs_a_dataset(api: Api) -> None:
    asked = description(benchmark_type="TYPE3", odt_config={"epochs": 1})
    errors = api.as_().post("/v1/benchmarks", json=asked).json()["errors"]
    assert [each["pointer"] for each in errors if each["accepted"]] == ["/dataset"]


def constrained(
    attribute: str, operator: str, value: object, **changes: object
) -> dict[str, object]:
    condition = {"attribute": attribute, "operator": operator, "value": value}
    met = {"attribute": "rack", "operator": "=", "value": "b"}
    return description(constraints=[met, condition], **changes)


@pytest.mark.parametrize(
    ("attribute", "operator", "value", "accepted"),
    [
        ("memory.ram", ">", 4 * 2**30, "4294967296 (bytes: 4 GiB)"),
        ("memory.ram", ">=", "5 GiB", "4294967296 (bytes: 4 GiB)"),
        ("memory.storage", "is_not_set", "", "16 GiB"),
        ("family", "=", "rpi5", "'rpi4b'"),
        ("engines", "set_contains", "nothing", "ort"),
        ("target_uid", "regexp", "-0009$", "'rpi4b-0001-0001' or 'rpi4b-0001-0002'"),
    ],
)
def test_a_constraint_that_no_board_can_meet_is_refused(
    api: Api, attribute: str, operator: str, value: object, accepted: str
) -> None:
    answer = api.as_().post("/v1/benchmarks", json=constrained(attribute, operator, value))
    [error] = refusal(answer)["errors"]
    assert error["pointer"] == "/constraints/1"
    assert attribute in error["reason"]
    assert "board of rpi4b" in error["reason"]
    assert accepted in error["accepted"]


@pytest.mark.parametrize(
    ("attribute", "operator", "value"),
    [
        ("memory.ram", ">=", 4 * 2**30),
        ("target_uid", "=", "rpi4b-0001-0002"),
        ("dynamic.status", "=", "never"),
        ("dynamic.progress", ">", 1000),
        ("camera", "=", "v2"),
    ],
)
def test_a_constraint_that_a_board_may_meet_is_accepted(
    api: Api, attribute: str, operator: str, value: object
) -> None:
    asked = constrained(attribute, operator, value)
    assert api.as_().post("/v1/benchmarks?dry_run", json=asked).status_code == 200


@pytest.mark.parametrize("dry_run", ["", "?dry_run=1"])
@pytest.mark.parametrize(
    ("changes", "pointer", "reason", "accepted"),
    [
        (
            {"user_time": 1, "nb_inference": 1_000_000},
            "/user_time",
            "no board runs 1,000,000 timed inferences within 1 s",
            "a user_time of at least 1.02 s, or an nb_inference of at most 980,000",
        ),
        (
            {"user_time": 0.01, "precision": "2 %"},
            "/user_time",
            "no board runs anything within 0.01 s",
            "a user_time of at least 0.02 s",
        ),
        (
            {"user_time": "10.1 s", "load": "single-stream"},
            "/user_time",
            "no board runs a trial of 10 s within 10.1 s",
            "a user_time of at least 12.5 s",
        ),
        (
            {"user_time": "3659 s", "load": "server", "load_bound": "1 s", "load_duration": "1 h"},
            "/user_time",
            "no board runs a trial of 3600 s within 3659 s",
            "a user_time of at least 3660 s",
        ),
        (
            {"user_time": 6.1, "concurrency": "1,2,4"},
            "/user_time",
            "no board runs 3 numbers of callers, one after another, within 6.1 s",
            "a user_time of at least 7.5 s",
        ),
        (
            {"user_budget": 0},
            "/user_budget",
            "0 credits are too few for any run",
            "at least 0.02002",
        ),
        ({"user_budget": 0.001}, "/user_budget", "too few for any run", "at least"),
        (
            {"constraints": [{"attribute": "foo", "operator": "=", "value": "bar"}]},
            "/constraints/0",
            "no board of rpi4b publishes foo",
            "one of ",
        ),
    ],
)
def test_what_no_board_can_ever_run_is_refused_when_it_is_submitted(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    pointer: str,
    reason: str,
    accepted: str,
    dry_run: str,
) -> None:
    twin = Twin(BOARDS)
    twin.refresh([Host("pi-1", "pi-1", True, BOARDS)], api.clock.now())
    monkeypatch.setattr(api.engine, "joined", dict(twin.joined()))
    answer = api.as_().post(f"/v1/benchmarks{dry_run}", json=description(**changes))
    found = {each["pointer"]: each for each in refusal(answer)["errors"]}
    assert pointer in found
    assert reason in found[pointer]["reason"]
    assert accepted in found[pointer]["accepted"]


def test_a_deadline_before_the_earliest_possible_end_is_refused(api: Api) -> None:
    start = api.clock.now() + timedelta(hours=2)
    for deadline_s, refused in ((-60, "a later time"), (0.005, "a time after "), (60, "")):
        deadline = start + timedelta(seconds=deadline_s)
        asked = description(start_time=start.isoformat(), deadline=deadline.isoformat())
        answer = api.as_().post("/v1/benchmarks?dry_run=1", json=asked)
        if refused:
            [error] = refusal(answer)["errors"]
            assert error["pointer"] == "/deadline"
            assert error["accepted"].startswith(refused)
        else:
            assert answer.is_success


def test_a_budget_of_zero_is_accepted_where_boards_are_free(api: Api) -> None:
    with api.store.write() as uow:
        uow.credits.set_rate("rpi4b", 0.0)
    assert api.as_().post("/v1/benchmarks", json=description(user_budget=0)).is_success


def test_a_measurement_that_ends_by_its_precision_needs_no_number_of_inferences(api: Api) -> None:
    asked = description(user_time=1, precision="2 %")
    assert api.as_().post("/v1/benchmarks?dry_run=1", json=asked).is_success


def test_a_constraint_counts_for_the_board_that_is_named(api: Api) -> None:
    asked = constrained("target_uid", "=", "rpi4b-0001-0002", target_uid="rpi4b-0001-0001")
    [error] = refusal(api.as_().post("/v1/benchmarks", json=asked))["errors"]
    assert error["accepted"].endswith("'rpi4b-0001-0001'")


def test_a_bigger_board_of_the_family_counts_not_of_another(api: Api) -> None:
    assert api.as_().post("/v1/benchmarks", json=description(target="rpi5", ram="8 GiB")).is_success


@pytest.mark.parametrize(
    ("data", "content_type", "status"),
    [
        (b'{"model": NaN}', "application/json", 422),
        (b'{"model": 1e400}', "application/json", 422),
        (b'{"model": "\\ud800"}', "application/json", 422),
        (b'{"\\ud800": 1}', "application/json", 422),
        (b'{"ram": ' + b"9" * 400 + b"}", "application/json", 422),
        (b"[" * 50_000, "application/json", 422),
        (b"{", "application/json", 422),
        (b"", "application/json", 422),
        (b"null", "application/json", 422),
        (b"\xff\xfe", "application/json", 422),
        (b"model: .nan", "application/yaml", 422),
        (b"{}", "text/plain", 415),
        (b"model=x", "application/x-www-form-urlencoded", 415),
        (b'{"extra": "' + b"x" * 2**20 + b'"}', "application/json", 413),
    ],
)
def test_invalid_bodies_are_refused_without_a_server_error(
    api: Api, data: bytes, content_type: str, status: int
) -> None:
    answer = api.as_().post("/v1/benchmarks", content=data, headers={"Content-Type": content_type})
    refusal(answer, status)


def test_job_descriptions_in_yaml_are_accepted(api: Api) -> None:
    text = "version: 1\nmodel: model.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: rpi4b\n"
    answer = api.as_().post(
        "/v1/benchmarks", content=text, headers={"Content-Type": "application/yaml"}
    )
    assert answer.status_code == 202, answer.text


def test_an_id_whose_beginning_is_given_can_be_used_once(api: Api) -> None:
    wanted = description(benchmark_id="rpi4b-ort-20250813091714")
    made = api.as_().post("/v1/benchmarks", json=wanted)
    assert made.status_code == 202, made.text
    made_id = made.json()["benchmark_id"]
    assert made_id.startswith("rpi4b-ort-20250813091714-")
    again = api.as_().post("/v1/benchmarks", json=wanted)
    refusal(again, 409)
    assert made_id in again.json()["detail"]


def test_a_whole_id_is_the_same_benchmark_and_makes_no_second(api: Api) -> None:
    made = api.as_().post("/v1/benchmarks", json=description(benchmark_id="mine"))
    whole, by_server = made.json()["benchmark_id"], api.submit()
    before = api.as_().get("/v1/benchmarks").json()["items"]
    for given, its_id in (("mine", whole), (whole, whole), (by_server, by_server)):
        for path in ("", "?dry_run", "/check"):
            again = api.as_().post(f"/v1/benchmarks{path}", json=description(benchmark_id=given))
            refusal(again, 409)
            assert its_id in again.json()["detail"]
    assert len(api.as_().get("/v1/benchmarks").json()["items"]) == len(before)
    api.upload(who="bob")
    for given in (whole, by_server):  # says nothing of whether there is such a benchmark
        bobs = api.as_("bob").post("/v1/benchmarks", json=description(benchmark_id=given))
        assert bobs.status_code == 202, bobs.text
        assert bobs.json()["benchmark_id"].startswith(f"{given}-")


def test_a_user_names_their_own_benchmark_by_the_beginning_that_they_chose(api: Api) -> None:
    made = api.as_().post("/v1/benchmarks", json=description(benchmark_id="tuesday"))
    whole = made.json()["benchmark_id"]
    api.upload(who="bob")
    bobs = api.as_("bob").post("/v1/benchmarks", json=description(benchmark_id="tuesday"))
    assert bobs.status_code == 202, bobs.text
    for who, its_id in (("alice", whole), ("bob", bobs.json()["benchmark_id"])):
        for path in ("", "/events", "/results", "/clone/check"):
            url = f"/v1/benchmarks/tuesday{path}"
            method = "POST" if path == "/clone/check" else "GET"
            answer = api.as_(who).request(method, url, json={} if method == "POST" else None)
            assert answer.status_code == 200, answer.text
            assert answer.json().get("benchmark_id", its_id) == its_id
        listed = api.as_(who).get("/v1/results", params={"benchmark_id": ["tuesday", its_id]})
        assert [each["benchmark_id"] for each in listed.json()["items"]] == [its_id]
    assert api.as_().post("/v1/benchmarks/tuesday/cancel").json()["status"] == "cancelled"
    assert api.as_("bob").get("/v1/benchmarks/tuesday").json()["status"] == "pending"
    refusal(api.as_("operator").get("/v1/benchmarks/tuesday"), 404)


@pytest.mark.parametrize("chosen", [{}, {"benchmark_id": "night-run"}])
def test_nobody_finds_out_by_an_id_that_another_has_a_benchmark(
    api: Api, chosen: dict[str, str]
) -> None:
    made = api.as_().post("/v1/benchmarks", json=description(**chosen))
    assert made.status_code == 202, made.text
    theirs = made.json()["benchmark_id"]
    api.upload(who="bob")
    for guess in (theirs, theirs.rpartition("-")[0], f"none-{theirs[::-1]}"):
        body = description(benchmark_id=guess[:55])
        assert api.as_("bob").post("/v1/benchmarks?dry_run", json=body).status_code == 200
        answer = api.as_("bob").post("/v1/benchmarks", json=body)
        assert answer.status_code == 202, answer.text
        assert answer.json()["benchmark_id"] != theirs


def test_an_idempotency_key_makes_one_benchmark(api: Api) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = api.as_().post("/v1/benchmarks", json=description(), headers=key)
    again = api.as_().post("/v1/benchmarks", json=description(), headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    refusal(api.as_().post("/v1/benchmarks", json=description(tags=["b"]), headers=key), 409)
    refusal(api.as_().post("/v1/campaigns", json={"x": 1}, headers=key), 409)
    other = api.as_("operator").post(
        "/v1/benchmarks",
        json=description(model_url="https://example.org/m.onnx"),
        headers=key,
    )
    assert other.status_code == 202


def test_a_submission_returns_its_forecast_and_repeats_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    predicted = make.a_forecast(at, at, at, at, benchmark_id="dry-run", place=3)
    assert api.as_().post("/v1/benchmarks", json=description()).json()["forecast"] is None
    monkeypatch.setattr(api.engine, "submission_forecast", predicted)
    key = {"Idempotency-Key": "predicted"}
    body = api.as_().post("/v1/benchmarks", json=description(), headers=key).json()
    assert body["forecast"]["place"] == 3
    assert body["forecast"]["start"] == "2026-11-21T12:00:00Z"
    assert body["forecast"]["coverage"] == {
        "starts_held": 19,
        "started": 40,
        "ends_held": 41,
        "ended": 50,
    }
    assert api.as_().post("/v1/benchmarks", json=description(), headers=key).json() == body
    wrong = api.as_().post("/v1/benchmarks", json=description(model="no such"))
    assert wrong.status_code == 422


def test_a_dry_run_reports_and_stores_nothing(api: Api) -> None:
    before = api.as_().get("/v1/benchmarks?total=true").json()["total"]
    body = api.as_().post("/v1/benchmarks?dry_run=true", json=description()).json()
    assert body["would"] == "run"
    assert body["hcl"].startswith('job "')
    assert {board["target_uid"] for board in body["boards"] if board["fits"]} >= {"rpi4b-0001-0001"}
    assert body["priority_parts"] == {"type": 50.0}
    assert api.as_().get("/v1/benchmarks?total=true").json()["total"] == before


def test_a_foreign_url_is_fetched_later(api: Api) -> None:
    benchmark_id = api.submit(model=..., model_url="https://example.org/nets/a.onnx")
    (file,) = api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()["files"]
    assert (file["name"], file["sha256"], file["url"]) == (
        "a.onnx",
        None,
        "https://example.org/nets/a.onnx",
    )


def test_a_url_of_our_own_is_the_stored_file(api: Api) -> None:
    stored = api.upload("own.onnx", a_model_file(fill=b"own"))
    for url in (stored["url"], f"{api.url}/download/own.onnx"):
        benchmark_id = api.submit(model=..., model_url=url)
        shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()
        (file,) = shown["files"]
        assert (file["name"], file["sha256"]) == ("own.onnx", stored["sha256"])
        assert shown["description"]["model"] == "own.onnx"
    answer = api.as_("bob").post(
        "/v1/benchmarks", json=description(model=..., model_url=stored["url"])
    )
    assert refusal(answer)["errors"][0]["pointer"] == "/model_url"


def test_files_of_all_roles_are_found_and_may_not_clash(api: Api) -> None:
    benchmark_id = api.submit(benchmark_type="TYPE3", dataset="data.npz", odt_config="odt.json")
    with api.store.read() as uow:
        files = uow.benchmarks.get(benchmark_id).files
    assert {file.role.field for file in files} == {"model", "dataset", "odt_config"}
    clash = description(
        benchmark_type="TYPE2", model_url="https://a.org/x.npz", model=..., dataset="x.npz"
    )
    api.upload("x.npz")
    assert "two files" in refusal(api.as_().post("/v1/benchmarks", json=clash))["detail"]


def test_a_model_over_the_limit_or_empty_is_refused(api: Api) -> None:
    api.upload("big.onnx", bytes(100_001))
    body = refusal(api.as_().post("/v1/benchmarks", json=description(model="big.onnx")))
    assert body["errors"][0]["pointer"] == "/model"
    empty = api.as_().post("/v1/files", files={"file": ("empty.onnx", b"")})
    assert refusal(empty)["errors"][0]["pointer"] == "/file"


def test_a_cron_is_a_schedule(api: Api) -> None:
    body = (
        api.as_()
        .post("/v1/benchmarks", json=description(cron="0 3 * * *", prohibit_overlap=True))
        .json()
    )
    assert body["benchmark_id"] is None
    (schedule,) = api.as_().get("/v1/schedules").json()["items"]
    assert schedule["schedule_id"] == body["schedule_id"]
    assert schedule["prohibit_overlap"] is True
    assert schedule["description"]["model"] == "model.onnx"
    assert api.as_("bob").get("/v1/schedules").json()["items"] == []
    assert api.as_("bob").delete(body["links"]["self"]).status_code == 404
    assert api.as_().delete(body["links"]["self"]).status_code == 204
    assert api.as_().get(body["links"]["self"]).json()["active"] is False
    assert api.as_().get("/v1/schedules").json()["items"] == []
    for query in ("all", "all=true"):
        (ended,) = api.as_().get(f"/v1/schedules?{query}").json()["items"]
        assert (ended["schedule_id"], ended["active"]) == (body["schedule_id"], False)
    assert api.as_("bob").get("/v1/schedules?all").json()["items"] == []


def test_lists_are_filtered_paged_and_counted(api: Api) -> None:
    made = [api.submit(tags=["page"], target=target) for target in ("rpi4b", "rpi5") * 3]
    client = api.as_()
    found, cursor = [], None
    while True:
        page = client.get(
            "/v1/benchmarks",
            params={"tag": "page", "limit": 4, **({"cursor": cursor} if cursor else {})},
        ).json()
        found += [each["benchmark_id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == made[::-1]
    only = client.get("/v1/benchmarks?tag=page&target=rpi5&total=true&status=pending").json()
    assert only["total"] == 3
    assert api.as_("bob").get("/v1/benchmarks?tag=page").json()["items"] == []
    assert api.as_("bob").get("/v1/benchmarks?user_id=alice").json()["items"] == []
    everybody = api.as_("operator").get("/v1/benchmarks?tag=page&user_id=alice").json()["items"]
    assert len(everybody) == 6
    refusal(client.get("/v1/benchmarks?cursor=nonsense"))
    refusal(client.get("/v1/benchmarks?limit=0"))
    refusal(client.get("/v1/benchmarks?status=lost"))


def test_cancel_hold_and_release(api: Api) -> None:
    benchmark_id = api.submit()
    path = f"/v1/benchmarks/{benchmark_id}"
    client = api.as_()
    assert client.post(f"{path}/hold").json()["held"] is True
    assert client.post(f"{path}/release").json()["held"] is False
    answer = client.post(f"{path}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    assert client.post(f"{path}/cancel").status_code == 202
    refusal(client.post(f"{path}/hold"), 409)


def test_only_what_has_ended_is_retried_and_as_a_new_one(api: Api) -> None:
    benchmark_id = api.submit(tags=["r"])
    client = api.as_()
    refusal(client.post(f"/v1/benchmarks/{benchmark_id}/retry"), 409)
    client.post(f"/v1/benchmarks/{benchmark_id}/cancel")
    body = client.post(f"/v1/benchmarks/{benchmark_id}/retry").json()
    assert body["benchmark_id"] != benchmark_id
    shown = client.get(body["links"]["self"]).json()
    assert shown["retry_of"] == benchmark_id
    assert shown["description"]["tags"] == ["r"]
    assert shown["files"][0]["sha256"]


def test_a_clone_applies_changes(api: Api) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    benchmark_id = api.submit(precision="2 %", deadline=soon, target_uid="rpi4b-0001-0001")
    answer = api.as_().post(
        f"/v1/benchmarks/{benchmark_id}/clone", json={"nb_inference": 7, "target": "rpi5"}
    )
    assert answer.status_code == 202, answer.text
    shown = api.as_().get(answer.json()["links"]["self"]).json()["description"]
    assert (shown["nb_inference"], shown["precision"]) == (7, None)
    assert (shown["target"], shown["target_uid"]) == ("rpi5", None)
    wrong = api.as_().post(f"/v1/benchmarks/{benchmark_id}/clone", json={"model": "absent"})
    assert refusal(wrong)["errors"][0]["pointer"] == "/model"


def test_what_was_uploaded_is_there_under_another_address_of_the_server(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api.as_()
    urls = {each["name"]: each["url"] for each in client.get("/v1/files").json()["items"]}
    made = api.submit(
        benchmark_type="TYPE3",
        model=None,
        model_url=urls["model.onnx"],
        dataset_urls=[urls["data.npz"]],
        odt_config=urls["odt.json"],
    )
    client.post(f"/v1/benchmarks/{made}/cancel")
    monkeypatch.setattr(api.services, "public_url", "https://lab.example.org:8443/bench/")
    shown = client.get(f"/v1/benchmarks/{made}").json()["description"]
    assert shown["model_url"].startswith("https://lab.example.org:8443/bench/v1/files/")
    for path, body in (("retry", None), ("clone", {"name": "again"}), ("clone", {})):
        answer = client.post(f"/v1/benchmarks/{made}/{path}", json=body)
        assert answer.status_code == 202, answer.text
        again = client.get(f"/v1/benchmarks/{answer.json()['benchmark_id']}").json()
        assert [each["sha256"] for each in again["files"]] == [
            each["sha256"] for each in client.get(f"/v1/benchmarks/{made}").json()["files"]
        ]
        assert {each["url"] for each in again["files"]} == {None}
    assert client.post(f"/v1/benchmarks/{made}/clone/check", json={}).status_code == 200
    form = {name: shown[name] for name in ("model_url", "dataset_urls", "odt_config")}
    api.submit(benchmark_type="TYPE3", model=None, **form)


def test_a_clone_of_another_type_drops_what_that_type_does_not_read(api: Api) -> None:
    trained = api.submit(benchmark_type="TYPE3", dataset="data.npz", odt_config="odt.json")

    def cloned(origin: str, **changes: object) -> Benchmark:
        answer = api.as_().post(f"/v1/benchmarks/{origin}/clone", json=changes)
        assert answer.status_code == 202, answer.text
        with api.store.read() as uow:
            return uow.benchmarks.get(answer.json()["benchmark_id"])

    accuracy = cloned(trained, benchmark_type="TYPE2")
    assert {file.role for file in accuracy.files} == {FileRole.MODEL, FileRole.DATASET}
    assert accuracy.description.odt_config is None
    latency = cloned(accuracy.benchmark_id, benchmark_type="TYPE1", nb_inference=50)
    assert [file.role for file in latency.files] == [FileRole.MODEL]
    assert latency.description.dataset is None
    again = cloned(latency.benchmark_id, benchmark_type="TYPE2", dataset="data.npz")
    assert again.description.nb_inference == 20
    refused = api.as_().post(
        f"/v1/benchmarks/{trained}/clone", json={"benchmark_type": "TYPE1", "dataset": "data.npz"}
    )
    assert refusal(refused)["errors"][0]["pointer"] == "/dataset"


def test_a_dry_run_of_a_clone_says_what_its_submission_says(api: Api) -> None:
    made = api.submit()
    path = f"/v1/benchmarks/{made}/clone"
    before = api.as_().get("/v1/benchmarks?total=true").json()["total"]
    answer = api.as_().post(f"{path}?dry_run=true", json={"nb_inference": 7})
    assert answer.status_code == 200
    assert answer.json()["description"]["nb_inference"] == 7
    wrong = {"target": "nowhere"}
    dry = refusal(api.as_().post(f"{path}?dry_run=true", json=wrong))
    assert dry["errors"] == refusal(api.as_().post(path, json=wrong))["errors"]
    assert api.as_().get("/v1/benchmarks?total=true").json()["total"] == before


def test_a_clone_outlives_its_deadline_with_a_warning(api: Api) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    benchmark_id = api.submit(deadline=soon)
    api.clock.ahead = timedelta(hours=2)
    try:
        body = api.as_().post(f"/v1/benchmarks/{benchmark_id}/clone", json={}).json()
    finally:
        api.clock.ahead = timedelta()
    assert body["warnings"] == ["deadline has passed and was left out"]


def test_a_campaign_is_every_combination_or_nothing(api: Api) -> None:
    api.upload("second.onnx")
    body = {
        "name": "night",
        "matrix": {"model": ["model.onnx", "second.onnx"], "target": ["rpi4b", "rpi5"]},
        "description": {"runtime": "ort", "benchmark_type": "TYPE1"},
    }
    answer = api.as_().post("/v1/campaigns", json=body)
    assert answer.status_code == 202, answer.text
    shown = api.as_().get(answer.json()["links"]["self"]).json()
    pairs = {
        (each["description"]["model"], each["description"]["target"])
        for each in shown["benchmarks"]
    }
    assert len(pairs) == 4
    assert {each["benchmark_id"] for each in answer.json()["benchmarks"]} == {
        each["benchmark_id"] for each in shown["benchmarks"]
    }
    assert api.as_("bob").get(answer.json()["links"]["self"]).status_code == 404
    rows = api.as_().get("/v1/results", params={"campaign_id": shown["campaign_id"]}).json()
    assert len(rows["items"]) == 4

    before = api.as_().get("/v1/benchmarks?total=1").json()["total"]
    body["matrix"]["target"] = ["rpi4b", "rpi44"]  # type: ignore[index]
    wrong = refusal(api.as_().post("/v1/campaigns", json=body))
    assert [error["pointer"] for error in wrong["errors"]] == ["/matrix/target"]
    assert "rpi44" in wrong["errors"][0]["reason"]
    assert api.as_().get("/v1/benchmarks?total=1").json()["total"] == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"matrix": {}},
        {"matrix": {"target": []}},
        {"matrix": {"target": ["rpi4b"]}, "description": {"target": "rpi4b"}},
        {"matrix": {"target": ["rpi4b"]}, "description": {"cron": "0 0 * * *"}},
        {"matrix": {"model": ["model.onnx"] * 100, "target": ["rpi4b"] * 100}},
        {"matrix": {"target": ["rpi4b"], "colour": ["red"]}},
    ],
)
def test_matrices_that_make_no_sense_are_refused(api: Api, body: dict[str, object]) -> None:
    refusal(api.as_().post("/v1/campaigns", json=body))


def test_a_field_that_all_members_share_is_reported_once(api: Api) -> None:
    body = {
        "matrix": {"target": ["rpi4b", "rpi5"]},
        "description": {"runtime": "ort", "benchmark_type": "TYPE1", "model": "m", "ram": -1},
    }
    errors = refusal(api.as_().post("/v1/campaigns", json=body))["errors"]
    assert [error["pointer"] for error in errors] == ["/description/ram"]


def test_the_queue_is_in_the_engines_order_and_hides_others(api: Api) -> None:
    mine, other = api.submit(), api.submit("operator", model_url="https://example.org/a.onnx")
    api.engine.order = (other, mine, "gone")
    items = api.as_().get("/v1/queue").json()["items"]
    assert [each["position"] for each in items] == [0, 1]
    assert [each["benchmark_id"] for each in items] == [None, mine]
    for each in items:
        assert each["priority_parts"] == {"type": 70.0, "user": 10.0}
        assert each["priority"] == 80
    everything = api.as_("operator").get("/v1/queue").json()["items"]
    assert [each["benchmark_id"] for each in everything] == [other, mine]
    api.engine.never = frozenset({other})  # holds nobody up
    items = api.as_().get("/v1/queue").json()["items"]
    assert [each["position"] for each in items] == [None, 0]


def test_the_queue_is_filtered_by_user_and_family_with_places_in_the_whole(api: Api) -> None:
    first, second = api.submit("operator", model_url="https://example.org/a.onnx"), api.submit()
    api.engine.order = (first, second)
    user_id = api.as_().get("/v1/me").json()["user"]["user_id"]
    theirs = api.as_("operator").get("/v1/me").json()["user"]["user_id"]
    family = api.as_().get("/v1/queue").json()["items"][0]["target"]

    def places(query: str, caller: str = "alice") -> list[int]:
        items = api.as_(caller).get(f"/v1/queue?{query}").json()["items"]
        return [each["position"] for each in items]

    assert places(f"user={user_id}&limit=1") == [1]
    assert places(f"user={user_id}", "operator") == [1]
    assert places(f"user={theirs}", "operator") == [0]
    assert places(f"user={theirs}") == []  # whose the others are stays hidden
    assert places(f"target={family}") == [0, 1]
    assert places("target=none-such") == []


def test_boards_are_shown_drained_and_resumed(api: Api) -> None:
    benchmark_id = api.submit()
    api.engine.holders = {"rpi4b-0001-0001": benchmark_id}
    try:
        first = api.as_().get("/v1/boards").json()["items"][0]
        assert (first["state"], first["benchmark_id"]) == ("busy", benchmark_id)
        foreign = api.as_("bob").get("/v1/boards/rpi4b-0001-0001").json()
        assert foreign["benchmark_id"] is None
        assert benchmark_id not in foreign["reason"]
    finally:
        api.engine.holders = {}
    path = "/v1/boards/rpi4b-0001-0002"
    assert api.as_().post(f"{path}/drain").status_code == 403
    assert api.as_("operator").post(f"{path}/drain", json={"reason": "new card"}).is_success
    with api.store.read() as uow:
        override = uow.board_overrides.all()["rpi4b-0001-0002"]
    assert (override.drained, override.reason) == (True, "new card")
    assert api.as_("operator").post(f"{path}/resume").is_success
    with api.store.read() as uow:
        assert not uow.board_overrides.all()["rpi4b-0001-0002"].drained
    refusal(api.as_("operator").post("/v1/boards/rpi9-0001-0001/drain"), 404)


def test_the_inventory_reports_families_and_expected_boards(api: Api) -> None:
    body = api.as_().get("/v1/inventory").json()
    assert set(body["families"]) == {"rpi4b", "rpi5"}
    assert body["boards"][0]["target_uid"] == "rpi4b-0001-0001"


@pytest.mark.parametrize("query", ["?verbose", "?verbose=", "?verbose=1", "?verbose=true"])
def test_a_flag_needs_no_value(api: Api, query: str) -> None:
    answer = api.as_(None).get(f"/readyz{query}")
    assert (answer.status_code, "checks" in answer.json()) == (200, True)


def test_readiness_follows_the_twin(api: Api) -> None:
    client = api.as_(None)
    assert client.get("/readyz").json() == {"status": "ready"}
    for age in (float("inf"), 61.0):
        api.engine.age_s = age
        answer = client.get("/readyz?verbose=1")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["checks"]["cluster"] != "ok"
        assert api.as_().get("/v1/boards").is_success
    api.engine.age_s = 1.0
    assert client.get("/livez").is_success


def test_a_cluster_that_falls_silent_is_reported_before_it_stops_the_work(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.engine, "age_s", 7.0)
    monkeypatch.setattr(api.engine, "cluster_problem", lambda: "Nomad failed 6 times in a row")
    answer = api.as_(None).get("/readyz?verbose")
    assert answer.status_code == 200
    content = {"database": "ok", "files": "ok"}
    content["cluster"] = "not answering for 7 s: Nomad failed 6 times in a row"
    assert answer.json()["status"] == "ready"
    assert answer.json()["checks"].items() >= content.items()
    for path in ("/v1/boards", "/v1/queue"):
        shown = api.as_().get(path).json()
        assert (shown["age_s"], shown["cluster_problem"]) == (7.0, "Nomad failed 6 times in a row")


def test_attempts_that_can_t_be_repaired_are_counted_and_stop_no_other_work(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.engine, "failing", {"benchmark-rpi4b-ort-1": "TypeError"})
    answer = api.as_(None).get("/readyz?verbose")
    assert answer.status_code == 200
    reported = answer.json()["checks"]["repair"]
    assert reported == "1 attempt could not be compared with the cluster; tried again"


def test_every_known_label_is_exported_from_the_start(api: Api) -> None:
    api.submit()
    text = api.as_().get("/metrics").text
    for line in (
        'edgeyard_benchmarks{status="expired"}',
        'edgeyard_pending{waiting_reason="fetching"}',
        'edgeyard_finished_total{category="thermal",status="failed"} 0.0',
        'edgeyard_retries_total{category="upload"} 0.0',
        'edgeyard_submitted_total{type="TYPE3"}',
        'edgeyard_twin_age_seconds{cluster="embedded"} 1.0',
        'edgeyard_boards{cluster="embedded",family="',
        'edgeyard_quarantines_total{cause="record",cluster="embedded"} 0.0',
        'edgeyard_cluster_requests_total{cluster="embedded",code="ok",op="dispatch"} 0.0',
        'edgeyard_build_info{version="',
        'route="/v1/benchmarks"',
    ):
        assert line in text
    assert "alice" not in text
    assert "rpi4b-ort-" not in text


def test_every_answer_carries_an_id_and_keeps_browsers_from_guessing(api: Api) -> None:
    answer = api.as_(None).get("/livez", headers={"X-Request-ID": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    forged = api.as_(None).get("/nope", headers={"X-Request-ID": "a b;c"})
    assert forged.headers["x-request-id"] != "a b;c"
    assert forged.status_code == 404
    refusal(forged, 404)
    refusal(api.as_().put("/v1/benchmarks"), 405)


def test_hcl_explanation_and_results_of_an_attempt(api: Api) -> None:
    benchmark_id = api.submit()
    path = f"/v1/benchmarks/{benchmark_id}"
    for part in ("hcl", "explanation", "logs"):
        refusal(api.as_().get(f"{path}/{part}"), 404)
    api.dispatched(benchmark_id)
    answer = api.as_().get(f"{path}/hcl")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "******" in answer.text
    refusal(api.as_().get(f"{path}/hcl?attempt=2"), 404)
    api.engine.explained = frozenset({benchmark_id})
    body = api.as_().get(f"{path}/explanation").json()
    assert [verdict["target_uid"] for verdict in body["verdicts"]]
    assert body["placement"]["target_uid"] == "rpi4b-0001-0001"
    assert "changes" not in body
    assert api.as_().get(f"{path}/explanation?changes").json()["changes"] is None
    api.engine.order = (benchmark_id,)  # it waits again
    changes = api.as_().get(f"{path}/explanation?changes").json()["changes"]
    assert [(each["field"], each["gain_s"]) for each in changes["changes"]] == [
        ("user_priority", 90.0),
        ("ram", None),
    ]
    assert changes["reachable_deadline"].startswith("2026-11-21T12:00")


def test_an_explanation_states_the_place_and_start_of_the_newest_forecast(api: Api) -> None:
    """The decision that it explains may be older, with another place and plan."""
    benchmark_id = api.submit()
    api.engine.explained = frozenset({benchmark_id})
    api.engine.order = (benchmark_id,)
    path = f"/v1/benchmarks/{benchmark_id}"
    at = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    predicted = make.a_forecast(at, at, at, at, benchmark_id=benchmark_id, place=7)
    plan = PlannedStart(
        target_uid="rpi4b-0001-0001", start=at, reason=PlanReason.NEXT_FREE, sentence="next"
    )
    api.engine.forecasts[benchmark_id] = predicted
    api.engine.plans[benchmark_id] = plan
    explained, shown = (api.as_().get(each).json() for each in (f"{path}/explanation", path))
    assert (
        explained["rank"] + 1 == explained["forecast"]["place"] == shown["forecast"]["place"] == 7
    )
    assert explained["forecast"]["start"] == shown["forecast"]["start"]
    assert explained["planned"] == shown["planned"]
    api.engine.order = ()  # it was placed: nothing is planned any more
    placed = api.as_().get(f"{path}/explanation").json()
    assert placed["planned"] is None
    assert placed["rank"] + 1 != 7


def test_requests_of_results_without_a_known_benchmark_are_refused(api: Api) -> None:
    refusal(api.as_().get("/v1/results"))
    refusal(api.as_().get("/v1/results?benchmark_id=absent"), 404)


def test_an_ended_benchmark_stays_as_it_is(api: Api) -> None:
    benchmark_id = api.submit()
    with api.store.write() as uow:
        lifecycle.expire(uow, benchmark_id, api.clock.now(), "too late", deadline=True)
    refusal(api.as_().post(f"/v1/benchmarks/{benchmark_id}/cancel"), 409)
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()
    assert shown["failure"] == {"category": "timeout", "sentence": "too late"}
    json.dumps(shown)


def test_a_benchmark_is_found_by_the_id_of_its_job(api: Api) -> None:
    ann = api.as_()
    made = ann.post("/v1/benchmarks", json=description())
    benchmark_id = made.json()["benchmark_id"]
    job_id = api.dispatched(benchmark_id).job_id
    shown = ann.get(f"/v1/benchmarks/{job_id}")
    assert shown.status_code == 200
    assert shown.json() == ann.get(f"/v1/benchmarks/{benchmark_id}").json()
    foreign = api.as_("bob").get(f"/v1/benchmarks/{job_id}")
    unknown = api.as_("bob").get(f"/v1/benchmarks/{job_id[:-1]}")
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.json()["detail"].replace(job_id, "") == (
        unknown.json()["detail"].replace(job_id[:-1], "")
    )
    api.ended(benchmark_id)


def test_a_campaign_does_not_multiply_a_long_description(api: Api) -> None:
    """A body of 60 KB may not become sixty megabytes in the database."""
    shared = {"model": "model.onnx", "runtime": "ort", "benchmark_type": "TYPE1"}
    long = shared | {"extra": {"x": "y" * 60_000}}
    body = {"matrix": {"target": ["rpi4b"] * 1000}, "description": long}
    wrong = refusal(api.as_().post("/v1/campaigns", json=body))
    assert wrong["errors"][0]["pointer"] == "/description"
    few = {"matrix": {"target": ["rpi4b"] * 3}, "description": long}
    assert api.as_().post("/v1/campaigns", json=few).status_code == 202
