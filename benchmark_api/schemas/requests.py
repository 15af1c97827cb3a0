"""Bodies other than the job description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from edgeyard.benchmark_api.schemas.fields import (
    EngineName,
    Family,
    FileNameOrUrl,
    LongText,
    TargetUid,
    Text,
    Time,
    field_errors,
    pattern,
)
from edgeyard.errors import InvalidInput

_STRICT = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

_USER_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")
UserId = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(_USER_ID, "a user id", "1 to 64 of letters, digits, '.', '_', '@', '-'"),
]
RoleWord = Literal["submitter", "operator", "host"]
Priority = Annotated[int, Field(ge=1, le=10)]
Budget = Annotated[float, Field(strict=False, ge=0, le=1e12)]


class Matrix(BaseModel):
    """Values of the fields that vary; every combination is a benchmark."""

    model_config = _STRICT

    model: Annotated[list[FileNameOrUrl], Field(min_length=1)] | None = None
    target: Annotated[list[Family], Field(min_length=1)] | None = None
    target_uid: Annotated[list[TargetUid], Field(min_length=1)] | None = None
    runtime: Annotated[list[EngineName], Field(min_length=1)] | None = None


class CampaignIn(BaseModel):
    """A matrix of benchmarks, kept together as a campaign."""

    model_config = _STRICT

    name: Text = ""
    matrix: Matrix
    description: dict[str, object] = Field(
        {}, description="The fields that all benchmarks share, as in a job description."
    )


class UserIn(BaseModel):
    """A new account."""

    model_config = _STRICT

    user_id: UserId
    role: RoleWord = "submitter"
    max_priority: Priority = 5
    max_budget: Budget | None = None


class UserChange(BaseModel):
    """What changes of an account."""

    model_config = _STRICT

    role: RoleWord | None = None
    max_priority: Priority | None = None
    max_budget: Budget | None = None
    disabled: bool | None = None


class WebhookIn(BaseModel):
    """Where a user wants to be told of their benchmarks."""

    model_config = _STRICT

    url: Text | None = Field(description="http(s) URL; null: nowhere any more.")


class TokenIn(BaseModel):
    """A new token."""

    model_config = _STRICT

    user_id: UserId | None = Field(None, description="Default: your own.")
    role: RoleWord | None = Field(None, description="Default: the account's; never above it.")
    label: Text = ""
    expires_at: Time | None = None


class DrainIn(BaseModel):
    """Why a board is taken out."""

    model_config = _STRICT

    reason: LongText = ""


class ProgressIn(BaseModel):
    """How far a task is."""

    model_config = ConfigDict(extra="ignore")

    progress: Annotated[float, Field(ge=0, le=100)]
    phase: Text = ""
    message: str = ""


_Shape = TypeVar("_Shape", bound=BaseModel)


def parse(shape: type[_Shape], tree: Mapping[str, object]) -> _Shape:
    """The body as that shape.

    Raises:
        InvalidInput: Naming every field that is wrong.
    """
    try:
        return shape.model_validate(tree)
    except ValidationError as error:
        found = field_errors(error.errors(include_url=False), shape.model_fields)
        raise InvalidInput(found) from None
