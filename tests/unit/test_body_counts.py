"""Bodies with too many values are refused by their text, and no others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.benchmark_api.schemas import body
from edgeyard.benchmark_api.schemas.body import check_counts
from edgeyard.errors import InvalidInput

TEXTS = st.text(st.sampled_from('ab,[]{}"\\ \n\u00e9'), max_size=8)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=20,
)


def values(tree: object) -> int:
    """How many values a tree has."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + sum(map(values, inner))


def objects(tree: object) -> int:
    """How many of them are objects."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return isinstance(tree, dict) + sum(map(objects, inner))


@given(TREES, st.sampled_from([None, 2]), st.booleans())
def test_exactly_what_has_more_values_is_refused(
    tree: object, indent: int | None, ascii_only: bool
) -> None:
    data = json.dumps(tree, indent=indent, ensure_ascii=ascii_only).encode()
    count, number = values(tree), objects(tree)
    check_counts(data, values=count, objects=number, accepted="fewer")
    with pytest.raises(InvalidInput, match="too many values"):
        check_counts(data, values=count - 1, objects=number, accepted="fewer")
    if number:
        with pytest.raises(InvalidInput, match="too many values"):
            check_counts(data, values=count, objects=number - 1, accepted="fewer")


def test_no_value_of_a_body_with_too_many_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[bytes] = []
    monkeypatch.setattr(body, "parse_json", built.append)
    with pytest.raises(InvalidInput, match="too many values"):
        body.read_json(b"[" + b"0," * body.MAX_NODES + b"0]")
    assert not built


@pytest.mark.parametrize("unit", [b'"', b'\\"', b'"\\"', b'",', b"\\", b'"\\\\'])
def test_each_character_of_a_text_is_looked_at_once(unit: bytes) -> None:
    """A search that began anew at each quote would take hours for this."""
    data = b"[" + b"0," * 10 + b'"' + unit * 2**19
    with pytest.raises(InvalidInput):
        check_counts(data, values=5, objects=0, accepted="fewer")
