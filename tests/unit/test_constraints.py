"""Constraints compare attributes as Nomad does; regular expressions are bounded."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.devices.constraints import compare, constraint_problem, meets
from edgeyard.devices.model import AttributeValue


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


@pytest.mark.parametrize(
    ("value", "operator", "text", "holds"),
    [
        ("amd64", "=", "amd64", True),
        ("amd64", "!=", "arm64", True),
        ("4", "=", "4", True),  # texts, unlike those of devices
        ("4", "=", "4.0", False),
        ("9", "<", "10", True),  # whole numbers
        ("2.5", ">", "2.25", True),
        ("9", "<", "b10", True),  # otherwise by bytes
        ("10", "<", "9x", True),
        ("nan", "<", "1", False),
        ("", "=", "", True),
        (None, "!=", "x", True),
        (None, "=", "", False),
        (None, "<", "1", False),
        (None, "is_not_set", "", True),
        ("x", "is_set", "", True),
        ("6.1.0-13-amd64", "regexp", "^6\\.", True),
        ("1.11.3", "version", ">= 1.8, < 2", True),
        ("1.11.3", "semver", "> 1.12.0", False),
        ("a, b", "set_contains", "b,a", True),
        ("a", "set_contains_any", "b,c", False),
        ("x", "~", "x", False),
    ],
)
def test_attributes_of_nodes_compare_as_nomad_compares_them(
    value: str | None, operator: str, text: str, holds: bool
) -> None:
    assert meets("${attr.some}", value, operator, text) is holds


def test_a_wrong_constraint_is_refused_with_its_reason() -> None:
    assert constraint_problem("${meta.rack}", "=", "a") is None
    assert "node" in (constraint_problem("${env.HOME}", "=", "a") or "")
    assert constraint_problem("memory.ram", ">=", "1") is None
    assert "operator" in (constraint_problem("a", "like", "1") or "")
    assert "name" in (constraint_problem("a}${b", "=", "1") or "")
    assert constraint_problem("a", "regexp", "(x") == "invalid regular expression: missing ): (x"


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
def test_expressions_match_what_python_matches(pattern: str, text: str) -> None:
    pattern = f"(?:x|{pattern})"  # "x" keeps the expression from being read as a number
    assert compare(text, "regexp", pattern) == bool(re.search(pattern, text, re.ASCII))


@pytest.mark.slow
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_an_expression_or_is_refused(pattern: str, text: str) -> None:
    problem = constraint_problem("a", "regexp", pattern)
    assert not (compare(text, "regexp", pattern) and problem)


@pytest.mark.parametrize(
    "pattern",
    ["((a{1000}){1000}){1000}", "(" * 400, "a" * 501, r"\pL{1,50}", "(.{1,30}){1,30}x"],
)
def test_an_expression_that_is_too_large_is_refused(pattern: str) -> None:
    assert "invalid regular expression" in (constraint_problem("a", "regexp", pattern) or "")
    assert not compare("a" * 100, "regexp", pattern)


@pytest.mark.parametrize("pattern", [r"a\C", r"\\\C", "(?=a)", r"(a)\1", "\ud800"])
def test_an_expression_that_nomad_does_not_read_is_refused(pattern: str) -> None:
    assert constraint_problem("a", "regexp", pattern)
    assert not compare("aa", "regexp", pattern)


def test_a_backslash_before_a_letter_is_no_escape_sequence() -> None:
    assert constraint_problem("a", "regexp", r"C:\\Core") is None
    assert compare(r"C:\Core", "regexp", r"^C:\\Core$")


def test_text_that_is_not_valid_unicode_is_searched_all_the_same() -> None:
    assert compare("rpi\ud800", "regexp", "^rpi")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a" * 200, "(.|.|.|.|.)*(.*)*(.*)*x"),
        ("a" * 1000, "(a*)*(a*)*(a*)*(a*)*$b"),
        ("a" * 1000, "(a?){500}" + "a{500}b"),
        ("ab" * 500, "(a|b)*" * 40 + "x"),
        ("a" * 10**7, "(a|aa)+$"),
    ],
)
def test_an_expression_made_to_hang_backtracking_engines_takes_no_time(
    text: str, pattern: str
) -> None:
    began = time.process_time()
    compare(text, "regexp", pattern)
    assert time.process_time() - began < 2.0


def test_texts_beyond_the_limit_match_nothing() -> None:
    assert compare("a" * 1000, "regexp", "a+")
    assert not compare("a" * 1001, "regexp", "a+")
