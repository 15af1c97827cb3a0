"""A model of several files, in one zip archive.

An ONNX model may have its weights in data files, an OpenVINO IR (``.xml``) and an ncnn model
(``.param``) have theirs in a ``.bin``. The archive holds the model's file and the others,
uncompressed and without folders, so that they are mapped and never unpacked: nothing is written,
and no name of the archive becomes a path. Only the standard library; Python 3.10.
"""

from __future__ import annotations

import mmap
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Mapping, Tuple

from edgeyard.errors import RunFailed

MAX_MEMBERS = 10_000
"""Models may have one for each tensor; large language models have some thousand tensors."""

MAX_ARCHIVE_BYTES = 64 * 2**30
ONNX, IR, PARAM = ".onnx", ".xml", ".param"
"""Suffixes of the files that are models, in archives."""

WEIGHTS = ".bin"
MAX_NAME = 255

_NAME = re.compile(r'[^/\\:<>;,?"*|]+\Z')
"""Names that onnx gives to data files: those of tensors, UUIDs, and what its users choose.

None has a folder. onnx writes none of these characters but the backslash
(``onnx.external_data_helper._is_valid_filename``).
"""

_LOCAL_HEADER = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 0x1


@dataclass(frozen=True)
class ModelArchive:
    """The parts of an archive, mapped.

    Attributes:
        model: Content of the model's file, which begins at ``offset`` of the archive.
        data: Content of the other files, by name.
        name: Name of the model's file.
        offsets: Where the content of the other files begins, by name.
    """

    model: memoryview
    offset: int
    data: Mapping[str, memoryview]
    name: str
    offsets: Mapping[str, int]

    @property
    def weights_name(self) -> str:
        """Name that the ``.bin`` file of the model has to have."""
        return self.name[: self.name.rindex(".")] + WEIGHTS

    def weights(self) -> "Tuple[int, int]":
        """Return where the ``.bin`` file of the model begins, and its size.

        Raises:
            RunFailed: ``user_model``: there is none of the model's name, or another one as well.
        """
        wanted = self.weights_name
        found = [name for name in self.data if name.lower().endswith(WEIGHTS) and name[0] != "."]
        if found != [wanted]:
            has = f"holds {', '.join(repr(name[:100]) for name in found[:5]) or 'none'}"
            raise _wrong(f"has to hold the weights of {self.name!r}, {wanted!r}, and {has}")
        return self.offsets[wanted], len(self.data[wanted])


def is_archive(path: Path) -> bool:
    """Return whether a model's file is a zip archive.

    Raises:
        RunFailed: ``board_fault``: it can't be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(4) == _LOCAL_HEADER
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be read: {error}") from error


def open_archive(
    path: Path, suffixes: Tuple[str, ...] = (ONNX,), *, checksums: bool = False
) -> ModelArchive:
    """Map the files of an archive.

    Args:
        suffixes: Of files that are the model; one such file has to be there.
        checksums: Whether to compare those that the archive states, for which all of it is read.

    Raises:
        RunFailed: ``user_model``: damaged, compressed, encrypted, with links, folders or more than
            one model, or over a limit; ``board_fault``: it can't be read.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size > MAX_ARCHIVE_BYTES:
                raise _wrong(f"has more than {MAX_ARCHIVE_BYTES} bytes")
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            members = _members(path)
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be read: {error}") from error
    except ValueError as error:  # nothing can be mapped
        raise _wrong("is empty") from error
    places: Dict[str, int] = {}
    parts: Dict[str, memoryview] = {}
    for info in members:
        places[info.filename] = start = _content_start(whole, info)
        parts[info.filename] = whole[start : start + info.file_size]
        if checksums and zlib.crc32(parts[info.filename]) != info.CRC:
            raise _wrong(f"is damaged: the checksum of {info.filename[:100]!r} is another one")
    models = _models_in(parts, suffixes)
    if len(models) != 1:
        raise _wrong(_wrong_count(parts, models, suffixes))
    model = parts.pop(models[0])
    return ModelArchive(
        model=model, offset=places.pop(models[0]), data=parts, name=models[0], offsets=places
    )


def open_folder(folder: Path, suffixes: Tuple[str, ...] = (ONNX,)) -> ModelArchive:
    """Map the files of a folder as those of its archive; links and empty files are left out.

    Args:
        suffixes: As for `open_archive`.

    Raises:
        RunFailed: ``user_model``: it holds no model, or several; ``board_fault``: it can't be read.
    """
    parts: Dict[str, memoryview] = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.is_symlink() and path.stat().st_size:
                with path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                parts[path.name] = memoryview(mapped)
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be read: {error}") from error
    models = _models_in(parts, suffixes)
    if len(models) != 1:
        raise RunFailed("user_model", f"the folder {_wrong_count(parts, models, suffixes)}")
    model = parts.pop(models[0])
    offsets = dict.fromkeys(parts, 0)
    return ModelArchive(model=model, offset=0, data=parts, name=models[0], offsets=offsets)


def _models_in(names: Iterable[str], suffixes: Tuple[str, ...]) -> "list[str]":
    """Return the files that are models; macOS puts a hidden file of the same name next to each."""
    return [name for name in names if name.lower().endswith(suffixes) and name[0] != "."]


def _wrong_count(names: Iterable[str], models: "list[str]", suffixes: Tuple[str, ...]) -> str:
    wanted = " or ".join(suffixes)
    reason = f"holds {len(models)} files named {wanted}" if models else f"holds no {wanted}"
    reason += "; it has to hold one"
    others = [] if models else _models_in(names, (ONNX, IR, PARAM))
    return reason + (f" (it holds {others[0][:100]!r})" if others else "")


def check_name(name: str) -> None:
    """Refuse a name that a file of an archive may not have.

    Raises:
        RunFailed: ``user_model``.
    """
    fits = len(name) <= MAX_NAME and name.isprintable() and name not in (".", "..")
    if not fits or not _NAME.match(name):
        raise _wrong(
            f"holds {name[:100]!r}: its files have names of at most {MAX_NAME} printable "
            'characters, without a folder and without \\ : < > ; , ? " * |'
        )


def _members(path: Path) -> "list[zipfile.ZipInfo]":
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except OSError:
        raise
    except Exception as error:  # a damaged directory leads zipfile to errors of many kinds
        raise _wrong(f"can't be read: {error}") from error
    if len(members) > MAX_MEMBERS:
        raise _wrong(f"holds {len(members)} files; at most {MAX_MEMBERS} are accepted")
    seen = set()
    for info in members:
        name = info.filename
        shown = repr(name[:100])
        mode = info.external_attr >> 16
        check_name(name)
        if name in seen:
            raise _wrong(f"holds {shown} twice")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise _wrong(f"holds {shown}, which is a link or no file")
        if info.flag_bits & _ENCRYPTED:
            raise _wrong(f"holds {shown}, which is encrypted")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise _wrong(f"holds {shown} compressed; store the files (zip -0)")
        seen.add(name)
    if sum(info.file_size for info in members) > path.stat().st_size:
        raise _wrong("is damaged: its files overlap")
    return members


def _content_start(whole: memoryview, info: zipfile.ZipInfo) -> int:
    """Return where the content of a member begins."""
    at = info.header_offset
    header = bytes(whole[at : at + _LOCAL_HEADER_BYTES]) if at >= 0 else b""
    if len(header) != _LOCAL_HEADER_BYTES or header[:4] != _LOCAL_HEADER:
        raise _wrong("is damaged")
    name_bytes = int.from_bytes(header[26:28], "little")
    extra_bytes = int.from_bytes(header[28:30], "little")
    start = at + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    if info.file_size < 0 or start + info.file_size > len(whole):
        raise _wrong("is damaged")
    return start


def _wrong(reason: str) -> RunFailed:
    return RunFailed("user_model", f"the model's archive {reason}")
