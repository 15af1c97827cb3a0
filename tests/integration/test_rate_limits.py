"""How often a token and an address may ask, on a clock that the tests move."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from edgeyard.benchmark_api.rate_limits import WindowStorage
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from tests.builders.api import Api, running

pytestmark = pytest.mark.one_database("rate limits are kept in memory")

TOKEN = "upload-token-1"


@pytest.fixture(name="api")
def an_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(
        tmp_path_factory.mktemp("rates"),
        user_requests_per_minute=10,
        trusted_requests_per_minute=40,
        address_requests_per_minute=8,
        failures_per_minute=5,
        trusted_proxies=("127.0.0.1",),
    ) as found:
        yield found


@contextlib.contextmanager
def stalled_upload(api: Api) -> Iterator[socket.socket]:
    """An upload of alice's whose body never comes."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            f"POST /v1/files HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n"
            f"Authorization: Bearer {api.tokens['alice']}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n".encode()
        )
        yield connection


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def statuses(client: httpx.Client, count: int, path: str = "/v1/me", **headers: str) -> list[int]:
    return [client.get(path, headers=headers).status_code for _ in range(count)]


def limited(answer: httpx.Response, limit: str, whose: str, value: int) -> int:
    assert answer.status_code == 429, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    body = answer.json()
    assert body["code"] == "rate_limited"
    assert body["limit"] == {"name": limit, "value": value, "whose": whose}
    assert limit in body["detail"]
    return int(answer.headers["Retry-After"])


def test_a_token_has_its_requests_in_a_window_that_moves(api: Api) -> None:
    assert statuses(api.as_(), 5) == [200] * 5
    api.clock.ahead = timedelta(seconds=40)
    assert statuses(api.as_(), 5) == [200] * 5
    wait_s = limited(
        api.as_().get("/v1/me"), "user_requests_per_minute", "each token of user alice", 10
    )
    assert 1 <= wait_s <= 21
    api.clock.ahead = timedelta(seconds=40 + wait_s)
    assert statuses(api.as_(), 5) == [200] * 5  # the first five have left the window
    assert api.as_().get("/v1/me").status_code == 429


def test_one_token_does_not_use_up_another_s_requests(api: Api) -> None:
    statuses(api.as_(), 12)
    assert api.as_().get("/v1/me").status_code == 429
    assert statuses(api.as_("bob"), 3) == [200] * 3
    assert statuses(api.as_("operator"), 40) == [200] * 40
    assert api.as_("operator").get("/v1/me").status_code == 429


def test_a_refused_request_does_not_prolong_the_wait(api: Api) -> None:
    statuses(api.as_(), 30)
    api.clock.ahead = timedelta(seconds=61)
    assert api.as_().get("/v1/me").status_code == 200


def test_a_request_counts_once(api: Api) -> None:
    """Body and caller both ask who calls."""
    answers = [api.as_().post("/v1/benchmarks", json={}).status_code for _ in range(10)]
    assert answers == [422] * 10
    assert api.as_().post("/v1/benchmarks", json={}).status_code == 429


def test_failed_log_ins_of_an_address_are_stopped_and_good_tokens_are_not(api: Api) -> None:
    assert api.as_().get("/v1/me").status_code == 200
    bad = [{"Authorization": f"Bearer ey_wrong{number:030}"} for number in range(7)]
    answers = [api.as_(None).get("/v1/me", headers=each).status_code for each in bad]
    assert answers == [401] * 5 + [429] * 2
    limited(
        api.as_(None).get("/v1/me"), "failures_per_minute", "the address 127.0.0.1", 5
    )  # without a token, too
    assert statuses(api.as_(), 3) == [200] * 3
    api.clock.ahead = timedelta(seconds=5)  # past the cache: it was good lately
    assert statuses(api.as_(), 3) == [200] * 3
    api.clock.ahead = timedelta(seconds=66)
    assert api.as_(None).get("/v1/me", headers=bad[0]).status_code == 401


def test_names_of_downloads_are_not_guessed(api: Api) -> None:
    answers = statuses(api.as_(None), 7, "/download/guess")
    assert answers == [404] * 5 + [429] * 2


def test_what_needs_no_token_is_bounded_by_address_but_not_liveness(api: Api) -> None:
    assert statuses(api.as_(None), 9, "/readyz") == [200] * 8 + [429]
    assert statuses(api.as_(None), 50, "/livez") == [200] * 50
    assert statuses(api.as_(None), 50, "/v1/version") == [200] * 50
    refused = api.as_(None).get("/docs")
    limited(refused, "address_requests_per_minute", "the address 127.0.0.1", 8)
    assert refused.headers["x-content-type-options"] == "nosniff"
    for path in ("/api/targets/engines/all", "/api/targets/hardware-types/all"):
        assert api.as_(None).get(path).status_code == 429


def test_a_trusted_proxy_names_the_client(api: Api) -> None:
    def ask(forwarded: str) -> int:
        return api.as_(None).get("/readyz", headers={"X-Forwarded-For": forwarded}).status_code

    assert [ask("203.0.113.7") for _ in range(9)] == [200] * 8 + [429]
    assert ask("198.51.100.1") == 200
    # What the client itself wrote stands further left, and counts for nothing.
    assert ask("198.51.100.99, 203.0.113.7") == 429
    # An IPv6 /64 is one client.
    assert [ask(f"2001:db8::{number:x}") for number in range(9)] == [200] * 8 + [429]
    assert ask("2001:db8:0:1::1") == 200


def test_without_trusted_proxies_the_header_is_ignored(tmp_path: Path) -> None:

    with running(tmp_path, address_requests_per_minute=3) as api:
        answers = [
            api.as_(None).get("/readyz", headers={"X-Forwarded-For": f"203.0.113.{n}"}).status_code
            for n in range(5)
        ]
        assert answers == [200] * 3 + [429] * 2


def test_a_running_task_has_a_generous_limit_of_its_own(api: Api) -> None:
    api.upload()
    tasks = [api.dispatched(api.submit(), f"{TOKEN}{number}") for number in range(3)]
    for number, attempt in enumerate(tasks):
        job = attempt.job_id.removeprefix("benchmark-")
        headers = {"Authorization": f"Bearer {TOKEN}{number}"}
        answers = [
            api.as_(None)
            .post(f"/v1/runs/{job}/progress", json={"progress": 1}, headers=headers)
            .status_code
            for _ in range(41)
        ]
        assert answers == [204] * 40 + [429]  # each of them, although they share an address


def test_the_store_of_windows_is_bounded() -> None:
    now_s = 0.0
    storage = WindowStorage(lambda: now_s, max_keys=3)
    for key in "abcabd":
        assert storage.acquire_entry(key, 10, 60)
    assert storage.reset() == 3
    assert storage.acquire_entry("a", 2, 60, amount=2)
    assert not storage.acquire_entry("a", 2, 60)
    now_s = 60.0
    assert storage.acquire_entry("a", 2, 60)


def test_keys_that_were_idle_for_a_window_are_forgotten() -> None:
    now_s = 0.0
    windows = WindowStorage(lambda: now_s)
    for number in range(100):
        assert windows.acquire_entry(f"task-{number}", 10, 60)
    now_s = 30.0
    assert windows.acquire_entry("task-7", 10, 60)
    now_s = 61.0
    assert windows.get_moving_window("another", 10, 60) == (61.0, 0)
    assert windows.get_moving_window("task-7", 10, 60) == (30.0, 1)
    assert windows.reset() == 1


def test_proxies_are_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEYARD_TRUSTED_PROXIES", "10.0.0.0/8, proxy.example")
    with pytest.raises(ConfigError, match="trusted_proxies"):
        Settings.load()


def test_stalled_uploads_of_one_user_leave_room_for_others(tmp_path: Path) -> None:
    held: list[socket.socket] = []
    with running(tmp_path, open_requests_per_user=3) as api, contextlib.ExitStack() as stack:

        def full() -> bool:
            # one that comes while another request is answered may itself be refused
            held.append(stack.enter_context(stalled_upload(api)))
            return api.as_().get("/v1/me").status_code == 429

        until(full)
        limited(api.as_().get("/v1/me"), "open_requests_per_user", "user alice", 3)
        assert api.as_("bob").get("/v1/me").status_code == 200
        assert api.as_("operator").get("/v1/me").status_code == 200
        for each in held:
            each.close()
        until(lambda: api.as_().get("/v1/me").status_code == 200)
