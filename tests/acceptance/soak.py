"""Random kill -9 under load, and a checker of what is left: API, store, cluster and files."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.process import TERMINAL, Server, free_port
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore
from tests.acceptance.lives import Life, a_life, attempts_of

LIVE_BENCHMARKS = 6
"""As many are under way at a time: more than boards, so that some wait."""

MAX_PAUSE_S = 2.0
"""Longest time between a server's start, or the death of a victim, and the next kill."""

KILLS_PER_RUN = 2
"""Kills for each benchmark that is completed, at most."""

END_S = 600.0
"""For all benchmarks to end after the last kill."""

_UNANSWERED = (RuntimeError, OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Something that is killed now and then.

    Attributes:
        name: In the table.
        kill: Kills it; False where there is none just now.
        revive: Starts it again, where nobody else does.
    """

    name: str
    kill: Callable[[], bool]
    revive: Callable[[], None] = lambda: None


@dataclass
class Tally:
    """What happened."""

    kills: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    completed: int = 0
    attempts: int = 0
    extra_attempts: int = 0
    ready_s: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def table(self) -> str:
        """Rows of Markdown."""
        ready_s = sorted(self.ready_s) or [0.0]
        rows: Sequence[tuple[str, object]] = (
            *((f"kill -9 of {name}", count) for name, count in sorted(self.kills.items())),
            ("kill -9 in all", self.kills.total()),
            ("benchmarks submitted (2xx)", self.submitted),
            ("completed", self.completed),
            ("attempts", self.attempts),
            ("attempts that a kill cost", self.extra_attempts),
            ("lost", len(self.lost)),
            ("doubled", len(self.doubled)),
            ("other faults that the checker found", len(self.broken)),
            ("restart to ready, median (s)", round(ready_s[len(ready_s) // 2], 2)),
            ("restart to ready, maximum (s)", round(ready_s[-1], 2)),
            ("wall time (s)", round(self.wall_s)),
        )
        lines = ["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows)]
        return "\n".join(lines)


class Submitter(threading.Thread):
    """Keeps some benchmarks under way, whatever happens to the server.

    A submission that has no answer is sent again under its idempotency key, as clients do.
    """

    def __init__(self, server: Callable[[], Server], body: Mapping[str, object]) -> None:
        super().__init__(name="soak-submitter", daemon=True)
        self._server = server
        self._body = dict(body)
        self._live: set[str] = set()
        self._ended = threading.Event()
        self.id_by_key: dict[str, str] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(*_UNANSWERED):
                self._turn(self._server())

    def end(self) -> None:
        self._ended.set()
        self.join(120)

    def _turn(self, server: Server) -> None:
        self._live = {each for each in self._live if server.show(each)["status"] not in TERMINAL}
        while len(self._live) < LIVE_BENCHMARKS and not self._ended.is_set():
            key = f"soak-{len(self.id_by_key)}"
            made = server.call("POST", "/v1/benchmarks", self._body, Idempotency_Key=key)
            assert isinstance(made, dict)
            self.id_by_key[key] = str(made["benchmark_id"])
            self._live.add(self.id_by_key[key])


class Soak:
    """One server on one folder, killed again and again."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        target: str,
        victims: Sequence[Victim] = (),
        environment: Mapping[str, str] | None = None,
        runners: Callable[[], Sequence[int]] | None = None,
        seed: int = 1,
    ) -> None:
        self.data_dir = folder / "data"
        self._port = free_port()
        self._environment = environment
        self._model = model
        self._target = target
        self._random = random.Random(seed)
        self._runners = runners or (lambda: task_processes(self.data_dir))
        self._life: Life | None = None
        self._server: Server | None = None
        self._victims = (
            Victim(name="server", kill=self._kill_server),
            Victim(name="runner", kill=self._kill_runner),
            *victims,
        )
        self._round: list[Victim] = []
        self.tally = Tally()

    def run(self, kills: int) -> Tally:
        """Kill so many times, let all end, and check.

        Returns:
            What happened, with all that the checker found.
        """
        began = time.monotonic()
        body = {
            "model": self._model.name,
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target": self._target,
            "nb_inference": 20,
            "max_retries": 10,
        }
        with self._alive():
            self._current().upload(self._model)
        submitter = Submitter(self._current, body)
        submitter.start()
        while self.tally.kills.total() < kills:
            with self._alive() as life:
                while life.process.is_alive() and self.tally.kills.total() < kills:
                    time.sleep(self._random.uniform(0.0, MAX_PAUSE_S))
                    with contextlib.suppress(*_UNANSWERED):
                        self._lift_quarantines()
                    if not self._moves_on():
                        continue
                    victim = self._next_victim()
                    if victim.kill():
                        self._round.remove(victim)
                        self.tally.kills[victim.name] += 1
                        victim.revive()
        submitter.end()
        with self._alive():
            self._finish(submitter.id_by_key)
        self._check(submitter.id_by_key)
        self.tally.wall_s = time.monotonic() - began
        return self.tally

    @contextlib.contextmanager
    def _alive(self) -> Iterator[Life]:
        started = time.monotonic()
        with a_life(self.data_dir, port=self._port, environment=self._environment) as life:
            self._life, self._server = life, life.ready()
            self.tally.ready_s.append(time.monotonic() - started)
            yield life

    def _current(self) -> Server:
        assert self._server is not None
        return self._server

    def _moves_on(self) -> bool:
        """Whether enough has been completed for the next kill.

        A benchmark whose run is lost 20 times is given up, which is no fault: on a slow machine
        a server that is killed at once, each time, would never complete any.
        """
        with contextlib.suppress(*_UNANSWERED):
            found = self._current().call(
                "GET", "/v1/benchmarks?status=completed&total=true&limit=1"
            )
            assert isinstance(found, dict)
            return int(found["total"]) * KILLS_PER_RUN >= self.tally.kills.total()
        return False

    def _next_victim(self) -> Victim:
        """Each is killed once in a round, in an order by chance."""
        self._round = self._round or self._random.sample(self._victims, len(self._victims))
        return self._round[0]

    def _kill_server(self) -> bool:
        assert self._life is not None
        self._life.process.kill()
        self._life.process.join()
        return True

    def _kill_runner(self) -> bool:
        found = self._runners()
        if not found:
            return False
        try:
            os.kill(self._random.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _lift_quarantines(self) -> None:
        """As an operator would: boards whose runners are killed look faulty, and are not."""
        server = self._current()
        found = server.call("GET", "/v1/boards")
        assert isinstance(found, dict)
        for board in found["items"]:
            if board["state"] == "quarantined":
                server.call("POST", f"/v1/boards/{board['target_uid']}/unquarantine")

    def _finish(self, id_by_key: Mapping[str, str]) -> None:
        """Let all end, and ask the API what became of each."""
        server, tally = self._current(), self.tally
        until = time.monotonic() + END_S
        shown: dict[str, dict[str, object]] = {}
        while len(shown) < len(id_by_key) and time.monotonic() < until:
            self._lift_quarantines()
            for benchmark_id in id_by_key.values():
                if benchmark_id not in shown:
                    found = server.show(benchmark_id)
                    if found["status"] in TERMINAL:
                        shown[benchmark_id] = found
            time.sleep(0.2)
        tally.submitted = len(id_by_key)
        listed = server.call("GET", "/v1/benchmarks?total=true&limit=1")
        assert isinstance(listed, dict)
        # The last submission may have been stored without an answer that arrived.
        if listed["total"] not in (tally.submitted, tally.submitted + 1):
            tally.doubled.append(f"{listed['total']} stored, {tally.submitted} submitted")
        for benchmark_id in id_by_key.values():
            self._judge(server, benchmark_id, shown.get(benchmark_id))
        while time.monotonic() < until:
            boards = server.call("GET", "/v1/boards")
            assert isinstance(boards, dict)
            busy = [each["target_uid"] for each in boards["items"] if each["state"] == "busy"]
            if not busy:
                return
            time.sleep(0.2)
        tally.broken.append(f"boards stay busy: {busy}")

    def _judge(self, server: Server, benchmark_id: str, shown: Mapping[str, object] | None) -> None:
        tally = self.tally
        if shown is None or shown["status"] != "completed":
            tally.lost.append(f"{benchmark_id}: {server.show(benchmark_id)}")
            return
        attempts = attempts_of(shown)
        tally.completed += 1
        tally.attempts += len(attempts)
        tally.extra_attempts += len(attempts) - 1
        good = [each for each in attempts if each["failure"] is None]
        if len(good) != 1:
            tally.doubled.append(f"{benchmark_id}: {len(good)} attempts went well")
        results = server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
        assert isinstance(results, dict)
        numbers = [each["attempt"] for each in results["reports"]]
        if not any(each["report"]["status"] == "ok" for each in results["reports"]):
            tally.lost.append(f"{benchmark_id} is completed without a report")
        if len(numbers) != len(set(numbers)):
            tally.doubled.append(f"{benchmark_id}: two reports of one attempt")

    def _check(self, id_by_key: Mapping[str, str]) -> None:
        """Look at what lies on the disk, now that no server runs."""
        self._check_store(set(id_by_key.values()))
        left = task_processes(self.data_dir)
        if left:
            self.tally.broken.append(f"tasks outlive the server: {left}")

    def _check_store(self, known: set[str]) -> None:
        broken = self.tally.broken
        path = self.data_dir / "edgeyard.db"
        with contextlib.closing(sqlite3.connect(path)) as database:
            for pragma, good in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                found = database.execute(f"PRAGMA {pragma}").fetchall()
                if found != good:
                    broken.append(f"{pragma}: {found[:3]}")
            counted = dict(
                database.execute("SELECT status, count(*) FROM benchmarks GROUP BY status")
            )
        files = ContentFiles(self.data_dir / "files")
        store = SqlStore(f"sqlite:///{path}")
        try:
            with store.read() as uow:
                counts = {
                    status: count for status, count in uow.benchmarks.counts_by_status().items()
                }
                if {status.value: count for status, count in counts.items() if count} != counted:
                    broken.append(f"counts by status are {counts}, rows are {counted}")
                if live := [each for each in uow.attempts.live() if each.benchmark_id in known]:
                    broken.append(f"attempts are live: {live}")
                if charges := [c for c in uow.credits.open_charges() if c.benchmark_id in known]:
                    broken.append(f"charges are open: {charges}")
                for benchmark_id in known:
                    attempts = uow.attempts.of(benchmark_id)
                    numbers = [each.number for each in attempts]
                    if numbers != list(range(1, len(attempts) + 1)):
                        broken.append(f"{benchmark_id} has attempts {numbers}")
                    if any(each.state in LIVE_ATTEMPTS for each in attempts):
                        broken.append(f"{benchmark_id} has an attempt that has not ended")
                    ends = [
                        event.data["status"]
                        for event in uow.log.events(
                            after=0, limit=10_000, benchmark_id=benchmark_id
                        )
                        if event.kind == "benchmark.status"
                        and Status(str(event.data["status"])).value in TERMINAL
                    ]
                    if len(ends) != 1:
                        self.tally.doubled.append(f"{benchmark_id} ended {ends}")
                    for result in uow.files.results(benchmark_id):
                        content = files.path(result.sha256).read_bytes()
                        if hashlib.sha256(content).hexdigest() != result.sha256:
                            broken.append(f"{benchmark_id}: {result.name} is damaged")
        finally:
            store.close()


def task_processes(data_dir: Path) -> list[int]:
    """Runners of the embedded cluster's tasks: their main processes, not those that measure."""
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if str((entry / "cwd").readlink()).startswith(f"{data_dir}/"):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent
    return [pid for pid, parent in found.items() if parent not in found]


def nomad_task_processes(folder: Path) -> list[int]:
    """As `task_processes`, of tasks that Nomad's clients in this folder run."""
    mark = f"NOMAD_ALLOC_DIR={folder}/".encode()
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if b"\0" + mark in b"\0" + (entry / "environ").read_bytes():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent
    return [pid for pid, parent in found.items() if parent not in found]


def save(tally: Tally, name: str) -> None:
    """Print the table, and keep the figures in ``build/soak``."""
    sys.stdout.write(f"\n{name}\n\n{tally.table()}\n")
    folder = Path("build/soak")
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {**vars(tally), "kills": dict(tally.kills)}
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1))
