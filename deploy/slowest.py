"""``make slowest``: the slowest tests of the last ``make test``, a table in CONTRIBUTING.md."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from deploy.tables import write_between

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build/tests.xml"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- made by make slowest -->"
_ROWS = 20


def table(results: Path) -> str:
    """Return the slowest tests of a run as Markdown.

    Args:
        results: What pytest wrote with ``--junitxml``. Parameters of one test are added up.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    suite = ElementTree.parse(results).getroot()[0]
    for case in suite.iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        name = case.attrib["name"].partition("[")[0].partition("@")[0]
        seconds[f"`{file}::{name}`"] += float(case.attrib["time"])
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:_ROWS]
    head = (
        f"{suite.attrib['tests']} tests in {float(suite.attrib['time']) / 60:.0f} minutes on "
        f"{os.cpu_count()} cores, {suite.attrib['timestamp'][:10]}. The {_ROWS} slowest, all their "
        f"parameters together, take {sum(each for _, each in slowest) / 60:.0f} "
        f"of {sum(seconds.values()) / 60:.0f} minutes of test processes:"
    )
    rows = [f"| {each:.0f} | {name} |" for name, each in slowest]
    return "\n".join([head, "", "| seconds | test |", "| --- | --- |", *rows])


def main() -> int:
    """Write the table; 1 where no run has left results."""
    if not RESULTS.exists():
        sys.stderr.write("There are no results in build/tests.xml: run `make test` first.\n")
        return 1
    write_between(PAGE, BEGIN, table(RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
