"""A model with its data files, packed for upload."""

from __future__ import annotations

import mmap
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

from edgeyard.errors import InvalidInput, RunFailed

_ACCEPTED = "a folder of one .onnx file and its data files"

Files = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file."""


def packed(folder: Path) -> Path:
    """Return an archive of a folder, which is kept as long as this process lives.

    It has the model and the files that the model names; no others, and no links, are sent.

    Raises:
        InvalidInput: The folder holds no model, several, or lacks data files.
    """
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = tuple(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in found
        if path.is_file() and not path.is_symlink()
    )
    models = [name for name, _, _ in files if name.lower().endswith(".onnx")]
    if len(models) != 1:
        reason = f"the folder {folder} holds {len(models)} files named .onnx"
        raise InvalidInput.at("/model", reason, _ACCEPTED)
    return _pack(folder.resolve(), models[0], files)


@lru_cache(maxsize=8)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="edgeyard-models-")


@lru_cache(maxsize=32)
def _pack(folder: Path, model: str, files: Files) -> Path:
    from edgeyard.devices.runner.model_archive import open_archive
    from edgeyard.devices.runner.onnx_file import inspect

    path = Path(tempfile.mkdtemp(dir=_scratch().name)) / f"{Path(model).stem}.zip"
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in (model, *_named_files(folder, model, files)):
                archive.write(folder / name, name)
        whole = open_archive(path)
        inspect(whole.model, whole.data)
    except RunFailed as error:
        path.unlink(missing_ok=True)
        raise InvalidInput.at("/model", f"{folder}: {error.sentence}", _ACCEPTED) from error
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidInput.at("/model", f"can't pack {folder}: {error.strerror}") from error
    return path


def _named_files(folder: Path, model: str, files: Files) -> list[str]:
    """Return the names of the files that a model names.

    Raises:
        RunFailed: It is no model, or names files that are not there.
    """
    from edgeyard.devices.runner.onnx_file import inspect

    content: dict[str, memoryview] = {}
    for name, size_bytes, _ in files:
        if name != model and size_bytes:
            with (folder / name).open("rb") as file:
                content[name] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return sorted(inspect(folder / model, content).data_files)
