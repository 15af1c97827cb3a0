"""Room on the database's disk that is given up when it is full, so that room can be made."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

MIN_ROOM_BYTES = 2 * 2**20
"""With less a database is not opened before the ballast is given up: its log needs some."""


class Ballast:
    """A file next to the database that holds nothing."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Nothing is written yet.

        Args:
            path: Of the file.
            size_bytes: Its size; 0: there is none.
        """
        self._path = path
        self._size_bytes = size_bytes

    def is_released(self) -> bool:
        """Whether it was given up, and there was not enough room for it since."""
        return bool(self._size_bytes) and not self._path.exists()

    def release(self) -> bool:
        """Give it up; whether that made room."""
        if not self._size_bytes:
            return False
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        logger.warning(
            "the disk of the database is full: its ballast was given up, so that benchmarks can "
            "be cancelled and files deleted",
            extra={"event": "store.ballast_released", "size_bytes": self._size_bytes},
        )
        return True

    def release_where_full(self) -> None:
        """Give it up where even opening the database might fail."""
        if self._free_bytes() < MIN_ROOM_BYTES:
            self.release()

    def restore(self) -> None:
        """Make it again where there is room for twice as much."""
        if not self.is_released() or self._free_bytes() < 2 * self._size_bytes:
            return
        part = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):
            try:
                with part.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self._size_bytes)
                part.replace(self._path)
            finally:
                part.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        try:
            stat = os.statvfs(self._path.parent)
        except OSError:  # the folder is not there yet
            return 2**62
        return stat.f_bavail * stat.f_frsize
