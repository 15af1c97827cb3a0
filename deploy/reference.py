"""``make docs``: the pages and schemas of ``docs/reference`` that are made from the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.cli.reference import page as cli_page
from edgeyard.benchmark_api.schemas.description import description_schema
from edgeyard.benchmark_api.sdk.reference import page as sdk_page
from edgeyard.benchmark_api.settings import settings_page
from edgeyard.devices.inventory_file import inventory_schema
from edgeyard.scheduler.learning.features import features_page
from edgeyard.scheduler.solvers.document import DOCUMENT_SCHEMA, PLAN_SCHEMA

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _authorization() -> str:
    # The rules are those of the test, so that what is published is what is tested.
    from tests.integration.test_api_auth import page

    return page()


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "openapi.json": lambda: _json(openapi_document()),
    "job-description.schema.json": lambda: _json(description_schema()),
    "inventory.schema.json": lambda: _json(inventory_schema()),
    "ilp-document.schema.json": lambda: _json(DOCUMENT_SCHEMA),
    "ilp-plan.schema.json": lambda: _json(PLAN_SCHEMA),
    "features.md": features_page,
    "settings.md": settings_page,
    "cli.md": cli_page,
    "sdk.md": sdk_page,
    "authorization.md": _authorization,
}
"""By file name; a test fails while one of them is not what the code makes."""


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in DOCUMENTS.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
