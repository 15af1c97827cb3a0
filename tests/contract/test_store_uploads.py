"""Unfinished uploads: what every store keeps to, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.files import Upload, UploadPiece
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make


def an_upload(number: int = 1, **changes: object) -> Upload:
    known: dict[str, object] = {
        "upload_id": f"upload-{number}",
        "user_id": "ann",
        "name": "net.onnx",
        "sha256": make.a_sha256("whole"),
        "size_bytes": 100,
        "offset_bytes": 0,
        "touched_at": make.at(number),
    }
    return Upload(**(known | changes))  # type: ignore[arg-type]


def piece(offset: int, size: int, content: str = "piece", number: int = 1) -> UploadPiece:
    return UploadPiece(
        upload_id=f"upload-{number}",
        offset_bytes=offset,
        sha256=make.a_sha256(content),
        size_bytes=size,
    )


def test_pieces_follow_one_another(store: SqlStore) -> None:
    with store.write() as uow:
        uow.uploads.add(an_upload())
        assert uow.uploads.append(piece(0, 60, "a"), make.at(5)).offset_bytes == 60
        grown = uow.uploads.append(piece(60, 30, "b"), make.at(6))
    assert grown == replace(an_upload(), offset_bytes=90, touched_at=make.at(6))
    with store.read() as uow:
        assert uow.uploads.get("upload-1") == grown
        assert uow.uploads.pieces("upload-1") == [piece(0, 60, "a"), piece(60, 30, "b")]
        assert uow.uploads.announced("ann") == (1, 10)
        assert uow.uploads.announced("bob") == (0, 0)
        assert uow.usage.stored_bytes("ann") == 90
        assert uow.files.referenced(make.a_sha256("a"))


@pytest.mark.parametrize("offset", [0, 59, 61])
def test_a_piece_begins_where_the_upload_ends(store: SqlStore, offset: int) -> None:
    with store.write() as uow:
        uow.uploads.add(an_upload())
        uow.uploads.append(piece(0, 60, "a"), make.at(5))
    with pytest.raises(Conflict, match="60 bytes"), store.write() as uow:
        uow.uploads.append(piece(offset, 10, "b"), make.at(6))
    with store.read() as uow:
        assert uow.uploads.get("upload-1").offset_bytes == 60
        assert not uow.files.referenced(make.a_sha256("b"))


def test_the_furthest_upload_of_the_same_content_is_found(store: SqlStore) -> None:
    with store.write() as uow:
        uow.uploads.add(an_upload(1))
        uow.uploads.add(an_upload(2))
        uow.uploads.add(an_upload(3, user_id="bob"))
        uow.uploads.append(piece(0, 10, number=2), make.at(9))
        with pytest.raises(Conflict):
            uow.uploads.add(an_upload(1))
    with store.read() as uow:
        found = uow.uploads.same("ann", make.a_sha256("whole"), 100)
        assert found is not None
        assert found.upload_id == "upload-2"
        assert uow.uploads.same("ann", make.a_sha256("whole"), 99) is None
        assert uow.uploads.same("ann", make.a_sha256("other"), 100) is None
        ids = [[each.upload_id for each in uow.uploads.of_user(who)] for who in ("ann", None)]
    assert ids == [["upload-2", "upload-1"], ["upload-2", "upload-3", "upload-1"]]


def test_what_is_removed_is_counted_no_longer(store: SqlStore) -> None:
    with store.write() as uow:
        uow.uploads.add(an_upload())
        uow.uploads.append(piece(0, 40, "same"), make.at(5))
        uow.uploads.append(piece(40, 40, "same"), make.at(6))
    with store.read() as uow:
        assert uow.usage.stored_bytes("ann") == 40  # equal content is stored once
    with store.write() as uow:
        assert len(uow.uploads.remove("upload-1")) == 2
        assert uow.uploads.remove("upload-1") == []
    with store.read() as uow:
        assert uow.usage.stored_bytes("ann") == 0
        assert not uow.files.referenced(make.a_sha256("same"))
        with pytest.raises(NotFound):
            uow.uploads.get("upload-1")
    with pytest.raises(NotFound), store.write() as uow:
        uow.uploads.append(piece(80, 20), make.at(7))


def test_uploads_that_do_not_go_on_are_pruned(store: SqlStore) -> None:
    with store.write() as uow:
        uow.uploads.add(an_upload(1))
        uow.uploads.append(piece(0, 10, "old"), make.at(10))
        uow.uploads.add(an_upload(2, touched_at=make.at(100)))
        uow.uploads.append(piece(0, 10, "new", number=2), make.at(100))
    pruned = store.prune({RetentionClass.UPLOADS: make.at(50)})
    assert pruned[RetentionClass.UPLOADS].rows == 1
    with store.read() as uow:
        assert [each.upload_id for each in uow.uploads.of_user(None)] == ["upload-2"]
        assert uow.uploads.pieces("upload-1") == []
        assert uow.usage.stored_bytes("ann") == 10
        assert not uow.files.referenced(make.a_sha256("old"))
