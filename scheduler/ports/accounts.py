"""The repositories of accounts, and of what each of them uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.quotas import Usage
from edgeyard.scheduler.model.users import ApiToken, Login, User


class Accounts(Protocol):
    """Users and tokens."""

    def add_user(self, user: User) -> None:
        """Raises Conflict: the id is taken."""
        ...

    def save_user(self, user: User) -> None:
        """Raises NotFound."""
        ...

    def user(self, user_id: str, *, for_update: bool = False) -> User:
        """Raises NotFound; one that is to be changed is changed by nobody else until the end."""
        ...

    def users(self) -> Sequence[User]: ...

    def add_token(self, token: ApiToken) -> None: ...

    def save_token(self, token: ApiToken) -> None:
        """Raises NotFound."""
        ...

    def token_by_hash(self, sha256: str) -> ApiToken:
        """Raises NotFound."""
        ...

    def tokens(self, user_id: str | None) -> Sequence[ApiToken]: ...

    def remove_expired_sessions(self, user_id: str, before: datetime) -> None:
        """Forget a user's tokens of sessions that expired or were revoked before that time."""
        ...

    def revoke_sessions(self, user_id: str, at: datetime, session_id: str | None = None) -> None:
        """Revoke a user's tokens of one session, or of all."""
        ...

    def put_login(self, login: Login) -> None:
        """Set a user's, in place of the one there was. Raises Conflict: another has the address."""
        ...

    def remove_login(self, user_id: str) -> None:
        """Raises NotFound."""
        ...

    def login(self, user_id: str) -> Login:
        """Raises NotFound."""
        ...

    def login_by_email(self, email: str) -> Login:
        """Raises NotFound."""
        ...


class UsageCounts(Protocol):
    """What users have stored and started, for quotas."""

    def lock(self, user_id: str) -> None:
        """Let nobody else add to what the user has until the end of the unit of work."""
        ...

    def stored_bytes(self, user_id: str) -> int:
        """Bytes of the user's content, with what this unit of work names."""
        ...

    def files(self, user_id: str) -> int: ...

    def pending(self, user_id: str) -> int: ...

    def live(self, user_id: str) -> int: ...

    def schedules(self, user_id: str) -> int: ...

    def tokens(self, user_id: str, now: datetime) -> int: ...

    def run(self, benchmark_id: str, attempt: int) -> tuple[int, int]:
        """Number and bytes of the files that an attempt uploaded."""
        ...

    def of(self, user_id: str, now: datetime) -> Usage:
        """All that a user has."""
        ...

    def all(self, now: datetime) -> Sequence[Usage]:
        """Of every account, in order of id."""
        ...
