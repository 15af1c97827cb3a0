"""Builds ``edgeyard-runner.pyz``: the runner as one file, for hosts that have only an engine.

``python -m edgeyard.devices.runner.pyz OUT``. The same sources give the same bytes.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Iterator, Tuple

import edgeyard
from edgeyard.atomic_files import open_atomically

_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold: the bytes do not depend on the time of the build."""

_DEVICES = (
    "devices/__init__.py",
    "devices/benchmark_types.py",
    "devices/metrics.py",
    "devices/model.py",
    "devices/power_rails.py",
    "devices/ssh.py",
)

_START = """import sys

if sys.version_info < (3, 10):
    sys.exit("edgeyard-runner needs Python 3.10 or later")

from edgeyard.devices.runner.__main__ import main

main()
"""


def build(out: Path) -> Path:
    """Write the zipapp; it is executable, and there whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(out) as file:
        os.fchmod(file.fileno(), 0o755)
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
    return out


def members() -> Iterator[Tuple[str, str]]:
    """Yield the modules of the runner: names in the archive, and content."""
    package = Path(edgeyard.__file__).parent
    yield "__main__.py", _START
    for name in ("__init__.py", "atomic_files.py", "errors.py", *_DEVICES):
        yield f"edgeyard/{name}", (package / name).read_text("utf-8")
    runner = package / "devices/runner"
    for path in sorted(runner.rglob("*.py")):
        yield (
            f"edgeyard/devices/runner/{path.relative_to(runner).as_posix()}",
            path.read_text("utf-8"),
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m edgeyard.devices.runner.pyz OUT")
    build(Path(sys.argv[1]))
