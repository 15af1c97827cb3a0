"""Credentials that were made with credentials end with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.scheduler.engine import credentials
from tests.builders.api import Api, running

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("credentials")) as found:
        yield found


_number = iter(range(1_000))


class Credential:
    """A token, used through HTTP alone."""

    def __init__(self, api: Api, token: str, token_id: str = "") -> None:
        self._api, self.token, self.token_id = api, token, token_id

    def call(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self._api.as_(None).request(method, path, headers=headers, **given)

    def make(self, **fields: object) -> Credential:
        answer = self.call("POST", "/v1/tokens", json=fields)
        assert answer.status_code == 201, answer.text
        return Credential(self._api, answer.json()["token"], answer.json()["token_id"])

    def revoke(self, other: Credential, **params: str) -> httpx.Response:
        return self.call("DELETE", f"/v1/tokens/{other.token_id}", params=params)

    @property
    def good(self) -> bool:
        status = self.call("GET", "/v1/me").status_code
        assert status in (200, 401)
        return status == 200


@pytest.fixture
def admin(api: Api) -> Credential:
    """Token of an operator's account of its own, which the lab's operator made."""
    user_id = f"op{next(_number)}"
    lab = Credential(api, api.tokens["operator"])
    made = lab.call("POST", "/v1/users", json={"user_id": user_id, "role": "operator"})
    assert made.status_code == 201, made.text
    return lab.make(user_id=user_id)


@pytest.fixture
def user(admin: Credential) -> str:
    """Account of a submitter, with a password that nobody's token made."""
    user_id = f"user{next(_number)}"
    assert admin.call("POST", "/v1/users", json={"user_id": user_id}).status_code == 201
    return user_id


def log_in(api: Api, user_id: str, password: str = PASSWORD) -> Credential | None:
    body = {"email": f"{user_id}@example.org", "password": password}
    answer = api.as_(None).post("/api/users/login", json=body)
    if answer.status_code != 200:
        return None
    session = Credential(api, answer.json()["access_token"])
    listed = session.call("GET", "/v1/tokens").json()["items"]
    session.token_id = [each["token_id"] for each in listed if each["refreshes"]][-1]
    return session


def set_password(by: Credential, user_id: str, password: str = PASSWORD, **more: str) -> None:
    body = {"email": f"{user_id}@example.org", "password": password, **more}
    answer = by.call("PUT", f"/v1/users/{user_id}/password", json=body)
    assert answer.status_code == 204, answer.text


def test_with_a_token_ends_what_it_made_and_what_that_made(admin: Credential, user: str) -> None:
    own = admin.make(user_id=user)
    leaked, other = own.make(label="leaked"), own.make(label="other")
    minted = leaked.make()
    again = minted.make()
    assert own.revoke(leaked).status_code == 204
    assert [each.good for each in (leaked, minted, again)] == [False, False, False]
    assert own.good
    assert other.good


def test_tokens_for_other_accounts_end_with_the_operators_that_made_them(
    admin: Credential, user: str
) -> None:
    leaked = admin.make()
    minted = leaked.make(user_id=user)
    again = minted.make()
    assert admin.revoke(leaked).status_code == 204
    assert not minted.good
    assert not again.good


@pytest.mark.parametrize("role", ["submitter", "operator"])
def test_a_minted_token_does_not_revoke_its_owner_s(
    admin: Credential, user: str, role: str
) -> None:
    own = admin.make(user_id=user) if role == "submitter" else admin
    leaked, other = own.make(), own.make()
    minted = leaked.make()
    for target in (own, leaked, other):
        refused = minted.revoke(target)
        assert refused.status_code == 403, refused.text
        assert refused.json()["detail"]
    assert leaked.revoke(own).status_code == 403
    assert leaked.revoke(other).status_code == 403
    assert all(each.good for each in (own, leaked, other, minted))
    assert minted.revoke(minted).status_code == 204  # gives itself up
    assert own.revoke(leaked).status_code == 204
    assert own.revoke(other).status_code == 204


def test_the_token_that_an_operator_gave_revokes_others_that_operators_gave(
    admin: Credential, user: str
) -> None:
    laptop, lost = admin.make(user_id=user), admin.make(user_id=user)
    assert laptop.revoke(lost).status_code == 204
    assert laptop.good


def test_tokens_that_were_made_in_a_session_end_with_it(
    api: Api, admin: Credential, user: str
) -> None:
    set_password(admin, user)
    session, other = log_in(api, user), log_in(api, user)
    assert session is not None
    assert other is not None
    minted, kept = session.make(), other.make()
    again = minted.make()
    assert minted.revoke(session).status_code == 403
    assert session.revoke(session).status_code == 204
    assert [each.good for each in (session, minted, again)] == [False, False, False]
    assert other.good
    assert kept.good


@pytest.mark.parametrize("change", ["own", "operator", "removed"])
def test_a_changed_password_ends_tokens_that_sessions_made(
    api: Api, admin: Credential, user: str, change: str
) -> None:
    set_password(admin, user)
    session, given = log_in(api, user), admin.make(user_id=user)
    assert session is not None
    minted = session.make()
    again = minted.make()
    if change == "own":
        set_password(session, user, "another password", current_password=PASSWORD)
    elif change == "operator":
        set_password(admin, user, "another password")
    else:
        assert admin.call("DELETE", f"/v1/users/{user}/password").status_code == 204
    assert [each.good for each in (session, minted, again)] == [False, False, False]
    assert given.good, "a token that no session made stays"
    assert (log_in(api, user, "another password") is None) == (change == "removed")


def test_passwords_and_webhooks_end_with_the_token_that_set_them(
    api: Api, admin: Credential, user: str
) -> None:
    leaked = admin.make()
    set_password(leaked, user)
    session = log_in(api, user)
    assert session is not None
    minted = session.make()
    hook = f"/v1/users/{user}/webhook"
    answer = leaked.call("PUT", hook, json={"url": "https://ci.example.org/edgeyard"})
    assert answer.status_code == 200, answer.text
    assert admin.revoke(leaked).status_code == 204
    assert log_in(api, user) is None
    assert [each.good for each in (session, minted)] == [False, False]
    assert admin.call("GET", hook).json()["url"] is None


def test_who_states_the_password_that_they_have_keeps_whose_it_is(
    api: Api, admin: Credential, user: str
) -> None:
    leaked = admin.make()
    set_password(leaked, user)
    session = log_in(api, user)
    assert session is not None
    set_password(session, user, "another password", current_password=PASSWORD)
    assert log_in(api, user, "another password") is not None
    assert admin.revoke(leaked).status_code == 204
    assert log_in(api, user, "another password") is None


def test_an_operator_replaces_a_token_and_keeps_what_it_made(
    api: Api, admin: Credential, user: str
) -> None:
    new, given = admin.make(), admin.make(user_id=user)
    set_password(admin, user)
    assert new.revoke(admin, keep_made="true").status_code == 403
    assert given.revoke(given, keep_made="true").status_code == 403
    assert new.revoke(new, keep_made="true").status_code == 403
    assert admin.revoke(admin, keep_made="true").status_code == 204
    assert [each.good for each in (admin, new, given)] == [False, True, True]
    assert log_in(api, user) is not None
    assert new.revoke(given).status_code == 204


def test_a_token_that_is_revoked_while_it_makes_another_makes_none(
    api: Api, admin: Credential, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = admin.make(user_id=user)
    assert own.good  # the server knows it without asking the store for a second
    context: Context = api.app.state.context
    monkeypatch.setattr(context.authenticator, "forget", lambda: None)
    now = context.services.clock.now()
    context.services.store.transact(lambda uow: credentials.revoke(uow, [own.token_id], now))
    for path, body in (
        ("/v1/tokens", {}),
        (f"/v1/users/{user}/webhook", {"url": "https://ci.example.org/"}),
    ):
        method = "POST" if path == "/v1/tokens" else "PUT"
        assert own.call(method, path, json=body).status_code == 401
    assert own.call("DELETE", f"/v1/tokens/{own.token_id}").status_code == 401


def test_tokens_are_listed_as_a_tree(
    api: Api, admin: Credential, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = admin.make(user_id=user)
    child = own.make()
    second = own.make()
    grandchild = child.make()
    listed = own.call("GET", "/v1/tokens").json()["items"]
    assert {each["token_id"]: each.get("made_by") for each in listed} == {
        own.token_id: None,  # an operator's token made it, which the user does not see
        child.token_id: own.token_id,
        second.token_id: own.token_id,
        grandchild.token_id: child.token_id,
    }
    everybodys = {
        each["token_id"]: each.get("made_by")
        for each in admin.call("GET", "/v1/tokens").json()["items"]
    }
    assert everybodys[own.token_id] == admin.token_id

    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", own.token)
    shown = CliRunner().invoke(app, ["tokens", "list"])
    assert shown.exit_code == 0, shown.output
    ids = [line.split(user)[0].rstrip() for line in shown.stdout.splitlines()[1:]]
    assert ids == [
        own.token_id,
        f"└ {child.token_id}",
        f"  └ {grandchild.token_id}",
        f"└ {second.token_id}",
    ]
