"""Bodies other than the job description."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from edgeyard.benchmark_api.schemas.fields import (
    MAX_PASSWORD,
    MIN_PASSWORD,
    Email,
    EngineName,
    Family,
    FileNameOrUrl,
    LongText,
    TargetUid,
    Text,
    Time,
    field_errors,
    pattern,
    refusal,
)
from edgeyard.benchmark_api.schemas.matrix import axes_of
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.checks import (
    DEFAULT_BUDGET_S,
    DEFAULT_PAIRS,
    DEFAULT_SLOWDOWN,
    MAX_BUDGET_S,
    MAX_PAIRS,
    MIN_PAIRS,
)
from edgeyard.scheduler.model.scenarios import MAX_TAGS, TAG

MAX_COMPARED = 500
"""Results of one comparison or one history."""

_STRICT = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

_USER_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")
UserId = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(_USER_ID, "a user id", "1 to 64 of letters, digits, '.', '_', '@', '-'"),
]
GroupId = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(_USER_ID, "a group", "1 to 64 of letters, digits, '.', '_', '@', '-'"),
]
RoleWord = Literal["viewer", "submitter", "operator", "host"]
Password = Annotated[
    str,
    StringConstraints(strict=True, min_length=MIN_PASSWORD, max_length=MAX_PASSWORD),
]
Priority = Annotated[int, Field(ge=1, le=10)]
Budget = Annotated[float, Field(ge=0, le=1e12)]
Credits = Annotated[float, Field(ge=0, le=1e9)]
MoreCredits = Annotated[float, Field(ge=-1e9, le=1e9)]
Rate = Annotated[float, Field(ge=0, le=1e6)]
Running = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0.001, le=1000)]
BoardPattern = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(
        re.compile(r"^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,126}\*?|\*)$"),
        "a board or a beginning of boards' names",
        "a target_uid, or the beginning of some and a *",
    ),
]
Boards = Annotated[list[BoardPattern], Field(max_length=1000)]
LeaseTime = Annotated[float, Field(ge=0, le=3.2e8)]


Quota = Annotated[int, Field(ge=0, le=2**62)]


class QuotasIn(BaseModel):
    """An account's own quotas; null: those of the server's settings."""

    max_bytes: Quota | None = Field(
        None, description="Stored bytes; null: the server's user_max_bytes."
    )
    max_files: Quota | None = Field(
        None, description="Uploaded files; null: the server's user_max_files."
    )
    max_pending: Quota | None = Field(
        None, description="Waiting benchmarks; null: the server's user_max_pending."
    )
    max_live: Quota | None = Field(
        None, description="Waiting and running benchmarks; null: the server's user_max_live."
    )
    max_bookings: Quota | None = Field(
        None,
        description="Waiting benchmarks with a start_time that is still to come; null: the "
        "server's user_max_bookings.",
    )
    max_schedules: Quota | None = Field(
        None, description="Active schedules; null: the server's user_max_schedules."
    )
    max_tokens: Quota | None = Field(
        None, description="Good tokens; null: the server's user_max_tokens."
    )
    max_run_files: Quota | None = Field(
        None, description="Files that one run may upload; null: the server's run_max_files."
    )
    max_run_bytes: Quota | None = Field(
        None, description="Bytes that one run may upload; null: the server's run_max_bytes."
    )


def _each_once(values: list[object]) -> list[object]:
    written = [json.dumps(each, sort_keys=True) for each in values]
    twice = next((each for each in written if written.count(each) > 1), None)
    if twice is not None:
        raise refusal(f"has {twice} twice", "each value once")
    return values


SweptValues = Annotated[list[object], Field(min_length=1), AfterValidator(_each_once)]


class Matrix(BaseModel):
    """Values of the fields that vary; every combination is a benchmark."""

    model_config = _STRICT

    model: Annotated[list[FileNameOrUrl], Field(min_length=1)] | None = None
    target: Annotated[list[Family], Field(min_length=1)] | None = None
    target_uid: Annotated[list[TargetUid], Field(min_length=1)] | None = None
    runtime: Annotated[list[EngineName], Field(min_length=1)] | None = None
    parameters: Annotated[dict[Text, SweptValues], Field(min_length=1)] | None = Field(
        None,
        description='Values of parameters that vary, by parameter, e.g. {"threads": [1, 2, 4]}.',
    )

    @property
    def axes(self) -> dict[str, list[object]]:
        """The values of each axis by its name, e.g. ``target`` or ``parameters/threads``."""
        return axes_of({name: values for name, values in self if values is not None})


class CampaignIn(BaseModel):
    """A matrix of benchmarks, kept together as a campaign."""

    model_config = _STRICT

    name: Text = ""
    matrix: Matrix
    description: dict[str, object] = Field(
        {}, description="The fields that all benchmarks share, as in a job description."
    )


class CampaignCheckIn(CampaignIn):
    """A matrix whose files are not uploaded yet."""

    model_bytes: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(
        [], description="Sizes of the models, in their order in the matrix; 0: not known."
    )
    dataset_bytes: int | None = Field(
        None, ge=0, lt=2**63, description="Size of the largest dataset."
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        models = 1 if self.matrix.model is None else len(self.matrix.model)
        if len(self.model_bytes) not in (0, models):
            raise refusal(f"has {len(self.model_bytes)} sizes", f"{models}, one for each model")
        return self

    @property
    def sizes(self) -> dict[object, int]:
        """Sizes by the names of the models; the largest one where models have the same name."""
        names: Sequence[object] = self.matrix.model or [self.description.get("model")]
        pairs = zip(names, self.model_bytes, strict=False)
        return {name: size for name, size in sorted(pairs, key=lambda pair: pair[1]) if size}


class UserIn(QuotasIn):
    """A new account."""

    model_config = _STRICT

    user_id: UserId
    role: RoleWord = "submitter"
    max_priority: Priority = 5
    max_budget: Budget | None = None
    max_running: Running | None = Field(
        None, description="Maximum number of benchmarks on boards at the same time; null: no limit."
    )
    share: Share = Field(1.0, description="Weight in fair sharing.")
    max_lease_s: LeaseTime = Field(
        0.0,
        description="Maximum time for which the user may lease boards, all leases together, "
        "seconds; "
        "0: no leases.",
    )
    group_id: GroupId | None = Field(
        None, description="Group whose limits and share it has a part in; null: none."
    )
    boards: Boards = Field(
        [],
        description="For the account of a host: boards whose results it may upload; a final "
        "* matches any "
        "ending.",
    )
    email: Email | None = Field(
        None, description="E-mail address for messages, and with a password to log in with."
    )
    password: Password | None = Field(None, description="At least 8 characters; needs email.")

    @model_validator(mode="after")
    def _is_reached(self) -> Self:
        if self.email is None and self.password is not None:
            raise refusal("has a password and no email to log in with", "email too")
        return self


class GroupLimits(BaseModel):
    """What a group's members share; null: no limit."""

    model_config = _STRICT

    credits: Credits | None = Field(
        None, description="Credits that are not spent, including reserved ones; null: no limit."
    )
    max_running: Running | None = Field(
        None, description="Maximum number of the group's benchmarks on boards at the same time."
    )
    max_bytes: Quota | None = Field(None, description="Stored bytes of all members.")
    max_files: Quota | None = Field(None, description="Uploaded files of all members.")
    max_pending: Quota | None = Field(None, description="Waiting benchmarks of all members.")
    max_live: Quota | None = Field(
        None, description="Waiting and running benchmarks of all members."
    )
    max_bookings: Quota | None = Field(
        None, description="Benchmarks of all members with a start_time that is still to come."
    )
    max_schedules: Quota | None = Field(None, description="Active schedules of all members.")


class GroupIn(GroupLimits):
    """A new group of users."""

    group_id: GroupId
    share: Share = Field(1.0, description="Weight of the group in fair sharing.")


class GroupChange(GroupLimits):
    """Changes of a group; fields that are left out stay as they are."""

    share: Share | None = None


class PasswordIn(BaseModel):
    """An account's e-mail address and password, instead of those it has."""

    model_config = _STRICT

    email: Email | None = Field(None, description="Default: the account's present address.")
    password: Password = Field(description="At least 8 characters.")
    current_password: str | None = Field(
        None,
        description="The account's present password; operators may leave it out for other "
        "accounts.",
    )


class UserChange(QuotasIn):
    """Changes of an account; fields that are left out stay as they are."""

    model_config = _STRICT

    role: RoleWord | None = None
    max_priority: Priority | None = None
    max_budget: Budget | None = None
    max_running: Running | None = None
    share: Share | None = None
    max_lease_s: LeaseTime | None = None
    group_id: GroupId | None = Field(None, description="null: in no group.")
    boards: Boards | None = None
    disabled: bool | None = None
    email: Email | None = Field(
        None, description="E-mail address instead of the present one; a password stays as it is."
    )


class WebhookIn(BaseModel):
    """Where and how a user's webhook is posted to."""

    model_config = _STRICT

    url: Text | None = Field(description="http(s) URL; null removes the webhook.")
    format: Literal["edgeyard", "slack", "mattermost"] = Field(
        "edgeyard",
        description="What is posted: all that is known of the event, for programs, or a text as "
        "incoming webhooks of Slack or Mattermost take it.",
    )


class SubscriptionIn(BaseModel):
    """A new subscription."""

    model_config = _STRICT

    topic: Literal["user", "campaign", "series", "board", "lab"] = Field(
        "user",
        description="What it is about. user: the benchmarks and alerts of a user; campaign: the "
        "benchmarks of a campaign; series: the benchmarks and alerts of a lineage or of one of its "
        "series; board: the state of a board and alerts on it; lab: boards, servers, models and "
        "plugins, for operators.",
    )
    about: Annotated[Text, Field(max_length=200)] | None = Field(
        None,
        description="Id of the user (default: yours), of the campaign or of the board, or name of "
        "the lineage or id of the series. None for the lab.",
    )
    channel: Literal["mail", "webhook"] = Field(
        description="mail: to the e-mail address of your account; webhook: to your webhook."
    )
    events: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list,
        max_length=64,
        description="Types of events that are sent; none: all of the topic.",
    )

    @model_validator(mode="after")
    def _is_about_something(self) -> Self:
        if self.topic == "lab" and self.about is not None:
            raise refusal("can't be combined with about: there is one lab", "no about")
        if self.topic not in ("lab", "user") and not self.about:
            raise refusal(f"needs about: which {self.topic}", "its id or name")
        return self


class TokenIn(BaseModel):
    """A new token."""

    model_config = _STRICT

    user_id: UserId | None = Field(None, description="User of the token; default: yourself.")
    role: RoleWord | None = Field(
        None, description="Default: the account's role; never a role above it."
    )
    label: Text = ""
    expires_at: Time | None = None


class ShareIn(BaseModel):
    """A new link: it shows one benchmark, one campaign, or several results side by side."""

    model_config = _STRICT

    benchmark_id: Annotated[str, Field(max_length=128)] | None = None
    campaign_id: Annotated[str, Field(max_length=128)] | None = None
    benchmark_ids: list[Annotated[str, Field(max_length=128)]] | None = Field(
        None, min_length=2, max_length=MAX_COMPARED, description="Of a comparison, in its order."
    )
    options: Annotated[Text, Field(max_length=2000)] = Field(
        "", description="Of a comparison: the query of its page's address."
    )
    label: Text = Field("", description="What the link is for; only its owner sees it.")
    expires_at: Time | None = Field(
        None, description="When it ends; default: in 30 days, at most in 365."
    )

    @model_validator(mode="after")
    def _is_of_one_thing(self) -> Self:
        given = [self.benchmark_id, self.campaign_id, self.benchmark_ids]
        if sum(each is not None for each in given) != 1:
            raise refusal(
                "names not exactly one thing", "one of benchmark_id, campaign_id, benchmark_ids"
            )
        if self.options and self.benchmark_ids is None:
            raise refusal("has options, and only a comparison has", "benchmark_ids, or no options")
        return self


class BaselineIn(BaseModel):
    """What a candidate is compared with: a benchmark, or a job description of its own."""

    model_config = _STRICT

    benchmark_id: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="A completed benchmark: it is run again, on its board."
    )
    description: dict[str, object] | None = Field(
        None, description="A whole job description, as of POST /v1/benchmarks."
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.benchmark_id is None) == (self.description is None):
            raise refusal("names not exactly one thing", "one of benchmark_id and description")
        return self


class CheckIn(BaseModel):
    """Two versions, and when it is decided whether the second one is slower."""

    model_config = _STRICT

    baseline: BaselineIn
    candidate: dict[str, object] = Field(
        description="Of a benchmark as baseline: the fields that differ; otherwise a job "
        "description."
    )
    max_slowdown: Annotated[float, Field(ge=0, lt=10, allow_inf_nan=False)] = Field(
        DEFAULT_SLOWDOWN, description="Accepted share of the primary metric, e.g. 0.03."
    )
    budget_s: Annotated[float, Field(gt=0, le=MAX_BUDGET_S, allow_inf_nan=False)] = Field(
        DEFAULT_BUDGET_S, description="Time for all runs together, in seconds."
    )
    max_pairs: Annotated[int, Field(ge=MIN_PAIRS, le=MAX_PAIRS)] = DEFAULT_PAIRS
    self_test: bool = Field(
        False, description="Accept two versions that are the same, to see what their noise is."
    )


class AlertEndIn(BaseModel):
    """Why an alert is resolved or dismissed; the header ``X-Edgeyard-Reason`` may state it, too."""

    model_config = _STRICT

    reason: LongText = ""


class SeriesSettingsIn(BaseModel):
    """Which changes of a series become alerts."""

    model_config = _STRICT

    alert_unconfirmed: bool = Field(
        description="Whether a suspected change that could not be confirmed becomes an alert, too."
    )


class DrainIn(BaseModel):
    """Reason for draining a board."""

    model_config = _STRICT

    reason: LongText = ""


class PolicyIn(BaseModel):
    """A policy to be activated: ``NAME`` or ``NAME/VERSION`` of one that is known, or TOML."""

    model_config = _STRICT

    name: Text | None = None
    text: Annotated[str, Field(max_length=100_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.name is None) == (self.text is None):
            raise ValueError("give either name or text")
        return self


class QuarantineIn(BaseModel):
    """Reason for putting a board into quarantine."""

    model_config = _STRICT

    reason: LongText = ""


class LeaseIn(BaseModel):
    """A lease of a board for a user, or for maintenance."""

    model_config = _STRICT

    until: Time
    since: Time | None = Field(None, description="Default: now.")
    user_id: UserId | None = Field(
        None,
        description="User whose benchmarks may use the board. Operators may name any user; "
        "without one "
        "it is kept free for maintenance. For others it is always their own account.",
    )
    reason: LongText = Field("", description="Shown to users whose benchmarks wait for the board.")


class FileNameIn(BaseModel):
    """A name for content that was uploaded before."""

    model_config = _STRICT

    name: Annotated[str, Field(max_length=1000)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PriorityIn(BaseModel):
    """Another priority of a benchmark that waits."""

    model_config = _STRICT

    user_priority: Priority


class CreditsIn(BaseModel):
    """A new balance of an account, or an amount to add to it: one of the two."""

    model_config = _STRICT

    credits: Credits | None = Field(None, description="New balance; null: no limit.")
    add: MoreCredits | None = Field(
        None, description="Credits to add to the balance; a negative number takes away."
    )


class RateIn(BaseModel):
    """What a second on a board of a family costs."""

    model_config = _STRICT

    rate: Rate = Field(description="Credits for each second on a board.")


class ProgressIn(BaseModel):
    """Progress of a task, in per cent, with its phase and a message."""

    model_config = ConfigDict(extra="ignore", strict=True)

    progress: Annotated[float, Field(ge=0, le=100)]
    phase: Text = ""
    message: str = ""


_ALLOCATION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SHA256_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


class ExchangeIn(BaseModel):
    """A run of a schedule that Nomad started, and the token that it has made for itself."""

    model_config = _STRICT

    allocation_id: Annotated[str, pattern(_ALLOCATION_ID, "an allocation's id", "a UUID")] = Field(
        description="Of the run."
    )
    token_sha256: Annotated[
        str, pattern(_SHA256_HEX, "a SHA-256", "64 digits of lower-case hex")
    ] = Field(description="Of the token, which the run keeps.")


Tag = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(TAG, "a tag", "1 to 64 letters, digits, '.', '_', ':', '/' and '-'"),
]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
RunId = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(
        re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$"),
        "an id of a simulation",
        "1 to 100 letters, digits, '.', '_', ':' and '-'",
    ),
]


class TagsIn(BaseModel):
    """Changes of the tags of a scenario."""

    model_config = _STRICT

    add: Tags = []
    remove: Tags = []


class ComparisonIn(BaseModel):
    """Results to compare: of some benchmarks, or of a campaign."""

    model_config = _STRICT

    benchmark_ids: Annotated[list[Text], Field(max_length=MAX_COMPARED)] = Field(
        [], description=f"At most {MAX_COMPARED}."
    )
    campaign_id: Text | None = None
    baseline: Text | None = Field(
        None, description="The one of them that all are relative to; the first unless stated."
    )

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if bool(self.benchmark_ids) == (self.campaign_id is not None):
            raise refusal("names no benchmarks", "either benchmark_ids or campaign_id")
        return self


class SimulationIn(BaseModel):
    """A simulation that ran elsewhere."""

    model_config = _STRICT

    run_id: RunId = Field("", description="The same id as in the path; may be left out.")
    kind: Text = Field("sim", description="Program that ran it: sim, ste or another.")
    state: Literal["running", "completed", "cancelled", "failed"] = "completed"
    scenario: Text = Field(description="Hash or name of a stored scenario.")
    policy: Text
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    version: Text = Field("", description="Version of Edgeyard that ran it.")
    metrics: dict[str, Any] = {}
    columns_file: LongText | None = Field(
        None, description="File with the columns of each job, on the machine that ran it."
    )
    wall_s: Annotated[float, Field(ge=0, le=1e12)] | None = None


_Shape = TypeVar("_Shape", bound=BaseModel)


def parse(shape: type[_Shape], tree: Mapping[str, object]) -> _Shape:
    """Return the body as that shape.

    Raises:
        InvalidInput: Naming every field that is wrong.
    """
    try:
        return shape.model_validate(tree)
    except ValidationError as error:
        found = field_errors(error.errors(include_url=False), shape.model_fields)
        raise InvalidInput(found) from None
