"""What the host takes of a progress file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from edgeyard.devices.edgedevice.task_file import IDLE, SILENT_S, TaskFiles, TaskProgress

UID = "rpi4b-0001-0001"


@pytest.fixture
def files(tmp_path: Path) -> TaskFiles:
    return TaskFiles(tmp_path)


def test_without_a_task_a_board_is_idle(files: TaskFiles) -> None:
    assert files.read(UID, 0.0) == IDLE
    files.prepare(UID)
    assert files.read(UID, 0.0) == IDLE


def test_a_new_task_does_not_inherit_what_the_last_one_wrote(files: TaskFiles) -> None:
    path = files.prepare(UID)
    path.write_text("80\n")
    assert files.read(UID, 0.0) == TaskProgress(True, 80.0)
    assert files.prepare(UID) == path
    assert files.read(UID, 0.0) == IDLE


def test_a_held_lock_is_a_living_task_whatever_it_writes(files: TaskFiles) -> None:
    path = files.prepare(UID)
    lock = path.with_name("progress.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert files.read(UID, 0.0) == TaskProgress(True, 0.0)
    path.write_text("12.5")
    assert files.read(UID, 0.0) == files.read(UID, 10 * SILENT_S) == TaskProgress(True, 12.5)
    lock.close()  # as the kernel does when the task dies
    assert files.read(UID, 0.0) == IDLE


def test_a_task_without_a_lock_is_believed_while_it_goes_on_writing(files: TaskFiles) -> None:
    path = files.prepare(UID)
    path.write_text("40")
    assert files.read(UID, 0.0).busy
    assert files.read(UID, SILENT_S).busy
    assert files.read(UID, SILENT_S + 1) == IDLE
    os.utime(path, ns=(1, 1))
    assert files.read(UID, SILENT_S + 2).busy


@pytest.mark.parametrize(
    ("content", "percent"),
    [
        (b"250", 100.0),
        (b"1e999", 100.0),
        (b"-5", 0.0),
        (b"nan", 0.0),
        (b"", 0.0),
        (b"\xff\x00", 0.0),
        (b"9" * 100_000, 100.0),
        (b"forty", 0.0),
    ],
)
def test_only_numbers_are_taken_and_they_are_bounded(
    files: TaskFiles, content: bytes, percent: float
) -> None:
    files.prepare(UID).write_bytes(content)
    assert files.read(UID, 0.0) == TaskProgress(percent > 0, percent)


def test_links_pipes_and_folders_are_not_followed(files: TaskFiles, tmp_path: Path) -> None:
    path = files.prepare(UID)
    secret = tmp_path / "secret"
    secret.write_text("77")
    path.symlink_to(secret)
    assert files.read(UID, 0.0) == IDLE
    path.unlink()
    os.mkfifo(path)  # opening it must not wait for a writer
    os.mkfifo(path.with_name("progress.lock"))
    assert files.read(UID, 0.0) == IDLE
    assert files.prepare(UID) == path
    path.mkdir()
    assert files.read(UID, 0.0) == IDLE
