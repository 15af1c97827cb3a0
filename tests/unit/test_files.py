"""The file store: whole files only, each content once, and room that runs out."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgeyard.errors import NotFound, TooLarge, Unavailable
from edgeyard.scheduler.files import MAX_NAMING_DELAY_S, ORPHAN_AGE_S, ContentFiles
from edgeyard.scheduler.model.files import StoredFile

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> ContentFiles:
    return ContentFiles(tmp_path / "files")


def _store(files: ContentFiles, content: bytes = CONTENT) -> StoredFile:
    writer = files.writer(limit_bytes=10**6)
    for start in range(0, len(content), 999):
        writer.write(content[start : start + 999])
    return writer.commit()


def _everything(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"]


def _make_old(path: Path, age_s: float) -> None:
    then = time.time() - age_s
    os.utime(path, (then, then))


def test_content_lies_under_its_hash(files: ContentFiles, tmp_path: Path) -> None:
    assert _store(files) == StoredFile(sha256=SHA256, size_bytes=len(CONTENT))
    assert files.path(SHA256) == tmp_path / "files" / SHA256[:2] / SHA256[2:4] / SHA256
    assert files.path(SHA256).read_bytes() == CONTENT


def test_an_empty_file_is_a_file(files: ContentFiles) -> None:
    stored = files.writer(limit_bytes=0).commit()
    assert stored == StoredFile(sha256=hashlib.sha256().hexdigest(), size_bytes=0)
    assert files.path(stored.sha256).read_bytes() == b""


def test_the_same_content_is_stored_once(files: ContentFiles, tmp_path: Path) -> None:
    assert _store(files) == _store(files)
    assert _everything(tmp_path) == [files.path(SHA256)]


def test_equal_uploads_at_the_same_time_are_one_file(files: ContentFiles, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        stored = set(threads.map(lambda _: _store(files), range(64)))
    assert stored == {StoredFile(sha256=SHA256, size_bytes=len(CONTENT))}
    assert _everything(tmp_path) == [files.path(SHA256)]
    assert files.path(SHA256).read_bytes() == CONTENT


def test_nothing_is_visible_before_the_commit_or_after_an_abort(
    files: ContentFiles, tmp_path: Path
) -> None:
    writer = files.writer(limit_bytes=10**6)
    writer.write(CONTENT)
    with pytest.raises(NotFound):
        files.path(SHA256)
    writer.abort()
    writer.abort()
    assert _everything(tmp_path) == []
    with pytest.raises(ValueError, match="dropped"):
        writer.commit()


def test_an_abort_after_the_commit_is_harmless(files: ContentFiles) -> None:
    writer = files.writer(limit_bytes=10**6)
    writer.write(CONTENT)
    writer.commit()
    writer.abort()
    assert files.path(SHA256).read_bytes() == CONTENT
    with pytest.raises(ValueError, match="committed"):
        writer.write(b"more")


def test_over_the_limit_nothing_stays(files: ContentFiles, tmp_path: Path) -> None:
    writer = files.writer(limit_bytes=len(CONTENT))
    writer.write(CONTENT)
    with pytest.raises(TooLarge):
        writer.write(b"x")
    assert _everything(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", SHA256.upper(), SHA256 + "0", SHA256[:-1] + "\n"]
)
def test_only_a_hash_names_content(files: ContentFiles, name: str) -> None:
    _store(files)
    with pytest.raises(NotFound):
        files.path(name)
    with pytest.raises(NotFound):
        files.remove(name)


def _failing(number: int) -> Callable[..., object]:
    def fail(*args: object, **kwargs: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_disk_that_refuses_is_reported_and_leaves_nothing(
    files: ContentFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(step, _failing(number))
        with pytest.raises(Unavailable):
            _store(files)
    assert _everything(tmp_path) == []
    assert _store(files).sha256 == SHA256


def test_a_file_without_room_for_its_beginning_is_reported(
    files: ContentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.mkstemp", _failing(errno.ENOSPC))
    with pytest.raises(Unavailable, match="room"):
        files.writer(limit_bytes=1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_reported_in_the_middle_of_a_file(
    files: ContentFiles, tmp_path: Path
) -> None:
    writer = files.writer(limit_bytes=10**6)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file.fileno())
    os.close(full)
    with pytest.raises(Unavailable, match="room"):
        writer.write(CONTENT)
    assert _everything(tmp_path) == []


def test_abandoned_uploads_are_swept_at_the_start_and_later(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path / "files")
    old, young = files.writer(limit_bytes=9), files.writer(limit_bytes=9)
    _make_old(old._path, ORPHAN_AGE_S + 1)
    assert files.sweep_temporary() == 1
    assert _everything(tmp_path) == [young._path]
    _make_old(young._path, ORPHAN_AGE_S + 1)
    ContentFiles(tmp_path / "files")
    assert _everything(tmp_path) == []
    old.abort()
    young.abort()


def test_content_is_removed_once_it_is_old_enough_not_to_be_awaited(files: ContentFiles) -> None:
    _store(files)
    assert not files.remove(SHA256)
    _make_old(files.path(SHA256), MAX_NAMING_DELAY_S + 1)
    assert files.remove(SHA256)
    assert not files.remove(SHA256)
    with pytest.raises(NotFound):
        files.path(SHA256)


def test_content_that_came_in_again_is_young_again(files: ContentFiles) -> None:
    _store(files)
    _make_old(files.path(SHA256), ORPHAN_AGE_S + 1)
    assert list(files.contents()) == [StoredFile(sha256=SHA256, size_bytes=len(CONTENT))]
    _store(files)
    assert list(files.contents()) == []
    assert not files.remove(SHA256)


def test_the_room_that_is_left_is_reported(files: ContentFiles) -> None:
    assert files.free_bytes() > 0


def test_a_folder_that_can_not_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        ContentFiles(tmp_path / "file" / "files")


def test_content_that_comes_in_again_while_it_is_removed_stays(
    files: ContentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_old(files.path(_store(files).sha256), MAX_NAMING_DELAY_S + 1)
    uploads: list[threading.Thread] = []

    def at(step: str) -> None:
        if step == "file:remove":  # after the look at its age
            uploads.append(threading.Thread(target=_store, args=(files,)))
            uploads[0].start()
            uploads[0].join(0.5)  # an upload that has to wait for the removal is still under way

    monkeypatch.setattr("edgeyard.scheduler.files.failpoint", at)
    assert files.remove(SHA256)
    uploads[0].join(60)
    assert files.path(SHA256).read_bytes() == CONTENT
