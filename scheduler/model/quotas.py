"""Quotas of users, and what counts towards them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from edgeyard.errors import QuotaExceeded
from edgeyard.scheduler.model.users import Group, Role, User


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What one user may have at most; None: unlimited.

    Attributes:
        max_bytes: Size of the content stored for the user: uploads, downloads for their benchmarks,
            and results. Content counts once, however many names it has; content of two users
            counts for both.
        max_files: Names of uploaded files.
        max_pending: Pending benchmarks.
        max_live: Benchmarks that wait or run.
        max_bookings: Live benchmarks whose ``start_time`` is still to come, each board of a
            gang counting: boards are reserved for them.
        max_schedules: Active schedules.
        max_tokens: Tokens that are neither revoked nor expired.
        max_run_files: Files that one attempt may upload.
        max_run_bytes: Bytes that one attempt may upload. Results may exceed `max_bytes` by as much,
            so that no finished run is lost.
    """

    max_bytes: int | None = None
    max_files: int | None = None
    max_pending: int | None = None
    max_live: int | None = None
    max_bookings: int | None = None
    max_schedules: int | None = None
    max_tokens: int | None = None
    max_run_files: int | None = None
    max_run_bytes: int | None = None


NO_QUOTAS = Quotas()

QUOTA_NAMES = tuple(each.name for each in fields(Quotas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one user has; `Quotas` defines what counts."""

    user_id: str
    stored_bytes: int = 0
    files: int = 0
    pending: int = 0
    live: int = 0
    bookings: int = 0
    schedules: int = 0
    tokens: int = 0


USED = {
    "max_bytes": "stored_bytes",
    "max_files": "files",
    "max_pending": "pending",
    "max_live": "live",
    "max_bookings": "bookings",
    "max_schedules": "schedules",
    "max_tokens": "tokens",
}
"""Field of `Usage` by the quota that bounds it; the others hold for each run."""


GROUP_QUOTA_NAMES = (
    "max_bytes", "max_files", "max_pending", "max_live", "max_bookings", "max_schedules"
)  # fmt: skip
"""Quotas that a group may have: they bound the sum over its members."""


def group_quotas(group: Group) -> Quotas:
    """Return what a group's members may have together."""
    return Quotas(**{name: getattr(group, name) for name in GROUP_QUOTA_NAMES})


def quotas_of(user: User, defaults: Quotas) -> Quotas:
    """Return a user's quotas: those of their account, and the defaults for the rest.

    Operators have no default quotas, so that they can work when users have taken everything.
    """
    own = {name: value for name in QUOTA_NAMES if (value := getattr(user, name)) is not None}
    return replace(Quotas() if user.role is Role.OPERATOR else defaults, **own)


def check_pending_total(pending: int, max_pending_total: int | None) -> None:
    """Check how many benchmarks of all users together wait.

    Args:
        pending: Benchmarks that wait, or would wait.
        max_pending_total: How many may wait; None: any number.

    Raises:
        QuotaExceeded: There are too many.
    """
    if max_pending_total is not None and pending > max_pending_total:
        raise QuotaExceeded(
            "max_pending_total",
            max_pending_total,
            pending,
            "all users together",
            "try again when some of the queue has run",
            retry_after_s=10.0,
        )
