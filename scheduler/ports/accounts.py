"""The repositories of accounts, and of what each of them uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.quotas import Usage
from edgeyard.scheduler.model.users import ApiToken, Group, Login, User


class Accounts(Protocol):
    """Stores users, their tokens and their logins."""

    def add_user(self, user: User) -> None:
        """Create an account.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def save_user(self, user: User) -> None:
        """Store a changed account.

        Raises:
            NotFound: There is no such account.
        """
        ...

    def user(self, user_id: str, *, for_update: bool = False) -> User:
        """Return an account.

        Args:
            for_update: Lock it until the end of the unit of work.

        Raises:
            NotFound: There is no such account.
        """
        ...

    def users(self) -> Sequence[User]:
        """Return all accounts in order of id."""
        ...

    def add_group(self, group: Group) -> None:
        """Create a group.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def save_group(self, group: Group) -> None:
        """Store a changed group.

        Raises:
            NotFound: There is no such group.
        """
        ...

    def group(self, group_id: str, *, for_update: bool = False) -> Group:
        """Return a group.

        Args:
            for_update: Lock it until the end of the unit of work.

        Raises:
            NotFound: There is no such group.
        """
        ...

    def groups(self) -> Sequence[Group]:
        """Return all groups in order of id."""
        ...

    def members(self, group_id: str) -> Sequence[str]:
        """Return the ids of a group's users in their order."""
        ...

    def remove_group(self, group_id: str) -> None:
        """Remove a group; its members are in none then.

        Raises:
            NotFound: There is no such group.
        """
        ...

    def add_token(self, token: ApiToken) -> None:
        """Store a token's hash.

        Raises:
            Conflict: The id or the hash is taken.
        """
        ...

    def token(self, token_id: str, *, for_update: bool = False) -> ApiToken:
        """Return a token, also one that has expired or was revoked.

        Args:
            for_update: Lock it until the end of the unit of work: nobody revokes it meanwhile.

        Raises:
            NotFound: There is no such token.
        """
        ...

    def token_by_hash(self, sha256: str) -> ApiToken:
        """Return a token, also one that has expired or was revoked.

        Raises:
            NotFound: There is no such token.
        """
        ...

    def tokens(self, user_id: str | None) -> Sequence[ApiToken]:
        """Return a user's tokens, oldest first; None: everybody's."""
        ...

    def remove_expired_sessions(self, user_id: str, before: datetime) -> None:
        """Remove a user's session tokens that expired or were revoked before that time."""
        ...

    def revoke_tokens(self, token_ids: Sequence[str], at: datetime) -> Sequence[str]:
        """Revoke tokens, those that they made, those that these made, and so on.

        Returns:
            Ids of the tokens that it revoked; those that were revoked before are not among them.
        """
        ...

    def keep_made(self, token: ApiToken) -> None:
        """Let the tokens and passwords that a token made count as made by the token that made it.

        So they stay when it is revoked.
        """
        ...

    def remove_logins(self, made_by: Sequence[str]) -> Sequence[str]:
        """Remove the logins that these tokens made; returns the ids of their users."""
        ...

    def put_login(self, login: Login) -> None:
        """Set a user's login, replacing an earlier one.

        Raises:
            Conflict: Another account has the e-mail address.
        """
        ...

    def remove_login(self, user_id: str) -> None:
        """Remove a user's login.

        Raises:
            NotFound: The user has none.
        """
        ...

    def login(self, user_id: str) -> Login:
        """Return a user's login.

        Raises:
            NotFound: The user has none.
        """
        ...

    def login_by_email(self, email: str) -> Login:
        """Return the login of an e-mail address.

        Raises:
            NotFound: No account has this address.
        """
        ...


class UsageCounts(Protocol):
    """Counts what users have, for their quotas."""

    def lock(self, user_id: str) -> None:
        """Let no other transaction add to what the user has until the end of the unit of work."""
        ...

    def stored_bytes(self, user_id: str) -> int:
        """Return the size of the user's content, including what this unit of work adds."""
        ...

    def files(self, user_id: str) -> int:
        """Return the number of names of uploaded files."""
        ...

    def pending(self, user_id: str) -> int:
        """Return the number of pending benchmarks."""
        ...

    def live(self, user_id: str) -> int:
        """Return the number of live benchmarks."""
        ...

    def bookings(self, user_id: str, now: datetime) -> int:
        """Return the number of live benchmarks whose ``start_time`` is after ``now``."""
        ...

    def schedules(self, user_id: str) -> int:
        """Return the number of active schedules."""
        ...

    def tokens(self, user_id: str, now: datetime) -> int:
        """Return the number of tokens that are neither revoked nor expired, without sessions."""
        ...

    def run(self, benchmark_id: str, attempt: int) -> tuple[int, int]:
        """Return number and size in bytes of the files that an attempt uploaded."""
        ...

    def of(self, user_id: str, now: datetime) -> Usage:
        """Return all counts of a user."""
        ...

    def all(self, now: datetime) -> Sequence[Usage]:
        """Return the counts of every account, in order of id."""
        ...
