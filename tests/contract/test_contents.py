"""Content is named and removed without a transaction that waits for the file store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.errors import Unavailable
from edgeyard.scheduler.engine.contents import remove_unnamed, see_content
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.s3_files import S3Access, S3Files
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.s3_service import stalled_later

LATER = datetime.now(UTC) + timedelta(days=1)
LIMIT_S = 60.0


class SlowFiles(ContentFiles):
    """Answers questions about content, and removes it, when the test lets it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.answers = threading.Event(), threading.Event()

    def contains(self, sha256: str) -> bool:
        self._wait()
        return super().contains(sha256)

    def remove(
        self, sha256: str, *, older_than_s: float = 60.0, named_at: datetime | None = None
    ) -> bool:
        self._wait()
        return super().remove(sha256, older_than_s=older_than_s, named_at=named_at)

    def _wait(self) -> None:
        self.asked.set()
        assert self.answers.wait(LIMIT_S)


@pytest.fixture
def files(tmp_path: Path) -> SlowFiles:
    made = SlowFiles(tmp_path / "files")
    made.answers.set()
    return made


def put(files: ContentFiles | S3Files, content: bytes = b"weights") -> str:
    writer = files.writer(limit_bytes=1000)
    writer.write(content)
    return writer.commit().sha256


def name(store: SqlStore, sha256: str) -> None:
    store.transact(lambda uow: uow.files.add_user_file(make.a_user_file(sha256, sha256=sha256)))


@contextmanager
def under_way(files: SlowFiles, call: Callable[[], object]) -> Iterator[None]:
    """For the length of a ``with`` block another thread waits for the file store."""
    files.asked.clear()
    files.answers.clear()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(call)
        try:
            assert files.asked.wait(LIMIT_S)
            yield
        finally:
            files.answers.set()
        done.result(LIMIT_S)


def test_content_without_a_name_is_removed_and_other_content_is_not(
    store: SqlStore, files: SlowFiles
) -> None:
    unnamed, named = put(files), put(files, b"other")
    name(store, named)
    assert remove_unnamed(store, files, unnamed, named_at=LATER)
    assert not remove_unnamed(store, files, named, named_at=LATER)
    assert not files.contains(unnamed)
    assert files.contains(named)


def test_others_write_while_content_is_removed(store: SqlStore, files: SlowFiles) -> None:
    gone = put(files)
    other = make.a_sha256("other")
    with under_way(files, lambda: release(store, files, {gone: LATER})):
        name(store, other)
        with store.read() as uow:
            assert uow.files.referenced(other)


def test_others_write_while_somebody_looks_for_content(store: SqlStore, files: SlowFiles) -> None:
    sha256 = put(files)
    other = make.a_sha256("other")
    with under_way(files, lambda: see_content(store, files, {sha256: "net.onnx"})):
        name(store, other)


def test_content_is_not_named_while_it_is_removed(store: SqlStore, files: SlowFiles) -> None:
    sha256 = put(files)
    seen = see_content(store, files, {sha256: "net.onnx"})
    with under_way(files, lambda: remove_unnamed(store, files, sha256, named_at=LATER)):
        with pytest.raises(Unavailable, match=r"net\.onnx was removed .* send it again"):
            see_content(store, files, {sha256: "net.onnx"})
        with pytest.raises(Unavailable, match="send it again"):
            store.transact(seen.check)
    assert not files.contains(sha256)


def test_a_removal_between_the_look_and_the_naming_is_noticed(
    store: SqlStore, files: SlowFiles
) -> None:
    sha256 = put(files)
    seen = see_content(store, files, {sha256: "net.onnx"})
    assert remove_unnamed(store, files, sha256, named_at=LATER)
    with pytest.raises(Unavailable, match="send it again"):
        store.transact(seen.check)
    with pytest.raises(Unavailable, match="send it again"):
        see_content(store, files, {sha256: "net.onnx"})
    put(files)  # sent again
    store.transact(see_content(store, files, {sha256: "net.onnx"}).check)


def test_a_server_that_dies_while_it_removes_content_blocks_its_name_for_a_minute(
    database_url: str, files: SlowFiles
) -> None:
    now = [make.NOW]
    store = SqlStore(database_url, now=lambda: now[0])
    try:
        sha256 = put(files)
        assert store.transact(lambda uow: uow.files.begin_removal(sha256))
        with pytest.raises(Unavailable):
            see_content(store, files, {sha256: "net.onnx"})
        now[0] += timedelta(minutes=2)
        store.transact(see_content(store, files, {sha256: "net.onnx"}).check)
        now[0] += timedelta(days=2)
        assert remove_unnamed(store, files, put(files, b"other"), named_at=LATER)
        with store.read() as uow:
            assert not uow.files.removals([sha256]), "old removals are forgotten"
    finally:
        store.close()


@pytest.mark.s3
def test_others_write_while_the_s3_service_hangs(
    store: SqlStore, s3_access: S3Access, tmp_path: Path
) -> None:
    with stalled_later(s3_access) as (access, relay):
        files = S3Files(access, tmp_path / "cache")
        sha256 = put(files)
        relay.stall()
        with ThreadPoolExecutor(1) as thread:
            removal = thread.submit(remove_unnamed, store, files, sha256, named_at=LATER)
            while not _announced(store, sha256):
                assert not removal.done()
            name(store, make.a_sha256("other"))
            with pytest.raises(Unavailable):
                removal.result(LIMIT_S)
        relay.mend()
        assert remove_unnamed(store, files, sha256, named_at=LATER)


def _announced(store: SqlStore, sha256: str) -> bool:
    with store.read() as uow:
        return bool(uow.files.removals([sha256]))
