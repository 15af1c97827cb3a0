"""Backups of a server in one file: its database, its keys and the files of its users.

A backup is a tar archive::

    database          a copy of the SQLite database, or what pg_dump wrote
    webhook.key …     small files of the data folder, see `KEPT`
    files/store.id    mark of the file store
    files/<sha256>    content, unless it is listed only
    listed            lines "<sha256> <bytes>" of content that is not in the backup
    manifest.json     what it is; last, so that a backup without one is not complete
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Literal

import msgspec
from pydantic import BaseModel

from edgeyard import __version__
from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.bootstrap import (
    ADMIN_TOKEN_FILE,
    SERVER_ID_FILE,
    copier_of,
    database_copier,
    lock_data_dir,
    open_files,
)
from edgeyard.benchmark_api.settings import Settings
from edgeyard.benchmark_api.webhooks import KEY_FILE
from edgeyard.devices.sizes import size_text
from edgeyard.errors import ConfigError, NotFound, OutOfSpace, reason_of
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.model.database_state import DatabaseState
from edgeyard.scheduler.ports import FileStore

KEPT = (KEY_FILE, ADMIN_TOKEN_FILE, SERVER_ID_FILE)
"""Files of the data folder that a server needs and can't make again with the same content."""

FORMAT = 1
_CHUNK = 1 << 20
_DATABASE, _LISTED, _MANIFEST, _MARK = "database", "listed", "manifest.json", "files/store.id"
_CONTENT = re.compile(r"files/([0-9a-f]{64})")
_MAX_SMALL_BYTES = 64 * 2**20
_MIN_ROOM_BYTES = 16 * 2**20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is.

    Attributes:
        edgeyard: Version that made it.
        schema: Schema of its database.
        events: Number of events ever logged in it: of one schema, the database with more is newer.
        sha256: Hash of each member except content, whose name is its hash.
        content: Number of files in it.
        listed: Number of files that are only listed.
        not_included: What a server also needs, for people.
    """

    format: int = FORMAT
    edgeyard: str
    made_at: datetime
    database: Literal["sqlite", "postgresql"]
    schema: str
    events: int
    sha256: dict[str, str]
    content: int
    content_bytes: int
    listed: int
    not_included: list[str]


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored.

    Attributes:
        missing: Files that were listed only and that the file store does not have.
    """

    manifest: Manifest
    missing: Sequence[str]


def make_backup(
    settings: Settings,
    path: Path,
    now: datetime,
    *,
    config: Path | None = None,
    force: bool = False,
    with_content: bool | None = None,
    programs: Path | None = None,
) -> Manifest:
    """Write a backup while the server runs; on an error there is none, as before.

    Args:
        settings: Of the server.
        path: Of the backup.
        now: The time.
        config: The file of these settings, for `Manifest.not_included`.
        force: Replace a file that is there.
        with_content: Whether content is included, otherwise it is listed; None: included unless it
            is in a bucket.
        programs: See `DatabaseCopier`.

    Raises:
        ConfigError: There is no database, the file is there, or a program is missing.
        OutOfSpace: The disk of the backup is full.
        Unavailable: The database or the file store does not answer.
    """
    if path.exists() and not force:
        raise ConfigError(
            [f"{path} is there already: name another file, or replace it with --force"]
        )
    if not path.parent.is_dir():
        raise ConfigError([f"there is no folder {path.parent}"])
    in_bucket = (settings.file_store or "").startswith("s3:")
    include = not in_bucket if with_content is None else with_content
    copier = database_copier(settings, programs)
    if copier.state() is None:
        where = (
            f"{settings.data_dir} has no database" if copier.path else f"{copier.shown} is empty"
        )
        raise ConfigError([f"{where}: set --data-dir or --config to those of the server"])
    if copier.path is not None:
        _check_room(path.parent, 2 * copier.path.stat().st_size)
    files = open_files(settings)
    with _full_disk(f"writing {path}"), _scratch(path.parent) as folder:
        copy = folder / _DATABASE
        state = copier.copy(copy)
        # After the database: content never changes, and what a copy names is there before it.
        with (
            open_atomically(path, mode=0o600, sync=True) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            writer = _Writer(archive, now)
            writer.add(_DATABASE, copy)
            copy.unlink()
            for name in KEPT:
                if (settings.data_dir / name).is_file():
                    writer.add(name, settings.data_dir / name)
            if (mark := files.mark()) is not None:
                writer.add_bytes(_MARK, mark.encode())
            listed = writer.add_content(files, include)
            manifest = Manifest(
                edgeyard=__version__,
                made_at=now,
                database="sqlite" if copier.path else "postgresql",
                schema=state.schema,
                events=state.events,
                sha256=writer.sha256,
                content=writer.content,
                content_bytes=writer.content_bytes,
                listed=listed,
                not_included=_not_included(settings, config, listed),
            )
            failpoint("backup:manifest")
            writer.add_bytes(_MANIFEST, msgspec.json.encode(manifest))
    return manifest


def check_backup(path: Path, programs: Path | None = None) -> Manifest:
    """Read a whole backup, and try the upgrade of its database; nothing is changed.

    The database is unpacked next to the backup for this, and removed again.

    Raises:
        ConfigError: It is damaged, incomplete, or of an Edgeyard that this one does not follow.
        OutOfSpace: Its database can't be unpacked.
    """
    with _full_disk(f"checking {path}"), _opened(path) as archive:
        manifest = archive.checked()
        with _scratch(path.parent) as folder:
            copy = archive.extract(_DATABASE, folder / _DATABASE)
            url = f"sqlite:///{copy}" if manifest.database == "sqlite" else "postgresql://"
            copier = copier_of(url, programs)
            copier.check_schema(manifest.schema)
            copier.check(copy, upgrade=True)
    return manifest


def restore_backup(settings: Settings, path: Path, programs: Path | None = None) -> Restored:
    """Put a backup where no server is yet.

    Content comes first and the database last, so that a restore that is killed has made no
    server, and goes on when it is run again.

    Args:
        settings: Of the server that is to be; of its own folder and database.
        path: Of the backup.
        programs: See `DatabaseCopier`.

    Raises:
        ConfigError: The backup can't be used, there is a database already, or a server runs.
        OutOfSpace: A disk is full; there is no database yet.
        Unavailable: The database or the file store does not answer.
    """
    with _full_disk(f"restoring {path}"), _opened(path) as archive:
        manifest = archive.checked()
        copier = database_copier(settings, programs)
        if copier.kind != manifest.database:
            raise ConfigError(
                [
                    f"the backup is of {manifest.database}, and the settings name {copier.kind}: "
                    "a backup is restored into the kind of database that it was made of"
                ]
            )
        copier.check_schema(manifest.schema)
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_data_dir(settings.data_dir), _scratch(settings.data_dir) as folder:
            _check_absent(copier.state(), manifest, copier.shown)
            if leftovers := copier.leftovers():
                raise ConfigError(
                    [
                        f"{leftovers[0]} belongs to a database that was moved away without it: "
                        "move it there too"
                    ]
                )
            for name in KEPT:
                _check_same(archive, name, settings.data_dir / name)
            copy = archive.extract(_DATABASE, folder / _DATABASE)
            copier.check(copy, upgrade=False)
            files = open_files(settings)
            archive.restore_content(files)
            for name in KEPT:
                if name in manifest.sha256:
                    with open_atomically(settings.data_dir / name, mode=0o600, sync=True) as file:
                        file.write(archive.read(name))
            failpoint("restore:files")
            copier.restore(copy)
            missing = [each for each in archive.listed() if not files.contains(each)]
    return Restored(manifest, missing)


class _Writer:
    """Adds members to an archive, and remembers what they are."""

    def __init__(self, archive: tarfile.TarFile, now: datetime) -> None:
        self._archive, self._now = archive, now
        self.sha256: dict[str, str] = {}
        self.content = 0
        self.content_bytes = 0

    def add(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def add_bytes(self, name: str, data: bytes) -> None:
        self._add(name, io.BytesIO(data), len(data))

    def add_content(self, files: FileStore, include: bool) -> int:
        """Add content, or the list of it; return how many are listed."""
        lines = []
        for each in files.contents(older_than_s=0.0):
            if not include:
                lines.append(f"{each.sha256} {each.size_bytes}\n")
                continue
            with (
                contextlib.suppress(NotFound, FileNotFoundError),  # deleted a moment ago
                files.path(each.sha256).open("rb") as file,
            ):
                self._archive.addfile(self._info(f"files/{each.sha256}", each.size_bytes), file)
                self.content += 1
                self.content_bytes += each.size_bytes
        if lines:
            self.add_bytes(_LISTED, "".join(lines).encode())
        return len(lines)

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        hashed = _Hashed(file)
        self._archive.addfile(self._info(name, size), hashed)
        self.sha256[name] = hashed.sha256()

    def _info(self, name: str, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, int(self._now.timestamp())
        return info


class _Hashed:
    """A file whose hash is known when it was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def sha256(self) -> str:
        return self._hash.hexdigest()


class _Archive:
    """A backup that is read; nothing of it is believed before `checked`."""

    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self._path, self._archive = path, archive
        self._members = {each.name: each for each in archive.getmembers()}

    def checked(self) -> Manifest:
        """Return what it is, after all of it was read."""
        if _MANIFEST not in self._members:
            raise self._wrong("it is not complete, or no backup of Edgeyard")
        try:
            manifest = msgspec.json.decode(self.read(_MANIFEST), type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._wrong(f"its manifest can't be read: {error}") from error
        if manifest.format != FORMAT:
            raise self._wrong(f"its format is {manifest.format}, and this Edgeyard reads {FORMAT}")
        content = [each for each in self._members if _CONTENT.fullmatch(each)]
        wanted = {_MANIFEST, *manifest.sha256, *content}
        if set(self._members) != wanted or len(content) != manifest.content:
            raise self._wrong("it does not hold what its manifest states")
        if not set(manifest.sha256) <= {_DATABASE, _LISTED, _MARK, *KEPT} | set(content):
            raise self._wrong("its manifest names files that no backup has")
        for name in wanted - {_MANIFEST}:
            found = _CONTENT.fullmatch(name)
            if self._sha256(name) != (found[1] if found else manifest.sha256[name]):
                raise self._wrong(f"{name} in it is damaged")
        return manifest

    def extract(self, name: str, target: Path) -> Path:
        with self._member(name) as source, target.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
        return target

    def read(self, name: str) -> bytes:
        if self._members[name].size > _MAX_SMALL_BYTES:
            raise self._wrong(f"{name} in it is too large")
        with self._member(name) as file:
            return file.read()

    def listed(self) -> list[str]:
        if _LISTED not in self._members:
            return []
        return [line.split()[0] for line in self.read(_LISTED).decode().splitlines()]

    def has(self, name: str) -> bool:
        return name in self._members

    def restore_content(self, files: FileStore) -> None:
        """Add the mark and the content that a file store lacks."""
        if self.has(_MARK):
            mine, theirs = self.read(_MARK).decode().strip(), files.mark()
            if theirs is None:
                files.set_mark(mine)
            elif theirs != mine:
                raise ConfigError(
                    ["the file store of the settings is another database's: name an empty one"]
                )
        for name, member in self._members.items():
            found = _CONTENT.fullmatch(name)
            if found is None or files.contains(found[1]):
                continue
            failpoint("restore:content")
            writer = files.writer(member.size, urgent=True)
            try:
                with self._member(name) as source:
                    while chunk := source.read(_CHUNK):
                        writer.write(chunk)
                writer.commit()
            except BaseException:
                writer.abort()
                raise

    def _sha256(self, name: str) -> str:
        with self._member(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]

    def _member(self, name: str) -> IO[bytes]:
        file = self._archive.extractfile(self._members[name])
        if file is None:
            raise self._wrong(f"{name} in it is no file")
        return file

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError([f"{self._path} can't be used: {why}"])


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    try:
        with tarfile.open(path, "r:") as archive:
            yield _Archive(path, archive)
    except (tarfile.TarError, EOFError) as error:
        raise ConfigError([f"{path} can't be used: it is damaged, or no backup"]) from error
    except FileNotFoundError as error:
        raise ConfigError([f"there is no {error.filename}"]) from error


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield a folder on the same disk, for its owner alone."""
    with tempfile.TemporaryDirectory(prefix=".edgeyard-", dir=folder) as made:
        yield Path(made)


@contextmanager
def _full_disk(doing: str) -> Iterator[None]:
    try:
        yield
    except OutOfSpace as error:
        raise ConfigError([f"{doing}: the disk is full; nothing was left there"]) from error
    except OSError as error:
        raise ConfigError([f"{doing}: {reason_of(error)}"]) from error


def _check_room(folder: Path, bytes_needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < bytes_needed + _MIN_ROOM_BYTES:
        raise ConfigError(
            [
                f"{folder} has {size_text(free)} of room, and the backup needs "
                f"{size_text(bytes_needed)} for the database and its copy alone"
            ]
        )


def _check_absent(found: DatabaseState | None, manifest: Manifest, where: str) -> None:
    if found is None:
        return
    newer = found > DatabaseState(manifest.schema, manifest.events)
    raise ConfigError(
        [
            f"{where} is a database already, {'newer than' if newer else 'no newer than'} the "
            f"backup (schema {found.schema} with {found.events} events; the backup has schema "
            f"{manifest.schema} with {manifest.events}). Nothing was changed: restore into "
            "a new folder or a new database, and keep the other until the restored one serves"
        ]
    )


def _check_same(archive: _Archive, name: str, path: Path) -> None:
    """A key that another server uses is not replaced."""
    if archive.has(name) and path.exists() and path.read_bytes() != archive.read(name):
        raise ConfigError(
            [f"{path} is there already and is another one: restore into a new folder"]
        )


def _not_included(settings: Settings, config: Path | None, listed: int) -> list[str]:
    """Return what the settings name and a backup does not have."""
    paths = [] if config is None else [str(config)]
    paths += [f"{name}: {path}" for name, path in _files("", settings) if name != "data_dir"]
    if listed:
        paths.append(f"{listed} files in {settings.file_store or settings.data_dir / 'files'}")
    return paths


def _files(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the files that settings name, each with its place."""
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith(".toml")):
        yield name, value
    elif isinstance(value, BaseModel | Mapping):
        for key, each in dict(value).items():
            yield from _files(f"{name}.{key}" if name else str(key), each)
