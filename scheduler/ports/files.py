"""Content-addressed files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from edgeyard.scheduler.model.files import StoredFile


class FileWriter(Protocol):
    """Writes one file, on one thread at a time; the file is visible only after `commit`."""

    def write(self, chunk: bytes) -> None:
        """Append bytes.

        Raises:
            TooLarge: The file exceeds its limit; it is dropped.
            OutOfSpace: Only the reserve is left.
            Unavailable: The place cannot be written.
        """
        ...

    def commit(self) -> StoredFile:
        """Sync the file to disk and make it visible; equal content is stored once.

        Raises:
            Unavailable: The file could not be made durable; it is dropped.
        """
        ...

    def abort(self) -> None:
        """Drop the file; no effect after `commit`."""
        ...


class FileStore(Protocol):
    """Stores files by the hash of their content. Thread-safe."""

    def writer(self, limit_bytes: int, *, urgent: bool = False) -> FileWriter:
        """Begin a file.

        Args:
            limit_bytes: Maximum size.
            urgent: It may use the space that is reserved for results of running benchmarks.

        Raises:
            OutOfSpace: Only the reserve is left.
            Unavailable: The place cannot be written.
        """
        ...

    def path(self, sha256: str) -> Path:
        """Return a local path from which the content can be read.

        Raises:
            NotFound: No such content is stored.
            Unavailable: The place where it is stored does not answer.
        """
        ...

    def contains(self, sha256: str) -> bool:
        """Return whether the content is stored now, where all servers find it.

        Raises:
            NotFound: The argument is not a hash.
            Unavailable: The place where it is stored does not answer.
        """
        ...

    def mark(self) -> str | None:
        """Return the mark by which a database knows this store; None: it has none yet.

        Raises:
            Unavailable: The place where it is stored does not answer.
        """
        ...

    def set_mark(self, mark: str) -> None:
        """Give a store without a mark one, durably.

        Raises:
            Unavailable: The place cannot be written.
        """
        ...

    def free_bytes(self) -> int:
        """Return the free space for new files.

        Raises:
            Unavailable: The disk does not answer.
        """
        ...

    def contents(self, *, older_than_s: float = 3600.0) -> Iterator[StoredFile]:
        """Yield content, to find what has no name any more, or to copy all of it.

        Args:
            older_than_s: Seconds for which what was committed is left out: it may be about to get
                its name.
        """
        ...

    def remove(self, sha256: str, *, named_at: datetime | None = None) -> bool:
        """Remove content that has no name any more; return whether it was removed.

        Content that was committed within the last minute stays, because the same content may have
        been uploaded again and be about to get a name. `contents` finds it later.

        Args:
            sha256: Hash of the content.
            named_at: When its last name was given: if nobody committed it since, it is removed
                at once.
        """
        ...

    def sweep_temporary(self) -> int:
        """Remove files whose upload was abandoned; return how many."""
        ...
