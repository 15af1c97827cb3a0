"""Every field of the job description is described, in the schema and on its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.schemas.description import description_schema

PAGE = Path(__file__).parents[2] / "docs/reference/job-description.md"


def fields() -> Iterator[tuple[str, Mapping[str, Any]]]:
    schema: Any = description_schema()
    for properties in (schema, *schema["$defs"].values()):
        yield from properties["properties"].items()


@pytest.mark.parametrize(("name", "facts"), list(fields()))
def test_a_field_is_described_where_people_read(name: str, facts: Mapping[str, Any]) -> None:
    assert len(facts.get("description", "")) > 10
    assert f"| `{name}` |" in PAGE.read_text("utf-8")
