"""Content-addressed files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from edgeyard.scheduler.model.files import StoredFile


class FileWriter(Protocol):
    """One file on its way in; nothing is visible before `commit`."""

    def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            TooLarge: Over the limit; the file is dropped.
        """
        ...

    def commit(self) -> StoredFile:
        """Sync to disk and make it visible; the same content is stored once."""
        ...

    def abort(self) -> None:
        """Drop it; harmless after `commit`."""
        ...


class FileStore(Protocol):
    """Content-addressed files."""

    def writer(self, limit_bytes: int, *, urgent: bool = False) -> FileWriter:
        """Begin a file.

        Args:
            limit_bytes: It may not be longer.
            urgent: It may take the room that is reserved for results of what runs.
        """
        ...

    def path(self, sha256: str) -> Path:
        """Where the content lies, for reading.

        Raises:
            NotFound: No such content.
        """
        ...

    def contains(self, sha256: str) -> bool:
        """Return whether the content is stored now, where all servers find it.

        Raises:
            NotFound: It is no hash.
            Unavailable: The place where it is stored does not answer.
        """
        ...

    def free_bytes(self) -> int:
        """Room that is left."""
        ...

    def contents(self) -> Iterator[StoredFile]:
        """Content that nobody committed lately; for finding what nothing names."""
        ...

    def remove(self, sha256: str, *, named_at: datetime | None = None) -> bool:
        """Drop content that nothing names any more; True if it went.

        What was committed within the last minute stays, because it may be about to be named.

        Args:
            sha256: Of the content.
            named_at: When its last name was given: if nobody committed it again since, it goes
                at once.
        """
        ...

    def sweep_temporary(self) -> int:
        """Remove files that were begun and left; returns how many."""
        ...
