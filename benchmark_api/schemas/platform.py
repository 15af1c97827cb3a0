"""Bodies and answers at the doors of the platform's client."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict


class LoginIn(BaseModel):
    """An account's e-mail address and password."""

    model_config = ConfigDict(extra="ignore", strict=True)

    email: str
    password: str


class RefreshIn(BaseModel):
    """A session's refresh token."""

    model_config = ConfigDict(extra="ignore", strict=True)

    refresh: str


class Session(TypedDict):
    """A session's tokens."""

    access_token: str
    refresh_token: str


class Refreshed(TypedDict):
    """Another access token of a session."""

    access: str


class ApiStatus(TypedDict):
    """The version of the contract, and that it is served."""

    version: str
    status: str


class Started(TypedDict):
    """A benchmark that waits for a board."""

    id: str
    status: str
    warnings: list[str]


class BenchmarkList(TypedDict):
    """One page of benchmarks."""

    benchmarks: list[dict[str, Any]]
    page: int
    page_length: int
    pages: int
    total: int


class State(TypedDict):
    """Where a benchmark is."""

    id: str
    status: str
    phase: str | None
    progress: float | None
    waiting_reason: dict[str, str] | None
    failure: dict[str, str] | None


class Deleted(TypedDict):
    """What is gone."""

    id: str
    deleted: bool


class Model(TypedDict):
    """A model's reference."""

    model: str


Anything = dict[str, Any]
"""As docs/reference/platform-client.md describes it."""
