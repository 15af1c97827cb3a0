"""What several modules of unit tests share."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.api_server import FakeServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    """A fake of the API that the environment names; the test runs in an empty folder, and no call
    of ``time.sleep`` waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with FakeServer() as running:
        monkeypatch.setenv("EDGEYARD_URL", running.url)
        yield running
