"""Benchmarks with a count: submitted, refused and shown by the API, the SDK and the CLI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeyard import Client
from edgeyard.errors import InvalidInput
from tests.builders.api import Api, running
from tests.builders.cli import printed, run
from tests.builders.descriptions import description

MODEL = str(description()["model"])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


def submit(api: Api, path: str = "/v1/benchmarks", **changes: object) -> Any:
    return api.as_().post(path, json=description(**{"count": 2, **changes}))


def errors(answer: Any) -> dict[str, tuple[str, str]]:
    assert answer.status_code == 422, answer.text
    return {each["pointer"]: (each["reason"], each["accepted"]) for each in answer.json()["errors"]}


def test_a_count_makes_one_benchmark_for_each_board(api: Api) -> None:
    answer = submit(api, name="pair")
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert len(set(body["benchmark_ids"])) == 2
    assert body["benchmark_id"] == body["benchmark_ids"][0]
    campaign = api.as_().get(f"/v1/campaigns/{body['campaign_id']}").json()
    assert campaign["name"] == "pair"
    members = campaign["benchmarks"]
    assert sorted(each["benchmark_id"] for each in members) == sorted(body["benchmark_ids"])
    assert {each["description"]["count"] for each in members} == {2}
    single = submit(api, count=1).json()
    assert "campaign_id" not in single
    assert "benchmark_ids" not in single


def test_the_same_key_gets_the_same_gang(api: Api) -> None:
    def post() -> Any:
        return api.as_().post(
            "/v1/benchmarks", json=description(count=2), headers={"Idempotency-Key": "once"}
        )

    assert post().json() == post().json()
    assert len(api.as_().get("/v1/campaigns").json()["items"]) == 1


def test_more_boards_than_match_are_refused_with_their_number(api: Api) -> None:
    assert errors(submit(api, count=3)) == {"/count": ("is 3, and 2 of rpi4b match", "at most 2")}
    one = {"attribute": "target_uid", "operator": "=", "value": "rpi4b-0001-0001"}
    assert errors(submit(api, constraints=[one])) == {
        "/count": ("is 2, and 1 of rpi4b match", "at most 1")
    }


@pytest.mark.parametrize("count", [0, -1, 65, 1.5, "2", True, None, 10**30])
def test_counts_out_of_range_are_refused(api: Api, count: object) -> None:
    answer = submit(api, count=count)
    assert list(errors(answer)) == ["/count"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_uid", "rpi4b-0001-0001"),
        ("benchmark_id", "mine"),
        ("cron", "0 3 * * *"),
        ("job_completion_threshold", 50),
        ("binding", "loose"),
        ("binding", "filtered"),
    ],
)
def test_what_cannot_be_combined_with_a_count_is_refused(api: Api, field: str, value: Any) -> None:
    assert list(errors(submit(api, **{field: value}))) == [f"/{field}"]
    assert submit(api, count=1, **{field: value}).status_code == 202


def test_a_matrix_cannot_have_a_count(api: Api) -> None:
    shared = {key: value for key, value in description(count=2).items() if key != "target"}
    body = {"matrix": {"target": ["rpi4b"]}, "description": shared}
    answer = api.as_().post("/v1/campaigns", json=body)
    assert list(errors(answer)) == ["/description/count"]


def test_an_account_that_may_never_run_all_is_refused(api: Api) -> None:
    answer = api.as_("operator").patch("/v1/users/alice", json={"max_running": 1})
    assert answer.status_code == 200, answer.text
    assert errors(submit(api)) == {
        "/count": ("is 2, more than your account may have on boards at once", "at most 1")
    }


def test_a_full_queue_refuses_the_whole_gang(tmp_path: Path) -> None:
    with running(tmp_path, user_max_pending=1) as api:
        api.upload()
        assert submit(api).status_code == 429
        assert submit(api, "/v1/benchmarks?dry_run=true").status_code == 429
        assert api.as_().get("/v1/benchmarks").json()["items"] == []
        assert api.as_().get("/v1/campaigns").json()["items"] == []
        assert submit(api, count=1).status_code == 202


def test_a_retry_of_one_runs_all_again(api: Api) -> None:
    first = submit(api).json()
    for each in first["benchmark_ids"]:
        assert api.as_().post(f"/v1/benchmarks/{each}/cancel").status_code == 202
    again = api.as_().post(f"/v1/benchmarks/{first['benchmark_id']}/retry").json()
    assert len(again["benchmark_ids"]) == 2
    assert again["campaign_id"] != first["campaign_id"]
    pinned = api.as_().post(
        f"/v1/benchmarks/{first['benchmark_id']}/clone", json={"target_uid": "rpi4b-0001-0001"}
    )
    assert "benchmark_ids" not in pinned.json()


def test_one_of_a_gang_gets_no_policy_of_its_own_before_the_start(api: Api) -> None:
    first = submit(api).json()["benchmark_ids"][0]
    operator = api.as_("operator")
    answer = operator.put(f"/v1/benchmarks/{first}/policy", json={"name": "native"})
    assert answer.status_code == 409, answer.text
    assert "one policy decides all of them" in answer.text
    assert operator.get("/v1/policies").json()["overrides"] == []


def test_the_client_returns_one_of_a_gang_that_it_runs_again(api: Api) -> None:
    with Client(api.url, api.tokens["alice"]) as client:
        first, second = client.submit(
            model=MODEL, runtime="ort", benchmark_type="TYPE1", target="rpi4b", count=2
        )
        client.cancel(first)
        for again in (client.retry(first), client.clone(second, nb_inference=7)):
            assert again.campaign_id is not None
            members = client.campaign(again.campaign_id)
            assert len(members) == 2
            assert again.benchmark_id in {each.benchmark_id for each in members}


def test_the_client_returns_the_benchmarks_of_all_boards(api: Api) -> None:
    with Client(api.url, api.tokens["alice"]) as client:
        found = client.submit(
            model=MODEL, runtime="ort", benchmark_type="TYPE1", target="rpi4b", count=2
        )
        assert len({each.benchmark_id for each in found}) == 2
        (campaign_id,) = {each.campaign_id for each in found}
        assert campaign_id is not None
        assert len(client.campaign(campaign_id)) == 2
        with pytest.raises(InvalidInput, match="needs several boards"):
            client.infer(MODEL, [1.0], "rpi4b", **{"count": 2})  # type: ignore[arg-type]


def test_the_command_line_prints_all_ids_and_the_campaign(api: Api) -> None:
    server = ("--url", api.url, "--token", api.tokens["alice"])

    def answer(*words: str) -> Any:
        return json.loads(printed(run(*words, *server, "--output", "json")))

    flags = ("--model", MODEL, "--runtime", "ort", "--type", "TYPE1", "--target", "rpi4b")
    rows = answer("submit", *flags, "--count", "2")
    assert len({each["benchmark_id"] for each in rows}) == 2
    (campaign_id,) = {each["campaign_id"] for each in rows}
    answer("cancel", "--campaign", campaign_id)
    again = answer("retry", rows[0]["benchmark_id"])
    assert len(again) == 2
    refused = run("submit", *flags, "--count", "3", *server)
    assert refused.exit_code != 0
    assert "2 of rpi4b match" in refused.output
    assert "--count" in refused.output
