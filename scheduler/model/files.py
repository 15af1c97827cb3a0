"""Stored content, its names, and what tasks uploaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Content in the file store."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFile:
    """A name that a user gave to stored content; a name refers to its newest file."""

    file_id: str
    user_id: str
    name: str
    sha256: str
    size_bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of which the server has the beginning.

    Attributes:
        sha256: Of the whole file, as its user states it; "" if not stated.
        size_bytes: Of the whole file.
        offset_bytes: So much of it is stored, as pieces.
        touched_at: When it began, or got its last piece.
    """

    upload_id: str
    user_id: str
    name: str
    sha256: str
    size_bytes: int
    offset_bytes: int
    touched_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPiece:
    """Stored content that is a part of an upload.

    Attributes:
        offset_bytes: Where in the file it begins.
        sha256: Of the piece.
        size_bytes: Of the piece.
    """

    upload_id: str
    offset_bytes: int
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRemoval:
    """The newest removal of content that nothing named.

    Attributes:
        number: How often its removal was announced.
        is_under_way: It was announced a short time ago, and its end is not recorded.
    """

    number: int
    is_under_way: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadGrant:
    """An unguessable name under ``/download/`` that belongs to one attempt.

    Attributes:
        name: Random, with the suffix of the file name.
        content: Inline content (``spec.json``); None for stored files.
    """

    name: str
    benchmark_id: str
    attempt: int
    filename: str
    sha256: str
    size_bytes: int
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """A file that a task uploaded."""

    benchmark_id: str
    attempt: int
    name: str
    sha256: str
    size_bytes: int
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The parsed ``report.json`` of an attempt (schema: ``docs/reference/result.schema.json``)."""

    benchmark_id: str
    attempt: int
    report: Mapping[str, object]
    received_at: datetime


def newest_report(reports: Iterable[Report]) -> Report | None:
    """Return the report that counts: that of the last attempt that uploaded one."""
    return max(reports, key=lambda each: each.attempt, default=None)
