"""A model with its data files, packed for upload."""

from __future__ import annotations

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

    Raises:
        InvalidInput: The folder holds no model, several, or lacks data files.
    """
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = tuple(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in found
        if path.is_file()
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
            for name, _, _ in files:
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
