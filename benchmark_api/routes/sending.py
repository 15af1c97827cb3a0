"""Stored content as an answer: ranges, a strong ETag, never something a browser would run."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import MutableMapping
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from edgeyard.benchmark_api.problems import problem
from edgeyard.benchmark_api.services import Services

CHUNK_BYTES = 2**20

_RANGE = re.compile(r"bytes=([0-9]{0,100})-([0-9]{0,100})", re.IGNORECASE)
_SAFE = {"Cache-Control": "private, no-transform"}


class _StoredFile(FileResponse):
    """Sent by the megabyte: at 64 KiB the thread's hop for each read costs more than the read.

    What of it is sent was decided by `_wanted`: the request's own headers are not read again.
    """

    chunk_size = CHUNK_BYTES
    part: range | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [each for each in scope["headers"] if each[0] not in (b"range", b"if-range")]
        if self.part is not None:
            headers.append((b"range", f"bytes={self.part.start}-{self.part.stop - 1}".encode()))
        changed: MutableMapping[str, Any] = {**scope, "headers": headers}
        await super().__call__(changed, receive, send)


def stored_file(request: Request, services: Services, sha256: str, name: str) -> Response:
    """Return a file of the store as a download.

    Raises:
        NotFound: The content is gone.
    """
    path = services.files.path(sha256)
    found = os.stat(path)
    part = _wanted(request, found.st_size, f'"{sha256}"')
    if part is not None and not part:
        return _unsatisfiable(found.st_size)
    sent = _StoredFile(
        path,
        media_type="application/octet-stream",
        filename=name,
        stat_result=found,
        headers={"ETag": f'"{sha256}"', **_SAFE},
    )
    sent.part = part
    return sent


def inline(request: Request, data: bytes, name: str) -> Response:
    """Return content that is no file, as a download."""
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    part = _wanted(request, len(data), tag)
    if part is not None and not part:
        return _unsatisfiable(len(data))
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": f'attachment; filename="{name}"',
        **_SAFE,
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(data)}"
        data = data[part.start : part.stop]
    return Response(
        data,
        status_code=200 if part is None else 206,
        media_type="application/octet-stream",
        headers=headers,
    )


def _wanted(request: Request, size: int, tag: str) -> range | None:
    """Return the bytes that are asked for; None: all; an empty range: none that are there.

    RFC 9110, 14.2: a malformed range is read over, several at once may be, and so must be any
    whose ``If-Range`` is not the content's own tag (13.1.5).
    """
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if match is None or request.method != "GET" or not (match[1] or match[2]):
        return None
    if request.headers.get("if-range", tag) != tag:
        return None
    if not match[1]:
        return range(max(0, size - int(match[2])), size)
    start, end = int(match[1]), int(match[2] or size)
    if match[2] and end < start:
        return None
    return range(start, min(end + 1, size))


def _unsatisfiable(size: int) -> Response:
    return problem(
        416,
        "range_not_satisfiable",
        f"the range lies outside of the content's {size} bytes",
        headers={"Content-Range": f"bytes */{size}"},
    )
