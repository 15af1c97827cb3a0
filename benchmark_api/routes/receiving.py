"""Uploads into the file store: streamed in bounded memory, whole or not at all.

The event loop only passes bytes on; hashing and writing happen in a thread, one block at a time,
while the next block arrives.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.problems import BadRequest
from edgeyard.benchmark_api.schemas.body import WrongMediaType, check_tree
from edgeyard.benchmark_api.schemas.fields import file_name_problem
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import InvalidInput, TooLarge
from edgeyard.scheduler.engine.contents import SeenContent, see_content
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.ports import FileStore, FileWriter

BLOCK_BYTES = 2**20
MAX_PARTS = 64
MAX_FIELD_BYTES = 64 * 1024
"""Maximum bytes of a form's other fields and of a part's headers."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that is safe on disk, and the name that it came with."""

    name: str
    stored: StoredFile


class Uploads:
    """What is on its way in now, by user or run, and takes room without a name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()

    def budget(self, limit: str, value: int | None, whose: str) -> UploadBudget | None:
        """Return what bounds an upload together with all others of the same; None: nothing."""
        return None if value is None else UploadBudget(self, limit, value, whose)

    def _change(self, whose: str, more: int) -> int:
        with self._lock:
            self._bytes[whose] += more
            if not self._bytes[whose]:
                del self._bytes[whose]
                return 0
            return self._bytes[whose]


class UploadBudget:
    """Bounds one upload."""

    def __init__(self, uploads: Uploads, limit: str, value: int, whose: str) -> None:
        self._uploads = uploads
        self._limit = limit
        self._value = value
        self._whose = whose
        self._taken = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes that arrived.

        Raises:
            TooLarge: Uploads that are under way have more than the limit.
        """
        self._taken += size_bytes
        total = self._uploads._change(self._whose, size_bytes)
        if total > self._value:
            raise TooLarge("what is uploaded now", self._value, self._limit, self._whose)

    def close(self) -> None:
        """Count them no longer: they have names, or are dropped."""
        self._uploads._change(self._whose, -self._taken)
        self._taken = 0


def see_received(services: Services, received: Sequence[ReceivedFile]) -> SeenContent:
    """Look for received files before the transaction that names them.

    Raises:
        Unavailable: It took so long that garbage collection removed one.
    """
    names = {each.stored.sha256: each.name for each in received}
    return see_content(services.store, services.files, names)


async def receive_raw(
    request: Request,
    files: FileStore,
    limit_bytes: int,
    limit: str,
    name: str,
    *,
    urgent: bool = False,
    budget: UploadBudget | None = None,
) -> ReceivedFile:
    """Receive the body of a request as one file.

    Args:
        limit: Name of the setting that `limit_bytes` is.
        budget: Bounds it together with other uploads.

    Raises:
        TooLarge: Over the limit.
        BadRequest: It is not what ``X-Content-SHA256`` says.
        ClientDisconnect: The client went away; nothing is left.
    """
    _refuse_stated_size(request, limit_bytes, limit)
    expected = request.headers.get("x-content-sha256", "").lower()
    digest = hashlib.sha256() if expected else None
    writer = await run_in_threadpool(partial(files.writer, limit_bytes, urgent=urgent))

    def write(block: bytes) -> None:
        if digest is not None:
            digest.update(block)
        if budget is not None:
            budget.take(len(block))
        writer.write(block)

    try:
        await pump(request, write)
        if digest is not None and digest.hexdigest() != expected:
            raise BadRequest("the content does not have the SHA-256 that X-Content-SHA256 states")
        return ReceivedFile(name, await run_in_threadpool(_commit, writer))
    except TooLarge as error:
        writer.abort()
        raise _named(error, limit) from None
    except BaseException:
        writer.abort()
        raise
    finally:
        if budget is not None:
            budget.close()


async def receive_form(
    request: Request,
    files: FileStore,
    limit_bytes: int,
    limit: str,
    *,
    max_files: int = MAX_PARTS,
    urgent: bool = False,
    budget: UploadBudget | None = None,
) -> list[ReceivedFile]:
    """Receive the files in the ``file`` fields of a form, in their order.

    Args:
        limit: Name of the setting that `limit_bytes` is.
        budget: Bounds them together with other uploads.
        max_files: Files that are taken.
        urgent: They are results of what runs; see `FileStore.writer`.

    Raises:
        TooLarge: A file over the limit.
        BadRequest: The form is broken, has no file, or too many.
        InvalidInput: A file's name is none, or another's too.
        WrongMediaType: It is no form.
        ClientDisconnect: The client went away; nothing is left.
    """
    form = _Form(files, {"file": limit_bytes}, max_files, urgent, budget)
    # A part has headers and a boundary in addition to its content.
    found = await _parse(request, form, max_files * limit_bytes + MAX_FIELD_BYTES, limit)
    if not found:
        raise BadRequest("the form has no file in a field named 'file'")
    return list(found.values())


async def receive_fields(
    request: Request,
    files: FileStore,
    limits: Mapping[str, int],
    limit: str,
    budget: UploadBudget | None = None,
    *,
    max_parts: int = MAX_PARTS,
    of_page: bool = False,
) -> tuple[Mapping[str, str], Mapping[str, ReceivedFile]]:
    """Receive a form's texts and files by field name; an urlencoded form has no files.

    Args:
        request: Its body is read.
        files: Where files go.
        limits: Fields that hold files, with the largest size of each, bytes.
        limit: Name of the setting that those sizes are.
        budget: Bounds the files together with other uploads.
        max_parts: Maximum number of fields.
        of_page: A browser's form: a field for a file that nobody chose has no name, and is ignored.

    Raises:
        TooLarge: A file over its limit, or too much text.
        BadRequest: The form is broken, or it has a field twice.
        InvalidInput: A file's name is none; a text is not Unicode.
        WrongMediaType: It is no form.
        ClientDisconnect: The client went away; nothing is left.
    """
    texts: dict[str, bytes] = {}
    found: Mapping[str, ReceivedFile] = {}
    kind, _ = parse_options_header(request.headers.get("content-type", ""))
    if kind == b"application/x-www-form-urlencoded":
        _refuse_stated_size(request, MAX_FIELD_BYTES, "")
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_FIELD_BYTES:
                raise TooLarge("the form", MAX_FIELD_BYTES)
        try:
            pairs = parse_qsl(
                data.decode("utf-8", "surrogateescape"),  # parsed as bytes, it has to be ASCII
                keep_blank_values=True,
                max_num_fields=max_parts,
                errors="surrogateescape",
            )
        except ValueError as error:
            raise BadRequest(f"the form is broken: {error}") from None
        for name, value in pairs:
            _add_text(texts, name, value.encode("utf-8", "surrogateescape"))
    else:
        form = _Form(
            files,
            limits,
            len(limits),
            budget=budget,
            texts={},
            max_parts=max_parts,
            of_page=of_page,
        )
        max_bytes = sum(limits.values()) + 2 * MAX_FIELD_BYTES
        found = await _parse(request, form, max_bytes, limit)
        for key, content in (form.texts or {}).items():
            _add_text(texts, key, bytes(content))
    return _texts(texts), found


async def receive_texts(
    request: Request, files: FileStore, limit_bytes: int, max_parts: int
) -> Mapping[str, str]:
    """Return the texts of a page's form whose sender is not known; its files are ignored.

    Only texts within the first ``limit_bytes`` are returned, and none of a form that is broken.
    """
    _, options = parse_options_header(request.headers.get("content-type", ""))
    form = _Form(files, {}, 0, texts={}, max_parts=max_parts, of_page=True)
    read = 0
    try:
        parser = MultipartParser(options.get(b"boundary", b""), form.callbacks())
        async for chunk in request.stream():
            parser.write(chunk)
            read += len(chunk)
            if read > limit_bytes:
                break
        return _texts({key: bytes(text) for key, text in (form.texts or {}).items()})
    except (FormParserError, BadRequest, InvalidInput):
        return {}


def _texts(texts: Mapping[str, bytes]) -> dict[str, str]:
    named = {_decoded("", name): text for name, text in _encoded(texts)}
    decoded = {name: _decoded(f"/{name[:100]}", text) for name, text in named.items()}
    check_tree(decoded)
    return decoded


def _add_text(texts: dict[str, bytes], name: bytes | str, value: bytes) -> None:
    key = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    if key in texts:
        raise _repeated(key)
    texts[key] = value


def _repeated(field: str) -> BadRequest:
    return BadRequest(f"the form has the field {field[:100]!r} twice: send it once")


def _decoded(pointer: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        what = "is not UTF-8" if pointer else "the name of a field of the form is not UTF-8"
        raise InvalidInput.at(pointer, what, "text in UTF-8") from None


def _encoded(texts: Mapping[str, bytes]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode("utf-8", "surrogateescape"), text) for name, text in texts.items())


async def _parse(
    request: Request, form: _Form, max_bytes: int, limit: str
) -> Mapping[str, ReceivedFile]:
    """Return the form's files, by field where each has a field of its own."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        given = request.headers.get("content-type", "")
        raise WrongMediaType(given, "multipart/form-data with a boundary (curl: -F)")
    _refuse_stated_size(request, max_bytes, limit)
    try:
        parser = MultipartParser(boundary, form.callbacks())
    except FormParserError as error:
        raise BadRequest(f"the form can't be read: {error}") from None
    try:
        try:
            await pump(request, parser.write)
            parser.finalize()
        except FormParserError as error:
            raise BadRequest(f"the form is broken: {error}") from None
        # Before the files are committed: files of a refused form are neither named nor counted.
        _texts({key: bytes(content) for key, content in (form.texts or {}).items()})
        return await run_in_threadpool(form.commit)
    except TooLarge as error:
        form.abort()
        raise _named(error, limit) from None
    except BaseException:
        form.abort()
        raise
    finally:
        if form.budget is not None:
            form.budget.close()


async def pump(request: Request, write: Callable[[bytes], object]) -> None:
    """Hand the body on in blocks; one is written while the next arrives."""
    pending: asyncio.Task[object] | None = None
    block = bytearray()
    try:
        async for chunk in request.stream():
            block += chunk
            if len(block) >= BLOCK_BYTES:
                if pending is not None:
                    await pending
                pending = asyncio.create_task(run_in_threadpool(write, bytes(block)))
                block = bytearray()
        if pending is not None:
            await pending
        if block:
            await run_in_threadpool(write, bytes(block))
    except BaseException:
        if pending is not None:
            # The writer is about to be closed: no thread may be writing to it then.
            await asyncio.wait([pending])
            if not pending.cancelled():
                pending.exception()
        raise


def _commit(writer: FileWriter) -> StoredFile:
    stored = writer.commit()
    return stored


def _named(error: TooLarge, limit: str) -> TooLarge:
    """Name the limit, where the writer that met it knows only its value."""
    return error if error.limit else TooLarge("the file", error.value, limit)


def _refuse_stated_size(request: Request, limit_bytes: int, limit: str) -> None:
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit_bytes:
        raise TooLarge("the upload", limit_bytes, limit)


@dataclass
class _Form:
    """Callbacks of the form's parser; called in a thread, one after the other."""

    files: FileStore
    limits: Mapping[str, int]
    max_files: int
    urgent: bool = False
    budget: UploadBudget | None = None
    texts: dict[str, bytearray] | None = None
    max_parts: int = MAX_PARTS
    of_page: bool = False
    _open: list[tuple[str, str, FileWriter]] = field(default_factory=list)
    _text: bytearray | None = None
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    _writer: FileWriter | None = None
    _is_ignored: bool = False
    _skipped: int = 0
    _parts: int = 0
    _ended: bool = False

    def callbacks(self) -> Any:
        """Callbacks by the parser's names, for which it has a type of its own."""
        return {
            "on_part_begin": self._part_begin,
            "on_header_field": lambda data, start, end: self._header_text(0, data, start, end),
            "on_header_value": lambda data, start, end: self._header_text(1, data, start, end),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_end": self._end,
        }

    def commit(self) -> Mapping[str, ReceivedFile]:
        """Return all files, which are on disk now; only a complete form has any.

        By field where each has one of its own, otherwise by file name.
        """
        if not self._ended:
            raise BadRequest("the form ends before its last boundary")
        by_field = self.texts is not None
        return {
            (where if by_field else name): ReceivedFile(name, _commit(writer))
            for where, name, writer in self._open
        }

    def abort(self) -> None:
        """Delete the bytes that were received."""
        for _, _, writer in self._open:
            writer.abort()

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > self.max_parts:
            raise BadRequest(f"the form has more than {self.max_parts} parts")
        self._headers, self._header, self._writer = {}, (bytearray(), bytearray()), None
        self._text = None
        self._is_ignored = False

    def _header_text(self, which: int, data: bytes, start: int, end: int) -> None:
        self._header[which].extend(data[start:end])
        if len(self._header[which]) > MAX_FIELD_BYTES:
            raise BadRequest("a part of the form has too long headers")

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())
        if len(self._headers) > 16:
            raise BadRequest("a part of the form has too many headers")

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        where = options.get(b"name", b"").decode("utf-8", "surrogateescape")
        if where not in self.limits:
            if self.of_page and b"filename" in options:
                self._is_ignored = True
                return
            if self.texts is not None:
                if where in self.texts:
                    raise _repeated(where)
                self._text = self.texts[where] = bytearray()
            return  # otherwise: another field, read over
        name = options.get(b"filename", b"").decode("utf-8", "surrogateescape")
        if self.of_page and not name:
            return
        if problem := file_name_problem(name):
            raise InvalidInput.at(f"/{where}", f"the file's name {problem}", "a plain file name")
        if len(self._open) >= self.max_files:
            raise BadRequest(f"the form has more than {self.max_files} files")
        if any(name == known for _, known, _ in self._open):
            raise InvalidInput.at(
                f"/{where}", f"two files are named {name!r}", "a name of its own for each file"
            )
        if self.texts is not None and any(where == known for known, _, _ in self._open):
            raise _repeated(where)
        self._writer = self.files.writer(self.limits[where], urgent=self.urgent)
        self._open.append((where, name, self._writer))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._writer is not None:
            if self.budget is not None:
                self.budget.take(end - start)
            self._writer.write(data[start:end] if end - start < len(data) else data)
            return
        if self._is_ignored:
            return
        if self._text is not None:
            self._text.extend(data[start:end])
        self._skipped += end - start
        if self._skipped > MAX_FIELD_BYTES:
            raise BadRequest(
                f"the form's fields besides its files have more than {MAX_FIELD_BYTES} bytes"
            )

    def _end(self) -> None:
        self._ended = True
