"""The lab's pages: who sees what, signing in, forms, hostile texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.routing import Route

from deploy import vendor_htmx
from edgeyard.benchmark_api import pages
from edgeyard.benchmark_api.extensions import server_pages
from edgeyard.benchmark_api.pages import boards, queue
from edgeyard.benchmark_api.routes.browser_sessions import first_token
from edgeyard.scheduler.model.knowledge import Lease
from tests.builders.api import Api, running
from tests.builders.pages import HOSTILE, Browser, Parts, as_
from tests.integration.test_api_auth import ROUTES, expected_of, names

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

AS_API: dict[tuple[str, str], tuple[str, str] | None] = {
    ("GET", "/"): None,
    ("GET", "/ui"): None,
    ("GET", "/ui/sign-in"): None,
    ("POST", "/ui/sign-in"): None,
    ("GET", "/ui/sign-in/link"): None,
    ("POST", "/ui/sign-in/link"): None,
    ("POST", "/ui/sign-out"): None,
    ("GET", "/ui/static/{digest}/{name}"): None,
    ("GET", "/ui/changes"): ("GET", "/v1/queue"),
    ("GET", "/ui/boards"): ("GET", "/v1/boards"),
    ("GET", "/ui/boards/{target_uid}"): ("GET", "/v1/boards/{target_uid}"),
    ("GET", "/ui/queue"): ("GET", "/v1/queue"),
    ("GET", "/ui/queue.csv"): ("GET", "/v1/queue"),
    ("GET", "/ui/events"): ("GET", "/v1/events"),
    ("GET", "/ui/alerts"): ("GET", "/v1/alerts"),
    ("GET", "/ui/alerts/{change_id}"): ("GET", "/v1/alerts/{change_id}"),
    ("GET", "/ui/subscriptions"): ("GET", "/v1/subscriptions"),
    ("POST", "/ui/subscriptions"): None,
    ("POST", "/ui/subscriptions/{subscription_id}/remove"): (
        "DELETE",
        "/v1/subscriptions/{subscription_id}",
    ),
    ("GET", "/ui/checks"): ("GET", "/v1/checks"),
    ("GET", "/ui/checks/{check_id}"): ("GET", "/v1/checks/{check_id}"),
    ("GET", "/ui/usage"): ("GET", "/v1/usage"),
    ("GET", "/ui/usage.csv"): ("GET", "/v1/usage"),
    ("GET", "/ui/shared/{secret}"): None,
    ("GET", "/ui/shares"): ("GET", "/v1/shares"),
    ("POST", "/ui/shares"): ("POST", "/v1/shares"),
    ("POST", "/ui/shares/{share_id}/revoke"): ("DELETE", "/v1/shares/{share_id}"),
    ("GET", "/ui/submit"): ("POST", "/v1/benchmarks"),
    ("POST", "/ui/submit"): ("POST", "/v1/benchmarks"),
    ("POST", "/ui/submit/check"): ("POST", "/v1/benchmarks"),
    ("GET", "/ui/policies"): ("GET", "/v1/policies"),
    ("GET", "/ui/policies/{name}"): ("GET", "/v1/policies/{name}"),
    ("POST", "/ui/policies/{role}"): ("PUT", "/v1/policies/{role}"),
    ("POST", "/ui/policies/{role}/end"): ("DELETE", "/v1/policies/{role}"),
    ("GET", "/ui/models"): ("GET", "/v1/models"),
    ("GET", "/ui/models/{kind}/{version}"): ("GET", "/v1/models/{kind}/{version}"),
    ("GET", "/ui/simulations"): ("GET", "/v1/simulations"),
    ("GET", "/ui/simulations/{run_id}"): ("GET", "/v1/simulations/{run_id}"),
    **{
        ("GET", f"/ui/compare{suffix}"): ("POST", "/v1/results/comparison")
        for suffix in ("", ".csv", ".svg")
    },
    **{
        ("GET", f"/ui/history{suffix}"): ("GET", "/v1/series/points")
        for suffix in ("", ".csv", ".svg")
    },
    ("GET", "/ui/benchmarks"): ("GET", "/v1/benchmarks"),
    ("GET", "/ui/benchmarks/{benchmark_id}"): ("GET", "/v1/benchmarks/{benchmark_id}"),
    ("GET", "/ui/benchmarks/{benchmark_id}/why"): (
        "GET",
        "/v1/benchmarks/{benchmark_id}/explanation",
    ),
    ("GET", "/ui/benchmarks/{benchmark_id}/log"): ("GET", "/v1/benchmarks/{benchmark_id}/logs"),
    ("GET", "/ui/benchmarks/{benchmark_id}/files/{attempt}/{name}"): (
        "GET",
        "/v1/benchmarks/{benchmark_id}/results/{attempt}/{name}",
    ),
    **{
        ("POST", f"/ui{path}"): ("POST", f"/v1{path}")
        for path in (
            *(
                f"/boards/{{target_uid}}/{act}"
                for act in ("drain", "resume", "quarantine", "unquarantine", "probe", "lease")
            ),
            *(
                f"/benchmarks/{{benchmark_id}}/{act}"
                for act in ("cancel", "hold", "release", "priority", "retry")
            ),
            *("/models/{kind}/{version}/promote", "/models/{kind}/rollback"),
            *("/leases/{lease_id}/release", "/checks/{check_id}/cancel"),
            *(f"/alerts/{{change_id}}/{act}" for act in ("resolve", "dismiss")),
        )
    },
}
"""Each route of the pages, and the one of the API whose row of the matrix is its own; None: it has
tests of its own here."""

QUERIES = {
    "/ui/compare": "benchmark_id={benchmark_id}",
    "/ui/history": "series=model.onnx",
}
"""What a page needs in its address, by its path without an ending."""

FIELDS = {
    "/ui/boards/{target_uid}/lease": {"hours": "1"},
    "/ui/benchmarks/{benchmark_id}/priority": {"user_priority": "3"},
    "/ui/alerts/{change_id}/dismiss": {"reason": "known"},
    "/ui/submit": {"model_url": "https://example.org/net.onnx", "target.rpi4b": "on"}
    | {"runtime.ort": "on", "benchmark_type": "TYPE1"},
    "/ui/policies/{role}": {"name": "native"},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("pages")) as found:
        found.upload()
        yield found


def things(api: Api, path: str) -> dict[str, str]:
    """Fresh things of alice that a path names."""
    known = {"target_uid": "rpi4b-0001-0001", "attempt": "1", "name": "absent"}
    if "{kind}" in path:
        known |= {"kind": "run_time", "version": "1"}
    if "policies" in path:
        known |= {"name": "native", "role": "shadow"}
    if "run_id" in path:
        known |= names(api, path)
    if "benchmark_id" in path or path.startswith("/ui/compare"):
        known["benchmark_id"] = api.submit()
    if path.startswith("/ui/subscriptions"):
        known |= names(api, "/v1/subscriptions/{subscription_id}")
    if "check_id" in path or "change_id" in path:
        known |= names(api, path)
    if "share_id" in path:
        body = {"benchmark_id": api.submit()}
        known["share_id"] = api.as_().post("/v1/shares", json=body).json()["share_id"]
    if "lease_id" in path:
        now = api.clock.now()
        known["lease_id"] = lease_id = f"lease-{now.timestamp()}"
        lease = Lease(
            lease_id=lease_id,
            target_uid=lease_id,
            since=now,
            until=now + timedelta(hours=1),
            reason="",
            user_id="alice",
        )
        with api.store.write() as uow:
            uow.reservations.add_lease(lease)
    return known


def test_every_page_has_a_row() -> None:
    served = {
        (method, route.path)
        for router in (*pages.ROUTERS, *server_pages())
        for route in router.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == set(AS_API)


@pytest.mark.parametrize(("method", "path"), [key for key, row in AS_API.items() if row])
def test_a_page_is_for_whom_the_api_is_for(api: Api, method: str, path: str) -> None:
    row = AS_API[method, path]
    assert row
    allowed = ROUTES[row]
    nobody = Browser(api).http.request(method, path.format(**things(api, path)))
    assert nobody.status_code == 401
    for name in ("viewer", "bob", "alice", "operator"):
        browser, known = as_(api, name), things(api, path)
        query = QUERIES.get(path.partition(".")[0], "")
        expected = expected_of(*row, allowed, name)
        where = f"{path}?{query}".rstrip("?").format(**known)
        if path == "/ui/changes":
            with browser.http.stream("GET", where) as stream:
                assert stream.status_code == expected
            continue
        if method == "GET":
            answer = browser.get(where)
        else:
            fields = dict(FIELDS.get(path, {}))
            if path == "/ui/shares":
                fields["benchmark_id"] = api.submit()
            answer = browser.post(where, "/ui/benchmarks", **fields)
        cell = f"{method} {path} as {name}: {answer.text[:300]}"
        if expected == 200:
            # Right or wrong by the state of the thing, but not by who asks.
            right = answer.status_code in (200, 303, 409) or path.endswith("{name}")
            assert right, cell
        else:
            assert answer.status_code == expected, cell


def test_a_host_has_no_pages(api: Api) -> None:
    token = api.as_("operator").post("/v1/users", json={"user_id": "hosts", "role": "host"})
    assert token.status_code == 201
    made = api.as_("operator").post("/v1/tokens", json={"user_id": "hosts"}).json()["token"]
    assert Browser(api).post("/ui/sign-in", token=made).status_code == 403


def test_the_first_page_says_what_the_lab_is(api: Api) -> None:
    browser = Browser(api)
    answer = browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui")
    text = browser.get("/ui").text
    assert "Edgeyard lab" in text
    assert "<strong>2</strong> rpi4b" in text
    assert 'action="/ui/sign-in"' in text
    assert "rpi4b-0001" not in text  # boards' names are for who is signed in


def test_a_sessions_cookie_opens_pages_alone(api: Api) -> None:
    browser = Browser(api)
    answer = browser.post("/ui/sign-in", token=api.tokens["alice"])
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/ui" in cookie
    assert "Secure" not in cookie  # this server is reached without TLS
    assert browser.get("/ui/boards").status_code == 200
    secret = browser.http.cookies["edgeyard_session"]
    for token in (secret, f"browser:{secret}"):
        headers = {"Authorization": f"Bearer {token}"}
        assert api.as_(None).get("/v1/me", headers=headers).status_code == 401
    cookies = {"Cookie": f"edgeyard_session={secret}"}
    assert api.as_(None).get("/v1/me", headers=cookies).status_code == 401
    assert Browser(api).post("/ui/sign-in", token=secret).status_code == 401
    bearer = {"Authorization": f"Bearer {api.tokens['alice']}"}
    assert httpx.get(f"{api.url}/ui/boards", headers=bearer, trust_env=False).status_code == 401


def test_behind_tls_cookies_are_secure(api: Api) -> None:
    plain = api.services.public_url
    api.services.public_url = "https://lab.example.org"
    try:
        assert "Secure" in Browser(api).get("/ui/sign-in").headers["set-cookie"]
    finally:
        api.services.public_url = plain


def test_a_session_ends_with_the_token_that_opened_it(api: Api) -> None:
    made = api.as_("alice").post("/v1/tokens", json={}).json()
    browser = Browser(api).signed_in(made["token"])
    assert browser.get("/ui/queue").status_code == 200
    listed = api.as_("alice").get("/v1/tokens").json()["items"]
    assert "browser" in {
        each["label"] for each in listed if each.get("made_by") == made["token_id"]
    }
    assert api.as_("alice").delete(f"/v1/tokens/{made['token_id']}").status_code == 204
    assert browser.get("/ui/queue").status_code == 401


def test_a_session_revokes_no_more_than_the_token_that_opened_it(api: Api) -> None:
    """Whoever found a token ends nothing of its owner by signing in with it."""
    mine = api.as_("alice").post("/v1/tokens", json={}).json()
    browser = Browser(api).signed_in(mine["token"])
    other = as_(api)
    fields = {"everywhere": "1"}
    answer = browser.post("/ui/sign-out", "/ui/queue", **fields)
    assert answer.status_code == 303
    assert browser.get("/ui/queue").status_code == 401
    assert other.get("/ui/queue").status_code == 200


def test_an_account_with_a_password_signs_in_and_out_everywhere(api: Api) -> None:
    operator = api.as_("operator")
    body = {"user_id": "petra", "email": "petra@example.org", "password": "correct horse"}
    assert operator.post("/v1/users", json=body).status_code == 201
    wrong = Browser(api).post("/ui/sign-in", email="petra@example.org", password="no")
    assert wrong.status_code == 401
    assert "The e-mail address or the password is wrong" in wrong.text
    assert 'value="petra@example.org"' in wrong.text
    assert ">no<" not in wrong.text
    first, second, third = (Browser(api) for _ in range(3))
    for each in (first, second, third):
        answer = each.post(
            "/ui/sign-in",
            email=" Petra@example.org",
            password="correct horse",
            next="/ui/queue?a=b",
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/queue?a=b")
    assert first.post("/ui/sign-out", "/ui").status_code == 303
    assert first.get("/ui/queue").status_code == 401
    assert second.post("/ui/sign-out", "/ui", everywhere="1").status_code == 303
    assert third.get("/ui/queue").status_code == 401
    fourth = Browser(api)
    fourth.post("/ui/sign-in", email="petra@example.org", password="correct horse")
    assert fourth.get("/ui/queue").status_code == 200
    new = {"password": "another one"}
    assert operator.put("/v1/users/petra/password", json=new).status_code in (204, 403)
    assert operator.delete("/v1/users/petra/password").status_code == 204
    assert fourth.get("/ui/queue").status_code == 401


@pytest.mark.parametrize("away", ["//evil.example", "https://evil.example", "/v1/me", "/uiX", "\\"])
def test_signing_in_leads_to_a_page_of_ours(api: Api, away: str) -> None:
    answer = Browser(api).post("/ui/sign-in", token=api.tokens["alice"], next=away)
    assert answer.headers["location"] == "/ui"


def test_a_link_signs_in_once_within_ten_minutes(api: Api) -> None:
    context = api.app.state.context
    links = context.links
    operator = api.as_("operator").get("/v1/me").json()["user"]["user_id"]
    token_id = first_token(context, operator)
    assert token_id
    code = links.make(token_id)
    page = f"/ui/sign-in/link?code={code}"
    browser = Browser(api)
    assert browser.get(page).status_code == 200  # reading it changes nothing
    assert browser.get(page).status_code == 200
    assert browser.post("/ui/sign-in/link", page, code=code).status_code == 303
    assert browser.get("/ui/queue").status_code == 200
    again = Browser(api).post("/ui/sign-in/link", page, code=code)
    assert again.status_code == 401
    assert "The link was used" in again.text
    late = links.make(token_id)
    api.clock.ahead += timedelta(seconds=601)
    try:
        assert Browser(api).post("/ui/sign-in/link", page, code=late).status_code == 401
    finally:
        api.clock.ahead -= timedelta(seconds=601)


@pytest.mark.parametrize("path", ["/ui/boards/rpi4b-0001-0001/drain", "/ui/sign-out"])
def test_a_form_of_another_site_changes_nothing(api: Api, path: str) -> None:
    browser = as_(api, "operator")
    of_another_session = as_(api, "operator").csrf("/ui")
    for fields in ({}, {"csrf": "x"}, {"csrf": of_another_session}):
        assert browser.http.post(path, data=fields).status_code == 403
    foreign = {"Sec-Fetch-Site": "cross-site"}
    right = {"csrf": browser.csrf("/ui")}
    assert browser.http.post(path, data=right, headers=foreign).status_code == 403
    assert browser.get("/ui/queue").status_code == 200
    signing_in = {"token": api.tokens["alice"]}
    assert Browser(api).http.post("/ui/sign-in", data=signing_in).status_code == 403


def test_a_session_that_ended_keeps_what_was_typed(api: Api) -> None:
    browser = as_(api, "operator")
    csrf = browser.csrf("/ui")
    browser.http.cookies.clear()
    fields = {"csrf": csrf, "reason": f"a long reason {HOSTILE}"}
    answer = browser.http.post("/ui/boards/rpi4b-0001-0001/drain", data=fields)
    assert answer.status_code == 401
    assert "a long reason" in answer.text
    assert "<script>alert" not in answer.text
    assert csrf not in answer.text


def test_an_operator_drains_leases_and_resumes_a_board(api: Api) -> None:
    browser, where = as_(api, "operator"), "/ui/boards/rpi5-0001-0001"
    answer = browser.post(f"{where}/drain", where, reason="new fan")
    assert answer.headers["location"] == f"{where}?done=drained"
    with api.store.read() as uow:
        override = uow.board_overrides.all()["rpi5-0001-0001"]
    assert (override.drained, override.reason) == (True, "new fan")
    assert "The board is drained" in browser.get(answer.headers["location"]).text
    assert browser.post(f"{where}/resume", where).status_code == 303
    for hours in ("", "x", "nan", "1e999", "-1"):
        assert browser.post(f"{where}/lease", where, hours=hours).status_code == 422
    assert browser.post(f"{where}/lease", where, hours="1.5", reason="demo").status_code == 303
    (lease,) = [
        each
        for each in api.as_("operator").get("/v1/leases").json()["items"]
        if each["target_uid"] == "rpi5-0001-0001"
    ]
    assert lease["reason"] == "demo"
    ended = browser.post(f"/ui/leases/{lease['lease_id']}/release", where)
    assert ended.headers["location"] == f"{where}?done=lease-released"


def test_an_operator_reads_who_did_what_when_from_where_and_why(api: Api) -> None:
    browser, where = as_(api, "operator"), "/ui/boards/rpi5-0001-0001"
    browser.post(f"{where}/drain", where, reason=f"loud fan {HOSTILE}")
    browser.post(f"{where}/resume", where)
    assert '<a href="/ui/events?board=rpi5-0001-0001">' in browser.get(where).text
    shown = browser.get("/ui/events?board=rpi5-0001-0001&type=board.drained").text
    for text in ("Reason: <bdi>loud fan", "drained", "→", "127.0.0.1", "page", " UTC</time>"):
        assert text in shown
    assert "no → yes" in shown
    assert "A drained board was put back" not in shown
    assert 'href="/ui/events" aria-current="page"' in shown
    ids = [api.submit(), api.submit()]
    api.as_().post("/v1/shares", json={"benchmark_ids": ids})
    shown = browser.get("/ui/events?type=share.added").text
    assert f"benchmark ids: {', '.join(ids)}</span>" in shown


def test_the_log_of_acts_has_pages_that_keep_the_filter(api: Api) -> None:
    tokens = [api.as_("alice").post("/v1/tokens", json={}) for _ in range(51)]
    assert {each.status_code for each in tokens} == {201}
    browser = as_(api, "operator")
    first = browser.get("/ui/events?actor=alice&type=token.added").text
    (older,) = re.findall(r'href="(/ui/events[^"]+cursor=\d+)"', first)
    second = browser.get(older.replace("&amp;", "&")).text
    numbers = [set(re.findall(r'<tr id="(act-\d+)">', text)) for text in (first, second)]
    assert len(numbers[0]) == 50
    assert numbers[1]
    assert not numbers[0] & numbers[1]
    assert 'name="actor" value="alice"' in second


def test_many_boards_are_shown_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "PAGE", 2)
    browser, named = as_(api, "alice"), r'href="/ui/boards/([^"]+)"'
    first = browser.get("/ui/boards").text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = browser.get(following).text
    assert "Page 2 of 2: 3 boards" in second
    assert 'rel="next"' not in second
    assert [len(re.findall(named, text)) for text in (first, second)] == [2, 1]
    assert "No board is like that" in browser.get("/ui/boards?page=9").text
    assert browser.get("/ui/boards?page=-1").text.count("Page 1 of 2") == 1


def test_others_see_their_own_acts_without_a_link_in_the_navigation(api: Api) -> None:
    api.submit()
    shown = as_(api, "bob").get("/ui/events").text
    assert "alice" not in shown
    assert ">Log of acts</a>" not in shown
    benchmark_id = api.submit()
    api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/cancel")
    shown = as_(api, "alice").get(f"/ui/events?benchmark_id={benchmark_id}").text
    assert "A benchmark was cancelled" in shown


def test_a_filter_of_the_log_of_acts_that_is_nonsense_is_named(api: Api) -> None:
    answer = as_(api, "operator").get("/ui/events?type=odd&since=yesterday&until=2026-13-01")
    assert answer.status_code == 422
    assert all(f'id="wrong-{name}"' in answer.text for name in ("type", "since", "until"))
    assert as_(api, "operator").get("/ui/events?cursor=odd").status_code == 422


def test_the_owner_holds_releases_raises_and_cancels(api: Api) -> None:
    browser, benchmark_id = as_(api, "alice"), api.submit()
    where = f"/ui/benchmarks/{benchmark_id}"
    for act, shown in (("hold", "is held"), ("release", "waits for a board again")):
        answer = browser.post(f"{where}/{act}", where)
        assert shown in browser.get(answer.headers["location"]).text
    assert browser.post(f"{where}/priority", where, user_priority="4").status_code == 303
    assert browser.post(f"{where}/priority", where, user_priority="x").status_code == 422
    assert api.as_().get(f"/v1/benchmarks/{benchmark_id}").json()["user_priority"] == 4
    assert browser.post(f"{where}/cancel", where, next="/ui/queue").status_code == 303
    assert "cancelled" in browser.get(where).text
    answer = browser.post(f"{where}/retry", where)
    assert answer.status_code == 303
    assert "repeats" in browser.get(answer.headers["location"]).text


def test_the_queue_shows_a_hold_before_the_next_cycle(api: Api) -> None:
    benchmark_id = api.submit()
    api.engine.order = (benchmark_id,)
    browser, where = as_(api, "alice"), f"/ui/benchmarks/{benchmark_id}"
    try:
        browser.post(f"{where}/hold", where, reason="lunch")
        held = browser.get("/ui/queue").text
        assert "held by alice: lunch" in held
        assert f"{where}/release" in held
        assert f"{where}/hold" not in held
        browser.post(f"{where}/release", where)
        released = browser.get("/ui/queue").text
        assert "held by alice" not in released
        assert "not decided yet" in browser.get("/ui").text
        assert "not yours to see" in as_(api, "bob").get("/ui").text
        assert f"{where}/hold" in released
    finally:
        api.engine.order = ()


def all_pages(api: Api, benchmark_id: str) -> list[str]:
    return [
        *("/ui", "/ui/boards", "/ui/boards/rpi4b-0001-0001", "/ui/queue", "/ui/benchmarks"),
        *("/ui/events", "/ui/shares", "/ui/submit", f"/ui/submit?clone={benchmark_id}"),
        *("/ui/events", "/ui/compare", "/ui/history", "/ui/policies", "/ui/policies/native"),
        *("/ui/simulations", f"/ui/compare?benchmark_id={benchmark_id}"),
        f"/ui/benchmarks/{benchmark_id}",
        f"/ui/benchmarks/{benchmark_id}/log",
        f"/ui/benchmarks/{benchmark_id}/why",
        *("/ui/benchmarks/absent", "/ui/nowhere", "/ui/benchmarks?status=x", "/ui/sign-in"),
    ]


def test_hostile_texts_are_shown_as_texts(api: Api) -> None:
    benchmark_id = api.submit(name=HOSTILE[:100], tags=["</script><script>alert(1)"])
    api.dispatched(benchmark_id)
    api.as_("operator").post(
        "/v1/boards/rpi4b-0001-0001/lease",
        json={"until": "2030-01-01T00:00:00Z", "reason": HOSTILE + "W" * 400},
    )
    browser = as_(api, "alice")
    seen = 0
    for path in [*all_pages(api, benchmark_id), f"/ui/benchmarks?model={HOSTILE}&status={HOSTILE}"]:
        answer = browser.get(path)
        parts = Parts()
        parts.feed(answer.text)
        assert parts.wrong == [], path
        assert parts.scripts == 4, path
        assert "?" in path or "\u202e" not in answer.text, path  # a field keeps what was typed
        seen += "&lt;script&gt;alert(1)" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'nonce-")
        assert answer.headers["cache-control"] == "no-store"
    assert seen >= 4


def test_each_page_has_its_own_nonce(api: Api) -> None:
    first, second = (Browser(api).get("/ui").headers["content-security-policy"] for _ in range(2))
    assert first != second


def test_missing_and_foreign_things_are_the_same_page(api: Api) -> None:
    own, browser = api.submit(), as_(api, "bob")
    foreign, absent = (browser.get(f"/ui/benchmarks/{each}") for each in (own, "absent"))
    assert foreign.status_code == absent.status_code == 404

    def plain(text: str) -> str:
        own_of_each = r'nonce="[^"]*"|name="csrf" value="[^"]*"'
        return re.sub(own_of_each, "", text.replace(own, "absent"))

    assert plain(foreign.text) == plain(absent.text)
    assert "/ui/benchmarks" in absent.text


def test_a_filter_that_is_nonsense_is_named_beside_its_field(api: Api) -> None:
    query = "status=odd&submitted_from=yesterday&type=TYPE100&model=keeps"
    answer = as_(api, "alice").get(f"/ui/benchmarks?{query}")
    assert answer.status_code == 422
    for name in ("status", "submitted_from", "type"):
        assert f'id="wrong-{name}"' in answer.text
    assert 'value="keeps"' in answer.text
    assert as_(api, "alice").get("/ui/benchmarks?cursor=odd").status_code in (200, 422)
    for path, fields in (
        ("/ui/boards?state=odd&family=odd", ("state", "family")),
        ("/ui/usage?month=odd&by=odd", ("month", "by")),
    ):
        answer = as_(api, "alice").get(path)
        assert answer.status_code == 422
        assert all(f'id="wrong-{name}"' in answer.text for name in fields), path


def test_a_refused_form_names_each_mistake_once_and_leads_back_to_its_page(api: Api) -> None:
    page = "/ui/boards/rpi4b-0001-0001"
    refused = as_(api, "operator").post(f"{page}/lease", page, hours="x")
    assert refused.status_code == 422
    assert refused.text.count("is no number of hours") == 1
    assert f'<a href="{page}">Go back</a>' in refused.text
    share = as_(api, "alice").post("/ui/shares", "/ui/shares", benchmark_id="x", days="366")
    assert "<strong>Days</strong>" in share.text
    assert "1 to 365" in share.text


def test_a_link_that_leads_nowhere_is_explained_to_somebody_without_an_account(api: Api) -> None:
    found = Browser(api).get("/ui/shared/nothing")
    assert found.status_code == 404
    assert "was revoked, or has ended" in found.text
    assert "/ui/benchmarks" not in found.text


def test_messages_are_subscribed_to_with_mistakes_beside_their_fields(api: Api) -> None:
    made = api.as_("operator").post("/v1/users", json={"user_id": "silent"})
    assert made.status_code == 201
    token = api.as_("operator").post("/v1/tokens", json={"user_id": "silent"}).json()["token"]
    browser, page = Browser(api).signed_in(token), "/ui/subscriptions"
    board = {"topic": "board", "channel": "webhook"}
    absent = browser.post(page, page, about=HOSTILE, **board)
    assert absent.status_code == 422
    assert 'id="wrong-about"' in absent.text
    assert "<script>alert" not in absent.text
    without = browser.post(page, page, about="rpi4b-0001-0001", **board)
    assert 'id="wrong-channel"' in without.text
    assert 'value="rpi4b-0001-0001"' in without.text, "what was typed is kept"
    assert "<option>mail" not in without.text, "this server sends none"
    known = names(api, "/v1/campaigns/{campaign_id}")
    campaign = {"topic": "campaign", "channel": "webhook", "about": known["campaign_id"]}
    others = browser.post(page, page, **campaign)
    assert others.status_code == 422
    assert "no campaign" in others.text
    assert as_(api, "viewer").post(page, page, **campaign).status_code == 403
    assert Browser(api).http.post(page, data=campaign).status_code == 401


def test_a_subscription_is_made_and_removed_by_its_page(api: Api) -> None:
    hook = {"url": "https://example.org/hook"}
    assert api.as_("alice").put("/v1/users/alice/webhook", json=hook).is_success
    browser, page, board = as_(api), "/ui/subscriptions", "rpi5-0001-0001"
    made = browser.post(page, page, topic="board", channel="webhook", about=board)
    assert made.status_code == 303
    listed = browser.get(made.headers["location"]).text
    assert "You are subscribed" in listed
    row = re.search(rf'data-label="About">{board}</td>.*?action="([^"]+/remove)"', listed, re.S)
    assert row
    assert as_(api, "bob").post(row[1], page).status_code == 404
    removed = browser.post(row[1], page)
    assert removed.status_code == 303
    left = browser.get(removed.headers["location"]).text
    assert "The subscription is removed" in left
    assert f'data-label="About">{board}</td>' not in left
    assert browser.post(row[1], page).status_code == 404


def test_empty_states_say_the_next_step(api: Api) -> None:
    made = api.as_("operator").post("/v1/users", json={"user_id": "newcomer"})
    assert made.status_code == 201
    token = api.as_("operator").post("/v1/tokens", json={"user_id": "newcomer"}).json()["token"]
    browser = Browser(api).signed_in(token)
    assert "edgeyard submit --model model.onnx" in browser.get("/ui/benchmarks").text
    assert "Show all" in browser.get("/ui/benchmarks?model=none").text


def test_errors_of_pages_are_pages_and_those_of_the_api_are_not(api: Api) -> None:
    browser = as_(api, "alice")
    assert browser.get("/ui/nowhere").headers["content-type"].startswith("text/html")
    assert browser.get("/v1/nowhere").headers["content-type"] == "application/problem+json"
    large = browser.http.post(
        "/ui/boards/x/lease", data={"csrf": browser.csrf("/ui"), "reason": "x" * 70_000}
    )
    assert large.status_code == 413
    assert large.headers["content-type"].startswith("text/html")
    assert "The form is over the limit of 65536 bytes" in large.text
    assert "body_limit_bytes" not in large.text, "that setting is of other bodies"
    for visitor, signed_in in ((Browser(api), False), (browser, True)):
        absent = visitor.get("/ui/nowhere")
        assert absent.status_code == 404
        assert ('action="/ui/sign-out"' in absent.text) == signed_in
    refused = browser.post("/ui/boards/rpi4b-0001-0001/drain", "/ui")
    assert refused.status_code == 403
    assert "You are signed in as" in refused.text


def test_pages_and_their_files_are_compressed_where_the_browser_takes_that(api: Api) -> None:
    browser = as_(api, "alice")
    paths = ["/ui/boards", *re.findall(r'"(/ui/static/[^"]+)"', browser.get("/ui/boards").text)]
    for path in paths:
        small, large = (
            browser.http.get(path, headers={"Accept-Encoding": each}) for each in ("gzip", "")
        )
        assert small.headers["content-encoding"] == "gzip", path
        assert "content-encoding" not in large.headers, path
        assert small.headers["vary"] == large.headers["vary"] == "Accept-Encoding", path


def test_no_two_pages_have_the_same_text_for_their_forms(api: Api) -> None:
    """From the sizes of compressed pages with a constant text, that text could be found."""
    browser = as_(api, "alice")
    first, second = browser.csrf("/ui/boards"), browser.csrf("/ui/boards")
    assert first != second
    for csrf in (first, second):
        answer = browser.http.post("/ui/leases/absent/release", data={"csrf": csrf})
        assert answer.status_code == 404
    for wrong in (first[:-1], f"{first[:-1]}g", first + "00", first[:64] + second[64:]):
        answer = browser.http.post("/ui/leases/absent/release", data={"csrf": wrong})
        assert answer.status_code == 403


def test_static_files_are_kept_for_ever_under_a_name_of_their_content(api: Api) -> None:
    browser = Browser(api)
    names = re.findall(r'"(/ui/static/([0-9a-f]{16})/[^"]+)"', browser.get("/ui").text)
    assert len(names) == 6
    for path, digest in names:
        answer = browser.get(path)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert hashlib.sha256(answer.content).hexdigest().startswith(digest)
        assert browser.get(path.replace(digest, "0" * 16)).status_code == 404
    for name in ("__init__.py", "htmx.LICENSE", "base.html.j2"):
        assert browser.get(f"/ui/static/{'0' * 16}/{name}").status_code == 404


def test_pages_say_in_words_what_a_benchmark_measures(api: Api) -> None:
    benchmark_id = api.submit()
    api.engine.order = (benchmark_id,)
    try:
        queue = as_(api, "alice").get("/ui/queue").text
    finally:
        api.engine.order = ()
    assert "latency · ort · rpi4b" in queue
    assert "TYPE1" not in queue
    assert "TYPE1: latency" in as_(api, "alice").get(f"/ui/benchmarks/{benchmark_id}").text


def test_the_queue_is_a_table_for_spreadsheets_without_formulas(api: Api) -> None:
    benchmark_id = api.submit()
    api.engine.order = (benchmark_id,)
    try:
        answer = as_(api, "alice").get("/ui/queue.csv")
    finally:
        api.engine.order = ()
    assert answer.headers["content-type"].startswith("text/csv")
    assert benchmark_id in answer.text
    assert answer.text.splitlines()[0].startswith("position,benchmark_id,user_id,priority")


def test_a_long_queue_is_shown_page_by_page_with_one_form_for_all_rows(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAGE", 2)
    ids = [api.submit() for _ in range(3)]
    api.engine.order = tuple(ids)
    browser = as_(api, "alice")
    try:
        first = browser.get("/ui/queue").text
        assert "Page 1 of 2: 3 benchmarks" in first
        (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
        second = browser.get(following).text
        assert "No more wait" in browser.get("/ui/queue?page=9").text
        assert browser.get("/ui/queue?page=x").text.count("Page 1 of 2") == 1
    finally:
        api.engine.order = ()
    listed = [re.findall(r'<tr id="of-([^"]+)"', text) for text in (first, second)]
    assert listed == [ids[:2], ids[2:]]
    assert f'<input type="hidden" name="next" value="{following}">' in second, "acts lead back here"
    for text in (first, second):
        assert text.count('name="user_priority"') == 1
        default_button = re.search(r"<button[^>]*>", text[text.index('id="acts"') :])
        assert default_button
        assert "disabled" in default_button[0], "Enter in a field does nothing to the first row"


def test_an_open_page_learns_of_changes(api: Api) -> None:
    browser = as_(api, "alice")
    with browser.http.stream("GET", "/ui/changes", timeout=20) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": open"
        api.submit()
        assert next(line for line in lines if line and not line.startswith(":")) == (
            "event: lab-changed"
        )


def test_the_vendored_files_are_those_that_were_reviewed() -> None:
    for name, sha256 in vendor_htmx.FILES.values():
        data = (vendor_htmx.TARGET / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == sha256, name


def test_who_waits_is_named_and_why_is_in_plain_words(api: Api) -> None:
    start = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    benchmark_id = api.submit(name="tonight", start_time=start)
    api.engine.order = (benchmark_id,)
    browser = as_(api, "operator")
    assert ">tonight</a>" in browser.get("/ui/queue").text
    browser.post(
        "/ui/boards/rpi4b-0001-0002/lease",
        "/ui/boards/rpi4b-0001-0002",
        hours="2",
        reason="a new fan",
    )
    text = browser.get("/ui/events?type=board.leased").text
    changed = text[text.index("Before and after</th>") :]
    assert "a new fan" in changed
    assert re.search(r"until: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", changed)
    assert "none →" not in changed
