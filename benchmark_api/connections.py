"""Bounds on connections: half a request, or half a body, holds one for a stated time only.

Uvicorn waits without bound for the rest of a request's head, so that a thousand sockets that send
half a line use up the process's file descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger(__name__)

HEAD_S = 10.0
"""For the whole head of a request, from its first byte or the connection's begin."""

BODY_IDLE_S = 60.0
"""For the next bytes of a body."""

_OTHER_DESCRIPTORS = 256
"""Kept for files, the database and calls to the cluster."""


class BoundedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with bounds; `bounded_protocol` makes one for a server."""

    max_connections: ClassVar[int]
    head_s: ClassVar[float]
    body_idle_s: ClassVar[float]
    unheard: ClassVar[dict[BoundedProtocol, None]]
    """Connections that have not sent a whole head yet, oldest first."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give up the oldest connection that sent no request, if this one is one too many."""
        super().connection_made(transport)
        self.unheard[self] = None
        self._timer = self.loop.call_later(self.head_s, self._too_slow, "head")
        if len(self.connections) > self.max_connections:
            oldest = next(iter(self.unheard))
            oldest.transport.abort()
            self.unheard.pop(oldest, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and bound the wait for what is still missing."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE:
            if self._timer is None:  # the beginning of one more request on this connection
                self.unheard[self] = None
                self._timer = self.loop.call_later(self.head_s, self._too_slow, "head")
            return
        self._forget()
        if state is h11.SEND_BODY:
            self._timer = self.loop.call_later(self.body_idle_s, self._too_slow, "body")

    def _forget(self) -> None:
        self.unheard.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, part: str) -> None:
        if part == "body" and self.flow.read_paused:  # it is we who do not read on
            self._timer = self.loop.call_later(self.body_idle_s, self._too_slow, part)
            return
        logger.info(
            "connection given up", extra={"event": "connection.too_slow", "waiting_for": part}
        )
        self._forget()
        self.transport.abort()


def bounded_protocol(
    max_connections: int, *, head_s: float = HEAD_S, body_idle_s: float = BODY_IDLE_S
) -> type[BoundedProtocol]:
    """Make the protocol of one server.

    Args:
        max_connections: When there are more, the oldest that has not sent a request is closed.
        head_s: Bound on receiving the head of a request.
        body_idle_s: Bound on a pause within a body.
    """
    return type(
        "ServerProtocol",
        (BoundedProtocol,),
        {
            "max_connections": max_connections,
            "head_s": head_s,
            "body_idle_s": body_idle_s,
            "unheard": {},
        },
    )


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
