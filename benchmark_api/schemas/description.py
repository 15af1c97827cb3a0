"""The job description as it comes in, and as it is shown again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from edgeyard.benchmark_api.schemas.fields import (
    AttributeName,
    BenchmarkId,
    BenchmarkTypeName,
    Concurrency,
    Duration,
    EngineName,
    Family,
    FileNameOrUrl,
    GitCommit,
    LatencyBound,
    Link,
    Precision,
    Size,
    TargetUid,
    Text,
    Time,
    Url,
    field_errors,
    is_url,
    not_text,
    refusal,
)
from edgeyard.devices.attributes import SIZES_IN_BYTES
from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.devices.operators import OPERATORS
from edgeyard.devices.runner import training
from edgeyard.devices.runner.engines import BUILT_IN as ENGINES
from edgeyard.devices.runner.generation_request import MAX_LENGTH, MAX_REQUESTS, read_request
from edgeyard.devices.runner.spec import (
    DEFAULT_LOAD_S,
    DEFAULT_SOAK_WINDOW_S,
    MAX_LEVEL_RUNS,
    MAX_PERCENTILE,
    MAX_SEED,
    MIN_PERCENTILE,
    SINGLE_STREAM,
)
from edgeyard.devices.sizes import ACCEPTED as SIZES
from edgeyard.devices.sizes import parse_size
from edgeyard.errors import FieldError, InvalidInput, RunFailed
from edgeyard.scheduler.model.benchmark import (
    MAX_COUNT,
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    CronBy,
    IfUnavailable,
    JobDescription,
    Spread,
)
from edgeyard.scheduler.model.canaries import CANARY_LINEAGE
from edgeyard.scheduler.model.checks import CONFIRMING_TAGS

MAX_FREE_BYTES = 64 * 1024
"""Maximum bytes of each of ``extra``, ``parameters``, ``odt_config`` and ``input`` as JSON."""
DEFAULT_RUNS = 20
"""Timed inferences where a description states neither them nor a precision."""
MIN_SOAK_WINDOWS, MAX_SOAK_WINDOWS = 3, 1440
"""Number of windows of a soak: fewer have no steady part, and more (a day of minutes) can't be
drawn."""
MAX_DATASETS = 64
MAX_PATTERNS = 4
"""Regular expressions of one description: each is compared with all boards."""
MAX_SPREAD_TARGETS = 32
MAX_ELEMENTS = 2**28
"""Maximum elements of an input tensor: 1 GiB of float32."""

_ORDERS = ("=", "!=", "<", "<=", ">", ">=")

_STRICT = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e300, le=1e300)]


def _whole(value: object) -> object:
    """Refuse what Python takes for a number because it equals one: ``True`` for 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise refusal("is not a whole number", "1")
    return value


def _bare_attribute(name: object) -> object:
    """Take the name out of the spelling that a Nomad job has, ``${device.attr.NAME}``."""
    if not isinstance(name, str):
        return name
    match = re.fullmatch(r"\$\{device\.attr\.([^{}]+)\}", name)
    return name if match is None else match.group(1)


class ConstraintIn(BaseModel):
    """A further condition on the board."""

    model_config = _STRICT

    attribute: AttributeName = Field(
        description="Attribute of the board, e.g. memory.ram (`edgeyard boards attributes` lists "
        "those of the lab), or of its Nomad node: ${node.class}, ${attr.cpu.arch}, ${meta.rack}."
    )
    operator: Literal[OPERATORS] = Field(  # type: ignore[valid-type]
        description="How the board's value is compared with the stated one."
    )
    value: Text | int | float | bool = Field(
        "",
        description="Stated value; a size of memory may have a unit, e.g. 4 GiB; none for is_set "
        "and is_not_set.",
    )

    _is_bare = field_validator("attribute", mode="before")(_bare_attribute)

    @property
    def is_size(self) -> bool:
        """Whether the value is compared with a number of bytes."""
        return self.attribute in SIZES_IN_BYTES and self.operator in _ORDERS

    @property
    def is_version(self) -> bool:
        """Whether the value is a version: 1.30 without quotes is the number 1.3."""
        return self.operator in ("version", "semver") or self.attribute.rstrip("}").endswith(
            ".version"
        )

    @model_validator(mode="after")
    def _is_comparable(self) -> Self:
        if self.is_size:
            try:
                parse_size(str(self.value))
            except ValueError:
                raise refusal(f"{self.value!r} is not a size", SIZES) from None
        elif isinstance(self.value, float) and self.is_version:
            raise refusal(*not_text(self.value))
        return self

    def checked(self) -> Constraint:
        """Return it as the core knows it: the value is text, sizes of memory are bytes."""
        value = self.value
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if self.is_size:
            text = str(parse_size(text))
        return Constraint(attribute=self.attribute, operator=self.operator, value=text)


class AffinityIn(ConstraintIn):
    """A wish about the board: between boards that are predicted to be equally good."""

    weight: int = Field(
        50,
        ge=-100,
        le=100,
        description="Against the other affinities; below 0: boards that do not meet it are "
        "preferred.",
    )

    @field_validator("weight")
    @classmethod
    def _is_not_zero(cls, weight: int) -> int:
        if weight == 0:
            raise refusal("a weight of 0 has no effect", "-100 to 100, not 0")
        return weight

    def wish(self) -> Affinity:
        """Return it as the core knows it."""
        checked = self.checked()
        return Affinity(
            attribute=checked.attribute,
            operator=checked.operator,
            value=checked.value,
            weight=self.weight,
        )


class SpreadIn(BaseModel):
    """A wish to spread the benchmarks of a campaign over the values of an attribute."""

    model_config = _STRICT

    attribute: AttributeName = Field(
        description="Attribute of the board, or of its Nomad node, whose values are spread over: "
        "${node.datacenter}, ${node.unique.name} (the host), ${meta.rack}."
    )
    weight: int = Field(50, ge=1, le=100, description="Against the other spreads.")
    targets: dict[Text, Annotated[int, Field(ge=1, le=100)]] = Field(
        {},
        max_length=MAX_SPREAD_TARGETS,
        description="Values with the percentage of the benchmarks that each shall get, e.g. "
        '{"dc1": 70}; all other values share the rest. Default: each value gets the same share.',
    )

    _is_bare = field_validator("attribute", mode="before")(_bare_attribute)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.attribute == "family":
            raise refusal(
                "has no effect: target states the family of every board that may run a benchmark",
                "another attribute, and one target for each family of a campaign",
            )
        if sum(self.targets.values()) > 100:
            raise refusal("the percentages of targets add up to more than 100", "at most 100")
        return self

    def wish(self) -> Spread:
        """Return it as the core knows it."""
        return Spread(
            attribute=self.attribute, weight=self.weight, targets=tuple(self.targets.items())
        )


class InputSpec(BaseModel):
    """What random data for one input of the model looks like."""

    model_config = _STRICT

    shape: list[Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]] | None = Field(
        None,
        max_length=16,
        description="Sizes, none for a scalar; default: the model's own, and 1 for an open first "
        "one.",
    )
    low: Number | None = Field(None, description="Smallest value.")
    high: Number | None = Field(None, description="Largest value.")
    integers: bool | None = Field(None, description="Whether only whole numbers are drawn.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        elements = 1
        for size in self.shape or ():
            elements *= max(1, size)  # NumPy bounds the other sizes of an empty array, too
        if elements > MAX_ELEMENTS:
            raise refusal("the shape has too many elements", f"at most {MAX_ELEMENTS}")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise refusal("low is above high", "low not above high")
        return self


class JobDescriptionIn(BaseModel):
    """A benchmark to run: the job description. Only ``runtime``, ``benchmark_type``, a model and a
    target (or ``target_uid``) are needed."""

    model_config = ConfigDict(
        extra="forbid", strict=True, protected_namespaces=(), title="Edgeyard job description"
    )

    version: Annotated[Literal[1], BeforeValidator(_whole)] = Field(
        1, description="Version of this format."
    )
    benchmark_id: BenchmarkId | None = Field(
        None,
        description="Beginning of the benchmark's id, by which its user may name it; the server "
        "adds an ending that is the user's own, unless it is there. An id is used once. Default: "
        "the server makes the whole id.",
    )
    model: FileNameOrUrl | None = Field(
        None, description="Name of an uploaded model, or a URL; with model_url the name it gets."
    )
    model_url: Url | None = Field(None, description="Where the model is downloaded from.")
    runtime: EngineName = Field(description="Inference engine, e.g. ort or tflite.")
    benchmark_type: BenchmarkTypeName = Field(
        description="TYPE1 latency, TYPE2 accuracy over a dataset, TYPE3 on-device training, "
        "GENAI tokens per second of a language model; further types, to TYPE99, mean what the "
        "engine of a board declares."
    )
    dataset: FileNameOrUrl | None = Field(
        None,
        description="Name of an uploaded dataset, or a URL; for TYPE2, TYPE3 and keep_outputs.",
    )
    dataset_urls: list[Url] = Field(
        [],
        max_length=MAX_DATASETS,
        description="URLs that the dataset is downloaded from; the rows of several files follow "
        "one another, in this order.",
    )
    odt_config: FileNameOrUrl | dict[str, object] | None = Field(
        None, description="On-device training: uploaded file, URL, or the configuration itself."
    )
    target: Family | None = Field(None, description="Family of boards, e.g. rpi4b.")
    target_uid: TargetUid | None = Field(None, description="One board, e.g. rpi4b-0001-0001.")
    ram: Size = Field(0, description="Memory that the board must have: bytes, or e.g. 4 GiB.")
    storage: Size = Field(0, description="Storage that the board must have: bytes, or e.g. 500 MB.")
    user_id: str | None = Field(None, description="Ignored: the token names the user.")
    user_priority: int | None = Field(
        None, ge=1, le=10, description="1 to 10, bounded by the account; default 5 or that bound."
    )
    user_budget: Annotated[float, Field(ge=0, le=1e12)] | None = Field(
        None, description="Maximum credits that one attempt may cost, bounded by the account."
    )
    user_time: Duration | None = Field(
        None, description="Bound on the run time of one attempt: seconds, or e.g. 15 min."
    )
    submit_time: str | None = Field(None, description="Ignored: the server sets it.")
    deadline: Time | None = Field(None, description="Time at which the benchmark expires.")
    max_retries: int = Field(1, ge=0, le=10, description="Further attempts after a failure.")
    nb_inference: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Timed inferences of a latency measurement (TYPE1); default 20, the only "
        "value that other types accept.",
    )
    precision: Precision | None = Field(
        None,
        description="Instead of nb_inference: measure until the p50 is known to this "
        "half-width of its confidence interval, e.g. 2 %.",
    )
    soak: Duration | None = Field(
        None,
        description="Instead of nb_inference: run for so long, e.g. 30 min, with a p50 for each "
        "window; the result is that of the steady part (TYPE1). user_time has to leave a minute "
        "for it, or a quarter of a shorter soak.",
    )
    soak_window: Duration = Field(
        DEFAULT_SOAK_WINDOW_S, ge=0.1, le=3600, description="Window of a soak; default 60 s."
    )
    concurrency: Concurrency = Field(
        (),
        description="Callers that run inferences at the same time (TYPE1), or several numbers of "
        "them, e.g. 1,2,4: throughput and latency of each, and the knee, where the result is from. "
        "Each is measured for 2 s and nb_inference inferences of all callers together, or more.",
    )
    load: Literal["single-stream", "server"] | None = Field(
        None,
        description="Send queries by LoadGen's rules (TYPE1): single-stream: the next one begins "
        "when the last one ended; server: they arrive at random (Poisson), and a search finds the "
        "largest rate that keeps load_bound. No MLPerf result.",
    )
    load_bound: LatencyBound | None = Field(
        None,
        description="Bound of the latency under a server load at load_percentile, from the "
        "arrival on, e.g. 20 ms.",
    )
    load_percentile: float | None = Field(
        None,
        ge=MIN_PERCENTILE,
        le=MAX_PERCENTILE,
        description="Percentile of the latency that counts: by default 90 of single-stream, 99 "
        "of server. A trial has as many queries as it needs: 64 for 90, 662 for 99.",
    )
    load_duration: Duration = Field(
        DEFAULT_LOAD_S,
        ge=0.1,
        le=86400,
        description="Minimum duration of each trial of a load, which also has at least "
        "nb_inference queries; default 10 s, as LoadGen's.",
    )
    load_rate: float | None = Field(
        None,
        ge=1e-3,
        le=1e6,
        description="Queries per second of a server load, for one trial without a search.",
    )
    load_seed: int = Field(
        0, ge=0, le=MAX_SEED, description="Seed of the arrivals of a server load."
    )
    preemptible: bool = Field(
        True,
        description="Whether a higher priority may preempt it, if its progress is below the "
        "job_completion_threshold of that one.",
    )
    preemptible_measuring: bool = Field(
        False,
        description="Whether it may be preempted while it measures, also under a policy with "
        "spare_measuring; only if preemptible.",
    )
    job_completion_threshold: int | None = Field(
        None,
        ge=0,
        le=100,
        description="It may preempt lower priorities whose progress is below this, %.",
    )
    start_time: Time | None = Field(None, description="Earliest start.")
    cron: Text | None = Field(
        None,
        description="Crontab, UTC, of five fields, or of Nomad's seven (second minute hour day "
        "month weekday year): each firing is a benchmark of its own. Where both a day and a "
        "weekday are stated, both have to hold.",
    )
    prohibit_overlap: bool = Field(
        False,
        description="Whether a firing of the cron is skipped while the schedule's previous "
        "benchmark has not ended. While that one waits for its start, Edgeyard skips all firings.",
    )
    cron_by: Literal["edgeyard", "nomad"] = Field(
        "edgeyard",
        description="Who acts at the times of the cron: Edgeyard, which decides on each firing, or "
        "Nomad, by a periodic job whose runs it places itself.",
    )
    version_tag: Annotated[Text, Field(max_length=64)] = Field(
        "",
        description="Version of the engine, or its beginning, e.g. 1.20: boards with another one "
        "do not run it.",
    )
    constraints: list[ConstraintIn] = Field(
        [], max_length=32, description="Further conditions on the board; all must hold."
    )
    affinities: list[AffinityIn] = Field(
        [],
        max_length=32,
        description="Wishes about the board: they decide between boards that are equally good as "
        "far as is known, and are affinities of the Nomad job where Nomad chooses the board.",
    )
    spreads: list[SpreadIn] = Field(
        [],
        max_length=8,
        description="Attributes over whose values the benchmarks of a campaign are spread, as far "
        "as their boards are equally good; those of a board's node are also spreads of the Nomad "
        "job where Nomad chooses the board.",
    )
    binding: Literal["loose", "filtered", "strict"] | None = Field(
        None,
        description="How much of the choice of the board is left to the cluster: loose (family, "
        "engine and type), filtered (one of the boards that the scheduler allows) or strict (the "
        "board that it chose); default: the policy's.",
    )
    if_unavailable: Literal["reschedule", "notify"] = Field(
        "reschedule",
        description="When the board of target_uid is offline, unhealthy or drained, or busy past "
        "start_time, for longer than the server's pin_grace_s: reschedule lets any other board "
        "that fits run it, notify sends its owner an event and the benchmark keeps waiting.",
    )
    tags: list[Annotated[Text, Field(min_length=1, max_length=64)]] = Field(
        [], max_length=20, description="Tags to find the benchmark by."
    )
    name: Annotated[Text, Field(max_length=128)] = Field(
        "", description="Name to find the benchmark, or its campaign, by."
    )
    series: Annotated[Text, Field(max_length=128)] = Field(
        "",
        description="Lineage whose results are compared over time, also under other names of the "
        "model's file; default: the name of the schedule, otherwise of the model.",
    )
    git_commit: GitCommit = Field(
        "", description="Commit that the model was built from; shown with its results over time."
    )
    link: Link = Field(
        "", description="Page about it, e.g. the run of a CI; shown with its results over time."
    )
    parameters: dict[Text, object] = Field(
        {},
        description="Parameters of the engine, e.g. threads; unknown ones are refused.",
    )
    keep_outputs: bool = Field(
        False,
        description="TYPE1 runs on the arrays of the dataset (an .npz with an array for each "
        "input) instead of random data, and the model's outputs are kept (outputs.npz).",
    )
    profile_layers: bool = Field(
        False,
        description="Also measure the time of each layer, apart from the timed runs (TYPE1).",
    )
    input: dict[Text, InputSpec] = Field(
        {}, max_length=64, description="By input name: shape, value range, integers."
    )
    queue_timeout: Duration | None = Field(None, description="Maximum wait until its task starts.")
    count: int = Field(
        1,
        ge=1,
        le=MAX_COUNT,
        description="Boards on which it runs at the same time: as many benchmarks of one campaign, "
        "each on a board of its own, which start together or not at all.",
    )
    extra: dict[str, object] = Field({}, description="Stored; read by scorers that know it.")

    @field_validator("series", "name")
    @classmethod
    def _is_no_canarys(cls, lineage: str) -> str:
        if lineage.startswith(CANARY_LINEAGE):
            reason = f"names that begin with {CANARY_LINEAGE} are those of the lab's canaries"
            raise refusal(reason, "another name")
        return lineage

    @field_validator("tags")
    @classmethod
    def _are_no_confirmations(cls, tags: list[str]) -> list[str]:
        if own := sorted(CONFIRMING_TAGS.intersection(tags)):
            raise refusal(f"{own[0]} is a tag of the runs that Edgeyard submits", "another tag")
        return tags

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        problems = tuple(_contradictions(self))
        if problems:
            raise InvalidInput(problems)
        return self


_CRON_VALUE = "(?:[0-9]{1,2}|(?:19[7-9]|20[0-9])[0-9]|[a-z]{3})"
_CRON_PART = re.compile(
    rf"[*?]|(?:\*|{_CRON_VALUE}(?:-{_CRON_VALUE})?)(?:/0?[1-9]|/[1-5][0-9])?",
    re.ASCII | re.IGNORECASE,
)
_CRON_WEEKDAY = re.compile(
    r"[*?]|(?:\*|[0-7]|[a-z]{3}|(?:[0-6]|[a-z]{3})-(?:[1-6]|(?!sun)[a-z]{3}))(?:/0?[1-6])?",
    re.ASCII | re.IGNORECASE,
)
"""What Edgeyard and Nomad read alike in a crontab: in each field, and of that in the weekdays."""

_NO_MODEL = FieldError("/model", "is required", "the name of an uploaded file, or a URL")
_NO_TARGET = FieldError("/target", "is required", "a family, or a board in target_uid")
_ELSEWHERE = {
    "dry_run": "the query parameter ?dry_run=true of POST /v1/benchmarks",
    "sweep": "matrix.parameters of POST /v1/campaigns",
}
"""What is asked for by other means than a field, and how."""


def _contradictions(description: JobDescriptionIn) -> list[FieldError]:
    """Return what is wrong with fields together; each alone is right."""
    return [
        *_about_model_and_board(description),
        *_about_data(description),
        *_about_precision(description),
        *_about_soak(description),
        *_about_concurrency(description),
        *_about_load(description),
        *_unused(description),
        *_about_outputs(description),
        *_about_count(description),
        *_about_layers(description),
        *_about_type(description),
        *_about_generation(description),
        *_about_ncnn(description),
        *_about_times(description),
        *_about_sizes(description),
    ]


def _about_model_and_board(description: JobDescriptionIn) -> list[FieldError]:
    found = []
    if description.model is None and description.model_url is None:
        found.append(_NO_MODEL)
    if (
        description.model is not None
        and is_url(description.model)
        and description.model_url is not None
    ):
        found.append(
            FieldError("/model", "is a URL, and model_url is given too", "a file name, or one URL")
        )
    if description.target is None and description.target_uid is None:
        found.append(_NO_TARGET)
    elif (
        description.target
        and description.target_uid
        and description.target_uid.split("-", 1)[0] != description.target
    ):
        found.append(
            FieldError(
                "/target_uid", f"is not a board of {description.target}", "a board of that family"
            )
        )
    return found


def _about_data(description: JobDescriptionIn) -> list[FieldError]:
    """Return what is wrong with datasets, random data and the configuration of a training."""
    found = []
    kind = description.benchmark_type
    if kind in ("TYPE2", "TYPE3") and not _has_data(description):
        found.append(
            FieldError("/dataset", f"{kind} needs a dataset", "an uploaded file's name, or a URL")
        )
    if description.dataset is not None and is_url(description.dataset) and description.dataset_urls:
        found.append(
            FieldError("/dataset", "is a URL, and dataset_urls is given too", "a file name")
        )
    if kind == "TYPE3" and description.odt_config is None:
        found.append(
            FieldError(
                "/odt_config",
                "TYPE3 needs a training configuration",
                'an uploaded file\'s name, a URL, or an object such as {"epochs": 1}',
            )
        )
    if kind == "TYPE3" and isinstance(description.odt_config, dict):
        try:
            training.parse_config(description.odt_config)
        except RunFailed as error:
            found.append(
                FieldError(
                    "/odt_config", error.sentence, "an object of " + ", ".join(training.KEYS)
                )
            )
    if description.input and kind != "TYPE1":
        reason = f"describes random data of TYPE1, and this is {kind}"
        found.append(FieldError("/input", reason, "no input, or TYPE1"))
    return found


def _has_data(description: JobDescriptionIn) -> bool:
    return description.dataset is not None or bool(description.dataset_urls)


def _about_precision(description: JobDescriptionIn) -> list[FieldError]:
    found = []
    if description.precision is not None and description.nb_inference not in (None, DEFAULT_RUNS):
        found.append(
            FieldError("/precision", "can't be combined with nb_inference", "one of the two")
        )
    if description.precision is not None and description.benchmark_type != "TYPE1":
        found.append(FieldError("/precision", "is for TYPE1 only", "TYPE1, or no precision"))
    return found


def _about_layers(description: JobDescriptionIn) -> list[FieldError]:
    if not description.profile_layers:
        return []
    found = []
    if description.benchmark_type != "TYPE1":
        found.append(FieldError("/profile_layers", "is for TYPE1 only", "TYPE1, or no profile"))
    engine = ENGINES.get(description.runtime)
    if engine is not None and not engine.profiles_layers:
        profiling = " or ".join(name for name, each in ENGINES.items() if each.profiles_layers)
        found.append(
            FieldError(
                "/profile_layers",
                f"engine {description.runtime} does not measure the time of layers",
                f"the runtime {profiling}, or no profile",
            )
        )
    return found


def _about_times(description: JobDescriptionIn) -> list[FieldError]:
    found = []
    if (
        description.deadline
        and description.start_time
        and description.deadline <= description.start_time
    ):
        found.append(FieldError("/deadline", "is not after start_time", "a later time"))
    if description.cron is not None and description.benchmark_id is not None:
        found.append(
            FieldError("/benchmark_id", "each firing of a cron gets an id of its own", "no id")
        )
    if description.prohibit_overlap and description.cron is None:
        found.append(
            FieldError(
                "/prohibit_overlap",
                "has no effect without a cron",
                "a cron, or no prohibit_overlap",
            )
        )
    if description.cron_by == "nomad":
        found += _left_to_nomad(description)
    return found


def _about_sizes(description: JobDescriptionIn) -> list[FieldError]:
    """Return which lists and free objects are too large, or state something twice."""
    found = []
    spread_over = [each.attribute for each in description.spreads]
    if len(set(spread_over)) < len(spread_over):
        found.append(
            FieldError("/spreads", "states an attribute more than once", "each attribute once")
        )
    for name in ("constraints", "affinities"):
        conditions = getattr(description, name)
        if sum(each.operator == "regexp" for each in conditions) > MAX_PATTERNS:
            reason = "holds too many regular expressions"
            found.append(FieldError(f"/{name}", reason, f"at most {MAX_PATTERNS}"))
    for name in ("extra", "parameters", "odt_config"):
        value = getattr(description, name)
        if isinstance(value, dict) and len(json.dumps(value)) > MAX_FREE_BYTES:
            found.append(FieldError(f"/{name}", "is too large", f"at most {MAX_FREE_BYTES} bytes"))
    return found


_VERBS = {"TYPE2": "measure accuracy", "TYPE3": "train", "GENAI": "run language models"}
"""What an engine does for each of Edgeyard's own types, as in "engine tflite does not train"."""


def _about_type(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse a type of Edgeyard's own that its engine does not offer."""
    kind, engine = description.benchmark_type, ENGINES.get(description.runtime)
    if engine is None or kind not in STANDARD_TYPES or kind in engine.types:
        return []
    reason = f"engine {description.runtime} does not {_VERBS.get(kind, 'measure latencies')}"
    others = " or ".join(name for name, each in ENGINES.items() if kind in each.types)
    return [FieldError("/benchmark_type", reason, f"the runtime {others}, or another type")]


def _about_generation(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse a request to a language model that no model can take."""
    if description.benchmark_type != "GENAI":
        return []
    try:
        read_request(description.parameters)
    except RunFailed as error:
        name, _, reason = error.sentence.removeprefix("parameters/").partition(": ")
        accepted = "a prompt as text or token ids, or lengths in tokens"
        if name in ("requests", "prompt_length", "output_length"):
            accepted = f"1 to {MAX_REQUESTS if name == 'requests' else MAX_LENGTH:,}"
        return [FieldError(f"/parameters/{name}", reason, accepted)]
    return []


def _about_ncnn(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse two switches of one thing."""
    stated = description.parameters
    if description.runtime != "ncnn" or not (stated.get("fp16") is stated.get("bf16") is True):
        return []
    return [FieldError("/parameters/bf16", "can't be on together with fp16", "one of the two")]


def unused_fields(benchmark_type: object, *, keep_outputs: bool) -> frozenset[str]:
    """Return the fields that runs of a type do not read."""
    if benchmark_type == "TYPE1":
        return frozenset({"odt_config"} | (set() if keep_outputs else {"dataset", "dataset_urls"}))
    of_type1 = {"nb_inference", "precision", "input", "keep_outputs", "profile_layers"}
    of_type1 |= {"soak", "soak_window", "concurrency", *LOAD_FIELDS}
    if benchmark_type == "GENAI":
        return frozenset(of_type1 | {"dataset", "dataset_urls", "odt_config"})
    return frozenset(of_type1 if benchmark_type == "TYPE3" else of_type1 | {"odt_config"})


def _unused(description: JobDescriptionIn) -> list[FieldError]:
    """Return what would be ignored, of the fields that no other rule is about."""
    found = []
    kind = description.benchmark_type
    unused = unused_fields(kind, keep_outputs=description.keep_outputs)
    if "nb_inference" in unused and description.nb_inference not in (None, DEFAULT_RUNS):
        runs = {
            "TYPE2": "runs each row of its dataset once",
            "TYPE3": "trains",
            "GENAI": "makes as many requests as parameters/requests states",
        }.get(kind, "runs as its engine declares")
        reason = f"is the number of timed runs of TYPE1, and {kind} {runs}"
        found.append(FieldError("/nb_inference", reason, "TYPE1, or no nb_inference"))
    if "dataset" in unused:
        for name in ("dataset", "dataset_urls"):
            if getattr(description, name):
                runs_on = "a prompt" if kind == "GENAI" else "random data"
                reason = f"is not used, because {kind} runs on {runs_on}"
                accepted = "TYPE2 or TYPE3, keep_outputs, or no dataset"
                found.append(FieldError(f"/{name}", reason, accepted))
                break
    if "odt_config" in unused and description.odt_config is not None:
        reason = f"describes the training of TYPE3, and {kind} does not train"
        found.append(FieldError("/odt_config", reason, "TYPE3, or no odt_config"))
    if description.preemptible_measuring and not description.preemptible:
        reason = "has no effect on a benchmark that is not preemptible"
        found.append(FieldError("/preemptible_measuring", reason, "false, or preemptible"))
    if description.if_unavailable == "notify" and description.target_uid is None:
        reason = "is about the board of target_uid, which is missing"
        found.append(FieldError("/if_unavailable", reason, "reschedule, or a target_uid"))
    return found


def _about_soak(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what can't be combined with a soak, and a window that it does not have."""
    soak, window = description.soak, description.soak_window
    if soak is None:
        if window == DEFAULT_SOAK_WINDOW_S:
            return []
        return [FieldError("/soak_window", "has no effect without a soak", "a soak, or no window")]
    if description.benchmark_type != "TYPE1":
        return [FieldError("/soak", "is for TYPE1 only", "TYPE1, or no soak")]
    found = []
    windows = round(soak / window, 6)  # 3 * 0.2 is more than 0.6
    if not MIN_SOAK_WINDOWS <= windows <= MAX_SOAK_WINDOWS:
        is_short = windows < MIN_SOAK_WINDOWS
        number = MIN_SOAK_WINDOWS if is_short else MAX_SOAK_WINDOWS
        found.append(
            FieldError(
                "/soak",
                f"{soak:g} s is too {'short' if is_short else 'long'} for windows of {window:g} s: "
                f"a soak has {MIN_SOAK_WINDOWS} to {MAX_SOAK_WINDOWS:,} of them",
                f"at {'least' if is_short else 'most'} {number * window:g} s, or a "
                f"{'shorter' if is_short else 'longer'} soak_window",
            )
        )
    others = {
        "nb_inference": description.nb_inference not in (None, DEFAULT_RUNS),
        "precision": description.precision is not None,
        "keep_outputs": description.keep_outputs,
        "profile_layers": description.profile_layers,
    }
    found += [
        FieldError("/soak", f"can't be combined with {name}", "one of the two")
        for name, stated in others.items()
        if stated
    ]
    return found


def _about_concurrency(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what can't be combined with callers at the same time."""
    if not description.concurrency:
        return []
    if description.benchmark_type != "TYPE1":
        return [FieldError("/concurrency", "is for TYPE1 only", "TYPE1, or no concurrency")]
    others = {
        "soak": description.soak is not None,
        "precision": description.precision is not None,
        "keep_outputs": description.keep_outputs,
        "profile_layers": description.profile_layers,
    }
    found = [
        FieldError("/concurrency", f"can't be combined with {name}", "one of the two")
        for name, stated in others.items()
        if stated
    ]
    if (description.nb_inference or DEFAULT_RUNS) > MAX_LEVEL_RUNS:
        found.append(
            FieldError(
                "/nb_inference",
                f"is more than {MAX_LEVEL_RUNS:,}, and each number of callers makes so many",
                f"at most {MAX_LEVEL_RUNS:,} with concurrency",
            )
        )
    return found


LOAD_FIELDS = ("load", "load_bound", "load_percentile", "load_duration", "load_rate", "load_seed")
"""Fields of a load by LoadGen's rules, that of its kind first."""


def _about_load(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what can't be combined with a load by LoadGen's rules, and what is missing."""
    kind = description.load
    stated = [
        name
        for name in LOAD_FIELDS[1:]
        if getattr(description, name) != JobDescriptionIn.model_fields[name].default
    ]
    if kind is None:
        return [
            FieldError(f"/{name}", "has no effect without a load", f"a load, or no {name}")
            for name in stated
        ]
    if description.benchmark_type != "TYPE1":
        return [FieldError("/load", "is for TYPE1 only", "TYPE1, or no load")]
    others = {
        "soak": description.soak is not None,
        "precision": description.precision is not None,
        "concurrency": bool(description.concurrency),
        "keep_outputs": description.keep_outputs,
        "profile_layers": description.profile_layers,
    }
    found = [
        FieldError("/load", f"can't be combined with {name}", "one of the two")
        for name, given in others.items()
        if given
    ]
    if kind == SINGLE_STREAM:
        found += [
            FieldError(f"/{name}", "is for a server load", f"load server, or no {name}")
            for name in ("load_bound", "load_rate", "load_seed")
            if name in stated
        ]
    elif description.load_bound is None:
        found.append(
            FieldError("/load_bound", "a server load needs a bound of the latency", "e.g. 20 ms")
        )
    if (description.load_rate or 0) * description.load_duration > MAX_LEVEL_RUNS:
        found.append(
            FieldError(
                "/load_rate",
                f"makes more than {MAX_LEVEL_RUNS:,} queries in load_duration",
                "a smaller rate, or a shorter load_duration",
            )
        )
    if (description.nb_inference or DEFAULT_RUNS) > MAX_LEVEL_RUNS:
        found.append(
            FieldError(
                "/nb_inference",
                f"is more than {MAX_LEVEL_RUNS:,}, and each trial makes so many",
                f"at most {MAX_LEVEL_RUNS:,} with a load",
            )
        )
    return found


def _about_count(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what can't be combined with several boards."""
    if description.count == 1:
        return []
    one_board = "names one board, and count asks for several"
    refused = {
        "target_uid": (one_board, "no target_uid, or count 1"),
        "benchmark_id": ("each of the benchmarks gets an id of its own", "no id, or count 1"),
        "cron": ("can't be combined with count", "one of the two"),
        "job_completion_threshold": (
            "can't be combined with count: several boards are not preempted together",
            "one of the two",
        ),
    }
    found = [
        FieldError(f"/{name}", *words)
        for name, words in refused.items()
        if getattr(description, name) is not None
    ]
    if description.binding not in (None, "strict"):
        reason = "leaves the board to the cluster, and with count each board is chosen"
        found.append(FieldError("/binding", reason, "strict, or count 1"))
    return found


def _left_to_nomad(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what a schedule can't have whose runs Nomad starts by itself."""
    cron = description.cron
    if cron is None:
        return [FieldError("/cron_by", "has no effect without a cron", "a cron, or no cron_by")]
    found = _cron_problems(cron)
    if description.binding == "strict" and description.target_uid is None:
        reason = "needs a target_uid here: Nomad chooses the board of each run"
        found.append(FieldError("/binding", reason, "a target_uid, or loose or filtered"))
    if description.start_time is not None:
        reason = "does not delay a run that Nomad starts at a time of the cron"
        found.append(FieldError("/start_time", reason, "no start_time, or cron_by edgeyard"))
    return found


def _cron_problems(cron: str) -> list[FieldError]:
    """Return what Nomad refuses in a crontab, or reads in another way than Edgeyard."""
    fields = [field.split(",") for field in cron.split()]
    if any(_CRON_PART.fullmatch(part) is None for field in fields for part in field):
        accepted = "*, numbers, three-letter names, ranges, lists, and steps of * or numbers"
        return [FieldError("/cron", "has a field that Nomad may not know", accepted)]
    if len(fields) not in (5, 7):
        return []  # not a crontab at all
    days, weekdays = (fields[2], fields[4]) if len(fields) == 5 else (fields[3], fields[5])
    if any(_CRON_WEEKDAY.fullmatch(part) is None for part in weekdays):
        reason = "has weekdays that Nomad and Edgeyard read differently"
        accepted = "weekdays of one digit or a name each, and ranges that do not end with Sunday"
        return [FieldError("/cron", reason, accepted)]
    if not any({"*", "?"}.intersection(field) for field in (days, weekdays)):
        reason = "states a day and a weekday: for Nomad either is enough, for Edgeyard both hold"
        return [FieldError("/cron", reason, "one of the two, or cron_by edgeyard")]
    return []


def _about_outputs(description: JobDescriptionIn) -> list[FieldError]:
    """Refuse what can't be combined with keeping the model's outputs."""
    if not description.keep_outputs:
        return []
    if description.benchmark_type != "TYPE1":
        return [FieldError("/keep_outputs", "is for TYPE1 only", "TYPE1, or no outputs")]
    found = []
    if not _has_data(description):
        found.append(
            FieldError(
                "/dataset",
                "keep_outputs needs the model's inputs",
                "an uploaded .npz with an array for each input",
            )
        )
    if description.input:
        found.append(
            FieldError(
                "/input",
                "describes random data, and keep_outputs runs on the arrays of the dataset",
                "one of the two",
            )
        )
    if description.precision is not None:
        found.append(
            FieldError("/precision", "can't be combined with keep_outputs", "nb_inference")
        )
    if description.profile_layers:
        found.append(
            FieldError("/profile_layers", "can't be combined with keep_outputs", "one of the two")
        )
    return found


def parse_description(tree: Mapping[str, object]) -> JobDescriptionIn:
    """Check the fields of a job description, each alone and all together, and return them.

    Args:
        tree: As `read_document` gives it.

    Raises:
        InvalidInput: Naming every field that is wrong.
    """
    try:
        return JobDescriptionIn.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
        found = field_errors(details, JobDescriptionIn.model_fields, _ELSEWHERE)
        # pydantic looks at fields together only where each of them is right
        raise InvalidInput([*_absent(tree), *found]) from None


def _absent(tree: Mapping[str, object]) -> list[FieldError]:
    """Return what is needed under either of two names and is there under none."""
    needed = {("model", "model_url"): _NO_MODEL, ("target", "target_uid"): _NO_TARGET}
    return [
        error for names, error in needed.items() if all(tree.get(name) is None for name in names)
    ]


def to_description(description: JobDescriptionIn, *, default_priority: int = 5) -> JobDescription:
    """Return a checked job description as the value that the scheduler uses."""
    model, model_url = description.model, description.model_url
    if model is not None and is_url(model):
        model, model_url = None, model
    dataset, dataset_urls = description.dataset, tuple(description.dataset_urls)
    if dataset is not None and is_url(dataset):
        dataset_urls, dataset = (dataset,), None
    same = {name: getattr(description, name) for name in _SAME_FIELDS}
    converted: dict[str, Any] = {
        "model": model or name_from_url(model_url or "", "model"),
        "model_url": model_url,
        "benchmark_type": BenchmarkType(description.benchmark_type),
        "dataset": dataset,
        "dataset_urls": dataset_urls,
        "user_priority": default_priority
        if description.user_priority is None
        else description.user_priority,
        "user_time_s": description.user_time,
        "soak_s": description.soak,
        "soak_window_s": description.soak_window,
        "load_bound_s": description.load_bound,
        "load_duration_s": description.load_duration,
        "nb_inference": DEFAULT_RUNS
        if description.nb_inference is None
        else description.nb_inference,
        "constraints": tuple(each.checked() for each in description.constraints),
        "affinities": tuple(each.wish() for each in description.affinities),
        "spreads": tuple(each.wish() for each in description.spreads),
        "binding": Binding(description.binding) if description.binding else None,
        "if_unavailable": IfUnavailable(description.if_unavailable),
        "cron_by": CronBy(description.cron_by),
        "tags": tuple(description.tags),
        "input": {
            name: spec.model_dump(exclude_none=True) for name, spec in description.input.items()
        },
        "queue_timeout_s": description.queue_timeout,
    }
    return JobDescription(**{**same, **converted})


_SAME_FIELDS = tuple(
    each.name for each in fields(JobDescription) if each.name in JobDescriptionIn.model_fields
)
"""Fields that have one name in both; those of another type are converted."""


def name_from_url(url: str, otherwise: str) -> str:
    """Return a plain file name for the content of a URL."""
    last = unquote(urlsplit(url).path.rsplit("/", 1)[-1], errors="replace")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip("._-")[-128:].lstrip("._-")
    return plain or otherwise


def description_schema() -> dict[str, object]:
    """Return the published JSON Schema of job files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:edgeyard:job-description:1",
        **JobDescriptionIn.model_json_schema(),
    }
