"""What a Prometheus has recorded of a cluster becomes scenarios, a window of time each.

Nodes are the series of `Queries.node_cpus` and `Queries.node_memory_bytes`, jobs those of
`Queries.job_cpus` and `Queries.job_memory_bytes`. A job is there from its first to its last sample
in the window: it is submitted at the first, needs the most that it used, and runs until one step
after the last. What ran at an end of the window is cut there; how many did is reported.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.twin.series import QueryRange, Series
from edgeyard.simulator.importers.machines import (
    DRAIN_S,
    ImportedScenario,
    checked,
    counted,
    ids_by_kind,
)
from edgeyard.simulator.scenario import NodeGroup, NodeJob, NodesScenario, Scenario

PULLED = "pulled"
"""Tag of scenarios that were pulled."""

MAX_POINTS = 11_000
"""Maximum points of a series in an answer of Prometheus."""

MAX_WINDOWS = 48
"""Maximum number of windows that are caught up on after an outage."""

_NAME = "prometheus-%Y%m%dT%H%M%SZ"
_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """PromQL, and the labels that name nodes and jobs.

    The defaults read node_exporter and Nomad's own metrics.

    Attributes:
        node_cpus: Cores of each node.
        node_memory_bytes: Memory of each node.
        node_label: Names nodes.
        job_cpus: Cores that each job uses.
        job_memory_bytes: Memory that each job uses; "": none.
        job_label: Names jobs.
        user_label: Names their users; "": none.
    """

    node_cpus: str = 'count by (instance) (node_cpu_seconds_total{mode="idle"})'
    node_memory_bytes: str = "node_memory_MemTotal_bytes"
    node_label: str = "instance"
    job_cpus: str = "sum by (alloc_id, namespace) (nomad_client_allocs_cpu_total_percent) / 100"
    job_memory_bytes: str = "sum by (alloc_id, namespace) (nomad_client_allocs_memory_usage)"
    job_label: str = "alloc_id"
    user_label: str = "namespace"


_QUERIES = frozenset({"node_cpus", "node_memory_bytes", "job_cpus", "job_memory_bytes"})
_OPTIONAL = frozenset({"job_memory_bytes", "user_label"})


def read_queries(path: Path) -> Queries:
    """Read `Queries` from a TOML file; what it leaves out has its default.

    Raises:
        InvalidInput: The file is wrong.
        OSError: It can't be read.
    """
    known = [each.name for each in fields(Queries)]
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        accepted = "TOML, such as node_label = 'instance'"
        raise InvalidInput.at(str(path), f"is not valid TOML: {error}", accepted) from error
    for name, text in given.items():
        where = f"{path}: {name}"
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInput.at(where, f"is unknown{hint}", ", ".join(known))
        what = "PromQL" if name in _QUERIES else "the name of a label"
        optional = name in _OPTIONAL
        if not isinstance(text, str):
            raise InvalidInput.at(
                where, f"is {text!r}, which is not a string", f"{what} in quotation marks"
            )
        if not text.strip() and not optional:
            raise InvalidInput.at(where, "is empty", what)
    return Queries(**given)


def window_scenario(
    query: QueryRange, queries: Queries, begin: datetime, end: datetime, step_s: float
) -> ImportedScenario | None:
    """Return what ran in a window of time; None: nothing did.

    Raises:
        InvalidInput: Prometheus knows no node.
        Unavailable: Prometheus does not answer.
    """
    until = end - timedelta(seconds=step_s)

    def ask(promql: str) -> Sequence[Series]:
        return query(promql, begin, until, step_s) if promql else ()

    cpus = _max_of(ask(queries.node_cpus), queries.node_label)
    memory = _max_of(ask(queries.node_memory_bytes), queries.node_label)
    kinds = ids_by_kind(
        (
            (max(round(cores), 1), max(int(memory.get(node, 0.0) // _MB), 1))
            for node, cores in cpus.items()
        ),
        list(cpus),
    )
    if not kinds:
        reason = f"node_cpus ({queries.node_cpus}) has no series with the label"
        raise InvalidInput.at(
            queries.node_label, reason, "queries that fit this Prometheus: --queries FILE"
        )
    groups = tuple(
        NodeGroup(
            count=len(node_ids),
            cpu_cores=cores,
            memory_mb=megabytes,
            name=f"node{number}",
            node_ids=node_ids,
        )
        for number, ((cores, megabytes), node_ids) in enumerate(sorted(kinds), 1)
    )
    used = _max_of(ask(queries.job_memory_bytes), queries.job_label)
    jobs, cut = [], 0
    largest = max(groups, key=lambda group: (group.cpu_cores, group.memory_mb))
    oversized = 0
    for job_id, series in sorted(_merged(ask(queries.job_cpus), queries.job_label).items()):
        first, last = series.times[0] - begin.timestamp(), series.times[-1] - begin.timestamp()
        length = (end - begin).total_seconds()
        cut += first < step_s or last > length - 2 * step_s
        needs = max(math.ceil(max(series.values) - 1e-6), 1), math.ceil(used.get(job_id, 0) / _MB)
        if not any(needs[0] <= g.cpu_cores and needs[1] <= g.memory_mb for g in groups):
            needs = min(needs[0], largest.cpu_cores), min(needs[1], largest.memory_mb)
            oversized += 1
        jobs.append(
            NodeJob(
                job_id=job_id,
                submit_s=max(round(first, 3), 0.0),
                run_s=round(last - first + step_s, 3),
                cpus=needs[0],
                memory_mb=needs[1],
                user=series.labels.get(queries.user_label, ""),
            )
        )
    if not jobs:
        return None
    scenario = Scenario(
        name=begin.astimezone(UTC).strftime(_NAME),
        world="nodes",
        seed=int(begin.timestamp()),
        duration_s=(end - begin).total_seconds(),
        drain_s=DRAIN_S,
        description=f"What ran from {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC",
        tags=(PULLED,),
        nodes=NodesScenario(
            nodes=groups, jobs=tuple(sorted(jobs, key=lambda job: (job.submit_s, job.job_id)))
        ),
    )
    return ImportedScenario(
        scenario=checked(scenario),
        notes=(
            *counted(cut, "that ran across the begin or end of the window were cut there"),
            *counted(oversized, "that used more than any node has were counted as one whole node"),
        ),
    )


def _merged(found: Sequence[Series], label: str) -> dict[str, Series]:
    """Return series by label; several with the same one are there from the first to the last."""
    merged: dict[str, Series] = {}
    for series in found:
        name = series.labels.get(label)
        if not name or not series.times:
            continue
        other = merged.get(name)
        if other is not None:
            series = Series(
                labels=series.labels,
                times=sorted((*other.times, *series.times)),
                values=(*other.values, *series.values),
            )
        merged[name] = series
    return merged


def _max_of(found: Sequence[Series], label: str) -> dict[str, float]:
    return {name: max(series.values) for name, series in _merged(found, label).items()}


def source_of(url: str) -> str:
    """Return the source of pulled scenarios: the address without user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"pull {urlunsplit((parts.scheme, host, parts.path.rstrip('/'), '', ''))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledWindow:
    """One window of time.

    Attributes:
        imported: What ran in it; None: nothing.
        skipped: How many windows before it were left out, because there were more than
            `MAX_WINDOWS`.
    """

    begin: datetime
    end: datetime
    imported: ImportedScenario | None
    skipped: int = 0


@dataclass(slots=True, kw_only=True)
class Pull:
    """Pulls one window after another, each once.

    Attributes:
        query: Asks Prometheus.
        queries: What is asked.
        window_s: Length of a window; windows begin at multiples of it.
        step_s: Between two samples.
        next_at: Begin of the next window; None: the newest that is complete.
    """

    query: QueryRange
    queries: Queries = field(default_factory=Queries)
    window_s: float = 3600.0
    step_s: float = 15.0
    next_at: datetime | None = None

    def __post_init__(self) -> None:
        """Check the times.

        Raises:
            InvalidInput: There would be too many samples, or too few.
        """
        if not 2 * self.step_s <= self.window_s <= MAX_POINTS * self.step_s:
            accepted = f"{self.window_s / MAX_POINTS:.3g} to {self.window_s / 2:g} s"
            reason = f"is {self.step_s:g} s, for a window of {self.window_s:g} s"
            raise InvalidInput.at("--step", reason, accepted)

    def continue_after(self, name: str, duration_s: float) -> None:
        """Continue after a window that is stored.

        Args:
            name: Of its scenario.
            duration_s: Its length; another than `window_s` changes nothing.
        """
        try:
            begin = datetime.strptime(name, _NAME).replace(tzinfo=UTC)
        except ValueError:
            return
        if duration_s == self.window_s:
            self.next_at = begin + timedelta(seconds=duration_s)

    def due_at(self, now: datetime) -> datetime:
        """Return when the next window is complete."""
        begin = self.next_at or self._begin(now) - timedelta(seconds=self.window_s)
        return begin + timedelta(seconds=self.window_s)

    def pull_next(self, now: datetime) -> PulledWindow:
        """Pull the next window, which must be complete; `done` makes it the past.

        Raises:
            InvalidInput: Prometheus knows no node.
            Unavailable: Prometheus does not answer.
        """
        begin, end, skipped = self._next(now)
        self.next_at = self.next_at or begin  # what is tried first stays the first
        found = window_scenario(self.query, self.queries, begin, end, self.step_s)
        return PulledWindow(begin=begin, end=end, imported=found, skipped=skipped)

    def leave_out(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Skip the next window, if the one after it is complete, too.

        Returns:
            Its begin and its end; None: it is the newest that is over, so it stays the next one.
        """
        begin, end, _ = self._next(now)
        if end + timedelta(seconds=self.window_s) > now:
            return None
        self.next_at = end
        return begin, end

    def done(self, window: PulledWindow) -> None:
        """Continue after a window that is stored."""
        self.next_at = window.end

    def _next(self, now: datetime) -> tuple[datetime, datetime, int]:
        """Return begin and end of the next window, and how many before it are too old."""
        begin = self.due_at(now) - timedelta(seconds=self.window_s)
        oldest = self._begin(now) - timedelta(seconds=MAX_WINDOWS * self.window_s)
        skipped = max(round((oldest - begin).total_seconds() / self.window_s), 0)
        begin = max(begin, oldest)
        return begin, begin + timedelta(seconds=self.window_s), skipped

    def _begin(self, at: datetime) -> datetime:
        """Return the begin of the window that holds a time."""
        seconds = at.timestamp() // self.window_s * self.window_s
        return datetime.fromtimestamp(seconds, UTC)
