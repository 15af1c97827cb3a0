"""What is installed, and how to install extras: from a wheel's path, as no index has Edgeyard."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgeyard import __version__

_PACKAGE = Path(__file__).parent
_COMMIT_FILE = _PACKAGE / "COMMIT"
"""Written into wheels by `setup.py`; a checkout has none."""
_MIGRATIONS = _PACKAGE / "scheduler/store/migrations/versions"


def extra_command(extra: str) -> str:
    """Return the command that installs an extra, with the wheel's file name for its path."""
    return f"pip install '{wheel_name()}[{extra}]'"


def wheel_name() -> str:
    """Return the file name of the wheel of this version."""
    return f"edgeyard-{__version__}-py3-none-any.whl"


def version_text() -> str:
    """Return version, commit and the newest schema of databases, for people."""
    known = f"commit {commit()}, schema {schema()}"
    return f"edgeyard {__version__} ({known})"


def commit() -> str:
    """Return the commit that this was built from; "unknown" where nothing states it.

    Of a checkout it is git's, with ``-dirty`` where files have changed since.
    """
    if _COMMIT_FILE.is_file():
        return _COMMIT_FILE.read_text("ascii").strip()
    return commit_of(_PACKAGE)


def commit_of(folder: Path) -> str:
    """Return the commit of a folder in a checkout of Edgeyard; "unknown" elsewhere."""
    if not (folder.resolve().parents[1] / ".git").exists():  # src/edgeyard
        return "unknown"
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def schema() -> str:
    """Return the newest schema that this version knows; no package of a server is needed."""
    return max(path.name[1:5] for path in _MIGRATIONS.glob("v*.py"))
