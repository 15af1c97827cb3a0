"""What every file store promises: whole files only, each content once, under its hash."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.process import free_port
from edgeyard.errors import ConfigError, NotFound, TooLarge, Unavailable
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.s3_files import CACHED_S, S3Access, S3Files
from tests import s3_service
from tests.fakes.relay import Relay

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()

Files = ContentFiles | S3Files
Open = Callable[[str], Files]


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def open_on(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store from a machine of that name."""
    if request.param == "folder":
        return lambda machine: ContentFiles(tmp_path / "files")
    access = request.getfixturevalue("s3_access")
    return lambda machine: S3Files(access, tmp_path / machine)


@pytest.fixture
def files(open_on: Open) -> Files:
    return open_on("here")


def _store(files: Files, content: bytes = CONTENT) -> StoredFile:
    writer = files.writer(limit_bytes=10**8)
    for start in range(0, len(content), 2**20):
        writer.write(content[start : start + 2**20])
    return writer.commit()


def test_content_is_read_from_every_machine(files: Files, open_on: Open) -> None:
    assert _store(files) == StoredFile(sha256=SHA256, size_bytes=len(CONTENT))
    assert files.path(SHA256).read_bytes() == CONTENT
    there = open_on("there")
    assert there.path(SHA256).read_bytes() == CONTENT
    assert there.path(SHA256).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [0, 1, 9 * 2**20])
def test_content_of_any_size_comes_back(files: Files, open_on: Open, size: int) -> None:
    content = os.urandom(size)
    stored = _store(files, content)
    assert stored.size_bytes == size
    assert open_on("there").path(stored.sha256).read_bytes() == content


def test_a_mark_is_seen_from_every_machine_and_is_no_content(files: Files, open_on: Open) -> None:
    assert files.mark() is None
    files.set_mark("0123abcd")
    assert open_on("there").mark() == "0123abcd"
    assert list(files.contents(older_than_s=-1.0)) == []


def test_the_same_content_is_stored_once(files: Files) -> None:
    with ThreadPoolExecutor(8) as threads:
        stored = set(threads.map(lambda _: _store(files), range(16)))
    assert stored == {StoredFile(sha256=SHA256, size_bytes=len(CONTENT))}
    assert list(files.contents(older_than_s=-10.0)) == list(stored)


def test_nothing_is_visible_before_the_commit_or_after_an_abort(
    files: Files, open_on: Open
) -> None:
    writer = files.writer(limit_bytes=10**6)
    writer.write(CONTENT)
    with pytest.raises(NotFound):
        open_on("there").path(SHA256)
    writer.abort()
    writer.abort()
    with pytest.raises(NotFound):
        files.path(SHA256)
    with pytest.raises(ValueError, match="dropped"):
        writer.commit()
    assert not list(files.contents(older_than_s=-10.0))


def test_over_the_limit_nothing_stays(files: Files) -> None:
    writer = files.writer(limit_bytes=len(CONTENT))
    writer.write(CONTENT)
    with pytest.raises(TooLarge):
        writer.write(b"x")
    assert not list(files.contents(older_than_s=-10.0))


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", SHA256.upper(), SHA256 + "0", SHA256[:-1] + "\n"]
)
def test_only_a_hash_names_content(files: Files, name: str) -> None:
    _store(files)
    with pytest.raises(NotFound):
        files.path(name)
    with pytest.raises(NotFound):
        files.remove(name)


def test_content_is_removed_once_it_is_old_enough_not_to_be_awaited(
    files: Files, open_on: Open
) -> None:
    _store(files)
    assert not files.remove(SHA256)
    assert not list(files.contents())
    assert files.remove(SHA256, older_than_s=-10.0)
    assert not files.remove(SHA256, older_than_s=-10.0)
    for each in (files, open_on("there")):
        with pytest.raises(NotFound):
            each.path(SHA256)


def test_content_that_another_server_removed_is_not_there(files: Files, open_on: Open) -> None:
    _store(files)
    assert files.contains(SHA256)
    assert open_on("there").remove(SHA256, older_than_s=-10.0)
    assert not files.contains(SHA256)
    _store(files)
    assert files.contains(SHA256)


def test_room_is_shown_and_abandoned_uploads_are_swept(files: Files) -> None:
    assert files.free_bytes() > 0
    assert files.sweep_temporary() == 0


# --- of the bucket alone --------------------------------------------------------------------------


@pytest.mark.s3
def test_the_cache_lets_go_of_what_nobody_read_lately(s3_access: S3Access, tmp_path: Path) -> None:
    files = S3Files(s3_access, tmp_path / "here")
    _store(files)
    cached = files.path(SHA256)
    then = time.time() - CACHED_S - 60
    os.utime(cached, (then, then))
    assert files.path(SHA256) == cached
    files.sweep_temporary()
    assert cached.exists(), "it was read just now"
    os.utime(cached, (then, then))
    files.sweep_temporary()
    assert not cached.exists()
    assert files.path(SHA256).read_bytes() == CONTENT


@pytest.mark.s3
def test_the_cache_evicts_its_oldest_content_rather_than_refuse_an_upload(
    s3_access: S3Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "here"
    disk_bytes, reserve_bytes = 10 * 2**20, 4 * 2**20

    def free_bytes(_: ContentFiles) -> int:
        return disk_bytes - sum(each.stat().st_size for each in cache.rglob("*") if each.is_file())

    monkeypatch.setattr(ContentFiles, "free_bytes", free_bytes)
    files = S3Files(s3_access, cache, reserve_bytes=reserve_bytes)
    oldest, older = os.urandom(3 * 2**20), os.urandom(2 * 2**20)
    paths = [files.path(_store(files, each).sha256) for each in (oldest, older)]
    for path, age_s in zip(paths, (7200, 3600), strict=True):
        os.utime(path, (time.time() - age_s,) * 2)
    stored = _store(files, os.urandom(3 * 2**20))
    assert files.contains(stored.sha256)
    assert [path.exists() for path in paths] == [False, True]
    assert files.path(paths[0].name).read_bytes() == oldest, "it is in the bucket still"


@pytest.mark.s3
def test_content_is_read_where_only_the_reserve_is_left(
    s3_access: S3Access, tmp_path: Path
) -> None:
    _store(S3Files(s3_access, tmp_path / "here"))
    there = S3Files(s3_access, tmp_path / "there", reserve_bytes=2**62)
    assert there.path(SHA256).read_bytes() == CONTENT


@pytest.mark.s3
def test_content_that_was_damaged_in_the_bucket_is_not_handed_out(
    s3_access: S3Access, s3_endpoint: str, tmp_path: Path
) -> None:
    _store(S3Files(s3_access, tmp_path / "here"))
    key = f"lab/{SHA256[:2]}/{SHA256[2:4]}/{SHA256}"
    s3_service.client(s3_endpoint).put_object(Bucket=s3_access.bucket, Key=key, Body=b"weighty")
    there = S3Files(s3_access, tmp_path / "there")
    with pytest.raises(Unavailable, match="damaged"):
        there.path(SHA256)
    left = {path.name for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert left == {"lock"}  # the empty file that orders renames and removals


@pytest.mark.s3
def test_foreign_objects_in_the_bucket_are_left_alone(
    s3_access: S3Access, s3_endpoint: str, tmp_path: Path
) -> None:
    put = s3_service.client(s3_endpoint).put_object
    put(Bucket=s3_access.bucket, Key=f"{SHA256[:2]}/{SHA256[2:4]}/{SHA256}", Body=b"")
    put(Bucket=s3_access.bucket, Key="lab/notes.txt", Body=b"")
    assert not list(S3Files(s3_access, tmp_path / "here").contents(older_than_s=-10.0))


@pytest.mark.s3
def test_a_bucket_that_is_not_there_is_a_mistake_of_the_settings(
    s3_access: S3Access, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no-such-bucket"):
        S3Files(replace(s3_access, bucket="no-such-bucket"), tmp_path / "here")


@pytest.mark.s3
def test_a_service_that_does_not_answer_is_unavailable(s3_access: S3Access, tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        S3Files(replace(s3_access, endpoint=f"http://127.0.0.1:{free_port()}"), tmp_path / "here")


@pytest.mark.slow
@pytest.mark.s3
def test_a_service_that_hangs_is_given_up_soon_where_a_request_waits(
    s3_access: S3Access, tmp_path: Path
) -> None:
    where = urlsplit(str(s3_access.endpoint))
    relay = Relay([(str(where.hostname), int(where.port or 0))])
    with socket.create_server(("127.0.0.1", 0)) as silent, relay.listening(("127.0.0.1", 0)) as at:
        files = S3Files(replace(s3_access, endpoint=f"http://{at[0]}:{at[1]}"), tmp_path / "here")
        stored = _store(files)
        assert files.contains(stored.sha256)
        relay.targets = (silent.getsockname(),)
        relay.cut()  # connections that are open
        relay.mend()
        for ask in (files.contains, partial(files.remove, older_than_s=-10.0)):
            began = time.monotonic()
            with pytest.raises(Unavailable):
                ask(stored.sha256)
            assert time.monotonic() - began < 60  # three tries of a minute each before


@pytest.mark.s3
def test_secrets_are_not_shown(s3_access: S3Access) -> None:
    assert s3_service.SECRET not in repr(s3_access)
