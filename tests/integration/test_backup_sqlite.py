"""Backups of a server on SQLite, where copies and logs are files next to each other."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from tests.builders.api import Api
from tests.databases import database_in, stored_text
from tests.integration.test_backup import Run, contents, data, lab, refuse_what_is_left, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_database("of the files of SQLite; pg_restore works in one transaction"),
]

__all__ = ["data", "lab", "run"]


@pytest.mark.parametrize("number", [1, 3, 5, 7, 8])
def test_a_restore_that_is_killed_goes_on_when_it_is_run_again(
    lab: Api, data: Path, tmp_path: Path, run: Run, number: int
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    assert run("backup", file, data=data).exit_code == 0
    words = [sys.executable, "-m", "edgeyard", "server", "restore", str(file)]
    killed = subprocess.run(
        [*words, "--data-dir", str(new)],
        env=os.environ | {"EDGEYARD_FAILPOINT": str(number)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 137, killed.stderr
    assert not (new / "edgeyard.db").exists()
    again = run("restore", file, data=new, url=f"sqlite:///{new}/edgeyard.db")
    assert again.exit_code == 0, again.output
    assert stored_text(f"sqlite:///{new}/edgeyard.db") == stored_text(database_in(data))
    assert contents(new) == contents(data)


def test_a_log_that_is_left_of_another_server_is_not_mixed_with_a_backup(
    lab: Api, data: Path, tmp_path: Path, run: Run
) -> None:
    file, new = tmp_path / "lab.tar", tmp_path / "new"
    assert run("backup", file, data=data).exit_code == 0
    url = f"sqlite:///{new}/edgeyard.db"
    refuse_what_is_left("edgeyard.db-wal", file, new, run, url)


def test_the_copy_is_the_database_and_not_its_log(lab: Api, data: Path, tmp_path: Path) -> None:
    """A plain copy of the file would lack what is in the log alone: the backup has it."""
    done = CliRunner().invoke(
        app, ["server", "backup", str(tmp_path / "lab.tar"), "--data-dir", str(data)]
    )
    assert done.exit_code == 0, done.output
    with tarfile.open(tmp_path / "lab.tar") as archive:
        archive.extract("database", tmp_path, filter="data")
    found = sqlite3.connect(tmp_path / "database")
    assert found.execute("SELECT count(*) FROM benchmarks").fetchone() == (2,)
    found.close()
