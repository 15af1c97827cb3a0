"""What users may have and have, gathered from their accounts for a decision."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from edgeyard.scheduler.model.accounts import Charge, decayed
from edgeyard.scheduler.model.knowledge import Entitlement
from edgeyard.scheduler.ports import UnitOfWork


def entitlements(
    uow: UnitOfWork, open_charges: Sequence[Charge], now: datetime
) -> Mapping[str, Entitlement]:
    """Return by user id what users with limits, a share, a balance or running benchmarks may use.

    What runs counts as used from when its board was given to it.

    Args:
        uow: Reads accounts and balances.
        open_charges: Of the attempts that have not ended.
        now: The time.
    """
    running: Counter[str] = Counter()
    held_s: defaultdict[str, float] = defaultdict(float)
    for charge in open_charges:
        running[charge.user_id] += 1
        held_s[charge.user_id] += max(0.0, (now - charge.reserved_at).total_seconds())
    users = {
        each.user_id: each
        for each in uow.accounts.users()
        if each.max_running is not None or each.share != 1.0 or each.group_id is not None
    }
    balances = {each.user_id: each for each in uow.credits.balances()}
    found = {}
    for user_id in sorted({*users, *balances, *running}):
        user, balance = users.get(user_id), balances.get(user_id)
        found[user_id] = Entitlement(
            credits_left=None if balance is None else balance.credits_left,
            max_running=None if user is None else user.max_running,
            running=running[user_id],
            usage_board_s=held_s[user_id] + (0.0 if balance is None else balance.usage_s(now)),
            share=1.0 if user is None else user.share,
            group_id=None if user is None else user.group_id,
        )
    return found


def group_entitlements(
    uow: UnitOfWork, open_charges: Sequence[Charge], now: datetime
) -> Mapping[str, Entitlement]:
    """Return by id what the members of each group have and may have together.

    What runs counts for the group that its user was in when it was placed.

    Args:
        uow: Reads the groups.
        open_charges: Of the attempts that have not ended.
        now: The time.
    """
    groups = uow.accounts.groups()
    if not groups:
        return {}
    running: Counter[str] = Counter()
    held_s: defaultdict[str, float] = defaultdict(float)
    reserved: defaultdict[str, float] = defaultdict(float)
    for charge in open_charges:
        if charge.group_id is not None:
            running[charge.group_id] += 1
            held_s[charge.group_id] += max(0.0, (now - charge.reserved_at).total_seconds())
            reserved[charge.group_id] += charge.reserved
    return {
        each.group_id: Entitlement(
            credits_left=None
            if each.credits is None
            else round(each.credits - reserved[each.group_id], 6),
            max_running=each.max_running,
            running=running[each.group_id],
            usage_board_s=held_s[each.group_id] + decayed(each.usage_board_s, each.usage_at, now),
            share=each.share,
        )
        for each in groups
    }
