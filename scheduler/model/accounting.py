"""Who used how much of which boards in a month.

An attempt counts in the month in which it ended, by the server's clock, and all of it there: so
months and groups of rows add up, and a month that is over does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class UsageBy(StrEnum):
    """What the rows of a report of usage are."""

    USER = "user"
    GROUP = "group"
    BOARD = "board"
    FAMILY = "family"
    ENGINE = "engine"
    KIND = "kind"  # see `edgeyard.scheduler.model.accounts.ChargeKind`


def month_of(moment: datetime) -> str:
    """Return the month of a moment in UTC, e.g. ``2026-10``."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def month_bounds(month: str) -> tuple[datetime, datetime]:
    """Return the beginning of a month, and that of the next one, in UTC.

    Raises:
        ValueError: It is not written as ``2026-10``, or has no next month.
    """
    since = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    if month_of(since) != month:
        raise ValueError(f"{month!r} is not written with four and two digits")
    later = since.year * 12 + since.month  # months since year 0, the first month being 0
    return since, since.replace(year=later // 12, month=later % 12 + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one user, group, board, family, engine or kind used.

    Attributes:
        key: Which; None: not known, such as the board of a run that no host has named, or the
            engine of a booking; of a user without a group.
        runs: Attempts whose task started.
        failures: Those of them that failed.
        preempted: Those of them that were stopped for others.
        interrupted: Those of them that the cluster ended: a drain, a stop, a lost host.
        not_started: Attempts that ended before their task started.
        board_s: Run time of the tasks, seconds.
        starts: Benchmarks whose first task started; their waits count.
        wait_s: Sum of these waits, from submission (or the later ``start_time``) to that start,
            seconds.
        max_wait_s: Longest of these waits, seconds; None: nothing started.
        credits: Charged for attempts, and for boards that were kept idle.
        idle_board_s: Seconds for which bookings and leases kept boards idle.
        joules: Energy of the runs that state it; None: none does.
        joules_runs: How many do.
    """

    key: str | None
    runs: int = 0
    failures: int = 0
    preempted: int = 0
    interrupted: int = 0
    not_started: int = 0
    board_s: float = 0.0
    starts: int = 0
    wait_s: float = 0.0
    max_wait_s: float | None = None
    credits: float = 0.0
    idle_board_s: float = 0.0
    joules: float | None = None
    joules_runs: int = 0

    def plus(self, other: UsageRow, key: str | None) -> UsageRow:
        """Return what both used together, under a key."""
        waits = [each for each in (self.max_wait_s, other.max_wait_s) if each is not None]
        joules = [each for each in (self.joules, other.joules) if each is not None]
        return UsageRow(
            key=key,
            runs=self.runs + other.runs,
            failures=self.failures + other.failures,
            preempted=self.preempted + other.preempted,
            interrupted=self.interrupted + other.interrupted,
            not_started=self.not_started + other.not_started,
            board_s=self.board_s + other.board_s,
            starts=self.starts + other.starts,
            wait_s=self.wait_s + other.wait_s,
            max_wait_s=max(waits, default=None),
            # rounded to the stored millionth, as every sum of credits
            credits=round(self.credits + other.credits, 6),
            idle_board_s=self.idle_board_s + other.idle_board_s,
            joules=sum(joules) if joules else None,
            joules_runs=self.joules_runs + other.joules_runs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardMonth:
    """What one board's time was spent on in one month, as far as the leading server saw it.

    Attributes:
        month: As `month_of` writes it.
        busy_s: It ran something, seconds.
        idle_s: It could have run something, leases included.
        down_s: It was offline, unhealthy, drained or in quarantine, and ran nothing.
    """

    target_uid: str
    month: str
    family: str
    busy_s: float = 0.0
    idle_s: float = 0.0
    down_s: float = 0.0

    @property
    def utilisation(self) -> float | None:
        """Share of the time in which it could run something that it was busy; None: none."""
        up_s = self.busy_s + self.idle_s
        return self.busy_s / up_s if up_s > 0 else None

    @property
    def availability(self) -> float | None:
        """Share of the known time in which it could run something; None: nothing is known."""
        return (self.busy_s + self.idle_s) / self.known_s if self.known_s > 0 else None

    @property
    def known_s(self) -> float:
        """Seconds of the month of which it is known what the board did."""
        return self.busy_s + self.idle_s + self.down_s
