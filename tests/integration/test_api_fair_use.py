"""Accounts, rates, leases, quarantine and priorities over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.accounts import USAGE_HALF_LIFE_S
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from tests.builders.api import Api, running
from tests.builders.descriptions import description

BOARD, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002"


@pytest.fixture
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


def ok(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def in_(api: Api, **span: float) -> str:
    return (api.clock.now() + timedelta(**span)).isoformat()


def test_credits_are_given_reserved_spent_and_shown(api: Api) -> None:
    op = api.as_("operator")
    ok(op.post("/v1/users/alice/credits", json={"credits": 1000}))
    ok(op.put("/v1/rates/rpi4b", json={"rate": 2}))
    assert ok(api.as_().get("/v1/rates"))["rates"] == {"rpi4b": 2.0, "rpi5": 1.0}
    benchmark_id = api.submit(user_time=100)
    api.dispatched(benchmark_id)
    body = ok(api.as_().get("/v1/users/alice/account"))
    assert (body["credits"], body["credits_left"], body["reserved"]) == (1000, 800, 200)
    assert body["running"] == 1
    assert body["usage_half_life_s"] == USAGE_HALF_LIFE_S
    assert ok(api.as_().get(f"/v1/benchmarks/{benchmark_id}"))["attempts"][0]["time_limit_s"] == 100
    now = api.clock.now()
    with api.store.write() as uow:
        attempt = uow.attempts.of(benchmark_id)[-1]
        lifecycle.task_started(uow, attempt, BOARD, now, now)
        later = now + timedelta(seconds=30)
        failure = Failure(category=FailureCategory.USER_MODEL, sentence="a bad model")
        lifecycle.task_ended(uow, uow.attempts.of(benchmark_id)[-1], failure, later, later)
    body = ok(api.as_().get("/v1/users/alice/account"))
    assert (body["credits"], body["reserved"], body["spent"]) == (940, 0, 60)
    (charge,) = body["charges"]
    assert (charge["charged"], charge["board_s"], charge["rate"]) == (60, 30, 2)
    assert ok(op.post("/v1/users/alice/credits", json={"add": -40}))["credits"] == 900
    assert op.post("/v1/users/alice/credits", json={"add": -901}).status_code == 409
    assert ok(op.post("/v1/users/alice/credits", json={"credits": None}))["credits"] is None
    assert op.post("/v1/users/alice/credits", json={"add": 1}).status_code == 409


@pytest.mark.parametrize(
    "body", [{}, {"credits": 1, "add": 1}, {"add": None}, {"credits": -1}, {"credits": 1e300}]
)
def test_credits_are_one_number_within_bounds(api: Api, body: dict[str, object]) -> None:
    assert api.as_("operator").post("/v1/users/alice/credits", json=body).status_code == 422


def test_a_benchmark_above_the_account_limits_is_refused_at_submission(api: Api) -> None:
    op = api.as_("operator")
    ok(op.post("/v1/users/alice/credits", json={"credits": 50}))
    matrix = {"target": ["rpi4b"]}
    for path, body, pointer in (
        ("/v1/benchmarks", description(user_time=60), "/user_time"),
        ("/v1/benchmarks?dry_run=1", description(user_time=60), "/user_time"),
        (
            "/v1/campaigns",
            {"matrix": matrix, "description": description(target=..., user_time=60)},
            "/description/user_time",
        ),
    ):
        (error,) = ok(api.as_().post(path, json=body), 422)["errors"]
        assert error["pointer"] == pointer
        assert error["reason"] == "a run of 60 s may cost 60 credits, and your account has 50"
        assert error["accepted"] == "at most 50 s, or more credits"
    api.submit(user_time=50)
    api.submit(user_time=60, user_budget=40)  # which bounds the run
    ok(op.patch("/v1/users/alice", json={"max_running": 0}))
    answer = api.as_().post("/v1/benchmarks", json=description(user_time=1))
    assert "may have no benchmarks on boards" in answer.text


def test_quotas_and_shares_are_set_by_operators_and_seen(api: Api) -> None:
    op = api.as_("operator")
    change = {"max_running": 3, "share": 2.5, "max_lease_s": 3600}
    body = ok(op.patch("/v1/users/alice", json=change))
    assert {name: body[name] for name in change} == change
    assert ok(op.patch("/v1/users/alice", json={"max_running": None}))["max_running"] is None
    seen = ok(api.as_().get("/v1/users/alice/account"))
    assert (seen["share"], seen["max_lease_s"]) == (2.5, 3600)
    for wrong in ({"share": 0}, {"share": -1}, {"max_running": -1}, {"max_lease_s": -1}):
        assert op.patch("/v1/users/alice", json=wrong).status_code == 422
    assert op.post("/v1/users", json={"user_id": "edgeyard-probe"}).status_code == 422


def test_a_waiting_benchmark_gets_another_priority(api: Api) -> None:
    benchmark_id = api.submit(user_priority=3)
    path = f"/v1/benchmarks/{benchmark_id}/priority"
    body = ok(api.as_().post(path, json={"user_priority": 5}), 202)
    assert body["user_priority"] == 5
    assert body["description"]["user_priority"] == 3
    (error,) = ok(api.as_().post(path, json={"user_priority": 6}), 422)["errors"]
    assert error == {
        "pointer": "/user_priority",
        "reason": "is above your account's limit",
        "accepted": "1 to 5",
    }
    assert (
        ok(api.as_("operator").post(path, json={"user_priority": 10}), 202)["user_priority"] == 10
    )
    with api.store.read() as uow:
        events = uow.log.events(after=0, limit=99, benchmark_id=benchmark_id)
    changes = [e.data for e in events if e.kind == "benchmark.prioritised"]
    assert [each["after"] for each in changes] == [{"user_priority": 5}, {"user_priority": 10}]
    api.dispatched(benchmark_id)
    assert api.as_().post(path, json={"user_priority": 1}).status_code == 409


def test_leases_do_not_overlap_and_free_themselves(api: Api) -> None:
    op = api.as_("operator")
    path = f"/v1/boards/{BOARD}/lease"
    made = ok(op.post(path, json={"until": in_(api, hours=2), "reason": "a new fan"}), 201)
    assert made["user_id"] is None
    clash = op.post(path, json={"since": in_(api, hours=1), "until": in_(api, hours=3)})
    assert clash.status_code == 409
    assert made["lease_id"] in clash.text
    ok(op.post(f"/v1/boards/{OTHER}/lease", json={"until": in_(api, hours=1)}), 201)
    after = {"since": in_(api, hours=3), "until": in_(api, hours=4), "user_id": "alice"}
    mine = ok(op.post(path, json=after), 201)
    assert [each["user_id"] for each in ok(api.as_().get(f"/v1/boards/{BOARD}"))["leases"]] == [
        None,
        "alice",
    ]
    seen = ok(api.as_("bob").get("/v1/leases"))["items"]
    assert [each["user_id"] for each in seen] == [None, None, None]  # whose is nobody else's matter
    assert api.as_("bob").post(f"/v1/leases/{mine['lease_id']}/release").status_code == 403
    ok(api.as_().post(f"/v1/leases/{mine['lease_id']}/release"))
    ok(op.post(path, json=after), 201)
    api.clock.ahead = timedelta(hours=2, minutes=1)
    assert len(ok(api.as_().get("/v1/leases"))["items"]) == 1  # the others are over


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/until"),
        ({"until": "2001-01-01T00:00:00Z"}, "/until"),
        ({"until": "9999-01-01T00:00:00Z"}, "/until"),
        ({"until": "soon"}, "/until"),
        ({"until": "2030-01-01T00:00:00Z", "hours": 3}, "/hours"),
    ],
)
def test_wrong_leases_are_refused(api: Api, body: dict[str, object], pointer: str) -> None:
    answer = api.as_("operator").post(f"/v1/boards/{BOARD}/lease", json=body)
    assert ok(answer, 422)["errors"][0]["pointer"] == pointer


def test_users_lease_for_themselves_within_their_bound(api: Api) -> None:
    path = f"/v1/boards/{BOARD}/lease"
    assert api.as_().post(path, json={"until": in_(api, hours=1)}).status_code == 403
    ok(api.as_("operator").patch("/v1/users/alice", json={"max_lease_s": 7200}))
    assert ok(api.as_().post(path, json={"until": in_(api, hours=1)}), 201)["user_id"] == "alice"
    too_long = {"until": in_(api, hours=1, minutes=30)}
    refused = ok(api.as_().post(f"/v1/boards/{OTHER}/lease", json=too_long), 422)
    assert refused["errors"][0]["pointer"] == "/until"
    assert len(ok(api.as_().get("/v1/leases"))["items"]) == 1  # the refused one left nothing
    others = {"until": in_(api, minutes=5), "user_id": "bob"}
    assert api.as_().post(f"/v1/boards/{OTHER}/lease", json=others).status_code == 403


def test_operators_quarantine_boards_and_lift_quarantines(api: Api) -> None:
    op = api.as_("operator")
    body = ok(op.post(f"/v1/boards/{BOARD}/quarantine", json={"reason": "smells"}))
    assert body["quarantine"]["reason"] == "smells"
    assert body["quarantine"]["by_user_id"] == "operator"
    assert body["quarantine"]["next_probe_at"] is None
    seen = ok(api.as_().get(f"/v1/boards/{BOARD}"))["quarantine"]
    assert (seen["reason"], seen["by_user_id"]) == ("smells", None)
    assert ok(op.post(f"/v1/boards/{BOARD}/unquarantine"))["quarantine"] is None
    assert op.post(f"/v1/boards/{BOARD}/unquarantine").status_code == 409
    assert op.post("/v1/boards/rpi9-0001-0001/quarantine").status_code == 404
    assert (
        'edgeyard_quarantines_total{cause="operator",cluster="embedded"} 1.0'
        in api.as_().get("/metrics").text
    )
