"""Follows Nomad's event stream, and resumes it; events are only hints."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.client import CallFailed, NomadClient
from edgeyard.scheduler.model.recurring import job_of_attempt

logger = logging.getLogger(__name__)

EVERYTHING = ""

SILENCE_S = 30.0
"""Nomad sends something every 10 s; a stream that is silent for longer is half-open."""

LINE_LIMIT_BYTES = 16 << 20
"""An event carries a whole node or allocation: some 100 KiB; this is something else."""

NODE_NEWS_S = 1.0
"""Minimum time between refreshes for boards that report progress."""

NEWEST = 2**63 - 1
"""An index that is yet to come: the stream begins with the newest event instead of all that Nomad
still has in its buffer."""

_STOP_POLL_INTERVAL_S = 0.25
_JOIN_S = 5.0
_WAITING_EVENTS = 1000
_TOPICS = ("Job:*", "Allocation:*", "Node:*")
_REGISTERED = "JobRegistered"


@dataclass(slots=True)
class _Connection:
    """One reading of the stream, on a thread of its own: a read can't be interrupted otherwise.

    Attributes:
        index: To begin from; then, to go on from.
        access: How Nomad is spoken to on it.
    """

    index: int
    access: NomadAccess
    hints: queue.Queue[str] = field(default_factory=lambda: queue.Queue(_WAITING_EVENTS))
    stopping: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    socket: socket.socket | None = None
    failure: str = ""
    heard: bool = False


def follow(
    client: NomadClient,
    stop: threading.Event,
    *,
    silence_s: float = SILENCE_S,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Iterator[str]:
    """Yield ids of jobs with events; "" after each (re)connection and for events of boards.

    The buffer that Nomad resumes from is short, and events that fell out of it are lost: every new
    connection therefore begins with a look at everything.
    """
    index, failures = NEWEST, 0
    while not stop.is_set():
        connection = _Connection(index=index, access=client.access)
        reader = threading.Thread(
            target=_read, args=(client, connection, silence_s), name="nomad-events"
        )
        reader.start()
        try:
            yield from _hints(client, connection, stop, monotonic_s)
        finally:
            _end(connection, reader)
        index = connection.index
        failures = 1 if connection.heard else failures + 1
        if not stop.is_set():
            wait_s = client.policy.wait_s(failures)
            logger.info(
                "event stream ended",
                extra={"event": "events.ended", "why": connection.failure, "again_in_s": wait_s},
            )
            stop.wait(wait_s)


def _hints(
    client: NomadClient,
    connection: _Connection,
    stop: threading.Event,
    monotonic_s: Callable[[], float],
) -> Iterator[str]:
    """Yield what the reader reports, events of boards at most once a second.

    It ends with the stream, or when Nomad's address, certificates or token have changed.
    """
    news, reported_s = False, -NODE_NEWS_S
    while not stop.is_set() and client.access is connection.access:
        if news and monotonic_s() - reported_s >= NODE_NEWS_S:
            news, reported_s = False, monotonic_s()
            yield EVERYTHING
        try:
            hint = connection.hints.get(timeout=_STOP_POLL_INTERVAL_S)
        except queue.Empty:
            if connection.over.is_set() and connection.hints.empty():
                return
            continue
        if hint == EVERYTHING:
            news = True
        else:
            yield hint


def _read(client: NomadClient, connection: _Connection, silence_s: float) -> None:
    """Read the stream, on the reader's thread."""
    params = {"topic": _TOPICS, "index": str(connection.index)}
    try:
        with client.stream("/v1/event/stream", params, silence_s=silence_s) as response:
            stream = response.extensions.get("network_stream")
            if stream is not None:
                connection.socket = stream.get_extra_info("socket")
            _put(connection, EVERYTHING)
            for line in _lines(response):
                connection.heard = True
                for hint in _understood(line, connection, client.has_registered):
                    _put(connection, hint)
            connection.failure = "Nomad closed it"
    except (httpx.HTTPError, httpx.StreamError, CallFailed, EdgeyardError, ValueError) as error:
        connection.failure = f"{type(error).__name__}: {error}"
    finally:
        connection.over.set()


def _end(connection: _Connection, reader: threading.Thread) -> None:
    """End the reader, even during a read."""
    connection.stopping.set()
    deadline = time.monotonic() + _JOIN_S
    while reader.is_alive() and time.monotonic() < deadline:
        if connection.socket is not None:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
        reader.join(_STOP_POLL_INTERVAL_S)


def _put(connection: _Connection, hint: str) -> None:
    while not connection.stopping.is_set():
        try:
            connection.hints.put(hint, timeout=_STOP_POLL_INTERVAL_S)
        except queue.Full:
            continue
        return


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Yield complete lines, without one that the end of the stream cut off."""
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > LINE_LIMIT_BYTES:
            raise ValueError(f"a line of more than {LINE_LIMIT_BYTES >> 20} MiB")


def _understood(
    line: bytes, connection: _Connection, is_known: Callable[[str], bool]
) -> Iterator[str]:
    """Return what one line asks to refresh.

    Args:
        is_known: Whether the registration of a job is no news, because this process made it.

    Raises:
        ValueError: It is no JSON: the stream is not to be trusted any more.
    """
    if not line.strip():
        return
    frame = json.loads(line)
    if not isinstance(frame, Mapping):
        raise ValueError("a line that is not an object")
    index = frame.get("Index")
    if isinstance(index, int) and not isinstance(index, bool) and index > 0:
        # Taken as it comes: after a restore it goes back.
        connection.index = index + 1
    for event in frame.get("Events") or ():
        hint = _hint(event, is_known) if isinstance(event, Mapping) else None
        if hint is not None:
            yield hint


def _hint(event: Mapping[str, object], is_known: Callable[[str], bool]) -> str | None:
    topic, key, payload = event.get("Topic"), event.get("Key"), event.get("Payload")
    if topic == "Node":
        # Nomad also reports each allocation on a node here; these are distinguished below.
        return EVERYTHING if str(event.get("Type")).startswith("Node") else None
    if topic == "Job":
        job_id = _hinted(key)
        return None if event.get("Type") == _REGISTERED and is_known(job_id) else job_id
    inner = payload.get(str(topic)) if isinstance(payload, Mapping) else None
    if not isinstance(inner, Mapping):
        return EVERYTHING
    return _hinted(inner.get("JobID"))


def _hinted(job_id: object) -> str:
    return job_of_attempt(str(job_id or EVERYTHING))
