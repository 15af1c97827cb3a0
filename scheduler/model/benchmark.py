"""The job description, the benchmark that it becomes, and the states of its life."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from edgeyard.devices.benchmark_types import BENCHMARK_TYPE_PATTERN, STANDARD_TYPES
from edgeyard.devices.runner.spec import (
    DEFAULT_LOAD_S,
    DEFAULT_PERCENTILES,
    DEFAULT_SOAK_WINDOW_S,
    LoadRules,
)
from edgeyard.scheduler.model.checks import CHECK_TAG


class BenchmarkType(StrEnum):
    """What a benchmark measures: one of Edgeyard's own types, or one that engines declare.

    The members are Edgeyard's own types, which iteration returns. Any other name that
    `edgeyard.devices.benchmark_types.BENCHMARK_TYPE_PATTERN` accepts is a value, too, the same
    object for the same name; every further name raises ValueError.
    """

    TYPE1 = "TYPE1"  # latency over nb_inference runs on random data
    TYPE2 = "TYPE2"  # accuracy over a dataset
    TYPE3 = "TYPE3"  # on-device training
    GENAI = "GENAI"  # tokens per second of a language model

    @property
    def is_declared(self) -> bool:
        """Whether engines declare what it means; otherwise it is one of Edgeyard's own."""
        return self.value not in STANDARD_TYPES

    @classmethod
    def _missing_(cls, value: object) -> BenchmarkType | None:
        """Return the type of a name that engines may declare; at most 96 are ever made."""
        if not isinstance(value, str) or not BENCHMARK_TYPE_PATTERN.fullmatch(value):
            return None
        made = str.__new__(cls, value)
        made._name_ = made._value_ = value
        found = cls._value2member_map_.setdefault(value, made)
        assert isinstance(found, cls)
        return found


class Status(StrEnum):
    """The status of a benchmark; phase, waiting reason and failure give details."""

    PENDING = "pending"  # in Edgeyard's queue
    SCHEDULED = "scheduled"  # a board is chosen, and the job is dispatched to the cluster
    RUNNING = "running"  # the task runs, or its result is being uploaded
    COMPLETED = "completed"  # the task succeeded, and its result is stored
    FAILED = "failed"  # it will not be tried again
    CANCELLED = "cancelled"  # its owner or an operator ended it
    EXPIRED = "expired"  # its deadline or queue time-out passed


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.EXPIRED})
LIVE = frozenset(Status) - TERMINAL

ALLOWED_MOVES: Mapping[Status, frozenset[Status]] = {
    Status.PENDING: frozenset(
        {Status.SCHEDULED, Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.EXPIRED}
    ),
    Status.SCHEDULED: frozenset(
        {
            Status.PENDING,
            Status.RUNNING,
            Status.COMPLETED,
            Status.FAILED,
            Status.CANCELLED,
            Status.EXPIRED,
        }
    ),
    Status.RUNNING: frozenset(
        {Status.PENDING, Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.EXPIRED}
    ),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
    Status.EXPIRED: frozenset(),
}
"""Allowed changes of status. Scheduled → completed: a task so short that running was not seen.
Pending → completed: the result arrived after its attempt had been given up."""


class WaitingReason(StrEnum):
    """Why a pending benchmark is not on a board."""

    PRIORITY = "priority"  # others come before it
    FETCHING = "fetching"  # its files are being downloaded
    BOARD_BUSY = "board_busy"
    FASTER_BOARD = "faster_board"  # the plan holds it back for a board that is busy
    QUIET_HOST = "quiet_host"  # the plan holds it back until its host is quiet
    CHEAP_HOUR = "cheap_hour"  # the plan holds it back until credits cost less
    NO_SUCH_FAMILY = "no_such_family"
    ENGINE_MISSING = "engine_missing"
    TYPE_UNSUPPORTED = "type_unsupported"
    TYPE_UNDECLARED = "type_undeclared"  # listed, but its host does not declare what it means
    MEMORY = "memory"
    STORAGE = "storage"
    BOARD_UNHEALTHY = "board_unhealthy"
    BOARD_OFFLINE = "board_offline"
    BOARD_DRAINED = "board_drained"  # taken out by an operator
    RESERVED = "reserved"  # leased, or for a start that is stated or that waits for long
    FILTER_FAILED = (
        "filter_failed"  # a filter of the policy crashed, so it is unknown what it admits
    )
    QUOTA = "quota"
    BUDGET = "budget"
    HELD = "held"
    OWN_POLICY = "own_policy"  # a policy of its own decides it; seen by other policies alone
    START_TIME = "start_time"  # not due yet
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    CLUSTER_UNREACHABLE = "cluster_unreachable"  # also: the twin is too old to decide on
    # a constraint of the user's own matches no board, or the cluster does not start its job
    CLUSTER_CONSTRAINT = "cluster_constraint"
    UNKNOWN_BOARD = "unknown_board"  # hosts report it, and the inventory does not name it


class FailureCategory(StrEnum):
    """The cause of a failure, which decides who can act."""

    USER_MODEL = "user_model"
    USER_INPUT = "user_input"
    ENGINE_UNSUPPORTED = "engine_unsupported"
    OUT_OF_MEMORY = "out_of_memory"
    BOARD_FAULT = "board_fault"
    THERMAL = "thermal"
    NETWORK = "network"
    CLUSTER = "cluster"
    UPLOAD = "upload"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"  # of an attempt: stopped for a more urgent one, uses up no retry
    PREEMPTED_TOO_OFTEN = "preempted_too_often"
    REJECTED = "rejected"  # its job is not what was decided, or the cluster refuses it
    UNKNOWN = "unknown"


RETRYABLE = frozenset(
    {
        FailureCategory.BOARD_FAULT,
        FailureCategory.THERMAL,
        FailureCategory.NETWORK,
        FailureCategory.CLUSTER,
        FailureCategory.UPLOAD,
    }
)
"""Failures that are retried; others would fail again in the same way."""

ABSENCE = frozenset(
    {
        FailureCategory.BOARD_FAULT,
        FailureCategory.NETWORK,
        FailureCategory.CLUSTER,
        FailureCategory.UPLOAD,
    }
)
"""Failures for lack of news of a task. They say nothing about its measurement, so a valid result
counts whenever it arrives."""


class Binding(StrEnum):
    """How much of the choice of the board is left to the cluster."""

    LOOSE = "loose"  # family, engine and type; memory and storage where they were stated
    FILTERED = "filtered"  # all requirements, and an allow-list of boards
    STRICT = "strict"  # one board


class IfUnavailable(StrEnum):
    """What happens to a benchmark whose pinned board is unavailable."""

    RESCHEDULE = "reschedule"
    NOTIFY = "notify"


class CronBy(StrEnum):
    """Who starts the benchmarks of a schedule."""

    EDGEYARD = "edgeyard"  # each firing joins the queue
    NOMAD = "nomad"  # a periodic job; Nomad chooses each run's board, and its moment


class FileRole(StrEnum):
    """The purpose of a benchmark's file."""

    MODEL = "model"
    LANGUAGE_MODEL = "language_model"  # of GENAI and ort-genai: the archive of a folder
    DATASET = "dataset"
    ODT_CONFIG = "odt_config"

    @property
    def is_model(self) -> bool:
        """Whether it is what the benchmark loads and measures."""
        return self in (FileRole.MODEL, FileRole.LANGUAGE_MODEL)

    @property
    def field(self) -> str:
        """The field of the job description that names such a file."""
        return "model" if self.is_model else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A further condition on the board, rendered inside the device block, or on its node.

    Attributes:
        attribute: Device attribute without its ``${device.attr.`` wrapping, e.g. ``memory.ram``, or
            an attribute of the node as Nomad spells it, e.g. ``${attr.cpu.arch}``.
        operator: One of `edgeyard.devices.operators.OPERATORS`.
        value: Compared as Nomad compares: numbers as numbers, anything else as text.
    """

    attribute: str
    operator: str
    value: str


MAX_COUNT = 64
"""Boards on which one job description runs at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """A wish about the board or its node: others run the benchmark, too.

    Attributes:
        attribute: As in `Constraint`, like the next two.
        operator: One of `edgeyard.devices.operators.OPERATORS`.
        value: Compared as Nomad compares.
        weight: -100 to 100, not 0, against its other affinities; below 0: boards that do not meet
            it are preferred.
    """

    attribute: str
    operator: str
    value: str
    weight: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A wish to spread the benchmarks of a campaign over the values of an attribute.

    Attributes:
        attribute: As in `Constraint`.
        weight: 1 to 100, against its other spreads.
        targets: Values with the percentage of the benchmarks that each shall get; all other values
            share the rest equally. Empty: every value gets the same share.
    """

    attribute: str
    weight: int = 50
    targets: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """The job description that a user submitted, after all checks.

    Names are the platform's. Sizes are bytes, durations seconds, times aware UTC. ``submit_time``,
    ``user_id`` and the server-made ``benchmark_id`` live on `Benchmark`.

    Attributes:
        model: File name of the model.
        model_url: URL of the model; None if it is an uploaded file.
        runtime: Engine name.
        target: Family; None only if ``target_uid`` implies it.
        odt_config: File name, URL or the configuration itself (TYPE3).
        user_time_s: Maximum run time of one attempt; None: the server's default.
        queue_timeout_s: Maximum wait until its task starts; None: only the deadline counts.
        precision: Relative half-width of the confidence interval of the p50 that ends a TYPE1
            measurement, e.g. 0.02; None: ``nb_inference`` runs.
        soak_s: Duration of a soak of TYPE1; None: no soak.
        soak_window_s: Length of its windows, each of which has a number.
        concurrency: Numbers of concurrent callers that TYPE1 is measured with, rising; empty: one
            caller.
        load: Kind of a load of TYPE1 by LoadGen's rules; None: none.
        load_bound_s: Bound of its latency.
        load_percentile: At which the bound holds; None: the default of the kind.
        load_duration_s: Of a trial, at least.
        load_rate: Rate of arrivals, 1/s; None: the largest that keeps the bound is searched.
        load_seed: Of the arrivals.
        preemptible: It may be preempted.
        preemptible_measuring: It may be preempted while it measures or trains, also where the
            policy spares those that do.
        job_completion_threshold: 0-100: it may preempt a benchmark of lower priority whose
            progress is below this; None: it does not preempt.
        start_time: Earliest start; None: at once.
        version_tag: The engine's version, or its beginning: other boards do not run it.
        cron: Crontab of five fields, or of Nomad's seven, in UTC; each time submits a benchmark.
        prohibit_overlap: A time of the crontab submits none while the previous benchmark lives.
        cron_by: Who acts at the times of the crontab.
        input: Per input name: ``{"shape": [...], "low": x, "high": y, "integers": bool}``.
        name: Given by the user; also that of its campaign. "": none.
        series: Lineage whose results are compared over time. "": the schedule's, otherwise the
            model's name.
        git_commit: Commit that the model was built from. "": not stated.
        link: URL of more information, e.g. of a CI run. "": none.
        parameters: Of the engine, e.g. ``{"threads": 2}``.
        count: Boards on which it runs at the same time, 1 to `MAX_COUNT`: as many benchmarks of
            one campaign, each on a board of its own, which start together or not at all.
        keep_outputs: TYPE1 runs on the dataset's arrays instead of random data, and the model's
            outputs are part of the result.
        profile_layers: The time of each layer is part of the result (TYPE1).
        extra: Stored; read by scorers that know it.
    """

    model: str
    runtime: str
    benchmark_type: BenchmarkType
    model_url: str | None = None
    dataset: str | None = None
    dataset_urls: tuple[str, ...] = ()
    odt_config: str | Mapping[str, object] | None = None
    target: str | None = None
    target_uid: str | None = None
    ram: int = 0
    storage: int = 0
    user_priority: int = 5
    user_budget: float | None = None
    user_time_s: float | None = None
    deadline: datetime | None = None
    max_retries: int = 1
    nb_inference: int = 20
    precision: float | None = None
    soak_s: float | None = None
    soak_window_s: float = DEFAULT_SOAK_WINDOW_S
    concurrency: tuple[int, ...] = ()
    load: str | None = None
    load_bound_s: float | None = None
    load_percentile: float | None = None
    load_duration_s: float = DEFAULT_LOAD_S
    load_rate: float | None = None
    load_seed: int = 0
    preemptible: bool = True
    preemptible_measuring: bool = False
    job_completion_threshold: int | None = None
    start_time: datetime | None = None
    cron: str | None = None
    prohibit_overlap: bool = False
    cron_by: CronBy = CronBy.EDGEYARD
    version_tag: str = ""
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    spreads: tuple[Spread, ...] = ()
    binding: Binding | None = None
    if_unavailable: IfUnavailable = IfUnavailable.RESCHEDULE
    tags: tuple[str, ...] = ()
    name: str = ""
    series: str = ""
    git_commit: str = ""
    link: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    keep_outputs: bool = False
    profile_layers: bool = False
    input: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    queue_timeout_s: float | None = None
    count: int = 1
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def model_role(self) -> FileRole:
        """The role of its model's file."""
        asks_for_tokens = self.benchmark_type is BenchmarkType.GENAI
        if asks_for_tokens or self.runtime == "ort-genai":
            return FileRole.LANGUAGE_MODEL
        return FileRole.MODEL

    @property
    def load_rules(self) -> LoadRules | None:
        """The load by LoadGen's rules; None: there is none."""
        if self.load is None:
            return None
        return LoadRules(
            kind=self.load,
            percentile=self.load_percentile or DEFAULT_PERCENTILES[self.load],
            duration_s=self.load_duration_s,
            bound_s=self.load_bound_s,
            rate=self.load_rate,
            seed=self.load_seed,
        )

    @property
    def family(self) -> str:
        """The family that is asked for: ``target``, or the family of ``target_uid``."""
        if self.target is not None:
            return self.target
        return (self.target_uid or "").split("-", 1)[0]

    @property
    def field_constraints(self) -> Mapping[str, Constraint]:
        """Constraints that follow from other fields than ``constraints``, by these fields.

        Filters, the job, the checks at submission and explanations treat them like stated ones.
        """
        found = {}
        if self.version_tag:
            version = re.escape(self.version_tag.removeprefix("v"))
            found["version_tag"] = Constraint(
                attribute=f"engine.{self.runtime}.version",
                operator="regexp",
                value=f"^v?{version}([.+-].*)?$",
            )
        return found

    @property
    def all_constraints(self) -> tuple[Constraint, ...]:
        """The stated constraints, and after them those of other fields."""
        return (*self.constraints, *self.field_constraints.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFile:
    """A file that a benchmark needs.

    Attributes:
        role: Its purpose.
        position: Order among files of one role.
        name: File name that the task sees, without folders.
        url: URL from which it is downloaded; None if it was uploaded.
        sha256: Hash of its content; None until downloaded.
        size_bytes: None until downloaded.
    """

    role: FileRole
    position: int
    name: str
    url: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None


def model_of(files: Sequence[BenchmarkFile]) -> BenchmarkFile | None:
    """Return the model among the files of a benchmark; None where they have none."""
    return next((file for file in files if file.role.is_model), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """Why a benchmark waits: a stable code, and a sentence for people.

    Attributes:
        by_reservation: A board is free, but reserved for a benchmark before it. It is known
            within a cycle, and not stored.
    """

    reason: WaitingReason
    sentence: str
    by_reservation: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something failed: a stable category, and a sentence for the person who can act."""

    category: FailureCategory
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A submitted job description, and its state.

    Attributes:
        version: Counts changes; saving an old version is a conflict.
        priority: Last computed priority, 1-100; None before the first cycle.
        phase: Phase of the running attempt, e.g. ``measuring``; None otherwise.
        progress: Progress of the running attempt, 0-100; None otherwise.
        progress_message: What the running attempt reports with its progress, for people, e.g. how
            well its number is known so far; None otherwise.
        target_uid: Board of the newest attempt; None until it is known.
        held: Not placed until it is released.
        unpinned: Its pinned board was unavailable, so any board that fits may run it.
        unavailable_since: Since when its pinned board is unavailable; None while it is available.
        lost_in_a_row: Number of last attempts that were lost with the server or with their host,
            since the server last died while this benchmark was not running.
        retry_of: The benchmark that this one repeats.
        user_priority: Changed after submission; None: the description's.
        schedule_id: The schedule that submitted it; None: a user did.
        cleared_uid: Board that was cleared for it by a preemption, reserved for it until it gets a
            board; None: none was.
        stopped_by: The user who holds it, or has cancelled it; None: nobody, or Edgeyard itself.
        stopped_reason: Why, as they stated it; None: they did not.
        started_at: Start of the newest attempt's task.
        work: Digest of what it measured beyond model and engine; "" until it has completed.
    """

    benchmark_id: str
    user_id: str
    description: JobDescription
    submit_time: datetime
    status: Status = Status.PENDING
    campaign_id: str | None = None
    files: tuple[BenchmarkFile, ...] = ()
    waiting: WaitReason | None = None
    failure: Failure | None = None
    priority: int | None = None
    phase: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    target_uid: str | None = None
    held: bool = False
    unpinned: bool = False
    retry_of: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    version: int = 0
    user_priority: int | None = None
    unavailable_since: datetime | None = None
    lost_in_a_row: int = 0
    schedule_id: str | None = None
    cleared_uid: str | None = None
    stopped_by: str | None = None
    stopped_reason: str | None = None
    work: str = ""

    @property
    def series(self) -> str | None:
        """Name of its series: as stated, otherwise its schedule's, otherwise the model's name.

        None for the runs of a check, which belong to no series.
        """
        if CHECK_TAG in self.description.tags:
            return None
        of_schedule = self.schedule_id and (self.description.name or self.schedule_id)
        return self.description.series or of_schedule or self.description.model

    @property
    def model_sha256(self) -> str | None:
        """Hash of its model; None until that is downloaded."""
        model = model_of(self.files)
        return None if model is None else model.sha256

    @property
    def check_id(self) -> str | None:
        """The check that it is a run of, which its last tag names; None: of none."""
        return self.description.tags[-1] if CHECK_TAG in self.description.tags[:-1] else None

    @property
    def gang_id(self) -> str | None:
        """The campaign whose benchmarks run at the same time with it; None: it runs by itself."""
        return self.campaign_id if self.description.count > 1 else None

    @property
    def waits_for_gang(self) -> bool:
        """Whether it may start only together with all others of its gang: none has started."""
        return self.gang_id is not None and self.target_uid is None
