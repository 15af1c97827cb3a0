"""What the digital twin holds, as JSON: nodes, jobs and the links between nodes.

Nodes have the fields of DECICE's schema NodePool, jobs those of its table of parameters; memory is
in MB (2^20 bytes), as there. The fields of boards and benchmarks are optional: a document without
them describes plain nodes and jobs, which are scheduled one job a node.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.benchmark_types import ACCEPTED_TYPES, BENCHMARK_TYPE_PATTERN
from edgeyard.devices.operators import OPERATORS
from edgeyard.devices.runner.json_text import parse_json, repeated_key
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.benchmark import (
    MAX_COUNT,
    BenchmarkType,
    Binding,
    WaitingReason,
)
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    PinGrace,
    Snapshot,
)
from edgeyard.scheduler.model.history import PastRun, RunKind
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.tariff import checked_tariff

SCHEMA = "edgeyard.twin/1"
MB = 1 << 20
PLAIN_FAMILY = "node"
PLAIN_ENGINE = "job"
"""Family and engine of nodes and jobs that state none: each plain job fits on each plain node."""

_PLAIN_RUN = RunKind(engine=PLAIN_ENGINE, benchmark_type=BenchmarkType.TYPE1, model_sha256=None)

ATTEMPT_MARK = "#"
"""Separator between a job's id and the number of an attempt that failed and was repeated."""

MAX_NODES = 20_000
MAX_JOBS = 200_000
MAX_LINKS = 200_000
MAX_GPUS = 62
"""Maximum GPUs of a node."""

_Number = Annotated[float, msgspec.Meta(ge=0)]
_Megabytes = Annotated[float, msgspec.Meta(ge=0, le=1 << 42)]
"""Its bytes fit in 64 bits."""
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]
_Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
_Weight = Annotated[int, msgspec.Meta(ge=-100, le=100)]
_FreeText = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
_T = TypeVar("_T")


class FreeResources(msgspec.Struct, kw_only=True):
    """What no job uses of a node that several jobs share.

    Attributes:
        cpu_cores: Cores.
        memory: MB.
        gpus: The free share of each GPU.
        cpu_of_others: Share of the cores that others than jobs use, 0-1.
        memory_of_others: Share of the memory, likewise.
    """

    cpu_cores: Annotated[float, msgspec.Meta(ge=-1e-6)]
    memory: Annotated[float, msgspec.Meta(ge=-1e-6)]
    gpus: Annotated[list[_Share], msgspec.Meta(max_length=MAX_GPUS)] = []
    cpu_of_others: _Share = 0.0
    memory_of_others: _Share = 0.0


class NodeParts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The parts of nodes that a job takes; ``cpus_req`` and ``mem_req`` are those of each node.

    Attributes:
        number: Its place among all jobs of the scenario.
        nodes: How many nodes it takes.
        gpus: Of each of them: a share of one GPU, or a whole number.
        submit_s: Virtual time.
        bound_s: For how long a reservation expects it to run.
        ends_by_s: When a reservation expects the end of one that runs.
        node_ids: Its nodes, of one that runs.
        gpu_bits: The GPUs that it has on each of these, as bits.
    """

    number: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    nodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_NODES)] = 1
    gpus: Annotated[float, msgspec.Meta(ge=0, le=MAX_GPUS)] = 0.0
    submit_s: _Number = 0.0
    bound_s: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    ends_by_s: _Number | None = None
    node_ids: list[_Name] = []
    gpu_bits: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << MAX_GPUS)]] = []


class Node(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A node of the pool; of a lab: a board.

    Attributes:
        memory: MB.
        cpu_load: Load average of the node, or of the board's host.
        memory_load: Used memory, per cent.
        host: Machine that carries it; "": itself.
        engines: Benchmark types by engine.
        expected: It is in the inventory.
        progress: 0-100, of what runs on it.
        reason: Why it is busy or unusable.
        load_measured: The loads come from a recent report of the host; decisions ignore others.
        free: Of a node that several jobs share, in a document with ``elapsed_s``.
    """

    id: _Name
    cpu_cores: _Number
    memory: _Megabytes
    cpu_load: _Number
    memory_load: _Number
    family: _Name = PLAIN_FAMILY
    host: _Text = ""
    engines: dict[str, list[BenchmarkType]] = msgspec.field(
        default_factory=lambda: {PLAIN_ENGINE: [BenchmarkType.TYPE1]}
    )
    ram_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None
    storage_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    expected: bool = True
    online: bool = True
    healthy: bool = True
    drained: bool = False
    busy: bool = False
    progress: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    reason: _Text = ""
    load_measured: bool = True
    attributes: dict[str, str | int | float | bool] = {}
    free: FreeResources | None = None


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job with its metrics; of a lab: a benchmark.

    Attributes:
        job_id: Text, or a whole number as in DECICE's table.
        cpus_req: Cores.
        mem_req: MB.
        time_run: Seconds that it has run; 0 while it waits.
        status: ``pending``, ``running``, ``completed`` or ``failed``.
        node_id: The node that it runs or ran on; of one that waits: the only one that may run it.
        ended_at: Of one that has ended.
        failure: Category of the failure of one that has failed.
        not_ready: Why it may not start, whichever node is free.
        tried_nodes: Nodes on which it has failed.
        cpu_used: Cores that it uses now.
        memory_used: MB that it uses now.
        avoid_until: Nodes that may not try it again before a time.
        binding: How firmly it is bound to the node of a decision; None: as the policy says.
        probe: It tests a node in quarantine.
        pin: What happens while its only node is unavailable.
        progress: 0-100, of one that runs.
        phase: Phase of one that runs.
        preemptible_measuring: It may be preempted while it measures, too.
        ending: Its node will be free anyway, because it ends or is being stopped.
        preempted: It is being stopped for a more urgent one.
        strict: Its node was named when it started.
        parts: Of a job that takes parts of nodes, in a document with ``elapsed_s``.
        constraints: Attribute, operator and value of each: only nodes that meet all may run it.
        affinities: The same and a weight of -100 to 100, but not 0: nodes that meet them are
            preferred, and with a negative weight those that do not.
        spreads: Attribute, weight of 1 to 100, and percentages of its values, 100 together at most:
            the jobs of one ``spread_group`` are spread over its values.
        spread_group: Jobs over which its spreads count, "" for itself alone.
        spread_counts: By node, how many other jobs of the group run or have completed there.
        extra: What its description states in ``extra``, as the text of a JSON object; "": nothing.
        gang_id: Jobs of the same gang start in one decision, each on a node of its own, or not at
            all; None: it starts by itself.
        gang_size: How many jobs its gang has; until all are there, none of them starts.
        gang_nodes: Nodes that the others of its gang have or had, once it has started: it gets
            none of them.
        cleared_node: Node that was cleared for it by a preemption, and is reserved for it.
        ends_in_time: At its time limit it ends with what it has measured.
        canary: It makes way for every other job.
    """

    job_id: _Name | Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    cpus_req: _Number
    mem_req: _Megabytes
    time_run: _Number
    status: Annotated[str, msgspec.Meta(pattern="^(pending|running|completed|failed)$")] = "pending"
    node_id: str | None = None
    user_id: _Text = "user"
    submit_time: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure: _Text | None = None
    family: _Name = PLAIN_FAMILY
    engine: _Name = PLAIN_ENGINE
    benchmark_type: BenchmarkType = BenchmarkType.TYPE1
    ram_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None
    storage_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    user_priority: Annotated[int, msgspec.Meta(ge=1, le=10)] = 5
    deadline: datetime | None = None
    start_time: datetime | None = None
    user_time_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    budget: _Number | None = None
    constraints: list[tuple[str, str, str]] = []
    campaign_id: str | None = None
    campaign_started: bool = False
    tried_nodes: list[str] = []
    not_ready: tuple[WaitingReason, str] | None = None
    job_completion_threshold: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    preemptible: bool = True
    priority: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    model_sha256: str | None = None
    model_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    nb_inference: Annotated[int, msgspec.Meta(ge=1)] = 20
    variant: _Text = ""
    avoid_until: dict[str, datetime] = {}
    binding: Binding | None = None
    probe: bool = False
    pin: PinGrace | None = None
    progress: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    phase: _Text | None = None
    preemptible_measuring: bool = False
    ending: bool = False
    preempted: bool = False
    strict: bool = True
    cpu_used: _Number | None = None
    memory_used: _Number | None = None
    parts: NodeParts | None = None
    affinities: list[tuple[str, str, str, _Weight]] = []
    spreads: list[tuple[str, _Percent, dict[str, _Percent]]] = []
    spread_group: _Text = ""
    spread_counts: dict[str, _Count] = {}
    extra: _FreeText = ""
    gang_id: _Name | None = None
    gang_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] = 1
    gang_nodes: list[str] = []
    cleared_node: str | None = None
    ends_in_time: bool = False
    canary: bool = False

    @property
    def name(self) -> str:
        """Return the job's id as text."""
        return str(self.job_id)


class Link(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A link between two nodes.

    Attributes:
        kind: ``network``; ``host``: both are attached to one machine; ``cores``: they share cores,
            so only one of them measures at a time.
    """

    source: _Name
    target: _Name
    kind: Annotated[str, msgspec.Meta(pattern="^(network|host|cores)$")] = "network"
    latency_ms: _Number | None = None
    bandwidth_mbps: _Number | None = None


class User(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a user may use, and has used.

    Attributes:
        usage_board_s: Board-seconds, decayed.
        share: Weight in fair sharing.
        credits_left: Neither spent nor reserved; None: unlimited.
        group_id: The group of ``groups`` that the user is in; None: none.
    """

    user_id: _Text
    group_id: _Text | None = None
    usage_board_s: _Number = 0.0
    share: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    running: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_running: Annotated[int, msgspec.Meta(ge=0)] | None = None
    credits_left: float | None = None


class UserGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the members of a group may use together, and have used; see `User`."""

    group_id: _Text
    usage_board_s: _Number = 0.0
    share: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    running: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_running: Annotated[int, msgspec.Meta(ge=0)] | None = None
    credits_left: float | None = None


class TwinData(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that the twin holds at one instant.

    Attributes:
        source: Where it comes from, for people: a scenario, or the live lab.
        run: Id of the run of the test environment that it belongs to; "": of none.
        now: Virtual or real time of the state; None: unknown.
        seed: Of everything random in a decision on it.
        age_s: Age of the state when it was taken.
        leases: Nodes that are reserved for a person or for maintenance.
        rates: Credits per second on a node, by family; 1 for others.
        tariff: Factors on the rates by hour of the day in UTC, 24 of them; empty: 1 at all hours.
        quarantined: Reason of the quarantine, by node.
        guarded: Nodes that must not be used may appear later.
        elapsed_s: Virtual seconds since the beginning, where jobs take parts of nodes; None: each
            job takes a whole node.
    """

    nodes: list[Node]
    jobs: list[Job] = []
    links: list[Link] = []
    users: list[User] = []
    groups: list[UserGroup] = []
    schema: str = SCHEMA
    source: _Text = ""
    run: _Text = ""
    episode: Annotated[int, msgspec.Meta(ge=0)] = 0
    round: Annotated[int, msgspec.Meta(ge=0)] = 0
    now: datetime | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    age_s: _Number = 0.0
    max_run_s: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    leases: list[Lease] = []
    rates: dict[str, _Number] = {}
    tariff: list[_Number] = []
    quarantined: dict[str, str] = {}
    guarded: bool = False
    elapsed_s: _Number | None = None


def read_twin_data(body: bytes) -> TwinData:
    """Read what is posted to the twin: a whole document, an array of nodes, or one node.

    ``node_id`` stands for ``id`` in nodes, as in DECICE's table.

    Raises:
        InvalidInput: What is wrong, and where.
    """
    try:
        tree: Any = msgspec.json.decode(body)
        repeated = repeated_key(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput.at(
            "", f"is not valid JSON: {error}", "a document of nodes and jobs"
        ) from None
    if repeated is not None:
        pointer = "".join(f"/{part}" for part in repeated)
        raise InvalidInput.at(pointer, "is given twice", "each key once")
    if isinstance(tree, list):
        tree = {"nodes": tree}
    elif isinstance(tree, dict) and "nodes" not in tree and ("id" in tree or "node_id" in tree):
        tree = {"nodes": [tree]}
    if not isinstance(tree, dict):
        raise InvalidInput.at(
            "", "is not a JSON object", "a node, an array of nodes, or a document"
        )
    nodes = tree.get("nodes")
    for each in nodes if isinstance(nodes, list) else ():
        if isinstance(each, dict) and "node_id" in each:
            each.setdefault("id", each["node_id"])
    try:
        data = msgspec.convert(tree, TwinData)
    except msgspec.ValidationError as error:
        raise invalid_data(error) from None
    _check(data)
    return data


def write_twin_data(data: TwinData) -> bytes:
    """Return the document as JSON; the five fields of NodePool are always there."""
    return _ENCODER.encode(data)


def _check(data: TwinData) -> None:
    for name, rows, limit in (
        ("nodes", data.nodes, MAX_NODES),
        ("jobs", data.jobs, MAX_JOBS),
        ("links", data.links, MAX_LINKS),
        ("users", data.users, MAX_JOBS),
    ):
        if len(rows) > limit:
            raise InvalidInput.at(f"/{name}", f"has {len(rows)} entries", f"up to {limit}")
    if data.schema != SCHEMA:
        raise InvalidInput.at("/schema", f"is {data.schema!r}", SCHEMA)
    if data.tariff:
        try:
            checked_tariff(tuple(data.tariff))
        except ValueError as error:
            accepted = "24 numbers from 0 to 1000, or none"
            raise InvalidInput.at("/tariff", str(error), accepted) from None
    _check_times("", data, ("now",))
    try:
        _ = (data.now or datetime.now(UTC)) - timedelta(seconds=data.age_s)
    except OverflowError:
        raise InvalidInput.at(
            "/age_s",
            f"is {data.age_s:g}: the resulting time is before the year 1",
            "seconds before now",
        ) from None
    known: set[str] = set()
    for row, node in enumerate(data.nodes):
        if node.id in known:
            raise InvalidInput.at(f"/nodes/{row}/id", f"{node.id!r} occurs twice", "another id")
        known.add(node.id)
    named: set[str] = set()
    for row, job in enumerate(data.jobs):
        here = f"/jobs/{row}"
        if job.name in named:
            raise InvalidInput.at(f"{here}/job_id", f"{job.name!r} occurs twice", "another id")
        named.add(job.name)
        if job.status != "pending" and job.node_id is None:
            raise InvalidInput.at(f"{here}/node_id", f"is missing for a {job.status} job", "a node")
        _check_times(here, job, ("submit_time", "started_at", "ended_at", "deadline", "start_time"))
        for node_id, until in job.avoid_until.items():
            _check_time(f"{here}/avoid_until/{node_id}", until)
        if job.constraints or job.affinities:
            _check_conditions(here, job)
        for row, (_, _, targets) in enumerate(job.spreads):
            if sum(targets.values()) > 100:
                reason = "the percentages add up to more than 100"
                raise InvalidInput.at(f"{here}/spreads/{row}/2", reason, "a sum of at most 100")
        if job.extra:
            _check_extra(f"{here}/extra", job.extra)
    _check_gangs(data.jobs)
    if data.elapsed_s is not None:
        _check_parts(data, known)
    for row, lease in enumerate(data.leases):
        _check_times(f"/leases/{row}", lease, ("since", "until"))
    for row, link in enumerate(data.links):
        for end in ("source", "target"):
            if getattr(link, end) not in known:
                raise InvalidInput.at(
                    f"/links/{row}/{end}",
                    f"{getattr(link, end)!r} is not a node of this document",
                    "a node's id",
                )


def _check_conditions(here: str, job: Job) -> None:
    operators = [("constraints", row, each[1]) for row, each in enumerate(job.constraints)]
    operators += [("affinities", row, each[1]) for row, each in enumerate(job.affinities)]
    for name, row, operator in operators:
        if operator not in OPERATORS:
            pointer = f"{here}/{name}/{row}/1"
            raise InvalidInput.at(pointer, f"{operator!r} is not an operator", ", ".join(OPERATORS))
    for row, affinity in enumerate(job.affinities):
        if affinity[3] == 0:
            pointer = f"{here}/affinities/{row}/3"
            raise InvalidInput.at(
                pointer, "is 0, a weight without effect", "a weight from -100 to 100, except 0"
            )


def _check_extra(pointer: str, text: str) -> None:
    accepted = "the text of a JSON object"
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput.at(pointer, f"is not valid JSON: {error}", accepted) from None
    if not isinstance(value, dict):
        raise InvalidInput.at(pointer, "is not a JSON object", accepted)
    strict_json.check_json(value, pointer)


def _check_gangs(jobs: Sequence[Job]) -> None:
    sizes: dict[str, int] = {}
    members: Counter[str] = Counter()
    for row, job in enumerate(jobs):
        if job.gang_id is None or job.status != "pending":
            continue
        here = f"/jobs/{row}/gang_size"
        if job.gang_size != sizes.setdefault(job.gang_id, job.gang_size):
            reason = f"is {job.gang_size}, of another job of its gang {sizes[job.gang_id]}"
            raise InvalidInput.at(here, reason, "the same in all jobs of a gang")
        members[job.gang_id] += 1
        if members[job.gang_id] > job.gang_size:
            reason = f"is {job.gang_size}, but more jobs have the gang {job.gang_id!r}"
            raise InvalidInput.at(here, reason, "the number of jobs of the gang")


def _check_parts(data: TwinData, known: set[str]) -> None:
    """Check a state of nodes that jobs share."""
    for row, node in enumerate(data.nodes):
        if node.free is None:
            raise InvalidInput.at(
                f"/nodes/{row}/free", "is missing", "what no job uses of the node"
            )
    numbers: set[int] = set()
    for row, job in enumerate(data.jobs):
        here = f"/jobs/{row}/parts"
        if job.status not in ("pending", "running"):
            continue
        parts = job.parts
        if parts is None:
            raise InvalidInput.at(here, "is missing", "the parts of nodes that the job takes")
        if parts.number in numbers:
            raise InvalidInput.at(
                f"{here}/number", f"{parts.number} occurs twice", "another number"
            )
        numbers.add(parts.number)
        if job.status == "pending":
            continue
        if parts.ends_by_s is None:
            raise InvalidInput.at(f"{here}/ends_by_s", "is missing of a running job", "seconds")
        for name, its in (("node_ids", parts.node_ids), ("gpu_bits", parts.gpu_bits)):
            if len(its) != parts.nodes:
                accepted = f"{parts.nodes}, one per node"
                raise InvalidInput.at(f"{here}/{name}", f"has {len(its)} entries", accepted)
        for place, name in enumerate(parts.node_ids):
            if name not in known:
                raise InvalidInput.at(
                    f"{here}/node_ids/{place}", f"{name!r} is not a node of this document", "an id"
                )


def _check_times(here: str, value: object, names: Iterable[str]) -> None:
    for name in names:
        _check_time(f"{here}/{name}", getattr(value, name))


def _check_time(pointer: str, time: datetime | None) -> None:
    if time is not None and time.tzinfo is None:
        raise InvalidInput.at(pointer, "has no time zone", "RFC 3339, such as 2025-08-13T07:17:14Z")


def invalid_data(error: msgspec.ValidationError) -> InvalidInput:
    """Return what msgspec refused as an error with a JSON pointer."""
    reason, _, path = str(error).partition(" - at `$")
    parts = path.rstrip("`").replace("[", ".").replace("]", "").split(".")
    if reason.startswith("Object missing required field"):
        parts.append(reason.split("`")[1])
        reason = "is missing"
    pointer = "".join(f"/{each}" for each in parts if each)
    if reason.startswith("Invalid enum value") and {"benchmark_type", "engines"} & {*parts}:
        value = reason.removeprefix("Invalid enum value ")
        return InvalidInput.at(pointer, f"is {value}", ACCEPTED_TYPES)
    return InvalidInput.at(pointer, reason[0].lower() + reason[1:], "see /openapi.json")


def twin_data(given: CycleInput, *, source: str = "live") -> TwinData:
    """Return the state that a cycle of the live service sees as a document of the twin.

    The test environment reads it back, so that it can decide a recorded or a live cycle. Past runs
    are not part of it: `ended_job` returns each as a job.
    """
    snapshot, knowledge = given.snapshot, given.knowledge
    offers = _offers(snapshot.offers)
    kind_of_board = [
        {
            engine: [kind for kind, supported in offers.get(engine, ()) if supported[row]]
            for engine, has in snapshot.engines.items()
            if has[row]
        }
        for row in range(len(snapshot.uids))
    ]
    nodes = []
    for row, uid in enumerate(snapshot.uids):
        attributes = dict(snapshot.attributes[row]) if snapshot.attributes else {}
        cores = attributes.get("cpu.cores", 1)
        cores = float(cores) if isinstance(cores, (int, float)) and cores > 0 else 1.0
        load = knowledge.host_loads.get(snapshot.hosts[row])
        progress = float(snapshot.progress[row])
        nodes.append(
            Node(
                id=uid,
                cpu_cores=cores,
                memory=int(snapshot.ram_bytes[row]) / MB,
                cpu_load=0.0 if load is None else load.cpu * cores,
                memory_load=0.0 if load is None else load.memory * 100.0,
                family=snapshot.families[row],
                host=snapshot.hosts[row],
                engines=kind_of_board[row],
                ram_bytes=int(snapshot.ram_bytes[row]),
                storage_bytes=int(snapshot.storage_bytes[row]),
                expected=bool(snapshot.expected[row]),
                online=bool(snapshot.online[row]),
                healthy=bool(snapshot.healthy[row]),
                drained=bool(snapshot.drained[row]),
                busy=bool(snapshot.busy[row]),
                progress=None if math.isnan(progress) else progress,
                reason=snapshot.reasons[row][:1024],
                load_measured=load is not None,
                attributes=attributes,
            )
        )
    return TwinData(
        nodes=nodes,
        jobs=[
            *(_job_of_holder(each, given.now) for each in given.holders),
            *(_job_of_pending(each) for each in given.pending),
        ],
        links=links_of(snapshot),
        users=[
            converted(User, each, user_id=name)
            for name, each in sorted(knowledge.entitlements.items())
        ],
        groups=[
            converted(UserGroup, each, group_id=name)
            for name, each in sorted(knowledge.groups.items())
        ],
        source=source,
        now=given.now,
        seed=given.seed,
        age_s=snapshot.age_s if math.isfinite(snapshot.age_s) else 1e9,
        max_run_s=knowledge.max_run_s,
        leases=list(knowledge.leases),
        rates=dict(knowledge.rates),
        tariff=list(knowledge.tariff.factors),
        quarantined=dict(knowledge.quarantined),
        guarded=snapshot.guarded,
    )


def ended_job(run: PastRun, job_id: str) -> Job:
    """Return a past run as a job that has ended."""
    return converted(
        Job,
        run,
        job_id=job_id,
        cpus_req=1,
        mem_req=0,
        time_run=run.run_s or 0.0,
        status="completed" if run.failure is None else "failed",
        node_id=run.target_uid,
        started_at=None if run.run_s is None else run.ended_at - timedelta(seconds=run.run_s),
        **asdict(run.kind),
    )


def links_of(snapshot: Snapshot) -> list[Link]:
    """Return the links between boards: those of one host in a row, and those that share cores."""
    links = []
    last: dict[str, str] = {}
    for uid, host in zip(snapshot.uids, snapshot.hosts, strict=True):
        if host and host in last:
            links.append(Link(source=last[host], target=uid, kind="host"))
        last[host] = uid
    if snapshot.conflicts is not None:
        for first, second in zip(*np.nonzero(np.triu(snapshot.conflicts)), strict=True):
            links.append(
                Link(source=snapshot.uids[first], target=snapshot.uids[second], kind="cores")
            )
    return links


def _offers(
    supports: Mapping[tuple[str, str], NDArray[np.bool_]],
) -> Mapping[str, list[tuple[BenchmarkType, NDArray[np.bool_]]]]:
    """Return the benchmark types of each engine, in order, with the boards that support them.

    A host may report other texts than types: no benchmark can ask for them.
    """
    found: dict[str, list[tuple[BenchmarkType, NDArray[np.bool_]]]] = defaultdict(list)
    for engine, name in sorted(supports, key=lambda pair: (len(pair[1]), pair)):
        with suppress(ValueError):
            found[engine].append((BenchmarkType(name), supports[engine, name]))
    return found


def converted(shape: Callable[..., _T], value: object, **others: object) -> _T:
    """Return a value of a type whose fields are those of another value by the same names.

    Args:
        shape: A type of the document, or of a cycle's input.
        value: One of the other's types.
        others: Fields that the value lacks, or has in another form or by another name.
    """
    names, values = _same_fields((shape, type(value)))
    return shape(**dict(zip(names, values(value), strict=True)) | others)


@cache
def _same_fields(of: tuple[Any, Any]) -> tuple[Sequence[str], Callable[[object], Iterable[object]]]:
    """Return the names of the fields that both types have, and what returns their values."""
    own, theirs = (
        [each.name for each in fields(kind)] if is_dataclass(kind) else kind.__struct_fields__
        for kind in of
    )
    names = [name for name in own if name in theirs]
    return names, attrgetter(*names)


def _job_of_pending(each: PendingBenchmark) -> Job:
    return converted(
        Job,
        each,
        job_id=each.benchmark_id,
        cpus_req=1,
        mem_req=each.ram_bytes / MB,
        time_run=0,
        node_id=each.target_uid,
        constraints=[(c.attribute, c.operator, c.value) for c in each.constraints],
        tried_nodes=sorted(each.tried_uids),
        avoid_until=dict(each.avoid_until),
        not_ready=None
        if each.not_ready is None
        else (each.not_ready.reason, each.not_ready.sentence),
        affinities=[(a.attribute, a.operator, a.value, a.weight) for a in each.affinities],
        spreads=[(s.attribute, s.weight, dict(s.targets)) for s in each.spreads],
        spread_counts=dict(each.spread_counts),
        gang_nodes=sorted(each.gang_uids),
        cleared_node=each.cleared_uid,
    )


def _job_of_holder(each: BoardHolder, now: datetime) -> Job:
    began = each.started_at
    return converted(
        Job,
        each,
        job_id=each.benchmark_id,
        cpus_req=1,
        mem_req=0,
        time_run=0.0 if began is None else max((now - began).total_seconds(), 0.0),
        status="running",
        node_id=each.target_uid,
        user_time_s=each.time_limit_s,
        **asdict(each.kind or _PLAIN_RUN),
    )


def _plain_number(value: object) -> object:
    """Return NumPy's number as Python's; predictions are NumPy's."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain_number)


def component_schemas() -> dict[str, Any]:
    """Return the JSON Schemas of the document and its parts, by names that all begin with Twin."""
    _, found = msgspec.json.schema_components(
        [TwinData], ref_template="#/components/schemas/Twin{name}"
    )
    found = with_declared_types(found)
    return {name if name == "TwinData" else f"Twin{name}": each for name, each in found.items()}


def with_declared_types(components: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON Schemas by name; that of benchmark types accepts those that engines declare.

    What is generated from `BenchmarkType` lists its members, which are Edgeyard's own types.
    """
    found = dict(components)
    if BenchmarkType.__name__ in found:
        found[BenchmarkType.__name__] = {
            "description": ACCEPTED_TYPES,
            "pattern": BENCHMARK_TYPE_PATTERN.pattern,
            "title": BenchmarkType.__name__,
            "type": "string",
        }
    return found
