"""Removes what Edgeyard's jobs leave in Nomad: secrets, periodic parents, second runs, old jobs."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.clusters.nomad.client import Json, NomadClient
from edgeyard.scheduler.model.recurring import job_of_attempt

logger = logging.getLogger(__name__)

PREFIX = "benchmark-"
"""Prefix of the ids of Edgeyard's jobs; other jobs are never touched."""

INTERVAL_S = 60.0
"""Time between two checks of all jobs of Edgeyard."""

MIN_AGE = timedelta(minutes=2)
"""Younger jobs and secrets may belong to a dispatch in progress and are left alone."""

MIN_VERSION = (1, 11, 2)
"""Earlier versions have known bugs in dispatch and device accounting, of which a warning warns."""

QUIET_S = 1.0
"""Secrets of ended jobs are removed when no job has ended for this time, because writes to Nomad
right after a board became free would delay the next job of that board."""

_MAX_SPENT = 64  # jobs whose secrets wait to be removed
_SETTLED_JOBS = 4096  # remembered, so that each is settled once
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class GarbageCollector:
    """One thread, started by the first job that ends or the first `start`; `close` joins it."""

    def __init__(
        self,
        client: NomadClient,
        *,
        purge_age_s: float,
        ended: Callable[[Collection[str]], Collection[str]],
        known: Callable[[Collection[str]], Collection[str]] | None = None,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._purge_age = timedelta(seconds=purge_age_s)
        self._ended = ended
        self._known = known
        self.strays: frozenset[str] = frozenset()
        self._now = now
        self._lock = threading.Lock()
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._spent: list[str] = []
        self._work: queue.Queue[tuple[str, Sequence[str]] | None] = queue.Queue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Check all jobs of Edgeyard regularly from now on."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="nomad-garbage")
                self._thread.start()

    def settle(self, job_id: str, still_live: Sequence[str]) -> None:
        """Remove the secrets of a job that has ended, and stop what would run it again. Any thread.

        Args:
            still_live: Jobs in Nomad that would: itself, or the parent or child of a periodic
                start.
        """
        with self._lock:
            if job_id in self._settled and not still_live:
                return
            self._settled[job_id] = None
            while len(self._settled) > _SETTLED_JOBS:
                self._settled.popitem(last=False)
        self._work.put((job_id, still_live))
        self.start()

    def close(self) -> None:
        """End the thread; the next process finds what is left."""
        self._stop.set()
        self._work.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def find_strays(self) -> None:
        """Find live jobs of Edgeyard that the database does not know."""
        if self._known is None:
            return
        self._note_strays(str(job["ID"]) for job in self._client.jobs(PREFIX) if is_live(job))

    def _note_strays(self, live: Iterable[str]) -> None:
        roots = {job_of_attempt(job_id) for job_id in live}
        if self._known is None:
            return
        strays = frozenset(roots - set(self._known(roots))) if roots else frozenset()
        if strays - self.strays:
            logger.warning(
                "jobs that the database does not know are live: it is an older backup, or another "
                "Edgeyard uses this namespace",
                extra={"event": "nomad.strays", "count": len(strays), "first": min(strays)},
            )
        self.strays = strays

    def collect(self) -> None:
        """Check all jobs of Edgeyard once.

        Jobs that have ended for Edgeyard are stopped if they are live (a registration whose
        answer was lost can take effect late) and purged when they are old. Unknown jobs are left
        alone: they may belong to another Edgeyard, or to a database that was lost.
        """
        now = self._now()
        jobs = {str(job["ID"]): job for job in self._client.jobs(PREFIX)}
        live = [job_id for job_id, job in jobs.items() if is_live(job) and _age(job, now) > MIN_AGE]
        old = [
            job_id
            for job_id, job in jobs.items()
            if not is_live(job) and _age(job, now) > self._purge_age
        ]
        young = self.strays & set(jobs)  # of any age once they are known as such
        self._note_strays({*live, *(each for each in young if is_live(jobs[each]))})
        ended = set(self._ended({job_of_attempt(job_id) for job_id in (*live, *old)}))
        purged = stopped = 0
        for job_id in (*live, *old):
            if job_of_attempt(job_id) in ended:
                purge = not is_live(jobs[job_id])
                # A job that Nomad refuses to remove must not prevent the others.
                if self._guarded(partial(self._client.deregister, job_id, purge=purge)):
                    purged, stopped = purged + purge, stopped + (not purge)
        secrets = [each for each in self._client.jobs_with_secrets() if each.startswith(PREFIX)]
        for job_id in self._ended(secrets):
            self._guarded(partial(self._client.remove_secrets, job_id))
        if purged or stopped:
            logger.info(
                "old jobs removed from Nomad",
                extra={"event": "nomad.tidied", "purged": purged, "stopped": stopped},
            )

    def _run(self) -> None:
        due_s = time.monotonic()
        self._guarded(self._check_version)
        while not self._stop.is_set():
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + INTERVAL_S
                self._guarded(self.collect)
            wait_s = max(0.0, due_s - time.monotonic())
            try:
                work = self._work.get(timeout=min(wait_s, QUIET_S) if self._spent else wait_s)
            except queue.Empty:
                self._guarded(self._remove_spent)
                continue
            if work is not None and not self._stop.is_set():
                self._guarded(partial(self._settle, *work))

    def _settle(self, job_id: str, still_live: Sequence[str]) -> None:
        self._spent.append(job_id)
        for live in still_live:
            self._client.deregister(live)
        if len(self._spent) >= _MAX_SPENT:
            self._remove_spent()

    def _remove_spent(self) -> None:
        while self._spent:
            self._client.remove_secrets(self._spent.pop())

    def _check_version(self) -> None:
        config = self._client.agent().get("config")
        section = config.get("Version") if isinstance(config, dict) else None
        version = section.get("Version") if isinstance(section, dict) else None
        match = _VERSION.match(str(version))
        if match is not None and tuple(map(int, match.groups())) < MIN_VERSION:
            logger.warning(
                "this Nomad is older than what is tested",
                extra={"event": "nomad.old", "version": version, "oldest": "1.11.2"},
            )

    def _guarded(self, step: Callable[[], object]) -> bool:
        """Take a step; whether it succeeded."""
        try:
            step()
            return True
        except EdgeyardError as error:
            logger.warning(
                "garbage collection in Nomad failed",
                extra={"event": "nomad.untidy", "reason": str(error)},
            )
        except Exception:
            logger.exception(
                "garbage collection in Nomad broke off", extra={"event": "nomad.untidy"}
            )
        return False


def is_live(job: Json) -> bool:
    """Return whether Nomad may still run it."""
    return job.get("Status") != "dead" and not job.get("Stop")


def _age(job: Json, now: datetime) -> timedelta:
    submitted = job.get("SubmitTime")
    if not isinstance(submitted, int):
        return timedelta(0)
    return now - (_EPOCH + timedelta(microseconds=submitted // 1000))
