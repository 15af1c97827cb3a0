"""Builds state the commit that they are made of; all else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

_ROOT = Path(__file__).parent
_INSIDE = "edgeyard/COMMIT"


def _commit() -> str:
    """Return the commit of the checkout, or the one that a source distribution states."""
    stated = _ROOT / "src" / _INSIDE
    if stated.is_file():
        return stated.read_text("ascii").strip()
    sys.path.insert(0, str(_ROOT / "src"))
    from edgeyard.installing import commit_of

    return commit_of(_ROOT / "src/edgeyard")


class _BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            (Path(self.build_lib) / _INSIDE).write_text(f"{_commit()}\n", "ascii")


class _Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / "src" / _INSIDE).write_text(f"{_commit()}\n", "ascii")


setup(cmdclass={"build_py": _BuildPy, "sdist": _Sdist})
