"""The embedded cluster: the interface of Nomad, boards of this machine, a child process per job."""

from __future__ import annotations

import logging
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from edgeyard.devices.inventory import sandbox_of
from edgeyard.devices.machine import of_engines
from edgeyard.devices.model import AttributeValue, Board, Host, Sandbox
from edgeyard.errors import ClusterUnreachable, JobExists, JobRefused, NotFound
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.clusters.local.admission import LocalJob, admit
from edgeyard.scheduler.clusters.local.boards import HOST_ID, BoardPool
from edgeyard.scheduler.clusters.local.download import Downloader
from edgeyard.scheduler.clusters.local.load import MachineLoad
from edgeyard.scheduler.clusters.local.task import (
    NO_ROOM,
    Task,
    TaskEnd,
    alloc_file,
    clean,
    end_orphans,
    log_file,
    read_progress,
)
from edgeyard.scheduler.hcl.parse import parse_job, warm_up
from edgeyard.scheduler.model.benchmark import RETRYABLE, Failure, FailureCategory
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import (
    Cluster,
    JobRun,
    JobState,
    LoadReport,
    LogChunk,
    NodeSource,
    RecurringJob,
)

logger = logging.getLogger(__name__)


KEPT_JOBS = 500
"""Number of ended jobs whose state and logs are retained."""

MIN_FREE_BYTES = 4 << 20
"""With less room on the disk no task is begun: it could write neither its log nor its result."""

LOG_CHUNK_BYTES = 256 * 1024

PAST_START_S = 60.0
"""Maximum age of a start time on arrival; Nomad would never run an older one."""

_TIMER_POLL_INTERVAL_S = 1.0  # of starts that are due: the clock may have been set
_STOP_POLL_INTERVAL_S = 0.25  # of listeners
_LISTENER_EVENTS = 1000
_STREAMS = ("stdout", "stderr")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(slots=True)
class _Entry:
    """A registered job that has not ended."""

    job: LocalJob
    state: JobState
    secrets: Mapping[str, str] = field(repr=False)
    task: Task | None = None


class LocalCluster(Cluster, NodeSource):
    """Runs jobs on slices of this machine. Thread-safe.

    Like Nomad, it receives only the text and the secrets of a job. Jobs do not outlive it: their
    processes die with the server, and the next one finds only their logs.
    """

    def __init__(
        self,
        boards: Sequence[Board],
        data_dir: Path,
        *,
        kept_jobs: int = KEPT_JOBS,
        sandbox: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Use ``sandbox`` as the mode of all runs; None: the mode of each board."""
        self._sandbox = sandbox
        self._folder = data_dir / "alloc"
        self._kept_jobs = kept_jobs
        self._now = now
        self._pool = BoardPool(boards)
        self._jobs: dict[str, _Entry] = {}
        # The state alone, which is small: a job has its text's conditions, files and environment.
        self._ended: dict[str, JobState] = {}
        self._threads: dict[threading.Thread, int] = {}  # with the seconds that a kill may take
        self._running: dict[str, str] = {}  # job by board
        self._listeners: list[queue.Queue[str]] = []
        self._closed = False
        self._change = threading.Condition(threading.RLock())
        self._downloader = Downloader()
        self._load = MachineLoad(now)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        self._timer = threading.Thread(target=self._start_due, name="local-timer")
        self._timer.start()

    def describe(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Add attributes to all boards that offer the engines which they are about."""
        boards = [
            replace(board, attributes={**of_engines(attributes, board), **board.attributes})
            for board in self._pool.boards
        ]
        self._pool = BoardPool(boards)

    def check(self, hcl: str) -> None:
        admit(parse_job(hcl))

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        job = self._admitted(job_id, hcl, secrets)
        with self._change:
            if self._closed:
                raise ClusterUnreachable("the embedded cluster is closed")
            if job_id in self._jobs or job_id in self._ended:
                raise JobExists(job_id)
            shutil.rmtree(self._folder / job_id, ignore_errors=True)  # of an earlier process
            self._jobs[job_id] = _Entry(
                job=job,
                state=JobState(job_id=job_id, run=JobRun.QUEUED),
                secrets={name: secrets[name] for file in job.secret_files for name in file.names},
            )
            self._place()
            self._change.notify_all()
        failpoint("local:registered")

    def stop(self, job_id: str) -> None:
        with self._change:
            entry = self._jobs.get(job_id)
            if entry is None:
                return
            if entry.task is not None:
                entry.task.stop()
            else:
                self._end(entry, TaskEnd(stopped=True))

    def recurring(self) -> Mapping[str, RecurringJob]:
        return {}  # it refuses jobs that recur

    def job_of_allocation(self, allocation_id: str) -> str | None:
        return None

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        with self._change:
            live = {job_id: self._jobs[job_id].state for job_id in job_ids if job_id in self._jobs}
            ended = {job_id: self._ended[job_id] for job_id in job_ids if job_id in self._ended}
        return live | ended

    def state_index(self) -> int | None:
        return None

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        with self._change:
            ended = job_id not in self._jobs
            registered = not ended or job_id in self._ended
        known = stream in _STREAMS and _FOLDER_NAME.fullmatch(job_id) is not None
        if not known or not (registered or (self._folder / job_id).is_dir()):
            raise NotFound("log", f"{job_id}/{stream}")
        begin = max(0, offset)
        try:
            with log_file(self._folder / job_id, stream).open("rb") as file:
                file.seek(begin)
                data = file.read(LOG_CHUNK_BYTES)
        except FileNotFoundError:  # it has not started, or never did
            data = b""
        # `ended` was read before the log, so the last lines of the task are not missed.
        return LogChunk(
            data=data,
            next_offset=begin + len(data),
            ended=ended and len(data) < LOG_CHUNK_BYTES,
        )

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        # A task's folder is removed when the task ends; its logs are stored elsewhere.
        raise NotFound("result file", f"{job_id}/{name}")

    def events(self, stop: threading.Event) -> Iterator[str]:
        """Yield "" first, and whenever a listener fell behind; see `Cluster.events`."""
        listener: queue.Queue[str] = queue.Queue(maxsize=_LISTENER_EVENTS)
        listener.put("")
        with self._change:
            self._listeners.append(listener)
        try:
            while not stop.is_set() and not self._closed:
                try:
                    yield listener.get(timeout=_STOP_POLL_INTERVAL_S)
                except queue.Empty:
                    continue
        finally:
            with self._change:
                self._listeners.remove(listener)

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        # Jobs end with this process, so it never meets jobs of another one.
        return {}

    def strays(self) -> Mapping[str, str | None]:
        return {}

    def page_of(self, job_id: str) -> str | None:
        return None

    def retire(self) -> None:
        with self._change:
            entries = list(self._jobs.values())
        for entry in entries:
            self.stop(entry.job.job_id)

    def close(self) -> None:
        with self._change:
            self._closed = True
            entries = list(self._jobs.values())
            threads = dict(self._threads)
            self._change.notify_all()
        for entry in entries:
            self.stop(entry.job.job_id)
        for thread, kill_timeout_s in threads.items():
            thread.join(kill_timeout_s + 10.0)
        self._timer.join()
        self._downloader.close()

    def hosts(self) -> tuple[Host, ...]:
        with self._change:
            pool, running = self._pool, dict(self._running)
        progress = {
            target_uid: read_progress(self._folder / job_id)
            for target_uid, job_id in running.items()
        }
        boards = pool.views(running, progress)
        full = self._is_full()
        return (
            Host(
                host_id=HOST_ID,
                name=HOST_ID,
                ready=not full,
                ready_reason="out of disk space" if full else "",
                boards=boards,
                attributes=pool.node_attributes,
            ),
        )

    def loads(self) -> Mapping[str, LoadReport]:
        report = self._load.look()
        return {} if report is None else {HOST_ID: report}

    def reload(self, boards: Sequence[Board]) -> None:
        """Replace the boards; a run on a board that is gone continues to its end."""
        pool = BoardPool(boards)
        with self._change:
            self._pool = pool
            self._place()
            self._publish("")

    def _admitted(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> LocalJob:
        job = admit(parse_job(hcl))
        if job.job_id != job_id:
            raise JobRefused(job_id, f"its text is that of job {job.job_id}")
        for name in (name for file in job.secret_files for name in file.names):
            if name not in secrets:
                raise JobRefused(job_id, f"the secret {name} was not handed over")
            if set("\0\r\n") & set(secrets[name]):
                raise JobRefused(job_id, f"the secret {name} is more than one line")
        late = None if job.starts_at is None else self._now() - job.starts_at
        if late is not None and late > timedelta(seconds=PAST_START_S):
            raise JobRefused(job_id, f"its start, {job.starts_at}, is in the past")
        return job

    def _place(self) -> None:
        """Start jobs that can start, by priority and arrival; the caller holds the lock."""
        waiting = [entry for entry in self._jobs.values() if self._waits(entry)]
        waiting.sort(key=lambda entry: -entry.job.priority)
        now = self._now()
        for entry in waiting:
            starts_at = entry.job.starts_at
            if starts_at is not None and starts_at > now:
                self._note(entry, replace(entry.state, reason=f"starts at {time_text(starts_at)}"))
                continue
            board, reason = self._pool.choose(entry.job, self._running)
            if board is None or self._closed:
                self._note(entry, replace(entry.state, reason=reason))
            else:
                self._start(entry, board)

    def _waits(self, entry: _Entry) -> bool:
        return entry.state.run is JobRun.QUEUED and entry.task is None

    def _start(self, entry: _Entry, board: Board) -> None:
        job_id = entry.job.job_id
        self._running[board.target_uid] = job_id
        entry.task = Task(
            entry.job,
            board,
            entry.secrets,
            self._folder / job_id,
            self._downloader,
            self._confinement(board),
        )
        entry.secrets = {}
        self._note(
            entry,
            replace(entry.state, target_uid=board.target_uid, reason="downloading its files"),
        )
        thread = threading.Thread(
            target=self._run, args=(entry, entry.task, board.target_uid), name=f"local-{job_id}"
        )
        self._threads[thread] = entry.job.kill_timeout_s
        thread.start()

    def _is_full(self) -> bool:
        """Return whether the disk has too little room for the files and logs of tasks."""
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES

    def _confinement(self, board: Board) -> Sandbox:
        sandbox = sandbox_of(board)
        return sandbox if self._sandbox is None else replace(sandbox, mode=self._sandbox)

    def _run(self, entry: _Entry, task: Task, target_uid: str) -> None:
        """Run one task, on its own thread."""

        def started() -> None:
            with self._change:
                running = JobRun.RUNNING
                self._note(
                    entry, replace(entry.state, run=running, started_at=self._now(), reason="")
                )

        try:
            ending = task.run(started)
        except Exception:
            logger.exception(
                "task failed in the cluster",
                extra={"event": "task.error", "job_id": entry.job.job_id},
            )
            sentence = "the embedded cluster failed; the server's log says how"
            ending = TaskEnd(Failure(category=FailureCategory.CLUSTER, sentence=sentence))
        if _may_lack_room(ending) and self._is_full():
            ending = TaskEnd(NO_ROOM, stopped=True)
        with self._change:
            del self._running[target_uid]
            entry.task = None
            task.close()
            self._end(entry, ending)
            self._place()
        logger.info(
            "task ended",
            extra={
                "event": "task.ended",
                "job_id": entry.job.job_id,
                "target_uid": target_uid,
                "stopped": ending.stopped,
                "category": ending.failure.category.value if ending.failure else None,
            },
        )
        with self._change:
            del self._threads[threading.current_thread()]

    def _end(self, entry: _Entry, ending: TaskEnd) -> None:
        entry.secrets = {}
        self._note(
            entry,
            replace(
                entry.state,
                run=JobRun.ENDED,
                ended_at=self._now(),
                reason="",
                failure=ending.failure,
                stopped=ending.stopped,
            ),
        )
        del self._jobs[entry.job.job_id]
        self._ended[entry.job.job_id] = entry.state
        self._remove_oldest()

    def _note(self, entry: _Entry, state: JobState) -> None:
        if state != entry.state:
            entry.state = state
            self._publish(state.job_id)

    def _publish(self, job_id: str) -> None:
        for listener in self._listeners:
            try:
                listener.put_nowait(job_id)
            except queue.Full:  # it has to refresh everything anyway
                with listener.mutex:
                    listener.queue.clear()
                    listener.queue.append("")

    def _remove_oldest(self) -> None:
        for job_id in list(self._ended)[: max(0, len(self._ended) - self._kept_jobs)]:
            del self._ended[job_id]
            shutil.rmtree(self._folder / job_id, ignore_errors=True)

    def _start_due(self) -> None:
        """Start jobs whose start time has come; runs on the timer's thread."""
        warm_up()  # here, so that the first dispatch finds the parser ready
        with self._change:
            while not self._closed:
                due = [
                    entry.job.starts_at
                    for entry in self._jobs.values()
                    if entry.job.starts_at is not None and self._waits(entry)
                ]
                if not due:
                    self._change.wait()
                    continue
                wait_s = (min(due) - self._now()).total_seconds()
                if wait_s > 0:
                    self._change.wait(min(wait_s, _TIMER_POLL_INTERVAL_S))
                else:
                    self._place()
                    self._change.wait(_TIMER_POLL_INTERVAL_S)

    def _sweep(self) -> None:
        """Clean up after an earlier process: end its tasks, and retain its newest logs."""
        folders = [path for path in self._folder.iterdir() if path.is_dir()]
        alive = [alloc_file(folder) for folder in folders]
        end_orphans(frozenset(path.read_text() for path in alive if path.exists()))
        for folder in folders:
            clean(folder)
        folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in folders[self._kept_jobs :]:
            shutil.rmtree(folder, ignore_errors=True)


def _may_lack_room(ending: TaskEnd) -> bool:
    """Return whether a full disk can be why a task ended so: not where its report says why."""
    failure = ending.failure
    return failure is not None and (
        failure.category in RETRYABLE or failure.category is FailureCategory.UNKNOWN
    )
