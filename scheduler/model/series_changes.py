"""Changes of the level of a series: suspected, confirmed by runs or refuted, and then alerts.

A change is stored with all that its next steps need, so that any server can take them.
`edgeyard.scheduler.engine.series_watch` finds changes, and
`edgeyard.scheduler.engine.confirmation` confirms them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from edgeyard.scheduler.model.series import SeriesKey

CONFIRM_BUDGET_S = 3600.0
"""Default time for one confirming check with its waiting: ten pairs of runs of minutes."""

CONFIRM_PAIRS = 40
"""Maximum number of pairs of a confirming check: half a change of 5 % is decided at a noise of
1.5 %, where twenty pairs leave one of twenty such changes undecided. Most need far fewer."""


class ChangeStatus(StrEnum):
    """State of a change."""

    SUSPECTED = "suspected"  # found in the points; nothing has confirmed it
    CONFIRMING = "confirming"  # a check runs
    NOISE = "noise"  # a check refuted it
    UNCONFIRMED = "unconfirmed"  # nothing could confirm or refute it; no alert
    CONFIRMED = "confirmed"  # an alert: a check has confirmed it
    OPEN = "open"  # an alert that could not be confirmed; the series' owner asked for these
    RESOLVED = "resolved"  # an alert that has ended: the level is back, or somebody ended it
    DISMISSED = "dismissed"  # an alert that a user ended for good
    MERGED = "merged"  # confirmed, and not an alert of its own: it ended or reopened ``alert_id``


UNDECIDED_CHANGES = frozenset({ChangeStatus.SUSPECTED, ChangeStatus.CONFIRMING})
"""A series has at most one such change."""

ACTIVE_ALERTS = frozenset({ChangeStatus.CONFIRMED, ChangeStatus.OPEN})
ALERTS = ACTIVE_ALERTS | {ChangeStatus.RESOLVED, ChangeStatus.DISMISSED}

CHANGE_MOVES: Mapping[ChangeStatus, frozenset[ChangeStatus]] = {
    ChangeStatus.SUSPECTED: frozenset(
        {
            ChangeStatus.CONFIRMING,
            ChangeStatus.OPEN,
            ChangeStatus.UNCONFIRMED,
        }
    ),
    ChangeStatus.CONFIRMING: frozenset(
        {
            ChangeStatus.NOISE,
            ChangeStatus.CONFIRMED,
            ChangeStatus.OPEN,
            ChangeStatus.UNCONFIRMED,
            ChangeStatus.MERGED,
        }
    ),
    ChangeStatus.CONFIRMED: frozenset({ChangeStatus.RESOLVED, ChangeStatus.DISMISSED}),
    ChangeStatus.OPEN: frozenset({ChangeStatus.RESOLVED, ChangeStatus.DISMISSED}),
    ChangeStatus.RESOLVED: frozenset({ChangeStatus.CONFIRMED}),
    ChangeStatus.NOISE: frozenset(),
    ChangeStatus.UNCONFIRMED: frozenset(),
    ChangeStatus.DISMISSED: frozenset(),
    ChangeStatus.MERGED: frozenset(),
}
"""The moves that are allowed; a change may also be stored again as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange:
    """A change of the level of a series.

    Sizes are values after it relative to those before it, less 1: 0.05 for 5 % more.

    Attributes:
        change_id: Its id, and that of its alert.
        key: Its series.
        begin_id: Benchmark with which the new level begins.
        before_id: Last valid point of the old level.
        metric: Name of the primary metric.
        worse: Whether the new level is the worse one.
        size: As suspected; ``low`` and ``high`` are the ends of its 95 % interval.
        found_at: When it was suspected.
        alert_id: Earlier alert of the series that it takes back, or brings back, once it is
            confirmed; None: it becomes an alert of its own.
        check_ids: Checks that confirm it, newest last.
        confirmed_size: As a check has measured it; None: no check has.
        reason: Why it has its status, as a sentence; "": it waits for nothing.
        cause: What moved: ``model``, ``board``, ``engine``, ``firmware``, ``kernel`` or another
            fact of a run; ``unknown``; "" until it is confirmed.
        blame: Why that is the cause, as a sentence with the figures.
        not_tested: What was not tested, a sentence each.
        reopened_at: When the alert came back last; None: never.
        ended_at: When its life ended: noise, unconfirmed, resolved, dismissed or merged.
        by_user_id: The user that ended it; None: nobody did.
        note: Why, as the user states it.
    """

    change_id: str
    key: SeriesKey
    begin_id: str
    before_id: str
    metric: str
    worse: bool
    size: float
    low: float
    high: float
    found_at: datetime
    status: ChangeStatus = ChangeStatus.SUSPECTED
    alert_id: str | None = None
    check_ids: tuple[str, ...] = ()
    confirmed_size: float | None = None
    confirmed_low: float | None = None
    confirmed_high: float | None = None
    reason: str = ""
    cause: str = ""
    blame: str = ""
    not_tested: tuple[str, ...] = ()
    reopened_at: datetime | None = None
    ended_at: datetime | None = None
    by_user_id: str | None = None
    note: str = ""

    @property
    def is_alert(self) -> bool:
        """Whether it is an alert, or was one."""
        return self.status in ALERTS

    @property
    def best_size(self) -> float:
        """The size as it is known best: as a check has measured it, otherwise as suspected."""
        return self.size if self.confirmed_size is None else self.confirmed_size

    @property
    def best_interval(self) -> tuple[float, float]:
        """The 95 % interval of `best_size`."""
        if self.confirmed_low is None or self.confirmed_high is None:
            return self.low, self.high
        return self.confirmed_low, self.confirmed_high

    def sentence(self) -> str:
        """Return what changed in one sentence, without a full stop."""
        known = "" if self.status in ACTIVE_ALERTS else f" ({self.status.value})"
        direction = "worse" if self.worse else "better"
        what = f"{self.key.lineage} on {self.key.target_uid} is {direction} since {self.begin_id}"
        return f"{what}: {self.metric} {100 * self.best_size:+.1f} %{known}"
