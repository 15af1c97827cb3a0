"""Lines of code: what counts, and that the table of the docs is near the truth."""

from __future__ import annotations

import re

import pytest

from deploy.count_lines import BEGIN, PAGE, PRODUCT, code_lines, counted
from deploy.tables import END

SOURCE = '''"""A module.

Of three lines.
"""

import os  # counts

# does not
VALUE = """
a text that is a value
"""
"""What the value means."""


def function(
    one: int,
) -> int:
    """Return it."""
    return one
'''


def test_comments_docstrings_and_empty_lines_do_not_count() -> None:
    assert code_lines(SOURCE) == 8


@pytest.mark.slow
def test_the_table_of_the_docs_is_near_the_truth() -> None:
    """`make docs` writes it; each commit that adds a line need not."""
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = {name: int(lines.replace(",", "")) for name, lines in ROW.findall(shown)}
    found = counted()
    for folder, lines in found.items():
        assert rows[f"`{folder}/`"] == pytest.approx(lines, rel=0.05, abs=300), folder
    product = sum(found[folder] for folder in PRODUCT)
    assert rows["the product"] == pytest.approx(product, rel=0.05)


ROW = re.compile(r"^\| (.+?) \| ([\d,]+) \|$", re.M)
