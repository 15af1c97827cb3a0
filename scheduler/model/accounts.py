"""Credits and board-seconds of users, and boards in quarantine.

A credit pays for a second on a board whose family has rate 1. Every attempt has a `Charge`: the
transaction that prepares it reserves its maximum cost, and the transaction that ends it charges its
actual cost, once. Bookings and leases are charged for the time for which they keep boards idle
(`IdleTime`). So ``credits`` (not yet spent), the settled charges and the idle times always add up
to what was ever put into the account.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from edgeyard.scheduler.model.benchmark import FailureCategory, JobDescription
from edgeyard.scheduler.model.checks import CHECK_TAG, CONFIRMATION_TAG

USAGE_HALF_LIFE_S = 7 * 86400.0
"""Board-seconds count half after this time, so that heavy use in the past matters less."""

REFUNDED = frozenset(
    {
        FailureCategory.BOARD_FAULT,
        FailureCategory.THERMAL,
        FailureCategory.NETWORK,
        FailureCategory.CLUSTER,
        FailureCategory.UPLOAD,
        FailureCategory.PREEMPTED,
        FailureCategory.PREEMPTED_TOO_OFTEN,
    }
)
"""Failures that are not caused by the user: such attempts cost nothing."""


def decayed(usage_board_s: float, usage_at: datetime | None, now: datetime) -> float:
    """Return board-seconds at ``now``: ``usage x 2 ^ -(elapsed / half-life)``.

    A clock that was set back decays nothing.

    Args:
        usage_board_s: Board-seconds at ``usage_at``.
        usage_at: None: never used.
        now: The time to decay them to.
    """
    if usage_at is None:
        return 0.0
    elapsed_s = max(0.0, (now - usage_at).total_seconds())
    return float(usage_board_s * 2.0 ** -(elapsed_s / USAGE_HALF_LIFE_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A user's account of credits and use.

    Attributes:
        credits: Not yet spent, including reserved ones; None: unlimited, use is only counted.
        reserved: For attempts that have not ended.
        spent: In total.
        usage_board_s: Board-seconds, decayed by half in each half-life, at ``usage_at``.
        usage_at: None: never used.
    """

    user_id: str
    credits: float | None = None
    reserved: float = 0.0
    spent: float = 0.0
    usage_board_s: float = 0.0
    usage_at: datetime | None = None

    @property
    def credits_left(self) -> float | None:
        """Credits that are neither spent nor reserved; None: unlimited."""
        return None if self.credits is None else self.credits - self.reserved

    def usage_s(self, now: datetime) -> float:
        """Return the board-seconds at ``now``, as `decayed`."""
        return decayed(self.usage_board_s, self.usage_at, now)


class ChargeKind(StrEnum):
    """What a charged attempt was for."""

    BENCHMARK = "benchmark"  # somebody submitted it
    CHECK = "check"  # a run of a check that somebody started
    CONFIRMATION = "confirmation"  # a run of a check by which Edgeyard confirms a change


def kind_of(description: JobDescription) -> ChargeKind:
    """Return what attempts of a description are for."""
    if CONFIRMATION_TAG in description.tags:
        return ChargeKind.CONFIRMATION
    return ChargeKind.CHECK if CHECK_TAG in description.tags else ChargeKind.BENCHMARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of one attempt, and what it was for: what reports of usage add up.

    Attributes:
        rate: Credits per board-second.
        time_limit_s: Time limit of its run.
        reserved: Maximum cost.
        charged: Actual cost; None until it has ended.
        board_s: Run time of its task, seconds; None until it has ended.
        refunded: Why it was free although it ran; "" if it was paid.
        target_uid: Board on which it ran; None: it is not known, or has not ended.
        wait_s: Time from submission to the start of its task, at least 0; None: it never started,
            or has not ended.
        failure: Category of its failure; None: it had a result, was stopped by its owner, or has
            not ended.
        joules: Energy of its run, as its report states it; None: it does not.
        group_id: The user's group when it was placed; None: none.
        kind: What it was for.
    """

    benchmark_id: str
    attempt: int
    user_id: str
    family: str
    rate: float
    time_limit_s: float
    reserved: float
    reserved_at: datetime
    charged: float | None = None
    board_s: float | None = None
    refunded: str = ""
    settled_at: datetime | None = None
    engine: str = ""
    target_uid: str | None = None
    wait_s: float | None = None
    failure: str | None = None
    joules: float | None = None
    group_id: str | None = None
    kind: ChargeKind = ChargeKind.BENCHMARK


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """What a booking or a lease costs in one month because it keeps boards idle.

    Attributes:
        keeper_id: Id of the benchmark that states a start, or of the lease.
        month: As in `edgeyard.scheduler.model.accounting.month_of`.
        since: When it first did.
        until: Up to when it is charged.
        board_s: Seconds for which a board was free while a benchmark that fits waited; those of
            several boards add up.
        charged: Credits; no more than the account had.
        group_id: The user's group when it was first charged in the month; None: none.
    """

    keeper_id: str
    month: str
    user_id: str
    family: str
    since: datetime
    until: datetime
    board_s: float
    charged: float
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The last quarantine of a board, present or past.

    Attributes:
        reason: For people.
        by_user_id: The operator who imposed it; None: it was imposed for the board's failures, or
            because it drifts.
        failure_rate: Estimated rate of failures; None: it was not imposed for failures.
        probes: Number of probes sent since.
        probe_id: The present or last probe.
        next_probe_at: Earliest time of the next probe; None: it is not probed.
        lifted_at: When it was lifted: earlier failures no longer count.
        lifted_by: The operator who lifted it; None: a probe did, or it is not lifted.
    """

    target_uid: str
    since: datetime
    reason: str
    by_user_id: str | None = None
    failure_rate: float | None = None
    probes: int = 0
    probe_id: str | None = None
    next_probe_at: datetime | None = None
    lifted_at: datetime | None = None
    lifted_by: str | None = None

    @property
    def active(self) -> bool:
        """Whether the quarantine is not lifted."""
        return self.lifted_at is None

    @property
    def of_drift(self) -> bool:
        """Whether it was imposed because the board drifts."""
        return self.by_user_id is None and self.failure_rate is None
