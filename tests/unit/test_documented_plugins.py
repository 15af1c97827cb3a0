"""Pages name every plugin and every exported column that there is, and none that there isn't."""

import re
from pathlib import Path

import pytest

from edgeyard.benchmark_api.cli.exporting import schemas
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.registry import Kind

DOCS = Path(__file__).parents[2] / "docs"


def first_column(page: str, heading: str) -> set[str]:
    """Names in the first cells of the table of a page that has this heading."""
    table = (DOCS / page).read_text().split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("kind", Kind)
def test_the_page_names_every_plugin(kind: Kind) -> None:
    heading = kind.value.removeprefix("edgeyard.").replace("_", " ").removesuffix("s")
    heading = "queue policy" if kind is Kind.QUEUE_POLICY else heading
    assert first_column("reference/policies.md", heading) == set(
        registry(entry_points=False).names(kind)
    )


def test_the_page_names_every_exported_column() -> None:
    for table, schema in schemas().items():
        assert first_column("how-to/decisions.md", table) == set(schema.names)
