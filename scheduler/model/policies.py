"""Stored policies, and what operators use them for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
