"""Stored content as an answer: ranges, a strong ETag, never something a browser would run."""

from __future__ import annotations

import hashlib
import os
import re

from fastapi.responses import FileResponse, Response

from edgeyard.benchmark_api.services import Services

CHUNK_BYTES = 2**20

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class _StoredFile(FileResponse):
    """Sent by the megabyte: at 64 KiB the thread's hop for each read costs more than the read."""

    chunk_size = CHUNK_BYTES


def stored_file(services: Services, sha256: str, name: str) -> Response:
    """A file of the store as a download.

    Raises:
        NotFound: The content is gone.
    """
    path = services.files.path(sha256)
    return _StoredFile(
        path,
        media_type="application/octet-stream",
        filename=name,
        stat_result=os.stat(path),
        headers={"ETag": f'"{sha256}"', **_SAFE},
    )


def inline(data: bytes, name: str, wanted: str | None) -> Response:
    """Content that is no file, with a single range."""
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
        "Content-Disposition": f'attachment; filename="{name}"',
        **_SAFE,
    }
    match = _RANGE.fullmatch(wanted or "")
    if match is None or not (match[1] or match[2]):
        return Response(data, media_type="application/octet-stream", headers=headers)
    if match[1]:
        start, end = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
    else:
        start, end = max(0, len(data) - int(match[2])), len(data) - 1
    if start > end:
        headers["Content-Range"] = f"bytes */{len(data)}"
        return Response(status_code=416, headers=headers)
    headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
    return Response(
        data[start : end + 1],
        status_code=206,
        media_type="application/octet-stream",
        headers=headers,
    )


_SAFE = {"Cache-Control": "private, no-transform"}
