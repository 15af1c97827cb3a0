"""Quotas: checked after a change, in the transaction that makes it, which is undone if one is over.

Each check first locks what the user has, so that two changes that each fit can't pass together.
"""

from __future__ import annotations

from datetime import datetime

from edgeyard.errors import NotFound, QuotaExceeded, TooLarge
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.quotas import Quotas, check_pending_total, quotas_of
from edgeyard.scheduler.model.users import User
from edgeyard.scheduler.ports import UnitOfWork

_FREE_QUEUE = (
    "wait until some of them have run, cancel what you no longer need (edgeyard list, "
    "edgeyard cancel), or ask an operator for more"
)
_FREE_FILES = (
    "delete files that you no longer need (edgeyard files list, edgeyard files delete), also those "
    "of ended benchmarks (edgeyard files delete --benchmark ID), or ask an operator for more"
)
_QUEUE_RETRY_S = 10.0


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
    whose = f"user {user_id}"
    if quotas.max_bytes is not None or quotas.max_files is not None:
        uow.usage.lock(user_id)
    if quotas.max_bytes is not None:
        stored_bytes = uow.usage.stored_bytes(user_id)
        if stored_bytes > quotas.max_bytes + more_bytes:
            raise QuotaExceeded("max_bytes", quotas.max_bytes, stored_bytes, whose, _FREE_FILES)
    if files and quotas.max_files is not None:
        count = uow.usage.files(user_id)
        if count > quotas.max_files:
            raise QuotaExceeded("max_files", quotas.max_files, count, whose, _FREE_FILES)


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
    whose = f"user {user_id}"
    if quotas.max_bytes is not None:
        planned = uow.usage.stored_bytes(user_id) + more_bytes
        if planned > quotas.max_bytes:
            raise QuotaExceeded("max_bytes", quotas.max_bytes, planned, whose, advice)
    if quotas.max_files is not None:
        count = uow.usage.files(user_id) + more_files
        if count > quotas.max_files:
            raise QuotaExceeded("max_files", quotas.max_files, count, whose, advice)


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
    if quotas.max_pending is not None or quotas.max_live is not None:
        uow.usage.lock(user.user_id)
    check_room(uow, user.user_id, quotas)


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
    for name, limit, count in (
        ("max_pending", quotas.max_pending, uow.usage.pending),
        ("max_live", quotas.max_live, uow.usage.live),
    ):
        if limit is not None and (planned := count(user_id) + more) > limit:
            whose = f"user {user_id}"
            raise QuotaExceeded(name, limit, planned, whose, _FREE_QUEUE, _QUEUE_RETRY_S)


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
    if quotas.max_bookings is None:
        return
    if not more:
        uow.usage.lock(user_id)
    booked = uow.usage.bookings(user_id, now) + more
    if booked > quotas.max_bookings:
        advice = (
            "each start_time that is still to come reserves a board: wait until one of them has "
            "come, cancel one (edgeyard cancel ID), submit without start_time, or ask an operator"
        )
        raise QuotaExceeded("max_bookings", quotas.max_bookings, booked, f"user {user_id}", advice)


def check_schedules(uow: UnitOfWork, user_id: str, quotas: Quotas) -> None:
    """Check how many active schedules a user has, after one was added.

    Raises:
        QuotaExceeded: There are too many.
    """
    if quotas.max_schedules is None:
        return
    uow.usage.lock(user_id)
    active = uow.usage.schedules(user_id)
    if active > quotas.max_schedules:
        advice = "end one that you no longer need (edgeyard schedules list), or ask an operator"
        raise QuotaExceeded(
            "max_schedules", quotas.max_schedules, active, f"user {user_id}", advice
        )


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
