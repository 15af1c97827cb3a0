"""Make stored databases of a commit: a small lab's, as its own server left them.

``python -m tests.data.make_stored_database COMMIT NAME`` writes ``stored_NAME_sqlite.sql.gz`` and
``stored_NAME_postgresql.sql.gz`` beside this file. ``make release`` makes them, named for its
version. Those of a release that was tagged are never made again: tests upgrade what it stored.
"""

from __future__ import annotations

import gzip
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy import programs
from deploy.process import start
from tests.databases import running_postgres

ROOT = Path(__file__).parents[2]
MODEL = "deploy/demo/digits.onnx"
SUBMIT = ("submit", "--model", MODEL, "--runtime", "ort", "--type", "TYPE1", "--target", "emumid")
COMMANDS: Sequence[Sequence[str]] = (
    ("users", "create", "ada", "--max-running", "2"),
    ("tokens", "create", "--user", "ada", "--label", "laptop"),
    ("users", "create", "pi-host", "--role", "host", "--board", "emuslow-*"),
    ("rates", "set", "emumid", "2"),
    ("users", "credit", "ada", "100"),
    ("boards", "drain", "emuslow-0001-0001", "--reason", "fan"),
    ("boards", "lease", "emufast-0001-0001", "--until", "+3000 d", "--maintenance"),
    ("boards", "quarantine", "emumid-0001-0002", "--reason", "slow"),
    (*SUBMIT, "--id", "done", "--tag", "nightly", "--wait"),
    (*SUBMIT, "--id", "second", "--nb-inference", "20", "--wait"),
    (*SUBMIT, "--id", "late", "--start-time", "2099-01-01T00:00:00Z"),
    (*SUBMIT, "--id", "waits", "--start-time", "2099-01-02T00:00:00Z"),
    ("hold", "waits"),
    (*SUBMIT, "--id", "gone", "--start-time", "2099-01-03T00:00:00Z"),
    ("cancel", "gone"),
    (*SUBMIT, "--cron", "0 3 * * *"),
    (*SUBMIT, "--target", "emufast", "--name", "suite", "--start-time", "2099-01-04T00:00:00Z"),
    ("policies", "activate", "learned", "--shadow"),
)
"""What its operator does, in order."""


def main(commit: str, stored_name: str) -> None:
    """Write the files of both databases."""
    with tempfile.TemporaryDirectory() as name, _source(commit, Path(name)) as source:
        for kind in ("sqlite", "postgresql"):
            data = Path(name) / kind
            if kind == "sqlite":
                _live(source, data, {})
                text = "\n".join(sqlite3.connect(data / "edgeyard.db").iterdump()) + "\n"
            else:
                with running_postgres() as url:
                    _live(source, data, {"EDGEYARD_DATABASE_URL": url})
                    text = _dumped(url)
            file = Path(__file__).with_name(f"stored_{stored_name}_{kind}.sql.gz")
            file.write_bytes(gzip.compress(text.encode(), mtime=0))
            print(f"{file.name}: {file.stat().st_size} bytes")  # noqa: T201


@contextmanager
def _source(commit: str, folder: Path) -> Iterator[Path]:
    """The files of a commit."""
    source = folder / "source"
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    yield source


def _live(source: Path, data: Path, settings: Mapping[str, str]) -> None:
    """Let a server of that commit live for a while on a new database."""
    environment = {**os.environ, **settings, "PYTHONPATH": str(source / "src"), "NO_COLOR": "1"}
    edgeyard = [sys.executable, "-m", "edgeyard"]
    server = start(data, environment)  # of the source that PYTHONPATH names
    try:
        environment |= {"EDGEYARD_URL": server.url, "EDGEYARD_TOKEN": server.token}
        for words in COMMANDS:
            subprocess.run(
                [*edgeyard, *words], cwd=source, env=environment, check=True, timeout=120
            )
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=60)


def _dumped(url: str) -> str:
    """All of a PostgreSQL database as statements, a line each where that is possible."""
    words = [programs.find("pg_dump") or "pg_dump", "--inserts", "--no-owner", "--no-privileges"]
    text = subprocess.run([*words, url], check=True, capture_output=True, text=True).stdout
    lines = [
        line
        for line in text.splitlines()
        if line and not line.startswith(("--", "SET ", "\\", "SELECT pg_catalog.set_config"))
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
