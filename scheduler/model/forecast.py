"""When benchmarks are expected to start and to end, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
"""Probabilities that something comes sooner than what is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Of one benchmark; it is to start, and to end, between ``low`` and ``high`` 4 times in 5.

    Attributes:
        made_at: When it was made; it says nothing of what came since.
        place: In the queue, from 1, not counting those that no board could ever run; None while it
            runs.
        start: Median, as likely later as earlier; of one that runs, when it did start.
        start_low: Starts earlier once in ten.
        start_high: Starts later once in ten.
        deadline_chance: 0-1, that it ends before its deadline; None: it has none.
        grounded: The past says something of what it runs; else times go by its bound alone.
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
    """How the newest forecasts turned out.

    Attributes:
        held: Ended within the interval that was first told.
        ended: All that were foretold, and completed.
    """

    held: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """Of one look at the whole lab.

    Attributes:
        made_at: None: there was none yet.
        by_id: Of benchmarks that run or wait; who is missing waits for what no time is known of
            (it is held, no board could run it, it is too far back in a long queue).
        took_s: How long it took to make.
    """

    made_at: datetime | None = None
    by_id: Mapping[str, Forecast] = field(default_factory=dict)
    took_s: float = 0.0
