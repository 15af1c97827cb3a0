"""Every route against every kind of caller; another's thing looks like none."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from string import Formatter

import pytest
from fastapi import FastAPI
from starlette.routing import Route

from edgeyard.benchmark_api.app import create_app
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.registration import RegistrationKind
from edgeyard.scheduler.model.series_changes import ChangeStatus
from tests.builders import series
from tests.builders.api import MODEL, Api, expired_token, running
from tests.builders.descriptions import description
from tests.databases import database_in, stored_text

UPLOAD_TOKEN = "upload-token-1"

CALLERS = (
    *("none", "bad", "expired", "revoked"),
    *("upload", "other upload", "ended upload"),
    *("viewer", "bob", "lesser", "host", "other host"),
    *("alice", "operator"),  # who may remove it: last
)
"""``alice`` owns what the routes name; ``bob`` is another tenant. ``upload`` is the token of an
attempt of alice's. ``lesser`` is a token of the operator's that is for a submitter. ``host`` serves
the board of the attempt, ``other host`` does not. ``viewer`` owns nothing."""

PUBLIC = dict.fromkeys(CALLERS, 200)
OWNERS = {"alice": 200, "operator": 200, "bob": 404, "host": 403}
USERS = {"alice": 200, "operator": 200, "bob": 200, "host": 403}
OF_BOB = {"alice": 404, "operator": 200, "bob": 200, "host": 403}
OPERATORS = {"alice": 403, "operator": 200, "bob": 403, "host": 403}
BY_PASSWORD = dict.fromkeys(CALLERS, 401)
"""Their bodies say who calls, and those of `BODIES` name nobody."""
OF_SCHEDULES = dict.fromkeys(CALLERS, 401)
"""Only the token that a schedule's runs share opens it, and none of these is that."""
OF_RUN = {"upload": 200, "operator": 403, "host": 200, "alice": 403, "bob": 403}
"""The account ``host`` serves the run's board."""
EARLY = OWNERS | {"alice": 428, "operator": 428}  # it has not ended
NEEDS_MORE = USERS | {"alice": 422, "operator": 422, "bob": 422}
NOT_BUILT = USERS | {"alice": 501, "operator": 501, "bob": 501}
REGISTERED = {"alice": 200, "operator": 200, "bob": 403, "host": 403}
ANYBODY = {"alice": 200, "operator": 200, "bob": 200, "host": 200}

ROUTES: dict[tuple[str, str], dict[str, int]] = {
    ("POST", "/v1/benchmarks"): USERS,
    ("GET", "/v1/benchmarks"): USERS,
    ("POST", "/v1/benchmarks/check"): USERS,
    ("GET", "/v1/benchmarks/{benchmark_id}"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/cancel"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/hold"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/release"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/preempt"): OPERATORS,
    ("POST", "/v1/benchmarks/{benchmark_id}/priority"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/retry"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/clone"): OWNERS,
    ("POST", "/v1/benchmarks/{benchmark_id}/clone/check"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/hcl"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/explanation"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/events"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/logs"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/results"): OWNERS,
    ("DELETE", "/v1/benchmarks/{benchmark_id}/files"): OWNERS,
    ("GET", "/v1/benchmarks/{benchmark_id}/results/{attempt}/{name}"): OWNERS,
    ("GET", "/v1/results"): OWNERS,
    ("POST", "/v1/results/comparison"): OWNERS,
    ("GET", "/v1/series"): USERS,
    ("GET", "/v1/series/points"): USERS,
    ("POST", "/v1/campaigns"): USERS,
    ("POST", "/v1/campaigns/check"): NEEDS_MORE,
    ("GET", "/v1/campaigns"): USERS,
    ("GET", "/v1/campaigns/{campaign_id}"): OWNERS,
    ("POST", "/v1/files"): USERS,
    ("POST", "/v1/files/names"): OWNERS | {"operator": 404},  # of own content alone
    ("GET", "/v1/files"): USERS,
    ("GET", "/v1/files/{file_id}"): OWNERS,
    ("GET", "/v1/files/{file_id}/inputs"): OWNERS,
    ("GET", "/v1/files/{file_id}/content"): OWNERS,
    ("DELETE", "/v1/files/{file_id}"): OWNERS,
    ("POST", "/v1/uploads"): NEEDS_MORE,
    ("GET", "/v1/uploads"): USERS,
    ("HEAD", "/v1/uploads/{upload_id}"): OWNERS | {"operator": 404},  # only who sends it
    ("PATCH", "/v1/uploads/{upload_id}"): NEEDS_MORE,
    ("DELETE", "/v1/uploads/{upload_id}"): OWNERS,
    ("GET", "/v1/boards"): USERS,
    ("GET", "/v1/attributes"): USERS,
    ("GET", "/v1/boards/{target_uid}"): USERS,
    ("POST", "/v1/boards/{target_uid}/drain"): OPERATORS,
    ("POST", "/v1/boards/{target_uid}/resume"): OPERATORS,
    ("POST", "/v1/boards/{target_uid}/quarantine"): OPERATORS,
    ("POST", "/v1/boards/{target_uid}/unquarantine"): OPERATORS,
    ("POST", "/v1/boards/{target_uid}/probe"): OPERATORS,
    ("POST", "/v1/boards/{target_uid}/lease"): OPERATORS,  # others: as their account says
    ("GET", "/v1/leases"): USERS,
    ("POST", "/v1/leases/{lease_id}/release"): {
        "alice": 200,
        "operator": 200,
        "bob": 403,
        "host": 403,
    },
    ("GET", "/v1/alerts"): USERS,
    ("GET", "/v1/alerts/{change_id}"): OWNERS,
    ("POST", "/v1/alerts/{change_id}/resolve"): OWNERS,
    ("POST", "/v1/alerts/{change_id}/dismiss"): OWNERS,
    ("GET", "/v1/series/{series_id}"): OWNERS,
    ("DELETE", "/v1/series/{series_id}/threshold"): OWNERS,
    ("PUT", "/v1/series/{series_id}/settings"): OWNERS,
    ("POST", "/v1/checks"): USERS,
    ("GET", "/v1/checks"): USERS,
    ("GET", "/v1/checks/{check_id}"): OWNERS,
    ("POST", "/v1/checks/{check_id}/cancel"): OWNERS,
    ("GET", "/v1/subscriptions"): USERS,
    ("POST", "/v1/subscriptions"): OWNERS,
    ("DELETE", "/v1/subscriptions/{subscription_id}"): OWNERS,
    ("GET", "/v1/deliveries"): USERS,
    ("GET", "/v1/shares"): USERS,
    ("POST", "/v1/shares"): OWNERS,
    ("DELETE", "/v1/shares/{share_id}"): OWNERS,
    ("GET", "/v1/rates"): USERS,
    ("PUT", "/v1/rates/{family}"): OPERATORS,
    ("GET", "/v1/inventory"): USERS,
    ("GET", "/v1/inventory/check"): USERS,
    ("POST", "/v1/inventory/boards"): OPERATORS,
    ("DELETE", "/v1/inventory/boards/{target_uid}"): OPERATORS,
    ("GET", "/v1/strays"): OPERATORS,
    ("POST", "/v1/strays/{job_id}/stop"): OPERATORS | {"operator": 404},  # there is none
    ("GET", "/v1/queue"): USERS,
    ("GET", "/v1/policies"): USERS,
    ("GET", "/v1/policies/comparison"): OPERATORS,
    ("GET", "/v1/policies/{name}"): USERS,
    ("PUT", "/v1/policies/{role}"): OPERATORS,
    ("DELETE", "/v1/policies/{role}"): OPERATORS,
    ("PUT", "/v1/benchmarks/{benchmark_id}/policy"): OPERATORS,
    ("DELETE", "/v1/benchmarks/{benchmark_id}/policy"): OPERATORS,
    ("GET", "/v1/scorers"): USERS,
    ("GET", "/v1/models"): OPERATORS,
    ("GET", "/v1/models/{kind}/{version}"): OPERATORS | {"operator": 404},  # there is none
    ("POST", "/v1/models/{kind}/{version}/promote"): OPERATORS | {"operator": 404},
    ("POST", "/v1/models/{kind}/rollback"): OPERATORS | {"operator": 409},
    ("GET", "/v1/models/training"): OPERATORS,
    ("POST", "/v1/models/training/begin"): OPERATORS,
    ("POST", "/v1/models/training/stop"): OPERATORS,
    ("POST", "/v1/scenarios"): USERS,
    ("GET", "/v1/scenarios"): USERS,
    ("GET", "/v1/scenarios/{scenario}"): USERS,
    ("GET", "/v1/scenarios/{scenario}/content"): USERS,
    ("POST", "/v1/scenarios/{scenario}/tags"): REGISTERED,
    ("DELETE", "/v1/scenarios/{scenario}"): REGISTERED,
    ("GET", "/v1/simulations"): USERS,
    ("GET", "/v1/simulations/{run_id}"): USERS,
    ("PUT", "/v1/simulations/{run_id}"): REGISTERED,
    ("DELETE", "/v1/simulations/{run_id}"): REGISTERED,
    ("POST", "/v1/twin"): OPERATORS | {"host": 200, "other host": 403},  # of its boards
    ("GET", "/v1/twin/health_check"): ANYBODY,
    ("GET", "/v1/twin/data"): OPERATORS,
    ("POST", "/v1/twin/refresh"): OPERATORS,
    ("GET", "/v1/schedules"): USERS,
    ("GET", "/v1/schedules/{schedule_id}"): OWNERS,
    ("DELETE", "/v1/schedules/{schedule_id}"): OWNERS,
    ("GET", "/v1/events"): USERS,
    ("GET", "/v1/me"): ANYBODY,
    ("GET", "/v1/limits"): USERS,
    ("GET", "/v1/limits/users"): OPERATORS,
    ("GET", "/v1/usage"): USERS,
    ("GET", "/v1/groups"): USERS,
    ("POST", "/v1/groups"): OPERATORS,
    ("GET", "/v1/groups/{group_id}"): OWNERS,
    ("PATCH", "/v1/groups/{group_id}"): OPERATORS,
    ("DELETE", "/v1/groups/{group_id}"): OPERATORS,
    ("GET", "/v1/users"): OPERATORS,
    ("POST", "/v1/users"): OPERATORS,
    ("PATCH", "/v1/users/{user_id}"): OPERATORS,
    ("GET", "/v1/users/{user_id}/account"): OF_BOB,
    ("POST", "/v1/users/{user_id}/credits"): OPERATORS,
    ("GET", "/v1/users/{user_id}/webhook"): OF_BOB,
    ("PUT", "/v1/users/{user_id}/webhook"): OF_BOB,
    ("PUT", "/v1/users/{user_id}/password"): OF_BOB | {"bob": 403},  # the first is an operator's
    ("DELETE", "/v1/users/{user_id}/password"): OPERATORS,
    ("POST", "/api/users/login"): BY_PASSWORD,
    ("POST", "/api/users/token/refresh"): BY_PASSWORD,
    ("GET", "/api/benchmarks/status"): PUBLIC,
    ("GET", "/api/targets/status"): PUBLIC,
    ("GET", "/api/targets/hardware-types/all"): PUBLIC,
    ("GET", "/api/targets/engines/all"): PUBLIC,
    ("GET", "/api/benchmarks/config"): USERS,
    ("POST", "/api/benchmarks/run"): USERS,
    ("POST", "/api/benchmarks/train"): NEEDS_MORE,
    ("GET", "/api/benchmarks"): USERS,
    ("GET", "/api/benchmarks/public"): USERS,
    ("GET", "/api/benchmarks/fl"): NOT_BUILT,
    ("POST", "/api/benchmarks/fl/run"): NOT_BUILT,
    ("GET", "/api/benchmarks/fl/{experiment_id}/{part}"): NOT_BUILT,
    ("GET", "/api/benchmarks/{benchmark_id}"): OWNERS,
    ("GET", "/api/benchmarks/{benchmark_id}/status"): OWNERS,
    ("GET", "/api/benchmarks/{benchmark_id}/results"): EARLY,
    ("GET", "/api/benchmarks/{benchmark_id}/user-log"): EARLY,
    ("GET", "/api/benchmarks/{benchmark_id}/error-log"): EARLY,
    ("GET", "/api/benchmarks/{benchmark_id}/binary"): EARLY,
    ("GET", "/api/benchmarks/{benchmark_id}/trained-model"): EARLY,
    ("DELETE", "/api/benchmarks/{benchmark_id}"): OWNERS,
    ("GET", "/api/benchmarks/datasets"): USERS,
    ("POST", "/api/benchmarks/datasets/upload"): USERS,
    ("DELETE", "/api/benchmarks/datasets/{name}"): USERS,  # each one's own, by its name
    ("GET", "/api/models/list"): USERS,
    ("POST", "/api/models/download"): USERS,
    ("POST", "/api/models/convert"): NEEDS_MORE,
    ("POST", "/api/targets/hardware-types"): USERS,
    ("DELETE", "/api/targets/hardware-types/{name}"): USERS,
    ("POST", "/api/targets/engines"): USERS,
    ("DELETE", "/api/targets/engines/{name}"): USERS,
    ("GET", "/api/targets/hardware-instances"): USERS,
    ("POST", "/api/targets/hardware-instances"): USERS,
    ("DELETE", "/api/targets/hardware-instances/{inventory_id}"): OWNERS,
    ("GET", "/api/targets/hardware-instances/{inventory_id}/default-config"): OWNERS,
    ("GET", "/api/targets/engine-parameter-types"): USERS,
    ("GET", "/api/targets/engine-parameters/all"): USERS,
    ("GET", "/api/targets/engine-parameters"): USERS,
    ("POST", "/api/targets/engine-parameters"): USERS,
    ("GET", "/api/targets/engine-parameters/{key}"): USERS,
    ("PATCH", "/api/targets/engine-parameters/{key}"): REGISTERED,
    ("DELETE", "/api/targets/engine-parameters/{key}"): REGISTERED,
    ("POST", "/api/targets/engines/{engine}/parameters"): REGISTERED,
    ("POST", "/api/targets/engines/{engine}/parameters/{key}"): REGISTERED,
    ("DELETE", "/api/targets/engines/{engine}/parameters/{key}"): REGISTERED,
    ("GET", "/v1/tokens"): ANYBODY,
    ("POST", "/v1/tokens"): ANYBODY,
    ("DELETE", "/v1/tokens/{token_id}"): {"alice": 200, "operator": 200, "bob": 404, "host": 404},
    ("POST", "/v1/runs/{job}/progress"): OF_RUN,
    ("POST", "/v1/runs/{job}/exchange"): OF_SCHEDULES,
    ("PUT", "/upload/{job}/{filename}"): OF_RUN,
    ("POST", "/upload/{job}/"): OF_RUN,
    ("GET", "/download/{name}"): PUBLIC,
    ("GET", "/livez"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/metrics"): ANYBODY,
    ("GET", "/v1/version"): PUBLIC,
}


COLUMNS = {
    "no token": "none",
    "invalid token": "revoked",
    "attempt's token": "upload",
    "other attempt's token": "other upload",
    "owner": "alice",
    "other submitter": "bob",
    "viewer": "viewer",
    "operator's restricted token": "lesser",
    "board's host": "host",
    "other host": "other host",
    "operator": "operator",
}
"""The callers of `ROUTES` by their headings in the published table."""

UNDOCUMENTED = {
    ("GET", "/"),
    ("GET", "/docs"),
    ("GET", "/docs/{name}"),
    ("GET", "/openapi.json"),
    ("HEAD", "/download/{name}"),
}
"""Public, and not in the schema: the reference itself, and what Nomad's getter asks first."""


OWN_ACCOUNT = ("/v1/tokens", "/v1/tokens/{token_id}", "/v1/users/{user_id}/password")
"""Paths at which a viewer may change something: what is theirs."""


READ_BY_POST = ("/v1/results/comparison",)
"""Paths at which a POST changes nothing, so that a viewer may send it."""


def expected_of(method: str, path: str, rule: dict[str, int], caller: str) -> int:
    """The status of a caller's answer; 200 stands for any that does not depend on who asks."""
    if rule is PUBLIC:
        return 200
    for_viewers = method in ("GET", "HEAD") or path in (*OWN_ACCOUNT, *READ_BY_POST)
    if caller == "viewer" and not for_viewers:
        return 401 if rule.get("bob", 401) == 401 else 403
    if caller in ("lesser", "viewer"):
        # As another submitter, to whom nothing belongs that the path names.
        return rule.get("alice" if rule.get("alice") == 404 else "bob", 401)
    if caller == "other host":
        # A board's host may write what its tasks write.
        own = 403 if rule.get("upload") == 200 else rule.get("host", 401)
        return rule.get("other host", own)
    return rule.get(caller, 401)


_INTRODUCTION = """# Who may call which route

Each row is a route of the API, each column a kind of caller. `yes` means that the caller may use
the route; the answer may still be 404 or 409, depending on the state of the benchmark or file. A
number is the HTTP status with which the server refuses the caller:

- 401: the request has no valid token.
- 403: the token is valid, but its role or its user may not use the route.
- 404: the benchmark, file or other resource belongs to another user. The answer is the same as for
  one that does not exist, so that it reveals nothing.

The callers:

| column | who calls |
| --- | --- |
| no token | a client without a token |
| invalid token | a client with a malformed, unknown, expired or revoked token |
| attempt's token | a task, with the token that it got for uploading its results |
| other attempt's token | a task, with the token of another attempt or of one that has ended |
| owner | the submitter to whom the resource in the path belongs |
| other submitter | a submitter to whom it does not belong |
| viewer | a viewer, to whom nothing belongs; one may only read, and change the own account |
| operator's restricted token | an operator, with a token of the role `submitter` |
| board's host | a host whose account serves the board |
| other host | a host whose account serves other boards |
| operator | an operator |

A route whose path names no resource of a user shows each submitter their own data, and operators
the data of all users.

`make docs` writes this page from the rules in `tests/integration/test_api_auth.py`, which calls
every route as every caller; a route without a rule fails that test.
"""


def page() -> str:
    """Return the text of ``docs/reference/authorization.md``: the rules that are tested here."""
    lines = [
        *_INTRODUCTION.splitlines(),
        "",
        "| route | " + " | ".join(COLUMNS) + " |",
        "| --- |" + " --- |" * len(COLUMNS),
    ]
    for (method, path), rule in ROUTES.items():
        cells = []
        for caller in COLUMNS.values():
            if rule.get("alice") == 404 and caller in ("alice", "bob"):
                caller = {"alice": "bob", "bob": "alice"}[caller]
            status = expected_of(method, path, rule, caller)
            cells.append("yes" if status < 400 or status not in (401, 403, 404) else str(status))
        lines.append(f"| `{method} {path}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def without_a_rule(app: FastAPI) -> set[tuple[str, str]]:
    """Return method and path of the app's routes that `ROUTES` does not contain.

    Those of pages have rows of their own in ``test_pages.py``.
    """
    served = {
        (method, route.path_format)
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    documented = {
        (method.upper(), path)
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    served -= {("HEAD", path) for method, path in served if method == "GET"}
    served -= {(method, path) for method, path in served if f"{path}/".startswith("/ui/")}
    return (served | documented) - set(ROUTES) - UNDOCUMENTED


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        found.tokens |= {"bad": "ey_nobody-has-this-token", "expired": expired_token(found)}
        found.tokens["upload"] = UPLOAD_TOKEN
        found.tokens |= _more_tokens(found)
        for _, make in MAKERS:
            make(found)
        yield found


def _more_tokens(api: Api) -> dict[str, str]:
    """Tokens that are good for less than they look."""
    revoked = api.as_().post("/v1/tokens", json={}).json()
    assert api.as_().delete(f"/v1/tokens/{revoked['token_id']}").status_code == 204
    other, ended = api.submit(), api.submit()
    api.dispatched(other, "upload-token-2")
    api.dispatched(ended, "upload-token-3")
    assert api.as_().post(f"/v1/benchmarks/{ended}/cancel").status_code == 202
    api.ended(ended)
    boards = {"user_id": "other-host", "role": "host", "boards": ["rpi5-*"]}
    assert api.as_("operator").post("/v1/users", json=boards).status_code == 201
    tokens = {"other host": {"user_id": "other-host"}, "lesser": {"role": "submitter"}}
    made = {
        caller: api.as_("operator").post("/v1/tokens", json=body).json()["token"]
        for caller, body in tokens.items()
    }
    return made | {
        "revoked": revoked["token"],
        "other upload": "upload-token-2",
        "ended upload": "upload-token-3",
    }


def _soon(api: Api) -> str:
    return (api.clock.now() + timedelta(minutes=1)).isoformat()


def test_the_matrix_holds_every_route(api: Api) -> None:
    assert without_a_rule(api.app) == set()
    documented = {
        (method.upper(), path)
        for path, operations in api.app.openapi()["paths"].items()
        for method in operations
    }
    assert set(ROUTES) <= documented


@pytest.mark.parametrize("documented", [True, False])
def test_a_new_route_without_a_rule_is_found(api: Api, documented: bool) -> None:
    app = create_app(api.services)
    assert without_a_rule(app) == set()
    app.add_api_route("/v1/new", lambda: None, methods=["POST"], include_in_schema=documented)
    app.openapi_schema = None
    assert without_a_rule(app) == {("POST", "/v1/new")}


def test_routes_without_authentication_are_the_listed_ones(api: Api) -> None:
    public = {path for (_, path), rule in ROUTES.items() if rule is PUBLIC}
    assert public == {
        "/livez",
        "/readyz",
        "/v1/version",
        "/download/{name}",  # its name is a secret of its own
        "/api/benchmarks/status",
        "/api/targets/status",
        "/api/targets/hardware-types/all",
        "/api/targets/engines/all",
    } & {path for _, path in ROUTES}
    for path, operations in api.app.openapi()["paths"].items():
        for operation in operations.values():
            if path in public:
                assert operation["security"] == []


ALWAYS_THERE = {
    "target_uid": "rpi4b-0001-0001",
    "user_id": "bob",
    "job_id": "absent",
    "attempt": "1",
    "name": "absent",
    "filename": "x.bin",
    "role": "shadow",
    "kind": "run_time",
    "version": "1",
    "family": "rpi4b",
    "experiment_id": "absent",
    "part": "status",
}
"""What paths name beside the things of alice that `names` makes."""


def names(api: Api, path: str) -> dict[str, str]:
    """Fresh things of alice, so that no row of the matrix disturbs another: those of the path.

    Of each kind there is also one that stays, so that a list is not empty for who may see it.
    """
    needed = {field for _, field, _, _ in Formatter().parse(path) if field}
    needed |= NEEDED_BESIDE.get(path, set())
    known = dict(ALWAYS_THERE)
    for made, make in MAKERS:
        if needed & made or (path.startswith("/api/targets") and make is _registrations):
            known |= make(api)
            assert made <= set(known)
    return known


def _benchmark(api: Api) -> dict[str, str]:
    """A benchmark, and its attempt."""
    benchmark_id = api.submit()
    attempt = api.dispatched(benchmark_id)
    return {"benchmark_id": benchmark_id, "job": attempt.job_id.removeprefix("benchmark-")}


def _schedule(api: Api) -> dict[str, str]:
    body = api.as_().post("/v1/benchmarks", json=description(cron="0 0 * * *")).json()
    return {"schedule_id": body["schedule_id"]}


def _campaign(api: Api) -> dict[str, str]:
    campaign = {
        "matrix": {"target": ["rpi4b"]},
        "description": {"model": "model.onnx", "runtime": "ort", "benchmark_type": "TYPE1"},
    }
    return {"campaign_id": api.as_().post("/v1/campaigns", json=campaign).json()["campaign_id"]}


def _file(api: Api) -> dict[str, str]:
    return {"file_id": api.upload("own.onnx")["file_id"]}


def _token(api: Api) -> dict[str, str]:
    return {"token_id": api.as_().post("/v1/tokens", json={}).json()["token_id"]}


def _upload(api: Api) -> dict[str, str]:
    """An upload that has begun."""
    headers = {"Upload-Length": "5", "Upload-Metadata": "filename bmV0"}
    answer = api.as_().post("/v1/uploads", headers=headers)
    return {"upload_id": answer.headers["location"].rpartition("/")[2]}


def _scenario(api: Api) -> dict[str, str]:
    """A scenario and a simulation of it."""
    client, mark = api.as_(), secrets.token_hex(4)
    content = SCENARIO | {"seed": int(mark, 16)}
    made = client.post("/v1/scenarios", json=content).json()["sha256"]
    run = {"scenario": made, "policy": "default", "seed": 1}
    assert client.put(f"/v1/simulations/run-{mark}", json=run).status_code == 200
    return {"scenario": made, "run_id": f"run-{mark}"}


def _registrations(api: Api) -> dict[str, str]:
    """A board, an engine and its parameter that alice registered, and nothing beside them.

    A user may register only so many, fewer than the matrix has cells.
    """
    with api.store.write() as uow:
        for kind in RegistrationKind:
            for earlier in uow.registrations.of_kind(kind):
                uow.registrations.remove(kind, earlier.name)
    client, mark = api.as_(), secrets.token_hex(4)
    board = client.post(
        "/api/targets/hardware-instances",
        json={"hardware_type_id": "rpi4b", "engine_ids": ["ort"], "notes": ""},
    ).json()
    engine = {"name": f"e{mark}", "display_name": "x", "supported_file_extensions": []}
    client.post("/api/targets/engines", json=engine)
    client.post(
        f"/api/targets/engines/e{mark}/parameters",
        json={"key": f"k{mark}", "display_name": "x", "type": "string", "default_values": ""},
    )
    return {"inventory_id": board["inventory_id"], "engine": f"e{mark}", "key": f"k{mark}"}


def _lease(api: Api) -> dict[str, str]:
    """Of alice, on a board of its own."""
    lease_id = f"lease-{secrets.token_hex(4)}"
    now = api.clock.now()
    with api.store.write() as uow:
        uow.reservations.add_lease(
            Lease(
                lease_id=lease_id,
                target_uid=lease_id,
                since=now,
                until=now + timedelta(hours=1),
                reason="",
                user_id="alice",
            )
        )
    return {"lease_id": lease_id}


def _share(api: Api) -> dict[str, str]:
    body = {"benchmark_id": api.submit()}
    return {"share_id": api.as_("alice").post("/v1/shares", json=body).json()["share_id"]}


def _subscription(api: Api) -> dict[str, str]:
    """Alice's, by her webhook; the others have webhooks, too."""
    for user_id in ("alice", "bob", "operator"):
        hook = {"url": "https://example.org/hook"}
        made = api.as_(user_id).put(f"/v1/users/{user_id}/webhook", json=hook)
        assert made.status_code == 200, made.text
    (first, *_) = api.as_("alice").get("/v1/subscriptions").json()["items"]
    return {"subscription_id": first["subscription_id"]}


def _check(api: Api) -> dict[str, str]:
    made = api.as_("alice").post("/v1/checks", json=_CHECK)
    assert made.status_code == 202, made.text
    return {"check_id": made.json()["check_id"]}


def _alert(api: Api) -> dict[str, str]:
    """An alert of alice's that is confirmed, of a series of its own."""
    of = series.key(lineage=secrets.token_hex(4))
    change_id = f"alert-{secrets.token_hex(4)}"
    with api.store.write() as uow:
        uow.series.mark_due([of], api.clock.now())
        made = series.change(change_id=change_id, key=of, status=ChangeStatus.CONFIRMED)
        uow.series.add_change(made)
    return {"change_id": change_id, "series_id": of.series_id}


_CHECK: dict[str, object] = {
    "baseline": {"description": description(model_url="https://example.org/old.onnx")},
    "candidate": description(model_url="https://example.org/new.onnx"),
}


def _group(api: Api) -> dict[str, str]:
    """Alice's."""
    group_id = f"group-{secrets.token_hex(4)}"
    operator = api.as_("operator")
    assert operator.post("/v1/groups", json={"group_id": group_id}).status_code == 201
    assert operator.patch("/v1/users/alice", json={"group_id": group_id}).status_code == 200
    return {"group_id": group_id}


MAKERS: tuple[tuple[set[str], Callable[[Api], dict[str, str]]], ...] = (
    ({"benchmark_id", "job"}, _benchmark),
    ({"schedule_id"}, _schedule),
    ({"campaign_id"}, _campaign),
    ({"file_id"}, _file),
    ({"upload_id"}, _upload),
    ({"token_id"}, _token),
    ({"lease_id"}, _lease),
    ({"share_id"}, _share),
    ({"subscription_id"}, _subscription),
    ({"group_id"}, _group),
    ({"check_id"}, _check),
    ({"change_id", "series_id"}, _alert),
    ({"scenario", "run_id"}, _scenario),
    ({"inventory_id", "engine", "key"}, _registrations),
)
NEEDED_BESIDE = {
    "/v1/results": {"benchmark_id"},
    "/v1/shares": {"benchmark_id"},
    "/v1/subscriptions": {"subscription_id", "campaign_id"},
    "/v1/results/comparison": {"benchmark_id"},
    "/v1/files/names": {"file_id"},
}
"""What a request names in its query or its body."""


SCENARIO: dict[str, object] = {
    "name": "paper",
    "world": "nodes",
    "duration_s": 50,
    "nodes": {"nodes": [{"cpu_cores": 10}], "mix": {}},
}
NODE: dict[str, object] = {
    "id": "rpi4b-0001-0001",
    "cpu_cores": 4,
    "memory": 1024,
    "cpu_load": 3.62,
    "memory_load": 4.08,
}
BODIES: dict[str, dict[str, object]] = {
    "/v1/benchmarks": {"json": description(model_url="https://example.org/m.onnx")},
    "/v1/checks": {"json": _CHECK},
    "/v1/alerts/{change_id}/dismiss": {"json": {"reason": "known"}},
    "/v1/series/{series_id}/settings": {"json": {"alert_unconfirmed": True}},
    "/v1/campaigns": {
        "json": {
            "matrix": {"target": ["rpi4b"]},
            "description": {
                "model_url": "https://example.org/m.onnx",
                "runtime": "ort",
                "benchmark_type": "TYPE1",
            },
        }
    },
    "/v1/files": {"files": {"file": ("x.bin", b"x")}},  # not what /v1/files/names names
    "/v1/scenarios": {"json": SCENARIO},
    "/v1/scenarios/{scenario}/tags": {"json": {"add": ["x"]}},
    "/v1/simulations/{run_id}": {"json": {"scenario": "paper", "policy": "default", "seed": 1}},
    "/v1/twin": {"json": NODE},
    "/v1/groups": {"json": {"group_id": "new"}},
    "/v1/groups/{group_id}": {"json": {"share": 2}},
    "/v1/users": {"json": {"user_id": "new"}},
    "/v1/users/{user_id}": {"json": {"max_priority": 4}},
    "/v1/users/{user_id}/credits": {"json": {"credits": 1000}},
    "/v1/rates/{family}": {"json": {"rate": 1}},
    "/v1/boards/{target_uid}/lease": {"json": {"until": "2030-01-01T00:00:00Z"}},
    "/v1/benchmarks/{benchmark_id}/priority": {"json": {"user_priority": 3}},
    "/v1/policies/{role}": {"json": {"name": "native"}},
    "/v1/benchmarks/{benchmark_id}/policy": {"json": {"name": "native"}},
    "/v1/users/{user_id}/webhook": {"json": {"url": "https://example.org/hook"}},
    "/v1/users/{user_id}/password": {"json": {"email": "b@example.org", "password": "12345678"}},
    "/api/users/login": {"json": {"email": "nobody@example.org", "password": "wrong"}},
    "/api/users/token/refresh": {"json": {"refresh": "ey_nobody"}},
    "/api/benchmarks/run": {
        "data": {"device": "rpi4b", "engine": "ort"},
        "files": {"model": ("x.onnx", MODEL)},
    },
    "/api/benchmarks/train": {"data": {"device": "rpi4b", "engine": "ort"}},
    "/api/benchmarks/datasets/upload": {
        "data": {"hash": hashlib.sha256(b"x").hexdigest()},
        "files": {"dataset": ("x.npz", b"x")},
    },
    "/api/models/download": {"files": {"model": ("x.onnx", MODEL)}},
    "/api/targets/hardware-types": {"json": {"name": "rpi4b", "display_name": "x"}},
    "/api/targets/engines": {"json": {"name": "ort", "display_name": "x"}},
    "/api/targets/hardware-instances": {
        "json": {"hardware_type_id": "rpi4b", "engine_ids": ["ort"]}
    },
    "/api/targets/engine-parameters": {
        "json": {"key": "threads", "display_name": "x", "type": "string"}
    },
    "/api/targets/engine-parameters/{key}": {"json": {"display_name": "x", "type": "string"}},
    "/api/targets/engines/{engine}/parameters": {
        "json": {"key": "another", "display_name": "x", "type": "string"}
    },
    "/v1/tokens": {"json": {}},
    "/v1/runs/{job}/progress": {"json": {"progress": 1}},
    "/upload/{job}/{filename}": {"content": b"x"},
    "/upload/{job}/": {"files": {"file": ("x.bin", b"x")}},
    "/v1/benchmarks/{benchmark_id}/clone": {"json": {}},
    "/v1/benchmarks/{benchmark_id}/clone/check": {"json": {}},
    "/v1/benchmarks/check": {"json": description()},
    "/v1/inventory/boards": {
        "json": {
            "target_uid": "rpi5-0077-0001",
            "memory": {"ram": "4 GiB", "storage": "32 GiB"},
            "engines": {"ort": {"supported_types": ["TYPE1"]}},
        }
    },
    "/v1/files/names": {"json": {"name": "own.onnx", "sha256": hashlib.sha256(MODEL).hexdigest()}},
}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_each_route_answers_each_caller_as_its_rule_states(
    api: Api, method: str, path: str
) -> None:
    allowed = ROUTES[method, path]
    known = names(api, path)
    for caller in CALLERS:
        body = {} if method == "GET" else BODIES.get(path, {})
        params = None
        if path == "/v1/results":
            params = {"benchmark_id": known["benchmark_id"]}
        elif path == "/v1/series/points":
            params = {"series": "model.onnx"}
        elif path == "/v1/results/comparison":
            body = {"json": {"benchmark_ids": [known["benchmark_id"]]}}
        elif path == "/v1/shares" and method == "POST":
            body = {"json": {"benchmark_id": known["benchmark_id"]}}
        elif path == "/v1/subscriptions" and method == "POST":
            wanted = {"topic": "campaign", "about": known["campaign_id"], "channel": "webhook"}
            body = {"json": wanted}
        if path == "/v1/users" and method == "POST":
            body = {"json": {"user_id": f"new-{caller}"}}
        answer = api.as_(None if caller == "none" else caller).request(
            method,
            path.format(**known),
            params=params,
            **body,  # type: ignore[arg-type]
        )
        status, cell = answer.status_code, f"{method} {path} as {caller}: {answer.text[:300]}"
        if allowed is PUBLIC:
            assert status in (200, 404), cell
            continue
        if allowed is BY_PASSWORD and status == 429:
            continue  # so many callers in a row have failed to log in
        expected = expected_of(method, path, allowed, caller)
        if expected == 200:
            # Right or wrong by the state of the thing, but not by who asks.
            assert status < 300 or status in (404, 409), cell
            if status == 404:
                ends = ("{name}", "explanation", "logs", "engine-parameters")
                assert path.endswith(ends) or method == "DELETE", cell
        else:
            assert status == expected, cell
            assert method == "HEAD" or answer.json()["status"] == expected
            if expected == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer")


def test_nobody_without_a_token_has_a_body_read(api: Api) -> None:
    """The answer comes although the stated body never does, and never reaches a parser."""
    host, port = api.url.removeprefix("http://").split(":")
    for method, path in ROUTES:
        if method == "GET" or ROUTES[method, path] in (PUBLIC, BY_PASSWORD):
            continue
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n"
                "Content-Type: application/yaml\r\nConnection: close\r\n\r\n".encode()
            )
            assert connection.recv(12) == b"HTTP/1.1 401", f"{method} {path}"


@pytest.mark.parametrize(
    "path", [path for path in BODIES if "json" in BODIES[path] and "run" not in path]
)
def test_only_job_descriptions_may_be_yaml(api: Api, path: str) -> None:
    known = names(api, path)
    (method,) = {m for m, p in ROUTES if p == path and m in ("POST", "PUT", "PATCH")}
    answer = api.as_("operator").request(
        method,
        path.format(**known),
        content=b"{",
        headers={"Content-Type": "application/yaml"},
    )
    written_by_people = path.endswith(
        (
            *("/v1/benchmarks", "/v1/benchmarks/check", "/clone", "/clone/check"),
            *("/v1/campaigns", "/v1/checks"),
        )
    )
    assert answer.status_code == (422 if written_by_people else 415), answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/v1/benchmarks/{benchmark_id}",
        "/v1/benchmarks/{benchmark_id}/events",
        "/v1/benchmarks/{benchmark_id}/results",
        "/v1/files/{file_id}",
        "/v1/campaigns/{campaign_id}",
        "/v1/schedules/{schedule_id}",
        "/v1/checks/{check_id}",
        "/v1/alerts/{change_id}",
        "/v1/series/{series_id}",
    ],
)
def test_objects_of_others_and_missing_objects_get_the_same_answer(api: Api, path: str) -> None:
    ((_, name, _, _), *_) = Formatter().parse(path)
    assert name
    own = names(api, path)[name]
    foreign = api.as_("bob").get(path.format(**{name: own}))
    absent = api.as_("bob").get(path.format(**{name: "absent"}))
    assert foreign.status_code == absent.status_code == 404
    assert foreign.json()["detail"].replace(own, "absent") == absent.json()["detail"]


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer:x", "Basic YTpi", "bearer x y", "Bearer " + "x" * 600],
)
def test_a_malformed_header_is_no_token(api: Api, header: str) -> None:
    answer = api.as_(None).get("/v1/me", headers={"Authorization": header})
    assert answer.status_code == 401
    assert "send Authorization: Bearer TOKEN" in answer.json()["detail"]


def test_a_token_that_is_not_good_is_refused_with_the_reason_and_what_to_do(api: Api) -> None:
    def refusal(token: str) -> str:
        answer = api.as_(None).get("/v1/me", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert token not in answer.text
        return str(answer.json()["detail"])

    def made(**more: object) -> dict[str, str]:
        operator = api.as_("operator")
        found = operator.post("/v1/tokens", json={"user_id": "dora", **more}).json()
        assert isinstance(found, dict)
        return found

    assert api.as_("operator").post("/v1/users", json={"user_id": "dora"}).status_code == 201
    assert "malformed" in refusal("short")
    assert "no such token is known" in refusal("ey_of-another-server")
    revoked = made()
    api.as_("operator").delete(f"/v1/tokens/{revoked['token_id']}")
    assert "was revoked" in refusal(revoked["token"])
    expired = made(expires_at=(api.clock.now() + timedelta(seconds=60)).isoformat())
    disabled = made()
    api.clock.ahead += timedelta(seconds=61)
    try:
        assert "expired at " in refusal(expired["token"])
    finally:
        api.clock.ahead -= timedelta(seconds=61)
    api.as_("operator").patch("/v1/users/dora", json={"disabled": True})
    assert "account dora is disabled: ask an operator" in refusal(disabled["token"])


def test_a_disabled_account_is_out_at_once(api: Api) -> None:
    made = api.as_("operator").post("/v1/users", json={"user_id": "carol"})
    assert made.status_code == 201
    token = api.as_("operator").post("/v1/tokens", json={"user_id": "carol"}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert api.as_(None).get("/v1/me", headers=headers).json()["user"]["user_id"] == "carol"
    api.as_("operator").patch("/v1/users/carol", json={"disabled": True})
    assert api.as_(None).get("/v1/me", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("before", "token", "after", "role"),
    [
        ("operator", "operator", "submitter", "submitter"),
        ("operator", "operator", "host", "host"),
        ("operator", "submitter", "submitter", "submitter"),
        ("operator", "submitter", "host", None),
        ("operator", "host", "host", "host"),
        ("operator", "host", "submitter", None),
        ("submitter", "submitter", "operator", "submitter"),
    ],
)
def test_a_token_grants_no_more_than_its_user_has_now(
    api: Api, before: str, token: str, after: str, role: str | None
) -> None:
    """None: the token is for what its user may not do any more, so it is good for nothing."""
    asked = api.as_("operator")
    user_id = f"{before}-{token}-{after}"
    assert asked.post("/v1/users", json={"user_id": user_id, "role": before}).status_code == 201
    made = asked.post("/v1/tokens", json={"user_id": user_id, "role": token}).json()["token"]
    headers = {"Authorization": f"Bearer {made}"}
    assert api.as_(None).get("/v1/me", headers=headers).json()["role"] == token
    assert asked.patch(f"/v1/users/{user_id}", json={"role": after}).status_code == 200
    answer = api.as_(None).get("/v1/me", headers=headers)
    assert answer.status_code == (401 if role is None else 200)
    if role is not None:
        assert answer.json()["role"] == role
    if role != "operator":
        assert api.as_(None).get("/v1/users", headers=headers).status_code in (401, 403)


def test_accounts_cannot_extend_their_own_rights(api: Api) -> None:
    assert api.as_().post("/v1/tokens", json={"role": "operator"}).status_code == 403
    assert api.as_().post("/v1/tokens", json={"user_id": "operator"}).status_code == 404
    assert api.as_("host").post("/v1/tokens", json={"role": "submitter"}).status_code == 403
    assert api.as_().post("/v1/users", json={"user_id": "x"}).status_code == 403
    locked = api.as_("operator").patch("/v1/users/operator", json={"disabled": True})
    assert locked.status_code == 409
    assert api.as_("operator").post("/v1/users", json={"user_id": "bob"}).status_code == 409


def test_a_host_writes_results_of_its_own_boards_only(api: Api) -> None:
    operator = api.as_("operator")
    for pattern, status in (
        ("{uid}0", 403),
        ("rpi4b-0001", 403),
        ("rpi5*", 403),
        ("rpi4b-0001-*", 201),
        ("{uid}", 201),
        ("*", 201),
    ):
        attempt = api.dispatched(api.submit())
        boards = ["x", pattern.format(uid=attempt.target_uid)]
        job = attempt.job_id.removeprefix("benchmark-")
        user_id = f"host-{secrets.token_hex(4)}"
        made = operator.post(
            "/v1/users", json={"user_id": user_id, "role": "host", "boards": boards}
        )
        assert made.json()["boards"] == boards
        token = operator.post("/v1/tokens", json={"user_id": user_id}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        sent = api.as_(None).put(f"/upload/{job}/report.json", content=b"{}", headers=headers)
        assert sent.status_code == status, boards
        progress = api.as_(None).post(
            f"/v1/runs/{job}/progress", json={"progress": 1}, headers=headers
        )
        assert progress.status_code == (204 if status == 201 else 403)
        events = operator.get(f"/v1/benchmarks/{attempt.benchmark_id}/events").json()["items"]
        senders = [e["data"]["sender"] for e in events if e["kind"] == "result.received"]
        assert senders == ([user_id] if status == 201 else [])


def test_a_token_cannot_create_a_token_that_expires_later(api: Api) -> None:
    soon = _soon(api)
    short = api.as_().post("/v1/tokens", json={"expires_at": soon}).json()["token"]
    headers = {"Authorization": f"Bearer {short}"}
    made = api.as_(None).post("/v1/tokens", json={}, headers=headers)
    assert made.status_code == 201
    assert made.json()["expires_at"] is not None
    assert made.json()["expires_at"][:19] == soon[:19]
    late = (api.clock.now() + timedelta(days=1)).isoformat()
    refused = api.as_(None).post("/v1/tokens", json={"expires_at": late}, headers=headers)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/expires_at"


def test_a_lesser_token_does_not_revoke_a_greater_one(api: Api) -> None:
    operator = api.as_("operator")
    lesser = operator.post("/v1/tokens", json={"role": "submitter"}).json()
    greater = operator.post("/v1/tokens", json={"role": "operator"}).json()
    headers = {"Authorization": f"Bearer {lesser['token']}"}
    path = f"/v1/tokens/{greater['token_id']}"
    assert api.as_(None).delete(path, headers=headers).status_code == 403
    own = f"/v1/tokens/{lesser['token_id']}"
    assert api.as_(None).delete(own, headers=headers).status_code == 204
    assert operator.delete(path).status_code == 204


def test_a_token_is_stored_only_as_its_hash(api: Api) -> None:
    token = api.as_().post("/v1/tokens", json={"label": "x"}).json()["token"]
    assert token.startswith("ey_")
    assert len(token) == 3 + 43
    stored = stored_text(database_in(api.services.settings.data_dir))
    assert "token-alice" in stored
    assert token not in stored
