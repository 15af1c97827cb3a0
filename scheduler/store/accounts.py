"""Users and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, delete, or_, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.users import ApiToken, Group, Login, Role, User
from edgeyard.scheduler.ports import Accounts
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import logins, tokens, user_groups, users
from edgeyard.scheduler.store.transaction import Transaction

_USER = select(users).where(users.c.user_id == bindparam("id"))
_USER_LOCKED = _USER.with_for_update(key_share=True)
_BY_HASH = select(tokens).where(tokens.c.sha256 == bindparam("sha256"))
_TOKEN = select(tokens).where(tokens.c.token_id == bindparam("id"))
_TOKEN_LOCKED = _TOKEN.with_for_update()
_GROUP = select(user_groups).where(user_groups.c.group_id == bindparam("id"))
_GROUP_LOCKED = _GROUP.with_for_update()
_GROUPS = select(user_groups).order_by(user_groups.c.group_id)
_MEMBERS = (
    select(users.c.user_id).where(users.c.group_id == bindparam("id")).order_by(users.c.user_id)
)
_USERS = select(users).order_by(users.c.user_id)


class SqlAccounts(Accounts):
    """`Accounts` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add_user(self, user: User) -> None:
        if not self._tx.insert(users, flat_row(user)):
            raise Conflict(f"user {user.user_id} already exists")

    def save_user(self, user: User) -> None:
        saved = self._tx.run(
            update(users).where(users.c.user_id == user.user_id).values(flat_row(user))
        )
        if not saved.rowcount:
            raise NotFound("user", user.user_id)

    def user(self, user_id: str, *, for_update: bool = False) -> User:
        locked = for_update and self._tx.locks
        row = self._tx.row(_USER_LOCKED if locked else _USER, {"id": user_id})
        if row is None:
            raise NotFound("user", user_id)
        return _user(row)

    def users(self) -> Sequence[User]:
        return [_user(row) for row in self._tx.rows(_USERS)]

    def add_group(self, group: Group) -> None:
        if not self._tx.insert(user_groups, flat_row(group)):
            raise Conflict(f"group {group.group_id} already exists")

    def save_group(self, group: Group) -> None:
        which = user_groups.c.group_id == group.group_id
        saved = self._tx.run(update(user_groups).where(which).values(flat_row(group)))
        if not saved.rowcount:
            raise NotFound("group", group.group_id)

    def group(self, group_id: str, *, for_update: bool = False) -> Group:
        locked = for_update and self._tx.locks
        row = self._tx.row(_GROUP_LOCKED if locked else _GROUP, {"id": group_id})
        if row is None:
            raise NotFound("group", group_id)
        return _group(row)

    def groups(self) -> Sequence[Group]:
        return [_group(row) for row in self._tx.rows(_GROUPS)]

    def members(self, group_id: str) -> Sequence[str]:
        return [str(row["user_id"]) for row in self._tx.rows(_MEMBERS, {"id": group_id})]

    def remove_group(self, group_id: str) -> None:
        gone = self._tx.run(delete(user_groups).where(user_groups.c.group_id == group_id))
        if not gone.rowcount:
            raise NotFound("group", group_id)
        self._tx.run(update(users).where(users.c.group_id == group_id).values(group_id=None))

    def add_token(self, token: ApiToken) -> None:
        if not self._tx.insert(tokens, flat_row(token)):
            raise Conflict(f"token {token.token_id} already exists")

    def token(self, token_id: str, *, for_update: bool = False) -> ApiToken:
        locked = for_update and self._tx.locks
        row = self._tx.row(_TOKEN_LOCKED if locked else _TOKEN, {"id": token_id})
        if row is None:
            raise NotFound("token", token_id)
        return _token(row)

    def token_by_hash(self, sha256: str) -> ApiToken:
        row = self._tx.row(_BY_HASH, {"sha256": sha256})
        if row is None:
            raise NotFound("token", "")
        return _token(row)

    def tokens(self, user_id: str | None) -> Sequence[ApiToken]:
        query = select(tokens).order_by(tokens.c.created_at, tokens.c.token_id)
        if user_id is not None:
            query = query.where(tokens.c.user_id == user_id)
        return [_token(row) for row in self._tx.rows(query)]

    def remove_expired_sessions(self, user_id: str, before: datetime) -> None:
        self._tx.run(
            delete(tokens).where(
                tokens.c.user_id == user_id,
                tokens.c.session_id.is_not(None),
                or_(tokens.c.expires_at < before, tokens.c.revoked_at < before),
            )
        )

    def revoke_tokens(self, token_ids: Sequence[str], at: datetime) -> Sequence[str]:
        tree = select(tokens.c.token_id).where(tokens.c.token_id.in_(token_ids)).cte(recursive=True)
        tree = tree.union(select(tokens.c.token_id).where(tokens.c.made_by == tree.c.token_id))
        which = tokens.c.token_id.in_(select(tree.c.token_id)) & tokens.c.revoked_at.is_(None)
        revoked: list[str] = []
        # Again, until there is none: one that locked its token to make another one may have
        # committed after this transaction looked and before it waited for that lock.
        while found := [str(row["token_id"]) for row in self._tx.rows(select(tokens).where(which))]:
            self._tx.run(update(tokens).where(tokens.c.token_id.in_(found)).values(revoked_at=at))
            revoked += found
        return revoked

    def keep_made(self, token: ApiToken) -> None:
        for table in (tokens, logins):
            self._tx.run(
                update(table).where(table.c.made_by == token.token_id).values(made_by=token.made_by)
            )

    def remove_logins(self, made_by: Sequence[str]) -> Sequence[str]:
        which = logins.c.made_by.in_(made_by)
        found = [str(row["user_id"]) for row in self._tx.rows(select(logins).where(which))]
        self._tx.run(delete(logins).where(which))
        return found

    def put_login(self, login: Login) -> None:
        self._tx.run(delete(logins).where(logins.c.user_id == login.user_id))
        if not self._tx.insert(logins, flat_row(login)):
            raise Conflict(f"another account has the e-mail address {login.email}")

    def remove_login(self, user_id: str) -> None:
        gone = self._tx.run(delete(logins).where(logins.c.user_id == user_id))
        if not gone.rowcount:
            raise NotFound("password of user", user_id)

    def login(self, user_id: str) -> Login:
        row = self._tx.row(select(logins).where(logins.c.user_id == user_id))
        if row is None:
            raise NotFound("password of user", user_id)
        return Login(**cast("dict[str, Any]", dict(row)))

    def login_by_email(self, email: str) -> Login:
        row = self._tx.row(select(logins).where(logins.c.email == email))
        if row is None:
            raise NotFound("account with e-mail address", email)
        return Login(**cast("dict[str, Any]", dict(row)))


def _user(row: Row) -> User:
    return User(**cast("dict[str, Any]", {**row, "role": Role(cast(str, row["role"]))}))


def _group(row: Row) -> Group:
    return Group(**cast("dict[str, Any]", dict(row)))


def _token(row: Row) -> ApiToken:
    return ApiToken(**cast("dict[str, Any]", {**row, "role": Role(cast(str, row["role"]))}))
