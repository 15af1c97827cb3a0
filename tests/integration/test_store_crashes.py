"""A server killed at each commit and file step: what it acknowledged is there, and whole."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make

# Two submissions with a file each, killed at failpoint 1, 2, … in a process of its own each time
# (forked: starting Python twenty times would take most of a minute). Each says what a client would
# were confirmed with a 2xx.
_SERVERS = """
import itertools, os, sys
from pathlib import Path
from edgeyard import failpoints
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make

def serve(folder):
    store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
    files = ContentFiles(folder / "files")
    for name in ("b-1", "b-2"):
        with store.write() as uow:
            uow.benchmarks.add(make.a_benchmark(name))
            uow.log.append(make.an_event(benchmark_id=name))
            uow.cycles.explain(name, uow.cycles.add(make.a_record()))
            uow.attempts.add_all([make.an_attempt(name)])
        os.write(1, f"submitted {name}\\n".encode())
        writer = files.writer(10**6)
        writer.write(name.encode() * 1000)
        stored = writer.commit()
        with store.write() as uow:
            uow.files.add_result(make.a_result("out", benchmark_id=name, sha256=stored.sha256))
        os.write(1, f"uploaded {name}\\n".encode())
    store.prune(dict.fromkeys(RetentionClass, make.at(10)))
    store.close()

for number in itertools.count(1):
    folder = Path(sys.argv[1], str(number))
    folder.mkdir()
    child = os.fork()
    if not child:
        for stream, name in ((1, "confirmed"), (2, "fired")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), stream)
        failpoints._target = number
        serve(folder)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 137:
        sys.exit(code)
"""


def _check(folder: Path, expected: list[tuple[str, str]]) -> None:
    with sqlite3.connect(folder / "edgeyard.db") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()
    store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
    files = ContentFiles(folder / "files")
    with store.read() as uow:
        stored, _ = uow.benchmarks.page(BenchmarkFilter(), limit=9, cursor=None)
        ids = {benchmark.benchmark_id for benchmark in stored}
        assert ids >= {name for what, name in expected if what == "submitted"}
        assert sum(uow.benchmarks.counts_by_status().values()) == len(ids)
        events = uow.log.events(after=0, limit=9)
        assert {event.benchmark_id for event in events} == ids
        assert [event.seq for event in events] == list(range(1, len(ids) + 1))
        for name in ids:
            assert uow.cycles.get(uow.cycles.explaining_cycle(name)) == make.a_record()
            assert len(uow.attempts.of(name)) == 1
            results = uow.files.results(name)
            assert results or ("uploaded", name) not in expected
            for result in results:
                assert files.path(result.sha256).read_bytes() == name.encode() * 1000
    store.close()
    for path in (folder / "files").glob("??/??/*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SERVERS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": "src:."},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    last = (folders[-1] / "fired").read_text()
    assert done.returncode == 0, done.stderr + last
    for folder in folders:
        lines = (folder / "confirmed").read_text().splitlines()
        _check(folder, [(line.split()[0], line.split()[1]) for line in lines])
    fired = [(folder / "fired").read_text().split("fired: ")[1].strip() for folder in folders[:-1]]
    assert set(fired) == {
        "migrate:before",
        "migrate:after",
        "commit:before",
        "commit:after",
        "file:created",
        "file:sync",
        "file:rename",
        "file:sync-folder",
        "file:kept",
    }
    assert fired.count("commit:before") == fired.count("commit:after") >= 4
