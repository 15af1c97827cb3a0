"""The Cluster port over a real Nomad."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from edgeyard.devices.model import USED_OUTSIDE, Host
from edgeyard.errors import (
    ClusterUnreachable,
    HclError,
    HclMismatch,
    JobExists,
    JobRefused,
    NotFound,
)
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.clusters.fitting import Condition
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.allocations import (
    by_our_clock,
    created_index,
    first_of,
    of_no_run,
    of_run,
    of_start_to_come,
    placed_at_of,
    placement_problem,
)
from edgeyard.scheduler.clusters.nomad.blocked import BoardMatcher, conditions_of
from edgeyard.scheduler.clusters.nomad.client import Json, NomadClient
from edgeyard.scheduler.clusters.nomad.events import follow
from edgeyard.scheduler.clusters.nomad.expected import mismatches
from edgeyard.scheduler.clusters.nomad.garbage_collection import PREFIX, GarbageCollector, is_live
from edgeyard.scheduler.clusters.nomad.loads import LoadWatch
from edgeyard.scheduler.clusters.nomad.node_attributes import NodeAttributes
from edgeyard.scheduler.clusters.nomad.nodes import NodeReader, devices_of, with_holders
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.scheduler.hcl.cron import cron_of, moment_of
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.model.recurring import (
    PARENT_PREFIX,
    is_parent,
    job_of_attempt,
    launched_at,
    parent_of,
)
from edgeyard.scheduler.ports import (
    Cluster,
    JobRun,
    JobState,
    LoadReport,
    LogChunk,
    NodeSource,
    RecurringJob,
    StartedRun,
)

logger = logging.getLogger(__name__)

LOG_CHUNK_BYTES = 256 * 1024

NODES_REREAD_S = 10.0
"""Maximum time between two readings of all nodes, even if their index has not changed."""

MIN_CLOCK_OFFSET_S = 2.0
"""Smaller offsets of Nomad's clock are ignored, because it is measured in whole seconds."""

EXPLAINED_JOBS = 20
"""Maximum number of waiting jobs whose conditions are compared with every board at a time; others
get Nomad's own reasons, which name no board."""

_NAMED_IN_FILTER = 50  # ids; beyond, all of their prefix are asked for
_READ_JOBS = 256  # parsed and verified jobs between `verify` and `dispatch`
_KNOWN_CONDITIONS = 1024
_HOSTS_FRESH_S = 2.0
_STREAMS = ("stdout", "stderr")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/periodic-[0-9]{1,11})?", re.ASCII)
_ALLOCATION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class NomadCluster(Cluster, NodeSource):
    """The jobs and boards of one Nomad. Thread-safe.

    A job of Edgeyard runs once: a job that Nomad would place again by itself (preempted, lost,
    drained) is stopped when its first allocation has ended. Each dispatch is create-only by id.
    """

    def __init__(
        self,
        access: NomadAccess,
        *,
        retry: RetryPolicy | None = None,
        purge_age_s: float = 7 * 86400.0,
        ended: Callable[[Collection[str]], Collection[str]] = lambda job_ids: (),
        known: Callable[[Collection[str]], Collection[str]] | None = None,
        database_empty: Callable[[], bool] = lambda: False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Begin without a request; the first call sends one.

        Args:
            purge_age_s: Age at which ended jobs are removed from Nomad.
            ended: Returns which of these jobs have ended for Edgeyard; only those are stopped or
                purged automatically.
            known: Returns which of these jobs are in Edgeyard's database; other live jobs under
                our names are strays. None: strays are not looked for.
            database_empty: Returns whether the database holds no job at all. If Nomad runs jobs
                of Edgeyard nevertheless, no board is reported, so that nothing is placed next to
                them.
        """
        self._access = access
        self._now = now
        self._client = NomadClient(access, policy=retry, now=now)
        self._lock = threading.Lock()
        self._read: OrderedDict[str, Json] = OrderedDict()  # by SHA-256 of the text
        self._conditions: OrderedDict[str, tuple[Condition, ...]] = OrderedDict()
        self._reader = NodeReader(access.device, access.why_unserved)
        self._node_attributes = NodeAttributes(self._client.node)
        self._nodes: tuple[Host, ...] = ()
        self._nodes_index = 0
        self._nodes_read_s = -NODES_REREAD_S
        self._hosts: tuple[Host, ...] = ()
        self._hosts_read_s = -_HOSTS_FRESH_S
        self._matcher = BoardMatcher(())
        self._database_empty = database_empty
        self._ownership_checked = False
        self._stray_holds: dict[str, str] = {}
        self._state_index: int | None = 0
        self._node_reads = ThreadPoolExecutor(1, "edgeyard-nodes")
        self._load_watch = LoadWatch(self._client, self._known_hosts, now=now)
        self._garbage_collector = GarbageCollector(
            self._client, purge_age_s=purge_age_s, ended=ended, known=known, now=now
        )

    def use_access(self, access: NomadAccess) -> None:
        """Speak to the same cluster in another way from the next call on. Any thread.

        Args:
            access: The new access, with the same namespace, region and device.

        Raises:
            ConfigError: A file of certificates can't be used; nothing has changed.
        """
        self._client.use_access(access)
        self._access = access

    def check(self, hcl: str) -> None:
        self._understood(hcl)

    def verify(self, meant: NomadJob, hcl: str) -> None:
        """Compare Nomad's reading of a job's text, value by value, with what was decided.

        Raises:
            HclMismatch: They differ; it must not be dispatched.
            HclError: Nomad can't read it at all.
            ClusterUnreachable: Nomad did not answer.
        """
        read = self._client.parse(hcl)
        differing = mismatches(meant, read)
        if differing:
            raise HclMismatch(differing)
        with self._lock:
            self._read[_key(hcl)] = read
            while len(self._read) > _READ_JOBS:
                self._read.popitem(last=False)

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> str | None:
        """Register the job that `verify` has read; see `Cluster.dispatch`.

        Before the job exists, its secrets are stored in a Nomad variable that only its task can
        read. They are never overwritten while it exists.
        """
        with self._lock:
            read = self._read.pop(_key(hcl), None)
        if read is None:
            read = self._understood(hcl)
        if read.get("ID") != job_id:
            raise JobRefused(job_id, f"its text is that of job {read.get('ID')}")
        if _JOB_ID.fullmatch(job_id) is None:
            raise JobRefused(job_id, "its id may hold letters, digits, '.', '_' and '-' only")
        failpoint("nomad:before")
        if secrets and not self._client.create_secrets(job_id, secrets):
            if self._client.job(job_id) is not None:
                raise JobExists(job_id)
            # Left by a process that died before it registered the job.
            self._client.replace_secrets(job_id, secrets)
        evaluation_id = self._client.register(job_id, self._by_nomads_clock(read))
        failpoint("nomad:after")
        return evaluation_id

    def stop(self, job_id: str) -> None:
        """Stop the job and the run that its periodic start made; see `Cluster.stop`."""
        if _JOB_ID.fullmatch(job_id) is None:
            return
        if is_parent(job_id):  # its secrets go when its runs have ended
            self._client.deregister(job_id)
            return
        live = [
            str(job["ID"])
            for job in self._client.jobs(job_id)
            if _belongs(job, job_id) and is_live(job)
        ]
        for each in live:
            self._client.deregister(each)
        if not live:  # no end of it will be seen, after which its secrets would go
            self._garbage_collector.settle(job_id, ())

    def recurring(self) -> Mapping[str, RecurringJob]:
        parents: dict[str, bool] = {}
        runs: dict[str, list[StartedRun]] = {}
        for job in self._client.jobs(PARENT_PREFIX):
            job_id = str(job["ID"])
            parent = parent_of(job_id)
            if parent is None:
                continue
            parents.setdefault(parent, False)
            if is_parent(job_id):
                parents[parent] = is_live(job)
            elif job.get("ParentID") == parent:  # not only named like a run of it
                runs.setdefault(parent, []).append(StartedRun(job_id=job_id, live=is_live(job)))
        return {
            parent: RecurringJob(
                live=live,
                runs=tuple(sorted(runs.get(parent, ()), key=_launched_at)),
            )
            for parent, live in parents.items()
        }

    def job_of_allocation(self, allocation_id: str) -> str | None:
        if _ALLOCATION_ID.fullmatch(allocation_id) is None:
            return None
        for each in self._client.allocations(f'ID == "{allocation_id}"'):
            live = each.get("ClientStatus") in ("pending", "running")
            if live and each.get("DesiredStatus") == "run":
                return str(each.get("JobID"))
        return None

    def states(self, job_ids: Sequence[str]) -> Mapping[str, JobState]:
        wanted = [job_id for job_id in job_ids if _JOB_ID.fullmatch(job_id)]
        if not wanted:
            return {}
        prefix = _common_prefix(wanted)
        # Jobs before allocations: a job that is seen dead has its last word in the second answer.
        listed, self._state_index = self._client.jobs_at(prefix)
        jobs = {str(job["ID"]): job for job in listed}
        found = [job_id for job_id in wanted if job_id in jobs]
        if not found:
            return {}
        runs: dict[str, list[Json]] = {}
        for allocation in self._client.allocations(filter_of_jobs(found, prefix)):
            job_id = _root(allocation)
            job = jobs.get(job_id, {})
            # What is older than the job was of another one of that name, purged since.
            if created_index(allocation) > created_index(job):
                runs.setdefault(job_id, []).append(allocation)
        states: dict[str, JobState] = {}
        for job_id in found:
            first = first_of(runs.get(job_id, ()))
            if first is not None:
                states[job_id] = self._of_run(job_id, first)
            elif jobs[job_id].get("Periodic"):
                states[job_id] = self._start_to_come(job_id, jobs)
            else:
                states[job_id] = of_no_run(job_id, jobs[job_id])
            if states[job_id].run is JobRun.ENDED:
                self._garbage_collector.settle(
                    job_id,
                    [
                        str(job["ID"])
                        for job in jobs.values()
                        if _belongs(job, job_id) and is_live(job)
                    ],
                )
        runs_last = sorted(jobs.values(), key=lambda job: bool(job.get("ParentID")))
        self._explain(states, {_root_of(job): str(job["ID"]) for job in runs_last})
        return states

    def state_index(self) -> int | None:
        return self._state_index

    def logs(self, job_id: str, stream: str, offset: int) -> LogChunk:
        if stream not in _STREAMS or _JOB_ID.fullmatch(job_id) is None:
            raise NotFound("log", f"{job_id}/{stream}")
        state = self.states([job_id]).get(job_id)
        if state is None:
            raise NotFound("log", f"{job_id}/{stream}")
        ended, begin = state.run is JobRun.ENDED, max(0, offset)
        first = first_of(self._client.allocations(filter_of_jobs([job_id], job_id)))
        task = next(iter(_tasks(first)), "") if first is not None else ""
        data = b""
        if first is not None and task:  # its host has begun with it
            data = self._client.log(str(first["ID"]), task, stream, begin, LOG_CHUNK_BYTES)
        # `ended` was read before the log, so the last lines of the task are not missed.
        return LogChunk(
            data=data, next_offset=begin + len(data), ended=ended and len(data) < LOG_CHUNK_BYTES
        )

    def retained_file(self, job_id: str, name: str) -> Generator[bytes, None, None]:
        if _JOB_ID.fullmatch(job_id) is None:
            raise NotFound("job", job_id)
        first = first_of(self._client.allocations(filter_of_jobs([job_id], job_id)))
        task = next(iter(_tasks(first)), "") if first is not None else ""
        if first is None or not task:
            raise NotFound("result file", f"{job_id}/{name}")
        return self._client.file(str(first["ID"]), f"{task}/local/results/{name}")

    def events(self, stop: threading.Event) -> Iterator[str]:
        self._garbage_collector.start()
        return follow(self._client, stop)

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        return self._client.secrets(job_id) if _JOB_ID.fullmatch(job_id) else {}

    def strays(self) -> Mapping[str, str | None]:
        holds = self._stray_holds
        return {job_id: holds.get(job_id) for job_id in sorted(self._garbage_collector.strays)}

    def retire(self) -> None:
        pass  # the next leader finds all jobs in Nomad

    def close(self) -> None:
        self._client.end_retries()
        self._garbage_collector.close()
        self._load_watch.close()
        self._node_reads.shutdown()  # `hosts` leaves a reading behind if another answer fails first
        self._client.close()

    def page_of(self, job_id: str) -> str | None:
        return self._access.page_of(job_id)

    def hosts(self) -> tuple[Host, ...]:
        """Return all nodes as hosts; a board is busy while an allocation holds it.

        Raises:
            ClusterUnreachable: Nomad does not answer, or it runs our jobs although the database is
                empty.
        """
        self._check_database_ownership()
        nodes = self._node_reads.submit(self._all_nodes)
        holders = self._client.holders()
        hosts = with_holders(nodes.result(), holders, self._access.device, self._busy_reason)
        vendor, _, kind = self._access.device.partition("/")
        self._stray_holds = {
            root: uid
            for allocation in (holders if self._garbage_collector.strays else ())
            if (root := _root(allocation)) in self._garbage_collector.strays
            for uid in devices_of(allocation, vendor, kind)
        }
        with self._lock:
            self._hosts, self._hosts_read_s = hosts, time.monotonic()
        return hosts

    def loads(self) -> Mapping[str, LoadReport]:
        """Return the last known loads; nodes are asked in the background."""
        return self._load_watch.latest()

    def _known_hosts(self) -> tuple[Host, ...]:
        with self._lock:
            return self._hosts

    def _all_nodes(self) -> tuple[Host, ...]:
        """Return the current hosts; nodes are read only when Nomad reports that one has changed.

        The index is asked for, not waited for: the event stream wakes the cycle when a node
        changes, and a decision needs what holds now. A blocking query would report the same news
        once more, on a connection of its own, and spare each cycle one small answer.
        """
        with self._lock:
            known, index, read_s = self._nodes, self._nodes_index, self._nodes_read_s
        began_s = time.monotonic()
        fresh = began_s - read_s < NODES_REREAD_S and not self._node_attributes.incomplete
        if fresh and index and self._client.nodes_index() == index:
            return known
        listed, index = self._client.nodes(self._reader.hosts)
        hosts = self._node_attributes.added(listed)
        with self._lock:
            self._nodes, self._nodes_index, self._nodes_read_s = hosts, index, began_s
        return hosts

    def _busy_reason(self, allocation: Json) -> str:
        """Return why a board is busy that this allocation holds."""
        namespace = allocation.get("Namespace") or self._access.namespace
        ours = namespace == self._access.namespace
        if ours and _root(allocation) in self._garbage_collector.strays:
            return "held by a job that Edgeyard's database does not know: edgeyard strays list"
        if ours and str(allocation.get("JobID")).startswith(PREFIX):
            return "runs a job"
        return USED_OUTSIDE

    def _check_database_ownership(self) -> None:
        """Refuse to start with an empty database while jobs of an earlier one still run.

        The likely cause is a lost database, or another Edgeyard in the same namespace. An
        operator has to decide what happens to those jobs.
        """
        if self._ownership_checked:
            return
        if self._database_empty():
            live = sorted(str(job["ID"]) for job in self._client.jobs(PREFIX) if is_live(job))
            if live:
                raise ClusterUnreachable(
                    f"the database knows no job, but {len(live)} of Edgeyard's are live in Nomad's "
                    f"namespace {self._access.namespace} ({live[0]}, ...): restore the database, "
                    f"or set {self._access.setting('namespace')} to one of its own, or end them "
                    "(nomad job stop -purge <id>); until then nothing is dispatched"
                )
        self._garbage_collector.find_strays()
        self._ownership_checked = True

    def _understood(self, hcl: str) -> Json:
        """Return Nomad's reading of a text that was not verified; it must equal our own."""
        meant = parse_job(hcl)
        read = self._client.parse(hcl)
        differing = mismatches(meant, read)
        if differing:
            raise HclMismatch(differing)
        return read

    def _of_run(self, job_id: str, allocation: Json) -> JobState:
        """Return the state of a job that was placed, with times by our clock."""
        state = of_run(job_id, allocation, self._access.device)
        report = self._load_watch.latest().get(str(allocation.get("NodeName")))
        offset_s = None if report is None else report.clock_offset_s
        return by_our_clock(state, offset_s, placed_at_of(allocation), self._now())

    def _start_to_come(self, job_id: str, jobs: Mapping[str, Json]) -> JobState:
        """Return the state of a periodic job without a run: its time, or a board, is to come."""
        if jobs[job_id].get("Stop"):
            return of_no_run(job_id, jobs[job_id])
        children = [job for job in jobs.values() if job.get("ParentID") == job_id]
        if children:
            return of_no_run(job_id, children[0])
        job = self._client.job(job_id)
        periodic = job.get("Periodic") if job else None
        specs = periodic.get("Specs") if isinstance(periodic, Mapping) else None
        try:
            starts_at = moment_of(str(specs[0])) if isinstance(specs, list) and specs else None
        except HclError:
            starts_at = None
        if starts_at is None:  # not a job of Edgeyard
            return JobState(job_id=job_id, run=JobRun.QUEUED, reason="it starts by a cron")
        return of_start_to_come(job_id, starts_at - self._nomads_lead(), self._now())

    def _nomads_lead(self) -> timedelta:
        """Return how far Nomad's clock is ahead of the server's; 0 where that may be an error."""
        offset_s = self._client.clock_offset_s
        return timedelta(seconds=round(offset_s) if abs(offset_s) > MIN_CLOCK_OFFSET_S else 0)

    def _by_nomads_clock(self, job: Json) -> Json:
        """Return the job with its start at the same moment by Nomad's clock, which makes it."""
        periodic, lead = job.get("Periodic"), self._nomads_lead()
        specs = periodic.get("Specs") if isinstance(periodic, Mapping) else None
        if not lead or not isinstance(periodic, Mapping) or not isinstance(specs, list):
            return job
        if is_parent(str(job.get("ID"))):
            return job  # a crontab is Nomad's own matter, its clock included
        moved = [cron_of(moment_of(str(each)) + lead) for each in specs]
        return {**job, "Periodic": {**periodic, "Specs": moved}}

    def _explain(self, states: dict[str, JobState], names: Mapping[str, str]) -> None:
        """Say of jobs that wait for a board what they wait for.

        Args:
            states: By the ids under which attempts know the jobs; gets the reasons.
            names: Nomad's own name of each, which evaluations have: of a start, that of its run.
        """
        waiting = [
            job_id
            for job_id, state in states.items()
            if state.run is JobRun.QUEUED and state.target_uid is None and not state.reason
        ]
        if not waiting:
            return
        evaluations = self._client.blocked(names[waiting[0]] if len(waiting) == 1 else None)
        reasons = {
            job_of_attempt(str(each.get("JobID"))): placement_problem(each) for each in evaluations
        }
        explained = [job_id for job_id in waiting if job_id in reasons][:EXPLAINED_JOBS]
        matcher = self._fresh_matcher() if explained else None
        for job_id in waiting:
            reason = reasons.get(job_id, "Nomad has not evaluated it yet")
            if matcher is not None and job_id in explained:
                reason = matcher.why_not(self._conditions_of(job_id)) or reason
            states[job_id] = replace(states[job_id], reason=reason)

    def _fresh_matcher(self) -> BoardMatcher:
        with self._lock:
            hosts, age_s = self._hosts, time.monotonic() - self._hosts_read_s
        if age_s > _HOSTS_FRESH_S:
            hosts = self.hosts()
        with self._lock:
            if self._matcher.hosts is not hosts:
                self._matcher = BoardMatcher(hosts)
            return self._matcher

    def _conditions_of(self, job_id: str) -> tuple[Condition, ...]:
        with self._lock:
            known = self._conditions.get(job_id)
        if known is not None:
            return known
        conditions = conditions_of(self._client.job(job_id) or {})
        with self._lock:
            self._conditions[job_id] = conditions
            while len(self._conditions) > _KNOWN_CONDITIONS:
                self._conditions.popitem(last=False)
        return conditions


def _root_of(job: Json) -> str:
    """Return the id under which an attempt knows a job."""
    return job_of_attempt(str(job["ID"]))


def _root(allocation: Json) -> str:
    """Return the id under which an attempt knows the job of an allocation."""
    return job_of_attempt(str(allocation.get("JobID")))


def _launched_at(run: StartedRun) -> datetime:
    return launched_at(run.job_id) or datetime.min.replace(tzinfo=UTC)


def _key(hcl: str) -> str:
    return hashlib.sha256(hcl.encode()).hexdigest()


def _belongs(job: Json, job_id: str) -> bool:
    """Return whether a job of Nomad's is this one, or a run that its periodic start made."""
    return job_id in (job.get("ID"), job.get("ParentID"))


def _common_prefix(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    same = (one == other for one, other in zip(first, last, strict=False))
    return first[: next((at for at, equal in enumerate(same) if not equal), len(first))]


def filter_of_jobs(job_ids: Sequence[str], prefix: str) -> str:
    """Return all allocations of these jobs, and few others."""
    names = job_ids if len(job_ids) <= _NAMED_IN_FILTER else ()
    which = f"({'|'.join(map(re.escape, names))})(/|$)" if names else re.escape(prefix)
    # The filter's strings take no escapes between backquotes, and ids hold none of these.
    return f"JobID matches `^{which}`"


def _tasks(allocation: Json) -> Sequence[str]:
    states = allocation.get("TaskStates")
    return [str(name) for name in states] if isinstance(states, Mapping) else ()
