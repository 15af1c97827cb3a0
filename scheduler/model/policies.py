"""Stored policies, and what operators use them for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class PolicyRole(StrEnum):
    """The role of an activated policy."""

    ACTIVE = "active"  # it decides
    SHADOW = "shadow"  # it decides as well, without effect


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyActivation:
    """A policy that an operator activated.

    Attributes:
        text: Its TOML at that time: later changes of the file have no effect.
    """

    role: PolicyRole
    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy that was used once; its name and version always refer to this text.

    Attributes:
        by_user_id: The user who activated it; "": the server's settings.
        at: When it was first used.
    """

    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverride:
    """The policy that an operator chose for one benchmark; fields as in `PolicyActivation`."""

    benchmark_id: str
    name: str
    version: int
    text: str
    by_user_id: str
    at: datetime
