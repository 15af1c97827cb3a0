"""Request and response bodies of the routes for the platform's client."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from edgeyard.benchmark_api.schemas.answers import Failure, JsonObject, Reason

PlatformObject = JsonObject
"""An object of the platform; docs/reference/platform-client.md describes its keys."""


class LoginIn(BaseModel):
    """An account's e-mail address and password."""

    model_config = ConfigDict(extra="ignore", strict=True)

    email: str
    password: str


class RefreshIn(BaseModel):
    """A session's refresh token."""

    model_config = ConfigDict(extra="ignore", strict=True)

    refresh: str


class Session(Struct, frozen=True, kw_only=True):
    """A session's tokens."""

    access_token: str
    refresh_token: str


class RefreshAnswer(Struct, frozen=True, kw_only=True):
    """Another access token of a session."""

    access: str


class ApiStatus(Struct, frozen=True, kw_only=True):
    """The version of the contract, and that it is served."""

    version: str
    status: str


class StartAnswer(Struct, frozen=True, kw_only=True):
    """A benchmark that waits for a board."""

    id: str
    status: str
    warnings: list[str]


class BenchmarkList(Struct, frozen=True, kw_only=True):
    """One page of benchmarks."""

    benchmarks: list[PlatformObject]
    page: int
    page_length: int
    pages: int
    total: int


class State(Struct, frozen=True, kw_only=True):
    """Status of a benchmark, in the client's words."""

    id: str
    status: str
    phase: str | None
    progress: float | None
    waiting_reason: Reason | None
    failure: Failure | None


class DeletionAnswer(Struct, frozen=True, kw_only=True):
    """What is gone."""

    id: str
    deleted: bool


class Model(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's reference; the rest only where Edgeyard has the file."""

    model: str
    size_bytes: int | None = None
    sha256: str | None = None
    created_at: datetime | None = None
