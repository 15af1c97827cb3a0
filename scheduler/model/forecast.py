"""When benchmarks are expected to start and to end, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.scheduler.model.decision import PlannedStart

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
"""Probabilities that something happens earlier than predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When one benchmark starts and ends: between ``low`` and ``high`` in 4 of 5 cases.

    Attributes:
        made_at: When it was made; later events are not considered.
        place: Place in the queue, from 1, without those that no board can ever run; None while
            it runs.
        start: Median; of a running benchmark its actual start.
        start_low: It starts earlier in 1 of 10 cases.
        start_high: It starts later in 1 of 10 cases.
        deadline_chance: Probability that it ends before its deadline; None: it has none.
        grounded: Whether past runs like it are known; otherwise its time limit is used.
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


@dataclass(frozen=True, slots=True)
class Coverage:
    """How accurate the newest forecasts were.

    Attributes:
        held: Benchmarks that ended within the first predicted interval.
        ended: All benchmarks with a forecast that completed.
    """

    held: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The forecasts of all benchmarks, made at one time.

    Attributes:
        made_at: When they were made; None: not yet.
        by_id: Forecasts of live benchmarks. A benchmark is missing if its wait cannot be predicted:
            it is held, no board can run it, or it is too far back in a long queue.
        took_s: How long making them took.
        planned: By id, the boards and starts that the same cycle plans for those that wait.
    """

    made_at: datetime | None = None
    by_id: Mapping[str, Forecast] = field(default_factory=dict)
    took_s: float = 0.0
    planned: Mapping[str, PlannedStart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastResult:
    """How a benchmark's first forecast turned out.

    Attributes:
        at: When it was compared with what happened.
        score: How far off the predicted start was, see
            `edgeyard.scheduler.prediction.calibration`; None: it says nothing of waits.
        held: Whether it ended within the predicted interval; None: it did not complete.
    """

    benchmark_id: str
    at: datetime
    score: float | None
    held: bool | None
