"""Content-addressed files. A file that was answered with 2xx is complete and on disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from edgeyard.atomic_files import open_atomically, sync_folder
from edgeyard.errors import NotFound, OutOfSpace, TooLarge, Unavailable
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.ports import FileStore, FileWriter

logger = logging.getLogger(__name__)

ORPHAN_AGE_S = 3600.0
"""A temporary file without a write for this time belongs to an aborted upload."""

MAX_NAMING_DELAY_S = 60.0
"""Maximum time between the end of an upload and the transaction that names its content."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


MARK_FILE = "store.id"
"""File, or key below the prefix of a bucket, with the mark of a file store."""


class ContentFiles(FileStore):
    """`FileStore` in a folder: ``ab/cd/<sha256>``, thread-safe.

    Several processes may share the folder. Content comes in by way of ``tmp/`` of the same file
    system, synced before it gets its name, so that no name ever stands for half a file.
    """

    def __init__(self, root: Path, *, reserve_bytes: int = 0) -> None:
        """Make the folder, and remove files of uploads that an earlier process left.

        Args:
            root: The folder.
            reserve_bytes: Room that is left free for the database and for results of what runs.

        Raises:
            Unavailable: The folder can't be made or written.
        """
        self._root = root
        self._reserve_bytes = reserve_bytes
        self._temporary = root / "tmp"
        with _translated("making the file store's folder"):
            self._temporary.mkdir(parents=True, exist_ok=True)
        self.sweep_temporary()

    def writer(self, limit_bytes: int, *, urgent: bool = False) -> ContentWriter:
        reserve_bytes = 0 if urgent else self._reserve_bytes
        return ContentWriter(self, self._temporary, limit_bytes, reserve_bytes)

    def path(self, sha256: str) -> Path:
        path = self._place(sha256)
        if not path.is_file():
            raise NotFound("content", sha256)
        return path

    def contains(self, sha256: str) -> bool:
        return self._place(sha256).is_file()

    def remove(
        self,
        sha256: str,
        *,
        older_than_s: float = MAX_NAMING_DELAY_S,
        named_at: datetime | None = None,
    ) -> bool:
        """Drop content that nothing names any more (`Files.referenced`); True if it went.

        What was committed just now stays: the same content may have come in again, and be about
        to be named. `contents` finds it later.

        Args:
            sha256: Of the content.
            older_than_s: Seconds for which what was committed stays.
            named_at: When its last name was given: if nobody committed it again since, nobody is
                about to name it, and it goes at once.
        """
        path = self._place(sha256)
        with (
            _translated("removing content"),
            self._locked(fcntl.LOCK_EX),  # the same content may come in between look and removal
            contextlib.suppress(FileNotFoundError),
        ):
            committed_at = path.stat().st_mtime
            unchanged = named_at is not None and committed_at <= named_at.timestamp()
            if unchanged or committed_at <= time.time() - older_than_s:
                failpoint("file:remove")
                path.unlink()
                return True
        return False

    def contents(self, *, older_than_s: float = ORPHAN_AGE_S) -> Iterator[StoredFile]:
        newest = time.time() - older_than_s
        for path in self._root.glob("??/??/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if stat.st_mtime < newest and _SHA256.fullmatch(path.name):
                    yield StoredFile(sha256=path.name, size_bytes=stat.st_size)

    def mark(self) -> str | None:
        with _translated("reading the file store's mark"):
            try:
                return (self._root / MARK_FILE).read_bytes().decode("utf-8", "replace").strip()
            except FileNotFoundError:
                return None

    def set_mark(self, mark: str) -> None:
        with (
            _translated("writing the file store's mark"),
            open_atomically(self._root / MARK_FILE, sync=True) as file,
        ):
            file.write(f"{mark}\n".encode())

    def evict(self, free_bytes: int, spared: Collection[str]) -> None:
        """Remove content of a cache, oldest first, until so many bytes are free.

        Args:
            free_bytes: Room that is wanted.
            spared: Content that stays, as does what was read or came in just now.

        Raises:
            Unavailable: The folder can't be asked.
        """
        ages = []
        for path in self._root.glob("??/??/*"):
            with contextlib.suppress(FileNotFoundError):
                ages.append((path.stat().st_mtime, path.name))
        for _, sha256 in sorted(ages):
            if self.free_bytes() >= free_bytes:
                return
            if sha256 not in spared and _SHA256.fullmatch(sha256):
                self.remove(sha256)

    def free_bytes(self) -> int:
        with _translated("asking for the room that is left"):
            stat = os.statvfs(self._root)
        return stat.f_bavail * stat.f_frsize

    def sweep_temporary(self, older_than_s: float = ORPHAN_AGE_S) -> int:
        """Remove temporary files without a write for this time; return how many."""
        oldest = time.time() - older_than_s
        swept = 0
        for path in self._temporary.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    swept += 1
        if swept:
            logger.info("abandoned uploads removed", extra={"event": "files.swept", "files": swept})
        return swept

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Lock the folder: shared to add content, exclusive to remove it."""
        with (self._root / "lock").open("ab") as lock:
            fcntl.flock(lock, how)  # ends with the file
            yield

    def _place(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise NotFound("content", sha256)
        return self._root / sha256[:2] / sha256[2:4] / sha256

    def _keep(self, temporary: Path, sha256: str) -> None:
        """Move synced content to its name durably."""
        place = self._place(sha256)
        for folder in (place.parent.parent, place.parent):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            # the thread that made it may not have come to this yet
            sync_folder(folder.parent)
        failpoint("file:rename")
        # Also where it is there already: renaming is atomic, makes its time new, which keeps it
        # from those who look for old content, and heals a file that the disk has damaged.
        with self._locked(fcntl.LOCK_SH):
            temporary.replace(place)
        failpoint("file:sync-folder")
        sync_folder(place.parent)
        failpoint("file:kept")


class ContentWriter(FileWriter):
    """Writes one file of the folder; belongs to one thread at a time."""

    def __init__(
        self, files: ContentFiles, folder: Path, limit_bytes: int, reserve_bytes: int = 0
    ) -> None:
        self._files = files
        self._limit_bytes = limit_bytes
        self._reserve_bytes = reserve_bytes
        self._leave_reserve(0)
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        with _translated("beginning a file"):
            descriptor, name = tempfile.mkstemp(dir=folder)
            failpoint("file:created")
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._open = True

    def write(self, chunk: bytes) -> None:
        if self._size_bytes + len(chunk) > self._limit_bytes:
            self.abort()
            raise TooLarge("the file", self._limit_bytes)
        try:
            self._leave_reserve(len(chunk))
        except Unavailable:
            self.abort()
            raise
        self._hash.update(chunk)
        self._size_bytes += len(chunk)
        with self._dropped_on_error("writing a file"):
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._file.write(rest) :]

    def commit(self) -> StoredFile:
        sha256 = self._hash.hexdigest()
        with self._dropped_on_error("keeping a file"):
            failpoint("file:sync")
            os.fsync(self._file.fileno())
            self._file.close()
            self._files._keep(self._path, sha256)
        self._open = False
        return StoredFile(sha256=sha256, size_bytes=self._size_bytes)

    def abort(self) -> None:
        if not self._open:
            return
        self._open = False
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _leave_reserve(self, size_bytes: int) -> None:
        """Raise OutOfSpace if so many more bytes would use the reserve."""
        if self._reserve_bytes and self._files.free_bytes() < self._reserve_bytes + size_bytes:
            raise OutOfSpace("taking a file", self._reserve_bytes)

    @contextmanager
    def _dropped_on_error(self, doing: str) -> Iterator[None]:
        if not self._open:
            raise ValueError("the file was committed or dropped before")
        try:
            with _translated(doing):
                yield
        except Unavailable:
            self.abort()
            raise


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        logger.error("the file store failed", extra={"event": "files.failed", "cause": str(error)})
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(doing) from error
        raise Unavailable(f"{doing}: the file system refused", retry_after_s=60.0) from error
