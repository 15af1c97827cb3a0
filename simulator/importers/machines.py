"""Jobs in columns and groups of nodes become a scenario of the world of nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.simulator.importers.columns import Floats, Number, Spec, Word, read_columns
from edgeyard.simulator.scenario import (
    DAY_S,
    NodeGroup,
    NodeJob,
    NodesScenario,
    Scenario,
    check_scenario,
    scenario_from_json,
    scenario_to_json,
)
from edgeyard.simulator.wording import count_of

_Kind = TypeVar("_Kind", bound=Hashable)

MAX_JOBS = 1_000_000
"""Maximum jobs of an imported scenario."""

DRAIN_S = 2 * 366 * DAY_S
"""Maximum time from the last arrival to the end of the simulation."""

Integers = NDArray[np.int64]

_NODES: Spec = {
    "node_id": Word(names=("node_id", "id"), needed=True),
    "cpu_cores": Number(names=("cpu_cores",), low=1, high=1e6, whole=True),
    "memory": Number(names=("memory",), low=1, high=1e12),
    "gpus": Number(names=("gpus",), high=1e6, whole=True, missing=0),
    "cpu_load": Number(names=("cpu_load",), high=1e6, empty=0, missing=0),
    "memory_load": Number(names=("memory_load",), high=100, empty=0, missing=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which jobs of a trace are imported.

    Attributes:
        name: Of the scenario.
        skip: So many jobs are left out first, in the order of submission.
        count: Maximum number of jobs; None: `MAX_JOBS`, and more are an error.
        drop_large: Leave out jobs that no node can run, instead of refusing the file.
    """

    name: str
    skip: int = 0
    count: int | None = None
    drop_large: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceJobs:
    """Jobs that ran, in columns of shape (jobs,).

    Attributes:
        path: Of the file.
        line: Line of each job.
        field: Name of the field that says what a job needs, for errors.
        job_id: Names, each once.
        submit: Seconds of the trace's clock.
        run: Seconds, above 0.
        cpus: On each node.
        memory_mb: On each node.
        gpus: On each node.
        nodes: How many nodes.
        requested: Run time that the user stated, seconds; NaN: none.
        user: Names.
    """

    path: Path
    line: Integers
    field: str
    job_id: Sequence[str]
    submit: Floats
    run: Floats
    cpus: Floats
    memory_mb: Floats
    gpus: Floats
    nodes: Integers
    requested: Floats
    user: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedScenario:
    """An imported scenario.

    Attributes:
        notes: What the rules of the importer left out or changed, in words.
    """

    scenario: Scenario
    notes: tuple[str, ...] = ()


def counted(count: int, what: str) -> tuple[str, ...]:
    """Return a note on some jobs, or none if there are none."""
    return (f"{count_of(count, 'job')} {what}",) if count else ()


def read_nodes(path: Path) -> tuple[NodeGroup, ...]:
    """Read nodes with the parameters of DECICE: node_id, cpu_cores, memory (MB), their loads.

    ``cpu_load`` is the load average, a number of busy cores; ``memory_load`` a percentage of the
    memory. Both become the fraction that others use.

    Raises:
        InvalidInput: A line is wrong.
    """
    table = read_columns(path, _NODES)
    cores, memory = table.numbers["cpu_cores"], table.numbers["memory"]
    seen: dict[str, int] = {}
    for row, node in enumerate(table.words["node_id"]):
        if node in seen:
            where = f"{path}, line {table.line[row]}"
            reason = f"field node_id: {node!r} occurs twice: on line {seen[node]} too"
            raise InvalidInput.at(where, reason, "one line for each node")
        seen[node] = int(table.line[row])
    busy = np.minimum(table.numbers["cpu_load"] / cores, 1.0).round(4)
    used = (table.numbers["memory_load"] / 100).round(4)
    kinds = zip(
        cores.astype(int).tolist(),
        np.floor(memory).astype(int).tolist(),
        table.numbers["gpus"].astype(int).tolist(),
        busy.tolist(),
        used.tolist(),
        strict=True,
    )
    return tuple(
        NodeGroup(
            count=len(node_ids),
            cpu_cores=kind[0],
            memory_mb=kind[1],
            gpus=kind[2],
            cpu_load=kind[3],
            memory_load=kind[4],
            name=f"node{number}",
            node_ids=node_ids,
        )
        for number, (kind, node_ids) in enumerate(ids_by_kind(kinds, table.words["node_id"]), 1)
    )


def ids_by_kind(
    kinds: Iterable[_Kind], node_ids: Sequence[str]
) -> list[tuple[_Kind, tuple[str, ...]]]:
    """Return each kind of nodes with the names of its nodes, both in the order of the file."""
    found: dict[_Kind, list[str]] = {}
    for kind, node_id in zip(kinds, node_ids, strict=True):
        found.setdefault(kind, []).append(node_id)
    return [(kind, tuple(its)) for kind, its in found.items()]


def nodes_scenario(
    jobs: TraceJobs,
    groups: Sequence[NodeGroup],
    selection: Selection,
    *,
    description: str,
    notes: Sequence[str] = (),
    advanced: Callable[[float], None] = lambda share: None,
) -> ImportedScenario:
    """Return the scenario of a trace's jobs on some nodes; its time begins with the first job.

    Raises:
        InvalidInput: There are too many jobs or none, one occurs twice, or no node can run one.
    """
    order = np.argsort(jobs.submit, kind="stable")
    chosen = order[selection.skip :][: selection.count]
    if not len(chosen):
        reason = f"there are only {len(order)} jobs that ran" if selection.skip else "no job ran"
        raise InvalidInput.at("--skip" if selection.skip else str(jobs.path), reason)
    if len(chosen) > MAX_JOBS:
        reason = f"has {len(chosen):,} jobs that ran"
        raise InvalidInput.at(str(jobs.path), reason, f"--count {MAX_JOBS} or less")
    _refuse_repeated(jobs, chosen)
    large = ~_fits(jobs, chosen, groups)
    if large.any() and not selection.drop_large:
        row = int(chosen[np.flatnonzero(large)[np.argmin(jobs.line[chosen[large]])]])
        reason = (
            f"{jobs.field}: job {jobs.job_id[row]} needs {jobs.nodes[row]} node(s) with "
            f"{jobs.cpus[row]:g} CPUs, {jobs.memory_mb[row]:.15g} MB and {jobs.gpus[row]:g} GPUs, "
            f"which {len(chosen[large])} job(s) of this file can't get"
        )
        where = f"{jobs.path}, line {jobs.line[row]}"
        raise InvalidInput.at(where, reason, "other nodes, or --drop-large")
    chosen = chosen[~large]
    if not len(chosen):
        raise InvalidInput.at(str(jobs.path), "none of its jobs fits on a node", "other nodes")
    submit = jobs.submit[chosen] - jobs.submit[chosen[0]]
    rows = zip(
        chosen.tolist(),
        submit.tolist(),
        *(
            column[chosen].astype(np.float64).tolist()
            for column in (jobs.run, jobs.cpus, jobs.memory_mb, jobs.gpus)
        ),
        jobs.nodes[chosen].tolist(),
        jobs.requested[chosen].tolist(),
        strict=True,
    )
    listed = []
    for number, (row, at, run, cpus, memory, gpus, nodes, requested) in enumerate(rows):
        if number % 50_000 == 0:
            advanced(number / len(chosen))
        listed.append(
            NodeJob(
                job_id=jobs.job_id[row],
                submit_s=at,
                run_s=run,
                cpus=cpus,
                memory_mb=memory,
                gpus=gpus,
                nodes=nodes,
                requested_s=requested if requested == requested else None,
                user=jobs.user[row],
            )
        )
    scenario = Scenario(
        name=selection.name,
        world="nodes",
        duration_s=max(float(submit[-1]), 1.0),
        drain_s=DRAIN_S,
        description=description,
        nodes=NodesScenario(nodes=tuple(groups), jobs=tuple(listed)),
    )
    check_scenario(scenario, source=str(jobs.path))
    left = counted(int(large.sum()), "that no node can run left out")
    return ImportedScenario(scenario=scenario, notes=(*notes, *left))


def jobs_that_ran(jobs: TraceJobs, ran: NDArray[np.bool_]) -> TraceJobs:
    """Return the jobs that ran."""
    rows = np.flatnonzero(ran)
    arrays = ("line", "submit", "run", "cpus", "memory_mb", "gpus", "nodes", "requested")
    changed = {name: getattr(jobs, name)[rows] for name in arrays}
    return replace(
        jobs,
        **changed,
        job_id=[jobs.job_id[row] for row in rows.tolist()],
        user=[jobs.user[row] for row in rows.tolist()],
    )


def checked(scenario: Scenario) -> Scenario:
    """Return a scenario that was built as a file would give it: checked, and 1 as 1.0 for a float.

    Equal scenarios then have equal hashes.
    """
    return scenario_from_json(scenario_to_json(scenario), source=scenario.name)


def _refuse_repeated(jobs: TraceJobs, chosen: Integers) -> None:
    first: dict[str, int] = {}
    for row in sorted(chosen.tolist()):
        job_id = jobs.job_id[row]
        if job_id in first:
            where = f"{jobs.path}, line {jobs.line[row]}"
            reason = f"job {job_id!r} occurs twice: on line {jobs.line[first[job_id]]} too"
            raise InvalidInput.at(where, reason, "one line for each job")
        first[job_id] = row


def _fits(jobs: TraceJobs, chosen: Integers, groups: Sequence[NodeGroup]) -> NDArray[np.bool_]:
    """Return which jobs enough nodes can run."""
    able = np.zeros(len(chosen), dtype=np.int64)
    for group in groups:
        fits = (
            (jobs.cpus[chosen] <= group.cpu_cores * (1 - group.cpu_load) + 1e-9)
            & (jobs.memory_mb[chosen] <= group.memory_mb * (1 - group.memory_load) + 1e-9)
            & (jobs.gpus[chosen] <= group.gpus)
        )
        able += np.where(fits, group.count, 0)
    return able >= jobs.nodes[chosen]
