"""The log of acts: no act commits without its record, and who may read which."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import pwd
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from edgeyard.benchmark_api.acts import ROUTE_ACTS
from edgeyard.benchmark_api.pages import ROUTERS as PAGES
from edgeyard.benchmark_api.reloading import Reloader
from edgeyard.benchmark_api.sdk import Client
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.engine.queue_cache import board_holds, pending_of
from edgeyard.scheduler.model.acts import ActFilter, Acting, Door, act_of
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.store.sql_store import SqlStore
from edgeyard.scheduler.store.tables import metadata
from tests.builders.api import Api, running
from tests.builders.cli import printed, run
from tests.builders.pages import as_
from tests.integration.test_api_auth import BODIES, ROUTES, names

ROOT = Path(__file__).parents[2]
BOARD = "rpi4b-0001-0001"


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("acts"), trusted_proxies=("127.0.0.1",)) as found:
        found.upload()
        yield found


def records(api: Api, caller: str = "operator", **params: Any) -> list[dict[str, object]]:
    answer = api.as_(caller).get("/v1/events", params={"limit": 1000, **params})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, object]] = answer.json()["items"]
    return items


def stored(api: Api) -> dict[str, list[str]]:
    """Everything that the database holds, except the log of acts."""
    assert isinstance(api.store, SqlStore)
    with api.store.read() as uow:
        return {
            table.name: sorted(map(repr, uow.tx.rows(select(table))))
            for table in metadata.sorted_tables
            if table.name != "acts"
        }


CHANGING = sorted(route for route in ROUTES if route[0] not in ("GET", "HEAD"))


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_no_act_commits_without_its_record(api: Api, method: str, path: str) -> None:
    caller = "operator" if ROUTES[method, path].get("alice") in (403, 404) else "alice"
    known = names(api, path)
    earlier, before = records(api), stored(api)
    body = BODIES.get(path, {})
    answer = api.as_(caller).request(method, path.format(**known), **body)  # type: ignore[arg-type]
    new = [each for each in records(api) if each not in earlier]
    changed = [name for name, rows in stored(api).items() if rows != before[name]]
    assert new or not changed, f"{method} {path} changed {changed} without a record"
    if answer.status_code >= 400:
        assert {each["kind"] for each in new} <= {"sign_in.failed"}
    else:
        for each in new:
            assert EVENT_TYPES[str(each["kind"])].act
            assert each["address"] == "127.0.0.1"
            assert str(each["user_id"]) in (caller, f"{caller}-user")


def test_every_route_that_changes_something_has_a_type_of_act(api: Api) -> None:
    pages = {
        ("POST", route.path)
        for router in PAGES
        for route in router.routes
        if isinstance(route, APIRoute) and route.methods == {"POST"}
    }
    stated = {(method, path.replace(":path}", "}")) for method, path in ROUTE_ACTS}
    assert {*CHANGING, *pages} == stated
    for kind in ROUTE_ACTS.values():
        assert kind is None or EVENT_TYPES[kind].act


def test_a_drained_board_has_who_did_it_by_which_door_from_where_and_why(api: Api) -> None:
    api.as_("operator").post(f"/v1/boards/{BOARD}/resume")  # another test may have drained it
    headers = {"User-Agent": "edgeyard-cli/0.2.0", "X-Forwarded-For": "192.0.2.7, 198.51.100.9"}
    answer = api.as_("operator").post(
        f"/v1/boards/{BOARD}/drain", json={"reason": "its fan is loud"}, headers=headers
    )
    assert answer.status_code == 200
    found, *_ = records(api, board=BOARD, type="board.drained")
    assert found["reason"] == "its fan is loud"
    assert (found["door"], found["address"]) == ("cli", "198.51.100.9")
    assert found["after"]["drained"] is True  # type: ignore[index]
    api.as_("operator").post(
        f"/v1/boards/{BOARD}/resume", headers={"X-Edgeyard-Reason": quote("lüfter neu")}
    )
    found, *_ = records(api, board=BOARD, type="board.resumed")
    assert found["reason"] == "lüfter neu"
    assert found["before"]["drained"] is True  # type: ignore[index]
    assert found["after"]["drained"] is False  # type: ignore[index]


def test_a_board_that_nobody_ever_drained_was_in_use_before(api: Api) -> None:
    with api.store.read() as uow:
        free = {
            str(each["target_uid"])
            for each in api.as_("operator").get("/v1/boards").json()["items"]
        }
        board = min(free - set(uow.board_overrides.all()))
    assert api.as_("operator").post(f"/v1/boards/{board}/drain").status_code == 200
    (found,) = records(api, board=board, type="board.drained")
    assert (found["before"], found["after"]) == ({"drained": False}, {"drained": True})


def test_a_hostile_agent_is_shortened_and_moves_no_cursor(api: Api) -> None:
    headers = {b"User-Agent": b"\x1b[2J\xff" + b"x" * 5000}
    assert api.as_("alice").post("/v1/tokens", json={}, headers=headers).status_code == 201
    found, *_ = records(api, actor="alice", type="token.added")
    agent = str(found["agent"])
    assert agent.isprintable()
    assert len(agent) == 500


def test_no_secret_is_in_the_log(api: Api) -> None:
    made = api.as_("operator").post("/v1/tokens", json={"user_id": "bob"}).json()
    secret = "a-secret-in-a-path"
    hook = {"url": f"https://example.org/{secret}"}
    answer = api.as_("operator").put("/v1/users/bob/webhook", json=hook)
    password = {"email": "bob@example.org", "password": "very-secret-1"}
    assert api.as_("operator").put("/v1/users/bob/password", json=password).status_code == 204
    text = repr(records(api))
    for each in (made["token"], secret, "very-secret-1", "argon2", answer.json()["secret"]):
        assert each not in text
    assert "example.org" in text


def test_owners_see_their_own_acts_and_those_on_their_benchmarks(api: Api) -> None:
    benchmark_id = api.submit()
    api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/hold")
    api.as_("bob").post("/v1/tokens", json={})
    mine = records(api, "alice")
    by_operator = [each for each in mine if each["benchmark_id"] == benchmark_id]
    assert [each["kind"] for each in by_operator] == ["benchmark.held", "benchmark.submitted"]
    assert by_operator[0]["address"] is None
    assert "bob" not in {each["user_id"] for each in mine}
    assert records(api, "bob", benchmark_id=benchmark_id) == []


def test_pages_and_following_leave_nothing_out(api: Api) -> None:
    for _ in range(5):
        api.as_("bob").post("/v1/tokens", json={})
    whole = records(api, actor="bob")
    paged: list[dict[str, object]] = []
    cursor = None
    while True:
        params: Any = {"actor": "bob", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = api.as_("operator").get("/v1/events", params=params).json()
        paged += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == whole
    assert records(api, actor="bob", after=0) == whole[::-1]
    newest = whole[0]["seq"]
    assert records(api, actor="bob", after=newest) == []


@pytest.mark.parametrize(
    "params", [{"type": "no.such"}, {"cursor": "x"}, {"since": "yesterday"}, {"limit": 0}]
)
def test_a_wrong_filter_is_refused(api: Api, params: Any) -> None:
    assert api.as_("operator").get("/v1/events", params=params).status_code == 422


def test_times_bound_the_list(api: Api) -> None:
    future = (api.clock.now() + timedelta(days=1)).isoformat()
    assert records(api, since=future) == []
    assert records(api, until=future) == records(api)


def test_failed_sign_ins_are_counted_by_address_and_minute(api: Api) -> None:
    headers = {"Authorization": "Bearer ey_nobody-has-this", "X-Forwarded-For": "192.0.2.99"}
    for _ in range(3):
        assert api.as_(None).get("/v1/me", headers=headers).status_code == 401
    wrong = {"email": "nobody@example.org", "password": "wrong"}
    address = {"X-Forwarded-For": "192.0.2.99"}
    assert api.as_(None).post("/api/users/login", json=wrong, headers=address).status_code == 401
    found = [
        each for each in records(api, type="sign_in.failed") if each["address"] == "192.0.2.99"
    ]
    assert sum(int(str(each["count"])) for each in found) == 4
    assert {each["door"] for each in found} == {"http", "platform"}
    assert "sign_in.failed" not in {each["kind"] for each in records(api, "alice")}


def test_no_type_of_event_in_the_code_is_missing_in_the_catalogue() -> None:
    """Kinds that are stated as texts where events are made."""
    found = set()
    for folder in ("benchmark_api", "scheduler"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name not in ("Event", "_event", "_log", "_keep"):
                    continue
                values = [*node.args, *(each.value for each in node.keywords)]
                found |= {
                    each.value
                    for value in values
                    for each in ast.walk(value)
                    if isinstance(each, ast.Constant)
                    and isinstance(each.value, str)
                    and re.fullmatch(r"[a-z_]+\.[a-z_]+", each.value)
                }
    assert {"board.drained", "user.added", "server.clock_differs"} <= found
    assert found <= set(EVENT_TYPES)


def test_the_catalogue_is_in_order() -> None:
    assert list(EVENT_TYPES) == sorted(EVENT_TYPES)


def test_the_command_prints_who_drained_a_board(api: Api) -> None:
    server = ("--url", api.url, "--token", api.tokens["operator"])
    printed(run("boards", "resume", BOARD, *server))
    printed(run("boards", "drain", BOARD, "--reason", "dust", *server))
    drains = ("events", "--board", BOARD, "--type", "board.drained", "-n", "1", *server)
    assert "dust" in printed(run(*drains))
    assert '"door":"cli"' in printed(run(*drains, "--json")).replace(" ", "")
    assert "after.drained" in printed(run(*drains, "-o", "csv"))
    printed(run("boards", "resume", BOARD, *server))


def test_each_door_takes_a_reason_for_what_had_none(api: Api) -> None:
    server = ("--url", api.url, "--token", api.tokens["operator"])
    benchmark_id = api.submit()
    printed(run("hold", benchmark_id, "--reason", "the räck moves", *server))
    with Client(api.url, token=api.tokens["operator"]) as client:
        with client.because("it has moved"):
            client.release(benchmark_id)
        client.hold(benchmark_id)
    browser = as_(api, "operator")
    page = f"/ui/benchmarks/{benchmark_id}"
    assert 'name="reason"' in browser.get(page).text
    assert browser.post(f"{page}/cancel", page, reason=" no\x1bt needed ").status_code == 303
    found = records(api, benchmark_id=benchmark_id)
    assert [(each["kind"], each["door"], each["reason"]) for each in found] == [
        ("benchmark.cancelled", "page", "no\ufffdt needed"),
        ("benchmark.held", "sdk", ""),
        ("benchmark.released", "sdk", "it has moved"),
        ("benchmark.held", "cli", "the räck moves"),
        ("benchmark.submitted", "http", ""),
    ]


def test_who_holds_or_cancelled_a_benchmark_is_named_with_the_reason(api: Api) -> None:
    benchmark_id = api.submit()
    operator = api.as_("operator")
    why = {"X-Edgeyard-Reason": "the%20rack%20moves"}
    held = operator.post(f"/v1/benchmarks/{benchmark_id}/hold", headers=why).json()
    assert (held["stopped_by"], held["stopped_reason"]) == ("operator", "the rack moves")
    with api.store.read() as uow:
        waits = pending_of(uow.benchmarks.get(benchmark_id)).not_ready
    assert waits is not None
    assert waits.sentence == (
        "held by operator: the rack moves; its owner or an operator releases it: "
        "edgeyard release ID"
    )
    freed = api.as_().post(f"/v1/benchmarks/{benchmark_id}/release").json()
    assert (freed["stopped_by"], freed["stopped_reason"]) == (None, None)
    operator.post(f"/v1/benchmarks/{benchmark_id}/cancel", headers=why)
    mine = ("--url", api.url, "--token", api.tokens["alice"])
    for command in (("show", benchmark_id), ("wait", benchmark_id)):
        assert "by operator: the rack moves" in " ".join(run(*command, *mine).stdout.split())
    with Client(api.url, token=api.tokens["alice"]) as client:
        found = client.benchmark(benchmark_id)
    assert (found.stopped_by, found.stopped_reason) == ("operator", "the rack moves")
    page = as_(api).get(f"/ui/benchmarks/{benchmark_id}")
    shown = " ".join(re.sub("<[^>]*>", "", page.text).split())
    assert "Cancelled by operator: the rack moves" in shown


def test_who_ended_a_lease_is_named_to_its_user(api: Api) -> None:
    until = (api.clock.now() + timedelta(hours=1)).isoformat()
    body = {"until": until, "user_id": "alice", "reason": "for a demo"}
    operator = api.as_("operator")
    answer = operator.post("/v1/boards/rpi4b-0001-0002/lease", json=body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["ended_by"] is None
    why = {"X-Edgeyard-Reason": "broken"}
    ended = operator.post(f"/v1/leases/{made['lease_id']}/release", headers=why).json()
    assert ended["ended_by"] == "operator"
    found = records(api, "alice", type="board.released")[0]
    assert (found["user_id"], found["reason"]) == ("operator", "broken")
    assert found["board"] == "rpi4b-0001-0002"
    assert records(api, "bob", type="board.released") == []


def test_acts_on_policies_models_inventory_and_files_state_before_and_after(api: Api) -> None:
    def newest(kind: str) -> tuple[object, object]:
        found = records(api, type=kind)[0]
        return found["before"], found["after"]

    operator = api.as_("operator")
    assert operator.put("/v1/policies/active", json={"name": "native"}).status_code == 200
    assert operator.put("/v1/policies/active", json={"name": "learned"}).status_code == 200
    before, after = newest("policy.active")
    assert (before["policy"], after["policy"]) == ("native", "learned")  # type: ignore[index]
    assert operator.delete("/v1/policies/active").status_code == 204
    assert newest("policy.active") == (after, {})
    benchmark_id = api.submit()
    own = f"/v1/benchmarks/{benchmark_id}/policy"
    assert operator.put(own, json={"name": "native"}).status_code == 204
    assert operator.delete(own).status_code == 204
    before, after = newest("policy.override")
    assert (before["policy"], after) == ("native", {})  # type: ignore[index]

    entry = {
        "target_uid": "rpi5-0009-0009",
        "memory": {"ram": 4 * 2**30, "storage": 16 * 2**30},
        "engines": {"ort": {"version": "1", "supported_types": ["TYPE1"]}},
    }
    assert operator.post("/v1/inventory/boards", json=entry).status_code == 201
    before, after = newest("board.added")
    assert before == {}
    assert after["engines"] == ["ort 1 (TYPE1)"]  # type: ignore[index]
    assert operator.delete("/v1/inventory/boards/rpi5-0009-0009").status_code == 204
    assert newest("board.removed") == (after, {})

    file = api.upload("mine.onnx", b"12345")
    before, after = newest("file.uploaded")
    assert before == {}
    assert after == {
        "name": "mine.onnx",
        "size_bytes": 5,
        "sha256": hashlib.sha256(b"12345").hexdigest(),
    }
    operator.delete(f"/v1/files/{file['file_id']}", headers={"X-Edgeyard-Reason": "spam"})
    assert newest("file.deleted") == (after, {})
    assert records(api, "alice", type="file.deleted")[0]["reason"] == "spam"


def test_an_abandoned_upload_states_what_it_had(api: Api) -> None:
    stated = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": "10",
        "Upload-Metadata": f"filename {base64.b64encode(b'half.onnx').decode()}",
    }
    made = api.as_().post("/v1/uploads", headers=stated)
    assert made.status_code == 201, made.text
    where = f"/v1/uploads/{made.headers['location'].rpartition('/')[2]}"
    assert api.as_().delete(where).status_code == 204
    found = records(api, type="file.deleted")[0]
    assert (found["before"], found["after"]) == ({"name": "half.onnx", "size_bytes": 0}, {})
    server = ("--url", api.url, "--token", api.tokens["operator"])
    listed = printed(run("events", "--type", "file.deleted", "-n", "1", *server))
    assert "half.onnx" in listed


def test_a_promoted_model_states_before_and_after_and_the_operator_s_reason() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    moved = Event(
        at=now,
        kind="model.state",
        user_id="op",
        data={
            "model": "run_time/2",
            "state": "active",
            "reason": "promoted",
            "before": {"state": "shadow"},
            "after": {"state": "active"},
        },
    )
    who = Acting(door=Door.CLI, address="", at=now, kind="model.changed", user_id="op", reason="ok")
    act = act_of(who, [moved])
    assert act is not None
    assert (act.kind, act.reason, act.data["model"]) == ("model.changed", "ok", "run_time/2")
    assert (act.before, act.after) == ({"state": "shadow"}, {"state": "active"})


def test_acts_on_the_server_s_machine_are_recorded_with_who_did_them(
    api: Api, tmp_path: Path
) -> None:
    services = api.services
    reloader = Reloader(services, lambda settings: services.inventory, lambda *_: ())
    changed = services.settings.model_copy(update={"campaign_limit": 7})
    reloader.reload(lambda: changed)
    found = records(api, type="server.reloaded")[0]
    assert (found["door"], found["user_id"]) == ("server", "local:signal")
    assert (found["before"], found["after"]) == ({"campaign_limit": 1000}, {"campaign_limit": 7})

    def broken() -> Settings:
        raise ConfigError(["port: is no number"])

    reloader.reload(broken)
    found = records(api, type="server.reload_failed")[0]
    assert found["data"]["problems"] == ["port: is no number"]  # type: ignore[index]

    folder = tmp_path / "data"
    folder.mkdir()
    SqlStore(f"sqlite:///{folder}/edgeyard.db").close()
    printed(run("server", "prune", "--data-dir", folder, "--reason", "the disk is full"))
    printed(run("server", "prune", "--data-dir", folder, "--dry-run"))
    store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
    with store.read() as uow:
        (act,) = uow.log.acts(ActFilter(), limit=10)
    store.close()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert (act.kind, act.door, act.user_id, act.reason) == (
        "server.pruned",
        "server",
        f"local:{user}",
        "the disk is full",
    )


def test_the_reference_documents_the_reason_of_each_act(api: Api) -> None:
    named = {
        (method.upper(), path)
        for path, operations in api.app.openapi()["paths"].items()
        for method, operation in operations.items()
        if "X-Edgeyard-Reason" in {each["name"] for each in operation.get("parameters", ())}
    }
    served = {(method, path) for method, path in ROUTES if method not in ("GET", "HEAD")}
    acts = {
        (method, path.replace(":path}", "}")) for (method, path), kind in ROUTE_ACTS.items() if kind
    }
    assert named == acts & served


def test_a_board_that_was_drained_without_a_reason_names_who_did_it(api: Api) -> None:
    assert api.as_("operator").post(f"/v1/boards/{BOARD}/drain").status_code == 200
    with api.store.read() as uow:
        drained, _ = board_holds(uow)  # what every board's reason is made of
    assert drained[BOARD] == "taken out by operator"
    assert api.as_("operator").post(f"/v1/boards/{BOARD}/resume").status_code == 200


def test_acts_are_followed_as_they_are_done(api: Api) -> None:
    api.as_("operator").post(f"/v1/boards/{BOARD}/drain", json={"reason": "earlier"})
    reasons = iter(["first", "second"])

    def drain(seconds: float) -> None:
        body = {"reason": next(reasons)}
        api.as_("operator").post(f"/v1/boards/{BOARD}/drain", json=body)
        api.as_("operator").post(f"/v1/boards/{BOARD}/resume")

    with Client(api.url, token=api.tokens["operator"], sleep=drain) as client:
        acts = client.follow_acts(type="board.drained", board=BOARD)
        assert [next(acts).reason, next(acts).reason] == ["first", "second"]
