"""What attempts cost: reserved when one is prepared, settled when it ends, on open units of work.

Both happen within the transaction that moves the attempt, so that a crash between two of them
neither loses credits nor takes them twice; settling a second time changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.accounts import REFUNDED, Balance, Charge, run_bound_s
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import Benchmark, Failure
from edgeyard.scheduler.model.records import Event
from edgeyard.scheduler.ports import UnitOfWork

PROBER = "edgeyard-probe"
"""The user as whom Edgeyard itself submits: bounded by nothing, and charged for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an attempt may cost, and how long it may run.

    Attributes:
        rate: Credits a board-second.
        time_limit_s: See `edgeyard.scheduler.model.accounts.run_bound_s`.
    """

    rate: float
    time_limit_s: float

    @property
    def most(self) -> float:
        """Credits that are reserved: the most that it can cost."""
        return round(self.rate * self.time_limit_s, 6)


def terms_of(uow: UnitOfWork, benchmark: Benchmark, family: str, most_run_s: float) -> Terms:
    """Of an attempt that is made now.

    Args:
        most_run_s: Of a benchmark that states no ``user_time``.
    """
    asked = benchmark.description
    rate = 0.0 if benchmark.user_id == PROBER else uow.credits.rates().get(family, 1.0)
    bound_s = run_bound_s(asked.user_time_s, asked.user_budget, rate, most_run_s)
    return Terms(rate=rate, time_limit_s=bound_s)


def check(uow: UnitOfWork, user_id: str, terms: Terms) -> None:
    """Whether the account can bear one more attempt; it stays as it is until the end of the unit.

    Raises:
        Conflict: It has too few credits, or too many benchmarks that run.
    """
    if user_id == PROBER:
        return
    left = uow.credits.balance(user_id, to_change=True).credits_left
    if left is not None and terms.most > left:
        raise Conflict(f"{user_id} has {left:g} credits left: {terms.most:g} would be reserved")
    try:
        most = uow.accounts.user(user_id).max_running
    except NotFound:
        return  # of an account that is no more: nothing bounds it
    if most is not None and uow.credits.running(user_id) >= most:
        raise Conflict(f"{user_id} has {most} benchmarks on boards: no more at once")


def reserve(
    uow: UnitOfWork, benchmark: Benchmark, attempt: Attempt, terms: Terms, now: datetime
) -> None:
    """Keep credits for an attempt that was just added."""
    uow.credits.add_charge(
        Charge(
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            user_id=benchmark.user_id,
            family=attempt.family,
            rate=terms.rate,
            time_limit_s=terms.time_limit_s,
            reserved=terms.most,
            reserved_at=now,
        )
    )
    balance = uow.credits.balance(benchmark.user_id, to_change=True)
    uow.credits.save_balance(replace(balance, reserved=_exact(balance.reserved + terms.most)))


def settle(
    uow: UnitOfWork, attempt: Attempt, failure: Failure | None, now: datetime
) -> Charge | None:
    """Take what an attempt that has ended did cost, and give back the rest; once.

    ``min(reserved, rate x seconds that its task ran)``; nothing where it failed without its
    user's fault. What a task overran its limit by while it was being stopped is not the user's.

    Returns:
        The settled charge; None where there was none, or it was settled before.
    """
    charge = uow.credits.charge(attempt.benchmark_id, attempt.number)
    if charge is None or charge.settled_at is not None:
        return None
    board_s = 0.0
    if attempt.started_at is not None:
        ended_at = attempt.task_ended_at or now
        board_s = max(0.0, (ended_at - attempt.started_at).total_seconds())
    refunded = failure is not None and failure.category in REFUNDED
    cost = 0.0 if refunded else _exact(min(charge.reserved, charge.rate * board_s))
    settled = replace(
        charge,
        charged=cost,
        board_s=board_s,
        refunded=failure.category.value if refunded and failure is not None and board_s else "",
        settled_at=now,
    )
    before = uow.credits.balance(
        charge.user_id, to_change=True
    )  # locked first: who settles last finds it settled
    if not uow.credits.settle_charge(settled):
        return None
    uow.credits.save_balance(
        replace(
            before,
            credits=None if before.credits is None else _exact(before.credits - cost),
            reserved=_exact(before.reserved - charge.reserved),
            spent=_exact(before.spent + cost),
            usage_board_s=before.usage_s(now) + (0.0 if refunded else board_s),
            usage_at=now,
        )
    )
    return settled


def set_credits(
    uow: UnitOfWork, user_id: str, credits: float | None, now: datetime, by: str
) -> Balance:
    """Give an account so many credits in place of those that it has; None: no bound.

    What is reserved stays reserved: fewer than that means that nothing new begins.
    """
    before = uow.credits.balance(user_id, to_change=True)
    after = replace(before, credits=None if credits is None else _exact(credits))
    uow.credits.save_balance(after)
    _tell(uow, user_id, before, after, now, by)
    return after


def add_credits(uow: UnitOfWork, user_id: str, more: float, now: datetime, by: str) -> Balance:
    """Add to what an account has; taking away is adding a negative number.

    Raises:
        Conflict: It keeps no account of credits, or would have less than none.
    """
    before = uow.credits.balance(user_id, to_change=True)
    if before.credits is None:
        raise Conflict(f"{user_id} is not bounded by credits: set how many it has first")
    if before.credits + more < 0:
        raise Conflict(f"{user_id} has {before.credits:g} credits: it can't lose {-more:g}")
    after = replace(before, credits=_exact(before.credits + more))
    uow.credits.save_balance(after)
    _tell(uow, user_id, before, after, now, by)
    return after


def _tell(
    uow: UnitOfWork, user_id: str, before: Balance, after: Balance, now: datetime, by: str
) -> None:
    data = {"user_id": user_id, "before": before.credits, "credits": after.credits, "by": by}
    uow.log.append(Event(at=now, kind="user.credits", user_id=user_id, data=data))


def _exact(credits: float) -> float:
    """To the millionth that is stored, so that sums in memory and in the store are the same."""
    return round(credits, 6)
