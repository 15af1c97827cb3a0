"""Uploads that go on where they broke off, by the protocol tus 1.0.0 (https://tus.io).

The server finds an upload again by the hash of its content, so that nothing has to be remembered
here: a new process goes on as well.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from edgeyard.benchmark_api.sdk.errors import ApiError, ServerNotReached
from edgeyard.benchmark_api.sdk.http import MAX_WAIT_S, TRIES, Api, delay_s
from edgeyard.errors import InvalidInput

RESUME_FROM_BYTES = 8 * 2**20
"""Smaller files are sent in one request."""

REQUEST_BYTES = 64 * 2**20
"""Bytes of one request: proxies that collect requests before they pass them on lose no more."""

_BLOCK_BYTES = 2**18
_TIMEOUT_S = 900.0
"""After the last byte the server puts the pieces together, which takes as long as its disk does."""

_TUS = {"Tus-Resumable": "1.0.0"}
# 404: it has ended, or is too old; 409: another process has sent a piece of it
_RETRIED = frozenset({404, 409, 429, 502, 503, 504})


def send_resumable(
    api: Api,
    path: Path,
    sha256: str,
    is_known: Callable[[], bool],
    on_sent: Callable[[int], object] | None,
    sleep: Callable[[float], None],
) -> None:
    """Send a file, from where an earlier try ended.

    It is tried again as long as that brings the upload further.

    Args:
        api: Of the server.
        path: The file.
        sha256: Of its content.
        is_known: Asks whether the server has the whole content.
        on_sent: Receives the number of bytes that the server has, or that were sent.
        sleep: Waits between tries.

    Raises:
        InvalidInput: The file becomes shorter meanwhile.
        ApiError: The server refuses it.
        ServerNotReached: It does not answer any more.
    """
    size_bytes = path.stat().st_size
    report = on_sent or (lambda sent: None)
    where, offset = _begin(api, path.name, size_bytes, sha256)
    failures = 0
    done = False
    while not done:
        report(offset)
        try:
            offset, done = _send(api, where, path, offset, size_bytes, report)
            failures = 0
        except (ApiError, ServerNotReached) as error:
            failures += 1
            wait_s = max(getattr(error, "retry_after_s", None) or 0.0, delay_s(failures))
            refused = isinstance(error, ApiError) and error.status not in _RETRIED
            if refused or failures >= TRIES or wait_s > MAX_WAIT_S:
                raise
            sleep(wait_s)
            if is_known():  # the answer was lost, or another process has sent it
                return
            where, found = _begin(api, path.name, size_bytes, sha256)
            failures = 0 if found > offset else failures
            offset = found
    report(size_bytes)


def _send(
    api: Api,
    where: str,
    path: Path,
    offset: int,
    size_bytes: int,
    report: Callable[[int], object],
) -> tuple[int, bool]:
    """Send one request; return how much the server has then, and whether it has the file."""
    end = min(size_bytes, offset + REQUEST_BYTES)
    headers = {
        **_TUS,
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(end - offset),
    }
    answer = api.request(
        "PATCH",
        where,
        headers=headers,
        make_body=lambda: {"content": _blocks(path, offset, end, report)},
        tries=1,
        timeout_s=_TIMEOUT_S,
    )
    return int(answer.headers["Upload-Offset"]), "Location" in answer.headers


def _begin(api: Api, name: str, size_bytes: int, sha256: str) -> tuple[str, int]:
    """Return the path of the upload, new or begun before, and its offset."""
    metadata = {"filename": name, "sha256": sha256}
    headers: Mapping[str, str] = {
        **_TUS,
        "Upload-Length": str(size_bytes),
        "Upload-Metadata": ",".join(f"{key} {_base64(value)}" for key, value in metadata.items()),
    }
    answer = api.request("POST", "/v1/uploads", headers=headers, idempotent=True)
    path = urlsplit(answer.headers["Location"]).path
    return path[path.index("/v1/uploads/") :], int(answer.headers["Upload-Offset"])


def _blocks(path: Path, offset: int, end: int, report: Callable[[int], object]) -> Iterator[bytes]:
    """Yield a part of a file.

    Raises:
        InvalidInput: It ends earlier.
    """
    with path.open("rb") as file:
        file.seek(offset)
        while offset < end:
            block = file.read(min(_BLOCK_BYTES, end - offset))
            if not block:
                raise InvalidInput.at("/file", f"{path} became shorter while it was sent")
            yield block
            offset += len(block)
            report(offset)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
