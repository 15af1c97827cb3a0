"""Progress files, as the host sees them: what a task says of itself, and whether it still lives.

Each board has a folder of its own. The task writes ``progress`` in it (a number, 0-100) and holds a
lock on ``progress.lock`` while it lives; the kernel frees the lock when the task dies, however
that comes about. A task that holds no lock is believed for as long as it goes on writing.

What lies there was written by a task: numbers are all that is taken from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional, Tuple

SILENT_S = 600.0
"""A task without a lock that wrote nothing for so long is over: loading a model takes less."""

_NAME, _LOCK = "progress", "progress.lock"
_MAX_BYTES = 64
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class TaskProgress:
    """What a board's task says.

    Attributes:
        busy: A task is there.
        percent: 0-100; 0 when there is none.
    """

    busy: bool = False
    percent: float = 0.0


IDLE = TaskProgress()


class TaskFiles:
    """The folders of all boards; used by the watching thread, `clear` by that of Reserve too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: Dict[str, Tuple[Tuple[int, int], float]] = {}

    def prepare(self, target_uid: str) -> Path:
        """Return an empty folder for the board's next task; the path of its progress file.

        Any task may write there, whatever user it runs as; it is asked for numbers alone.

        Raises:
            OSError: It can't be made.
        """
        folder = self._folder / target_uid
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        for name in (_NAME, _LOCK):
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()
        return folder / _NAME

    def read(self, target_uid: str, now: float) -> TaskProgress:
        """Return how far the board's task is.

        Args:
            now: Seconds on a clock that only goes forward.
        """
        folder = self._folder / target_uid
        found = _percent(folder / _NAME)
        held = _held(folder / _LOCK)
        if held:
            return TaskProgress(True, found[0] if found else 0.0)
        if held is not None or found is None or found[0] <= 0:
            self._seen.pop(target_uid, None)
            return IDLE
        percent, mark = found
        before = self._seen.get(target_uid)
        if before is None or before[0] != mark:
            self._seen[target_uid] = mark, now
        elif now - before[1] > SILENT_S:
            return IDLE
        return TaskProgress(True, percent)


def _percent(path: Path) -> Optional[Tuple[float, Tuple[int, int]]]:
    """Return the number, and what changes when the file does; None without a file or a number."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None
        percent = float(os.read(descriptor, _MAX_BYTES))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    if percent != percent:
        return None
    return min(100.0, max(0.0, percent)), (facts.st_ino, facts.st_mtime_ns)


def _held(path: Path) -> Optional[bool]:
    """Return whether a process holds the lock; None where there is no such file."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
