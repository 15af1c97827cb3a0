"""Bounds on connections: half a request, or half a body, holds one for a stated time only.

Uvicorn waits without bound for the rest of a request's head, so that a thousand sockets that send
half a line use up the process's file descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgeyard.errors import ConfigError

logger = logging.getLogger(__name__)

HEAD_S = 10.0
"""Maximum time for the head of a request, from its first byte or the connection's start, s."""

BODY_STEP_S = 60.0
"""Maximum time for the next `BODY_STEP_BYTES` of a body, or its end, seconds."""

BODY_STEP_BYTES = 64 * 1024
"""Bytes that have to arrive in `BODY_STEP_S`: slower senders would hold connections for hours."""

DRAIN_S = 10.0
"""Maximum time for the rest of a body whose request has been answered already, seconds."""

_OTHER_DESCRIPTORS = 256
"""File descriptors that are left for files, the database and calls to the cluster."""


class BoundedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with bounds; `bounded_protocol` makes one for a server."""

    max_connections: ClassVar[int]
    head_s: ClassVar[float]
    body_step_s: ClassVar[float]
    body_step_bytes: ClassVar[int]
    drain_s: ClassVar[float]
    unheard: ClassVar[dict[BoundedProtocol, None]]
    """Connections that have not sent a whole head yet, oldest first."""
    idle: ClassVar[dict[BoundedProtocol, None]]
    """Connections between two requests, the one that has been idle for longest first."""

    _timer: asyncio.TimerHandle | None = None
    _awaited: str | None = None
    _step_bytes: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the oldest connection that has no request, if this one is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            evicted = next(iter(self.unheard), None) or next(iter(self.idle), self)
            evicted._forget()
            evicted.transport.abort()
            if evicted is self:
                return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what is kept for the connection."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and bound the wait for what is still missing."""
        super().data_received(data)
        self._step_bytes += len(data)
        self._bound_wait()

    def on_response_complete(self) -> None:
        """Go on to the next request, which may have arrived before the answer to this one."""
        super().on_response_complete()
        self._bound_wait()

    def _bound_wait(self) -> None:
        """Start the timer of what the connection waits for now."""
        state = self.conn.their_state
        if self.transport.is_closing():
            self._forget()
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            if self._awaited != "head":  # the timer of one head is never started again
                self._await_head()
        elif state is h11.IDLE:
            self._forget()
            self.idle[self] = None
            if self.timeout_keep_alive_task is None:  # the drained body stopped it
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
        elif state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            if self._awaited != "drain":
                self._await("drain", self.drain_s)
        elif state is h11.SEND_BODY:
            if self._awaited != "body" or self._step_bytes >= self.body_step_bytes:
                self._await("body", self.body_step_s)
        else:
            self._forget()

    def _await_head(self) -> None:
        self._await("head", self.head_s)
        self.unheard[self] = None

    def _await(self, part: str, bound_s: float) -> None:
        self._forget()
        self._step_bytes = 0
        self._awaited = part
        self._timer = self.loop.call_later(bound_s, self._too_slow, part)

    def _forget(self) -> None:
        self.unheard.pop(self, None)
        self.idle.pop(self, None)
        self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, part: str) -> None:
        if part == "body" and self.flow.read_paused:  # it is we who do not read on
            self._await(part, self.body_step_s)
            return
        logger.info(
            "connection given up", extra={"event": "connection.too_slow", "waiting_for": part}
        )
        self._forget()
        self.transport.abort()


def bounded_protocol(
    max_connections: int,
    *,
    head_s: float = HEAD_S,
    body_step_s: float = BODY_STEP_S,
    body_step_bytes: int = BODY_STEP_BYTES,
    drain_s: float = DRAIN_S,
) -> type[BoundedProtocol]:
    """Make the protocol of one server.

    Args:
        max_connections: When there are more, the oldest that has not sent a request is closed, or
            otherwise the one that has been idle for longest since its last one.
        head_s: Bound on receiving the head of a request.
        body_step_s: Bound on receiving the next ``body_step_bytes`` of a body, or its end.
        body_step_bytes: What starts that bound again; less means that the sender is too slow.
        drain_s: Bound on receiving the rest of a body after its request was answered.
    """
    return type(
        "ServerProtocol",
        (BoundedProtocol,),
        {
            "max_connections": max_connections,
            "head_s": head_s,
            "body_step_s": body_step_s,
            "body_step_bytes": body_step_bytes,
            "drain_s": drain_s,
            "unheard": {},
            "idle": {},
        },
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; port 0: a free one.

    Raises:
        ConfigError: The address can't be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol named: asyncio sets TCP_NODELAY only then, and each answer saves 40 ms by it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            [
                f"can't listen on {host}:{port}: {error.strerror}; another address is set with "
                "--host and --port"
            ]
        ) from error
    return listener


def raise_descriptor_limit(wanted: int) -> int:
    """Let this process open as many files as it may.

    Args:
        wanted: Connections that should fit.

    Returns:
        Connections that do fit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(1, soft - _OTHER_DESCRIPTORS))
