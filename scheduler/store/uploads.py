"""Unfinished uploads and their pieces."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Text, bindparam, delete, func, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.files import Upload, UploadPiece
from edgeyard.scheduler.ports import Uploads
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import UtcTime, upload_pieces, uploads
from edgeyard.scheduler.store.transaction import Transaction

_ID = bindparam("id", type_=Text)
_GET = select(uploads).where(uploads.c.upload_id == _ID)
_APPEND = (
    update(uploads)
    .where(uploads.c.upload_id == _ID, uploads.c.offset_bytes == bindparam("begins"))
    .values(offset_bytes=bindparam("ends"), touched_at=bindparam("at", type_=UtcTime))
    .returning(uploads)
)
_RENAME = (
    update(uploads)
    .where(uploads.c.upload_id == _ID)
    .values(name=bindparam("to", type_=Text))
    .returning(uploads)
)
_PIECES = (
    select(upload_pieces)
    .where(upload_pieces.c.upload_id == _ID)
    .order_by(upload_pieces.c.offset_bytes)
)
_REMOVE_PIECES = (
    delete(upload_pieces).where(upload_pieces.c.upload_id == _ID).returning(upload_pieces)
)
_REMOVE = delete(uploads).where(uploads.c.upload_id == _ID).returning(uploads)
_ANNOUNCED = select(
    func.count().label("uploads"),
    func.coalesce(func.sum(uploads.c.size_bytes - uploads.c.offset_bytes), 0).label("left"),
).where(uploads.c.user_id == bindparam("user_id", type_=Text))


class SqlUploads(Uploads):
    """`Uploads` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, upload: Upload) -> None:
        if not self._tx.insert(uploads, flat_row(upload)):
            raise Conflict(f"upload {upload.upload_id} already exists")

    def get(self, upload_id: str) -> Upload:
        row = self._tx.row(_GET, {"id": upload_id})
        if row is None:
            raise NotFound("upload", upload_id)
        return _upload(row)

    def of_user(self, user_id: str | None) -> Sequence[Upload]:
        query = select(uploads).order_by(uploads.c.touched_at.desc(), uploads.c.upload_id)
        if user_id is not None:
            query = query.where(uploads.c.user_id == user_id)
        return [_upload(row) for row in self._tx.rows(query)]

    def same(self, user_id: str, sha256: str, size_bytes: int) -> Upload | None:
        query = (
            select(uploads)
            .where(
                uploads.c.user_id == user_id,
                uploads.c.sha256 == sha256,
                uploads.c.size_bytes == size_bytes,
            )
            .order_by(uploads.c.offset_bytes.desc(), uploads.c.upload_id)
            .limit(1)
        )
        row = self._tx.row(query)
        return None if row is None else _upload(row)

    def rename(self, upload_id: str, name: str) -> Upload:
        changed = self._tx.changed(_RENAME, {"id": upload_id, "to": name})
        if not changed:
            raise NotFound("upload", upload_id)
        return _upload(changed[0])

    def append(self, piece: UploadPiece, at: datetime) -> Upload:
        self._tx.lock_names()
        ends = piece.offset_bytes + piece.size_bytes
        values = {"id": piece.upload_id, "begins": piece.offset_bytes, "ends": ends, "at": at}
        changed = self._tx.changed(_APPEND, values)
        if not changed:
            known = self.get(piece.upload_id)
            raise Conflict(f"the upload has {known.offset_bytes} bytes: continue from that offset")
        upload = _upload(changed[0])
        self._tx.insert(upload_pieces, flat_row(piece))
        self._tx.name(upload.user_id, piece.sha256, piece.size_bytes)
        return upload

    def pieces(self, upload_id: str) -> Sequence[UploadPiece]:
        return [_piece(row) for row in self._tx.rows(_PIECES, {"id": upload_id})]

    def remove(self, upload_id: str) -> Sequence[UploadPiece]:
        pieces = [_piece(row) for row in self._tx.changed(_REMOVE_PIECES, {"id": upload_id})]
        for row in self._tx.changed(_REMOVE, {"id": upload_id}):
            for piece in pieces:
                self._tx.name(cast(str, row["user_id"]), piece.sha256, piece.size_bytes, -1)
        return pieces

    def announced(self, user_id: str) -> tuple[int, int]:
        row = self._tx.row(_ANNOUNCED, {"user_id": user_id})
        assert row is not None
        return cast(int, row["uploads"]), int(cast(int, row["left"]))


def _upload(row: Row) -> Upload:
    return Upload(**cast("dict[str, Any]", dict(row)))


def _piece(row: Row) -> UploadPiece:
    return UploadPiece(**cast("dict[str, Any]", dict(row)))
