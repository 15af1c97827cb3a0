"""A body as a tree of plain values: JSON or YAML, whatever was sent.

Nothing that leaves here can make a database, a JSON writer or a log stumble: no NaN, no infinity,
no lone surrogate, no integer beyond 64 bits, no depth or width without end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic_core
import yaml

from edgeyard.devices.runner.json_text import repeated_key
from edgeyard.errors import EdgeyardError, InvalidInput

MAX_DEPTH = 32
MAX_NODES = 100_000
"""A megabyte of YAML with aliases can name billions of values."""

MAX_QUICK_NODES = 20_000
"""Values of a body that is read while others wait for a thread: a few hundredths of a second."""

MAX_YAML_BYTES = 256 * 1024
MAX_YAML_EVENTS = 20_000
"""A campaign of thousands of members fits; reading so many takes a few tenths of a second."""

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")

_INT64 = 2**63


class WrongMediaType(EdgeyardError):
    """The body's Content-Type is none that is read here."""

    def __init__(
        self,
        given: str,
        accepted: str = "application/json (curl: -H 'Content-Type: application/json') or "
        "application/yaml",
    ) -> None:
        super().__init__(f"Content-Type {given[:100]!r} is not read here: send {accepted}")


def read_document(
    data: bytes, content_type: str = "application/json", max_nodes: int = MAX_NODES
) -> dict[str, object]:
    """Read a job description: the one kind of body that people write by hand, as JSON or YAML.

    Args:
        content_type: As sent; "" counts as JSON.
        max_nodes: Maximum number of values of JSON; YAML has fewer anyway.

    Raises:
        InvalidInput: It can't be read, holds what can't be kept, or is no object.
        WrongMediaType: Neither JSON nor YAML.
    """
    if _media_type(content_type) in _YAML:
        return _object(read_yaml(data))
    return read_object(data, content_type, max_nodes)


def read_object(
    data: bytes, content_type: str = "application/json", max_nodes: int = MAX_NODES
) -> dict[str, object]:
    """Read a body that holds a JSON object.

    Args:
        content_type: As sent; "" counts as JSON.
        max_nodes: Maximum number of values.

    Raises:
        InvalidInput: As `read_document`.
        WrongMediaType: Not JSON.
    """
    check_json_type(content_type)
    return _object(read_json(data, max_nodes))


def check_json_type(content_type: str) -> None:
    """Check that a body is declared as JSON; "" counts as JSON.

    Raises:
        WrongMediaType: It is not.
    """
    media = _media_type(content_type)
    if media not in ("", "application/json") and not (
        media.startswith("application/") and media.endswith("+json")
    ):
        raise WrongMediaType(media)


def _media_type(content_type: str) -> str:
    return content_type.split(";", 1)[0].strip().lower()


def _object(tree: object) -> dict[str, object]:
    if not isinstance(tree, dict):
        raise InvalidInput.at("", "the body is not an object", "an object with named fields")
    return tree


def read_json(data: bytes, max_nodes: int = MAX_NODES) -> object:
    """Strict JSON: no NaN, no Infinity, no number that overflows, UTF-8 only.

    Args:
        max_nodes: Maximum number of values.

    Raises:
        InvalidInput: With the place of the mistake, never with what was sent.
    """
    check_counts(data, values=max_nodes, objects=max_nodes, accepted=f"at most {max_nodes}")
    tree = parse_json(data)
    check_tree(tree)
    return tree


_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A text, also one without an end, so that its end is not looked for once more at each quote."""


def check_counts(data: bytes, *, values: int, objects: int, accepted: str) -> None:
    """Refuse JSON with too many values before any of them is built.

    Each value follows a comma or opens its list or object, so that counting those in the text,
    which takes a thousandth of the time, counts the values.

    Raises:
        InvalidInput: There are more than that many values, or objects.
    """
    if not _counts_over(data, values, objects):
        return
    # What is in texts was counted too, which most bodies have room for.
    bare = _TEXT.sub(b"0", data.translate(None, b" \t\r\n"))
    if _counts_over(bare, values, objects):
        raise InvalidInput.at("", "holds too many values", accepted)


def _counts_over(text: bytes, values: int, objects: int) -> bool:
    braces, brackets = text.count(b"{"), text.count(b"[")
    opened = braces + brackets - text.count(b"{}") - text.count(b"[]")
    return 1 + text.count(b",") + opened > values or braces > objects


def parse_json(data: bytes) -> object:
    """Return the value of strict JSON, of any size and depth that the parser takes.

    Raises:
        InvalidInput: It is not JSON, or an object in it has a key twice.
    """
    try:
        tree: object = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidInput.at("", f"is not valid JSON: {error}", "JSON as of RFC 8259") from None
    refuse_repeated_keys(data)
    return tree


def refuse_repeated_keys(data: bytes) -> None:
    """Refuse JSON in which an object has a key twice: parsers drop one of the two.

    Raises:
        InvalidInput: With the pointer of the key.
    """
    if (path := repeated_key(data)) is not None:
        raise InvalidInput.at(pointer(path), "is given twice", "each key once")


def parse_object(data: bytes, content_type: str) -> dict[str, object]:
    """Return a large JSON object: as `read_object`, without bounds on the tree.

    The caller converts the tree to a shape whose depth is bounded.

    Raises:
        InvalidInput: It is not a JSON object.
        WrongMediaType: It is not declared as JSON.
    """
    check_json_type(content_type)
    return _object(parse_json(data))


def read_yaml(data: bytes) -> object:
    """Read YAML of plain values; times stay text, as in JSON.

    The events of the text are checked before a value is built, because the full language lets a few
    hundred bytes cost minutes: merge keys, tags and long or deep documents are refused. So is a key
    that is there twice.

    Raises:
        InvalidInput: As `read_json`.
    """
    if len(data) > MAX_YAML_BYTES:
        raise InvalidInput.at(
            "", "is too long for YAML", f"at most {MAX_YAML_BYTES} bytes; longer ones as JSON"
        )
    try:
        _check_events(data)
        tree = yaml.load(data, _PlainLoader)  # a SafeLoader
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark is not None else ""
        problem = str(getattr(error, "problem", None) or "it can't be read")[:200]
        raise InvalidInput.at("", f"is not valid YAML{place}: {problem}", "YAML 1.1") from None
    check_tree(tree)
    return tree


def _check_events(data: bytes) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(data, _PlainLoader)):
        if count >= MAX_YAML_EVENTS:
            raise InvalidInput.at("", "holds too many values for YAML", "fewer values, or JSON")
        line = event.start_mark.line + 1 if event.start_mark else 0
        if getattr(event, "tag", None) is not None:
            raise InvalidInput.at("", f"has a tag at line {line}", "YAML without tags (!…)")
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            raise InvalidInput.at("", f"has a merge key at line {line}", "YAML without <<")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InvalidInput.at("", f"is nested too deeply at line {line}", f"{MAX_DEPTH} levels")


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Gives the values that the same text has in JSON: times are text, and there is no base 60."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice, of which the last one would count."""
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            text = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else ("", "")
            if text in seen and any(text):
                problem = f"the key {text[1][:100]!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(text)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_RESOLVED = {
    "tag:yaml.org,2002:int": re.compile(f"(?:{_INT.pattern})$"),
    "tag:yaml.org,2002:float": re.compile(f"(?:{_FLOAT.pattern})$"),
}
_NOT_RESOLVED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")
_PlainLoader.yaml_implicit_resolvers = {
    key: [
        (tag, _RESOLVED.get(tag, pattern)) for tag, pattern in resolvers if tag not in _NOT_RESOLVED
    ]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def check_tree(tree: object) -> None:
    """Refuse what no JSON answer, database or log could carry.

    Raises:
        InvalidInput: With the pointer of the first such value.
    """
    nodes = 1
    stack: list[tuple[object, tuple[str, ...]]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        # Counted before they are gathered: a megabyte holds half a million values.
        count = len(node) if isinstance(node, Mapping | list) else 0
        nodes += count
        if nodes > MAX_NODES:
            raise InvalidInput.at("", "holds too many values", f"at most {MAX_NODES}")
        if len(path) + bool(count) > MAX_DEPTH:
            raise InvalidInput.at(pointer(path[:3]), "is nested too deeply", f"{MAX_DEPTH} levels")
        items: Iterable[tuple[object, object]] = ((None, node),)
        if isinstance(node, Mapping):
            if any(not isinstance(key, str) or _scalar_problem(key) for key in node):
                raise InvalidInput.at(pointer(path), "has a key that is not plain text", "text")
            items = node.items()
        elif isinstance(node, list):
            items = enumerate(node)
        for key, value in items:
            if isinstance(value, dict | list):
                stack.append((value, (*path, str(key))))
            elif reason := _scalar_problem(value):
                whole = path if key is None else (*path, str(key))
                raise InvalidInput.at(pointer(whole), reason[0], reason[1])


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
