"""Style sheet and scripts of the pages, under URLs that change with their content."""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
from functools import cache

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.figures.svg import FIGURE_STYLE
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.errors import NotFound

router = PageRouter()

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"


def url(name: str) -> str:
    """Return the URL of a file; it names the content, so that browsers may keep it for ever."""
    return f"/ui/static/{_digest(name)}/{name}"


@router.get("/ui/static/{digest}/{name}")
def asset(request: Request, digest: str, name: str) -> Response:
    """A style sheet or script."""
    files = _files()
    if name not in files or digest != _digest(name):
        raise NotFound("file", name)
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
    body = files[name]
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = _compressed(name), "gzip"
    return Response(body, media_type=media_type, headers=headers)


@cache
def _files() -> dict[str, bytes]:
    folder = importlib.resources.files("edgeyard.templates.pages") / "static"
    files = {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _MEDIA_TYPES
    }
    files["edgeyard.css"] += FIGURE_STYLE.encode()
    return files


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_files()[name], mtime=0)


@cache
def _digest(name: str) -> str:
    return hashlib.sha256(_files()[name]).hexdigest()[:16]
