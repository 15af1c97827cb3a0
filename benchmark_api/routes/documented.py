"""What routes say of themselves in ``/openapi.json``."""

from __future__ import annotations

from typing import Any

_SCHEMAS = "#/components/schemas/"

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "Something is wrong with the request.",
        "content": {"application/problem+json": {"schema": {"$ref": _SCHEMAS + "Problem"}}},
    },
    "5XX": {
        "description": "Something is wrong with the service.",
        "content": {"application/problem+json": {"schema": {"$ref": _SCHEMAS + "Problem"}}},
    },
}
"""On every route."""


def content(status: int, media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    """Describe an answer that is not JSON, for OpenAPI."""
    return {
        status: {
            "description": description,
            "content": {media_type: {"schema": {"type": "string"}}},
        }
    }


def no_body(status: int, description: str) -> dict[int | str, dict[str, Any]]:
    """Describe an answer without a body, for OpenAPI."""
    return {status: {"description": description}}


def accepts(schema: str, *, required: bool = True) -> dict[str, Any]:
    """Describe a JSON body; ``schema`` names a component."""
    return _body({"$ref": _SCHEMAS + schema}, ["application/json"], required)


def accepts_document(schema: str | None) -> dict[str, Any]:
    """Describe a body in JSON or YAML; ``schema`` names a component, None allows any object."""
    shape = {"$ref": _SCHEMAS + schema} if schema else {"type": "object"}
    return _body(shape, ["application/json", "application/yaml"], True)


def _body(shape: dict[str, Any], media_types: list[str], required: bool) -> dict[str, Any]:
    return {
        "requestBody": {
            "required": required,
            "content": {media_type: {"schema": shape} for media_type in media_types},
        }
    }


def accepts_files() -> dict[str, Any]:
    """Describe a form with files in the field ``file``."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "properties": {"file": {"type": "string", "format": "binary"}},
                    }
                }
            },
        }
    }


def accepts_bytes() -> dict[str, Any]:
    """Describe a body of raw bytes."""
    shape = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {"application/octet-stream": shape}}}


def accepts_offset_bytes() -> dict[str, Any]:
    """Describe a body of raw bytes of the protocol tus."""
    shape = {"schema": {"type": "string", "format": "binary"}}
    content = {"application/offset+octet-stream": shape}
    return {"requestBody": {"required": True, "content": content}}


def accepts_fields(
    *texts: str, files: tuple[str, ...] = (), required: bool = True
) -> dict[str, Any]:
    """Describe a form with required texts and optional files."""
    shape = {
        "type": "object",
        "required": list(texts),
        "properties": {name: {"type": "string"} for name in texts}
        | {name: {"type": "string", "format": "binary"} for name in files},
    }
    return {
        "requestBody": {
            "required": required,
            "content": {"multipart/form-data": {"schema": shape}},
        }
    }
