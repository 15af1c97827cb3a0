"""Uploads and progress: retried, bounded, and never led astray."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.devices.runner.progress import ProgressCalls, ProgressFile
from edgeyard.devices.runner.upload import Uploader, UploadRefused, UploadTimedOut
from tests.builders.runner import UploadServer, upload_server


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


class Naps:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.taken: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.taken.append(seconds)

    def clock(self) -> float:
        return self.now


def uploader(url: str, naps: Naps) -> Uploader:
    return Uploader(
        url=f"{url}/upload/job/",
        token="CANARY-SECRET-2",
        give_up_after_s=600.0,
        sleep=naps.sleep,
        clock=naps.clock,
    )


def file(folder: Path, size: int = 100) -> Path:
    path = folder / "result.bin"
    path.write_bytes(bytes(range(256)) * (size // 256 + 1))
    return path


def test_pauses_grow_and_end(server: UploadServer, tmp_path: Path) -> None:
    naps = Naps()
    server.answer = lambda name, nth: 503
    one = uploader(server.url, naps)
    with pytest.raises(UploadTimedOut, match="503"):
        one.put(file(tmp_path), one.deadline())
    assert naps.now <= one.give_up_after_s
    # 0.5, 1, 2 ... 30 s, each shortened by up to a half
    for nth, pause in enumerate(naps.taken):
        full = min(0.5 * 2**nth, 30.0)
        assert full / 2 <= pause <= full
    assert file(tmp_path).exists()


def test_nobody_there_is_waited_for(tmp_path: Path) -> None:
    naps = Naps()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    one = uploader(url, naps)
    with pytest.raises(UploadTimedOut, match="refused"):
        one.put(file(tmp_path), one.deadline())
    assert len(naps.taken) > 20


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 409, 413, 422])
def test_what_will_not_change_is_not_tried_again(
    server: UploadServer, tmp_path: Path, status: int
) -> None:
    naps = Naps()
    server.answer = lambda name, nth: status
    one = uploader(server.url, naps)
    with pytest.raises(UploadRefused, match=str(status)) as error:
        one.put(file(tmp_path), one.deadline())
    assert "CANARY" not in str(error.value)
    assert naps.taken == []


def test_a_body_that_was_damaged_on_its_way_is_sent_again(
    server: UploadServer, tmp_path: Path
) -> None:
    naps = Naps()
    server.answer = lambda name, nth: 400 if nth == 1 else None
    one = uploader(server.url, naps)
    one.put(file(tmp_path, 3_000_000), one.deadline())
    assert server.files["result.bin"] == file(tmp_path, 3_000_000).read_bytes()
    server.answer = lambda name, nth: 400
    with pytest.raises(UploadRefused):
        one.put(file(tmp_path), one.deadline())


def test_a_refusal_before_the_body_was_read_is_heard(tmp_path: Path) -> None:
    """A server may answer 413 at the headers, and close while we still send."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        naps = Naps()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        one = uploader(f"http://127.0.0.1:{listener.getsockname()[1]}", naps)
        with pytest.raises(UploadRefused, match="413"):
            one.put(file(tmp_path, 20_000_000), one.deadline())
        thread.join()


def test_the_progress_file_holds_one_number(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    written = ProgressFile(path)
    for percent, text in ((0, "0.0\n"), (41.26, "41.3\n"), (250, "100.0\n"), (-3, "0.0\n")):
        written.write(percent)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
    ProgressFile(tmp_path / "no/such/folder/progress").write(5)
    ProgressFile(None).write(5)


def test_progress_is_reported_and_failures_are_forgotten(server: UploadServer) -> None:
    calls = ProgressCalls(f"{server.url}/v1/runs/job/progress", "token")
    calls.report(12.34, "measuring")
    calls.close()
    assert server.progress in ([], [{"progress": 12.3, "phase": "measuring", "message": ""}])
    lost = ProgressCalls("http://127.0.0.1:1/", None)
    lost.report(1.0, "loading")
    lost.close()
    unsent = ProgressCalls(None, None)
    unsent.report(1.0, "loading")
    unsent.close()
