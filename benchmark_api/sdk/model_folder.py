"""A model of several files, packed for upload.

A folder holds an ONNX file with its data files, an OpenVINO IR or an ncnn model with its weights,
or a language model: ``genai_config.json`` with all that lies next to it. The file of an IR or an
ncnn model (``.xml``, ``.param``) may also be named itself.
"""

from __future__ import annotations

import tempfile
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgeyard.errors import InvalidInput, RunFailed

_ACCEPTED = (
    "a folder of one .onnx file and its data files, of one .xml or .param and its .bin, or of a "
    "genai_config.json and the files of its language model"
)

_Files = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What is sent of a folder: the model and the files that it names.

    Attributes:
        path: The folder that they lie in.
        names: Names of the files, the model first.
        size_bytes: Of these files together.
    """

    path: Path
    names: tuple[str, ...]
    size_bytes: int

    @property
    def archive_name(self) -> str:
        """Name of the archive that is uploaded: that of the model with its ending, and .zip."""
        from edgeyard.devices.runner.genai_folder import CONFIG

        model = self.names[0]
        return f"{self.path.name if model == CONFIG else model}.zip"


def read_folder(path: Path) -> ModelFolder:
    """Look through a folder of a model and its data files, whose weights are not read.

    Raises:
        InvalidInput: The folder holds no model, several, or lacks data files.
    """
    return _read(path.resolve(), path, _files_of(path))


def packed(path: Path) -> Path:
    """Return an archive of a folder, which is kept as long as this process lives.

    It has the model and the files that the model names; no others, and no links, are sent.

    Raises:
        InvalidInput: As `read_folder`, or the archive can't be written.
    """
    return _pack(read_folder(path), _files_of(path))


def with_weights(path: Path) -> Path:
    """Return an archive of a file and its weights; the file itself if it is no half of a pair.

    Half of a pair is an OpenVINO IR or an ncnn model with a ``.bin`` of its name next to it.

    Raises:
        InvalidInput: The weights are a link, or the archive can't be written.
    """
    from edgeyard.devices.runner.file_kind import HEAD_BYTES, IR, PARAM, foreign_kind
    from edgeyard.devices.runner.model_archive import WEIGHTS

    weights = path.with_suffix(WEIGHTS)
    if not weights.is_file():
        return path
    with path.open("rb") as file:
        if foreign_kind(file.read(HEAD_BYTES)) not in (IR, PARAM):
            return path
    if weights.is_symlink():
        raise _link_refused(path, weights.name)
    pair = (path, weights)
    files = tuple((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in pair)
    return _pack(
        ModelFolder(
            path=path.parent.resolve(),
            names=(path.name, weights.name),
            size_bytes=sum(size_bytes for _, size_bytes, _ in files),
        ),
        files,
    )


def upload_name(path: Path) -> str:
    """Return the name under which a file or a folder is uploaded."""
    return read_folder(path).archive_name if path.is_dir() else path.name


def upload_bytes(path: Path) -> int:
    """Return the size of what is uploaded of a file or a folder."""
    return read_folder(path).size_bytes if path.is_dir() else path.stat().st_size


def _files_of(folder: Path) -> _Files:
    return tuple(
        (path.name, path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.iterdir())
    )


def _link_refused(path: Path, name: str) -> InvalidInput:
    reason = f"{path}: {name} is a link, and links are not followed"
    return InvalidInput.at("/model", reason, "the file itself in its place")


@lru_cache(maxsize=32)
def _read(folder: Path, shown: Path, files: _Files) -> ModelFolder:
    from edgeyard.devices.runner.genai_folder import CONFIG, is_genai_folder, read_files
    from edgeyard.devices.runner.model_archive import IR, ONNX, PARAM, check_name, open_folder
    from edgeyard.devices.runner.onnx_file import inspect

    is_genai = is_genai_folder(folder)
    suffixes = (CONFIG,) if is_genai else (ONNX, IR, PARAM)
    try:
        whole = open_folder(folder, suffixes)
        if is_genai:
            if links := [name for name, _, _ in files if (folder / name).is_symlink()]:
                raise _link_refused(shown, links[0])
            read_files(whole)
            others = sorted(name for name in whole.data if name[0] != ".")
        elif whole.name.lower().endswith(ONNX):
            others = sorted(inspect(whole.model, whole.data).data_files)
        else:
            whole.weights()
            others = [whole.weights_name]
        names = (whole.name, *others)
        for name in names:
            check_name(name)
    except RunFailed as error:
        for name, _, _ in files:
            is_model = name.lower().endswith(suffixes)
            if (folder / name).is_symlink() and (is_model or repr(name) in error.sentence):
                raise _link_refused(shown, name) from error
        raise InvalidInput.at("/model", f"{shown}: {error.sentence}", _ACCEPTED) from error
    sizes = {name: size_bytes for name, size_bytes, _ in files}
    return ModelFolder(path=folder, names=names, size_bytes=sum(sizes[name] for name in names))


@lru_cache(maxsize=8)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="edgeyard-models-")


@lru_cache(maxsize=32)
def _pack(found: ModelFolder, files: _Files) -> Path:
    path = Path(tempfile.mkdtemp(dir=_scratch().name)) / found.archive_name
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in found.names:
                archive.write(found.path / name, name)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidInput.at("/model", f"can't pack {found.path}: {error.strerror}") from error
    return path
