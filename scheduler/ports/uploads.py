"""The repository of unfinished uploads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.files import Upload, UploadPiece


class Uploads(Protocol):
    """Stores uploads that have begun and not ended, and the pieces that arrived."""

    def add(self, upload: Upload) -> None:
        """Store an upload that begins.

        Raises:
            Conflict: Its id is taken.
        """
        ...

    def get(self, upload_id: str) -> Upload:
        """Return an upload.

        Raises:
            NotFound: There is none of this id; it may have ended.
        """
        ...

    def of_user(self, user_id: str | None) -> Sequence[Upload]:
        """Return the uploads of a user, newest first.

        Args:
            user_id: Whose; None: everybody's.
        """
        ...

    def same(self, user_id: str, sha256: str, size_bytes: int) -> Upload | None:
        """Return the furthest upload of a user of this content; None if there is none."""
        ...

    def rename(self, upload_id: str, name: str) -> Upload:
        """Give an upload another file name, and return it.

        Raises:
            NotFound: There is no such upload (any more).
        """
        ...

    def append(self, piece: UploadPiece, at: datetime) -> Upload:
        """Add the next piece, and return the upload with it.

        Args:
            piece: It begins where the upload ends so far.
            at: When it arrived.

        Raises:
            NotFound: There is no such upload (any more).
            Conflict: It begins elsewhere, because another request added a piece.
        """
        ...

    def pieces(self, upload_id: str) -> Sequence[UploadPiece]:
        """Return the pieces of an upload, in their order."""
        ...

    def remove(self, upload_id: str) -> Sequence[UploadPiece]:
        """Remove an upload, if it is there, and return the pieces that it had."""
        ...

    def announced(self, user_id: str) -> tuple[int, int]:
        """Return how many uploads a user has, and the bytes that they have yet to send."""
        ...
