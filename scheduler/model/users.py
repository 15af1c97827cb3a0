"""Accounts, their tokens and logins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a token may do."""

    SUBMITTER = "submitter"  # own benchmarks and files
    OPERATOR = "operator"  # everything
    HOST = "host"  # progress and results of attempts on the account's own boards


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account.

    Attributes:
        max_priority: Highest ``user_priority`` it may ask for, 1-10.
        max_budget: Highest ``user_budget`` it may ask for; None: no bound.
        max_running: Benchmarks of its that may hold boards at once; None: no bound.
        share: Weight in fair sharing, above 0.
        max_lease_s: Longest that it may keep boards for itself, all its leases together;
            0: not at all. Operators are not bound.
        boards: Of a host's account: the boards whose results it may upload, by ``target_uid``; a
            ``*`` at the end stands for any ending.
        max_bytes: This and the following: the account's own quotas, see
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
    max_schedules: int | None = None
    max_tokens: int | None = None
    max_run_files: int | None = None
    max_run_bytes: int | None = None

    def serves(self, target_uid: str | None) -> bool:
        """Whether a board is one of the account's `boards`."""
        return target_uid is not None and any(
            target_uid.startswith(board[:-1]) if board.endswith("*") else target_uid == board
            for board in self.boards
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token as the store knows it: never the token itself.

    Attributes:
        refreshes: It is good for new access tokens of its session, and for nothing else.
        session_id: ``token_id`` of the session's refresh token; None: it belongs to no session.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An e-mail address and a password that stand for an account.

    Attributes:
        email: In lower case; no two accounts have the same.
        password_hash: As argon2 writes it, with its parameters and salt.
    """

    user_id: str
    email: str
    password_hash: str
    changed_at: datetime
