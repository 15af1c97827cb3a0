"""Paths of the HTTP API, and the objects in its answers."""

from __future__ import annotations

from collections.abc import Mapping

from edgeyard.benchmark_api.cli.output import Row


def api_path(*parts: str) -> str:
    """Return the path of a thing below ``/v1``; each part is quoted, so that an id stays one part.

    Raises:
        InvalidInput: A part is empty.
    """
    from edgeyard.benchmark_api.sdk.http import part

    return "/v1/" + "/".join(part(each) for each in parts)


def record(answer: object) -> Row:
    """Return an answer as an object; empty where it is none."""
    return answer if isinstance(answer, Mapping) else {}


def items(answer: object, name: str = "items") -> list[Row]:
    """Return the list of objects of this name in an answer; empty where there is none."""
    listed = record(answer).get(name)
    return (
        [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    )
