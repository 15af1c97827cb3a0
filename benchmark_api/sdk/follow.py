"""Events and logs of a benchmark, read once or followed to its end over broken connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import httpx
import msgspec

from edgeyard.benchmark_api.schemas.answers import Event
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.errors import ApiError, NotFoundError, ServerNotReached
from edgeyard.benchmark_api.sdk.fields import Record, records, whole
from edgeyard.benchmark_api.sdk.http import Api, foreign
from edgeyard.scheduler.model.benchmark import TERMINAL

PAUSE_S = 1.0
"""Interval between requests while there is nothing to follow, and after a lost connection."""
MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line of a log or an event; its end may never come."""
MAX_RECONNECTS = 30
"""Cut connections in a row without anything new, until it is given up."""
SILENCE_S = 120.0
"""A stream that says nothing for so long is taken for dead and opened again."""

_LOG = "text/plain"

Sleep = Callable[[float], None]


class _Status(msgspec.Struct):
    """What is read of a benchmark to see whether it has ended."""

    status: str


def follow_events(api: Api, path: str, follow: bool, sleep: Sleep) -> Iterator[Event]:
    """Yield the events of a benchmark in their order.

    Args:
        api: The connection to the server.
        path: Path of the benchmark in the API.
        follow: Also yield new events until the benchmark has ended.
        sleep: Waits for a number of seconds between two tries.

    Raises:
        ServerNotReached: The connection broke more than `MAX_RECONNECTS` times in a row.
    """
    after = 0
    while True:
        page = api.page(f"{path}/events", {"after": after or None})
        items = records(page, "items")
        for item in items:
            after = max(after, whole(item, "seq") or 0)
            yield read_answer(item, Event)
        following = whole(page, "next_after")
        if not items or following is None or following < after:
            break
        after = following
    cuts = 0
    while follow:
        before = after
        try:
            for item in _server_sent(api, path, after):
                after = max(after, whole(item, "seq") or after)
                yield read_answer(item, Event)
        except ServerNotReached:
            cuts = 0 if after > before else cuts + 1
            if cuts > MAX_RECONNECTS:
                raise
        else:
            if _ended(api, path):
                return
        sleep(PAUSE_S)


def _server_sent(api: Api, path: str, after: int) -> Iterator[Record]:
    """One connection of server-sent events (WHATWG HTML, 9.2.6), from ``after`` on."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(after)} if after else {})
    with api.stream(f"{path}/events", headers=headers, timeout_s=SILENCE_S) as response:
        data: list[str] = []
        number: str = ""
        for line in _event_lines(response):
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif line.startswith("id:"):
                number = line[3:].strip()
            elif not line and data:
                item = _event("\n".join(data), number)
                if item is not None and (whole(item, "seq") or after + 1) > after:
                    yield item
                data, number = [], ""


def _event_lines(response: httpx.Response) -> Iterator[str]:
    """Yield lines of bounded length: `httpx.Response.iter_lines` waits for the end of any."""
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(_decoded, lines)
        if len(rest) > MAX_LINE_BYTES:
            raise foreign(response, "an event that is far too long")


def _event(data: str, number: str) -> Record | None:
    try:
        item = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, dict):
        return None
    if "seq" not in item and number.isdigit():
        item["seq"] = int(number)
    return item


def follow_logs(
    api: Api, path: str, follow: bool, stream: str, attempt: int | None, sleep: Sleep
) -> Iterator[str]:
    """Yield the lines of a log, without their line ends; those of over 1 MiB come in pieces.

    Args:
        api: The connection to the server.
        path: Path of the benchmark in the API.
        follow: Also yield new lines until the benchmark ends, and those of later attempts.
        stream: ``stderr`` or ``stdout``.
        attempt: Number of the attempt, from 1; None: the newest, or all in turn with ``follow``.
        sleep: Waits for a number of seconds between two tries.

    Raises:
        ServerNotReached: The connection broke more than `MAX_RECONNECTS` times in a row.
    """
    number, offset, cuts, rest = attempt, 0, 0, b""
    while True:
        if number is None and follow:
            number = _first_attempt(api, path, sleep)
            if number is None:
                return
        begin = offset
        params = {"attempt": number, "stream": stream, "offset": offset or None}
        try:
            for chunk in _log_bytes(api, path, params, follow):
                offset += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(_decoded, lines)
                while len(rest) > MAX_LINE_BYTES:
                    yield _decoded(rest[:MAX_LINE_BYTES])
                    rest = rest[MAX_LINE_BYTES:]
        except NotFoundError:
            if not follow or _ended(api, path):
                raise
        except ServerNotReached:
            cuts = 0 if offset > begin else cuts + 1
            if not follow or cuts > MAX_RECONNECTS:
                raise
        else:
            if not follow and offset > begin:
                continue  # a long log comes in pieces
            newest = _newest_attempt(api, path) if follow and attempt is None else number
            if not follow or newest != number or attempt is not None or _ended(api, path):
                if rest:
                    yield _decoded(rest)
                if newest == number:
                    return
                number, offset, rest = newest, 0, b""
                continue
        sleep(PAUSE_S)


def _log_bytes(api: Api, path: str, params: Mapping[str, object], follow: bool) -> Iterator[bytes]:
    query = {**params, "follow": 1} if follow else params
    with api.stream(f"{path}/logs", params=query, timeout_s=SILENCE_S) as response:
        if not response.headers.get("Content-Type", _LOG).startswith(_LOG):
            raise foreign(response, "what is not a log")
        yield from response.iter_bytes()


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")


def _first_attempt(api: Api, path: str, sleep: Sleep) -> int | None:
    """Return the newest attempt, waited for; None where it ended without any."""
    while True:
        newest = _newest_attempt(api, path)
        if newest is not None or _ended(api, path):
            return newest
        sleep(PAUSE_S)


def _newest_attempt(api: Api, path: str) -> int | None:
    attempts = records(api.get(path), "attempts")
    return whole(attempts[-1], "number") if attempts else None


def _ended(api: Api, path: str) -> bool:
    try:
        answer = api.get(path)
    except ApiError:
        return True
    return read_answer(answer, _Status).status in TERMINAL
