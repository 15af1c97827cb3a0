"""Every promise of the guarantees and of the threat model names tests, and these tests exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from deploy.guarantees import Promise, named_tests, promises

ROOT = Path(__file__).parents[2]
THREATS = ROOT / "docs/explanation/threat-model.md"


def rows(page: Path) -> list[list[str]]:
    """The rows of the tables whose last column names tests, without their heads."""
    found: list[list[str]] = []
    named = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            named = False
        elif cells[-1] in ("Test", "Tests"):
            named = True
        elif named and not cells[0].startswith("---"):
            found.append(cells)
    return found


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


@pytest.mark.parametrize("promise", list(promises()), ids=lambda each: each.fault[:60])
def test_each_promise_has_tests_that_exist(promise: Promise) -> None:
    expect_tests(promise.fault, promise.tests)


@pytest.mark.parametrize("row", rows(THREATS), ids=lambda row: row[0][:60])
def test_each_promise_against_somebody_has_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 2, row
    expect_tests(row[0], tuple(named_tests(row[1])))


def test_every_actor_of_the_threat_model_is_there() -> None:
    text = THREATS.read_text()
    for actor in ("Stranger", "Submitter", "Host", "Board", "Neighbour", "Operator", "Author"):
        assert f"\n**{actor}" in text, actor


def expect_tests(promise: str, tests: tuple[tuple[str, str], ...]) -> None:
    assert tests, f"no test: {promise}"
    for path, name in tests:
        assert (ROOT / path).is_file(), f"{path} does not exist"
        assert name in names_in(path), f"{path} has no {name}"
