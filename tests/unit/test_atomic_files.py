"""Files that are replaced whole or not at all."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.cli.output_files import check_output, write_output
from edgeyard.errors import InvalidInput


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.parametrize("sync", [False, True])
def test_a_reader_sees_the_old_content_until_the_block_ends(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with open_atomically(path, sync=sync) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with open_atomically(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "expected"), [(0o666, 0o640), (0o600, 0o600)])
def test_permissions_follow_the_umask_or_are_stricter(
    tmp_path: Path, mode: int, expected: int
) -> None:
    path = tmp_path / "file"
    with open_atomically(path, mode=mode) as file:
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {expected}
        file.write(b"content")
    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_link_keeps_naming_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder / "file")
    with open_atomically(link) as file:
        file.write(b"content")
    assert link.is_symlink()
    assert (folder / "file").read_text() == "content"


def test_links_that_lead_to_each_other_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"), open_atomically(link):
        pass
    with pytest.raises(InvalidInput, match="--out"):
        write_output(link, "--out", "content")


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), name="reader")
    reader.start()
    with open_atomically(pipe) as file:
        file.write(b"content")
    reader.join(60.0)
    assert read == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_writers_of_one_file_do_not_mix_their_contents(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open_atomically(path) as first, open_atomically(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_text() == "first"  # its block ends last
    assert os.listdir(tmp_path) == ["file"]


def test_an_output_that_cannot_be_written_names_its_flag(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--out: there is no folder .*/missing$"):
        check_output(tmp_path / "missing/file", "--out")
    with pytest.raises(InvalidInput, match=r"--csv: .* is a folder"):
        write_output(tmp_path, "--csv", "text")
    with pytest.raises(InvalidInput, match=r"--out: /dev/full can't be written: .*No space left"):
        write_output(Path("/dev/full"), "--out", "text")
