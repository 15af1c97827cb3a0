"""Scenarios: what a simulation is about, as values; from and to TOML and JSON.

A scenario fixes the world, what arrives and what fails. It fixes no policy: different policies meet
the same arrivals and the same faults. Times are seconds of virtual time from the beginning.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import tomli_w

from edgeyard.devices.benchmark_types import ACCEPTED_TYPES
from edgeyard.devices.model import ENGINE_PATTERN, FAMILY_PATTERN, TARGET_UID_PATTERN
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.errors import InvalidInput, reason_of
from edgeyard.scheduler.model.benchmark import (
    MAX_COUNT,
    BenchmarkType,
    Binding,
    FailureCategory,
)
from edgeyard.scheduler.model.tariff import checked_tariff
from edgeyard.simulator.wording import count_of

DAY_S = 86400.0
BUILT_IN = Path(__file__).parent / "scenarios"
_MAX_BOARDS = 100_000
_MAX_JOBS = 10_000_000
MAX_SECONDS = 10 * 366 * DAY_S
WEEK_HOURS = 168
_MAX_FACTOR = 1000.0
_MAX_BATCH = 10_000.0


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a scenario: immutable, and without unknown fields."""


class Faults(_Value, frozen=True, omit_defaults=True):
    """How often something fails; 0: never. Repair times and times between are exponential.

    Attributes:
        task_rate: Probability that a run ends with a fault of its board, which may be retried.
        model_rate: Probability that a benchmark fails on every board, because of its model.
        task_causes: Weights of the causes of faults by `task_rate`; empty: ``board_fault``.
        model_causes: The same of failures by `model_rate`; empty: ``user_model``.
        board_mean_between_s: Mean time from a repair of a board to its next fault.
        board_mean_repair_s: Mean time for which it is unhealthy.
        host_mean_between_s: The same of a host: its boards go offline and their runs are lost.
        host_mean_repair_s: Mean time for which it is offline.
        network_mean_between_s: The same of a host's network: its boards go offline in the twin
            while their runs continue.
        network_mean_repair_s: Mean time for which it is unreachable.
        lost_event_rate: Probability that the end of a run is not reported, and is found only when
            all runs are compared with the cluster.
        late_event_mean_s: Mean delay of the report of an end.
        stale_twin_s: For so long the twin shows the state of a board before it changed.
    """

    task_rate: float = 0.0
    model_rate: float = 0.0
    task_causes: Mapping[FailureCategory, float] = {}
    model_causes: Mapping[FailureCategory, float] = {}
    board_mean_between_s: float = 0.0
    board_mean_repair_s: float = 600.0
    host_mean_between_s: float = 0.0
    host_mean_repair_s: float = 1800.0
    network_mean_between_s: float = 0.0
    network_mean_repair_s: float = 120.0
    lost_event_rate: float = 0.0
    late_event_mean_s: float = 0.0
    stale_twin_s: float = 0.0


class BoardGroup(_Value, frozen=True, omit_defaults=True):
    """Boards of one family.

    Attributes:
        count: How many.
        uids: Their names (``target_uid``), as many as ``count``; empty: they are numbered.
        hosts: The host of each of ``uids``; empty: ``per_host`` of them share one.
        per_host: Boards on each host.
        speed: Run times are divided by it; 1: as the mix states them.
        speed_spread: Standard deviation of the logarithm of each board's own speed.
        engines: Supported benchmark types by engine.
        disturbance: By which share of its time a run is slowed by each other run that is under way
            on its host when it starts; such runs are not comparable. 0: hosts disturb no run.
        sharing: So many neighbours on one host share cores: one of them measures at a time.
        idle_w: Electric power of a board that waits, watts; with ``busy_w`` energy is reported.
        busy_w: The same of one that runs a benchmark; times the run time it is the energy that the
            run states, from which policies predict that of the next ones.
        faults: Instead of the scenario's.
        task_rates: Instead of the ``task_rate`` of the faults, by ``target_uid``.
        loading_s: Median time for which a run holds its board before it begins.
        loading_spread: Standard deviation of the logarithm of that time.
        overhead_s: Median time for which it holds its board after its end.
        overhead_spread: Standard deviation of the logarithm of that time.
        host_cpu_mhz: CPU of each host, by which Nomad chooses the host of a loose job; of a host
            with boards of several groups the highest counts. Likewise ``host_memory_mb``.
        host_memory_mb: Memory of each host.
        cpu_cores: The attribute ``cpu.cores``: cores that a benchmark may use; None: not published.
    """

    family: str
    count: int
    uids: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    per_host: int = 4
    speed: float = 1.0
    speed_spread: float = 0.0
    engines: Mapping[str, tuple[BenchmarkType, ...]] = msgspec.field(
        default_factory=lambda: {"ort": (BenchmarkType.TYPE1, BenchmarkType.TYPE2)}
    )
    ram_mib: int = 4096
    storage_mib: int = 32768
    disturbance: float = 0.0
    sharing: int = 1
    idle_w: float | None = None
    busy_w: float | None = None
    faults: Faults | None = None
    task_rates: Mapping[str, float] = {}
    loading_s: float = 0.0
    loading_spread: float = 0.0
    overhead_s: float = 0.0
    overhead_spread: float = 0.0
    host_cpu_mhz: float = 4000.0
    host_memory_mb: float = 8192.0
    cpu_cores: float | None = None


class JobKind(_Value, frozen=True, omit_defaults=True):
    """One kind of benchmark in a mix.

    Attributes:
        model: Name of the model; runs of the same model on the same board are alike.
        share: Weight among the kinds.
        run_s: Median run time on a board of speed 1.
        run_spread: Standard deviation of the logarithm of run times.
        family_run_s: Median run time on boards of a family, instead of ``run_s`` by its speed.
        board_run_s: Median run time on one board (``target_uid``), instead of all other fields.
        families: Each benchmark requests one of these; empty: any that can run it.
        pinned_share: Share that requests one board.
        deadline_s: Deadline after submission; None: no deadline.
        deadline_share: Share that has the deadline.
        start_s: Earliest start after submission; None: at once.
        user_budget: Maximum cost of an attempt in credits; None: none.
        user_time_s: Maximum run time of an attempt; None: the server's.
        queue_timeout_s: Maximum wait; None: only the deadline counts.
        job_completion_threshold: It may preempt a less urgent benchmark whose progress is below.
        binding: How firmly its job is bound to the board of the decision; None: the policy's.
        count: Boards on which each runs at the same time: so many benchmarks, a gang, that start
            in one cycle or not at all.
        model_bytes: Size of the model's file; None: not known.
    """

    model: str
    share: float = 1.0
    run_s: float = 60.0
    run_spread: float = 0.1
    family_run_s: Mapping[str, float] = {}
    board_run_s: Mapping[str, float] = {}
    families: tuple[str, ...] = ()
    pinned_share: float = 0.0
    engine: str = "ort"
    benchmark_type: BenchmarkType = BenchmarkType.TYPE1
    ram_mib: int = 0
    storage_mib: int = 0
    user_priority: int = 5
    user_budget: float | None = None
    deadline_s: float | None = None
    deadline_share: float = 1.0
    start_s: float | None = None
    user_time_s: float | None = None
    queue_timeout_s: float | None = None
    max_retries: int = 1
    nb_inference: int = 20
    preemptible: bool = True
    preemptible_measuring: bool = False
    job_completion_threshold: int | None = None
    binding: Binding | None = None
    count: int = 1
    model_bytes: int | None = None


class User(_Value, frozen=True, omit_defaults=True):
    """A user.

    Attributes:
        weight: Of the benchmarks that are this user's.
        share: Weight in fair sharing.
        max_running: Boards at a time; None: unlimited.
        credits: What runs may cost in all; None: unlimited.
    """

    name: str
    weight: float = 1.0
    share: float = 1.0
    max_running: int | None = None
    credits: float | None = None


class Arrivals(_Value, frozen=True, omit_defaults=True):
    """When benchmarks are submitted, and which.

    Attributes:
        process: ``poisson``; ``bernoulli`` (one with a fixed probability in each step);
            ``diurnal`` (Poisson, the rate follows the hour of the day); ``weekly`` (Poisson, the
            rate follows the hour of the week); ``bursts`` (Poisson, and many at once now and then).
        rate_per_hour: Mean rate over the whole time, without bursts.
        step_s: Step of ``bernoulli``.
        until_s: Nothing arrives later; None: until the end.
        amplitude: 0-1, of ``diurnal``: 1 means nothing at night and twice the rate at the peak.
        peak_hour: Hour of the day of the most arrivals.
        week: Of ``weekly``: 168 factors on the rate, by hour of the week from Monday 00:00 UTC.
        first_hour: Of ``weekly``: hour of the week at which the simulation begins.
        batch_size: Of ``weekly``: mean number of benchmarks that a user submits at once, of one
            kind (geometric); the mean rate includes them all.
        burst_every_s: Mean time between bursts.
        burst_size: Mean number of benchmarks of a burst.
        mix: Kinds of benchmarks.
        users: Who submits them.
    """

    rate_per_hour: float
    mix: tuple[JobKind, ...]
    process: Literal["poisson", "bernoulli", "diurnal", "weekly", "bursts"] = "poisson"
    step_s: float = 1.0
    until_s: float | None = None
    amplitude: float = 0.8
    peak_hour: float = 14.0
    week: tuple[float, ...] = ()
    first_hour: float = 0.0
    batch_size: float = 1.0
    burst_every_s: float = 3600.0
    burst_size: float = 50.0
    users: tuple[User, ...] = (User(name="user"),)


class PastFailure(_Value, frozen=True, omit_defaults=True):
    """An attempt that failed in a recorded history: the simulated one fails the same way.

    Attributes:
        after_s: How long it ran.
    """

    category: FailureCategory
    after_s: float


class JobRow(_Value, frozen=True, omit_defaults=True):
    """A benchmark that is stated one by one: from a recorded history or a trace.

    Attributes:
        submit_s: Time of its submission.
        run_s: Run time on a board of speed 1.
        family_run_s: Run time on boards of a family, instead of ``run_s`` by its speed.
        board_run_s: Run time on one board (``target_uid``), instead of both.
        target_uid: The board that it requests; "": any of its family.
        deadline_s: Time of its deadline, not after submission.
        start_s: Earliest start, not after submission.
        cancel_s: Its owner cancels it then, unless it has ended; None: never.
        failures: Its first attempts fail like this; the next one runs for ``run_s``.
        gang: All jobs with the same name start in one cycle or not at all; "": it starts by itself.
        around_s: For so long it holds its board besides its run, which no time limit cuts.
        model_bytes: Size of the model's file; None: not known.
        variant: Runs of the same model with another one are not alike.
    """

    job_id: str
    submit_s: float
    run_s: float
    family: str
    family_run_s: Mapping[str, float] = {}
    board_run_s: Mapping[str, float] = {}
    target_uid: str = ""
    model: str = ""
    engine: str = "ort"
    benchmark_type: BenchmarkType = BenchmarkType.TYPE1
    user: str = "user"
    ram_mib: int = 0
    storage_mib: int = 0
    user_priority: int = 5
    user_budget: float | None = None
    deadline_s: float | None = None
    start_s: float | None = None
    cancel_s: float | None = None
    user_time_s: float | None = None
    queue_timeout_s: float | None = None
    max_retries: int = 1
    nb_inference: int = 20
    preemptible: bool = True
    preemptible_measuring: bool = False
    job_completion_threshold: int | None = None
    binding: Binding | None = None
    failures: tuple[PastFailure, ...] = ()
    gang: str = ""
    around_s: float = 0.0
    model_bytes: int | None = None
    variant: str = ""


class PastRunRow(_Value, frozen=True, omit_defaults=True):
    """A run that ended before the beginning: predictions are made from it.

    Attributes:
        target_uid: The board that ran it, which need not be in the lab any more.
        ended_s: So long before the beginning it ended.
        run_s: None: it never started.
        failure: How it failed; None: it led to a result.
    """

    target_uid: str
    ended_s: float
    run_s: float | None
    failure: FailureCategory | None = None
    model: str = ""
    engine: str = "ort"
    benchmark_type: BenchmarkType = BenchmarkType.TYPE1
    user: str = "user"
    nb_inference: int = 20
    variant: str = ""


class LoadRow(_Value, frozen=True, omit_defaults=True):
    """How busy a host is from a time on, until its next row.

    It is what scorers and models see; run times do not depend on it.

    Attributes:
        host: Its name.
        cpu: Used share of its CPU time, 0-1; None, as ``memory``: it reports no load.
        memory: Share of its memory that is not available to programs, 0-1.
    """

    host: str
    at_s: float = 0.0
    cpu: float | None = None
    memory: float | None = None


class Change(_Value, frozen=True, omit_defaults=True):
    """A change at a stated time.

    Attributes:
        what: ``boards_join`` (the boards of ``group``); ``boards_leave`` (``count`` boards of
            ``family``; their runs are lost); ``load`` (arrivals are multiplied by ``factor`` from
            then on); ``drain`` and ``resume`` (boards of ``family``, or the board ``target_uid``).
        count: None: all.
    """

    at_s: float
    what: Literal["boards_join", "boards_leave", "load", "drain", "resume"]
    group: BoardGroup | None = None
    family: str = ""
    target_uid: str = ""
    count: int | None = None
    factor: float = 1.0


class Outage(_Value, frozen=True, omit_defaults=True):
    """A stated fault, for example from a recorded history.

    Attributes:
        what: ``board`` (unhealthy), ``host`` (off) or ``network`` (unreachable, its runs continue).
        name: The ``target_uid`` of the board, or the name of the host.
    """

    what: Literal["board", "host", "network"]
    name: str
    from_s: float
    to_s: float


class LeaseRow(_Value, frozen=True, omit_defaults=True):
    """A lease of a board.

    Attributes:
        user: Only this user's benchmarks may use the board; "": no benchmarks may (maintenance).
    """

    target_uid: str
    from_s: float
    to_s: float
    user: str = ""


class LabScenario(_Value, frozen=True, omit_defaults=True):
    """A lab of heterogeneous boards, one benchmark a board.

    Attributes:
        arrivals: What arrives by chance; None: only ``jobs``.
        jobs: What arrives as stated.
        rates: Credits for a second on a board, by family; 1 for others.
        tariff: Factors on the rates by hour of the day, 24 of them; empty: 1 at all hours.
        max_run_s: Time limit of runs that state none.
        cycle_s: Minimum time between two cycles: what happens in between is decided in one.
        compare_s: All runs are compared with the cluster so often: the end of a run whose event is
            lost is found then.
        history_jobs: Runs of the same mix that ended before the beginning: what predictions of run
            times can be learned from.
        past: Runs that ended before the beginning, as stated; the newest come last.
        loads: How busy hosts are; without a row a host reports no load.
        day_s: Time of day at the beginning, seconds since midnight UTC, below 86,400.
    """

    boards: tuple[BoardGroup, ...]
    arrivals: Arrivals | None = None
    jobs: tuple[JobRow, ...] = ()
    faults: Faults = Faults()
    outages: tuple[Outage, ...] = ()
    changes: tuple[Change, ...] = ()
    leases: tuple[LeaseRow, ...] = ()
    users: tuple[User, ...] = ()
    rates: Mapping[str, float] = {}
    tariff: tuple[float, ...] = ()
    max_run_s: float = 3600.0
    cycle_s: float = 1.0
    compare_s: float = 5.0
    history_jobs: int = 0
    past: tuple[PastRunRow, ...] = ()
    loads: tuple[LoadRow, ...] = ()
    day_s: float = 0.0


class NodeGroup(_Value, frozen=True, omit_defaults=True):
    """Equal nodes.

    Attributes:
        name: Nodes are numbered after it, unless ``node_ids`` names them.
        node_ids: Their names, as many as ``count``; empty: they are numbered.
        memory_mb: Of each node.
        cpu_load: Fraction of CPU that others use, 0-1.
        memory_load: Fraction of memory that others use, 0-1.
    """

    count: int = 1
    cpu_cores: int = 1
    memory_mb: int = 1024
    gpus: int = 0
    name: str = "node"
    node_ids: tuple[str, ...] = ()
    cpu_load: float = 0.0
    memory_load: float = 0.0


class NodeJob(_Value, frozen=True, omit_defaults=True):
    """A job of the world of nodes.

    Attributes:
        cpus: On each of its nodes.
        memory_mb: On each of its nodes.
        gpus: On each of its nodes: a whole number, or a share of one GPU.
        requested_s: Run time that its user stated; None: the real one.
    """

    job_id: str
    submit_s: float
    run_s: float
    cpus: float = 1.0
    memory_mb: float = 0.0
    gpus: float = 0.0
    nodes: int = 1
    requested_s: float | None = None
    user: str = ""


class PaperMix(_Value, frozen=True, omit_defaults=True):
    """Jobs of the paper: see `edgeyard.simulator.mixes.JobMix`, whose fields these are.

    Attributes:
        steps: Steps in which jobs arrive.
        step_s: Length of a step.
    """

    rate: float = 0.7
    resources: int = 2
    short_share: float = 0.8
    short: tuple[int, int] = (1, 3)
    long: tuple[int, int] = (10, 15)
    dominant: tuple[int, int] = (5, 10)
    other: tuple[int, int] = (1, 2)
    steps: int = 50
    step_s: float = 1.0


class NodesScenario(_Value, frozen=True, omit_defaults=True):
    """Nodes with several resources, and jobs that take parts of them.

    Attributes:
        jobs: What arrives as stated.
        mix: Jobs that are drawn; None: only ``jobs``.
        log: Path of an SWF log instead of both; "": none.
    """

    nodes: tuple[NodeGroup, ...]
    jobs: tuple[NodeJob, ...] = ()
    mix: PaperMix | None = None
    log: str = ""


class Scenario(_Value, frozen=True, omit_defaults=True):
    """What is simulated.

    Attributes:
        world: ``boards``: a lab, in ``lab``; ``nodes``: nodes with several resources, in ``nodes``.
        seed: Of arrivals and faults, unless the run states another one.
        duration_s: Jobs arrive until then; the simulation ends when all of them have ended.
        drain_s: They must have ended so long after that, otherwise the simulation is an error.
    """

    name: str
    world: Literal["boards", "nodes"]
    duration_s: float
    seed: int = 1
    drain_s: float = 30 * DAY_S
    description: str = ""
    tags: tuple[str, ...] = ()
    lab: LabScenario | None = None
    nodes: NodesScenario | None = None


def built_in_scenarios() -> tuple[str, ...]:
    """Return the names of the scenarios that Edgeyard brings."""
    return tuple(sorted(path.stem for path in BUILT_IN.glob("*.toml")))


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario from a TOML file (a JSON file if its name ends with ``.json``).

    Args:
        path: Of the file, or the name of a scenario that Edgeyard brings.

    Raises:
        InvalidInput: There is no such file, or it is wrong; names file, key and what is accepted.
    """
    known = built_in_scenarios()
    file = BUILT_IN / f"{path}.toml" if str(path) in known else Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        near = get_close_matches(str(path), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        accepted = f"a TOML or JSON file, or one of {', '.join(known)}"
        raise InvalidInput.at(str(path), f"there is no such file{hint}", accepted) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput.at(str(path), f"can't be read: {reason_of(error)}") from error
    if file.suffix == ".json":
        return scenario_from_json(text, source=str(path))
    return scenario_from_toml(text, source=str(path))


def scenario_from_toml(text: str, *, source: str = "scenario") -> Scenario:
    """Read a scenario from TOML.

    Raises:
        InvalidInput: It is wrong.
    """
    try:
        return _scenario(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput.at(source, f"is not valid TOML: {error}") from error


def scenario_from_json(
    data: str | bytes | Mapping[str, Any], *, source: str = "scenario"
) -> Scenario:
    """Read a scenario from JSON: a text, or what was read from one.

    Raises:
        InvalidInput: It is wrong.
    """
    if isinstance(data, Mapping):
        return _scenario(data, source)
    try:
        tree = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput.at(source, f"is not valid JSON: {error}") from error
    return _scenario(tree, source)


def scenario_to_json(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as a JSON object, without what has its default value."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(scenario))
    return found


def scenario_to_toml(scenario: Scenario) -> str:
    """Return a scenario as TOML, without what has its default value."""
    return tomli_w.dumps(scenario_to_json(scenario))


def scenario_hash(scenario: Scenario) -> str:
    """Return the SHA-256 of what is simulated: all but name, description and tags."""
    data = scenario_to_json(scenario)
    for key in ("name", "description", "tags"):
        data.pop(key, None)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _scenario(data: object, source: str) -> Scenario:
    try:
        scenario = msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        raise _invalid(source, str(error)) from error
    check_scenario(scenario, source=source)
    return scenario


def check_scenario(scenario: Scenario, *, source: str = "scenario") -> None:
    """Check what the types do not say, of a scenario that a program has built.

    Raises:
        InvalidInput: It is wrong.
    """
    for key, reason, accepted in _problems(scenario):
        raise InvalidInput.at(f"{source}: {key}", reason, accepted)


def _invalid(source: str, message: str) -> InvalidInput:
    reason, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".") or "scenario"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", reason):
        fields = _fields_at(key)
        near = get_close_matches(unknown[1], fields, n=1)
        reason = f"there is no field {unknown[1]!r}"
        reason += f"; did you mean {near[0]}?" if near else ""
        return InvalidInput.at(f"{source}: {key}", reason, ", ".join(fields))
    if missing := re.fullmatch(r"Object missing required field `(.*)`", reason):
        return InvalidInput.at(f"{source}: {key}", f"the field {missing[1]!r} is missing")
    if wrong := re.fullmatch(r"Expected `(.*)`, got `(.*)`", reason):
        return InvalidInput.at(f"{source}: {key}", f"is of type {wrong[2]}", wrong[1])
    if reason.startswith("Invalid enum value"):
        value = reason.removeprefix("Invalid enum value ")
        return InvalidInput.at(f"{source}: {key}", f"is {value}", ", ".join(_values_at(key)))
    return InvalidInput.at(f"{source}: {key}", reason)


_TYPE_OF_KEY: Mapping[str, type[_Value]] = {
    "scenario": Scenario,
    "lab": LabScenario,
    "nodes": NodesScenario,
    "lab.boards": BoardGroup,
    "lab.arrivals": Arrivals,
    "lab.arrivals.mix": JobKind,
    "lab.arrivals.users": User,
    "lab.users": User,
    "lab.jobs": JobRow,
    "lab.jobs.failures": PastFailure,
    "lab.faults": Faults,
    "lab.boards.faults": Faults,
    "lab.outages": Outage,
    "lab.changes": Change,
    "lab.changes.group": BoardGroup,
    "lab.leases": LeaseRow,
    "lab.past": PastRunRow,
    "lab.loads": LoadRow,
    "nodes.nodes": NodeGroup,
    "nodes.jobs": NodeJob,
    "nodes.mix": PaperMix,
}


def _fields_at(key: str) -> tuple[str, ...]:
    kind = _TYPE_OF_KEY.get(re.sub(r"\[[^]]*\]", "", key))
    return kind.__struct_fields__ if kind is not None else ()


def _values_at(key: str) -> tuple[str, ...]:
    """Return the names that a field accepts, which is of an enum or of literals."""
    table, _, field = re.sub(r"\[[^]]*\]", "", key).rpartition(".")
    kind = _TYPE_OF_KEY.get(table or "scenario")
    if kind is None or field not in kind.__struct_fields__:
        return ()
    return tuple(_names_of(get_type_hints(kind)[field]))


def _names_of(hint: Any) -> Iterator[str]:
    if hint is BenchmarkType:
        yield ACCEPTED_TYPES  # its members are Edgeyard's own types only
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        yield from (each.value for each in hint)
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for each in get_args(hint):
            yield from _names_of(each)


_Problem = tuple[str, str, str]
_COUNT = "a whole number from 1"


def _problems(scenario: Scenario) -> Iterator[_Problem]:
    """Yield what the types do not say: key, reason, what is accepted."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", scenario.name):
        yield (
            "name",
            f"is {scenario.name!r}",
            "up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        )
    yield from _numbers(scenario, "")
    yield from _above_zero(scenario, "", ("duration_s",))
    if scenario.seed < 0:
        yield "seed", f"is {scenario.seed}", "a whole number from 0"
    wanted, other = ("lab", "nodes") if scenario.world == "boards" else ("nodes", "lab")
    if getattr(scenario, wanted) is None:
        yield wanted, f"is missing: the world is {scenario.world!r}", f"a table [{wanted}]"
    if getattr(scenario, other) is not None:
        yield other, f"does not belong to the world {scenario.world!r}", f"a table [{wanted}]"
    if scenario.lab is not None:
        yield from _lab_problems(scenario.lab)
    if scenario.nodes is not None:
        yield from _nodes_problems(scenario.nodes)


def _numbers(value: _Value, path: str) -> Iterator[_Problem]:
    """Yield all numbers that are negative, too large or not finite."""
    for field in value.__struct_fields__:
        found = getattr(value, field)
        rows = found if isinstance(found, tuple) else (found,)
        for row, each in enumerate(rows):
            key = f"{path}{field}[{row}]" if isinstance(found, tuple) else f"{path}{field}"
            if isinstance(each, _Value):
                yield from _numbers(each, f"{key}.")
            elif isinstance(each, float) and not 0.0 <= each <= MAX_SECONDS:
                yield key, f"is {each:g}", f"a number from 0 to {MAX_SECONDS:g}"
            elif field.endswith(("_rate", "_share", "amplitude")) and each > 1:
                yield key, f"is {each:g}", "a number from 0 to 1"
            elif isinstance(each, Mapping):
                for name, number in each.items():
                    low = field == "rates" and number == 0.0  # a family may cost nothing
                    if isinstance(number, float) and not (low or 0.0 < number <= MAX_SECONDS):
                        yield f"{key}.{name}", f"is {number:g}", "a number above 0"


def _above_zero(value: _Value, path: str, fields: tuple[str, ...]) -> Iterator[_Problem]:
    for field in fields:
        number = getattr(value, field)
        if number is not None and not number > 0:
            yield f"{path}{field}", f"is {number:g}", "a number above 0"


def _families(lab: LabScenario) -> set[str]:
    groups = [*lab.boards, *(each.group for each in lab.changes if each.group is not None)]
    return {group.family for group in groups}


def _lab_problems(lab: LabScenario) -> Iterator[_Problem]:
    joining = [each.group for each in lab.changes if each.what == "boards_join"]
    if not lab.boards and not joining:
        yield "lab.boards", "is empty", "at least one group of boards"
    for row, group in enumerate(lab.boards):
        yield from _group_problems(group, f"lab.boards[{row}].")
    boards = sum(group.count for group in (*lab.boards, *(each for each in joining if each)))
    if boards > _MAX_BOARDS:
        yield "lab.boards", f"has {boards} boards", f"at most {_MAX_BOARDS}"
    families = _families(lab)
    yield from _above_zero(lab, "lab.", ("max_run_s", "cycle_s", "compare_s"))
    if lab.tariff:
        try:
            checked_tariff(lab.tariff)
        except ValueError as error:
            yield "lab.tariff", str(error), "24 numbers from 0 to 1000, or none"
    if not 0.0 <= lab.day_s < 86_400.0:
        yield "lab.day_s", f"is {lab.day_s:g}", "seconds since midnight: from 0, below 86400"
    if lab.history_jobs < 0:
        yield "lab.history_jobs", f"is {lab.history_jobs}", "a whole number from 0"
    if lab.arrivals is None and not lab.jobs:
        yield "lab", "has neither arrivals nor jobs", "[lab.arrivals] or [[lab.jobs]]"
    if lab.arrivals is not None:
        yield from _arrival_problems(lab.arrivals, families)
    yield from _job_problems(lab.jobs, families)
    yield from _fault_problems(lab.faults, "lab.faults.")
    for row, change in enumerate(lab.changes):
        path = f"lab.changes[{row}]."
        if change.what == "boards_join" and change.group is None:
            yield f"{path}group", "is missing", "the boards that join, as in lab.boards"
        if change.group is not None:
            yield from _group_problems(change.group, f"{path}group.")
        uids = change.target_uid.split("-")[0] if change.target_uid else change.family
        if change.what in ("boards_leave", "drain", "resume") and not uids:
            yield f"{path}family", f"is missing: {change.what} needs it", "family or target_uid"
        elif change.what in ("boards_leave", "drain", "resume") and uids not in families:
            yield f"{path}family", f"there is no family {uids!r}", ", ".join(sorted(families))
        if change.count is not None and change.count < 1:
            yield f"{path}count", f"is {change.count}", _COUNT
    for row, outage in enumerate(lab.outages):
        if outage.to_s <= outage.from_s:
            yield f"lab.outages[{row}].to_s", "is not after from_s", "a later time"
    for row, lease in enumerate(lab.leases):
        if lease.to_s <= lease.from_s:
            yield f"lab.leases[{row}].to_s", "is not after from_s", "a later time"
    for row, user in enumerate(lab.users):
        yield from _user_problems(user, f"lab.users[{row}].")
    yield from _past_problems(lab)
    yield from _load_problems(lab)


def _past_problems(lab: LabScenario) -> Iterator[_Problem]:
    if len(lab.past) > _MAX_JOBS:
        yield "lab.past", f"has {len(lab.past)} runs", f"at most {_MAX_JOBS}"
    for row, past in enumerate(lab.past):
        here = f"lab.past[{row}]."
        if not TARGET_UID_PATTERN.fullmatch(past.target_uid):
            accepted = "the name of a board such as rpi5-0001-0001"
            yield f"{here}target_uid", f"is {past.target_uid!r}", accepted
        if not ENGINE_PATTERN.fullmatch(past.engine):
            yield f"{here}engine", f"is {past.engine!r}", "the name of an engine such as ort"
        yield from _inference_problems(past.nb_inference, here)
        if row and past.ended_s > lab.past[row - 1].ended_s:
            yield f"{here}ended_s", "is more than that of the run before", "the oldest run first"


def _load_problems(lab: LabScenario) -> Iterator[_Problem]:
    for row, load in enumerate(lab.loads):
        here = f"lab.loads[{row}]."
        if (load.cpu is None) != (load.memory is None):
            yield f"{here}cpu", "goes with memory", "both or neither"
        for field in ("cpu", "memory"):
            if (getattr(load, field) or 0.0) > 1.0:
                yield f"{here}{field}", f"is {getattr(load, field):g}", "a number from 0 to 1"


def _inference_problems(count: int, here: str) -> Iterator[_Problem]:
    if not 1 <= count <= 2**31:
        yield f"{here}nb_inference", f"is {count}", f"{_COUNT} to {2**31}"


def _size_problems(model_bytes: int | None, here: str) -> Iterator[_Problem]:
    if model_bytes is not None and not 0 <= model_bytes < 1 << 63:
        yield f"{here}model_bytes", f"is {model_bytes}", "a whole number of bytes from 0"


def _group_problems(group: BoardGroup, path: str) -> Iterator[_Problem]:
    if not FAMILY_PATTERN.fullmatch(group.family):
        accepted = "up to 32 lower-case letters and digits, beginning with a letter"
        yield f"{path}family", f"is {group.family!r}", accepted
    for field in ("count", "per_host", "sharing", "ram_mib", "storage_mib"):
        if not 1 <= getattr(group, field) <= 2**31:
            yield f"{path}{field}", f"is {getattr(group, field)}", _COUNT
    if group.count > 9999:
        yield f"{path}count", f"is {group.count}", "at most 9999 boards in a group"
    yield from _above_zero(group, path, ("speed", "cpu_cores"))
    if group.uids and len(group.uids) != group.count:
        yield f"{path}uids", f"has {len(group.uids)} names", f"count = {group.count} of them"
    if group.hosts and len(group.hosts) != len(group.uids):
        yield (
            f"{path}hosts",
            f"has {len(group.hosts)} names",
            f"one for each of {len(group.uids)} uids",
        )
    for uid in group.uids:
        if not TARGET_UID_PATTERN.fullmatch(uid) or uid.split("-")[0] != group.family:
            yield f"{path}uids", f"has {uid!r}", f"names such as {group.family}-0001-0001"
    for uid, rate in group.task_rates.items():
        if uid not in group.uids:
            yield f"{path}task_rates", f"has {uid!r}", "boards that uids lists"
        elif rate > 1:
            yield f"{path}task_rates.{uid}", f"is {rate:g}", "a number above 0, up to 1"
    for engine, types in group.engines.items():
        if not ENGINE_PATTERN.fullmatch(engine) or not types:
            yield (
                f"{path}engines.{engine}",
                "is not an engine with its benchmark types",
                'ort = ["TYPE1"]',
            )
    if not group.engines:
        yield f"{path}engines", "is empty", 'ort = ["TYPE1"]'
    if (group.idle_w is None) != (group.busy_w is None):
        yield f"{path}idle_w", "is set without busy_w, or busy_w without it", "both or neither"
    if group.faults is not None:
        yield from _fault_problems(group.faults, f"{path}faults.")


def _fault_problems(faults: Faults, path: str) -> Iterator[_Problem]:
    for what in ("board", "host", "network"):
        if getattr(faults, f"{what}_mean_between_s"):
            yield from _above_zero(faults, path, (f"{what}_mean_repair_s",))
    for field in ("task_causes", "model_causes"):
        for cause in getattr(faults, field):
            if cause in _DECIDED_CAUSES:
                accepted = ", ".join(
                    each for each in FailureCategory if each not in _DECIDED_CAUSES
                )
                yield f"{path}{field}", f"has {cause.value!r}", accepted


_DECIDED_CAUSES = frozenset(
    {
        FailureCategory.PREEMPTED,
        FailureCategory.PREEMPTED_TOO_OFTEN,
        FailureCategory.REJECTED,
    }
)
"""Categories of failures that follow from decisions and are not drawn."""


def _arrival_problems(arrivals: Arrivals, families: set[str]) -> Iterator[_Problem]:
    path = "lab.arrivals."
    yield from _above_zero(arrivals, path, ("rate_per_hour", "step_s", "until_s"))
    if arrivals.process == "weekly":
        yield from _week_problems(arrivals, path)
    if arrivals.process == "bursts":
        yield from _above_zero(arrivals, path, ("burst_every_s", "burst_size"))
    if arrivals.process == "bernoulli" and arrivals.rate_per_hour * arrivals.step_s > 3600:
        accepted = f"at most {3600 / arrivals.step_s:g} with this step_s"
        yield f"{path}rate_per_hour", f"is {arrivals.rate_per_hour:g}", accepted
    if not arrivals.mix:
        yield f"{path}mix", "is empty", "at least one kind of benchmark"
    elif not any(kind.share > 0 for kind in arrivals.mix):
        yield f"{path}mix", "no kind has a share above 0", "at least one share above 0"
    if not arrivals.users or not any(user.weight > 0 for user in arrivals.users):
        yield f"{path}users", "no user has a weight above 0", "at least one weight above 0"
    for row, user in enumerate(arrivals.users):
        yield from _user_problems(user, f"{path}users[{row}].")
    for row, kind in enumerate(arrivals.mix):
        here = f"{path}mix[{row}]."
        yield from _above_zero(kind, here, ("run_s", "user_time_s", "queue_timeout_s"))
        yield from _request_problems(kind, here)
        if not 1 <= kind.count <= MAX_COUNT:
            yield f"{here}count", f"is {kind.count}", f"1 to {MAX_COUNT}"
        if kind.count > 1 and kind.pinned_share:
            yield (
                f"{here}pinned_share",
                "pins a gang to one board",
                "pinned_share = 0, or count = 1",
            )
        for family in (*kind.families, *kind.family_run_s):
            if family not in families:
                accepted = ", ".join(sorted(families))
                yield f"{here}families", f"there is no family {family!r}", accepted
        yield from _board_time_problems(kind.board_run_s, families, here)


def _board_time_problems(
    board_run_s: Mapping[str, float], families: set[str], here: str
) -> Iterator[_Problem]:
    for uid in board_run_s:
        if not TARGET_UID_PATTERN.fullmatch(uid) or uid.split("-")[0] not in families:
            accepted = f"names of boards of {', '.join(sorted(families))}"
            yield f"{here}board_run_s", f"has {uid!r}", accepted


def _week_problems(arrivals: Arrivals, path: str) -> Iterator[_Problem]:
    if len(arrivals.week) != WEEK_HOURS:
        yield f"{path}week", f"has {len(arrivals.week)} factors", f"{WEEK_HOURS} numbers from 0"
    elif not any(arrivals.week):
        yield f"{path}week", "has no factor above 0", "at least one factor above 0"
    elif max(arrivals.week) > _MAX_FACTOR:
        yield f"{path}week", f"has {max(arrivals.week):g}", f"numbers up to {_MAX_FACTOR:g}"
    if not arrivals.first_hour < WEEK_HOURS:
        yield f"{path}first_hour", f"is {arrivals.first_hour:g}", f"from 0, below {WEEK_HOURS}"
    if not 1.0 <= arrivals.batch_size <= _MAX_BATCH:
        yield f"{path}batch_size", f"is {arrivals.batch_size:g}", f"1 to {_MAX_BATCH:g}"


def _job_problems(jobs: tuple[JobRow, ...], families: set[str]) -> Iterator[_Problem]:
    if len(jobs) > _MAX_JOBS:
        yield "lab.jobs", f"has {len(jobs)} jobs", f"at most {_MAX_JOBS}"
    seen: set[str] = set()
    for row, job in enumerate(jobs):
        here = f"lab.jobs[{row}]."
        yield from _above_zero(job, here, ("run_s", "user_time_s", "queue_timeout_s"))
        yield from _request_problems(job, here)
        yield from _board_time_problems(job.board_run_s, families, here)
        if job.family not in families:
            accepted = ", ".join(sorted(families))
            yield f"{here}family", f"there is no family {job.family!r}", accepted
        if not job.job_id or job.job_id in seen:
            reason = f"{job.job_id!r} occurs twice" if job.job_id else "is empty"
            yield f"{here}job_id", reason, "another name for each job"
        seen.add(job.job_id)
    yield from _gang_problems(jobs)


_GANG_FIELDS = ("submit_s", "family", "start_s", "deadline_s", "queue_timeout_s")
"""Fields that must be the same in all jobs of a gang."""


def _gang_problems(jobs: tuple[JobRow, ...]) -> Iterator[_Problem]:
    gangs: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        if job.gang:
            gangs.setdefault(job.gang, []).append(row)
    for name, rows in gangs.items():
        first = jobs[rows[0]]
        here = f"lab.jobs[{rows[0]}].gang"
        if not 2 <= len(rows) <= MAX_COUNT:
            yield here, f"{name!r} has {count_of(len(rows), 'job')}", f"2 to {MAX_COUNT} jobs"
        for row in rows:
            if jobs[row].target_uid:
                yield (
                    f"lab.jobs[{row}].target_uid",
                    "is set for a job of a gang, whose boards the scheduler chooses",
                    "no target_uid",
                )
            for field in _GANG_FIELDS:
                if getattr(jobs[row], field) != getattr(first, field):
                    reason = f"differs from that of {first.job_id}, of the same gang {name!r}"
                    yield f"lab.jobs[{row}].{field}", reason, f"{getattr(first, field)}"


def _request_problems(description: JobKind | JobRow, here: str) -> Iterator[_Problem]:
    if not 1 <= description.user_priority <= 10:
        yield f"{here}user_priority", f"is {description.user_priority}", "1 to 10"
    if not ENGINE_PATTERN.fullmatch(description.engine):
        yield f"{here}engine", f"is {description.engine!r}", "the name of an engine such as ort"
    for field in ("ram_mib", "storage_mib", "max_retries"):
        if not 0 <= getattr(description, field) <= 2**31:
            yield f"{here}{field}", f"is {getattr(description, field)}", "a whole number from 0"
    yield from _inference_problems(description.nb_inference, here)
    yield from _size_problems(description.model_bytes, here)
    threshold = description.job_completion_threshold
    if threshold is not None and not 0 <= threshold <= 100:
        yield f"{here}job_completion_threshold", f"is {threshold}", "0 to 100"


def _user_problems(user: User, path: str) -> Iterator[_Problem]:
    if not user.name:
        yield f"{path}name", "is empty", "a name"
    yield from _above_zero(user, path, ("share",))
    if user.max_running is not None and user.max_running < 1:
        yield f"{path}max_running", f"is {user.max_running}", _COUNT


def _nodes_problems(nodes: NodesScenario) -> Iterator[_Problem]:
    if not nodes.nodes:
        yield "nodes.nodes", "is empty", "at least one group of nodes"
    named: set[str] = set()
    for row, group in enumerate(nodes.nodes):
        for field in ("count", "cpu_cores", "memory_mb"):
            if getattr(group, field) < 1:
                yield f"nodes.nodes[{row}].{field}", f"is {getattr(group, field)}", _COUNT
        if group.gpus < 0:
            yield f"nodes.nodes[{row}].gpus", f"is {group.gpus}", "a whole number from 0"
        if group.node_ids and len(group.node_ids) != group.count:
            reason = f"has {len(group.node_ids)} names"
            yield f"nodes.nodes[{row}].node_ids", reason, f"count = {group.count} of them"
        for node_id in group.node_ids:
            if not node_id or node_id in named:
                reason = f"{node_id!r} occurs twice" if node_id else "has an empty name"
                yield f"nodes.nodes[{row}].node_ids", reason, "another name for each node"
            named.add(node_id)
    if not nodes.jobs and nodes.mix is None and not nodes.log:
        yield "nodes", "has no jobs", "[[nodes.jobs]], [nodes.mix] or nodes.log"
    if nodes.log and (nodes.jobs or nodes.mix is not None):
        yield "nodes.log", "is set together with jobs or mix", "only one of log, jobs and mix"
    if nodes.mix is not None:
        yield from _mix_problems(nodes.mix)
    seen: set[str] = set()
    for row, job in enumerate(nodes.jobs):
        here = f"nodes.jobs[{row}]."
        yield from _above_zero(job, here, ("run_s", "requested_s"))
        for field, low in (("cpus", 0), ("memory_mb", 0), ("gpus", 0), ("nodes", 1)):
            if getattr(job, field) < low:
                accepted = f"a whole number from {low}"
                yield f"{here}{field}", f"is {getattr(job, field)}", accepted
        if not job.job_id or job.job_id in seen:
            reason = f"{job.job_id!r} occurs twice" if job.job_id else "is empty"
            yield f"{here}job_id", reason, "another name for each job"
        seen.add(job.job_id)


def _mix_problems(mix: PaperMix) -> Iterator[_Problem]:
    path = "nodes.mix."
    if not 0.0 < mix.rate <= 1.0:
        yield f"{path}rate", f"is {mix.rate:g}", "a number above 0, up to 1"
    for field in ("short", "long", "dominant", "other"):
        low, high = getattr(mix, field)
        if not 1 <= low <= high:
            yield f"{path}{field}", f"is [{low}, {high}]", "[min, max] with 1 <= min <= max"
    for field in ("steps", "resources"):
        if getattr(mix, field) < 1:
            yield f"{path}{field}", f"is {getattr(mix, field)}", _COUNT
    yield from _above_zero(mix, path, ("step_s",))
