"""Image archives in the form of ``docker save``: layers of files, written without an engine.

The same files give the same bytes: names are sorted, all times are one stated time, and root
owns everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as a tar file.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
    """

    path: Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image consists of.

    Attributes:
        name: With a tag.
        user: ``UID:GID``; "": root.
        architecture: As Go names it, such as ``amd64``.
    """

    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str]
    architecture: str
    command: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0

    def config(self) -> bytes:
        """Return its configuration, whose hash is its id."""
        document = {
            "architecture": self.architecture,
            "os": "linux",
            "created": datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Cmd": list(self.command) or None,
                "Env": [f"{name}={value}" for name, value in sorted(self.environment.items())],
                "User": self.user,
                "WorkingDir": "/tmp",
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers],
            },
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def image_id(self) -> str:
        """The id that an engine gives it."""
        return f"sha256:{hashlib.sha256(self.config()).hexdigest()}"


def write_layer(root: Path, out: Path, *, epoch: int = 0) -> Layer:
    """Write a folder as a layer; ``out`` is there whole or not at all."""
    part = out.with_name(f"{out.name}.part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in _paths(root):
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    os.replace(part, out)
    return Layer(out, digest_of(out))


def read_layer(path: Path) -> Layer:
    """Return a layer that was written before."""
    return Layer(path, digest_of(path))


def write_archive(images: Sequence[Image], out: Path) -> None:
    """Write images as one archive for ``docker load``; shared layers occur once."""
    part = out.with_name(f"{out.name}.part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        written: set[str] = set()
        manifest = []
        for image in images:
            names = []
            for layer in image.layers:
                name = f"{layer.digest}/layer.tar"
                names.append(name)
                if name not in written:
                    written.add(name)
                    entry = tarfile.TarInfo(name)
                    entry.size = layer.path.stat().st_size
                    with layer.path.open("rb") as file:
                        archive.addfile(entry, file)
            config = f"{image.image_id.removeprefix('sha256:')}.json"
            _add(archive, config, image.config())
            manifest.append({"Config": config, "RepoTags": [image.name], "Layers": names})
        _add(archive, "manifest.json", json.dumps(manifest, sort_keys=True).encode())
    os.replace(part, out)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    import io

    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _paths(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, parents first and sorted; no link is followed."""
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield path
        if stat.S_ISDIR(mode):
            yield from _paths(path)
