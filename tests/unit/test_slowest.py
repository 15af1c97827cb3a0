"""The table of the slowest tests: how it adds up, and that its tests exist."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.slowest import BEGIN, PAGE, ROOT, table
from deploy.tables import END

_RESULTS = """<?xml version="1.0"?>
<testsuites><testsuite tests="4" time="90.4" timestamp="2026-01-02T03:04:05">
<testcase classname="tests.unit.test_a" name="test_quick" time="1.2" />
<testcase classname="tests.unit.test_a" name="test_slow[1]@nomad" time="30.5" />
<testcase classname="tests.unit.test_a" name="test_slow[2]@nomad" time="20.5" />
<testcase classname="tests.unit.test_b" name="test_other" time="40" />
</testsuite></testsuites>
"""


def test_the_parameters_of_a_test_are_added_up(tmp_path: Path) -> None:
    results = tmp_path / "tests.xml"
    results.write_text(_RESULTS)
    head, _, *rows = table(results).splitlines()
    assert head.startswith("4 tests in 2 minutes")
    assert "2026-01-02" in head
    assert rows[2:] == [
        "| 51 | `tests/unit/test_a.py::test_slow` |",
        "| 40 | `tests/unit/test_b.py::test_other` |",
        "| 1 | `tests/unit/test_a.py::test_quick` |",
    ]


def test_each_test_of_the_table_exists() -> None:
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    found = re.findall(r"\| `(\S+)::(\w+)` \|", shown)
    assert len(found) == 20
    for file, name in found:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8")
