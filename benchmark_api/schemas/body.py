"""A body as a tree of plain values: JSON or YAML, whatever was sent.

Nothing that leaves here can make a database, a JSON writer or a log stumble: no NaN, no infinity,
no lone surrogate, no integer beyond 64 bits, no depth or width without end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pydantic_core
import yaml

from edgeyard.errors import EdgeyardError, InvalidInput

MAX_DEPTH = 32
MAX_NODES = 100_000
"""A megabyte of YAML with aliases can name billions of values."""

_INT64 = 2**63


class WrongMediaType(EdgeyardError):
    """The body's Content-Type is none that is read here."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"Content-Type {given[:100]!r} is not read here: send application/json"
            " (curl: -H 'Content-Type: application/json') or application/yaml"
        )


def read_body(data: bytes, content_type: str = "application/json") -> dict[str, object]:
    """The object that a body holds.

    Args:
        content_type: As sent; "" counts as JSON.

    Raises:
        InvalidInput: It can't be read, holds what can't be kept, or is no object.
        WrongMediaType: Neither JSON nor YAML.
    """
    media = content_type.split(";", 1)[0].strip().lower()
    if media in ("", "application/json") or (
        media.startswith("application/") and media.endswith("+json")
    ):
        tree = read_json(data)
    elif media in ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"):
        tree = read_yaml(data)
    else:
        raise WrongMediaType(media)
    if not isinstance(tree, dict):
        raise InvalidInput.at("", "the body is not an object", "an object with named fields")
    return tree


def read_json(data: bytes) -> object:
    """Strict JSON: no NaN, no Infinity, no number that overflows, UTF-8 only.

    Raises:
        InvalidInput: With the place of the mistake, never with what was sent.
    """
    try:
        tree = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidInput.at("", f"is not valid JSON: {error}", "JSON as of RFC 8259") from None
    check_tree(tree)
    return tree


def read_yaml(data: bytes) -> object:
    """YAML of plain values; times stay text, as in JSON.

    Raises:
        InvalidInput: As `read_json`.
    """
    try:
        tree = yaml.load(data, _PlainLoader)  # a SafeLoader
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark is not None else ""
        problem = str(getattr(error, "problem", None) or "it can't be read")[:200]
        raise InvalidInput.at("", f"is not valid YAML{place}: {problem}", "YAML 1.1") from None
    check_tree(tree)
    return tree


class _PlainLoader(yaml.SafeLoader):
    """Leaves timestamps as text, so that JSON and YAML give the same values."""


_PlainLoader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def check_tree(tree: object) -> None:
    """Refuse what no JSON answer, database or log could carry.

    Raises:
        InvalidInput: With the pointer of the first such value.
    """
    nodes = 0
    stack: list[tuple[object, tuple[str, ...]]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise InvalidInput.at("", "holds too many values", f"at most {MAX_NODES}")
        if len(path) > MAX_DEPTH:
            raise InvalidInput.at(pointer(path[:3]), "is nested too deeply", f"{MAX_DEPTH} levels")
        if isinstance(node, Mapping):
            for key, value in node.items():
                if not isinstance(key, str) or _scalar_problem(key):
                    raise InvalidInput.at(pointer(path), "has a key that is not plain text", "text")
                stack.append((value, (*path, key)))
        elif isinstance(node, list):
            stack += [(value, (*path, str(index))) for index, value in enumerate(node)]
        elif reason := _scalar_problem(node):
            raise InvalidInput.at(pointer(path), reason[0], reason[1])


def pointer(path: tuple[str | int, ...]) -> str:
    """JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(part)[:100].replace("~", "~0").replace("/", "~1") for part in path)


def _scalar_problem(value: object) -> tuple[str, str] | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        if "\x00" in value:  # PostgreSQL has no such text
            return "contains the NUL character", "text without it"
        return ("contains a lone surrogate", "Unicode text") if _has_surrogate(value) else None
    if isinstance(value, int):
        fits = -_INT64 <= value < _INT64
        return None if fits else ("is beyond 64 bits", "-2^63 to 2^63 - 1")
    if isinstance(value, float):
        return None if math.isfinite(value) else ("is not a finite number", "a finite number")
    return ("is of a kind that JSON does not have", "text, numbers, booleans, lists and objects")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
