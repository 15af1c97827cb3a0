"""Where the programs of others are: on PATH, in folders of the system, or unpacked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from deploy.programs import BIN


def program(name: str, first: str = "") -> str | None:
    """Return the path of a program; None where it is missing.

    Args:
        first: Folders, separated by colons, that come before those of PATH.
    """
    path = ":".join(
        each for each in (first, os.environ.get("PATH", ""), "/usr/sbin", str(BIN)) if each
    )
    return shutil.which(name, path=path)


def programs_of_prometheus() -> Path | None:
    """Return the folder of Prometheus and promtool; None where they are missing."""
    found, tool = program("prometheus"), program("promtool")
    return None if found is None or tool is None else Path(found).parent
