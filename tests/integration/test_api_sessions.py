"""Log in with an e-mail address and a password, as the platform's client does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.routes.platform import sessions
from edgeyard.errors import TooManyLogins
from tests.builders.api import Api, running

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("sessions")) as found:
        yield found


_number = iter(range(1_000))


@pytest.fixture
def user(api: Api) -> str:
    """A new account with a password; its id, of which the address is made."""
    user_id = f"user{next(_number)}"
    body = {"user_id": user_id, "email": f"{user_id}@Example.org", "password": PASSWORD}
    made = api.as_("operator").post("/v1/users", json=body)
    assert made.status_code == 201, made.text
    assert "password" not in made.text
    return user_id


def log_in(api: Api, user_id: str, password: str = PASSWORD) -> httpx.Response:
    body = {"email": f"{user_id}@example.org", "password": password}
    return api.as_(None).post("/api/users/login", json=body)


def tokens(api: Api, user_id: str) -> dict[str, str]:
    answer = log_in(api, user_id)
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


def refresh(api: Api, token: object) -> httpx.Response:
    return api.as_(None).post("/api/users/token/refresh", json={"refresh": token})


def me(api: Api, token: str) -> httpx.Response:
    return api.as_(None).get("/v1/me", headers={"Authorization": f"Bearer {token}"})


def test_a_log_in_gives_a_token_that_is_good_at_v1(api: Api, user: str) -> None:
    made = tokens(api, user)
    assert me(api, made["access_token"]).json()["user"]["user_id"] == user


def test_a_refresh_token_is_good_for_refreshing_alone_and_again(api: Api, user: str) -> None:
    made = tokens(api, user)
    assert me(api, made["refresh_token"]).status_code == 401
    for _ in range(2):
        answer = refresh(api, made["refresh_token"])
        assert answer.status_code == 200, answer.text
        assert me(api, answer.json()["access"]).status_code == 200
    assert refresh(api, made["access_token"]).status_code == 401


@pytest.mark.parametrize("token", [None, "", "ey_unknown", 7, ["x"], "x" * 5000, "\x00"])
def test_what_is_no_refresh_token_is_refused_with_a_sentence(api: Api, token: object) -> None:
    answer = refresh(api, token)
    assert answer.status_code == 401 or (answer.status_code, token) == (422, "\x00")
    assert "log in" in answer.json()["error"] or token == "\x00"


def test_an_access_token_expires_and_a_refresh_token_later(api: Api, user: str) -> None:
    made = tokens(api, user)
    api.clock.ahead += timedelta(seconds=1801)
    try:
        refused = me(api, made["access_token"])
        assert refused.status_code == 401
        assert "the access token expired at " in refused.json()["detail"]
        assert "POST /api/users/token/refresh" in refused.json()["detail"]
        assert refresh(api, made["refresh_token"]).status_code == 200
        api.clock.ahead += timedelta(days=30)
        assert refresh(api, made["refresh_token"]).status_code == 401
    finally:
        api.clock.ahead -= timedelta(days=30, seconds=1801)


def test_expired_sessions_are_forgotten_at_the_next_log_in(api: Api, user: str) -> None:
    tokens(api, user)
    api.clock.ahead += timedelta(days=31)
    try:
        tokens(api, user)
        with api.store.read() as uow:
            assert len(uow.accounts.tokens(user)) == 2
    finally:
        api.clock.ahead -= timedelta(days=31)


def test_the_oldest_unused_session_ends_when_there_are_too_many(
    api: Api, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_TOKENS", 6)
    first, second, _ = tokens(api, user), tokens(api, user), tokens(api, user)
    api.clock.ahead += timedelta(seconds=1801)  # access tokens are over, refresh tokens are not
    try:
        newest = [tokens(api, user), tokens(api, user)]
        assert refresh(api, first["refresh_token"]).status_code == 401
        for each in newest:
            assert me(api, each["access_token"]).status_code == 200
        assert refresh(api, second["refresh_token"]).status_code == 200
    finally:
        api.clock.ahead -= timedelta(seconds=1801)


def test_sessions_in_use_are_not_ended_by_another_log_in(
    api: Api, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_TOKENS", 4)
    first, second = tokens(api, user), tokens(api, user)
    refused = log_in(api, user)
    assert refused.status_code == 429
    assert refused.json()["limit"]["name"] == "open_sessions"
    for each in (first, second):
        assert me(api, each["access_token"]).status_code == 200


def test_revoking_the_refresh_token_ends_its_session_and_no_other(api: Api, user: str) -> None:
    first, second = tokens(api, user), tokens(api, user)
    listed = api.as_("operator").get("/v1/tokens", params={"user_id": user}).json()["items"]
    session = next(each for each in listed if each["refreshes"])
    assert first["access_token"] not in str(listed)
    gone = api.as_("operator").delete(f"/v1/tokens/{session['token_id']}")
    assert gone.status_code == 204
    statuses = [
        (me(api, each["access_token"]).status_code, refresh(api, each["refresh_token"]).status_code)
        for each in (first, second)
    ]
    assert sorted(statuses) == [(200, 200), (401, 401)]


@pytest.mark.parametrize("body", [{}, {"email": 1, "password": 2}, {"email": "a@b.c"}, {"x": "y"}])
def test_a_log_in_without_its_fields_says_what_is_needed(api: Api, body: dict[str, Any]) -> None:
    answer = api.as_(None).post("/api/users/login", json=body)
    assert answer.status_code == 422
    assert "email and password" in answer.json()["error"]


def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(api: Api, user: str) -> None:
    wrong, unknown = log_in(api, user, "wrong"), log_in(api, f"not-{user}", "wrong")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()
    assert wrong.json()["error"] == "the e-mail address or the password is wrong"


def test_an_unknown_address_costs_as_much_as_a_known_one(api: Api, user: str) -> None:
    """A hash is computed for both: the best of a few tries differs by less than the hash."""

    def best_s(user_id: str) -> float:
        spans = []
        for _ in range(4):
            begun = time.perf_counter()
            assert log_in(api, user_id, "wrong").status_code == 401
            spans.append(time.perf_counter() - begun)
        return min(spans)

    assert best_s(f"not-{user}") > 0.4 * best_s(user)


def test_after_ten_failures_the_account_is_locked_for_that_address(api: Api, user: str) -> None:
    made = tokens(api, user)
    for _ in range(10):
        assert log_in(api, user, "wrong").status_code == 401
    for password in ("wrong", PASSWORD):
        answer = log_in(api, user, password)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 300
        assert "try again in" in answer.json()["error"]
    assert me(api, made["access_token"]).status_code == 200  # who is in stays in


def test_an_account_logs_in_only_so_often_and_others_are_not_affected(api: Api, user: str) -> None:
    context: Context = api.app.state.context
    for _ in range(59):
        context.passwords.limits.succeeded(f"{user}@example.org", "192.0.2.1")
    assert log_in(api, user).status_code == 200
    refused = log_in(api, user)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 300
    assert refused.json()["limit"]["name"] == "login_account_successes"
    assert log_in(api, f"{user}-unknown").status_code == 401
    api.clock.ahead += timedelta(seconds=301)
    try:
        assert log_in(api, user).status_code == 200
    finally:
        api.clock.ahead -= timedelta(seconds=301)


def test_a_disabled_account_neither_logs_in_nor_refreshes(api: Api, user: str) -> None:
    made = tokens(api, user)
    changed = api.as_("operator").patch(f"/v1/users/{user}", json={"disabled": True})
    assert changed.status_code == 200
    assert log_in(api, user).status_code == 401
    assert refresh(api, made["refresh_token"]).status_code == 401
    assert me(api, made["access_token"]).status_code == 401


def test_another_password_ends_all_sessions(api: Api, user: str) -> None:
    made = tokens(api, user)
    own = {"Authorization": f"Bearer {made['access_token']}"}
    path, new = f"/v1/users/{user}/password", "another password"
    without = api.as_(None).put(path, json={"password": new}, headers=own)
    assert without.status_code == 403
    assert "current_password" in without.json()["detail"]
    body = {"password": new, "current_password": PASSWORD}
    assert api.as_(None).put(path, json=body, headers=own).status_code == 204
    assert me(api, made["access_token"]).status_code == 401
    assert refresh(api, made["refresh_token"]).status_code == 401
    assert log_in(api, user).status_code == 401
    assert log_in(api, user, new).status_code == 200
    assert api.as_("operator").delete(path).status_code == 204
    assert log_in(api, user, new).status_code == 401
    assert api.as_("operator").delete(path).status_code == 404


def test_a_token_that_expires_sets_no_password_that_outlives_it(api: Api, user: str) -> None:
    soon = (api.clock.now() + timedelta(seconds=60)).isoformat()
    body = {"role": "operator", "expires_at": soon}
    short = api.as_("operator").post("/v1/tokens", json=body).json()["token"]
    stranger = api.as_(None)
    headers = {"Authorization": f"Bearer {short}"}
    path = f"/v1/users/{user}/password"
    for wanted in ({}, {"email": "other@example.org"}, {"current_password": "not this one"}):
        body = {"password": "another password", **wanted}
        refused = stranger.put(path, json=body, headers=headers)
        assert refused.status_code == 403, refused.text
    assert (
        "expires"
        in stranger.put(path, json={"password": "another password"}, headers=headers).json()[
            "detail"
        ]
    )
    own = {"email": "own@example.org", "password": "another password"}
    me_id = stranger.get("/v1/me", headers=headers).json()["user"]["user_id"]
    refused = stranger.put(f"/v1/users/{me_id}/password", json=own, headers=headers)
    assert refused.status_code == 403
    made = {"user_id": f"{user}-2", "role": "operator", **own}
    assert stranger.post("/v1/users", json=made, headers=headers).status_code == 403
    assert log_in(api, user).status_code == 200

    known = {"password": "another password", "current_password": PASSWORD}
    assert stranger.put(path, json=known, headers=headers).status_code == 204
    assert log_in(api, user, "another password").status_code == 200


def test_a_token_that_expires_makes_no_operator_that_outlives_it(api: Api, user: str) -> None:
    soon = (api.clock.now() + timedelta(seconds=60)).isoformat()
    body = {"role": "operator", "expires_at": soon}
    short = api.as_("operator").post("/v1/tokens", json=body).json()["token"]
    headers, stranger = {"Authorization": f"Bearer {short}"}, api.as_(None)
    role = {"role": "operator"}
    raised = stranger.patch(f"/v1/users/{user}", json=role, headers=headers)
    assert raised.status_code == 403, raised.text
    assert "does not expire" in raised.json()["detail"]
    made = stranger.post("/v1/users", json={"user_id": f"{user}-3", **role}, headers=headers)
    assert made.status_code == 403
    demoted = stranger.patch(f"/v1/users/{user}", json={"max_priority": 3}, headers=headers)
    assert demoted.status_code == 200  # what does not outlive it is still allowed
    assert api.as_("operator").patch(f"/v1/users/{user}", json=role).status_code == 200


@pytest.mark.parametrize(
    ("role", "before", "change"),
    [
        ("operator", {"disabled": True}, {"disabled": False}),
        ("host", {"boards": ["rpi4b-1"]}, {"boards": ["rpi4b-1", "rpi4b-2"]}),
        ("host", {"boards": ["rpi4b-1"]}, {"boards": ["*"]}),
        ("host", {"boards": ["rpi4b-1"], "disabled": True}, {"disabled": False}),
        ("host", {"boards": ["rpi4b-1"], "role": "submitter"}, {"role": "host"}),
    ],
)
def test_a_token_that_expires_gives_no_account_rights_that_outlive_it(
    api: Api, role: str, before: dict[str, Any], change: dict[str, Any]
) -> None:
    user_id, operator = f"user{next(_number)}", api.as_("operator")
    path = f"/v1/users/{user_id}"
    assert operator.post("/v1/users", json={"user_id": user_id, "role": role}).status_code == 201
    assert operator.patch(path, json=before).status_code == 200
    soon = (api.clock.now() + timedelta(seconds=60)).isoformat()
    body = {"role": "operator", "expires_at": soon}
    short = operator.post("/v1/tokens", json=body).json()["token"]
    headers, stranger = {"Authorization": f"Bearer {short}"}, api.as_(None)
    refused = stranger.patch(path, json=change, headers=headers)
    assert refused.status_code == 403, refused.text
    assert "does not expire" in refused.json()["detail"]
    for fewer in ("boards", "disabled"):
        less: dict[str, object] = {fewer: [] if fewer == "boards" else True}
        assert stranger.patch(path, json=less, headers=headers).status_code == 200
    assert operator.patch(path, json=change).status_code == 200


def test_a_token_that_expires_sets_no_webhook_that_outlives_it(api: Api, user: str) -> None:
    path, url = f"/v1/users/{user}/webhook", {"url": "https://ci.example.org/edgeyard"}
    soon = (api.clock.now() + timedelta(seconds=60)).isoformat()
    for who, whose in (("alice", "/v1/users/alice/webhook"), ("operator", path)):
        made = api.as_(who).post("/v1/tokens", json={"expires_at": soon})
        short = {"Authorization": f"Bearer {made.json()['token']}"}
        refused = api.as_(None).put(whose, json=url, headers=short)
        assert refused.status_code == 403, refused.text
        assert "does not expire" in refused.json()["detail"]
        assert api.as_(None).put(whose, json={"url": None}, headers=short).status_code == 200
    assert api.as_("operator").put(path, json=url).status_code == 200


def test_strangers_can_not_lock_a_user_out_of_addresses_that_are_known(api: Api, user: str) -> None:
    email, limits = f"{user}@example.org", api.app.state.context.passwords.limits
    assert log_in(api, user).status_code == 200
    for number in range(200):
        limits.failed(email, f"2001:db8::{number:x}")
    limits.check(email, "127.0.0.1")  # the address of the log-in above
    assert log_in(api, user).status_code == 200
    with pytest.raises(TooManyLogins):
        limits.check(email, "2001:db8::ffff")


WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
"""To full-width forms."""


@pytest.mark.parametrize(
    ("before", "domain"),
    [
        (lambda user: user.translate(WIDE), "example.org"),
        (lambda user: f"{user[0].upper()}{user[1:]}", "EXAMPLE.ORG"),
        (str, "example.org".translate(WIDE)),
        (str, "exam\u200bple.org"),
        (str, "example\u3002org"),
        (str, "example.org."),
        (lambda user: f"{user[0]}\u200b{user[1:]}", "example.org"),
        (lambda user: f"{user}\u00ad", "example.org"),
        (lambda user: f"{user}\ufe0f", "example.org"),
        (lambda user: f"{user}\u034f", "example.org"),
        (lambda user: f"\ufeff{user}", "example.org"),
        (lambda user: f"{user}\u2060", "example.org"),
        (lambda user: f"{user}\u202e", "example.org"),
        (lambda user: f'"{user}"', "example.org"),
        (lambda user: f"\uff02{user}\uff02", "example.org"),
        (lambda user: f"{user}(mail)", "example.org"),
        (lambda user: f"{user[0]}\\{user[1:]}", "example.org"),
    ],
)
def test_no_account_has_an_address_that_looks_like_another_s(
    api: Api, user: str, before: Callable[[str], str], domain: str
) -> None:
    email = f"{before(user)}@{domain}"
    body = {"user_id": f"{user}t", "email": email, "password": PASSWORD}
    answer = api.as_("operator").post("/v1/users", json=body)
    assert answer.status_code in (409, 422), answer.text
    assert api.as_("operator").patch(f"/v1/users/{user}t", json={}).status_code == 404


@pytest.mark.parametrize("domain", ["lab", "lab.local", "exämple.org", "10.0.0.1"])
def test_addresses_of_a_lab_and_of_other_scripts_are_taken(
    api: Api, user: str, domain: str
) -> None:
    for email in (f"{user}+ci@{domain}", f"ü{user}@{domain}"):
        body = {"email": email, "password": PASSWORD}
        path = f"/v1/users/{user}/password"
        assert api.as_("operator").put(path, json=body).status_code == 204
        answer = api.as_(None).post("/api/users/login", json={**body, "email": email.upper()})
        assert answer.status_code == 200, answer.text


def test_no_two_accounts_have_the_same_address(api: Api, user: str) -> None:
    body = {"user_id": f"{user}b", "email": f"{user}@EXAMPLE.org", "password": PASSWORD}
    answer = api.as_("operator").post("/v1/users", json=body)
    assert answer.status_code == 409
    assert api.as_("operator").patch(f"/v1/users/{user}b", json={}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"email": "none"}, "e-mail"),
        ({"password": "short"}, "8"),
        ({"email": None}, "no email to log in with"),
    ],
)
def test_an_address_that_is_none_or_a_short_password_is_refused(
    api: Api, changes: dict[str, object], expected: str
) -> None:
    body = {"user_id": "nobody", "email": "n@example.org", "password": PASSWORD} | changes
    answer = api.as_("operator").post("/v1/users", json=body)
    assert answer.status_code == 422
    assert expected in answer.text


def test_the_command_line_makes_and_changes_accounts_with_passwords(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["operator"])

    shown = ""

    def run(*words: str, typed: str = "") -> int:
        nonlocal shown
        result = CliRunner().invoke(app, list(words), input=typed, catch_exceptions=False)
        shown += result.output
        return result.exit_code

    who = ("users", "create", "cli-user")
    password = f"{PASSWORD}\n"
    assert run(*who, "--password-stdin", typed=password) == 1
    assert "--email: is missing" in shown.replace("\n", " ")
    assert run(*who, "--email", "cli-user@example.org", "--password-stdin", typed=password) == 0
    assert log_in(api, "cli-user").status_code == 200
    change = ("users", "password", "cli-user")
    assert run(*change, "--password-stdin", typed="another password\n") == 0
    assert log_in(api, "cli-user", "another password").status_code == 200
    assert run(*change, "--remove") == 0
    assert log_in(api, "cli-user", "another password").status_code == 401
    assert run(*change) == 1
    assert run("users", "update", "cli-user", "--email", "cli-user@example.org") == 0
    assert log_in(api, "cli-user", "another password").status_code == 401
    with api.store.read() as uow:
        assert uow.accounts.login("cli-user").email == "cli-user@example.org"
    assert PASSWORD not in shown


def test_an_address_needs_no_password_and_opens_no_session(api: Api) -> None:
    operator = api.as_("operator")
    first, second = (f"user{next(_number)}" for _ in range(2))
    made = operator.post("/v1/users", json={"user_id": first, "email": f"{first}@Example.org"})
    assert made.status_code == 201, made.text
    assert operator.post("/v1/users", json={"user_id": second}).status_code == 201
    email = {"email": f"{second}@example.org"}
    assert operator.patch(f"/v1/users/{second}", json=email).status_code == 200
    for each in (first, second):
        with api.store.read() as uow:
            assert uow.accounts.login(each).email == f"{each}@example.org"
        for password in ("", "guessed it"):
            assert log_in(api, each, password).status_code in (400, 401)
    taken = operator.patch(f"/v1/users/{first}", json=email)
    assert (taken.status_code, "another account has" in taken.text) == (409, True)
    assert api.as_("alice").patch("/v1/users/alice", json=email).status_code == 403
    alone = {"user_id": "dave", "password": "12345678"}
    assert "no email to log in with" in operator.post("/v1/users", json=alone).text
    acts = operator.get("/v1/events?kind=user.changed").json()["items"]
    assert email in [each["after"] for each in acts]


def test_an_address_that_changes_keeps_the_password(api: Api, user: str) -> None:
    changed = {"email": f"new-{user}@example.org"}
    assert api.as_("operator").patch(f"/v1/users/{user}", json=changed).status_code == 200
    assert log_in(api, f"new-{user}").status_code == 200
    assert log_in(api, user).status_code == 401


def test_a_token_that_expires_sets_no_address(api: Api, user: str) -> None:
    """A log-in of an operator has such tokens: what it does ends with it."""
    operator = f"user{next(_number)}"
    body = {
        "user_id": operator,
        "role": "operator",
        "email": f"{operator}@example.org",
        "password": PASSWORD,
    }
    assert api.as_("operator").post("/v1/users", json=body).status_code == 201
    bearer = {"Authorization": f"Bearer {tokens(api, operator)['access_token']}"}
    for method, path, sent in (
        ("PATCH", f"/v1/users/{user}", {"email": "evil@example.org"}),
        ("POST", "/v1/users", {"user_id": "evil", "email": "evil@example.org"}),
    ):
        answer = api.as_(None).request(method, path, json=sent, headers=bearer)
        assert answer.status_code == 403, answer.text
        assert "would outlive it" in answer.text
