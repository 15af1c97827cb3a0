"""Uploads that go on after an interruption: the protocol tus 1.0.0 (https://tus.io).

Core protocol with the extensions *creation* and *termination*. What arrives is stored in pieces,
each safe on disk before it counts, so that a client whose connection or process breaks off asks
how much is there (HEAD) and sends the rest (PATCH). With the last byte the pieces become the file.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import Response
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.problems import BadRequest
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts_offset_bytes, no_body
from edgeyard.benchmark_api.routes.files import name_file, upload_budget
from edgeyard.benchmark_api.routes.receiving import ReceivedFile, pump, see_received
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import WrongMediaType
from edgeyard.benchmark_api.schemas.fields import file_name_problem, refusal
from edgeyard.errors import Conflict, InvalidInput, NotFound, TooLarge
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import StoredFile, Upload, UploadPiece
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.ports import FileWriter, UnitOfWork

router = Router(prefix="/v1/uploads", tags=["files"])

TUS = "1.0.0"
MEDIA_TYPE = "application/offset+octet-stream"

PIECE_BYTES = 16 * 2**20
"""At most so much is lost when a server dies."""

MIN_PIECE_BYTES = 2**20
"""Smaller pieces are kept only at the end of a file: each is a file and a row of its own."""

_READ_BYTES = 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _digits(text: object) -> object:
    """Refuse what is no whole number as the protocol writes it, e.g. +5, 5.0 or 5_0."""
    if isinstance(text, str) and not (text.isascii() and text.isdigit()):
        raise refusal("is not a whole number", "digits only")
    return text


UploadLength = Annotated[int, Header(ge=1, le=2**62), BeforeValidator(_digits)]
UploadOffset = Annotated[int, Header(ge=0, le=2**62), BeforeValidator(_digits)]
UploadMetadata = Annotated[str, Header(max_length=4096)]
TusResumable = Annotated[str | None, Header(max_length=32)]


@router.post(
    "", status_code=201, responses=no_body(201, "The upload was begun; ``Location`` is its URL.")
)
def begin(
    caller: Submitter,
    context: Ctx,
    upload_length: UploadLength,
    upload_metadata: UploadMetadata,
    tus_resumable: TusResumable = None,
) -> Response:
    """Begin an upload, or go on with the one of the same content.

    ``Upload-Length`` is the size of the file. ``Upload-Metadata`` holds ``filename`` and, so that
    the upload is found again, ``sha256``, each in base64; the last ``filename`` counts. The
    answer's ``Location`` is the upload, and ``Upload-Offset`` how much of it is there.
    """
    _check_version(tus_resumable)
    name, sha256 = _metadata(upload_metadata)
    services = context.services
    setting, limit = services.settings.upload_limit()
    if upload_length > limit:
        raise TooLarge("the upload", limit, setting)
    upload = Upload(
        upload_id=f"upload-{secrets.token_hex(10)}",
        user_id=caller.user_id,
        name=name,
        sha256=sha256,
        size_bytes=upload_length,
        offset_bytes=0,
        touched_at=services.clock.now(),
    )
    allowed = quotas_of(caller.user, services.settings.quotas)

    def add(uow: UnitOfWork) -> Upload:
        known = uow.uploads.same(caller.user_id, sha256, upload_length) if sha256 else None
        if known is not None:
            return known if known.name == name else uow.uploads.rename(known.upload_id, name)
        uow.uploads.add(upload)
        quotas.check_upload(uow, caller.user_id, allowed)
        return upload

    services.check_room(caller.user)
    found = services.store.transact(add)
    location = f"{services.public_url}/v1/uploads/{found.upload_id}"
    return _answer(201, found, {"Location": location})


@router.get("")
def list_uploads(caller: Submitter, context: Ctx) -> Answer[shapes.Uploads]:
    """Your unfinished uploads, newest first; operators see everybody's."""
    with context.services.store.read() as uow:
        found = uow.uploads.of_user(None if caller.is_operator else caller.user_id)
    return Answer(shapes.Uploads(items=[views.upload(each) for each in found]))


@router.head("/{upload_id}", status_code=200, responses=no_body(200, "See ``Upload-Offset``."))
def show(
    upload_id: str, caller: Submitter, context: Ctx, tus_resumable: TusResumable = None
) -> Response:
    """Show in ``Upload-Offset`` how much of an upload is there."""
    _check_version(tus_resumable)
    with context.services.store.read() as uow:
        return _answer(200, _own(uow, upload_id, caller))


@router.patch("/{upload_id}", status_code=204, openapi_extra=accepts_offset_bytes())
async def send(
    upload_id: str,
    request: Request,
    caller: Submitter,
    context: Ctx,
    upload_offset: UploadOffset,
    tus_resumable: TusResumable = None,
) -> Response:
    """Send bytes from ``Upload-Offset`` on.

    With the last one the file is there, and the answer's ``Location`` names it. If the connection
    breaks off, what arrived is kept.
    """
    _check_version(tus_resumable)
    given = request.headers.get("content-type", "")
    if given.split(";")[0].strip().lower() != MEDIA_TYPE:
        raise WrongMediaType(given, MEDIA_TYPE)
    if encoding := request.headers.get("content-encoding"):
        raise WrongMediaType(f"{MEDIA_TYPE}, {encoding}", f"{MEDIA_TYPE} without Content-Encoding")
    upload = await run_in_threadpool(partial(_find, context, caller, upload_id))
    if upload.offset_bytes != upload_offset:
        raise Conflict(f"the upload has {upload.offset_bytes} bytes: continue from that offset")
    pieces = await run_in_threadpool(partial(_Pieces, context, caller, upload))
    try:
        await pump(request, pieces.write)
        await run_in_threadpool(pieces.flush)
    except ClientDisconnect:
        await run_in_threadpool(pieces.keep)
        raise
    finally:
        pieces.abort()
    headers = {}
    if pieces.upload.offset_bytes == pieces.upload.size_bytes:
        file_id = await run_in_threadpool(partial(_finish, context, caller, pieces.upload))
        headers["Location"] = f"{context.services.public_url}/v1/files/{file_id}"
    return _answer(204, pieces.upload, headers)


@router.delete("/{upload_id}", status_code=204)
def abandon(
    upload_id: str, caller: Submitter, context: Ctx, tus_resumable: TusResumable = None
) -> Response:
    """Give up an upload: what arrived is deleted."""
    _check_version(tus_resumable)

    def forget(uow: UnitOfWork) -> tuple[Upload, list[UploadPiece]]:
        upload = uow.uploads.get(upload_id)
        if not caller.may_see(upload.user_id):
            raise NotFound("upload", upload_id)
        uow.log.append(
            Event(
                at=context.services.clock.now(),
                kind="file.deleted",
                user_id=caller.user_id,
                data={
                    "upload_id": upload_id,
                    "owner_id": upload.user_id,
                    "before": {"name": upload.name, "size_bytes": upload.offset_bytes},
                    "after": {},
                },
            )
        )
        return upload, list(uow.uploads.remove(upload_id))

    upload, pieces = context.services.store.transact(forget, frees_space=True)
    _release(context, pieces)
    return _answer(204, upload)


class _Pieces:
    """Cuts what arrives into pieces, and stores one after the other; used by one thread at a time.

    Attributes:
        upload: With the pieces that are stored.
    """

    def __init__(self, context: Context, caller: Caller, upload: Upload) -> None:
        self.upload = upload
        self._context = context
        self._allowed = quotas_of(caller.user, context.services.settings.quotas)
        self._budget = upload_budget(context, caller)
        self._writer: FileWriter | None = None
        self._size_bytes = 0

    def write(self, block: bytes) -> None:
        """Take bytes.

        Raises:
            BadRequest: There are more than the upload has.
            Conflict: Another request has added a piece meanwhile.
            OutOfSpace: Only the reserve is left.
            QuotaExceeded: The user has more than they may.
        """
        left = self.upload.size_bytes - self.upload.offset_bytes - self._size_bytes
        if len(block) > left:
            raise BadRequest(f"the upload has {self.upload.size_bytes} bytes; more were sent")
        rest = memoryview(block)
        while rest:
            part = rest[: PIECE_BYTES - self._size_bytes]
            if self._writer is None:
                self._writer = self._context.services.files.writer(PIECE_BYTES)
            if self._budget is not None:
                self._budget.take(len(part))
            self._writer.write(bytes(part))
            self._size_bytes += len(part)
            rest = rest[len(part) :]
            if self._size_bytes == PIECE_BYTES:
                self.flush()

    def flush(self) -> None:
        """Store what was taken as a piece.

        Raises:
            BadRequest: It is too small for one, and not the end of the file.
            Conflict: As `write`.
        """
        if self._writer is None:
            return
        ends = self.upload.offset_bytes + self._size_bytes
        if self._size_bytes < MIN_PIECE_BYTES and ends < self.upload.size_bytes:
            raise BadRequest(f"send at least {MIN_PIECE_BYTES} bytes at a time")
        services = self._context.services
        stored = self._writer.commit()
        self._writer, self._size_bytes = None, 0
        piece = UploadPiece(
            upload_id=self.upload.upload_id,
            offset_bytes=self.upload.offset_bytes,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )
        received = ReceivedFile(self.upload.name, stored)

        def add(uow: UnitOfWork) -> Upload:
            upload = uow.uploads.append(piece, services.clock.now())
            seen.check(uow)
            quotas.check_stored(uow, upload.user_id, self._allowed)
            return upload

        if self._budget is not None:
            self._budget.close()
        try:
            seen = see_received(services, [received])
            self.upload = services.store.transact(add)
        except Exception:
            _release(self._context, [piece])
            raise

    def keep(self) -> None:
        """Store what was taken of a request that broke off, if it is enough for a piece."""
        if self._size_bytes >= MIN_PIECE_BYTES:
            self.flush()

    def abort(self) -> None:
        """Delete received bytes that are not stored yet."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._budget is not None:
            self._budget.close()


def _finish(context: Context, caller: Caller, upload: Upload) -> str:
    """Make the file of an upload's pieces, and return its id.

    Raises:
        InvalidInput: It has not the SHA-256 that its user stated; the upload ends.
        NotFound: Another request has finished or abandoned the upload.
    """
    services = context.services
    with services.store.read() as uow:
        pieces = _own_pieces(uow, upload)
    writer = services.files.writer(upload.size_bytes)
    try:
        for piece in pieces:
            with services.files.path(piece.sha256).open("rb") as content:
                while block := content.read(_READ_BYTES):
                    writer.write(block)
        stored = writer.commit()
    except BaseException:
        writer.abort()
        raise
    if upload.sha256 and stored.sha256 != upload.sha256:
        services.store.transact(lambda uow: uow.uploads.remove(upload.upload_id), frees_space=True)
        _release(context, pieces, stored)
        raise InvalidInput.at(
            "/sha256",
            f"the content has the SHA-256 {stored.sha256}, not the stated one: the upload ended",
            "the unchanged file, from its beginning",
        )

    def end(uow: UnitOfWork) -> None:
        _own_pieces(uow, upload)
        uow.uploads.remove(upload.upload_id)

    file = name_file(context, caller, ReceivedFile(upload.name, stored), also=end)
    _release(context, pieces)
    return file.file_id


def _own_pieces(uow: UnitOfWork, upload: Upload) -> list[UploadPiece]:
    if uow.uploads.get(upload.upload_id).offset_bytes != upload.size_bytes:
        raise NotFound("upload", upload.upload_id)
    return list(uow.uploads.pieces(upload.upload_id))


def _release(context: Context, pieces: list[UploadPiece], whole: StoredFile | None = None) -> None:
    """Remove content that an upload named, unless something else names it."""
    services = context.services
    now = services.clock.now()
    hashes = [piece.sha256 for piece in pieces] + ([whole.sha256] if whole else [])
    release(services.store, services.files, dict.fromkeys(hashes, now))


def _find(context: Context, caller: Caller, upload_id: str) -> Upload:
    with context.services.store.read() as uow:
        return _own(uow, upload_id, caller)


def _own(uow: UnitOfWork, upload_id: str, caller: Caller) -> Upload:
    upload = uow.uploads.get(upload_id)
    if upload.user_id != caller.user_id:
        raise NotFound("upload", upload_id)
    return upload


def _answer(status: int, upload: Upload, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        status_code=status,
        headers={
            "Tus-Resumable": TUS,
            "Upload-Offset": str(upload.offset_bytes),
            "Upload-Length": str(upload.size_bytes),
            "Cache-Control": "no-store",
            **(headers or {}),
        },
    )


def _check_version(stated: str | None) -> None:
    if stated is not None and stated != TUS:
        reason = f"this server speaks version {TUS} of the protocol tus"
        raise HTTPException(412, reason, {"Tus-Version": TUS})


def _metadata(text: str) -> tuple[str, str]:
    """Return file name and SHA-256 ("" if absent) of ``Upload-Metadata``.

    Raises:
        InvalidInput: They are no metadata, lack a plain file name, or have no hash for a hash.
    """
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, _, value = pair.strip().partition(" ")
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidInput.at(
                "/Upload-Metadata", f"{key[:100]} is not base64 of UTF-8", "e.g. filename bmV0"
            ) from error
    name, sha256 = found.get("filename", ""), found.get("sha256", "").lower()
    if problem := file_name_problem(name):
        raise InvalidInput.at("/Upload-Metadata", f"filename {problem}", "a plain file name")
    if sha256 and not _SHA256.fullmatch(sha256):
        raise InvalidInput.at(
            "/Upload-Metadata", "sha256 is not a SHA-256", "64 digits from 0 to f"
        )
    return name, sha256
