"""Random kill -9 under load, and a checker of what is left: API, store, cluster and files."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sqlalchemy import create_engine

from deploy.process import TERMINAL, Server, free_port
from edgeyard.errors import NotFound
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS, Attempt
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore
from tests.acceptance.lives import Life, a_life, attempts_of

LIVE_BENCHMARKS = 6
"""As many are under way at a time: more than boards, so that some wait."""

MAX_PAUSE_S = 2.0
"""Longest time between a server's start, or the death of a victim, and the next kill."""

KILLS_PER_RUN = 5
"""Kills for each benchmark that is completed, at most: results too are to be under way."""

STARTS_KILLED = 0.2
"""Share of the server's starts that do not come to their end."""

WATCH_S = 0.2
"""Between two looks at the processes of tasks; a run takes more than a second."""

PROGRESS_S = 20.0
"""Between two lines that report how far it is."""

END_S = 600.0
"""For all benchmarks to end after the last kill."""

FOLDER = Path("build/soak")

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


MAX_RETRIES = 10
"""The most that a description may ask for."""


def _all_tries_were_killed(shown: Mapping[str, object]) -> bool:
    """Return whether a benchmark failed since each try that counts was killed by the soak.

    Its owner was then given what was promised: all retries, and the true reason. Kills of the
    server or the agent use up no try.
    """
    counted = [each["failure"] for each in attempts_of(shown) if each["counts"]]
    return (
        shown["status"] == "failed"
        and len(counted) == MAX_RETRIES + 1
        and all(
            isinstance(each, dict)
            and each["category"] == "board_fault"
            and "SIGKILL, which Edgeyard did not send" in each["sentence"]
            for each in counted
        )
    )


@dataclass
class Tally:
    """What happened."""

    kills: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    completed: int = 0
    given_up: int = 0
    attempts: int = 0
    extra_attempts: int = 0
    tasks: int = 0
    ready_s: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def figures(self) -> dict[str, object]:
        """Rows of the table."""
        ready_s = sorted(self.ready_s) or [0.0]
        return {
            **{f"kill -9 of {name}": count for name, count in sorted(self.kills.items())},
            "kill -9 in all": self.kills.total(),
            "benchmarks submitted (2xx)": self.submitted,
            "completed": self.completed,
            "failed, all tries killed": self.given_up,
            "attempts": self.attempts,
            "attempts that a kill cost": self.extra_attempts,
            "tasks that the cluster ran": self.tasks,
            "lost": len(self.lost),
            "doubled": len(self.doubled),
            "other faults that the checker found": len(self.broken),
            "restart to ready, median (s)": round(ready_s[len(ready_s) // 2], 2),
            "restart to ready, maximum (s)": round(ready_s[-1], 2),
            "wall time (s)": round(self.wall_s),
            "per kill (s)": round(self.wall_s / max(1, self.kills.total()), 2),
        }


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """A task that a cluster ran, by its own record.

    Attributes:
        alloc_id: Of its allocation.
        target_uid: Board that the cluster gave it; "" where the record does not say.
    """

    job_id: str
    alloc_id: str
    target_uid: str


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """A process of a task.

    Attributes:
        is_runner: Whether it is the task's main process, not one that measures.
    """

    pid: int
    task: ClusterTask
    is_runner: bool


class TaskWatch(threading.Thread):
    """Sees which tasks run at the same time, whatever server and database believe.

    Args:
        folder: The folders of all allocations lie in it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(name="soak-watch", daemon=True)
        self._folder = folder
        self._ended = threading.Event()
        self.seen: set[ClusterTask] = set()
        self.together: set[frozenset[str]] = set()

    def run(self) -> None:
        while not self._ended.wait(WATCH_S):
            now = {each.task for each in task_processes(self._folder)}
            self.seen |= now
            self.together.add(frozenset(task.job_id for task in now))

    def end(self) -> None:
        self._ended.set()
        self.join(20)


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
        tasks: Path | None = None,
        allocations: Callable[[], Sequence[ClusterTask]] | None = None,
        seed: int = 1,
    ) -> None:
        """Nothing is started before `run`.

        Args:
            folder: Of the server.
            model: What is measured.
            target: Family of the boards.
            victims: Beside the server and the runners.
            environment: Of the server.
            tasks: Where the cluster's allocations lie; None: in the server's folder.
            allocations: All that the cluster ever ran, by its own record; None: it keeps none, and
                what was seen of their processes counts.
            seed: Of all that is left to chance.
        """
        self.data_dir = folder / "data"
        self._port = free_port()
        self._environment = {**(environment or {})}
        self._database = self._environment.get(
            "EDGEYARD_DATABASE_URL", f"sqlite:///{self.data_dir / 'edgeyard.db'}"
        )
        self._model = model
        self._target = target
        self._random = random.Random(seed)
        self._tasks = tasks or self.data_dir
        self._allocations = allocations
        self._watch = TaskWatch(self._tasks)
        self._life: Life | None = None
        self._server: Server | None = None
        self._victims = (
            Victim(name="server", kill=self._kill_server),
            Victim(name="runner", kill=self._kill_runner),
            *victims,
        )
        self._round: list[Victim] = []
        self._told_s = 0.0
        self.tally = Tally()

    def run(self, kills: int, name: str) -> Tally:
        """Kill so many times, let all end, and check.

        Args:
            kills: In all.
            name: Of this run, for the lines that report how far it is.

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
            "max_retries": MAX_RETRIES,
        }
        with self._alive():
            self._current().upload(self._model)
        self._watch.start()
        submitter = Submitter(self._current, body)
        submitter.start()
        tally = self.tally
        while tally.kills.total() < kills:
            if tally.kills["server"] and self._random.random() < STARTS_KILLED:
                self._kill_a_start()
                continue
            with self._alive() as life:
                while life.is_alive() and tally.kills.total() < kills:
                    time.sleep(self._random.uniform(0.0, MAX_PAUSE_S))
                    with contextlib.suppress(*_UNANSWERED):
                        self._lift_quarantines()
                    victim = self._next_victim()
                    while not (self._moves_on() and victim.kill()):
                        time.sleep(0.05)
                        self._tell(name, kills, began)
                    self._round.remove(victim)
                    tally.kills[victim.name] += 1
                    victim.revive()
                    self._tell(name, kills, began)
        submitter.end()
        with self._alive():
            self._finish(submitter.id_by_key)
        self._watch.end()
        self._check(submitter.id_by_key)
        tally.wall_s = time.monotonic() - began
        return tally

    def _tell(self, name: str, kills: int, began: float) -> None:
        """Report now and then how far it is."""
        now = time.monotonic()
        if now - self._told_s < PROGRESS_S:
            return
        self._told_s = now
        done = self.tally.kills.total()
        wall_s = now - began
        left_s = wall_s / max(1, done) * (kills - done)
        sys.stdout.write(
            f"{name}: {done} of {kills} kills in {wall_s:.0f} s, {left_s:.0f} s to go\n"
        )
        sys.stdout.flush()

    def _kill_a_start(self) -> None:
        """Kill a server before it is ready, wherever it is."""
        usual_s = sorted(self.tally.ready_s)[len(self.tally.ready_s) // 2]
        with a_life(self.data_dir, port=self._port, environment=self._environment) as life:
            life.wait(self._random.uniform(0.0, usual_s))
            life.kill()
        self.tally.kills["server while it starts"] += 1

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

        Otherwise a slow machine would see no run come to its end, and no result be uploaded.
        """
        with contextlib.suppress(*_UNANSWERED):
            found = self._current().call(
                "GET", "/v1/benchmarks?status=completed&total=true&limit=1"
            )
            return int(found["total"]) * KILLS_PER_RUN >= self.tally.kills.total()
        return False

    def _next_victim(self) -> Victim:
        """Each is killed once in a round, in an order by chance."""
        self._round = self._round or self._random.sample(self._victims, len(self._victims))
        return self._round[0]

    def _kill_server(self) -> bool:
        assert self._life is not None
        self._life.kill()
        return True

    def _kill_runner(self) -> bool:
        found = [each.pid for each in task_processes(self._tasks) if each.is_runner]
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
        # The last submission may have been stored without an answer that arrived.
        if listed["total"] not in (tally.submitted, tally.submitted + 1):
            tally.doubled.append(f"{listed['total']} stored, {tally.submitted} submitted")
        for benchmark_id in id_by_key.values():
            self._judge(server, benchmark_id, shown.get(benchmark_id))
        while time.monotonic() < until:
            boards = server.call("GET", "/v1/boards")
            busy = [each["target_uid"] for each in boards["items"] if each["state"] == "busy"]
            if not busy:
                return
            time.sleep(0.2)
        tally.broken.append(f"boards stay busy: {busy}")

    def _judge(self, server: Server, benchmark_id: str, shown: Mapping[str, object] | None) -> None:
        tally = self.tally
        if shown is not None and _all_tries_were_killed(shown):
            tally.given_up += 1
            return
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
        numbers = [each["attempt"] for each in results["reports"]]
        if not any(each["report"]["status"] == "ok" for each in results["reports"]):
            tally.lost.append(f"{benchmark_id} is completed without a report")
        if len(numbers) != len(set(numbers)):
            tally.doubled.append(f"{benchmark_id}: two reports of one attempt")

    def _check(self, id_by_key: Mapping[str, str]) -> None:
        """Look at what lies on the disk, now that no server runs, and at what the cluster ran."""
        self._check_store(set(id_by_key.values()))
        self._check_tasks(set(id_by_key.values()))

    def _check_tasks(self, known: set[str]) -> None:
        """Compare every attempt with the cluster's own tasks."""
        doubled, broken = self.tally.doubled, self.tally.broken
        left = [each.pid for each in task_processes(self._tasks)]
        if left:
            broken.append(f"tasks go on after the end of all benchmarks: {left}")
        ran = set(self._watch.seen) if self._allocations is None else set(self._allocations())
        self.tally.tasks = len(ran)
        store = SqlStore(self._database)
        try:
            with store.read() as uow:
                stored = [each for known_id in known for each in uow.attempts.of(known_id)]
                attempts = {each.job_id: each for each in stored}
                strange = {
                    task.job_id for task in ran | self._watch.seen if task.job_id not in attempts
                }
                for job_id in strange:  # of the last submission, whose answer did not arrive?
                    with contextlib.suppress(NotFound):
                        attempts[job_id] = uow.attempts.by_job_id(job_id)
        finally:
            store.close()
        doubled += [f"{job_id} ran and is no attempt's" for job_id in strange - attempts.keys()]
        doubled += [
            f"{job_id} ran {count} times"
            for job_id, count in Counter(task.job_id for task in ran).items()
            if count > 1
        ]
        for job_ids in self._watch.together:
            owners = Counter(
                attempts[job_id].benchmark_id for job_id in job_ids if job_id in attempts
            )
            doubled += [
                f"{owner} ran {count} times at once: {sorted(job_ids)}"
                for owner, count in owners.items()
                if count > 1
            ]
        board_by_job = {task.job_id: task.target_uid for task in ran}
        for attempt in stored:
            broken += self._differences(attempt, board_by_job)

    def _differences(self, attempt: Attempt, board_by_job: Mapping[str, str]) -> Iterator[str]:
        """Between an attempt as it is stored and the task that the cluster ran for it."""
        board = board_by_job.get(attempt.job_id)
        # A task that is killed at once may be gone before anybody sees its process.
        must_be_known = attempt.failure is None or (
            self._allocations is not None and attempt.started_at is not None
        )
        if board is None and must_be_known:
            yield f"the cluster ran no task of {attempt.job_id}, {attempt.state}"
        elif board and attempt.board_is_known and board != attempt.target_uid:
            yield f"{attempt.job_id} ran on {board} and is stored with {attempt.target_uid}"

    def _check_store(self, known: set[str]) -> None:
        broken = self.tally.broken
        engine = create_engine(self._database.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as database:
            checks = {"integrity_check": [("ok",)], "foreign_key_check": []}
            for pragma, good in checks.items() if engine.dialect.name == "sqlite" else ():
                found = [tuple(row) for row in database.exec_driver_sql(f"PRAGMA {pragma}")]
                if found != good:
                    broken.append(f"{pragma}: {found[:3]}")
            counted = {
                str(status): int(count)
                for status, count in database.exec_driver_sql(
                    "SELECT status, count(*) FROM benchmarks GROUP BY status"
                )
            }
        engine.dispose()
        files = ContentFiles(self.data_dir / "files")
        store = SqlStore(self._database)
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


def task_processes(folder: Path) -> list[TaskProcess]:
    """Processes of tasks whose allocations lie in this folder."""
    mark = f"NOMAD_ALLOC_DIR={folder}/".encode()
    parents: dict[int, int] = {}
    tasks: dict[int, ClusterTask] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            environ = (entry / "environ").read_bytes()
            if b"\0" + mark not in b"\0" + environ:
                continue
            values = dict(
                word.split("=", 1)
                for word in environ.decode(errors="replace").split("\0")
                if "=" in word
            )
            board = json.loads(values.get("EDGEYARD_BOARD", "{}")).get("target_uid", "")
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            tasks[int(entry.name)] = ClusterTask(
                values["NOMAD_JOB_ID"], values["NOMAD_ALLOC_ID"], str(board)
            )
    return [
        TaskProcess(pid, tasks[pid], parents[pid] not in parents) for pid in tasks.keys() & parents
    ]


def table(figures: Mapping[str, Mapping[str, object]]) -> str:
    """Rows of Markdown, a column a run."""
    names = list(dict.fromkeys(name for column in figures.values() for name in column))
    lines = [
        f"| | {' | '.join(figures)} |",
        f"| --- |{' ---: |' * len(figures)}",
        *(
            f"| {name} | {' | '.join(str(column.get(name, '')) for column in figures.values())} |"
            for name in names
        ),
    ]
    return "\n".join(lines)


def save(tally: Tally, name: str) -> None:
    """Print the table of a run, and keep its figures in ``build/soak``."""
    sys.stdout.write(f"\n{table({name: tally.figures()})}\n")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {**asdict(tally), "kills": dict(tally.kills), "figures": tally.figures()}
    (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=1))


def main() -> None:
    """Print one table of all runs whose figures are kept."""
    figures = {
        path.stem: json.loads(path.read_text())["figures"] for path in sorted(FOLDER.glob("*.json"))
    }
    for name in list(dict.fromkeys(name for column in figures.values() for name in column)):
        values = [column.get(name, 0) for column in figures.values()]
        if not name.endswith("(s)"):
            figures.setdefault("in all", {})[name] = sum(values)
    sys.stdout.write(f"\n{table(figures)}\n")


if __name__ == "__main__":
    main()
