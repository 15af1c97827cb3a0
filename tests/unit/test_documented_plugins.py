"""The operators' page names every plugin that there is, and none that there isn't."""

import re
from pathlib import Path

import pytest

from edgeyard.benchmark_api.cli.exporting import schemas
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.registry import Kind

PAGE = (Path(__file__).parents[2] / "docs/how-to/decisions.md").read_text()


def first_column(heading: str) -> set[str]:
    """Names in the first cells of the table that has this heading."""
    table = PAGE.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("kind", Kind)
def test_the_page_names_every_plugin(kind: Kind) -> None:
    heading = kind.value.removeprefix("edgeyard.").replace("_", " ").removesuffix("s")
    heading = "queue policy" if kind is Kind.QUEUE_POLICY else heading
    assert first_column(heading) == set(registry(entry_points=False).names(kind))


def test_the_page_names_every_exported_column() -> None:
    for table, schema in schemas().items():
        assert first_column(table) == set(schema.names)
