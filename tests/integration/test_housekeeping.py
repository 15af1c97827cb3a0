"""What nothing names is dropped; what anything names stays."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.errors import NotFound
from edgeyard.scheduler.clock import SharedClock, SteadyClock
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole
from edgeyard.scheduler.model.files import UserFile
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.databases import open_store
from tests.fakes.clock import FixedClock


def test_only_content_without_a_name_goes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    files = ContentFiles(tmp_path / "files")
    kept, dropped = (_stored(files, content) for content in (b"named", b"nameless"))
    with store.write() as uow:
        uow.files.add_user_file(_file(kept))
    _collect(store, files)
    assert files.path(kept).read_bytes() == b"named"
    with pytest.raises(NotFound):
        files.path(dropped)


def test_nothing_is_dropped_while_the_clocks_disagree(tmp_path: Path) -> None:
    machine = FixedClock(datetime.now(UTC))
    clock = SharedClock(SteadyClock(machine.now, machine.monotonic_s))
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


def _file(sha256: str) -> UserFile:
    return UserFile(
        file_id="file-1",
        user_id="ann",
        name="net.onnx",
        sha256=sha256,
        size_bytes=5,
        created_at=datetime.now(UTC),
    )


def _collect(store: SqlStore, files: ContentFiles) -> None:
    collect_garbage(store, files, FixedClock(datetime.now(UTC)), {})


def _stored(files: ContentFiles, content: bytes) -> str:
    """Content that was committed a day ago."""
    writer = files.writer(1000)
    writer.write(content)
    stored = writer.commit()
    yesterday = time.time() - 86400
    os.utime(files.path(stored.sha256), (yesterday, yesterday))
    return stored.sha256


def test_content_that_is_being_named_stays(tmp_path: Path) -> None:
    """Its upload ended so long ago that its age says nothing: the machine was slow, for example."""
    store = open_store(tmp_path)
    files = ContentFiles(tmp_path / "files")
    sha256 = _stored(files, b"about to be named")
    named, collected = threading.Event(), threading.Event()

    def name(uow: UnitOfWork) -> None:
        uow.files.add_user_file(_file(sha256))
        named.set()
        collected.wait(1)  # whoever collects waits for this transaction, or is done by then

    def collect() -> None:
        assert named.wait(60)
        _collect(store, files)
        collected.set()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(store.transact, name), pool.submit(collect)]:
            done.result()
    assert files.path(sha256).read_bytes() == b"about to be named"


def test_content_of_a_file_that_is_submitted_while_its_name_is_forgotten_stays(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    files = ContentFiles(tmp_path / "files")
    sha256 = _stored(files, b"submitted")
    with store.write() as uow:
        uow.files.add_user_file(_file(sha256))
    found, collected = threading.Event(), threading.Event()

    def submit(uow: UnitOfWork) -> None:
        file = uow.files.user_file("ann", "net.onnx")
        found.set()
        collected.wait(1)
        content = BenchmarkFile(
            role=FileRole.MODEL, position=0, name=file.name, sha256=file.sha256, size_bytes=9
        )
        lifecycle.submit(uow, make.a_description(), "ann", [content], make.NOW)

    def forget_and_collect() -> None:
        assert found.wait(60)
        store.transact(lambda uow: uow.files.remove_user_file("file-1"))
        _collect(store, files)
        collected.set()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(store.transact, submit), pool.submit(forget_and_collect)]:
            done.result()
    assert files.path(sha256).read_bytes() == b"submitted"
