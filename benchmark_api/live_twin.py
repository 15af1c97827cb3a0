"""The digital twin of the live lab, as a document: boards, benchmarks, links, and their metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from edgeyard.errors import Unavailable
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.twin.document import MB, Job, Node, TwinData, ended_job, twin_data
from edgeyard.scheduler.twin.series import QueryRange

MAX_ENDED_JOBS = 200
"""Newest ended runs that are shown as jobs."""

REPORT_MAX_AGE = timedelta(seconds=60)
"""Loads that a host reported longer ago are not shown."""

MAX_METRICS_AGE_S = 5.0
_STEP_S = 15.0

NODE_LOAD = "node_load1"
NODE_MEMORY_PERCENT = "100 * (1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)"
NODE_LABEL = "instance"
"""Names a host, perhaps with a port."""

JOB_CPUS = "sum by (exported_job) (nomad_client_allocs_cpu_total_percent) / 100"
JOB_MEMORY_BYTES = "sum by (exported_job) (nomad_client_allocs_memory_usage)"
JOB_LABEL = "exported_job"
"""Names a Nomad job: Prometheus gives its own label ``job`` another meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What Prometheus reports now.

    Attributes:
        node_load: Load average, by host.
        node_memory: Used memory in per cent, by host.
        job_cpus: Used cores, by job of the cluster.
        job_memory: Used memory in bytes, by job of the cluster.
        problem: Why nothing is known; "": it answered, or there is none.
    """

    node_load: Mapping[str, float] = field(default_factory=dict)
    node_memory: Mapping[str, float] = field(default_factory=dict)
    job_cpus: Mapping[str, float] = field(default_factory=dict)
    job_memory: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


class MetricsSource:
    """The figures of a Prometheus, asked for at most every few seconds. Thread-safe."""

    def __init__(self, query: QueryRange, monotonic_s: Callable[[], float]) -> None:
        self._query, self._monotonic_s = query, monotonic_s
        self._lock = threading.Lock()
        self._known: tuple[float, Metrics] | None = None

    def read(self, now: datetime) -> Metrics:
        """Return the newest figures; without a figure, but with the problem, if none are known."""
        with self._lock:
            if self._known is None or self._monotonic_s() - self._known[0] > MAX_METRICS_AGE_S:
                self._known = self._monotonic_s(), self._ask(now)
            return self._known[1]

    def _ask(self, now: datetime) -> Metrics:
        try:
            return Metrics(
                node_load=self._values(NODE_LOAD, NODE_LABEL, now),
                node_memory=self._values(NODE_MEMORY_PERCENT, NODE_LABEL, now),
                job_cpus=self._values(JOB_CPUS, JOB_LABEL, now),
                job_memory=self._values(JOB_MEMORY_BYTES, JOB_LABEL, now),
            )
        except Unavailable as error:
            return Metrics(problem=str(error))

    def _values(self, promql: str, label: str, now: datetime) -> dict[str, float]:
        found = {}
        for series in self._query(promql, now, now, _STEP_S):
            if series.values and (name := series.labels.get(label)):
                found[name] = max(series.values[-1], 0.0)
        return found


class HostReports:
    """Nodes that hosts report, in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, tuple[Node, datetime]] = {}

    def note(self, nodes: list[Node], now: datetime) -> None:
        """Replace what is known of these nodes, and forget what is too old."""
        with self._lock:
            self._nodes.update({each.id: (each, now) for each in nodes})
            self._nodes = {
                uid: known for uid, known in self._nodes.items() if now - known[1] <= REPORT_MAX_AGE
            }

    def nodes(self, now: datetime) -> dict[str, Node]:
        """Return what was reported lately, by id."""
        with self._lock:
            return {
                uid: node for uid, (node, at) in self._nodes.items() if now - at <= REPORT_MAX_AGE
            }


def live_data(
    given: CycleInput,
    *,
    cluster: str,
    reports: Mapping[str, Node],
    metrics: Metrics,
    job_ids: Mapping[str, str],
    problem: str = "",
) -> TwinData:
    """Return the present state of the lab.

    Args:
        given: What a decision would know now.
        cluster: Where boards and tasks are known from, for people.
        reports: Nodes as their hosts report them, by id; their loads replace the cluster's.
        metrics: Of a Prometheus; they replace both.
        job_ids: Id of the cluster's job, by benchmark.
        problem: Why the cluster did not answer last time; "": it did.
    """
    data = twin_data(given, source=f"live: {cluster}")
    by_host = {name.rpartition(":")[0] or name: name for name in metrics.node_load}

    def node(each: Node) -> Node:
        reported = reports.get(each.id)
        load = None if reported is None else reported.cpu_load
        memory = None if reported is None else reported.memory_load
        name = by_host.get(each.host, by_host.get(each.id, each.host))
        load = metrics.node_load.get(name, load)
        memory = metrics.node_memory.get(name, memory)
        if load is None or memory is None:
            return each
        return msgspec.structs.replace(each, cpu_load=load, memory_load=memory, load_measured=True)

    def job(each: Job) -> Job:
        job_id = job_ids.get(each.name, "")
        memory = metrics.job_memory.get(job_id)
        return msgspec.structs.replace(
            each,
            cpu_used=metrics.job_cpus.get(job_id),
            memory_used=None if memory is None else memory / MB,
        )

    live = {each.name for each in data.jobs}
    ended = {}
    for run in given.knowledge.runs[-MAX_ENDED_JOBS:]:
        name = run.benchmark_id if run.benchmark_id not in live else f"{run.benchmark_id}#{run.seq}"
        ended[name] = ended_job(run, name)  # of several runs of one benchmark the newest
    source = "; ".join(each for each in (data.source, problem, metrics.problem) if each)[:1024]
    return msgspec.structs.replace(
        data,
        nodes=[node(each) for each in data.nodes],
        jobs=[*(job(each) for each in data.jobs), *ended.values()],
        source=source,
    )
