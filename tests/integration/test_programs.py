"""The programs of others: what is unpacked runs, and nothing is installed without a yes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy import programs

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs Debian's package manager")
def test_an_unpacked_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    monkeypatch.setattr(programs, "BIN", tmp_path / "bin")
    (registry,) = (each for each in programs.UNPACKED if "docker-registry" in each.programs)
    programs.unpack([registry])
    unpacked = tmp_path / "bin/docker-registry"
    if not unpacked.exists():
        pytest.skip("its package could not be fetched")
    shown = subprocess.run(
        [unpacked, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert str(tmp_path) in shown.stdout  # the program's own path


def _provide(
    tmp_path: Path, environ: Mapping[str, str] | None = None, user: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run it as a user would, where a program and something that has to be installed are missing.

    What `apt-get`, `sudo` and `useradd` were asked for is in ``stdout``.
    """
    said = tmp_path / "said"
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    for name in ("apt-get", "sudo", "useradd"):
        (fakes / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {said}\nexit 100\n')
        (fakes / name).chmod(0o755)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        f"os.getuid = lambda: {user}\n"
        "from deploy import programs\n"
        "words = (('apt-get', 'install', 'thing'),)\n"
        "missing = programs.Installed('a thing', words, lambda: False)\n"
        "lacking = programs.Unpacked('a service', ('serviced',), {'no-such-program': 'bin/x'})\n"
        "programs.CACHE = programs.Path(os.environ['XDG_CACHE_HOME'])\n"
        "programs.UNPACKED, programs.INSTALLED = (lacking,), (missing,)\n"
        "sys.exit(programs.main([]))\n"
    )
    clean = {key: each for key, each in os.environ.items() if key not in ("CI", "YES")}
    clean |= {"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{fakes}:{os.environ['PATH']}"}
    clean |= environ or {}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)],
        env=clean,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    done.stdout = said.read_text() if said.exists() else ""
    return done


def test_without_a_terminal_what_must_be_installed_is_listed_alone(tmp_path: Path) -> None:
    done = _provide(tmp_path)
    assert done.returncode == 1
    assert "  - a thing: apt-get install thing" in done.stderr
    assert "make test YES=1" in done.stderr
    assert "install thing" not in done.stdout


@pytest.mark.parametrize("name", ["YES", "CI"])
def test_who_said_yes_before_is_not_asked(tmp_path: Path, name: str) -> None:
    done = _provide(tmp_path, {name: "1" if name == "YES" else "true"})
    assert "install thing" in done.stdout
    assert "a thing could not be installed: its tests are skipped" in done.stderr
    assert "download serviced" in done.stdout  # what runs unpacked is never installed
    asked = [line for line in done.stdout.splitlines() if " install " in line]
    assert all(" -s " in line for line in asked if "serviced" in line)


def test_without_sudo_the_commands_are_named(tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    done = _provide(tmp_path, {"YES": "1", "PATH": str(only)}, user=1000)
    assert done.returncode == 0, done.stderr
    assert "There is no sudo; run as root: apt-get install thing" in done.stderr
