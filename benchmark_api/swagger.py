"""Swagger UI of an app, served by itself: nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import importlib.resources

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

from edgeyard.errors import NotFound


def install(app: FastAPI) -> None:
    """Serve Swagger UI at ``/docs``; the routes are not in the schema."""

    @app.get("/docs", include_in_schema=False)
    def reference() -> Response:
        return page(app.title)

    @app.get("/docs/{name}", include_in_schema=False)
    def reference_part(name: str) -> Response:
        return part(name)


def page(title: str) -> Response:
    """Return the page, which refers to its parts and to ``openapi.json`` next to it."""
    text = _PAGE.format(title=html.escape(title))
    return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})


def part(name: str) -> Response:
    """Return a script or the style sheet of the page.

    Raises:
        NotFound: It has no such part.
    """
    if name == "start.js":
        return Response(_START, media_type="text/javascript")
    if name not in _PARTS:
        raise NotFound("file", name)
    path = importlib.resources.files("fastapi_offline") / "static" / name
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(path.read_bytes(), media_type=_PARTS[name], headers=headers)


_PARTS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
_START = """\
SwaggerUIBundle({
  url: "openapi.json", dom_id: "#page", deepLinking: true, docExpansion: "none", filter: true,
  validatorUrl: null, persistAuthorization: false,
});
"""
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width'><title>{title}</title>"
    "<link rel=stylesheet href=docs/swagger-ui.css><div id=page></div>"
    "<script src=docs/swagger-ui-bundle.js></script><script src=docs/start.js></script>"
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
