"""Getting results to the server, again and again until they are safe there."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any, Callable, Mapping, Optional
from urllib.parse import quote

from edgeyard.devices.runner.result import sha256_of

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
CALL_TIMEOUT_S = 60.0
"""Timeout of one socket operation, not of the whole upload."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_DAMAGED = 400
_DAMAGED_TRIES = 3
"""The server found another hash: the way there damaged the body, or our file is damaged."""

_BLOCK = 256 * 1024


class UploadRefused(Exception):
    """The server has refused a file for good; a repetition would be refused too."""

    def __init__(self, name: str, code: int, reason: str) -> None:
        self.code = code
        super().__init__(f"the server refused {name}: {code} {reason}")


class UploadTimedOut(Exception):
    """The file is still not safe, and time is up."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} could not be uploaded in time: {reason}")


@dataclass(frozen=True, kw_only=True)
class Uploader:
    """Puts files under one URL.

    Attributes:
        url: Folder URL, with a slash at its end.
        token: Bearer token; None on networks that need none.
        give_up_after_s: Over all files.
    """

    url: str
    token: Optional[str]
    give_up_after_s: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def deadline(self) -> float:
        """Return the time of ``clock`` at which an upload that begins now is given up."""
        return self.clock() + self.give_up_after_s

    def put(self, path: Path, deadline: float) -> None:
        """Upload one file from the disk; returns when the server has it safe.

        Raises:
            UploadRefused: Trying again would not help.
            UploadTimedOut: It is past ``deadline``; the file is still on the disk.
        """
        digest, size = sha256_of(path), path.stat().st_size
        pause_s, damaged = FIRST_PAUSE_S, 0
        while True:
            wait_s = 0.0
            try:
                code, reason, wait_s = self._once(path, digest, size)
                if 200 <= code < 300:
                    return
                damaged += code == _DAMAGED
                if code not in _AGAIN and not (code == _DAMAGED and damaged < _DAMAGED_TRIES):
                    raise UploadRefused(path.name, code, reason)
                problem = f"{code} {reason}"
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
            wait_s = max(wait_s, pause_s * random.uniform(0.5, 1.0))
            if self.clock() + wait_s >= deadline:
                raise UploadTimedOut(path.name, problem)
            logger.warning(
                "An upload did not succeed; it will be tried again: %s",
                problem,
                extra={"event": "upload_retry", "file": path.name, "wait_s": wait_s},
            )
            self.sleep(wait_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _once(self, path: Path, digest: str, size: int) -> "tuple[int, str, float]":
        with path.open("rb") as file:
            request = urllib.request.Request(
                self.url + quote(path.name),
                data=_Blocks(file),
                method="PUT",
                headers={
                    **authorization(self.token),
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(size),
                    "X-Content-SHA256": digest,
                },
            )
            try:
                with opener().open(request, timeout=CALL_TIMEOUT_S) as answer:
                    answer.read()
                    return answer.status, answer.reason, 0.0
            except urllib.error.HTTPError as error:
                with error:
                    reason = error.read(2000).decode("utf-8", "replace") or str(error.reason)
                    return error.code, reason, _retry_after_s(error.headers)


def authorization(token: Optional[str]) -> Mapping[str, str]:
    """Return the header that proves that we may."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def post_json(
    url: str, token: Optional[str], body: Mapping[str, object], *, timeout_s: float
) -> None:
    """Send something to the server, once.

    Raises:
        OSError: It did not get there, or was refused.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={**authorization(token), "Content-Type": "application/json"},
        method="POST",
    )
    try:
        with opener().open(request, timeout=timeout_s) as answer:
            answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from error


def opener() -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirect, because a redirect would receive the token."""
    return urllib.request.build_opener(_NoRedirect(), _Http(), _Https())


class _Blocks:
    """Reads a file in larger blocks than the 8 KiB that http.client asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, _: int = -1) -> bytes:
        return self._file.read(_BLOCK)


class _EarlyAnswer:
    """A server that refuses answers before it has read the body, and closes: hear it out."""

    def request(self, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().request(*args, **kwargs)  # type: ignore[misc]  # mixed into a connection


class _HttpConnection(_EarlyAnswer, http.client.HTTPConnection):
    pass


class _HttpsConnection(_EarlyAnswer, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


def _retry_after_s(headers: Optional[Message]) -> float:
    value = headers.get("Retry-After", "") if headers is not None else ""
    return min(float(value), MAX_PAUSE_S) if value.isdigit() else 0.0
