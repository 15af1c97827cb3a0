"""A lab without threads and a running API, as most of these tests need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.api import Api, running
from tests.builders.engine import A, B, Lab
from tests.builders.pages import Browser


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two boards of one family, on a new database."""
    return Lab(tmp_path, A, B)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """With default settings, on a new database."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(autouse=True)
def closed_browsers() -> Iterator[None]:
    """Close the connections of the browsers that a test opened."""
    yield
    while Browser.opened:
        Browser.opened.pop().close()
