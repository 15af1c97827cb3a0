"""What attempts cost: reserved when one is prepared, settled when it ends, on open units of work.

Both happen within the transaction that moves the attempt, so that a crash between two of them
neither loses credits nor takes them twice; settling a second time changes nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.accounting import month_of
from edgeyard.scheduler.model.accounts import (
    REFUNDED,
    Balance,
    Charge,
    IdleTime,
    decayed,
    kind_of,
)
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import Benchmark, Failure, JobDescription
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.decision import KeptIdle
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.run_bounds import run_bound_s
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.model.users import User
from edgeyard.scheduler.ports import UnitOfWork

PROBER = "edgeyard-probe"
"""The user as whom Edgeyard probes boards in quarantine."""

OWN_USERS = frozenset({PROBER, CANARY_USER})
"""The users as whom Edgeyard itself submits: bounded by nothing, and charged for nothing."""


def affordable(
    uow: UnitOfWork,
    wanted: Sequence[tuple[Benchmark, Attempt]],
    now: datetime,
    max_run_s: float,
    tariff: Tariff,
) -> tuple[Sequence[Charge], Mapping[str, Balance]]:
    """Return what attempts that are made now would reserve, while accounts stay as they are.

    An attempt is left out if its user's account, or their group, can't pay it: there are too few
    credits for the maximum that it can cost, or too many benchmarks on boards. Earlier ones take
    from later ones.

    Args:
        max_run_s: Of a benchmark that states no ``user_time``.
        tariff: Factors on the rates: that of ``now`` counts for the whole attempt.

    Returns:
        The charges to `reserve`, and the balances by user.
    """
    users = sorted({benchmark.user_id for benchmark, _ in wanted})  # all lock in one order
    balances = {user_id: uow.credits.balance(user_id, for_update=True) for user_id in users}
    credits_left = {user_id: _credits_left(balances[user_id]) for user_id in users}
    accounts = {user_id: _account(uow, user_id) for user_id in users}
    boards_left = {user_id: _boards_left(uow, user_id, accounts[user_id]) for user_id in users}
    groups = _groups_left(uow, accounts)
    rates = uow.credits.rates()
    charges: list[Charge] = []
    for benchmark, attempt in wanted:
        user_id = benchmark.user_id
        group_id = _group_of(accounts[user_id])
        charge = _charge(benchmark, attempt, group_id, rates, now, max_run_s, tariff.at(now))
        group = groups.get(group_id or "", _GroupLeft())
        credits = min(credits_left[user_id], group.credits)
        if charge.reserved <= credits and min(boards_left[user_id], group.boards) >= 1:
            group.credits = _exact(group.credits - charge.reserved)
            group.boards -= 1
            credits_left[user_id] = _exact(credits_left[user_id] - charge.reserved)
            boards_left[user_id] -= 1
            charges.append(charge)
    return charges, balances


def _charge(
    benchmark: Benchmark,
    attempt: Attempt,
    group_id: str | None,
    rates: Mapping[str, float],
    now: datetime,
    max_run_s: float,
    factor: float,
) -> Charge:
    description = benchmark.description
    rate = 0.0 if benchmark.user_id in OWN_USERS else factor * rates.get(attempt.family, 1.0)
    bound_s, credits = reservation(description, rate, max_run_s)
    return Charge(
        benchmark_id=attempt.benchmark_id,
        attempt=attempt.number,
        user_id=benchmark.user_id,
        family=attempt.family,
        rate=rate,
        time_limit_s=bound_s,
        reserved=credits,
        reserved_at=now,
        engine=description.runtime,
        group_id=group_id,
        kind=kind_of(description),
    )


def reservation(description: JobDescription, rate: float, max_run_s: float) -> tuple[float, float]:
    """Return the time limit of an attempt, seconds, and the credits that are reserved for it.

    Args:
        description: What runs.
        rate: Credits a second of its board, by the tariff.
        max_run_s: Time limit of runs that state none, seconds.
    """
    bound_s = run_bound_s(description.user_time_s, description.user_budget, rate, max_run_s)
    return bound_s, _exact(rate * bound_s)


def _credits_left(balance: Balance) -> float:
    left = balance.credits_left
    return math.inf if left is None or balance.user_id in OWN_USERS else left


def _account(uow: UnitOfWork, user_id: str) -> User | None:
    """Return an account; None where it is no more, or is Edgeyard's own: nothing bounds it."""
    if user_id in OWN_USERS:
        return None
    try:
        return uow.accounts.user(user_id)
    except NotFound:
        return None


def _group_of(user: User | None) -> str | None:
    return None if user is None else user.group_id


def _boards_left(uow: UnitOfWork, user_id: str, user: User | None) -> float:
    max_running = None if user is None else user.max_running
    return math.inf if max_running is None else max_running - uow.credits.running(user_id)


@dataclass(slots=True, kw_only=True)
class _GroupLeft:
    """What the members of a group may still begin together."""

    credits: float = math.inf
    boards: float = math.inf


def _groups_left(uow: UnitOfWork, accounts: Mapping[str, User | None]) -> Mapping[str, _GroupLeft]:
    """Return what groups of these accounts may still begin, and lock them."""
    named = {group_id for each in accounts.values() if (group_id := _group_of(each)) is not None}
    if not named:
        return {}
    running = uow.credits.open_charges()
    found = {}
    for group_id in sorted(named):  # all lock in one order
        try:
            group = uow.accounts.group(group_id, for_update=True)
        except NotFound:  # removed a moment ago
            continue
        held = [each.reserved for each in running if each.group_id == group_id]
        found[group_id] = _GroupLeft(
            credits=math.inf if group.credits is None else _exact(group.credits - sum(held)),
            boards=math.inf if group.max_running is None else group.max_running - len(held),
        )
    return found


def _use_group(
    uow: UnitOfWork, group_id: str | None, cost: float, board_s: float, now: datetime
) -> None:
    """Count for a group what was used for it; nothing where it is removed."""
    if group_id is None:
        return
    try:
        group = uow.accounts.group(group_id, for_update=True)
    except NotFound:
        return
    uow.accounts.save_group(
        replace(
            group,
            credits=None if group.credits is None else _exact(group.credits - cost),
            usage_board_s=decayed(group.usage_board_s, group.usage_at, now) + board_s,
            usage_at=now,
        )
    )


def reserve(uow: UnitOfWork, charges: Sequence[Charge], balances: Mapping[str, Balance]) -> None:
    """Keep credits for attempts that were just added.

    Args:
        charges: Those of `affordable`, or some of them.
        balances: As `affordable` found them.
    """
    uow.credits.add_charges(charges)
    reserved: defaultdict[str, float] = defaultdict(float)
    for charge in charges:
        reserved[charge.user_id] += charge.reserved
    for user_id, more in reserved.items():
        before = balances[user_id]
        uow.credits.save_balance(replace(before, reserved=_exact(before.reserved + more)))


def settle(
    uow: UnitOfWork,
    benchmark: Benchmark,
    attempt: Attempt,
    failure: Failure | None,
    now: datetime,
    *,
    joules: float | None = None,
) -> Charge | None:
    """Take what an attempt that has ended did cost, and give back the rest; once.

    ``min(reserved, rate x seconds that its task ran)``; nothing where it failed without its
    user's fault. What a task overran its limit by while it was being stopped is not the user's.

    Args:
        uow: In which the attempt ends.
        benchmark: Its benchmark.
        attempt: As it ended.
        failure: Why it ended, also where its owner stopped it.
        now: When it ended.
        joules: Energy of its run; None: not known.

    Returns:
        The settled charge; None where there was none, or it was settled before.
    """
    charge = uow.credits.charge(attempt.benchmark_id, attempt.number)
    if charge is None or charge.settled_at is not None:
        return None
    board_s = attempt.run_s(now) or 0.0
    refunded = failure is not None and failure.category in REFUNDED
    cost = 0.0 if refunded else _exact(min(charge.reserved, charge.rate * board_s))
    settled = replace(
        charge,
        charged=cost,
        board_s=board_s,
        refunded=failure.category.value if refunded and failure is not None and board_s else "",
        settled_at=now,
        target_uid=attempt.target_uid,
        wait_s=_wait_s(benchmark, attempt),
        failure=attempt.failure.category.value if attempt.failure is not None else None,
        joules=joules,
    )
    before = uow.credits.balance(
        charge.user_id, for_update=True
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
    _use_group(uow, charge.group_id, cost, 0.0 if refunded else board_s, now)
    return settled


def _wait_s(benchmark: Benchmark, attempt: Attempt) -> float | None:
    if attempt.started_at is None:
        return None
    due = max(benchmark.submit_time, benchmark.description.start_time or benchmark.submit_time)
    return max(0.0, (attempt.started_at - due).total_seconds())


def amend(
    uow: UnitOfWork, attempt: Attempt, board_s: float | None, joules: float | None = None
) -> None:
    """Correct what is known of an attempt that was given up, and whose report came after all.

    It stays free of charge.

    Args:
        uow: In which its report is taken.
        attempt: As its report shows it.
        board_s: Run time of its task; None: not known.
        joules: Energy of its run; None: not known.
    """
    charge = uow.credits.charge(attempt.benchmark_id, attempt.number)
    if charge is None:
        return
    uow.credits.amend_charge(
        replace(
            charge,
            board_s=charge.board_s if board_s is None else board_s,
            target_uid=attempt.target_uid,
            failure=attempt.failure.category.value if attempt.failure is not None else None,
            joules=joules,
        )
    )


def charge_idle_times(
    uow: UnitOfWork,
    kept: Mapping[KeptIdle, tuple[datetime, float]],
    now: datetime,
    tariff: Tariff,
) -> None:
    """Charge bookings and leases for the time for which they kept boards idle.

    ``rate x board-seconds``, but no more than the credits that are neither spent nor reserved.

    Args:
        uow: In which it is charged.
        kept: Begin and board-seconds by keeper.
        now: Up to when they are counted; its factor of the tariff applies.
        tariff: Factors on the rates.
    """
    rates = uow.credits.rates()
    for each in sorted(kept, key=lambda one: (one.user_id, one.keeper_id)):  # locked in one order
        since, board_s = kept[each]
        before = uow.credits.balance(each.user_id, for_update=True)
        left = math.inf if before.credits_left is None else max(before.credits_left, 0.0)
        cost = _exact(min(rates.get(each.family, 1.0) * tariff.at(now) * board_s, left))
        known = uow.credits.idle_time(each.keeper_id, month_of(now)) or IdleTime(
            keeper_id=each.keeper_id,
            month=month_of(now),
            user_id=each.user_id,
            family=each.family,
            since=since,
            until=now,
            board_s=0.0,
            charged=0.0,
            group_id=_group_of(_account(uow, each.user_id)),
        )
        uow.credits.save_idle_time(
            replace(
                known,
                until=now,
                board_s=known.board_s + board_s,
                charged=_exact(known.charged + cost),
            )
        )
        uow.credits.save_balance(
            replace(
                before,
                credits=None if before.credits is None else _exact(before.credits - cost),
                spent=_exact(before.spent + cost),
                usage_board_s=before.usage_s(now) + board_s,
                usage_at=now,
            )
        )
        _use_group(uow, known.group_id, cost, board_s, now)


def set_credits(
    uow: UnitOfWork, user_id: str, credits: float | None, now: datetime, by: str
) -> Balance:
    """Give an account so many credits instead of those that it has; None: no bound.

    What is reserved stays reserved: fewer than that means that nothing new begins.
    """
    before = uow.credits.balance(user_id, for_update=True)
    after = replace(before, credits=None if credits is None else _exact(credits))
    uow.credits.save_balance(after)
    _log_change(uow, user_id, before, after, now, by)
    return after


def add_credits(uow: UnitOfWork, user_id: str, more: float, now: datetime, by: str) -> Balance:
    """Add to what an account has; taking away is adding a negative number.

    Raises:
        Conflict: It keeps no account of credits, or would have less than none.
    """
    before = uow.credits.balance(user_id, for_update=True)
    if before.credits is None:
        raise Conflict(f"{user_id} has no limit of credits: set its credits before you add to them")
    if before.credits + more < 0:
        raise Conflict(f"{user_id} has {before.credits:g} credits: {-more:g} can't be subtracted")
    after = replace(before, credits=_exact(before.credits + more))
    uow.credits.save_balance(after)
    _log_change(uow, user_id, before, after, now, by)
    return after


def _log_change(
    uow: UnitOfWork, user_id: str, before: Balance, after: Balance, now: datetime, by: str
) -> None:
    data = {
        "user_id": user_id,
        "before": {"credits": before.credits},
        "after": {"credits": after.credits},
        "by": by,
    }
    uow.log.append(Event(at=now, kind="user.credits", user_id=user_id, data=data))


def _exact(credits: float) -> float:
    """Round to the stored millionth, so that sums in memory and in the store are the same."""
    return round(credits, 6)
