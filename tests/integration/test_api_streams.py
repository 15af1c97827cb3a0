"""Events as they happen, and logs as they grow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.ports import LogChunk
from tests.builders.api import Api, running


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


SSE = {"Accept": "text/event-stream"}


def events_of(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, object]]]:
    number = 0
    for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            yield number, json.loads(line[6:])


def test_events_come_live_until_the_end(api: Api) -> None:
    benchmark_id = api.submit()
    path = f"/v1/benchmarks/{benchmark_id}/events"
    with api.as_().stream("GET", path, headers=SSE) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = events_of(stream.iter_lines())
        assert next(events)[1]["kind"] == "benchmark.submitted"
        api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/hold")
        assert next(events)[1]["kind"] == "benchmark.held"
        assert next(events)[1]["kind"] == "benchmark.waiting"
        api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/cancel")
        number, last = next(events)
        assert last["data"]["status"] == "cancelled"  # type: ignore[index]
        assert last["seq"] == number
        assert list(events) == []  # the stream ends by itself


def test_a_reader_resumes_after_its_last_event(api: Api) -> None:
    benchmark_id = api.submit()
    path = f"/v1/benchmarks/{benchmark_id}/events"
    for action in ("hold", "release", "cancel"):
        api.as_().post(f"/v1/benchmarks/{benchmark_id}/{action}")
    everything = api.as_().get(path).json()["items"]
    assert len(everything) == 5  # a hold is a reason of waiting, too
    second = str(everything[1]["seq"])
    with api.as_().stream("GET", path, headers={**SSE, "Last-Event-ID": second}) as stream:
        rest = [event for _, event in events_of(stream.iter_lines())]
    assert rest == everything[2:]
    page = api.as_().get(path, params={"after": second, "limit": 1}).json()
    assert page == {"items": everything[2:3], "next_after": everything[2]["seq"]}
    last = str(everything[-1]["seq"])
    with api.as_().stream("GET", path, headers={**SSE, "Last-Event-ID": last}) as stream:
        assert list(stream.iter_lines()) == []


def test_events_of_other_users_benchmarks_are_not_streamed(api: Api) -> None:
    mine, other = api.submit(), api.submit()
    assert api.as_("bob").get(f"/v1/benchmarks/{mine}/events", headers=SSE).status_code == 404
    with api.as_().stream("GET", f"/v1/benchmarks/{mine}/events", headers=SSE) as stream:
        events = events_of(stream.iter_lines())
        next(events)
        api.as_("operator").post(f"/v1/benchmarks/{other}/cancel")
        api.as_("operator").post(f"/v1/benchmarks/{mine}/cancel")
        heard = [event["benchmark_id"] for _, event in events]
    assert heard == [mine]


def test_many_listeners_get_each_event_once_under_load(api: Api) -> None:
    benchmark_id = api.submit()
    heard: list[list[int]] = []

    def listen() -> None:
        with (
            httpx.Client(base_url=api.url, verify=False, trust_env=False, timeout=30) as client,
            client.stream(
                "GET",
                f"/v1/benchmarks/{benchmark_id}/events",
                headers={**SSE, "Authorization": f"Bearer {api.tokens['alice']}"},
            ) as stream,
        ):
            heard.append([number for number, _ in events_of(stream.iter_lines())])

    threads = [threading.Thread(target=listen) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(30):
        with api.store.write() as uow:
            lifecycle.hold(uow, benchmark_id, api.clock.now(), "alice", number % 2 == 0)
    api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/cancel")
    for thread in threads:
        thread.join(30)
    everything = [
        event["seq"]
        for event in api.as_().get(f"/v1/benchmarks/{benchmark_id}/events").json()["items"]
    ]
    assert len(everything) == 32 + 15  # a hold is a reason of waiting, too
    assert heard == [everything] * 8


class GrowingLog:
    """A log that has more at each look, then ends."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.text = b""

    def __call__(self, job_id: str, stream: str, offset: int) -> LogChunk:
        if self.parts:
            self.text += self.parts.pop(0)
        return LogChunk(data=self.text[offset:], next_offset=len(self.text), ended=not self.parts)


def test_a_log_is_read_from_an_offset_and_followed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    path = f"/v1/benchmarks/{benchmark_id}/logs"
    monkeypatch.setattr(api.cluster, "logs", GrowingLog(b"one\n", b"two\n"))
    first = api.as_().get(path)
    assert (first.text, first.headers["x-next-offset"]) == ("one\n", "4")
    second = api.as_().get(path, params={"offset": 4})
    assert (second.text, second.headers["x-log-ended"]) == ("two\n", "1")
    monkeypatch.setattr(api.cluster, "logs", GrowingLog(b"a", b"", b"b", b"c"))
    with api.as_().stream("GET", path, params={"follow": 1}) as stream:
        assert stream.headers["content-type"].startswith("text/plain")
        assert b"".join(stream.iter_raw()) == b"abc"


def test_a_log_that_the_cluster_forgot_is_the_uploaded_one(api: Api) -> None:
    benchmark_id = api.submit()
    attempt = api.dispatched(benchmark_id)
    path = f"/v1/benchmarks/{benchmark_id}/logs"
    assert api.as_().get(path).headers["x-log-ended"] == "0"  # the task has not begun
    job = attempt.job_id.removeprefix("benchmark-")
    headers = {"Authorization": "Bearer upload-token-1"}
    for name, content in (
        ("runner.log", b"measured\n"),
        ("report.json", json.dumps({"status": "ok"}).encode()),
    ):
        answer = api.as_(None).put(f"/upload/{job}/{name}", content=content, headers=headers)
        assert answer.status_code == 201
    api.ended(benchmark_id)
    assert api.as_().get(path).text == "measured\n"
    assert api.as_().get(path, params={"offset": 4}).text == "ured\n"
    assert api.as_().get(path, params={"stream": "stdout"}).text == ""
    assert api.as_().get(path, params={"follow": 1}).text == "measured\n"


@pytest.mark.parametrize("what", ["events", "logs?follow=1"])
def test_a_revoked_token_s_streams_end(
    api: Api, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    endless = LogChunk(data=b"", next_offset=0, ended=False)
    monkeypatch.setattr(api.cluster, "logs", lambda *which: endless)
    made = api.as_().post("/v1/tokens", json={}).json()
    headers = {**SSE, "Authorization": f"Bearer {made['token']}"}
    path = f"/v1/benchmarks/{benchmark_id}/{what}"
    with api.as_(None).stream("GET", path, headers=headers, timeout=60) as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        if what == "events":
            next(events_of(lines))
        assert api.as_().delete(f"/v1/tokens/{made['token_id']}").status_code == 204
        for _ in lines:
            pass  # ends by itself, although the benchmark goes on
    assert api.attempt(benchmark_id).ended_at is None
