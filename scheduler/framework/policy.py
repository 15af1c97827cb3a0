"""A policy: the named, versioned bundle of everything that a decision depends on."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from edgeyard.devices.benchmark_types import BENCHMARK_TYPE_PATTERN
from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.baselines import BASELINES, baseline_text
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding

_T = TypeVar("_T")

_NOMAD_GAP = 10
"""Nomad preempts only across a difference of priority of at least this."""

_STATED_TYPES = (BenchmarkType.TYPE1, BenchmarkType.TYPE2, BenchmarkType.TYPE3)
"""Types whose points each policy states; any other one has the fewest of the stated ones."""

_MAX_PREEMPTIONS = 3

_MIN_RUN_S = 10.0
"""To throw work away at once would gain nothing."""

_GUARD_S = 86400.0
"""No benchmark is overtaken after a day's wait."""

_RESERVATION_LEAD_S = 86400.0
"""A start in a week does not keep a benchmark waiting that has waited for a day."""

_PREDICTION_WAIT_S = 300.0
"""A prediction that no board is quick enough is put to the test after this wait."""

_HOLD_QUANTILE = 0.95
"""One run in twenty lasts longer than it counts when a reserved start is near."""

_BOOKING_GRACE_S = 30.0
"""A booking may start half a minute late, so that its board need not stand idle for minutes."""

_MIN_HOLD_GAIN = 0.05
"""Waiting for a board that saves less than a twentieth is not worth it."""

_BUDGET_S = 1.0
"""Default time budget of a scorer, during which boards are idle."""

MAX_JOINT = 1000
"""Benchmarks that are ever assigned jointly: 1,000 to 1,000 boards take a tenth of a second."""

_BUILT_IN = Path(__file__).parent / "policies"


class PriorityMode(StrEnum):
    """How a policy computes priorities."""

    COMPUTED = "computed"  # by the formula
    FIFO = "fifo"  # one constant for all: order of submission


_ENERGY_SCORER, _COST_AGGREGATOR = "frugal", "expected_cost"
"""The scorer whose weight is ``energy_weight_s_per_j``, and the aggregator that counts joules."""


class Backfill(StrEnum):
    """Which jobs may start before the first, where jobs take several nodes or parts of them.

    In a lab, where each benchmark takes one board, it has no effect.
    """

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"
    ANY = "any"


class Planner(StrEnum):
    """Who plans board and start of each benchmark.

    `MAPPINGS` are the heuristics of `edgeyard.scheduler.decide.mapping`; `EXPECTED_COST` is
    `edgeyard.scheduler.decide.planning`.
    """

    MET = "met"
    MCT = "mct"
    MIN_MIN = "min_min"
    MAX_MIN = "max_min"
    SUFFERAGE = "sufferage"
    ILP_COMPLETION = "ilp_completion"
    ILP_DEADLINES = "ilp_deadlines"
    ILP_FAIRNESS = "ilp_fairness"
    EXPECTED_COST = "expected_cost"


MAPPINGS = (
    Planner.MET,
    Planner.MCT,
    Planner.MIN_MIN,
    Planner.MAX_MIN,
    Planner.SUFFERAGE,
    Planner.ILP_COMPLETION,
    Planner.ILP_DEADLINES,
    Planner.ILP_FAIRNESS,
)
"""Planners that compare expected completion times: heuristics, and integer programmes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritySettings:
    """Constants of the formula; see `edgeyard.scheduler.decide.priority`.

    Attributes:
        types: Points of each of Edgeyard's own benchmark types, and of others that are stated.
        user_points: For each point of user priority.
        age_step_s: Waiting this long gives a point; 0: waiting gives none.
        deadline_points: Most that a near deadline gives.
        deadline_horizon_s: Slack from which on a deadline gives nothing.
        fifo: Of all benchmarks in FIFO mode.
    """

    types: Mapping[BenchmarkType, int]
    user_points: float
    age_step_s: float
    deadline_points: float
    deadline_horizon_s: float
    fifo: int

    def type_points(self, benchmark_type: BenchmarkType) -> int:
        """Return the points of a type; one that is not stated has the fewest of those that are."""
        points = self.types.get(benchmark_type)
        return min(self.types.values()) if points is None else points


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerChoice:
    """A scorer, how much its answer counts, and its time for one.

    Attributes:
        weight: Before anything was learned; 0: it is asked and rated, but does not count.
        options: Handed to the scorer when it is made, by name; each scorer has its own.
        file: ``/path/to/file.py:attribute`` of one that is not installed; it runs in a process of
            its own.
        url: Of one that is a service: see `edgeyard.benchmark_api.remote_scorer`.
    """

    name: str
    weight: float
    budget_s: float = _BUDGET_S
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    file: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A validated policy: the plugins and rules by which a cycle decides.

    Attributes:
        energy_weight_s_per_j: What a joule of a run is worth, in seconds of its time: above 0 it is
            the weight of the scorer ``frugal``, which is one of ``scorers`` then.
        binding: Of benchmarks that state none; None: strict while the twin is fresh (see
            ``fresh_age_s``), else filtered.
        fresh_age_s: Up to this age of the twin a board is named.
        twin_max_age_s: Past this age of the twin the filter ``staleness`` lets nothing be placed.
        strict_priority: Of strictly bound benchmarks; None: their own.
        fallback: Scorer that answers when no other does; None: all boards are equal then.
        preemption_margin: Least difference of priority between a benchmark and its victim.
        preempting_types: Types whose benchmarks shall be able to preempt those of others.
        max_preemptions: A benchmark that was preempted this often is not preempted again by the
            scheduler; 0: the scheduler does not preempt.
        guard_s: See `edgeyard.scheduler.framework.batch.Queue`.
        min_run_s: No benchmark is preempted before it ran for so long (10 s unless the policy says
            otherwise); time that it waited for files on its board counts.
        spare_measuring: None is preempted while it measures, unless its description allows it;
            otherwise the threshold of the one that preempts decides alone.
        max_joint_jobs: Queues of up to so many benchmarks get their boards all at once, see
            `edgeyard.scheduler.decide.assign`; 0: always one after the other.
        explore_share: Share of the decisions that take a free board at random, see
            `edgeyard.scheduler.decide.explore`.
        planner: Who plans boards and starts, and may hold a benchmark back although a board is
            free; None: each gets a free board at once, where there is one.
        min_hold_gain: Share of what starting now costs that ``expected_cost`` has to save to hold a
            benchmark back.
        quiet_s: What a run costs for each other one that is under way on its host when it starts,
            seconds: of ``expected_cost`` alone.
        backfill: Of logs and nodes in the simulator; without effect in a lab.
        hold_quantile: Of predicted run times: for so long a board counts as taken when a reserved
            start or a lease is near; 1: for as long as the run may take.
        booking_grace_s: By how much later a stated start or a lease may begin because of a run that
            was placed before, seconds; longer delays happen as often as ``hold_quantile`` states.
        cool_down_s: How long a board rests after a run before it measures again.
        reservation_lead_s: How long before it a stated start counts against benchmarks that have
            waited for ``guard_s``: these get a reservation of their own, before all starts that
            are claimed later.
        prediction_wait_s: Longest wait of a benchmark that follows from a prediction alone (that
            no board is quick enough for its ``user_time``, deadline or budget), seconds; then it is
            tried. With a deadline it is tried after half of the time until then at the latest.
    """

    name: str
    version: int
    queue_policy: str
    filters: tuple[str, ...]
    scorers: tuple[ScorerChoice, ...]
    aggregator: str
    binding: Binding | None
    fresh_age_s: float
    twin_max_age_s: float
    priority_mode: PriorityMode
    priority: PrioritySettings
    strict_priority: int | None = None
    fallback: str | None = None
    evaluator: str | None = None
    preemption_margin: int = _NOMAD_GAP
    preempting_types: Mapping[BenchmarkType, frozenset[BenchmarkType]] = field(default_factory=dict)
    max_preemptions: int = _MAX_PREEMPTIONS
    guard_s: float = _GUARD_S
    min_run_s: float = _MIN_RUN_S
    spare_measuring: bool = False
    max_joint_jobs: int = 0
    explore_share: float = 0.0
    planner: Planner | None = None
    min_hold_gain: float = _MIN_HOLD_GAIN
    quiet_s: float = 0.0
    backfill: Backfill = Backfill.NONE
    hold_quantile: float = _HOLD_QUANTILE
    booking_grace_s: float = _BOOKING_GRACE_S
    cool_down_s: float = 0.0
    reservation_lead_s: float = _RESERVATION_LEAD_S
    prediction_wait_s: float = _PREDICTION_WAIT_S
    energy_weight_s_per_j: float = 0.0


def built_in_policies() -> tuple[str, ...]:
    """Return the names of the policies that Edgeyard brings."""
    return tuple(sorted(path.stem for path in _BUILT_IN.glob("*.toml")))


def load_policy(name_or_path: str) -> Policy:
    """Return a policy that Edgeyard brings, by name, or one from a TOML file.

    Raises:
        ConfigError: There is no such policy, or it is wrong; every mistake with its place.
    """
    return parse_policy(read_policy(name_or_path), source=name_or_path)


def read_policy(name_or_path: str) -> str:
    """Return the TOML of a policy that Edgeyard brings, by name, of a baseline, or of a file.

    Raises:
        ConfigError: There is no such policy.
    """
    known = built_in_policies()
    if name_or_path in BASELINES:
        return baseline_text(name_or_path, read_policy("default"))
    path = _BUILT_IN / f"{name_or_path}.toml" if name_or_path in known else Path(name_or_path)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            [
                f"policy {name_or_path}: there is no such file, and no policy of this name; "
                f"policies: {', '.join((*known, *BASELINES))}"
            ]
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"policy {name_or_path}: {error}"]) from error


def parse_policy(text: str, *, source: str = "policy") -> Policy:
    """Return a policy from TOML.

    Raises:
        ConfigError: Every mistake with its place.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{source}: is not a TOML file: {error}"]) from error
    problems: list[str] = []
    policy = _policy(_Table(data, "", problems))
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return policy


class _Table:
    """A TOML table that is read key by key; what is wrong is gathered, what is unread is wrong."""

    def __init__(self, data: Mapping[str, object], path: str, problems: list[str]) -> None:
        self._data = data
        self._path = path
        self._problems = problems
        self._read: set[str] = set()

    def wrong(self, key: str, reason: str) -> None:
        self._problems.append(f"{self._path}{key}: {reason}")

    def _get(self, key: str, default: object) -> object:
        self._read.add(key)
        value = self._data.get(key, default)
        if value is ...:
            self.wrong(key, "is missing")
        return value

    def text(self, key: str, default: object = ...) -> str:
        value = self._get(key, default)
        if isinstance(value, str) and value:
            return value
        if value is not ... and value is not default:
            self.wrong(key, "is not text")
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key, ...)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            for each in sorted({each for each in value if value.count(each) > 1}):
                self.wrong(key, f"{each!r} is named twice")
            return tuple(value)
        if value is not ...:
            self.wrong(key, "is not a list of names")
        return ()

    def whole(self, key: str, low: int, high: int, default: object = ...) -> int:
        value = self._get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if value is not ... and value is not None:
            self.wrong(key, f"is not a whole number from {low} to {high}")
        return low

    def number(self, key: str, low: float, high: float = math.inf, default: object = ...) -> float:
        value = self._get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if math.isfinite(value) and low <= value <= high:
                return float(value)
        elif value is ...:
            return low
        self.wrong(key, f"is not a number from {low:g}" + (f" to {high:g}" if high < 1e9 else ""))
        return low

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key, default)
        if isinstance(value, bool):
            return value
        self.wrong(key, "is neither true nor false")
        return default

    def one_of(self, key: str, accepted: tuple[str, ...]) -> str:
        value = self._get(key, ...)
        if isinstance(value, str) and value in accepted:
            return value
        if value is not ...:
            self.wrong(key, f"is not one of {', '.join(accepted)}")
        return accepted[0]

    def names(self) -> list[str]:
        return sorted(self._data)

    def has(self, key: str) -> bool:
        return key in self._data

    def table(self, key: str) -> _Table:
        value = self._get(key, ...)
        if not isinstance(value, dict):
            if value is not ...:
                self.wrong(key, "is not a table")
            # Nothing more to say about what would have been in it.
            return _Table({}, f"{self._path}{key}.", [])
        return _Table(value, f"{self._path}{key}.", self._problems)

    def options(self, key: str) -> Mapping[str, str | int | float | bool]:
        value = self._get(key, {})
        if not isinstance(value, dict):
            self.wrong(key, "is not a table")
            return {}
        for name in value:
            if not isinstance(value[name], (str, int, float, bool)):
                self.wrong(f"{key}.{name}", "is neither text nor a number, true or false")
        return value

    def tables(self, key: str) -> list[_Table]:
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.wrong(key, "is not an array of tables")
            return []
        return [
            _Table(each, f"{self._path}{key}[{index}].", self._problems)
            for index, each in enumerate(value)
        ]

    def by_type(self, read: Callable[[_Table, str], _T]) -> dict[BenchmarkType, _T]:
        table = self.table("types")
        found = {}
        for name in table.names():
            with suppress(ValueError):
                kind = BenchmarkType(name)
                found[kind] = read(table, name)
        table.done()
        return found

    def done(self) -> None:
        for key in sorted(self._data.keys() - self._read):
            near = get_close_matches(key, self._read, n=1)
            self.wrong(key, "is unknown" + (f"; did you mean {near[0]}?" if near else ""))


def _policy(table: _Table) -> Policy:
    scorers, energy_weight_s_per_j = _scorers(table)
    priority = _priority(table.table("priority"))
    preemption = table.table("preemption")
    min_run_s = preemption.number("min_run_s", 0.0, default=_MIN_RUN_S)
    spare_measuring = preemption.flag("spare_measuring", default=False)
    margin, preempting, max_preemptions = _preemption(preemption, priority.types)
    assignment = table.table("assignment") if table.has("assignment") else _Table({}, "", [])
    planner, quiet_s, max_joint_jobs, backfill = _plan(assignment)
    binding = table.one_of("binding", ("auto", *(each.value for each in Binding)))
    fresh_age_s = table.number("fresh_age_s", 0.0)
    twin_max_age_s = table.number("twin_max_age_s", 0.0)
    if fresh_age_s > twin_max_age_s:
        table.wrong("fresh_age_s", "is more than twin_max_age_s")
    policy = Policy(
        name=table.text("name"),
        version=table.whole("version", 1, 1_000_000),
        queue_policy=table.text("queue_policy"),
        filters=table.texts("filters"),
        scorers=scorers,
        aggregator=table.text("aggregator"),
        binding=None if binding == "auto" else Binding(binding),
        fresh_age_s=fresh_age_s,
        twin_max_age_s=twin_max_age_s,
        priority_mode=PriorityMode(
            table.one_of("priority_mode", tuple(each.value for each in PriorityMode))
        ),
        priority=priority,
        strict_priority=(
            table.whole("strict_priority", 1, 100) if table.has("strict_priority") else None
        ),
        fallback=table.text("fallback") if table.has("fallback") else None,
        evaluator=table.text("evaluator") if table.has("evaluator") else None,
        preemption_margin=margin,
        preempting_types=preempting,
        max_preemptions=max_preemptions,
        guard_s=_queue(table.table("queue")) if table.has("queue") else _GUARD_S,
        min_run_s=min_run_s,
        spare_measuring=spare_measuring,
        max_joint_jobs=max_joint_jobs,
        explore_share=assignment.number("explore_share", 0.0, 0.5, default=0.0),
        planner=planner,
        min_hold_gain=assignment.number("min_hold_gain", 0.0, 1.0, default=_MIN_HOLD_GAIN),
        quiet_s=quiet_s,
        energy_weight_s_per_j=energy_weight_s_per_j,
        backfill=backfill,
        hold_quantile=assignment.number("hold_quantile", 0.5, 1.0, default=_HOLD_QUANTILE),
        booking_grace_s=assignment.number(
            "booking_grace_s", 0.0, 86400.0, default=_BOOKING_GRACE_S
        ),
        cool_down_s=assignment.number("cool_down_s", 0.0, 86400.0, default=0.0),
        reservation_lead_s=assignment.number(
            "reservation_lead_s", 0.0, 366 * 86400.0, default=_RESERVATION_LEAD_S
        ),
        prediction_wait_s=assignment.number(
            "prediction_wait_s", 0.0, 86400.0, default=_PREDICTION_WAIT_S
        ),
    )
    assignment.done()
    table.done()
    return policy


def _scorers(table: _Table) -> tuple[tuple[ScorerChoice, ...], float]:
    """Return the scorers, and the weight of energy, which is one of them unless it is 0."""
    scorers = []
    for each in table.tables("scorers"):
        scorers.append(
            ScorerChoice(
                name=each.text("name"),
                weight=each.number("weight", 0.0),
                budget_s=each.number("budget_s", 0.001, 60.0, _BUDGET_S),
                options=each.options("options"),
                file=each.text("file") if each.has("file") else None,
                url=each.text("url") if each.has("url") else None,
            )
        )
        if each.has("file") and each.has("url"):
            each.wrong("url", "goes without file: a scorer has one place")
        if each.has("file") and ".py:" not in each.text("file"):
            each.wrong("file", "is not /path/to/file.py:attribute")
        each.done()
    energy_weight_s_per_j = table.number("energy_weight_s_per_j", 0.0, 1e6, default=0.0)
    if energy_weight_s_per_j:
        scorers.append(ScorerChoice(name=_ENERGY_SCORER, weight=energy_weight_s_per_j))
        if table.text("aggregator") != _COST_AGGREGATOR:
            table.wrong(
                "energy_weight_s_per_j", f"must be 0 unless aggregator = {_COST_AGGREGATOR!r}"
            )
    repeated = {each.name for each in scorers if [s.name for s in scorers].count(each.name) > 1}
    for name in sorted(repeated):
        table.wrong("scorers", f"{name!r} is named twice")
    if scorers and not any(each.weight > 0 for each in scorers):
        table.wrong("scorers", "no weight is above 0")
    return tuple(scorers), energy_weight_s_per_j


def _plan(assignment: _Table) -> tuple[Planner | None, float, int, Backfill]:
    """Return the planner, the seconds for which it waits for a quiet host, joint jobs, backfill."""
    planner = None
    if assignment.has("planner"):
        named = assignment.one_of("planner", ("none", *(each.value for each in Planner)))
        planner = None if named == "none" else Planner(named)
    quiet_s = assignment.number("quiet_s", 0.0, 86400.0, default=0.0)
    if quiet_s and planner is not Planner.EXPECTED_COST:
        assignment.wrong("quiet_s", "must be 0 unless planner = 'expected_cost'")
    max_joint_jobs = assignment.whole("max_joint_jobs", 0, MAX_JOINT, 0)
    backfill = Backfill.NONE
    if assignment.has("backfill"):
        backfill = Backfill(assignment.one_of("backfill", tuple(each.value for each in Backfill)))
    if planner is not None and max_joint_jobs:
        assignment.wrong("max_joint_jobs", f"must be 0 with planner = {planner.value!r}")
    return planner, quiet_s, max_joint_jobs, backfill


def _queue(table: _Table) -> float:
    guard_s = table.number("guard_s", 0.0, default=_GUARD_S)
    table.done()
    return guard_s


def _priority(table: _Table) -> PrioritySettings:
    types = table.by_type(lambda types, name: types.whole(name, 0, 100))
    for name in _STATED_TYPES:
        if name not in types:
            table.wrong(f"types.{name}", "is missing")
    settings = PrioritySettings(
        types=types,
        user_points=table.number("user_points", 0.0, 10.0),
        age_step_s=table.number("age_step_s", 0.0),
        deadline_points=table.number("deadline_points", 0.0, 100.0),
        deadline_horizon_s=table.number("deadline_horizon_s", 1.0),
        fifo=table.whole("fifo", 1, 100),
    )
    table.done()
    return settings


def _points(name: BenchmarkType, points: Mapping[BenchmarkType, int], missing: int) -> int:
    """Return a type's points; of those that have to be stated and lack them, others."""
    unlisted = missing if name in _STATED_TYPES else min(points.values(), default=missing)
    return points.get(name, unlisted)


def _preemption(
    table: _Table, points: Mapping[BenchmarkType, int]
) -> tuple[int, Mapping[BenchmarkType, frozenset[BenchmarkType]], int]:
    margin = table.whole("margin", _NOMAD_GAP, 99)
    max_preemptions = table.whole("max_preemptions", 0, 100, _MAX_PREEMPTIONS)
    found: dict[BenchmarkType, frozenset[BenchmarkType]] = {}
    victims_of = table.by_type(_Table.texts) if table.has("types") else {}
    for name, victims in victims_of.items():
        for victim in victims:
            if not BENCHMARK_TYPE_PATTERN.fullmatch(victim):
                table.wrong(f"types.{name}", f"{victim!r} is not a type: TYPE1 to TYPE99, or GENAI")
            elif _points(name, points, 100) - _points(BenchmarkType(victim), points, 0) < margin:
                table.wrong(
                    f"types.{name}",
                    f"is less than {margin} points above {victim} in priority.types",
                )
            else:
                found[name] = found.get(name, frozenset()) | {BenchmarkType(victim)}
    table.done()
    return margin, found, max_preemptions
