"""Answers of a server that is none, or a bad one: bounds, and a sentence instead of a traceback."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from edgeyard.benchmark_api.sdk import http
from edgeyard.benchmark_api.sdk.config import ClientSettings
from edgeyard.benchmark_api.sdk.errors import ApiError
from edgeyard.benchmark_api.sdk.follow import follow_events, follow_logs
from edgeyard.benchmark_api.sdk.http import Api

Handler = Callable[[httpx.Request], httpx.Response]


def api_of(handler: Handler, slept: list[float] | None = None) -> Api:
    settings = ClientSettings(url="http://server", url_from="")
    sleep = (slept if slept is not None else []).append
    return Api(settings, transport=httpx.MockTransport(handler), sleep=sleep)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("body", ["[" * 200_000, '{"a":' * 200_000, "nonsense", "\ufeff{"])
def test_what_is_no_json_or_nests_too_deep_is_a_sentence(status: int, body: str) -> None:
    with pytest.raises(ApiError) as refused:
        api_of(lambda request: httpx.Response(status, text=body)).get("/v1/boards")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("packing", ["gzip", "deflate", "br", "zstd"])
def test_an_answer_that_cant_be_unpacked_is_a_sentence(packing: str, status: int) -> None:
    class Raw(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"this is not packed"

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers={"Content-Encoding": packing}, stream=Raw())

    with pytest.raises(ApiError) as refused:
        api_of(answer).get("/v1/boards")
    assert "http://server/v1/boards" in str(refused.value)
    if status == 200 and packing in ("gzip", "deflate"):
        with (
            pytest.raises(ApiError, match="unpacked"),
            api_of(answer).stream("/v1/files/f/content") as found,
        ):
            found.read()


@pytest.mark.parametrize(
    "header",
    [
        "²",
        "1e400",
        "9" * 99,
        "9" * 5000,
        "-3",
        "nan",
        "inf",
        "Mon, 99 Foo 99999 00:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "\t",
        "0x10",
        "1_000",
    ],
)
def test_an_odd_retry_after_is_no_traceback(header: str) -> None:
    slept: list[float] = []
    answer = httpx.Response(
        503, headers=[(b"Retry-After", header.encode("utf-8"))], json={"detail": "busy"}
    )
    with pytest.raises(ApiError, match="busy") as refused:
        api_of(lambda request: answer, slept).get("/v1/boards")
    assert sum(slept) <= http.MAX_WAIT_S
    assert refused.value.retry_after_s is None or 0 <= refused.value.retry_after_s <= 86400


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_unpacks_to_very_much_is_given_up(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1 << 20)
    packed = gzip.compress(b"0" * (20 << 20), 9)
    read = 0

    def bomb() -> Iterator[bytes]:
        nonlocal read
        for start in range(0, len(packed), 100):
            read += 1
            yield packed[start : start + 100]

    answer = httpx.Response(status, headers={"Content-Encoding": "gzip"}, content=bomb())
    with pytest.raises(ApiError, match="more than 1 MiB"):
        api_of(lambda request: answer).request("POST", "/v1/boards")
    assert read * 100 < len(packed) / 4


@pytest.mark.parametrize("items", [[], [{"id": 1}]])
@pytest.mark.parametrize("cursors", ["same", "new"])
def test_a_list_without_an_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, items: list[object], cursors: str
) -> None:
    monkeypatch.setattr(http, "MAX_PAGES", 150)
    numbers = itertools.count()

    def answer(request: httpx.Request) -> httpx.Response:
        cursor = "again" if cursors == "same" else f"c{next(numbers)}"
        return httpx.Response(200, json={"items": items, "next_cursor": cursor})

    with pytest.raises(ApiError, match="a list without an end"):
        for _ in api_of(answer).pages("/v1/benchmarks"):
            pass


def test_an_empty_page_in_the_middle_of_a_list_ends_nothing() -> None:
    pages = [
        {"items": [{"n": 1}], "next_cursor": "a"},
        {"items": [], "next_cursor": "b"},
        {"items": [{"n": 2}], "next_cursor": None},
    ]
    waiting = iter(pages)
    api = api_of(lambda request: httpx.Response(200, content=json.dumps(next(waiting))))
    assert [each["n"] for each in api.pages("/v1/benchmarks")] == [1, 2]


@pytest.mark.parametrize("answer", [[1, 2], "x", None, 7, {}, {"items": 3}, {"items": None}])
def test_what_is_no_list_is_not_taken_for_an_empty_one(answer: object) -> None:
    api = api_of(lambda request: httpx.Response(200, content=json.dumps(answer)))
    with pytest.raises(ApiError, match="is this the URL of an Edgeyard server"):
        list(api.pages("/v1/boards"))
    with pytest.raises(ApiError, match="is this the URL of an Edgeyard server"):
        list(follow_events(api, "/v1/benchmarks/x", False, lambda wait_s: None))


@pytest.mark.parametrize("answer", [[1, 2], None, {}, {"attempts": [], "status": 3}])
def test_what_is_no_benchmark_is_not_followed_without_an_end(answer: object) -> None:
    slept: list[float] = []
    body, kind = json.dumps(answer), {"Content-Type": "application/json"}
    api = api_of(lambda request: httpx.Response(200, content=body, headers=kind))
    with pytest.raises(ApiError):
        list(follow_logs(api, "/v1/benchmarks/x", True, "stderr", None, slept.append))
    with pytest.raises(ApiError, match="is this the URL of an Edgeyard server"):
        list(follow_logs(api, "/v1/benchmarks/x", False, "stderr", None, slept.append))
    assert not slept


def test_a_log_of_one_line_comes_in_pieces_and_is_whole() -> None:
    text = "x" * (5 << 20)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=text[int(request.url.params.get("offset", 0)) :])

    lines = list(
        follow_logs(api_of(answer), "/v1/benchmarks/b", False, "stderr", 1, lambda _: None)
    )
    assert "".join(lines) == text
    assert max(map(len, lines)) < 2 << 20


@pytest.mark.parametrize("event", ["data: " + "x" * (3 << 20), "data: " + "[" * 200_000 + "\n\n"])
def test_an_event_without_an_end_or_that_nests_is_no_traceback(event: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("events"):
            return httpx.Response(200, json={"status": "running"}) if asked else ended
        asked.append(request)
        if request.headers["Accept"] != "text/event-stream":
            return httpx.Response(200, json={"items": []})
        asked.clear()
        return found

    asked: list[httpx.Request] = []
    ended = httpx.Response(404)
    found = httpx.Response(200, text=event, headers={"Content-Type": "text/event-stream"})
    events = follow_events(api_of(answer), "/v1/benchmarks/b", True, lambda _: None)
    if event.endswith("\n"):
        assert list(events) == []
    else:
        with pytest.raises(ApiError, match="far too long"):
            list(events)


def test_of_an_endless_refusal_only_the_beginning_is_shown() -> None:
    error = {"pointer": "/" + "p" * 10**6, "reason": "r" * 10**6, "accepted": "a" * 10**6}
    others = [{"pointer": "/a", "reason": "b"}] * 2000
    text = json.dumps({"code": "c" * 10**6, "detail": "d" * 10**6, "errors": [error, *others]})
    with pytest.raises(ApiError) as raised:
        api_of(lambda _: httpx.Response(400, text=text)).get("/v1/x")
    assert len(raised.value.errors) == http.MAX_ERRORS
    assert len(str(raised.value)) < 100_000
    for shown in (raised.value.code, raised.value.detail, raised.value.errors[0].reason):
        assert len(shown) == http.MAX_ERROR_TEXT + len("...")


def test_a_redirection_is_not_followed_and_says_where_it_leads() -> None:
    """The token is for the server that was named; many proxies lead from http to https."""
    there = {"Location": "https://server/v1/boards"}
    with pytest.raises(ApiError, match="answered 301: it leads to https://server/v1/boards; is"):
        api_of(lambda request: httpx.Response(301, headers=there)).get("/v1/boards")
    with pytest.raises(ApiError, match="answered 304"):
        api_of(lambda request: httpx.Response(304)).get("/v1/boards")


@pytest.mark.parametrize("errors", [5, {"a": 1}, "no", [3, None], None])
def test_a_refusal_with_odd_errors_is_a_sentence(errors: object) -> None:
    answer = httpx.Response(422, json={"detail": "refused", "errors": errors})
    with pytest.raises(ApiError, match="refused"):
        api_of(lambda request: answer).get("/v1/boards")
