"""Every promise of the guarantees page names tests, and these tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/guarantees.md"

_TEST = re.compile(r"(tests/[\w/]+\.py)?::([\w:]+)")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def names_in(path: str) -> frozenset[str]:
    """Functions, classes and ``Class::method`` of a test file."""
    tree = ast.parse((ROOT / path).read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef)
            }
    return frozenset(found)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_each_promise_has_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 3, row
    path = ""
    named = _TEST.findall(row[2])
    assert named, f"no test: {row[0]}"
    for stated, name in named:
        path = stated or path
        assert (ROOT / path).is_file(), f"{path} does not exist"
        assert name in names_in(path), f"{path} has no {name}"
