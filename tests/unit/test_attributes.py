"""The vocabulary of device attributes, and how constraints compare."""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.devices.attributes import (
    attributes_of,
    board_from_attributes,
    compare,
    constraint_problem,
)
from edgeyard.devices.model import AttributeValue
from edgeyard.devices.pattern import Pattern, PatternError
from edgeyard.errors import ConfigError
from edgeyard.plugins.testing import GIB, board


@pytest.mark.parametrize(
    ("attribute", "operator", "text", "holds"),
    [
        (4294967296, ">=", "4294967296", True),
        (4294967296, ">", "4294967296", False),
        (4294967296, ">=", "4294967296.5", False),
        (9007199254740993, "=", "9007199254740992", False),  # exact, not by floats
        (9, "<", "10", True),  # as numbers, not as text
        (50.0, "<", "90", True),
        (True, "=", "true", True),
        (True, "=", "1", False),  # a bool is no number
        (1, "=", "true", False),
        ("ort", "=", "ort", True),
        ("ort", "!=", "tflite", True),
        ("a", "<", "b", True),
        ("5", "=", "5", False),  # text never equals what reads as a number
        ("5", "!=", "6", False),  # nor does it differ from it: they don't compare
        (4294967296, ">=", "4GiB", False),  # a plain number has no unit
        ("ort,tflite", "set_contains", "ort", True),
        ("ort, tflite", "set_contains", "tflite,ort", True),
        ("ort", "set_contains", "ort,tflite", False),
        ("ort", "set_contains_any", "ort,tflite", True),
        ("ort", "set_contains_any", "", False),
        ("123", "set_contains", "123", False),  # a numeric-looking name never matches
        ("rpi4b-0001-0001", "regexp", "^rpi4b-[0-9]+", True),
        ("rpi5-0001-0001", "regexp", "^rpi4b", False),
        ("rpi4b", "regexp", "(", False),
        (4, "regexp", "4", False),
        (4, "is_set", "", True),
        (None, "is_set", "", False),
        (None, "is_not_set", "", True),
        (None, "=", "x", False),
        (None, "<", "90", False),  # a board that doesn't tell its progress fails
        (None, "!=", "x", True),
        (float("nan"), "<", "1", False),
        ("x", "~", "x", False),
    ],
)
def test_values_compare_as_nomad_compares_them(
    attribute: AttributeValue | None, operator: str, text: str, holds: bool
) -> None:
    assert compare(attribute, operator, text) is holds


def test_a_board_survives_the_way_through_its_attributes() -> None:
    first = board(
        "rpi4b-0001-0001",
        engines={"ort": ["TYPE1", "TYPE2"], "tflite": []},
        attributes={"camera": True, "rack": "b"},
        progress=40.0,
        busy=True,
    )
    assert board_from_attributes(attributes_of(first)) == first


def test_further_attributes_never_hide_the_vocabulary() -> None:
    liar = board("rpi4b-0001-0001", ram_bytes=GIB, attributes={"memory.ram": 64 * GIB})
    assert attributes_of(liar)["memory.ram"] == GIB


def test_a_board_that_does_not_tell_its_progress_publishes_none() -> None:
    quiet = board("rpi4b-0001-0001", progress=None, attributes={"dynamic.progress": 0})
    assert "dynamic.progress" not in attributes_of(quiet)


def test_all_mistakes_of_a_host_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        board_from_attributes(
            {
                "family": "rpi4b",
                "target_uid": "rpi5-0001-0001",
                "engines": "ort,1",
                "memory.ram": -1,
            }
        )
    told = " ".join(caught.value.problems)
    for part in ("not of family", "'1'", "memory.ram", "memory.storage"):
        assert part in told


def test_a_wrong_constraint_is_told_at_submission() -> None:
    assert constraint_problem("memory.ram", ">=", "1") is None
    assert "operator" in (constraint_problem("a", "like", "1") or "")
    assert "name" in (constraint_problem("a}${b", "=", "1") or "")
    assert "not closed" in (constraint_problem("a", "regexp", "(x") or "")


_PATTERNS = st.recursive(
    st.sampled_from(["a", "b", ".", "[a-c]", "[^a]", "\\d", "\\w", "\\b", "^", "-"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(_PATTERNS, st.text("abcd-1 ", max_size=8))
def test_patterns_match_what_python_matches(pattern: str, text: str) -> None:
    assert Pattern(pattern).search(text) == bool(re.search(pattern, text, re.ASCII))


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(PatternError):
        Pattern(pattern).search(text)


def test_a_pattern_made_to_hang_python_takes_no_time() -> None:
    began = time.process_time()
    assert not compare("a" * 200, "regexp", "(.|.|.|.|.)*(.*)*(.*)*x")
    assert time.process_time() - began < 2.0
    for huge in ("((a{1000}){1000}){1000}", "(" * 400, "a" * 501):
        with pytest.raises(PatternError):
            Pattern(huge)
    with pytest.raises(PatternError, match="too big"):
        Pattern("(a|b)*" * 40 + "x")  # six milliseconds for each board
