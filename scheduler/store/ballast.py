"""Reserved space on the database's disk, released when it is full so that data can be deleted."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from edgeyard.atomic_files import open_atomically

logger = logging.getLogger(__name__)

MIN_FREE_BYTES = 2 * 2**20
"""Minimum free space; with less the ballast is released before the database is opened."""


class Ballast:
    """A file of zeros next to the database."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Describe the file; `restore` writes it.

        Args:
            path: Path of the file.
            size_bytes: Its size; 0: no ballast.
        """
        self._path = path
        self._size_bytes = size_bytes

    def is_released(self) -> bool:
        """Return whether it was released, and could not be restored since."""
        return bool(self._size_bytes) and not self._path.exists()

    def release(self) -> bool:
        """Release it; return whether that freed space."""
        if not self._size_bytes:
            return False
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        logger.warning(
            "the disk of the database is full: its reserve was released, so that benchmarks can "
            "be cancelled and files deleted",
            extra={"event": "store.ballast_released", "size_bytes": self._size_bytes},
        )
        return True

    def release_where_full(self) -> None:
        """Release it if opening the database might fail for lack of space."""
        if self._free_bytes() < MIN_FREE_BYTES:
            self.release()

    def restore(self) -> None:
        """Restore it if twice its size is free."""
        if not self.is_released() or self._free_bytes() < 2 * self._size_bytes:
            return
        with contextlib.suppress(OSError), open_atomically(self._path) as file:
            os.posix_fallocate(file.fileno(), 0, self._size_bytes)

    def _free_bytes(self) -> int:
        try:
            stat = os.statvfs(self._path.parent)
        except OSError:  # the folder is not there yet
            return 2**62
        return stat.f_bavail * stat.f_frsize
