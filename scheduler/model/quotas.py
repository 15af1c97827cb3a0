"""How much of the server one user may take, and takes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from edgeyard.scheduler.model.users import Role, User


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The most that one user may have; None: no bound.

    Attributes:
        max_bytes: Content that is stored for the user: uploads, what was fetched from URLs for
            their benchmarks, and results. Each content counts once, however many names it has;
            content of two users counts for both.
        max_files: Names of uploaded files.
        max_pending: Benchmarks that wait to be placed.
        max_live: Benchmarks that wait or run.
        max_schedules: Active schedules.
        max_tokens: Tokens that are neither revoked nor expired.
        max_run_files: Files that one attempt may upload.
        max_run_bytes: Bytes that one attempt may upload; results may take a user over `max_bytes`
            by so much, so that no finished run is lost.
    """

    max_bytes: int | None = None
    max_files: int | None = None
    max_pending: int | None = None
    max_live: int | None = None
    max_schedules: int | None = None
    max_tokens: int | None = None
    max_run_files: int | None = None
    max_run_bytes: int | None = None


NO_QUOTAS = Quotas()

QUOTA_NAMES = tuple(each.name for each in fields(Quotas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one user has now; see `Quotas` for what counts."""

    user_id: str
    stored_bytes: int = 0
    files: int = 0
    pending: int = 0
    live: int = 0
    schedules: int = 0
    tokens: int = 0


USED = {
    "max_bytes": "stored_bytes",
    "max_files": "files",
    "max_pending": "pending",
    "max_live": "live",
    "max_schedules": "schedules",
    "max_tokens": "tokens",
}
"""Field of `Usage` by the quota that bounds it; the others hold for each run."""


def quotas_of(user: User, defaults: Quotas) -> Quotas:
    """Return what bounds a user: their account's own quotas, and the defaults for the rest.

    The defaults do not hold for operators, who must be able to work when users have taken all.
    """
    own = {name: value for name in QUOTA_NAMES if (value := getattr(user, name)) is not None}
    return replace(Quotas() if user.role is Role.OPERATOR else defaults, **own)
