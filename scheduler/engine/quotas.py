"""Quotas: checked after a change, in the transaction that makes it, which is undone if one is over.

Each check first locks what the user has, so that two changes that each fit can't pass together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from edgeyard.errors import NotFound, QuotaExceeded, TooLarge
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.quotas import Quotas, check_pending_total, group_quotas, quotas_of
from edgeyard.scheduler.model.users import Group, User
from edgeyard.scheduler.ports import UnitOfWork

_FREE_QUEUE = (
    "wait until some of them have run, cancel what you no longer need (edgeyard list, "
    "edgeyard cancel), or ask an operator for more"
)
_FREE_FILES = (
    "delete files that you no longer need (edgeyard files list, edgeyard files delete), also those "
    "of ended benchmarks (edgeyard files delete --benchmark ID), or ask an operator for more"
)
_FREE_BOOKINGS = (
    "each start_time that is still to come reserves a board: wait until one of them has "
    "come, cancel one (edgeyard cancel ID), submit without start_time, or ask an operator"
)
_QUEUE_RETRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """Whose quotas are checked: a user, or the members of a group together."""

    whose: str
    user_ids: Sequence[str]
    quotas: Quotas
    shared: bool = False

    def used(self, count: Callable[[str], int]) -> int:
        """Return what all of them have of something that is counted by user."""
        return sum(count(user_id) for user_id in self.user_ids)

    def exceeded(
        self, name: str, used: int, advice: str, retry_after_s: float | None = None
    ) -> QuotaExceeded:
        """Return the error of a quota that ``used`` is over."""
        if self.shared:
            advice = f"its members share it: {advice}"
        limit = getattr(self.quotas, name)
        return QuotaExceeded(name, limit, used, self.whose, advice, retry_after_s)


def _holders(
    uow: UnitOfWork, user_id: str, quotas: Quotas, *names: str, lock: bool
) -> Iterator[_Holder]:
    """Yield the user and their group, each only if it has one of the named quotas.

    Args:
        uow: Reads the group.
        user_id: Whose change it is.
        quotas: Of the user.
        names: Of the quotas.
        lock: Until the end of the unit of work, no other change adds to what they have.
    """
    if any(getattr(quotas, name) is not None for name in names):
        if lock:
            uow.usage.lock(user_id)
        yield _Holder(whose=f"user {user_id}", user_ids=(user_id,), quotas=quotas)
    try:
        group_id = uow.accounts.user(user_id).group_id
        if group_id is None:
            return
        together = group_quotas(uow.accounts.group(group_id))
        if not any(getattr(together, name) is not None for name in names):
            return
        if lock:
            together = group_quotas(uow.accounts.group(group_id, for_update=True))
    except NotFound:  # Edgeyard's own account, or a group that was removed a moment ago
        return
    members = uow.accounts.members(group_id)
    yield _Holder(whose=f"group {group_id}", user_ids=members, quotas=together, shared=True)


def group_of(uow: UnitOfWork, user: User) -> Group | None:
    """Return the group that a user is in; None: in none, or it was removed a moment ago."""
    if user.group_id is None:
        return None
    try:
        return uow.accounts.group(user.group_id)
    except NotFound:
        return None


def of_account(uow: UnitOfWork, user_id: str, defaults: Quotas) -> Quotas:
    """Return the quotas of an account; no bound where it is gone, or is Edgeyard's own."""
    try:
        return quotas_of(uow.accounts.user(user_id), defaults)
    except NotFound:
        return Quotas()


def check_stored(
    uow: UnitOfWork, user_id: str, quotas: Quotas, *, more_bytes: int = 0, files: bool = False
) -> None:
    """Check what is stored for a user, after something was named.

    Args:
        uow: In which it was named.
        user_id: Whose it is.
        quotas: Of the user.
        more_bytes: By which `Quotas.max_bytes` may be exceeded.
        files: Check the number of uploaded files, too.

    Raises:
        QuotaExceeded: It is too much.
    """
    for holder in _holders(uow, user_id, quotas, "max_bytes", "max_files", lock=True):
        max_bytes, max_files = holder.quotas.max_bytes, holder.quotas.max_files
        if max_bytes is not None:
            stored_bytes = holder.used(uow.usage.stored_bytes)
            if stored_bytes > max_bytes + more_bytes:
                raise holder.exceeded("max_bytes", stored_bytes, _FREE_FILES)
        if files and max_files is not None:
            count = holder.used(uow.usage.files)
            if count > max_files:
                raise holder.exceeded("max_files", count, _FREE_FILES)


def check_planned(
    uow: UnitOfWork,
    user_id: str,
    quotas: Quotas,
    *,
    more_bytes: int,
    more_files: int,
    advice: str = _FREE_FILES,
) -> None:
    """Check what would be stored for a user if more were uploaded; nothing is locked.

    Args:
        uow: Reads the counts.
        user_id: Whose it would be.
        quotas: Of the user.
        more_bytes: Size of what would be uploaded.
        more_files: Number of these files.
        advice: What the user can do where it is too much.

    Raises:
        QuotaExceeded: It would be too much.
    """
    for holder in _holders(uow, user_id, quotas, "max_bytes", "max_files", lock=False):
        max_bytes, max_files = holder.quotas.max_bytes, holder.quotas.max_files
        if max_bytes is not None:
            planned = holder.used(uow.usage.stored_bytes) + more_bytes
            if planned > max_bytes:
                raise holder.exceeded("max_bytes", planned, advice)
        if max_files is not None:
            count = holder.used(uow.usage.files) + more_files
            if count > max_files:
                raise holder.exceeded("max_files", count, advice)


def check_upload(uow: UnitOfWork, user_id: str, quotas: Quotas) -> None:
    """Check what is stored for a user and what their uploads have yet to send, after one began.

    Raises:
        QuotaExceeded: Together it is too much.
    """
    check_stored(uow, user_id, quotas)
    advice = (
        f"{_FREE_FILES}; or give up an upload that broke off (edgeyard files unfinished, "
        "edgeyard files abandon ID)"
    )
    uploads, left_bytes = uow.uploads.announced(user_id)
    check_planned(uow, user_id, quotas, more_bytes=left_bytes, more_files=uploads, advice=advice)


def check_queue(uow: UnitOfWork, user: User, quotas: Quotas, max_pending_total: int | None) -> None:
    """Check how much a user has in the queue, after benchmarks were submitted.

    Args:
        uow: In which they were submitted.
        user: Who submitted.
        quotas: Of the user.
        max_pending_total: Pending benchmarks of all users together; None: no bound.

    Raises:
        QuotaExceeded: It is too much, now or (of all users together) when it is committed.
    """
    if max_pending_total is not None:
        uow.benchmarks.bound_pending(max_pending_total)
    check_stored(uow, user.user_id, quotas)
    _check_room(uow, user.user_id, quotas, lock=True)


def check_room_of_all(uow: UnitOfWork, max_pending_total: int | None, more: int) -> None:
    """Check how many benchmarks of all users would wait if more were submitted; nothing is locked.

    Raises:
        QuotaExceeded: There would be too many.
    """
    if max_pending_total is not None:
        pending = uow.benchmarks.counts_by_status().get(Status.PENDING, 0)
        check_pending_total(pending + more, max_pending_total)


def check_room(uow: UnitOfWork, user_id: str, quotas: Quotas, more: int = 0) -> None:
    """Check how much a user would have in the queue if more were submitted; nothing is locked.

    Args:
        uow: Reads the counts.
        user_id: Whose they would be.
        quotas: Of the user.
        more: Number of benchmarks.

    Raises:
        QuotaExceeded: It would be too much.
    """
    _check_room(uow, user_id, quotas, more, lock=False)


def _check_room(
    uow: UnitOfWork, user_id: str, quotas: Quotas, more: int = 0, *, lock: bool
) -> None:
    for holder in _holders(uow, user_id, quotas, "max_pending", "max_live", lock=lock):
        for name, limit, count in (
            ("max_pending", holder.quotas.max_pending, uow.usage.pending),
            ("max_live", holder.quotas.max_live, uow.usage.live),
        ):
            if limit is not None and (planned := holder.used(count) + more) > limit:
                raise holder.exceeded(name, planned, _FREE_QUEUE, _QUEUE_RETRY_S)


def check_bookings(
    uow: UnitOfWork, user_id: str, quotas: Quotas, now: datetime, more: int = 0
) -> None:
    """Check how many starts that are still to come a user has booked, after some were submitted.

    Args:
        uow: In which they were submitted.
        user_id: Whose they are.
        quotas: Of the user.
        now: Starts after it count.
        more: Number of benchmarks that would be submitted, which are not counted yet; above 0
            nothing is locked.

    Raises:
        QuotaExceeded: There are too many.
    """
    for holder in _holders(uow, user_id, quotas, "max_bookings", lock=not more):
        limit = holder.quotas.max_bookings
        booked = holder.used(lambda each: uow.usage.bookings(each, now)) + more
        if limit is not None and booked > limit:
            raise holder.exceeded("max_bookings", booked, _FREE_BOOKINGS)


def check_schedules(uow: UnitOfWork, user_id: str, quotas: Quotas) -> None:
    """Check how many active schedules a user has, after one was added.

    Raises:
        QuotaExceeded: There are too many.
    """
    for holder in _holders(uow, user_id, quotas, "max_schedules", lock=True):
        limit = holder.quotas.max_schedules
        active = holder.used(uow.usage.schedules)
        if limit is not None and active > limit:
            advice = "end one that you no longer need (edgeyard schedules list), or ask an operator"
            raise holder.exceeded("max_schedules", active, advice)


def check_tokens(uow: UnitOfWork, user_id: str, quotas: Quotas, now: datetime) -> None:
    """Check how many good tokens a user has, after one was added.

    Raises:
        QuotaExceeded: There are too many.
    """
    if quotas.max_tokens is None:
        return
    uow.usage.lock(user_id)
    good = uow.usage.tokens(user_id, now)
    if good > quotas.max_tokens:
        advice = "revoke one that you no longer need (edgeyard tokens list), or ask an operator"
        raise QuotaExceeded("max_tokens", quotas.max_tokens, good, f"user {user_id}", advice)


def check_registrations(
    uow: UnitOfWork, user_id: str, *, max_per_user: int, max_total: int
) -> None:
    """Check how much is registered for the platform's client, after something was added.

    Args:
        uow: In which it was added, with the registrations locked.
        user_id: Who added it.
        max_per_user: Registrations of one user, all kinds together.
        max_total: Registrations of all users together.

    Raises:
        QuotaExceeded: There are too many.
    """
    counts = uow.registrations.counts()
    own, total = counts.get(user_id, 0), sum(counts.values())
    if own > max_per_user:
        advice = "delete a family, engine, board or parameter of yours, or ask an operator for more"
        raise QuotaExceeded("user_max_registrations", max_per_user, own, f"user {user_id}", advice)
    if total > max_total:
        advice = "ask an operator to delete unused ones, or to raise the limit"
        raise QuotaExceeded(
            "max_registrations_total", max_total, total, "all users together", advice
        )


def check_run(
    uow: UnitOfWork, benchmark_id: str, attempt: int, user_id: str, quotas: Quotas
) -> None:
    """Check what an attempt has uploaded, after more was added.

    A run may take its user over `Quotas.max_bytes` by as much as one run may upload: it was
    admitted, and its result shall not be lost.

    Raises:
        TooLarge: It is too much.
    """
    count, size_bytes = uow.usage.run(benchmark_id, attempt)
    whose = f"each run of user {user_id}"
    if quotas.max_run_files is not None and count > quotas.max_run_files:
        raise TooLarge.of_run("max_run_files", quotas.max_run_files, count, whose)
    if quotas.max_run_bytes is not None and size_bytes > quotas.max_run_bytes:
        raise TooLarge.of_run("max_run_bytes", quotas.max_run_bytes, size_bytes, whose)
    try:
        check_stored(uow, user_id, quotas, more_bytes=quotas.max_run_bytes or 0)
    except QuotaExceeded as error:
        # The task can't wait for its user to make room.
        raise TooLarge.of_run(error.limit, error.value, error.used, error.whose) from error
