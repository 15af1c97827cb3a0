"""When benchmarks are expected to start and to end, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.scheduler.model.decision import PlannedStart

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
"""Probabilities that something happens earlier than predicted."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths of an interval as it was drawn, before it is calibrated, as logarithms.

    Attributes:
        late: From the median to the upper end.
        early: From the lower end to the median.
    """

    late: float
    early: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When one benchmark starts and ends: meant to be between ``low`` and ``high`` 4 times in 5.

    Attributes:
        made_at: When it was made; later events are not considered.
        place: Place in the queue, from 1, without those that no board can ever run; None while
            it runs.
        start: Median of the start of its task; of a running benchmark its actual start.
        start_low: It starts earlier in 1 of 10 cases.
        start_high: It starts later in 1 of 10 cases.
        deadline_chance: Probability that it ends before its deadline; None: it has none.
        grounded: Whether past runs like it are known; otherwise its time limit is used.
        start_widths: Of the start's interval; None: it is placed at once, or has started.
        finish_widths: Of the end's; None: it ends at once.
    """

    benchmark_id: str
    made_at: datetime
    place: int | None
    start: datetime
    start_low: datetime
    start_high: datetime
    finish: datetime
    finish_low: datetime
    finish_high: datetime
    deadline_chance: float | None
    grounded: bool
    start_widths: Widths | None = None
    finish_widths: Widths | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What first predicted intervals held lately: of the newest 100 of each kind.

    Attributes:
        starts_held: Benchmarks that started within the interval.
        started: Those that were to wait and started.
        ends_held: Benchmarks that ended within the interval.
        ended: Those that completed.
    """

    starts_held: int = 0
    started: int = 0
    ends_held: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The forecasts of all benchmarks, made at one time.

    Attributes:
        made_at: When they were made; None: not yet.
        by_id: Forecasts of live benchmarks. A benchmark is missing if its wait cannot be predicted:
            it is held, no board can run it, or it is too far back in a long queue.
        planned: By id, the boards and starts that the same cycle plans for those that wait.
    """

    made_at: datetime | None = None
    by_id: Mapping[str, Forecast] = field(default_factory=dict)
    planned: Mapping[str, PlannedStart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """A predicted time next to the one that came.

    Attributes:
        score: How far off it was, see `edgeyard.scheduler.prediction.calibration`; None: nothing
            can be learned from it.
        held: Whether the predicted interval held it.
    """

    score: float | None
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastResult:
    """How a benchmark's first forecast turned out.

    Attributes:
        at: When it was compared with what happened.
        waited: Whether it was to wait.
        start: None: it was not to wait, or did not start.
        end: None: it did not complete.
    """

    benchmark_id: str
    at: datetime
    waited: bool
    start: Compared | None
    end: Compared | None
