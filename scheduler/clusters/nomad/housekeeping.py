"""What is cleared up behind our jobs: secrets, parents of starts, second runs, old jobs."""

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

logger = logging.getLogger(__name__)

PREFIX = "benchmark-"
"""Our jobs' ids begin so; nobody else's are touched."""

TIDY_S = 60.0
"""Between two looks at all our jobs."""

YOUNG = timedelta(minutes=2)
"""A job or secret of that age may still be on its way: it is left alone."""

OLDEST_VERSION = (1, 11, 2)
"""Below, dispatch and device accounting have known bugs: a warning says so."""

LULL_S = 1.0
"""Secrets of ended jobs are removed when none has ended for so long: what is written in Nomad when
a board comes free would hold up the board's next job."""

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
        """Begin to look at all our jobs now and then."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="nomad-housekeeper")
                self._thread.start()

    def settle(self, job_id: str, still_live: Sequence[str]) -> None:
        """A job's run has ended: its secrets go, and nothing of it may run again. Any thread.

        Args:
            still_live: Jobs of Nomad's that would: itself, or the parent or child of a start.
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
        """End the thread; what is left is found by the next look."""
        self._stop.set()
        self._work.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def find_strays(self) -> None:
        """Look for live jobs under our names that the database does not know."""
        if self._known is None:
            return
        self._note_strays(str(job["ID"]) for job in self._client.jobs(PREFIX) if is_live(job))

    def _note_strays(self, live: Iterable[str]) -> None:
        roots = {job_id.partition("/")[0] for job_id in live}
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

    def tidy(self) -> None:
        """Look at all our jobs once.

        Jobs that Edgeyard knows to have ended are stopped where they are live (a registration
        whose answer was lost can take effect late) and purged when they are old. Jobs that it
        does not know are left alone: they may be another Edgeyard's, or ours from before its
        database was lost.
        """
        now = self._now()
        jobs = {str(job["ID"]): job for job in self._client.jobs(PREFIX)}
        live = [job_id for job_id, job in jobs.items() if is_live(job) and _age(job, now) > YOUNG]
        old = [
            job_id
            for job_id, job in jobs.items()
            if not is_live(job) and _age(job, now) > self._purge_age
        ]
        young = self.strays & set(jobs)  # of any age once they are known as such
        self._note_strays({*live, *(each for each in young if is_live(jobs[each]))})
        ended = set(self._ended({job_id.partition("/")[0] for job_id in (*live, *old)}))
        purged = stopped = 0
        for job_id in (*live, *old):
            if job_id.partition("/")[0] in ended:
                purge = not is_live(jobs[job_id])
                # One job that Nomad does not let go must not keep the others.
                if self._guarded(partial(self._client.deregister, job_id, purge=purge)):
                    purged, stopped = purged + purge, stopped + (not purge)
        secrets = [each for each in self._client.jobs_with_secrets() if each.startswith(PREFIX)]
        for job_id in self._ended(secrets):
            self._guarded(partial(self._client.remove_secrets, job_id))
        if purged or stopped:
            logger.info(
                "old jobs cleared up",
                extra={"event": "nomad.tidied", "purged": purged, "stopped": stopped},
            )

    def _run(self) -> None:
        due_s = time.monotonic()
        self._guarded(self._check_version)
        while not self._stop.is_set():
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + TIDY_S
                self._guarded(self.tidy)
            wait_s = max(0.0, due_s - time.monotonic())
            try:
                work = self._work.get(timeout=min(wait_s, LULL_S) if self._spent else wait_s)
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
        if match is not None and tuple(map(int, match.groups())) < OLDEST_VERSION:
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
                "clearing up in Nomad failed",
                extra={"event": "nomad.untidy", "reason": str(error)},
            )
        except Exception:
            logger.exception("clearing up in Nomad broke", extra={"event": "nomad.untidy"})
        return False


def is_live(job: Json) -> bool:
    """Whether Nomad may still run it."""
    return job.get("Status") != "dead" and not job.get("Stop")


def _age(job: Json, now: datetime) -> timedelta:
    submitted = job.get("SubmitTime")
    if not isinstance(submitted, int):
        return timedelta(0)
    return now - (_EPOCH + timedelta(microseconds=submitted // 1000))
