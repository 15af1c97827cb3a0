"""Promises of docs/explanation/guarantees.md and the tests that each names, in a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/guarantees.md"
_PROMISE = re.compile(r"\| (?P<fault>.+?) \| (?P<promise>.+?) <!-- (?P<tests>.+) --> \|")
_TEST = re.compile(r"(tests/[\w/]+\.py)?::([\w:]+)")
_LINK = re.compile(r"\]\((?!\w+:)")
_HEAD = """# Tests of the guarantees

Made by `make docs` from [what survives which fault](../explanation/guarantees.md), where each
promise names its tests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A row of the page.

    Attributes:
        section: Title of its section.
        tests: File and name of each.
    """

    section: str
    fault: str
    promise: str
    tests: tuple[tuple[str, str], ...]


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """Yield file and name of each test in ``FILE::NAME, ::NAME OF THE SAME FILE``."""
    file = ""
    for stated, name in _TEST.findall(text):
        file = stated or file
        yield file, name


def promises() -> Iterator[Promise]:
    """Yield the rows of all tables of the page.

    Raises:
        ValueError: A row has another form: no tests, or another number of cells.
    """
    section, above = "", ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line.startswith("|") and above.startswith("|") and not line.startswith("| ---"):
            row = _PROMISE.fullmatch(line)
            if row is None:
                raise ValueError(f"not `| fault | promise <!-- tests --> |`: {line}")
            yield Promise(
                section=section,
                fault=row["fault"],
                promise=row["promise"],
                tests=tuple(named_tests(row["tests"])),
            )
        above = line


def page() -> str:
    """Return the page of faults and their tests."""
    lines, section = [_HEAD], ""
    for each in promises():
        if each.section != section:
            section = each.section
            lines.append(f"\n## {section}\n\n| Fault | Tests |\n| --- | --- |\n")
        fault = _LINK.sub("](../explanation/", each.fault).replace("](../explanation/../", "](../")
        tests = ", ".join(f"`{file}::{name}`" for file, name in each.tests)
        lines.append(f"| {fault} | {tests} |\n")
    return "".join(lines)
