"""What nothing names is dropped; what anything names stays."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.errors import NotFound
from edgeyard.scheduler.clock import SteadyClock
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.records import UserFile
from tests.databases import open_store
from tests.fakes.clock import FixedClock


def test_only_content_without_a_name_goes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    files = ContentFiles(tmp_path / "files")
    kept, dropped = (_stored(files, content) for content in (b"named", b"nameless"))
    with store.write() as uow:
        uow.files.add_user_file(
            UserFile(
                file_id="file-1",
                user_id="ann",
                name="net.onnx",
                sha256=kept,
                size_bytes=5,
                created_at=datetime.now(UTC),
            )
        )
    collect_garbage(store, files, FixedClock(datetime.now(UTC)), {})
    assert files.path(kept).read_bytes() == b"named"
    with pytest.raises(NotFound):
        files.path(dropped)


def test_nothing_is_dropped_while_the_clocks_disagree(tmp_path: Path) -> None:
    machine = FixedClock(datetime.now(UTC))
    clock = SteadyClock(machine.now, machine.monotonic_s)
    store = open_store(tmp_path)
    files = ContentFiles(tmp_path / "files")
    nameless = _stored(files, b"nameless")
    machine.step(3600)
    collect_garbage(store, files, clock, {})
    assert files.path(nameless).read_bytes() == b"nameless"
    machine.step(-3600)
    collect_garbage(store, files, clock, {})
    with pytest.raises(NotFound):
        files.path(nameless)


def _stored(files: ContentFiles, content: bytes) -> str:
    """Content that was committed a day ago."""
    writer = files.writer(1000)
    writer.write(content)
    stored = writer.commit()
    yesterday = time.time() - 86400
    os.utime(files.path(stored.sha256), (yesterday, yesterday))
    return stored.sha256
