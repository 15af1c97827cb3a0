"""A Nomad as a watcher sees it: hosts, boards and the jobs of Edgeyard; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.allocations import (
    by_our_clock,
    first_of,
    of_no_run,
    of_run,
    placed_at_of,
)
from edgeyard.scheduler.clusters.nomad.client import Json, NomadClient
from edgeyard.scheduler.clusters.nomad.cluster import NomadCluster, filter_of_jobs
from edgeyard.scheduler.clusters.nomad.garbage_collection import PREFIX
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.recurring import is_parent, job_of_attempt
from edgeyard.scheduler.ports import JobRun, JobState, LoadReport
from edgeyard.training.lab_view import ClusterView, ObservedJob

MAX_ENDED = 200
"""Jobs that have ended and are read, newest first."""

_MAX_NAME = 256
_Key = tuple[str, int]
"""Id of a job and the index of its creation: after a purge another job may have the id."""


class NomadView(ClusterView):
    """One Nomad, read only. For one thread."""

    def __init__(
        self,
        access: NomadAccess,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Begin without a request; the first call sends one."""
        self._access, self._now = access, now
        self._nodes = NomadCluster(access, now=now)
        self._client = NomadClient(access, now=now)
        self._stated: dict[_Key, Json] = {}
        self._ended: dict[_Key, ObservedJob] = {}

    def hosts(self) -> tuple[Host, ...]:
        return self._nodes.hosts()

    def loads(self) -> Mapping[str, LoadReport]:
        return self._nodes.loads()

    def jobs(self) -> Sequence[ObservedJob]:
        # Jobs before allocations: a job that is seen dead has its last word in the second answer.
        listed = [
            job
            for job in self._client.jobs(PREFIX)
            # The only run of a job with one start is shown as that job, and a parent not at all.
            if job_of_attempt(str(job["ID"])) == job["ID"] and not is_parent(str(job["ID"]))
        ]
        listed.sort(key=lambda job: _number(job.get("SubmitTime")))
        dead = [_key(job) for job in listed if job.get("Status") == "dead"]
        left_out = set(dead[:-MAX_ENDED])
        jobs = {key: job for job in listed if (key := _key(job)) not in left_out}
        self._ended = {key: each for key, each in self._ended.items() if key in jobs}
        self._stated = {key: each for key, each in self._stated.items() if key in jobs}
        unknown = {key: job for key, job in jobs.items() if key not in self._ended}
        runs: dict[str, list[Json]] = {}
        if unknown:
            names = [job_id for job_id, _ in unknown]
            for allocation in self._client.allocations(filter_of_jobs(names, PREFIX)):
                root = job_of_attempt(str(allocation.get("JobID")))
                runs.setdefault(root, []).append(allocation)
        found = []
        for key, job in jobs.items():
            observed = self._ended.get(key) or self._observed(key, job, runs.get(key[0], ()))
            if observed is None:
                continue
            found.append(observed)
            if observed.state.run is JobRun.ENDED:
                self._ended[key] = observed
        return found

    def close(self) -> None:
        self._nodes.close()
        self._client.close()

    def _observed(self, key: _Key, job: Json, runs: Sequence[Json]) -> ObservedJob | None:
        """Return what is known of a job; None: it was purged meanwhile."""
        job_id, created = key
        stated = self._stated.get(key)
        if stated is None:
            stated = self._client.job(job_id)
            if stated is None:
                return None
            self._stated[key] = stated = {
                "Meta": stated.get("Meta"),
                "Priority": stated.get("Priority"),
                "Env": _env(stated),
            }
        # What is older than the job was of another one of that name, purged since.
        first = first_of([each for each in runs if _number(each.get("CreateIndex")) > created])
        state = of_no_run(job_id, job) if first is None else self._of_run(job_id, first)
        meta, env = _texts(stated.get("Meta")), _texts(stated.get("Env"))
        inferences = env.get("NB_INFERENCE", "")
        try:
            kind = BenchmarkType(env.get("BENCHMARK_TYPE", ""))
        except ValueError:
            kind = BenchmarkType.TYPE1
        return ObservedJob(
            state=state,
            benchmark_id=meta.get("benchmark_id") or job_id[:_MAX_NAME],
            user_id=meta.get("user", ""),
            family=env.get("TARGET", ""),
            engine=env.get("RUNTIME", ""),
            benchmark_type=kind,
            nb_inference=int(inferences) if inferences.isdecimal() and int(inferences) else 20,
            priority=min(max(_number(stated.get("Priority")), 1), 100),
            submitted_at=datetime.fromtimestamp(_number(job.get("SubmitTime")) / 1e9, UTC),
        )

    def _of_run(self, job_id: str, allocation: Json) -> JobState:
        """Return the state of a job that was placed, with times by our clock."""
        state = of_run(job_id, allocation, self._access.device)
        report = self._nodes.loads().get(str(allocation.get("NodeName")))
        offset_s = None if report is None else report.clock_offset_s
        return by_our_clock(state, offset_s, placed_at_of(allocation), self._now())


def _key(job: Json) -> _Key:
    return str(job["ID"]), _number(job.get("CreateIndex"))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _texts(value: object) -> dict[str, str]:
    """Return the entries of an object as texts of bounded length."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): str(text)[:_MAX_NAME] for name, text in value.items()}


def _env(job: Json) -> object:
    """Return the environment of the first task of a whole job."""
    found: object = job
    for name in ("TaskGroups", "Tasks"):
        items = found.get(name) if isinstance(found, Mapping) else None
        found = items[0] if isinstance(items, list) and items else None
    return found.get("Env") if isinstance(found, Mapping) else None
