"""A real server, as a process, for all tests of this folder that leave it as they found it."""

import contextlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.models import light
from deploy.process import Server, edgeyard
from edgeyard import Client

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An embedded cluster with emulated boards, one of them offline."""
    with edgeyard(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of the server; the commands of the test find the server, too."""
    monkeypatch.setenv("EDGEYARD_URL", server.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", server.token)
    with Client() as made:
        yield made


@pytest.fixture(scope="session")
def squeezenet() -> Path:
    """A real network."""
    return light("squeezenet")


@pytest.fixture
def enter() -> Iterator[Callable[[contextlib.AbstractContextManager[str]], str]]:
    """Enters a context that is left when the test ends."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """Without what a checkout or a developer has set."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV")
    prefixes = ("EDGEYARD_", "PYTEST_")  # PYTEST_ADDOPTS=-v undoes a tutorial's --quiet
    return {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(prefixes)
    }


@pytest.fixture(scope="session")
def clone_to() -> Callable[[Path], None]:
    """Puts there what is committed, as a newcomer gets it."""
    return _clone


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Edgeyard's wheel, built from what is committed."""
    folder = tmp_path_factory.mktemp("wheel")
    _clone(folder / "source")
    return _build(folder / "source", folder)


@pytest.fixture(scope="session")
def product_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what is committed without `training`."""
    folder = tmp_path_factory.mktemp("product")
    source = folder / "source"
    _clone(source)
    (source / "src/edgeyard/training").unlink()
    shutil.rmtree(source / "training")
    return _build(source, folder)


def _build(source: Path, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (found,) = folder.glob("edgeyard-*.whl")
    return found


@pytest.fixture
def new_environment(wheel: Path) -> Callable[..., Path]:
    """Makes a virtual environment of Edgeyard's wheel and more, and nothing of the checkout's."""

    def make(
        folder: Path, *more: str, extra: str = "server", pip: bool = False, wheel: Path = wheel
    ) -> Path:
        venv.create(folder, symlinks=True, with_pip=pip)
        # Its own dependencies and no others, at the versions that are tested.
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "install", "--quiet"),
                *("--python", str(folder / "bin/python")),
                *("--constraint", str(ROOT / "requirements.lock")),
                *(f"{wheel}[{extra}]" if extra else str(wheel), *more),
            ],
            check=True,
        )
        return folder

    return make


def _clone(target: Path) -> None:
    """In a tree without git, a copy with its links."""
    if (ROOT / ".git").exists():
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)],
            check=True,
            capture_output=True,
        )
        return
    ignored = shutil.ignore_patterns(".venv", "build", "dist", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, target, symlinks=True, ignore=ignored)
