"""What users may have, have, and paid: credits, board-seconds, and boards set aside.

A credit is worth a second on a board whose family has rate 1. Every attempt has a `Charge`: the
most that it can cost is reserved in the transaction that prepares it, and what it did cost is taken
in the transaction that ends it, once. So at any time ``credits`` (not yet spent) and the charges
that are settled add up to what was ever put into the account.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from edgeyard.scheduler.model.benchmark import FailureCategory

USAGE_HALF_LIFE_S = 7 * 86400.0
"""Board-seconds count half after this time: who used the lab much last month is forgiven."""

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
"""Failures that are not the user's fault: such attempts cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A user's account of credits and use.

    Attributes:
        credits: Not yet spent, reserved ones among them; None: no bound, use is only counted.
        reserved: Of attempts that have not ended.
        spent: Ever.
        usage_board_s: Board-seconds, halved per half-life, as of ``usage_at``.
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
        """Neither spent nor reserved; None: no bound."""
        return None if self.credits is None else self.credits - self.reserved

    def usage_s(self, now: datetime) -> float:
        """Board-seconds as of ``now``: ``usage x 2 ^ -(elapsed / half-life)``."""
        if self.usage_at is None:
            return 0.0
        elapsed_s = max(0.0, (now - self.usage_at).total_seconds())
        return float(self.usage_board_s * 2.0 ** -(elapsed_s / USAGE_HALF_LIFE_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one attempt costs.

    Attributes:
        rate: Credits a board-second.
        time_limit_s: Bound on its run.
        reserved: Most that it can cost.
        charged: What it did cost; None until it ended.
        board_s: Seconds that its task ran; None until it ended.
        refunded: Why it cost nothing although it ran; "" where it was paid.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A board that is, or was, set aside for its bad record; the last time of each board.

    Attributes:
        reason: For people.
        by_user_id: The operator who did it; None: its record did.
        failure_rate: As it was estimated; None: nobody estimated.
        probes: Probes that were sent to it since.
        probe_id: The probe that is under way, or was the last.
        next_probe_at: Not before; None: it isn't probed.
        lifted_at: When it was let back: what it did before no longer counts against it.
        lifted_by: The operator who did; None: a probe, or it is still set aside.
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
        """Still set aside."""
        return self.lifted_at is None


def run_bound_s(
    user_time_s: float | None, budget: float | None, rate: float, max_s: float
) -> float:
    """Longest that an attempt may run, seconds.

    ``user_time`` (else ``max_s``), and no longer than ``user_budget`` pays for.
    """
    bound_s = max_s if user_time_s is None else user_time_s
    return bound_s if budget is None or rate <= 0 else min(bound_s, budget / rate)
