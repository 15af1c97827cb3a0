"""Accounts, their tokens and logins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"  # sees what a submitter sees, and submits nothing
    SUBMITTER = "submitter"  # own benchmarks and files
    OPERATOR = "operator"  # everything
    HOST = "host"  # progress and results of attempts on the account's own boards


SUBMITTING = frozenset({Role.SUBMITTER, Role.OPERATOR})
"""Roles that submit benchmarks and files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account.

    Attributes:
        max_priority: Maximum ``user_priority``, 1-10.
        max_budget: Maximum ``user_budget``; None: unlimited.
        max_running: Maximum number of its benchmarks that hold boards; None: unlimited.
        share: Weight in fair sharing, above 0.
        max_lease_s: Maximum total time of its leases; 0: none. Operators have no limit.
        group_id: The `Group` that it is in; None: none.
        boards: For a host's account, the boards whose results it may upload, by ``target_uid``; a
            ``*`` at the end matches any suffix.
        max_bytes: This and the following are the account's own quotas, see
            `edgeyard.scheduler.model.quotas.Quotas`; None: those of the server's settings.
    """

    user_id: str
    role: Role
    created_at: datetime
    max_priority: int = 5
    max_budget: float | None = None
    disabled: bool = False
    max_running: int | None = None
    share: float = 1.0
    max_lease_s: float = 0.0
    boards: tuple[str, ...] = ()
    max_bytes: int | None = None
    max_files: int | None = None
    max_pending: int | None = None
    max_live: int | None = None
    max_bookings: int | None = None
    max_schedules: int | None = None
    max_tokens: int | None = None
    max_run_files: int | None = None
    max_run_bytes: int | None = None
    group_id: str | None = None

    @property
    def may_submit(self) -> bool:
        """Whether benchmarks may be made for the account."""
        return not self.disabled and self.role in SUBMITTING

    def serves(self, target_uid: str | None) -> bool:
        """Return whether a board is one of the account's `boards`."""
        return target_uid is not None and any(
            target_uid.startswith(board[:-1]) if board.endswith("*") else target_uid == board
            for board in self.boards
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Users who share limits, credits and a weight in fair sharing; None: no such limit.

    What all members have is added up; each member's own limits apply as well.

    Attributes:
        share: Weight of all members together in fair sharing, above 0.
        credits: Not yet spent, including what attempts of the group have reserved.
        max_running: Maximum number of attempts of the group that hold boards.
        max_bytes: This and the following bound the sums over the members, each counted as in
            `edgeyard.scheduler.model.quotas.Quotas`.
        usage_board_s: Board-seconds that were used for the group, decayed by half in each
            half-life, at ``usage_at``: of everybody who was in it when the run was placed.
        usage_at: None: never used.
    """

    group_id: str
    created_at: datetime
    share: float = 1.0
    credits: float | None = None
    max_running: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None
    max_pending: int | None = None
    max_live: int | None = None
    max_bookings: int | None = None
    max_schedules: int | None = None
    usage_board_s: float = 0.0
    usage_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token, of which only the hash is stored.

    Attributes:
        refreshes: It is only valid for obtaining new access tokens of its session.
        session_id: ``token_id`` of the session's first token, which refreshes, or is that of a
            browser; None: it belongs to no session.
        made_by: ``token_id`` of the token that made it, whose end is its end too; None: made by the
            server, or by a log-in.
    """

    token_id: str
    user_id: str
    role: Role
    sha256: str
    label: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    refreshes: bool = False
    session_id: str | None = None
    made_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The e-mail address of an account, and its password if it has one.

    Attributes:
        email: In lower case; unique.
        password_hash: In the format of argon2, with parameters and salt; "": no password, so that
            nobody can log in.
        made_by: ``token_id`` of the operator's token that set it; a user who states the password
            that they have does not change it.
    """

    user_id: str
    email: str
    password_hash: str
    changed_at: datetime
    made_by: str | None = None
