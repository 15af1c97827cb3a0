"""The engine of `docs/how-to/benchmark-types.md`, installed in a folder, and its declaration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/how-to/benchmark-types.md"


def code_of_page(language: str) -> str:
    """Return the first block of a language of the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"{PAGE} has no block of {language}"
    return found[1]


def engine_entry() -> dict[str, Any]:
    """Return the engine as the page's boards file describes it."""
    found: dict[str, Any] = json.loads("{" + code_of_page("json") + "}")
    return found["engines"]["memory"]  # type: ignore[no-any-return]


def install(folder: Path) -> Path:
    """Install the page's engine under the name ``memory``, for ``PYTHONPATH``; the folder."""
    about = folder / "memory_engine-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: memory-engine\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[edgeyard.engines]\nmemory = memory_engine:MemoryEngine\n"
    )
    (folder / "memory_engine.py").write_text(code_of_page("python"))
    return folder
