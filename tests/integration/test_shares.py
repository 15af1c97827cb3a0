"""Links that show one thing without signing in: unguessable, with an end, revocable, listed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from typer.testing import CliRunner

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from tests.builders.api import Api, running
from tests.builders.measured import Measured, store_measured
from tests.builders.pages import HOSTILE, Browser, Parts, as_

ABSENT = "/ui/shared/absent"


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("shares")) as found:
        found.upload()
        yield found


def shared(api: Api, who: str = "alice", **body: object) -> dict[str, str]:
    answer = api.as_(who).post("/v1/shares", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, str] = answer.json()
    return made


def opened(api: Api, url: str) -> httpx.Response:
    """As somebody without an account."""
    return Browser(api).get(url[url.index("/ui/") :])


def campaign(api: Api) -> str:
    body = {
        "name": "nightly",
        "matrix": {"target": ["rpi4b", "rpi5"]},
        "description": {"model": "model.onnx", "runtime": "ort", "benchmark_type": "TYPE1"},
    }
    return str(api.as_("alice").post("/v1/campaigns", json=body).json()["campaign_id"])


def test_a_link_shows_a_benchmark_without_a_session_and_names_nobody(api: Api) -> None:
    benchmark_id = api.submit(name=f"mine {HOSTILE[:60]}")
    for who in ("alice", "operator"):
        made = shared(api, who, benchmark_id=benchmark_id, label="for bob")
        answer = opened(api, made["url"])
        assert answer.status_code == 200
        for text in ("mine &lt;/script&gt;", "model.onnx", "Shared read-only until"):
            assert text in answer.text
        for text in ("alice", "operator", "for bob", 'method="post"', "<script>alert"):
            assert text not in answer.text
        parts = Parts()
        parts.feed(answer.text)
        assert parts.wrong == []
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_link_shows_a_campaign_or_a_comparison(api: Api) -> None:
    made = shared(api, campaign_id=campaign(api))
    page = opened(api, made["url"]).text
    assert "<h1>nightly</h1>" in page
    assert page.count('data-label="Board"') == 2
    ids = [api.submit(), api.submit()]
    page = opened(api, shared(api, benchmark_ids=ids, options="a=b")["url"]).text
    assert "Comparison of 2 results" in page
    assert "alice" not in page


def test_only_a_hash_of_the_secret_is_stored_and_the_list_does_not_show_it(api: Api) -> None:
    made = shared(api, benchmark_id=api.submit())
    secret = made["url"].rsplit("/", 1)[1]
    assert len(secret) >= 43
    with api.store.read() as uow:
        stored = uow.shares.of("alice", api.clock.now())
        events = uow.log.events(after=0, limit=10_000)
    assert secret not in repr(stored)
    assert secret not in repr(events)
    listed = api.as_("alice").get("/v1/shares").json()["items"]
    assert made["share_id"] in {each["share_id"] for each in listed}
    assert all("url" not in each for each in listed)
    assert made["share_id"] not in api.as_("bob").get("/v1/shares").text
    assert made["share_id"] in api.as_("operator").get("/v1/shares").text


def test_a_revoked_or_ended_link_and_none_are_the_same_404(api: Api) -> None:
    def plain(url: str) -> str:
        answer = opened(api, url)
        assert answer.status_code == 404
        cut = re.sub(r'(nonce|value)="[^"]*"', "", answer.text)
        return cut.replace(url[url.index("/ui/") :], "")

    revoked = shared(api, benchmark_id=api.submit())
    where = f"/v1/shares/{revoked['share_id']}"
    assert api.as_("bob").delete(where).status_code == 404
    assert opened(api, revoked["url"]).status_code == 200
    assert api.as_("alice").delete(where).status_code == 204
    assert api.as_("alice").delete(where).status_code == 404
    end = (api.clock.now() + timedelta(hours=1)).isoformat()
    ended = shared(api, benchmark_id=api.submit(), expires_at=end)
    assert opened(api, ended["url"]).status_code == 200
    absent = plain(ABSENT)
    assert plain(revoked["url"]) == absent
    api.clock.ahead += timedelta(hours=1, seconds=1)
    try:
        assert plain(ended["url"]) == absent
        assert ended["share_id"] not in api.as_("alice").get("/v1/shares").text
    finally:
        api.clock.ahead -= timedelta(hours=1, seconds=1)


def test_a_link_does_not_show_what_was_deleted(api: Api) -> None:
    results = [Measured(benchmark_id=f"deleted-{number}", p50_ms=5.5 + number) for number in (1, 2)]
    store_measured(api.store, results)
    ids = [each.benchmark_id for each in results]
    one, both = shared(api, benchmark_id=ids[0])["url"], shared(api, benchmark_ids=ids)["url"]
    assert opened(api, both).text.count('data-label="Board"') == 2
    assert api.as_().delete(f"/api/benchmarks/{ids[0]}").json()["deleted"] is True
    assert opened(api, one).status_code == 404
    assert opened(api, both).text.count('data-label="Board"') == 1
    assert api.as_().delete(f"/api/benchmarks/{ids[1]}").json()["deleted"] is True
    assert opened(api, both).status_code == 404


def test_a_link_ends_with_the_token_that_made_it_and_with_its_account(api: Api) -> None:
    token = api.as_("alice").post("/v1/tokens", json={}).json()
    headers = {"Authorization": f"Bearer {token['token']}"}
    body = {"benchmark_id": api.submit()}
    made = api.as_(None).post("/v1/shares", json=body, headers=headers).json()
    assert opened(api, made["url"]).status_code == 200
    api.as_("alice").delete(f"/v1/tokens/{token['token_id']}")
    assert opened(api, made["url"]).status_code == 404
    other = shared(api, benchmark_id=body["benchmark_id"])
    for disabled, status in ((True, 404), (False, 200)):
        api.as_("operator").patch("/v1/users/alice", json={"disabled": disabled})
        assert opened(api, other["url"]).status_code == status


def test_a_link_that_was_made_in_a_browser_outlives_the_session(api: Api) -> None:
    browser = as_(api)
    benchmark_id = api.submit()
    where = f"/ui/benchmarks/{benchmark_id}"
    page = browser.post(
        "/ui/shares", where, benchmark_id=benchmark_id, days="7", label="to a colleague"
    )
    assert page.status_code == 200
    assert "Copy it now" in page.text
    found = re.search(r'<pre id="made"[^>]*>([^<]*)</pre>', page.text)
    assert found
    assert browser.post("/ui/sign-out", "/ui").status_code == 303
    assert opened(api, found[1]).status_code == 200
    browser.signed_in(api.tokens["alice"])
    listed = browser.get("/ui/shares").text
    assert "to a colleague" in listed
    share_id = re.search(r"/ui/shares/(share-[0-9a-f]+)/revoke", listed)
    assert share_id
    answer = browser.post(f"/ui/shares/{share_id[1]}/revoke", "/ui/shares")
    assert answer.headers["location"] == "/ui/shares?done=share-revoked"
    assert opened(api, found[1]).status_code == 404
    assert browser.post("/ui/shares", where, benchmark_id=benchmark_id, days="x").status_code == 422


def test_a_link_that_was_made_after_a_log_in_ends_with_the_password(api: Api) -> None:
    operator = api.as_("operator")
    body = {"user_id": "pia", "email": "pia@example.org", "password": "correct horse"}
    operator.post("/v1/users", json=body)
    browser = Browser(api)
    browser.post("/ui/sign-in", email="pia@example.org", password="correct horse")
    job = {"model_url": "https://example.org/n.onnx", "runtime": "ort"}
    fields = {**job, "target.rpi4b": "on", "runtime.ort": "on", "benchmark_type": "TYPE1"}
    where = browser.post("/ui/submit", "/ui/submit", **fields).headers["location"]
    benchmark_id = where.split("/")[-1].split("?")[0]
    page = browser.post("/ui/shares", "/ui/shares", benchmark_id=benchmark_id).text
    url = page.split('<pre id="made" tabindex="0">')[1].split("<")[0]
    assert opened(api, url).status_code == 200
    operator.delete("/v1/users/pia/password")
    assert opened(api, url).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"benchmark_id": "absent"}, 404),
        ({"campaign_id": "absent"}, 404),
        ({"benchmark_ids": ["a"]}, 422),
        ({"benchmark_id": "OWN", "campaign_id": "x"}, 422),
        ({"benchmark_id": "OWN", "options": "a=b"}, 422),
        ({"benchmark_id": "OWN", "expires_at": "2020-01-01T00:00:00Z"}, 422),
        ({"benchmark_id": "OWN", "expires_at": "2099-01-01T00:00:00Z"}, 422),
    ],
)
def test_what_is_no_link_is_refused(api: Api, body: dict[str, object], status: int) -> None:
    own = api.submit()
    body = {name: own if value == "OWN" else value for name, value in body.items()}
    assert api.as_("alice").post("/v1/shares", json=body).status_code == status
    if status != 422:
        return
    foreign = {"benchmark_ids": [own, api.submit()]}
    assert api.as_("bob").post("/v1/shares", json=foreign).status_code == 404


def test_acts_on_links_are_in_the_log(api: Api) -> None:
    benchmark_id = api.submit()
    made = shared(api, benchmark_id=benchmark_id)
    api.as_("alice").delete(f"/v1/shares/{made['share_id']}")
    acts = api.as_("operator").get(f"/v1/events?benchmark_id={benchmark_id}").json()["items"]
    types = [each["kind"] for each in acts]
    assert types[:2] == ["share.removed", "share.added"]
    assert acts[1]["after"]["share_id"] == made["share_id"]
    assert "sha256" not in acts[1]["after"]


def test_the_sdk_shares_lists_and_revokes(api: Api) -> None:
    with Client(api.url, api.tokens["alice"]) as client:
        made = client.share(api.submit(), label="sdk")
        assert made.url
        assert opened(api, made.url).status_code == 200
        pair = client.share([api.submit(), api.submit()])
        whole = client.share(campaign=campaign(api))
        assert [each.kind for each in client.shares()[:3]] == [
            whole.kind,
            pair.kind,
            made.kind,
        ]
        client.revoke_share(made.share_id)
        assert made.share_id not in {each.share_id for each in client.shares()}


def test_the_command_line_shares_lists_and_revokes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["alice"])

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["shares", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    one, two = api.submit(), api.submit()
    assert opened(api, run("create", one, "--label", "by hand", "--expires", "+7 d").strip())
    made = json.loads(run("create", one, two, "-o", "json"))
    assert made["kind"] == "comparison"
    assert opened(api, made["url"]).status_code == 200
    listed = run("list")
    assert "comparison of 2" in listed
    assert "by hand" in listed
    run("revoke", made["share_id"])
    assert opened(api, made["url"]).status_code == 404
    refused = CliRunner().invoke(app, ["shares", "create", one, "--campaign", "x"])
    assert refused.exit_code == 1
