"""``~`` in paths of users."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str | Path) -> Path:
    """Return the path with ``~`` or ``~name`` at its start replaced by that home folder.

    Where there is no such home, the path is meant as it is: a file may be called ``~net.onnx``.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
