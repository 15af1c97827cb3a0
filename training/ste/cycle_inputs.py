"""States of the twin as inputs of the decision core."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from edgeyard.devices.model import AttributeValue
from edgeyard.scheduler.model.benchmark import Affinity, Constraint, Spread, WaitReason
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Snapshot,
)
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.model.knowledge import Entitlement, HostLoad, Knowledge
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.twin.document import (
    ATTEMPT_MARK,
    MB,
    PLAIN_ENGINE,
    Job,
    Node,
    TwinData,
    converted,
)


def ended_jobs(data: TwinData) -> list[Job]:
    """Return the jobs that have ended, oldest first; ends of one instant as they are listed."""
    now = data.now or datetime.now(UTC)
    ended = [each for each in data.jobs if each.status in ("completed", "failed")]
    return sorted(ended, key=lambda each: each.ended_at or now)


def past_runs(data: TwinData, ended: Iterable[Job]) -> tuple[PastRun, ...]:
    """Return ended jobs as the history of the lab."""
    now = data.now or datetime.now(UTC)
    family_of = {each.id: each.family for each in data.nodes}
    return tuple(_past_run(each, family_of, now) for each in ended)


def cycle_input(data: TwinData, *, runs: History | None = None) -> CycleInput:
    """Return what a decision on this state depends on: the input of the service's own core.

    Args:
        data: As the twin holds it.
        runs: The ended jobs as history; None: it is made of them.
    """
    now = data.now or datetime.now(UTC)
    nodes = data.nodes
    row_of = {each.id: row for row, each in enumerate(nodes)}
    running = [each for each in data.jobs if each.status == "running"]
    busy = np.array([each.busy for each in nodes], dtype=np.bool_)
    busy[[row_of[each.node_id] for each in running if each.node_id in row_of]] = True
    offers = sorted(
        {
            (engine, kind.value)
            for each in nodes
            for engine, its in each.engines.items()
            for kind in its
        }
    )
    engines = sorted({engine for each in nodes for engine in each.engines})
    shared = [each for each in data.links if each.kind == "cores"]
    conflicts = np.zeros((len(nodes), len(nodes)), dtype=np.bool_) if shared else None
    for link in shared:
        first, second = row_of[link.source], row_of[link.target]
        if conflicts is not None and first != second:
            conflicts[first, second] = conflicts[second, first] = True

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([getattr(each, name) for each in nodes], dtype=np.bool_)

    snapshot = Snapshot(
        taken_at=now - timedelta(seconds=data.age_s) if data.age_s else now,
        age_s=data.age_s,
        uids=tuple(each.id for each in nodes),
        families=tuple(each.family for each in nodes),
        hosts=tuple(each.host or each.id for each in nodes),
        ram_bytes=np.array([_ram_bytes(each) for each in nodes], dtype=np.int64),
        storage_bytes=np.array([each.storage_bytes for each in nodes], dtype=np.int64),
        expected=column("expected"),
        online=column("online"),
        healthy=column("healthy"),
        drained=column("drained"),
        busy=busy,
        progress=np.array(
            [math.nan if each.progress is None else each.progress for each in nodes], np.float64
        ),
        supports={
            (engine, kind): np.array(
                [kind in each.engines.get(engine, ()) for each in nodes], dtype=np.bool_
            )
            for engine, kind in offers
        },
        engines={
            engine: np.array([engine in each.engines for each in nodes], dtype=np.bool_)
            for engine in engines
        },
        reasons=tuple(each.reason for each in nodes),
        attributes=tuple(_attributes(each) for each in nodes),
        conflicts=conflicts,
        guarded=data.guarded,
    )
    return CycleInput(
        snapshot=snapshot,
        pending=[_pending(each, now) for each in data.jobs if each.status == "pending"],
        now=now,
        holders=[_holder(each) for each in running],
        knowledge=Knowledge(
            runs=History(past_runs(data, ended_jobs(data))) if runs is None else runs,
            entitlements={each.user_id: converted(Entitlement, each) for each in data.users},
            groups={
                each.group_id: converted(Entitlement, each, group_id=None) for each in data.groups
            },
            rates=data.rates,
            tariff=Tariff(tuple(data.tariff)),
            max_run_s=data.max_run_s,
            leases=tuple(data.leases),
            quarantined=data.quarantined,
            host_loads=_host_loads(nodes),
        ),
        seed=data.seed,
    )


def _ram_bytes(each: Node) -> int:
    return each.ram_bytes if each.ram_bytes is not None else int(each.memory * MB)


def _attributes(each: Node) -> Mapping[str, AttributeValue]:
    if PLAIN_ENGINE not in each.engines:
        return each.attributes
    return {"cpu.cores": int(each.cpu_cores), **each.attributes}


def _host_loads(nodes: Sequence[Node]) -> dict[str, HostLoad]:
    """Return the measured load of each host as fractions; of several boards the highest."""
    loads: dict[str, HostLoad] = {}
    for each in nodes:
        if not each.load_measured:
            continue
        host = each.host or each.id
        cpu = min(each.cpu_load / each.cpu_cores, 1.0) if each.cpu_cores else 0.0
        memory = min(each.memory_load / 100.0, 1.0)
        known = loads.get(host, HostLoad(cpu=0.0, memory=0.0))
        loads[host] = HostLoad(cpu=max(cpu, known.cpu), memory=max(memory, known.memory))
    return loads


def _pending(each: Job, now: datetime) -> PendingBenchmark:
    constraints = [Constraint(attribute=a, operator=o, value=v) for a, o, v in each.constraints]
    if each.engine == PLAIN_ENGINE and each.cpus_req > 0:
        cores = Constraint(
            attribute="cpu.cores", operator=">=", value=f"{math.ceil(each.cpus_req)}"
        )
        constraints.append(cores)
    return converted(
        PendingBenchmark,
        each,
        benchmark_id=each.name,
        submit_time=each.submit_time or now,
        ram_bytes=each.ram_bytes if each.ram_bytes is not None else int(each.mem_req * MB),
        target_uid=each.node_id,
        constraints=tuple(constraints),
        affinities=tuple(
            Affinity(attribute=a, operator=o, value=v, weight=w) for a, o, v, w in each.affinities
        ),
        spreads=tuple(
            Spread(attribute=a, weight=w, targets=tuple(targets.items()))
            for a, w, targets in each.spreads
        ),
        spread_counts=tuple(sorted(each.spread_counts.items())),
        not_ready=None
        if each.not_ready is None
        else WaitReason(reason=each.not_ready[0], sentence=each.not_ready[1]),
        tried_uids=frozenset(each.tried_nodes),
        avoid_until=tuple(each.avoid_until.items()),
        extra=json.dumps(json.loads(each.extra), sort_keys=True) if each.extra else "",
        gang_uids=frozenset(each.gang_nodes),
        cleared_uid=each.cleared_node,
    )


def _holder(each: Job) -> BoardHolder:
    return converted(
        BoardHolder,
        each,
        benchmark_id=each.name,
        target_uid=each.node_id or "",
        kind=converted(RunKind, each),
        time_limit_s=each.user_time_s,
    )


def _past_run(each: Job, family_of: Mapping[str, str], now: datetime) -> PastRun:
    node = each.node_id or ""
    return PastRun(
        benchmark_id=each.name.partition(ATTEMPT_MARK)[0],
        user_id=each.user_id,
        target_uid=node,
        family=family_of.get(node, each.family),
        kind=converted(RunKind, each),
        run_s=each.time_run if each.time_run > 0 or each.started_at is not None else None,
        failure=(each.failure or "unknown") if each.status == "failed" else None,
        ended_at=each.ended_at or now,
    )
