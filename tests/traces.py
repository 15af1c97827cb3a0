"""Public logs, which are not part of the project; tests that need one are skipped without it."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("EDGEYARD_TRACES") or Path(__file__).parents[2] / "shared" / "traces")


def trace(name: str) -> Path:
    """Return the path of a log, or skip the test."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{path} is missing: set EDGEYARD_TRACES to the folder of the logs")
    return path
