"""No bytes of others make a reader do anything but read, or refuse in its documented way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import readers

EXAMPLES = 40
"""Contents of each reader, the same ones in each run; ``make fuzz`` tries others."""


@pytest.mark.slow
def test_foreign_bytes_are_read_or_refused_and_nothing_else_happens() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.readers", "--examples", str(EXAMPLES)],
        cwd=readers.ROOT,
        env={**os.environ, "PYTHONPATH": f"{readers.ROOT / 'src'}:{readers.ROOT}"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    for name in readers.READERS:
        assert f"ok     {name} (" in done.stdout


def test_what_a_reader_may_not_do_is_noticed(tmp_path: Path) -> None:
    """In a process of its own: an audit hook stays."""
    script = """
import sys, urllib.request
from tests.fuzz import readers

def connects(content, folder):
    urllib.request.urlopen("http://127.0.0.1:1/")

def opens(content, folder):
    open("/etc/hostname").read()

def starts(content, folder):
    import subprocess
    subprocess.run(["true"])

def breaks(content, folder):
    raise KeyError("x")

with readers.watched() as watch:
    for read in (connects, opens, starts, breaks):
        reader = readers.Reader(seeds=tuple, read=read, errors=(OSError,))
        readers.READERS = {"x": reader}
        try:
            readers.attack("x", b"", watch)
        except readers.Finding as finding:
            print(read.__name__, str(finding).splitlines()[-1][:60])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=readers.ROOT,
        env={**os.environ, "PYTHONPATH": f"{readers.ROOT / 'src'}:{readers.ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = [line.split(" ", 1)[0] for line in done.stdout.splitlines()]
    assert found == ["connects", "opens", "starts", "breaks"], done.stdout + done.stderr
