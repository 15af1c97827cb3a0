"""Files of the layers: Debian's packages, locked Python packages, and Edgeyard itself.

Nothing runs inside an image while it is built, so neither root nor a container engine is needed,
and an image of another architecture is built like one of this machine's. Packages come from the
Debian mirror and the Python index that this machine uses.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeyard.devices.runner.pyz import members
from edgeyard.errors import EdgeyardError
from edgeyard.installing import commit_of

PROJECT = Path(__file__).parents[2]

PACKAGES = (
    "python3-minimal",
    "libpython3-stdlib",
    "libseccomp2",
    "libstdc++6",
    "ca-certificates",
    "tzdata",
    "busybox-static",
)
"""The engines need libstdc++, the sandbox of runs libseccomp."""

PLATFORMS = {"amd64": "x86_64-manylinux_2_35", "arm64": "aarch64-manylinux_2_35"}
"""Architectures of Debian and Go, and the wheels that fit them."""

USER_ID = 10001


class BuildFailed(EdgeyardError):
    """An image could not be built."""


_PYTHON = ("--python", sys.executable)
"""uv would take another where the working directory has no ``.venv``, such as a release's."""
_SITE = "usr/lib/python3/dist-packages"
_UNNEEDED = ("doc", "man", "info", "locale", "lintian", "bash-completion", "bug", "debconf")
_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==", re.MULTILINE)
_NAME_SEPARATORS = re.compile(r"[-_.]+")


def fetch_debian(work: Path, architecture: str) -> list[Path]:
    """Fetch Debian's packages and what they depend on, in the order of their names.

    Raises:
        BuildFailed: A program is missing, or the mirror does not answer.
    """
    _require("apt-get", "dpkg-deb", "tar")
    archives = work / "archives"
    (archives / "partial").mkdir(parents=True)
    (work / "status").touch()
    options = [
        f"Dir::State::status={work / 'status'}",
        f"Dir::Cache::archives={archives}",
        "Debug::NoLocking=1",
        "APT::Install-Recommends=0",
        "APT::Sandbox::User=",
    ]
    if architecture != _run(["dpkg", "--print-architecture"]).strip():
        lists = work / "lists"
        (lists / "partial").mkdir(parents=True)
        options += [
            f"APT::Architecture={architecture}",
            f"APT::Architectures={architecture}",
            f"Dir::State::Lists={lists}",
            f"Dir::Cache::pkgcache={work / 'pkgcache.bin'}",
            f"Dir::Cache::srcpkgcache={work / 'srcpkgcache.bin'}",
        ]
        _run(["apt-get", "-qq", *_each_option(options), "update"])
    _run(
        [*("apt-get", "-qq", "-y", *_each_option(options)), "install", "--download-only", *PACKAGES]
    )
    return sorted(archives.glob("*.deb"))


def unpack_debian(root: Path, packages: Sequence[Path]) -> None:
    """Unpack Debian's packages into an empty folder, and do what their own scripts would.

    Raises:
        BuildFailed: A package is damaged.
    """
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=-1) as unpacking:
            command = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)]
            subprocess.run(command, stdin=unpacking.stdout, check=True)
        if unpacking.returncode:
            raise BuildFailed(f"{package.name} can't be unpacked")
    _finish_debian(root)


def install_python(root: Path, extras: Sequence[str], architecture: str, work: Path) -> None:
    """Install the locked packages of the project's extras.

    Raises:
        BuildFailed: A package is missing for the architecture, or the index does not answer.
    """
    names = _names_of(extras, architecture, work)
    locked = work / "requirements.txt"
    locked.write_text(_entries((PROJECT / "requirements.lock").read_text(), names))
    _uv_install(root, architecture, "--require-hashes", "-r", str(locked))
    _compile(root)


def install_runner(root: Path) -> None:
    """Install the runner as boards have it."""
    for name, content in members():
        if name != "__main__.py":
            path = root / _SITE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    _compile(root)


def install_edgeyard(root: Path, work: Path) -> None:
    """Install the project without what it depends on.

    Raises:
        BuildFailed: The project can't be built.
    """
    wheels = work / "wheels"
    tree = work / "tree"
    shutil.copytree(
        PROJECT,
        tree,
        symlinks=True,
        ignore=shutil.ignore_patterns(
            ".venv", ".git", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "tests"
        ),
    )
    (tree / "src/edgeyard/COMMIT").write_text(f"{commit()}\n", "ascii")  # the copy has no .git
    command = [*_uv(), "build", "--quiet", "--wheel", "--no-build-isolation", *_PYTHON]
    _run([*command, "-o", str(wheels), str(tree)])
    (wheel,) = wheels.glob("*.whl")
    _uv_install(root, None, "--no-deps", str(wheel))
    _compile(root)


def commit() -> str:
    """Return the commit that images are built from."""
    return commit_of(PROJECT / "src/edgeyard")


def python_of(root: Path) -> str:
    """Return the Python of a root file system, such as ``3.11``."""
    (found,) = (root / "usr/lib").glob("python3.*")
    return found.name.removeprefix("python")


def _finish_debian(root: Path) -> None:
    """Do what the packages' own scripts would."""
    for name in _UNNEEDED:
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    shutil.rmtree(root / "var", ignore_errors=True)
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(each.read_text() for each in certificates))
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\n"
        f"edgeyard:x:{USER_ID}:{USER_ID}:Edgeyard:/tmp:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/sh\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nedgeyard:x:{USER_ID}:\nnogroup:x:65534:\n")
    (root / "bin/sh").symlink_to("busybox")
    for name in ("tmp", "var/tmp", "root", "proc", "sys", "dev", "run"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / _SITE).mkdir(parents=True, exist_ok=True)
    _compile(root, Path(f"usr/lib/python{python_of(root)}"))


def _names_of(extras: Sequence[str], architecture: str, work: Path) -> set[str]:
    """Return the packages that the extras need, as the lock file has them."""
    out = work / "names.txt"
    command = [*_uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    for extra in extras:
        command += ["--extra", extra]
    command += ["--python-platform", PLATFORMS[architecture]]
    command += ["--constraints", str(PROJECT / "requirements.lock"), "-o", str(out)]
    _run([*command, str(PROJECT / "pyproject.toml")])
    return {_normalized(name) for name in _ENTRY.findall(out.read_text())}


def _entries(lock: str, names: set[str]) -> str:
    """Return the entries of a lock file that have these names, with their hashes."""
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    kept = [
        entry
        for entry in entries
        if (found := _ENTRY.match(entry)) and _normalized(found[1]) in names
    ]
    return "".join(kept)


def _normalized(name: str) -> str:
    return _NAME_SEPARATORS.sub("-", name).lower()


def _uv_install(root: Path, architecture: str | None, *arguments: str) -> None:
    site = root / _SITE
    command = [*_uv(), "pip", "install", "--quiet", *_PYTHON, "--link-mode", "copy"]
    command += ["--target", str(site)]
    if architecture is not None:
        command += ["--python-platform", PLATFORMS[architecture], "--no-build"]
    _run([*command, *arguments])
    shutil.rmtree(site / "bin", ignore_errors=True)  # with the path of this machine's Python
    (site / ".lock").unlink(missing_ok=True)
    for name in ("direct_url.json", "uv_cache.json", "REQUESTED"):
        for path in site.glob(f"*.dist-info/{name}"):
            path.unlink()
    for path in site.glob("*.dist-info/RECORD"):
        path.unlink()


def _compile(root: Path, folder: Path = Path(_SITE)) -> None:
    """Compile modules, without times, by a Python of the same version; others start slower."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0"]
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
    subprocess.run([*command, str(root / folder)], check=False, capture_output=True)


def _uv() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    program = str(beside) if beside.exists() else shutil.which("uv")
    if program is None:
        raise BuildFailed("uv is missing: run `make deps`")
    return [program]


def _require(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise BuildFailed(f"{', '.join(missing)} is missing: build on Debian or Ubuntu")


def _each_option(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _run(command: Sequence[str]) -> str:
    """Return the output of a program, or raise BuildFailed with its errors."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise BuildFailed(f"{command[0]} failed:\n{(done.stderr or done.stdout)[-3000:]}")
    return done.stdout
