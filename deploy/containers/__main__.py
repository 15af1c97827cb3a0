"""``python -m deploy.containers``: build Edgeyard's container images, and load them into Docker.

See docs/how-to/containers.md.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from deploy.containers import rootfs
from deploy.containers.images import Image, Layer, read_layer, write_archive, write_layer
from edgeyard.devices.runner.pyz import members

RUNNER = "daiedge-vlab-bootstrap"
SERVER = "edgeyard"
NAMES = (RUNNER, SERVER)

_RUNNER_EXTRAS = ("ort", "tflite", "openvino", "ncnn", "ort-genai", "images")
_SERVER_EXTRAS = ("server", "postgres", "s3", "onnx", "ste")
_USER = f"{rootfs.USER_ID}:{rootfs.USER_ID}"
_PYTHON = "/usr/bin/python3"


class Builder:
    """Builds images from layers, which are kept for as long as their inputs stay the same.

    Args:
        folder: Where layers and archives are kept.
        epoch: Time of all files, in seconds since 1970.
    """

    def __init__(
        self, folder: Path, architecture: str, tag: str, epoch: int, report: Callable[[str], None]
    ) -> None:
        self._folder, self._architecture = folder, architecture
        self._tag, self._epoch, self._report = tag, epoch, report
        self._made: dict[str, Layer] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def images(self, names: Sequence[str]) -> list[Image]:
        """Return the images of these names; layers that are missing are built.

        Another build in the same folder waits.

        Raises:
            BuildFailed: A layer could not be built.
        """
        with (self._folder / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return [self._image(name) for name in names]

    def _image(self, name: str) -> Image:
        if name == RUNNER:
            layers = [self._debian(), self._python(_RUNNER_EXTRAS), self._runner()]
            # The bootstrap gives up root before a model is loaded, where the board allows it.
            return self._named(RUNNER, layers, (_PYTHON, "-m", "edgeyard.devices.runner.bootstrap"))
        layers = [self._debian(), self._python(_SERVER_EXTRAS), self._edgeyard()]
        edgeyard = (_PYTHON, "-m", "edgeyard")
        return self._named(SERVER, layers, edgeyard, user=_USER, command=("up",))

    def _named(
        self,
        name: str,
        layers: Sequence[Layer],
        entrypoint: Sequence[str],
        *,
        user: str = "",
        command: Sequence[str] = (),
    ) -> Image:
        return Image(
            name=f"{name}:{self._tag}",
            layers=layers,
            entrypoint=entrypoint,
            command=command,
            architecture=self._architecture,
            user=user,
            environment={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": "/tmp",
                "LANG": "C.UTF-8",
                "PYTHONUNBUFFERED": "1",
            },
            epoch=self._epoch,
        )

    def _debian(self) -> Layer:
        if "debian" in self._made:
            return self._made["debian"]
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            packages = rootfs.fetch_debian(Path(work), self._architecture)
            versions = [package.name for package in packages]
            self._made["debian"] = layer = self._layer(
                "debian", versions, lambda root, _: rootfs.unpack_debian(root, packages)
            )
        return layer

    def _python(self, extras: Sequence[str]) -> Layer:
        return self._layer(
            f"python-{'-'.join(extras)}",
            [*extras, _content([rootfs.PROJECT / "requirements.lock"])],
            lambda root, work: rootfs.install_python(root, extras, self._architecture, work),
        )

    def _runner(self) -> Layer:
        inputs = [text for member in members() for text in member]
        return self._layer("runner", inputs, lambda root, _: rootfs.install_runner(root))

    def _edgeyard(self) -> Layer:
        return self._layer(
            "edgeyard", [_content(_sources()), rootfs.commit()], rootfs.install_edgeyard
        )

    def _layer(
        self, name: str, inputs: Iterable[str], fill: Callable[[Path, Path], object]
    ) -> Layer:
        """Return the layer of these inputs, built if it is not there."""
        recipe = _content([Path(rootfs.__file__)])
        stated = "\n".join([recipe, self._architecture, str(self._epoch), sys.version, *inputs])
        key = hashlib.sha256(stated.encode()).hexdigest()[:16]
        path = self._folder / f"{name}-{self._architecture}-{key}.tar"
        if path not in self._made_paths():
            if not path.exists():
                self._report(f"building the layer {name} ...")
                with tempfile.TemporaryDirectory(dir=self._folder) as work:
                    root = Path(work) / "root"
                    root.mkdir(mode=0o755)
                    fill(root, Path(work))
                    write_layer(root, path, epoch=self._epoch)
            self._made[str(path)] = read_layer(path)
            for old in self._folder.glob(f"{name}-{self._architecture}-*.tar"):
                if old != path:
                    old.unlink()
        return self._made[str(path)]

    def _made_paths(self) -> set[Path]:
        return {Path(name) for name in self._made}


def load(archive: Path, images: Sequence[Image], docker: Sequence[str] = ("docker",)) -> bool:
    """Load an archive into the engine; whether it lacked an image.

    Raises:
        BuildFailed: There is no engine, or it refuses the archive.
    """

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*docker, *words], capture_output=True, text=True, check=False)

    def known(image: Image) -> bool:
        found = call("image", "inspect", "--format", "{{.Id}}", image.name)
        return found.stdout.strip() == image.image_id

    if all(known(image) for image in images):
        return False
    done = call("load", "--quiet", "--input", str(archive))
    if done.returncode:
        raise rootfs.BuildFailed(f"Docker does not load {archive}: {done.stderr.strip()}")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.containers", description="Build Edgeyard's container images."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all")
    parser.add_argument("--arch", choices=sorted(rootfs.PLATFORMS), default=_this_architecture())
    parser.add_argument("--tag", default="latest")
    parser.add_argument("--out", type=Path, default=rootfs.PROJECT / "build/containers")
    parser.add_argument("--load", action="store_true", help="load them into Docker, too")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        parser.error(f"NAME: {', '.join(unknown)} is not one of {', '.join(NAMES)}")
    if given.load and shutil.which("docker") is None:
        parser.error("--load: docker is missing; leave --load out and copy the archive instead")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    names = given.names or NAMES
    builder = Builder(given.out, given.arch, given.tag, epoch, _report)
    try:
        images = builder.images(names)
        archive = given.out / f"{names[0] if len(names) == 1 else 'images'}-{given.arch}.tar"
        write_archive(images, archive)
        if given.load:
            load(archive, images)
    except rootfs.BuildFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for image in images:
        sys.stdout.write(f"{image.image_id}  {image.name}\n")
    _report(f"written to {archive}" + (" and loaded" if given.load else ""))
    return 0


def _sources() -> list[Path]:
    """Return the files that Edgeyard is installed from."""
    product = ("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed")
    folders = ("src", *product, "simulator", "training")
    found = [rootfs.PROJECT / name for name in ("pyproject.toml", "setup.py", "README.md")]
    for folder in folders:
        found += (
            path
            for path in (rootfs.PROJECT / folder).rglob("*")
            if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
        )
    return sorted(found)


def _content(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        name = os.path.relpath(path, rootfs.PROJECT)
        found.update(f"{name}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def _this_architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "amd64")


def _report(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    sys.exit(main())
