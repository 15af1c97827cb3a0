"""Stored files and results, users and tokens, campaigns and events: what the store keeps beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Content in the file store."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFile:
    """A name that a user gave to stored content; the newest of a name is the one it means."""

    file_id: str
    user_id: str
    name: str
    sha256: str
    size_bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadGrant:
    """A name under ``/download/`` that can't be guessed and belongs to one attempt.

    Attributes:
        name: Random, ends with the plain file name's suffix.
        content: Inline content instead of a stored file (``spec.json``); None for stored files.
    """

    name: str
    benchmark_id: str
    attempt: int
    filename: str
    sha256: str
    size_bytes: int
    content: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """A file that a task uploaded."""

    benchmark_id: str
    attempt: int
    name: str
    sha256: str
    size_bytes: int
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The parsed ``report.json`` of an attempt (schema: ``docs/reference/result.schema.json``)."""

    benchmark_id: str
    attempt: int
    report: Mapping[str, object]
    received_at: datetime


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


class RegistrationKind(StrEnum):
    """What users of the platform's client register."""

    FAMILY = "family"  # of boards
    ENGINE = "engine"
    BOARD = "board"
    PARAMETER = "parameter"  # of engines


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A family, engine, board or parameter that a user announced; the inventory has the boards.

    Attributes:
        name: Unique within its kind; of a board its ``target_uid``.
        user_id: Who registered it.
        body: What was said of it.
    """

    kind: RegistrationKind
    name: str
    user_id: str
    body: Mapping[str, object]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The benchmarks of one matrix submission."""

    campaign_id: str
    user_id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A job description whose every firing is a benchmark of its own.

    Attributes:
        last_benchmark_id: The newest benchmark that it made; None before the first.
        skipped: How many firings made none, because the one before still waited.
    """

    schedule_id: str
    user_id: str
    cron: str
    description: Mapping[str, object]
    created_at: datetime
    next_fire: datetime
    active: bool = True
    last_benchmark_id: str | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardOverride:
    """What an operator said of a board."""

    target_uid: str
    drained: bool
    reason: str
    by_user_id: str
    at: datetime


class PolicySeat(StrEnum):
    """What a policy is activated for."""

    ACTIVE = "active"  # it decides
    SHADOW = "shadow"  # it decides beside the active one, and nothing comes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyActivation:
    """A policy that an operator put to work.

    Attributes:
        text: Its TOML as it was then: a file that is changed later changes nothing.
    """

    seat: PolicySeat
    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy that was at work once; its name and version stand for this text for good.

    Attributes:
        by_user_id: Who brought it; "": the server's settings.
        at: When it was first at work.
    """

    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverride:
    """The policy by which an operator has one benchmark decided; fields as of its activation."""

    benchmark_id: str
    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where a user wants to be told what became of their benchmarks.

    Attributes:
        salt: Its secret is made of this and of a key that is not stored here.
        seen_seq: Events up to this one have been looked at for it.
        trouble: What was wrong with the last delivery; "" when nothing was.
    """

    user_id: str
    url: str
    salt: str
    created_at: datetime
    seen_seq: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that is still to be told to its owner's webhook.

    Attributes:
        body: JSON, as it is sent and signed.
        tries: That failed so far.
        next_at: Not before.
    """

    event_seq: int
    user_id: str
    body: str
    tries: int
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the append-only log.

    Attributes:
        seq: Its number, without gaps in the order of commits; 0 before it is stored.
        kind: e.g. ``benchmark.submitted``, ``benchmark.status``, ``attempt.state``,
            ``file.fetched``, ``board.drained``, ``benchmark.preempted``.
        data: Facts for readers; no secrets.
    """

    at: datetime
    kind: str
    benchmark_id: str | None = None
    user_id: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """The leader's lease, as the database has it.

    Attributes:
        epoch: Grows by one with each change of the leader: its fencing token. 0: nobody ever led.
        renewals: Grows while the leader is alive.
        server_id: Who leads; "" where the last leader released the lease.
        url: Where the leader is reached.
        since: When the epoch began.
        at: The leader's time at its last renewal; None: nobody ever led.
        age_s: How long ago that was by the database's own clock; None where it has none.
    """

    epoch: int
    renewals: int
    server_id: str
    url: str
    since: datetime | None = None
    at: datetime | None = None
    age_s: float | None = field(default=None, compare=False)
