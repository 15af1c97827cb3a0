"""Which Nomad a test bed runs: one on PATH, or what ``make nomad`` of a checkout built."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import platformdirs

from edgeyard.errors import ConfigError

VERSION = "1.11.3"
"""The version that ``deploy/nomad`` pins."""

_FITS = re.compile(r"Nomad v(?:1\.11\.([0-9]+)|2\.[0-9]+\.[0-9]+)(?![0-9])")
_MIN_PATCH = 2
"""Minimum patch version of 1.11; older ones have bugs in dispatch and device accounting. Nomad 2
is accepted, and was not run: it can't be built here."""

_ANSWER_S = 30.0


def find_nomad(given: Path | None = None) -> Path:
    """Return the executable: the given one, or a fit one on PATH, or the one that was built here.

    Raises:
        ConfigError: There is none that fits; says how to get one.
    """
    if given is not None:
        if not _fits(given):
            raise ConfigError(
                [f"--nomad: {given} is not Nomad 1.11.{_MIN_PATCH} or newer 1.11, or 2"]
            )
        return given.resolve()
    on_path = shutil.which("nomad")
    built = Path(platformdirs.user_cache_dir("edgeyard")) / "nomad" / f"nomad-{VERSION}"
    for found in (Path(on_path) if on_path else None, built):
        if found is not None and _fits(found):
            return found
    raise ConfigError(
        [
            f"there is no Nomad 1.11 (1.11.{_MIN_PATCH} or newer) or 2 on PATH: `make nomad` in a "
            "checkout of Edgeyard builds one, once; or name one by --nomad PATH"
        ]
    )


def _fits(nomad: Path) -> bool:
    try:
        done = subprocess.run(
            [str(nomad), "version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    match = _FITS.match(done.stdout)
    return match is not None and (match[1] is None or int(match[1]) >= _MIN_PATCH)
