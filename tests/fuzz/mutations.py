"""Mutations of real files and documents as Hypothesis strategies, which shrink what they find."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

MAX_BYTES = 128 * 1024

LIES: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    -0.0,
    1e308,
    "",
    " ",
    "\x00",
    "\ud800",
    "\x1b[2J\x1b]0;x\x07",
    "\u202eevil",
    "x" * 5_000,
    "../../../etc/passwd",
    "/etc/passwd",
    "${attr.unique.hostname}",
    "{{ key `x` }}",
    "%{ for x in y }",
    'a"}\njob "x" {',
    "a\r\nSet-Cookie: x=y",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "NaN",
    "Infinity",
    "1e999",
    "٣",
    "9" * 5_000,
    [],
    {},
    [None] * 200,
    [[[[[[[[[[]]]]]]]]]],
    {"": {"": {"": None}}},
    [{"a": 1}] * 50,
)
"""Values that are seldom expected: of another type, too big, too long, or of another language."""

TOKENS: tuple[bytes, ...] = (
    b"\x00",
    b"\xff" * 8,
    b"\x80" * 10,
    b"\xff\xff\xff\xff\x0f",
    b"\x7f",
    b"<<: *a",
    b"&a [*a]",
    b"!!python/object:x",
    b"!!int ''",
    b"? ",
    b"- " * 200,
    b"{a: " * 100,
    b"[" * 500,
    b"(" * 100,
    b"((a*)*)*",
    b"{1000}",
    b"${",
    b"%{",
    b"{{",
    b"<<EOF\n",
    b"/*",
    b"\\u0000",
    b"\\ud800",
    b"\r\n\r\n",
    b'"',
    b"1e999",
    b"-0",
    b"\xed\xa0\x80",
    "٣".encode(),
    "\u202e".encode(),
)


@st.composite
def mutated_bytes(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A real file with a few bytes changed, moved, repeated, cut or spliced with another one."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from((1, 1, 2, 4, 8, 32, 256)))
        match draw(st.sampled_from(("set", "insert", "token", "cut", "repeat", "splice", "end"))):
            case "set":
                content[at : at + length] = draw(st.binary(min_size=length, max_size=length))
            case "insert":
                content[at:at] = draw(st.binary(max_size=16))
            case "token":
                content[at : at + draw(st.sampled_from((0, length)))] = draw(
                    st.sampled_from(TOKENS)
                )
            case "cut":
                del content[at : at + length]
            case "repeat":
                times = draw(st.sampled_from((2, 3, 50)))
                content[at:at] = bytes(content[at : at + length]) * times
            case "splice":
                content[at:] = draw(st.sampled_from(seeds))[at:]
            case "end":
                del content[at:]
    return bytes(content[:MAX_BYTES])


@st.composite
def mutated_tree(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A JSON document in which a few values are lies, or members are gone or doubled."""
    root: dict[str, Any] = {"": json.loads(draw(st.sampled_from(seeds)))}
    for _ in range(draw(st.integers(1, 4))):
        holder: Any = root
        key: Any = ""
        # Down a path of the tree; a container may also be replaced as a whole.
        while isinstance(node := holder[key], dict | list) and node and draw(st.integers(0, 5)):
            names = sorted(node) if isinstance(node, dict) else range(len(node))
            holder, key = node, draw(st.sampled_from(names))
        match draw(st.sampled_from(("lie", "lie", "lie", "drop", "wrap", "number", "text"))):
            case "lie":
                holder[key] = copy.deepcopy(draw(st.sampled_from(LIES)))
            case "drop" if holder is not root:
                del holder[key]
            case "wrap":
                holder[key] = draw(st.sampled_from(([node], {"x": node}, str(node)[:100])))
            case "number":
                holder[key] = draw(st.one_of(st.integers(), st.floats(allow_nan=False)))
            case _:
                holder[key] = draw(st.text(max_size=40))
    return json.dumps(root[""]).encode()[:MAX_BYTES]


def contents(seeds: Sequence[bytes], *, tree: bool) -> st.SearchStrategy[bytes]:
    """Contents of a file or message: what mutations make of seeds, and random bytes.

    Args:
        tree: Whether the seeds are JSON, whose values may be exchanged.
    """
    found = [mutated_bytes(seeds), st.binary(max_size=200), st.sampled_from(list(seeds))]
    return (
        st.one_of(mutated_tree(seeds), mutated_tree(seeds), *found) if tree else st.one_of(*found)
    )
