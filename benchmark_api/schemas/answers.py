"""The answers of the API, each stated once.

Routes build these models, ``/openapi.json`` is made from them, and the SDK reads answers as them.
Times are aware and in UTC. A field that is there only sometimes has a default.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from edgeyard.scheduler.model.benchmark import Binding, Status

JsonObject = dict[str, Any]
"""An object whose keys are stated elsewhere, for example those of a report."""

StatusWord = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in Status]})]
"""A `Status`; a client also reads those of newer servers."""

BindingWord = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in Binding]})]
"""A `Binding`; a client also reads those of newer servers."""

BoardState = Literal[
    "idle", "busy", "offline", "drained", "leased", "quarantined", "unhealthy", "unknown"
]


class Reason(Struct, frozen=True, kw_only=True):
    """A stable code and a sentence: why a benchmark waits, or what a verdict rests on."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.code, self.sentence)))


class Failure(Struct, frozen=True, kw_only=True):
    """Why something failed: a stable category and a sentence."""

    category: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.category}: {self.sentence}"


class NamedFile(Struct, frozen=True, kw_only=True):
    """A file that a benchmark needs.

    ``role`` is model, language_model (its archive, if the type is GENAI or the engine ort-genai),
    dataset or odt_config, ``position`` counts from 0 within the role. ``url`` is where the file is
    fetched from, null: it was uploaded. ``sha256`` (hexadecimal) and ``size_bytes`` are null until
    it has been fetched.
    """

    role: str
    position: int
    name: str
    sha256: str | None
    size_bytes: int | None
    url: str | None


class Attempt(Struct, frozen=True, kw_only=True):
    """One dispatch of a benchmark: a job in the cluster.

    ``number`` counts from 1. ``target_uid`` is the board, null until it is known, and
    ``allowed_uids`` are those that the job may run on. ``priority`` is Nomad's, 1-100; ``progress``
    is 0-100 %. ``time_limit_s`` is the limit of its run in seconds, null: that of the description,
    or the server's. ``counts`` is false where it is not counted as a retry. ``stopping`` states why
    it is stopped, by Edgeyard or by an operator in the cluster, null: it is not. ``cluster_page``
    is its page in Nomad's own interface.
    """

    number: int
    job_id: str
    state: str
    target_uid: str | None
    allowed_uids: list[str]
    binding: str
    priority: int
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    task_ended_at: datetime | None
    result_at: datetime | None
    ended_at: datetime | None
    phase: str | None
    progress: float | None
    time_limit_s: float | None
    counts: bool
    failure: Failure | None
    stopping: Failure | None
    cluster_page: str | None
    evaluation_id: str | None


class ListedBenchmark(Struct, frozen=True, kw_only=True):
    """A benchmark in a list.

    ``priority`` is the last computed one, 1-100, null before the first cycle; ``user_priority`` the
    user's own, 1-10. ``phase``, ``progress`` (0-100 %) and ``progress_message`` (for people, e.g.
    how well the number of a ``precision`` is known so far) are of the running attempt, otherwise
    null. ``target_uid`` is the newest attempt's board. ``held``: it is not placed until it is
    released. ``unpinned``: its pinned board was unavailable, so any board that fits may run it.
    ``retry_of`` is the benchmark that it repeats, ``schedule_id`` the schedule that submitted it.
    ``series`` is the lineage of its results over time, null for the runs of a check, and
    ``check_id`` this check.
    ``stopped_by`` is the user who holds or has cancelled it, ``stopped_reason`` why, in their own
    words.
    """

    benchmark_id: str
    user_id: str
    campaign_id: str | None
    schedule_id: str | None
    series: str | None
    check_id: str | None
    name: str
    status: StatusWord
    phase: str | None
    progress: float | None
    progress_message: str | None
    waiting_reason: Reason | None
    failure: Failure | None
    priority: int | None
    target_uid: str | None
    held: bool
    stopped_by: str | None
    stopped_reason: str | None
    unpinned: bool
    description: JsonObject
    submit_time: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    retry_of: str | None
    user_priority: int
    links: dict[str, str]


class ForecastCoverage(Struct, frozen=True, kw_only=True):
    """What first intervals held lately: of the newest 100 starts of benchmarks that had to wait
    (``started``) ``starts_held``, and of the newest 100 ends (``ended``) ``ends_held``.
    """

    starts_held: int
    started: int
    ends_held: int
    ended: int


class Forecast(Struct, frozen=True, kw_only=True):
    """When it is expected to start and end; meant to be between ``low`` and ``high`` 4 times in 5.

    ``coverage`` says how often such intervals held lately: what to expect of this one, too.
    ``age_s`` says how old the forecast is; ``place`` is the one in the queue, from 1, null while
    it runs; ``grounded`` is false where the past says nothing and times go by the bound alone.
    """

    made_at: datetime
    age_s: float
    place: int | None
    start: datetime
    start_low: datetime
    start_high: datetime
    finish: datetime
    finish_low: datetime
    finish_high: datetime
    deadline_chance: float | None
    grounded: bool
    coverage: ForecastCoverage


class PlannedStart(Struct, frozen=True, kw_only=True):
    """The board and the start that the newest cycle plans; each cycle plans anew.

    ``reason`` is ``next_free``, ``better_board``, ``booked``, ``quiet_host`` or ``cheap_hour``,
    ``sentence`` the same in words. ``gain_s`` is what it saves against the best start now, in
    seconds of expected cost, and ``error_s`` its standard error; null where no board is free.
    """

    target_uid: str
    start: datetime
    reason: str
    sentence: str
    gain_s: float | None
    error_s: float | None


class WaitingExplanation(Struct, frozen=True, kw_only=True):
    """Why a benchmark waits: a stable code and a sentence."""

    reason: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}"


class Placement(Struct, frozen=True, kw_only=True):
    """Where a benchmark was placed, and how strictly its job is bound to that board.

    ``binding_reason`` states why it is bound more strictly than was asked for; "" if it is not.
    """

    benchmark_id: str
    target_uid: str
    family: str
    binding: BindingWord
    priority: int
    allowed_uids: list[str]
    binding_reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What was found of one board.

    ``reason`` is null where it fits and is free; ``never``: waiting won't help. ``scores`` are the
    scorers' own, each in its unit, null where a scorer abstained. ``cost_s`` is what a run there is
    expected to cost in seconds, ``cost_error_s`` its standard error and ``cost_parts_s`` what it is
    made of: the run itself, failures, credits and joules; null where nothing is known.
    ``energy_j`` is the predicted energy of the run there in joules, with the 95 % interval of the
    next run, ``energy_low_j`` to ``energy_high_j``. ``score`` compares boards with the best one, 1.
    """

    target_uid: str
    reason: str | None
    sentence: str
    never: bool
    score: float | None
    scores: dict[str, float | None]
    cost_s: float | None
    cost_error_s: float | None
    cost_parts_s: dict[str, float | None]
    energy_j: float | None
    energy_low_j: float | None
    energy_high_j: float | None


class ScorerPart(Struct, frozen=True, kw_only=True):
    """A scorer's part in a decision.

    ``weight`` is its weight next to those of the others, as the policy states it or as it followed
    from rewards; where expected costs decide, only preferences are weighed. ``reward`` is what the
    evaluator gave it in this cycle, null where it gave none. ``absent`` states why it did not
    answer, ``fallback`` what it answered instead of what its kind states: for example a greedy
    plan, because the solver found none in time. ``late`` is how long it took, and its time, if it
    took too long: such an answer counts all the same, so that no decision depends on the clock.
    ``model`` is the active registered model that it answered by, ``run_time/3``.
    """

    scorer: str
    objective: str
    unit: str
    weight: float
    reward: float | None
    absent: str
    fallback: str
    late: str
    model: str


ChangedField = Literal[
    "user_priority",
    "job_completion_threshold",
    "start_time",
    "deadline",
    "user_time",
    "user_budget",
    "target_uid",
    "constraints",
    "storage",
    "ram",
    "target",
]


class Change(Struct, frozen=True, kw_only=True):
    """A change of the job description and the start that it leads to.

    ``value`` is the field's new one, null: left out; of ``constraints`` the one to leave out.
    ``gain_s`` is null where no start is in sight as it is.
    """

    field: ChangedField
    value: str | int | None
    start: datetime
    gain_s: float | None


class Changes(Struct, frozen=True, kw_only=True):
    """The cheapest changes that let a benchmark start sooner, at most three.

    ``decided_at`` is of the cycle that was decided again, ``age_s`` ago. ``start`` is the expected
    one as it is; ``reachable_deadline``, where its own is not, the nearest that is met nine times
    in ten; ``untried`` are changes that there was no time to try.
    """

    decided_at: datetime
    age_s: float
    start: datetime | None
    changes: list[Change]
    deadline: datetime | None
    reachable_deadline: datetime | None
    untried: list[ChangedField]


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a benchmark was placed, or waits: ``placement`` is null while it waits to be placed.

    ``waiting``: why it waits, to be placed or for the cluster to start its job; else null.

    ``rank`` is its place in the queue, from 0, without the ``never_ahead`` that no board can ever
    run: one less than the forecast's ``place``; ``priority_parts`` add up to ``priority``; with
    ``never`` no known board could ever run it. ``changes`` is there where it was asked for, null
    where the benchmark does not wait. ``ran_on`` is the board of its newest attempt, as the cluster
    or its report says; null until it has started. ``choice`` compares the board with the best other
    one, "" where the benchmark waits. ``agreement`` is the share, 0-1, of the scorers that rated
    this board and rate no usable one above it; null where it waits or no scorer rated it; decisions
    do not depend on it. ``planned`` is the board and the start that are planned for
    it, null where it was placed or has no plan. ``age_s`` and ``cluster_problem`` are those of the
    boards: while the cluster does not answer, verdicts are what it last said, and starts are not
    forecast.
    """

    benchmark_id: str
    decided_at: datetime
    policy: str
    rank: int
    rank_reason: str
    never_ahead: int
    priority: int
    priority_parts: dict[str, float]
    verdicts: list[Verdict]
    placement: Placement | None
    waiting: WaitingExplanation | None
    never: bool
    scorers: list[ScorerPart]
    choice: str
    agreement: float | None
    ran_on: str | None
    forecast: Forecast | None
    planned: PlannedStart | None
    age_s: float | None
    cluster_problem: str
    changes: Changes | UnsetType | None = UNSET

    @property
    def chosen_uid(self) -> str | None:
        """The board; None while the benchmark waits."""
        return None if self.placement is None else self.placement.target_uid

    @property
    def binding(self) -> BindingWord | None:
        """How strictly its job is bound to the board; None while the benchmark waits."""
        return None if self.placement is None else self.placement.binding


class Benchmark(ListedBenchmark, frozen=True, kw_only=True):
    """All of one benchmark.

    ``age_s``: of what is known of the boards; null before the cluster's first answer.
    ``cluster_problem``: why the cluster does not answer now; "" when it does. Meanwhile no start is
    forecast.
    """

    forecast: Forecast | None
    planned: PlannedStart | None
    age_s: float | None
    cluster_problem: str

    files: list[NamedFile]
    attempts: list[Attempt]


class BenchmarkPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of benchmarks, newest first; ``total`` when asked for."""

    items: list[ListedBenchmark]
    next_cursor: str | None
    total: int | None = None


class SubmissionAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An accepted submission: a benchmark or, with a cron, a schedule.

    ``forecast`` is that of the time of the submission. It is null if none can be made at once:
    files have to be downloaded first, the lab is busy, or many users submit. The benchmark itself
    shows its forecast soon afterwards.

    With a count above 1, ``benchmark_ids`` are the benchmarks of the campaign ``campaign_id``, one
    for each board; ``benchmark_id`` is the first of them.
    """

    benchmark_id: str | None
    status: str
    forecast: Forecast | None
    links: dict[str, str]
    warnings: list[str]
    schedule_id: str | None = None
    next_fire: datetime | None = None
    campaign_id: str | None = None
    benchmark_ids: list[str] = []


class BoardVerdict(Struct, frozen=True, kw_only=True):
    """Whether one board could run a benchmark now.

    ``fits``: it could run it now; ``never``: waiting will not help. ``reason`` is a code, null
    where it fits. ``state`` is that of the board. ``cost_s`` is what a run there is expected to
    cost in seconds, ``cost_error_s`` its standard error; null where nothing is known.
    ``energy_j`` is its predicted energy in joules with the 95 % interval of the next run.
    ``max_credits`` are reserved for an attempt there, and are the most that it can cost.
    """

    target_uid: str
    family: str
    state: str
    fits: bool
    never: bool
    reason: str | None
    sentence: str
    cost_s: float | None
    cost_error_s: float | None
    energy_j: float | None
    energy_low_j: float | None
    energy_high_j: float | None
    max_credits: float


class LocalFile(Struct, frozen=True, kw_only=True):
    """A file that the client has and that was not uploaded: its name and its size in bytes."""

    name: str
    size_bytes: int


class DryRun(Struct, frozen=True, kw_only=True):
    """What would happen to a description if it were submitted: it would run, wait or never run.

    ``priority`` is 1-100, the sum of ``priority_parts``. ``hcl`` is the job's text. ``workload`` is
    what would be measured, as far as the description and its files show it. ``not_uploaded`` are
    the files whose content the server has not seen.
    """

    would: Literal["run", "wait", "never"]
    boards: list[BoardVerdict]
    waiting_reason: Reason | None
    priority: int
    priority_parts: dict[str, float]
    hcl: str
    forecast: Forecast | None
    planned: PlannedStart | None
    description: JsonObject
    workload: Workload
    not_uploaded: list[LocalFile]
    warnings: list[str]


class LeftOut(Struct, frozen=True, kw_only=True):
    """A combination of a matrix that can't work and is left out.

    ``position`` counts all combinations from 0 on, in the order of the matrix. ``values`` has a
    value for each of its axes.
    """

    position: int
    values: dict[str, str]
    reasons: list[str]


class CampaignDryRun(Struct, frozen=True, kw_only=True):
    """What would happen to each combination of a matrix, but for those that are left out."""

    items: list[DryRun]
    left_out: list[LeftOut] = []


class CheckedDescription(Struct, frozen=True, kw_only=True):
    """A description that would be accepted with the right files."""

    warnings: list[str]


class CheckedClone(CheckedDescription, frozen=True, kw_only=True):
    """A clone that would be accepted with the right files.

    ``description`` is its job description: that of the original with the changes.
    """

    description: dict[str, Any]


class CampaignMember(Struct, frozen=True, kw_only=True):
    """A benchmark of a new campaign."""

    benchmark_id: str
    status: StatusWord


class AcceptedCampaign(Struct, frozen=True, kw_only=True):
    """A submitted matrix: the new campaign, and its benchmarks in the order of the matrix.

    ``left_out`` are combinations that can't work; ``warnings`` name them, too.
    """

    campaign_id: str
    benchmarks: list[CampaignMember]
    links: dict[str, str]
    warnings: list[str]
    left_out: list[LeftOut] = []


class Campaign(Struct, frozen=True, kw_only=True):
    """A campaign with its benchmarks."""

    campaign_id: str
    user_id: str
    name: str
    created_at: datetime
    benchmarks: list[ListedBenchmark]


class CampaignSummary(Struct, frozen=True, kw_only=True):
    """A campaign in a list, with the number of its benchmarks by status."""

    campaign_id: str
    user_id: str
    name: str
    created_at: datetime
    benchmarks: int
    counts: dict[str, int]


class CampaignPage(Struct, frozen=True, kw_only=True):
    """A page of campaigns, newest first."""

    items: list[CampaignSummary]
    next_cursor: str | None


class Event(Struct, frozen=True, kw_only=True):
    """One event of the log.

    ``seq`` numbers all events in the order of their commits. ``data`` depends on ``kind``.
    ``benchmark_id`` and ``user_id`` are null where the event is about none.
    """

    seq: int
    at: datetime
    kind: str
    benchmark_id: str | None
    user_id: str | None
    data: JsonObject


class Events(Struct, frozen=True, kw_only=True):
    """Events in order; ask again with ``after=next_after``."""

    items: list[Event]
    next_after: int


class Act(Struct, frozen=True, kw_only=True):
    """One record of the log of acts: who did what, by which door, from where, and why.

    ``door`` is ``cli``, ``sdk``, ``page``, ``platform``, ``http`` or ``server``, by what the client
    says of itself, which proves nothing. ``address`` (an IPv6 one as its /64) and ``agent`` are
    null for acts of others, unless you are an operator. ``before`` and ``after`` hold what the act
    changed, without secrets. ``count`` is above 1 for failed sign-ins only.
    """

    seq: int
    at: datetime
    kind: str
    text: str
    user_id: str | None
    email: str | None
    token_id: str | None
    door: str
    address: str | None
    agent: str | None
    board: str | None
    benchmark_id: str | None
    reason: str
    count: int
    before: JsonObject
    after: JsonObject
    data: JsonObject


class ActPage(Struct, frozen=True, kw_only=True):
    """A page of acts, newest first; with ``after``, in their order.

    ``next_after`` is for asking again with ``after``: it states the newest act of the page.
    """

    items: list[Act]
    next_cursor: str | None
    next_after: int


class ResultFile(Struct, frozen=True, kw_only=True):
    """A file that an attempt uploaded.

    ``sha256`` is hexadecimal, ``url`` the path from which it is downloaded.
    """

    attempt: int
    name: str
    sha256: str
    size_bytes: int
    received_at: datetime
    url: str


class Workload(Struct, frozen=True, kw_only=True):
    """What was measured: primary metrics may be compared where all of it is equal.

    Hashes are SHA-256 in hexadecimal, null where the content is not known yet. ``inputs`` state
    name, shape and type of the model's inputs, ``batch_size`` the rows of one inference where
    accuracy was measured, otherwise null. ``training`` is the configuration of TYPE3, otherwise
    null. ``load`` states how the model is called, for example "soak of 1800 s";
    null: by one caller for a number of runs. ``metric`` states the primary metric with unit and
    direction, in words; it is null where only a run shows which one the engine declares.
    """

    model_sha256: str | None
    dataset_sha256: list[str | None]
    benchmark_type: str
    engine: str
    engine_version: str | None
    parameters: JsonObject
    inputs: list[JsonObject]
    batch_size: float | None
    training: JsonObject | None
    load: str | None
    metric: str | None


class BetweenRuns(Struct, frozen=True, kw_only=True):
    """How much numbers of this work vary on this board, beyond what one run states.

    ``share`` is the standard deviation relative to the number, ``degrees`` the degrees of freedom
    of its square, ``numbers`` the repeated numbers that it comes from.
    """

    share: float
    degrees: float
    source: Literal["board", "family", "default"]
    numbers: int
    sentence: str


class ResultRow(Struct, frozen=True, kw_only=True):
    """One row of a comparison; what was not measured is null.

    ``primary_metric`` is the name of the metric that the type or its engine declares as primary,
    for example ``p50``. ``primary_title`` is its plain name, ``primary_unit`` its unit (may be
    empty), and ``primary_better`` states whether lower or higher numbers are better.
    ``primary_value`` has the 95 % interval ``primary_low`` to ``primary_high`` with its
    ``primary_degrees`` of freedom, as the run states them; that of a repeated run is
    ``primary_repeat_low`` to ``primary_repeat_high``.

    ``nb_inference`` counts inferences, or of TYPE2 batches and of TYPE3 training steps. Each timed
    number is the mean of ``inner_loops`` consecutive ones, above 1 for a model of microseconds:
    ``p50_ms`` to ``p99_ms`` are quantiles of these means then, not of single inferences.
    ``runs_per_s`` counts inferences (TYPE3: training steps), ``rows_per_s`` their rows; it is null
    without a dimension for rows. ``metric`` and ``metric_value`` are of TYPE2 with another metric
    than classification: MAE, mIoU or mAP. ``time_to_first_token_ms`` and
    ``prefill_tokens_per_s`` are of GENAI. ``ram_model_bytes`` is the peak less the baseline, which
    the process takes before it loads the model. ``energy_j`` is the energy of one inference with
    its 95 % interval, ``energy_above_idle_j`` the same less what the idle board takes in that
    time, ``power_w`` the mean power meanwhile, and ``energy_scope`` what the sensor measures:
    ``board``, ``processor``, ``part`` (a rail that the lab names) or ``meter``. ``kernel`` is the
    release of the kernel of the operating system that it ran under, ``firmware`` the version of
    the boot loader or BIOS.
    """

    benchmark_id: str
    model: str
    target: str
    target_uid: str | None
    runtime: str
    benchmark_type: str
    status: StatusWord
    workload: Workload
    primary_metric: str | None
    primary_title: str | None
    primary_unit: str | None
    primary_better: Literal["lower", "higher"] | None
    primary_value: float | None
    primary_low: float | None
    primary_high: float | None
    primary_degrees: float | None
    primary_repeat_low: float | None
    primary_repeat_high: float | None
    between_runs: BetweenRuns | None
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    mean_ms: float | None
    nb_inference: int | None
    inner_loops: int | None
    runs_per_s: float | None
    rows_per_s: float | None
    accuracy: float | None
    top5: float | None
    metric: str | None
    metric_value: float | None
    final_loss: float | None
    load_cold_ms: float | None
    load_warm_ms: float | None
    first_inference_ms: float | None
    time_to_first_token_ms: float | None
    prefill_tokens_per_s: float | None
    ram_peak_bytes: float | None
    ram_baseline_bytes: float | None
    ram_model_bytes: float | None
    energy_j: float | None
    energy_low_j: float | None
    energy_high_j: float | None
    energy_above_idle_j: float | None
    power_w: float | None
    energy_scope: str | None
    verdict: str | None
    reasons: list[Reason]
    kernel: str | None
    firmware: str | None
    ended_at: datetime | None


class ComparedRow(ResultRow, frozen=True, kw_only=True):
    """A row of results, relative to the baseline of its comparison.

    ``differs`` names the parts of ``workload`` in which it differs from the baseline. ``ratio`` is
    its primary metric over the baseline's; null where the metric, the type, the data set, the batch
    size, the training or the request to a language model is another one, or the inputs of the same
    model, and for invalid numbers.
    ``ratio_low`` and ``ratio_high`` are its 95 % interval. ``shown_to_differ``: this interval
    leaves out 1. ``on_front``: no other result of its sweep of parameters is at least as good
    in all metrics of ``fronts`` and better in one; null: it belongs to no sweep, or is not judged.
    """

    differs: list[str]
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    shown_to_differ: bool
    on_front: bool | None


class ComparedMetric(Struct, frozen=True, kw_only=True):
    """A metric by which results are better or worse; ``unit`` may be empty."""

    name: str
    unit: str
    better: Literal["lower", "higher"]


class ParetoFront(Struct, frozen=True, kw_only=True):
    """The results of a sweep of parameters that no other one of it beats in every respect.

    ``metrics`` decide: those that all its valid results have. ``benchmark_ids`` are on the front,
    ``others`` are not.
    """

    metrics: list[ComparedMetric]
    benchmark_ids: list[str]
    others: list[str]


class ResultComparison(Struct, frozen=True, kw_only=True):
    """Results next to one of them.

    ``baseline`` is the benchmark that all are relative to. ``differences`` names the parts of
    ``workload`` that are not the same in all rows. ``fronts`` has one for each model, type, dataset
    and primary metric whose results differ in their parameters.
    """

    baseline: str
    differences: list[str]
    fronts: list[ParetoFront]
    items: list[ComparedRow]


class SuspectedChange(Struct, frozen=True, kw_only=True):
    """A change of a series' level that its points suggest and nothing has confirmed.

    ``size`` is the level after it over that before it, less 1 (0.05: the numbers are 5 % higher),
    with its 95 % interval.
    """

    size: float
    low: float
    high: float


class SeriesChange(Struct, frozen=True, kw_only=True):
    """A change of the level of a series: suspected, confirmed by runs or refuted, an alert.

    ``size`` is the level after it over that before it, less 1 (0.05: the numbers are 5 % higher),
    with its 95 % interval, as suspected; ``confirmed_size`` the same as a check has measured it,
    null where none has. ``worse``: the new level is the worse one. It begins with ``begin_id``;
    ``before_id`` is the last valid result before it. ``status``: ``suspected`` and ``confirming``
    are not decided, ``noise`` is refuted, ``unconfirmed`` could be neither; alerts are
    ``confirmed``, ``open`` (could not be confirmed; the series' owner asked for these),
    ``resolved`` and ``dismissed``; one that is ``merged`` ended or reopened ``alert_id``.
    ``reason`` states why it is there, ``blame`` why ``cause`` is its cause, ``not_tested`` what was
    not tested. ``by_user_id`` ended it, for the reason ``note``; null: nobody did.

    Only the answer for one change has the rest: ``model``, ``git_commit`` and ``link`` as the
    submission of ``begin_id`` stated them, and the levels ``before_value`` and ``after_value``, in
    ``unit``: medians of up to ten valid results each.
    """

    change_id: str
    series_id: str
    lineage: str
    user_id: str
    target_uid: str
    runtime: str
    benchmark_type: str
    status: Literal[
        "suspected",
        "confirming",
        "noise",
        "unconfirmed",
        "confirmed",
        "open",
        "resolved",
        "dismissed",
        "merged",
    ]
    sentence: str
    begin_id: str
    before_id: str
    metric: str
    worse: bool
    size: float
    low: float
    high: float
    confirmed_size: float | None
    confirmed_low: float | None
    confirmed_high: float | None
    found_at: datetime
    alert_id: str | None
    check_ids: list[str]
    reason: str
    cause: str
    blame: str
    not_tested: list[str]
    reopened_at: datetime | None
    ended_at: datetime | None
    by_user_id: str | None
    note: str
    links: dict[str, str]
    model: str = ""
    git_commit: str = ""
    link: str = ""
    before_value: float | None = None
    after_value: float | None = None
    unit: str = ""


class Alerts(Struct, frozen=True, kw_only=True):
    """A page of alerts, newest first."""

    items: list[SeriesChange]
    next_cursor: str | None


class WatchedSeries(Struct, frozen=True, kw_only=True):
    """What the watch over a series knows of it beyond its points.

    ``threshold`` is the size of a change, a share, below which nothing is suspected now: noise of
    that size is known. It was raised at ``threshold_at`` last, and falls by half in 30 days.
    ``looked_at`` is when the series was looked at last. ``alert_unconfirmed``: changes that could
    not be confirmed are alerts, too.
    """

    series_id: str
    lineage: str
    user_id: str
    target_uid: str
    runtime: str
    benchmark_type: str
    threshold: float
    threshold_at: datetime | None
    looked_at: datetime | None
    alert_unconfirmed: bool


class SeriesPoint(ResultRow, frozen=True, kw_only=True):
    """A result as a point of its series, relative to the one before it.

    ``ratio`` is the primary metric over that of the last valid result of this series, with its 95 %
    interval; null for the first one. ``shown_to_differ``: the interval leaves out 1. ``group``
    counts series from 1 on, in the order of their first points. ``suspected`` is a change of the
    level that seems to begin with this point; null elsewhere. All else is what may explain the
    number: ``changes`` states what changed since the run before it on its board (the
    model's content, the engine's version, the firmware, the kernel), ``git_commit`` and ``link``
    what the submission stated, ``runner`` the version of the runner, ``governor`` the frequency
    governor, ``temperature_c`` the hottest thermal zone after the runs, degrees Celsius, and
    ``other_load`` the share of its CPUs' time that neighbours had.
    """

    series_id: str
    user_id: str
    git_commit: str
    link: str
    runner: str | None
    governor: str | None
    temperature_c: float | None
    other_load: float | None
    group: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    shown_to_differ: bool
    changes: list[str]
    suspected: SuspectedChange | None


class FailedRun(Struct, frozen=True, kw_only=True):
    """A benchmark of a lineage that failed; ``target_uid`` is null if it never had a board."""

    benchmark_id: str
    target_uid: str | None
    runtime: str
    benchmark_type: str
    ended_at: datetime
    failure: Failure | None


class SeriesPoints(Struct, frozen=True, kw_only=True):
    """Results of a lineage over time, the oldest first.

    ``failed`` are the benchmarks of the same time that failed, the oldest first. ``left_out``
    counts completed benchmarks that are not among the results, because they have no primary
    metric, or it is 0. ``truncated``: there are older ones. ``watched`` is what the watch knows of
    their series, and ``changes`` are the changes of these, newest first, whatever their outcome
    was.
    """

    items: list[SeriesPoint]
    failed: list[FailedRun]
    watched: list[WatchedSeries]
    changes: list[SeriesChange]
    left_out: int
    truncated: bool


class Series(Struct, frozen=True, kw_only=True):
    """Completed benchmarks of one lineage that measured the same thing on one board.

    ``series_id`` is equal where lineage, owner, board, engine, type, inputs, parameters, data set,
    batch size, training and metric are. ``points`` counts its benchmarks; the oldest ended at
    ``first_at``, the newest at ``last_at``. ``measures`` is what their descriptions state of it
    beyond engine and type: parameters, load and shapes of inputs. ``threshold`` is the size of a
    change below which nothing is suspected, a share; ``alert_id`` the alert that is confirmed or
    open, null: none.
    """

    series_id: str
    lineage: str
    user_id: str
    target_uid: str
    runtime: str
    benchmark_type: str
    measures: str
    points: int
    first_at: datetime
    last_at: datetime
    threshold: float
    alert_id: str | None


class SeriesList(Struct, frozen=True, kw_only=True):
    """A page of series, by name."""

    items: list[Series]
    next_cursor: str | None


class AttemptReport(Struct, frozen=True, kw_only=True):
    """The report of an attempt; its schema is ``docs/reference/result.schema.json``."""

    attempt: int
    received_at: datetime
    report: JsonObject


class TensorShape(Struct, frozen=True, kw_only=True):
    """Shape and type of an array."""

    shape: list[int]
    dtype: str


class OutputShape(TensorShape, frozen=True, kw_only=True):
    """Shape and type of an output.

    ``raw_dtype`` is the type of the whole numbers that a quantised output has in the model:
    ``outputs.npz`` holds the real numbers that they state. It is null where nothing was converted.
    """

    raw_dtype: str | None = None


class InferenceSet(Struct, frozen=True, kw_only=True):
    """What was measured with one set of the user's own inputs.

    ``rows`` and ``batch_size`` are null where the arrays were run as they are. ``rows_per_s`` is
    null without a dimension for rows. ``left_out`` names outputs that are no arrays of numbers. The
    outputs are in ``outputs.npz``, as ``SET/OUTPUT``. Each timed number is the mean of
    ``inner_loops`` consecutive inferences.
    """

    name: str
    rows: int | None
    batch_size: int | None
    batches: int
    feeds: dict[str, TensorShape]
    outputs: dict[str, OutputShape]
    left_out: dict[str, str]
    first_inference_ms: float
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    mean_ms: float | None
    runs_per_s: float | None
    rows_per_s: float | None
    nb_inference: int
    inner_loops: int
    verdict: str | None
    reasons: list[Reason]


class LayerTime(Struct, frozen=True, kw_only=True):
    """Time of a layer in a run, in milliseconds, and its share of all layers, 0-1.

    The time is the median of the profiled runs; their mean where the engine (OpenVINO) states no
    single run's. ``provider`` is the execution provider that ran it.
    """

    name: str
    operator: str
    provider: str
    time_ms: float
    share: float
    calls_per_run: float


class OperatorTime(Struct, frozen=True, kw_only=True):
    """Time in a run of all layers of one operator: the sum of their times."""

    operator: str
    layers: int
    time_ms: float
    share: float


class ProviderTime(Struct, frozen=True, kw_only=True):
    """Time in a run of all layers that one execution provider runs: the sum of their times."""

    provider: str
    layers: int
    time_ms: float
    share: float


class LayerProfile(Struct, frozen=True, kw_only=True):
    """Times of the layers, measured by the engine's profiler apart from the timed runs.

    ``overhead`` is the p50 of the profiled runs over that of the timed runs, minus 1.
    ``outside_ms`` is the median time of a run that is in no layer. ``layers`` are those that take
    longest of ``count``.
    """

    runs: int
    count: int
    profiled_p50_ms: float
    overhead: float | None
    outside_ms: float
    layers: list[LayerTime]
    operators: list[OperatorTime]
    providers: list[ProviderTime]


class SoakWindow(Struct, frozen=True, kw_only=True):
    """What a window of a soak showed, its time being since the soak's begin.

    ``p50_low_ms`` and ``p50_high_ms`` are the 95 % interval of its p50. Null is what this board
    does not report: ``temperature_c`` at its end, the mean ``clock_mhz`` of the slowest CPU,
    whether it was ``throttled``. ``energy_j`` is the energy of an inference with its 95 % interval,
    null where it is not known.
    """

    begin_s: float
    end_s: float
    nb_inference: int
    p50_ms: float
    p50_low_ms: float | None
    p50_high_ms: float | None
    p99_ms: float
    temperature_c: float | None
    clock_mhz: float | None
    throttled: bool | None
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None


class SteadyPart(Struct, frozen=True, kw_only=True):
    """The part of a soak that its result is of: from ``begin_s`` to its end."""

    begin_s: float
    windows: int
    p50_ms: float


class Throttling(Struct, frozen=True, kw_only=True):
    """When a board began to throttle: the begin of the first window with a sign of it.

    ``after_s`` and ``sign`` are null where there was none. Signs are ``reported`` (by firmware or
    kernel) and ``clock`` (lower by 5 % than in the first window); ``watched`` lists those that this
    board has.
    """

    after_s: float | None
    sign: str | None
    watched: list[str]


class SoakResult(Struct, frozen=True, kw_only=True):
    """A soak: what each window showed, and from when on the board was steady.

    ``steady`` is null if it never was; the result is then that of all windows. ``overhead``
    is the processor time that the measuring process took besides inferences, over the time of the
    soak: Edgeyard's own share of a core.
    """

    duration_s: float
    window_s: float
    windows: list[SoakWindow]
    steady: SteadyPart | None
    throttling: Throttling
    overhead: float


class ConcurrencyLevel(Struct, frozen=True, kw_only=True):
    """What was measured with this number of callers at once.

    All numbers are of the time in which all of them were running. ``runs_per_s`` is the median
    throughput of up to 20 parts of it. ``..._low`` and ``..._high`` are 95 % intervals, null where
    there were too few inferences: for the upper end of the p99 that is below 368. ``energy_j`` is
    the energy of an inference with its 95 % interval, null where it is not known.
    """

    callers: int
    duration_s: float
    nb_inference: int
    runs_per_s: float
    runs_per_s_low: float | None
    runs_per_s_high: float | None
    p50_ms: float
    p50_low_ms: float | None
    p50_high_ms: float | None
    p99_ms: float
    p99_low_ms: float | None
    p99_high_ms: float | None
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None


class ConcurrencyResult(Struct, frozen=True, kw_only=True):
    """Throughput and latency by the number of callers at once.

    ``callers`` is the number that the result is of: the ``knee``, the number with the largest
    throughput per latency (X² / N), or the only one, and ``knee`` is null then. ``not_distinct``
    lists numbers of callers that may be the knee as well. ``cores`` are those of the board;
    ``shared_model`` states whether all callers used one loaded model, or each its own.
    """

    levels: list[ConcurrencyLevel]
    callers: int
    knee: int | None
    not_distinct: list[int]
    cores: int
    shared_model: bool


class LoadTrial(Struct, frozen=True, kw_only=True):
    """Queries at one rate, or one after another (``rate`` null).

    A latency is counted from the arrival, so that it contains the wait in the queue; ``latency_ms``
    is that at the percentile that counts. ``..._low_ms`` and ``..._high_ms`` are 95 % intervals,
    null where there were too few queries. ``planned`` queries were to be made; ``ended`` is
    ``complete``, ``late`` (too many were late to keep the bound), ``queue`` (too many waited) or
    ``time``. ``kept`` states whether at most ``max_late`` were late, null without a bound.
    ``queue_mean`` and ``queue_max`` are the queries that waited when one began;
    ``generator_late_ms`` is the sender's own lateness at the percentile that counts; ``valid`` is
    false where that counts against the bound.
    """

    rate: float | None
    nb_inference: int
    planned: int
    duration_s: float
    ended: str
    late: int | None
    max_late: int | None
    kept: bool | None
    valid: bool
    latency_ms: float
    latency_low_ms: float | None
    latency_high_ms: float | None
    p50_ms: float
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float
    p90_low_ms: float | None
    p90_high_ms: float | None
    p99_ms: float
    p99_low_ms: float | None
    p99_high_ms: float | None
    queue_mean: float | None
    queue_max: int | None
    generator_late_ms: float | None
    generator_late_max_ms: float | None


class LoadResult(Struct, frozen=True, kw_only=True):
    """A load by LoadGen's rules: ``single-stream`` or ``server``; no MLPerf result.

    ``percentile`` is the one that counts, ``bound_ms`` the bound of the latency there,
    ``rate`` that of ``result``. Where the largest rate was searched it is ``largest_rate``, and
    ``rate_not_kept`` is the smallest above that did not keep the bound (null: there was none), or
    whose trial was invalid (``not_kept_valid`` false). ``ended`` states why the search ended:
    ``found``, ``time``, ``trials``, or ``fixed`` where there was none. ``early_stopping_ms`` is
    LoadGen's cautious estimate of the percentile. ``alone`` are queries one after another before a
    search.
    """

    rules: str
    kind: str
    percentile: float
    bound_ms: float | None
    seed: int | None
    min_duration_s: float
    min_queries: int
    rate: float | None
    largest_rate: float | None
    rate_not_kept: float | None
    not_kept_valid: bool | None
    ended: str
    latency_ms: float
    latency_ci95: list[float] | None
    latency_ci95_degrees: float | None
    early_stopping_ms: float | None
    alone: LoadTrial | None
    result: LoadTrial
    trials: list[LoadTrial]


class Results(Struct, frozen=True, kw_only=True):
    """All that a benchmark led to.

    ``summary`` is of the newest report, null without one; ``inference`` has an item for each set of
    the user's own inputs; ``layers`` is null unless the layers were profiled, ``soak`` unless the
    benchmark was one, ``concurrency`` unless it stated numbers of callers, ``load_test`` unless it
    had a load by LoadGen's rules.
    """

    benchmark_id: str
    status: StatusWord
    summary: ResultRow | None
    inference: list[InferenceSet]
    layers: LayerProfile | None
    soak: SoakResult | None
    concurrency: ConcurrencyResult | None
    load_test: LoadResult | None
    reports: list[AttemptReport]
    files: list[ResultFile]

    @property
    def newest_report(self) -> JsonObject:
        """The report of the last attempt that uploaded one; empty where none did."""
        newest = max(self.reports, key=lambda each: each.attempt, default=None)
        return {} if newest is None else newest.report


class ResultRows(Struct, frozen=True, kw_only=True):
    """Rows of many benchmarks."""

    items: list[ResultRow]


class UserFile(Struct, frozen=True, kw_only=True):
    """An uploaded file of a user; ``size`` is in bytes, ``sha256`` hexadecimal."""

    file_id: str
    user_id: str
    name: str
    sha256: str
    size: int
    created_at: datetime
    url: str


class ModelInput(Struct, frozen=True, kw_only=True):
    """An input of a model: ``shape`` has a number or a name for each dimension, null: not stated.

    ``dtype`` is NumPy's name of it, "" where the server does not know the type.
    """

    name: str
    dtype: str
    shape: list[int | str | None] | None


class ModelInputs(Struct, frozen=True, kw_only=True):
    """The inputs of an ONNX or TensorFlow Lite model; none of a file that is no such model."""

    items: list[ModelInput]


class Upload(Struct, frozen=True, kw_only=True):
    """An unfinished upload: ``offset`` of ``size`` bytes are there."""

    upload_id: str
    user_id: str
    name: str
    size: int
    offset: int
    touched_at: datetime


class Uploads(Struct, frozen=True, kw_only=True):
    """Unfinished uploads, newest first."""

    items: list[Upload]


class FilePage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of files, newest first; ``total`` when asked for."""

    items: list[UserFile]
    next_cursor: str | None
    total: int | None = None


class Engine(Struct, frozen=True, kw_only=True):
    """A runtime of a board: its version, benchmark types, and execution providers by name.

    ``declared_types`` are its types beyond Edgeyard's own, with their parameters and
    results, as its host declares them.
    """

    name: str
    version: str
    supported_types: list[str]
    declared_types: dict[str, JsonObject]
    execution_providers: list[str]


class Share(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link that shows one thing, read-only, to everybody who has it, until it ends.

    ``url`` is there only where the link is made: it can't be shown again. ``options`` are those of
    a comparison, as the query of its page's address.
    """

    share_id: str
    user_id: str
    kind: Literal["benchmark", "campaign", "comparison"]
    benchmark_ids: list[str]
    campaign_id: str | None
    options: str
    label: str
    created_at: datetime
    expires_at: datetime
    url: str | None = None


class Shares(Struct, frozen=True, kw_only=True):
    """Links, newest first, without those that have ended."""

    items: list[Share]


class Subscription(Struct, frozen=True, kw_only=True):
    """A user's wish to be sent messages.

    ``about`` is the id of the user, campaign or board, the name of the lineage or the id of the
    series; "" of the lab. Without ``events`` all types of events of the topic are sent.
    """

    subscription_id: str
    user_id: str
    topic: Literal["user", "campaign", "series", "board", "lab"]
    about: str
    channel: Literal["mail", "webhook"]
    events: list[str]
    created_at: datetime


class Subscriptions(Struct, frozen=True, kw_only=True):
    """Subscriptions, oldest first."""

    items: list[Subscription]


class Delivery(Struct, frozen=True, kw_only=True):
    """A message to a user, in the log of messages.

    ``type`` is that of its event, or ``message.limit``. ``about`` names its subject: the benchmark,
    the alert, the board or the model; "": it has none. ``recipient`` is the e-mail address or the
    host of the webhook that the last try went to; "" before the first. ``error`` states why that
    failed, or why the message was not sent. Of a message that was withheld, because its user may
    not see any more what it is about, ``type``, ``text``, ``about``, ``benchmark_id`` and ``page``
    are empty.
    """

    delivery_id: str
    user_id: str
    subscription_id: str
    channel: Literal["mail", "webhook"]
    type: str
    text: str
    about: str
    benchmark_id: str | None
    page: str
    state: Literal["waiting", "sent", "failed", "limited", "withheld"]
    recipient: str
    tries: int
    error: str
    created_at: datetime
    next_at: datetime | None
    ended_at: datetime | None


class Deliveries(Struct, frozen=True, kw_only=True):
    """A page of the log of messages, newest first."""

    items: list[Delivery]
    next_cursor: str | None


class CheckMetric(Struct, frozen=True, kw_only=True):
    """The primary metric that a check compares; ``better`` is lower, higher or not known ("")."""

    name: str
    title: str
    unit: str
    better: str


class CheckPair(Struct, frozen=True, kw_only=True):
    """One measurement of each version, one directly after the other.

    ``ratio`` is the candidate's number over the baseline's, ``slowdown`` by how much the candidate
    is worse, as a share. A pair that does not ``count`` has ``reasons``, or lacks a number.
    """

    baseline_id: str
    candidate_id: str
    baseline_value: float | None
    candidate_value: float | None
    ratio: float | None
    slowdown: float | None
    counts: bool
    reasons: list[str]


class StoredCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check of two versions that the server drives.

    ``purpose`` is ``comparison`` if a user started it, and otherwise what Edgeyard started it for:
    the ``confirmation`` of a suspected change of a series, or the ``bisection`` of its versions.
    ``reason`` states why it ended; while it runs, why nothing is measured now. ``slowdown`` has
    the interval ``low`` to ``high`` at the confidence ``level``, which is above 95 %, so that all
    intervals of a check, one after each pair, hold together with 95 %. ``run_id`` is the run that
    is under way; of a check that ended with ``error`` or ``cancelled``, the one that ended without
    a result. ``errors`` state what is wrong with the request, if only a run has shown it.
    ``warnings`` are about the two versions; only the answer to its start has them.
    """

    check_id: str
    user_id: str
    purpose: Literal["comparison", "confirmation", "bisection"]
    status: Literal["running", "passed", "failed", "undecided", "error", "cancelled"]
    reason: str
    baseline: str
    candidate: str
    target_uid: str | None
    metric: CheckMetric
    max_slowdown: float
    budget_s: float
    max_pairs: int
    slowdown: float | None
    low: float | None
    high: float | None
    level: float
    pairs: list[CheckPair]
    run_id: str | None
    errors: list[FieldProblem]
    created_at: datetime
    ended_at: datetime | None
    links: dict[str, str]
    warnings: list[str] = []


class StoredChecks(Struct, frozen=True, kw_only=True):
    """A page of checks, newest first."""

    items: list[StoredCheck]
    next_cursor: str | None


class Lease(Struct, frozen=True, kw_only=True):
    """A leased board; only its lessee and operators see the lessee, and who made and ended it."""

    lease_id: str
    target_uid: str
    since: datetime
    until: datetime
    reason: str
    user_id: str | None
    by_user_id: str | None
    ended_by: str | None


class Leases(Struct, frozen=True, kw_only=True):
    """Present and future leases, the earliest first."""

    items: list[Lease]


class Quarantine(Struct, frozen=True, kw_only=True):
    """Why a board is in quarantine; ``by_user_id`` is null where its failures were the reason.

    ``failure_rate`` is the estimated probability of a failure, 0-1, null where an operator imposed
    the quarantine. ``probes`` counts the probing benchmarks since; ``probe_id`` is the newest of
    them.
    """

    since: datetime
    reason: str
    by_user_id: str | None
    failure_rate: float | None
    probes: int
    probe_id: str | None
    next_probe_at: datetime | None


class BoardTimes(Struct, frozen=True, kw_only=True):
    """What a board's time was spent on, since this server saw it first.

    Each server counts for itself, from its start. Time in which the cluster did not answer is not
    counted.

    Attributes:
        since: When this server saw it first.
        busy_s: It ran a benchmark or another task, or its cores were in use.
        idle_s: It could have run something; time under a lease included.
        down_s: It was offline, unhealthy, drained or in quarantine, and ran nothing.
    """

    since: datetime
    busy_s: float
    idle_s: float
    down_s: float


class Board(Struct, frozen=True, kw_only=True):
    """A board as the twin knows it; null: its host does not state it.

    Attributes:
        cluster: Name of the cluster that it belongs to, from the server's settings.
        cpu: Model of the processor, otherwise its architecture.
        cores: That a benchmark may use.
        os: Operating system.
        accelerators: By their drivers, e.g. ``nvidia-gpu``; null: not known.
        times: What its time was spent on; null: this server has not seen it yet.
        temperature_c: Of its hottest zone, °C.
    """

    target_uid: str
    family: str
    state: BoardState
    reason: str
    engines: list[Engine]
    ram_bytes: int
    storage_bytes: int
    cluster: str
    host: str
    host_clock_offset_s: float | None
    progress: float | None
    benchmark_id: str | None
    emulated: bool
    expected: bool
    quarantine: Quarantine | None
    leases: list[Lease]
    cpu: str | None
    cores: int | None
    os: str | None
    accelerators: list[str] | None
    times: BoardTimes | None
    temperature_c: float | None


class BoardPeriod(Struct, frozen=True, kw_only=True):
    """A time in which a board was in one state, as the server that leads saw it every few seconds.

    Shorter states are missing. ``reason`` is in words, "" if none was stated.
    ``benchmark_id`` held the board; null for a benchmark of another user. ``until`` is null for
    the present state.
    """

    state: BoardState
    reason: str
    benchmark_id: str | None
    since: datetime
    until: datetime | None


class BoardMonthTimes(Struct, frozen=True, kw_only=True):
    """What a board's time was spent on in one month, e.g. ``2026-10``, in UTC.

    ``utilisation`` is the share of the time in which it could run something that it was busy,
    ``availability`` the share of the ``known_hours`` in which it could; null: nothing is known.
    """

    month: str
    busy_hours: float
    idle_hours: float
    down_hours: float
    known_hours: float
    utilisation: float | None
    availability: float | None


class DescribedBoard(Board, frozen=True, kw_only=True):
    """A board with all its attributes, by name, and what it did.

    ``states`` are its newest states, newest first, at most 200; ``months`` its last months, newest
    first, at most 12.
    """

    attributes: JsonObject
    states: list[BoardPeriod]
    months: list[BoardMonthTimes]


class Attribute(Struct, frozen=True, kw_only=True):
    """An attribute that boards of the lab have; ``values`` are the first of them, in order."""

    name: str
    meaning: str
    boards: int
    values: list[str | int | float | bool]
    more_values: int


class Attributes(Struct, frozen=True, kw_only=True):
    """All attributes that constraints may name, by name."""

    items: list[Attribute]


class Boards(Struct, frozen=True, kw_only=True):
    """All boards; ``age_s`` is null before the cluster's first answer.

    ``cluster_problem``: why the cluster does not answer now; "" when it does.
    """

    items: list[Board]
    taken_at: datetime | None
    age_s: float | None
    cluster_problem: str


class StrayJob(Struct, frozen=True, kw_only=True):
    """A live job under our names that the database does not know; the board that it holds."""

    job_id: str
    target_uid: str | None
    page: str | None


class StrayJobs(Struct, frozen=True, kw_only=True):
    """All of them."""

    items: list[StrayJob]


class FamilyFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Edgeyard knows about a family of boards; only ``family`` where it knows nothing."""

    family: str
    name: str | None = None
    description: str | None = None
    emulated: bool | None = None
    devices: list[str] | None = None
    paths: list[str] | None = None


class ExpectedBoard(Struct, frozen=True, kw_only=True):
    """A board of the inventory; ``shares_with`` are boards on the same cores."""

    target_uid: str
    family: str
    engines: list[Engine]
    ram_bytes: int
    storage_bytes: int
    emulated: bool
    shares_with: list[str]


class Inventory(Struct, frozen=True, kw_only=True):
    """Expected boards and the facts of their families.

    ``problem`` states why the inventory was not taken up when it changed last; "" if it was.
    """

    families: dict[str, FamilyFacts]
    boards: list[ExpectedBoard]
    problem: str


class Difference(Struct, frozen=True, kw_only=True):
    """What a board reports otherwise than the inventory says; the stricter one counts."""

    what: str
    expected: str
    found: str


class Finding(Struct, frozen=True, kw_only=True):
    """One board of the inventory's check: what is wrong with it, and where it differs."""

    target_uid: str
    host: str
    reason: str
    differences: list[Difference]


class InventoryCheck(Struct, frozen=True, kw_only=True):
    """The inventory against what hosts report; ``ok`` when there is nothing to do."""

    ok: bool
    unknown_devices: Literal["deny", "warn", "allow"]
    missing: list[Finding]
    unknown: list[Finding]
    differing: list[Finding]
    taken_at: datetime
    age_s: float


class QueueItem(Struct, frozen=True, kw_only=True):
    """Who waits, and why; what names another user's benchmark is null for submitters.

    ``position`` counts from 0; null: it can't ever be placed as it is. ``priority_parts`` add up to
    ``priority``.
    """

    position: int | None
    benchmark_id: str | None
    user_id: str | None
    priority: int | None
    priority_parts: dict[str, float]
    waiting_reason: Reason | None
    submit_time: datetime
    target: str
    runtime: str
    benchmark_type: str
    model: str | None
    name: str | None
    forecast: Forecast | None
    planned: PlannedStart | None


class Queue(Struct, frozen=True, kw_only=True):
    """The queue, best first.

    ``age_s``: of what is known of the boards; null before the cluster's first answer.
    ``cluster_problem``: why the cluster does not answer now; "" when it does.
    """

    items: list[QueueItem]
    decided_at: datetime | None
    policy: str
    age_s: float | None
    cluster_problem: str


class Policy(Struct, frozen=True, kw_only=True):
    """A policy; ``roles`` state whether it decides (active), decides in the shadow, or neither."""

    name: str
    version: int
    source: str
    roles: list[str]
    since: datetime | None
    by_user_id: str | None


class PolicyText(Policy, frozen=True, kw_only=True):
    """A policy with its TOML."""

    text: str


class OtherBoard(Struct, frozen=True, kw_only=True):
    """A benchmark that went to another board: ``then`` really, ``now`` in the shadow."""

    benchmark_id: str
    then: str | None
    now: str | None


class ComparedCycle(Struct, frozen=True, kw_only=True):
    """A cycle and what the shadow ``policy`` decided in it.

    ``pending`` benchmarks waited; ``placed_then`` were placed really and ``placed_now`` by the
    shadow. ``reordered`` and ``reprioritised`` count benchmarks, ``preemptions`` those that only
    one of both decided, ``rescored`` pairs of a class of benchmarks and a board.
    ``expected_then_s`` and ``expected_now_s`` are sums of expected run times, in seconds, of what
    both placed.
    """

    seq: int
    decided_at: datetime
    policy: str
    pending: int
    placed_then: int
    placed_now: int
    reordered: int
    reprioritised: int
    preemptions: int
    rescored: int
    differences: list[OtherBoard]
    expected_then_s: float
    expected_now_s: float


class FigureOfPolicy(Struct, frozen=True, kw_only=True):
    """A figure of the benchmarks that a policy decided; null: none of them has it.

    ``jobs`` have the figure, ``at_least`` of them with a lower bound, because they never started.
    ``low`` and ``high`` are the 95 % interval of the mean.
    """

    jobs: int
    at_least: int
    mean: float | None
    low: float | None
    high: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


class PolicyFigures(Struct, frozen=True, kw_only=True):
    """Figures of the ended benchmarks that a policy decided: the same as of simulations.

    ``policy`` is its name and version, empty where it is no longer known. ``figures`` are
    ``wait_s``, ``turnaround_s``, ``slowdown`` and ``bounded_slowdown``. ``fairness`` is Jain's
    index of the users' mean bounded slowdowns.
    """

    policy: str
    benchmarks: int
    statuses: dict[str, int]
    figures: dict[str, FigureOfPolicy]
    deadlines: int
    deadline_misses: int
    preemptions: int
    failed_attempts: int
    makespan_s: float
    fairness: float | None


class ShadowTotals(Struct, frozen=True, kw_only=True):
    """All ``cycles`` that a shadow ``policy`` decided too, ``same`` of them with the same outcome.

    A benchmark counts once in ``placed_then`` (really), ``placed_now`` (by the shadow) and
    ``reordered``, in however many cycles it waited. ``expected_then_s`` and ``expected_now_s`` are
    the sums of the cycles'.
    """

    policy: str
    cycles: int
    same: int
    placed_then: int
    placed_now: int
    reordered: int
    expected_then_s: float
    expected_now_s: float


class Comparison(Struct, frozen=True, kw_only=True):
    """Cycles in which a policy decided in the shadow, newest first, and figures of each policy.

    ``shadows`` adds up the cycles of each shadow policy.
    """

    cycles: list[ComparedCycle]
    shadows: list[ShadowTotals]
    policies: list[PolicyFigures]


class PolicyOverride(Struct, frozen=True, kw_only=True):
    """A benchmark that waits, and the policy of its own that decides it."""

    benchmark_id: str
    policy: str
    version: int
    since: datetime
    by_user_id: str


class Policies(Struct, frozen=True, kw_only=True):
    """All policies that the server knows, and the benchmarks with a policy of their own."""

    items: list[Policy]
    overrides: list[PolicyOverride]


class ModelGate(Struct, frozen=True, kw_only=True):
    """A condition of a model's promotion; ``low`` and ``high`` are the 95 % interval, if any."""

    name: str
    passed: bool
    figure: float | None
    low: float | None
    high: float | None
    limit: float
    sentence: str


class Model(Struct, frozen=True, kw_only=True):
    """A version of a model that was trained from the lab's history.

    ``state`` is candidate, shadow, active or retired, with the reason, since when, and by whom
    (empty: by Edgeyard itself). ``failed_gates`` names the conditions that do not hold.
    """

    kind: str
    version: int
    state: str
    state_at: datetime
    by_user_id: str
    reason: str
    created_at: datetime
    sha256: str
    features: str
    rows: int
    boards: int
    failed_gates: list[str]


class ModelDetails(Model, frozen=True, kw_only=True):
    """A version with its data, figures, gates, card, and the manifest of its file."""

    data: JsonObject
    metrics: JsonObject
    gates: list[ModelGate]
    card: str
    manifest: str
    activated_at: datetime | None
    replaced: int | None


class Models(Struct, frozen=True, kw_only=True):
    """All versions, by kind and newest first."""

    items: list[Model]


class Training(Struct, frozen=True, kw_only=True):
    """The last training that the leader began; times are null before there was any.

    ``result`` is ``learned``, ``nothing_learned``, ``failed`` or ``stopped``, or "" before its end;
    ``message`` is what it reported last.
    """

    running: bool
    began_at: datetime | None
    ended_at: datetime | None
    result: str
    message: str


class Scorer(Struct, frozen=True, kw_only=True):
    """A scorer of the policy that decides.

    ``weight`` is its present weight and ``stated_weight`` that of the policy; each adds up to 1
    over the scorers. ``budget_s`` is the time for its answer, in seconds. ``rounds`` counts cycles
    in which the evaluator rewarded it, ``outcomes`` ended runs that were compared with its scores;
    their mean rewards are null before the first. ``faults`` counts answers that failed, were
    invalid or late.
    """

    scorer: str
    kind: str
    objective: str
    unit: str
    budget_s: float
    weight: float
    stated_weight: float
    rounds: int
    mean_reward: float | None
    outcomes: int
    mean_outcome_reward: float | None
    faults: int
    last_fault: str
    last_fault_at: datetime | None
    suspended_until: datetime | None
    suspension_reason: str


class RewardRound(Struct, frozen=True, kw_only=True):
    """Rewards by scorer, and the weights that followed; ``after`` a cycle or an outcome."""

    at: datetime
    after: str
    rewards: dict[str, float]
    weights: dict[str, float]


class Scorers(Struct, frozen=True, kw_only=True):
    """The scorers of the policy that decides, and their newest rounds of rewards, newest first."""

    policy: str
    items: list[Scorer]
    rounds: list[RewardRound]


class User(Struct, frozen=True, kw_only=True):
    """An account.

    ``max_priority`` bounds ``user_priority`` (1-10), ``max_budget`` the credits of one benchmark
    (null: unlimited), ``max_running`` the benchmarks that hold boards at once (null: unlimited).
    ``share`` is the weight in fair sharing, ``max_lease_s`` the total time of leases in seconds.
    ``group_id`` is the group whose limits and share it has a part in (null: none).
    ``boards`` are those whose results a host's account may upload. The other limits are the
    account's own quotas; null: those of the settings.
    """

    user_id: str
    role: str
    created_at: datetime
    max_priority: int
    max_budget: float | None
    max_running: int | None
    share: float
    max_lease_s: float
    group_id: str | None
    boards: list[str]
    max_bytes: int | None
    max_files: int | None
    max_pending: int | None
    max_live: int | None
    max_bookings: int | None
    max_schedules: int | None
    max_tokens: int | None
    max_run_files: int | None
    max_run_bytes: int | None
    disabled: bool


class IdleTime(Struct, frozen=True, kw_only=True):
    """What a booking or a lease cost in one month because it kept boards idle.

    ``keeper_id`` is the benchmark with the ``start_time``, or the lease; ``board_s`` are seconds
    for which a board was free while a benchmark that fits waited, ``charged`` the credits.
    """

    keeper_id: str
    month: str
    family: str
    since: datetime
    until: datetime
    board_s: float
    charged: float


class Charge(Struct, frozen=True, kw_only=True):
    """What an attempt cost, in credits; ``charged`` is null until it ended.

    ``rate`` is in credits a board-second, ``reserved`` the most that it could cost within
    ``time_limit_s``, ``board_s`` the run time of its task in seconds. ``refunded`` states why it
    was free although it ran; "" if it was paid. ``kind`` is what it was for: a benchmark, a check
    that somebody started, or the confirmation of a change of a series.
    """

    benchmark_id: str
    attempt: int
    kind: Literal["benchmark", "check", "confirmation"]
    family: str
    rate: float
    time_limit_s: float
    reserved: float
    reserved_at: datetime
    charged: float | None
    board_s: float | None
    refunded: str
    settled_at: datetime | None


class UsageRow(Struct, frozen=True, kw_only=True):
    """What one user, group, board, family, engine or kind used in a month.

    ``key`` is null where it is not known, or there is none: a booking has no engine.
    ``runs`` are the attempts whose task started, ``failures``, ``preempted`` and ``interrupted``
    those of them that failed, were stopped for others, or were ended by the cluster (a drain, a
    stop, a lost host); ``not_started`` ended before their task started. ``board_hours`` is the run
    time of the tasks. Of the ``starts`` benchmarks whose first task started, ``mean_wait_s`` and
    ``max_wait_s`` are the times from submission, or a later ``start_time``, to that start.
    ``credits`` were charged, also for the ``idle_board_hours`` for which bookings and leases kept
    boards idle. ``joules`` is the energy of the ``joules_runs`` runs whose reports state it; null:
    none does. Of boards and families: ``utilisation`` is the share of the time in which a board
    could run something that it was busy, ``availability`` the share of the ``known_board_hours``
    in which it could run something; null where nothing is known.
    """

    key: str | None
    runs: int
    failures: int
    preempted: int
    interrupted: int
    not_started: int
    board_hours: float
    starts: int
    mean_wait_s: float | None
    max_wait_s: float | None
    credits: float
    idle_board_hours: float
    joules: float | None
    joules_runs: int
    utilisation: float | None
    availability: float | None
    known_board_hours: float | None


class UsageReport(Struct, frozen=True, kw_only=True):
    """What was used in a month in UTC, ``since`` its begin and before ``until``.

    An attempt counts in the month in which it ended. Only operators see what others used.
    """

    month: str
    by: str
    since: datetime
    until: datetime
    items: list[UsageRow]
    total: UsageRow


class Account(Struct, frozen=True, kw_only=True):
    """What a user may have, has and used, in credits; null credits: unlimited.

    ``credits`` include those that are ``reserved`` for attempts that have not ended,
    ``credits_left`` do not. ``usage_board_s`` are board-seconds, which lose half their weight in
    each ``usage_half_life_s``. ``charges`` are the newest, newest first. ``group`` is what the
    user shares with others; null: the user is in no group.
    """

    user_id: str
    credits: float | None
    credits_left: float | None
    reserved: float
    spent: float
    usage_board_s: float
    usage_half_life_s: float
    running: int
    max_running: int | None
    max_priority: int
    max_budget: float | None
    share: float
    max_lease_s: float
    charges: list[Charge]
    idle_times: list[IdleTime]
    group: Group | None


LimitSource = Literal["default", "setting", "account", "group", "role"]


class Limit(Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is used now; null: not counted, or no bound.

    ``setting`` is that of the server whose default it is; empty for a limit of a group.
    ``status`` is that of the answer past the limit; null: what is beyond it waits.
    """

    name: str
    value: int | None
    used: int | None
    unit: str
    whose: str
    source: LimitSource
    setting: str
    status: int | None
    meaning: str


class Limits(Struct, frozen=True, kw_only=True):
    """The limits that hold for one user."""

    user_id: str
    items: list[Limit]


class Use(Struct, frozen=True, kw_only=True):
    """What one user has stored (bytes) and how many of each thing, with the limits; null: none."""

    user_id: str
    stored_bytes: int
    max_bytes: int | None
    files: int
    max_files: int | None
    pending: int
    max_pending: int | None
    live: int
    max_live: int | None
    bookings: int
    max_bookings: int | None
    schedules: int
    max_schedules: int | None
    tokens: int
    max_tokens: int | None


class Uses(Struct, frozen=True, kw_only=True):
    """What every user has."""

    items: list[Use]


class Rates(Struct, frozen=True, kw_only=True):
    """Credits a board-second, by family; 1 where none was set."""

    rates: dict[str, float]


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's webhook; ``secret`` is shown once, when it is set.

    ``waiting`` counts the messages that are still to be sent.
    """

    user_id: str
    url: str | None
    format: Literal["edgeyard", "slack", "mattermost"] | None
    created_at: datetime | None
    waiting: int
    last_error: str
    secret: str | None = None


class Group(Struct, frozen=True, kw_only=True):
    """A group of users: what its members share, and have used; null: no such limit.

    ``credits`` are not yet spent, including ``reserved``; ``running`` are the attempts of the
    group that hold boards, at most ``max_running``. The other limits bound the sum over the
    members, which the field without ``max_`` states. ``usage_board_s`` are board-seconds, which
    count half after each half-life, and ``share`` is the weight in fair sharing.
    """

    group_id: str
    created_at: datetime
    members: list[str]
    share: float
    usage_board_s: float
    credits: float | None
    reserved: float
    max_running: int | None
    running: int
    max_bytes: int | None
    stored_bytes: int
    max_files: int | None
    files: int
    max_pending: int | None
    pending: int
    max_live: int | None
    live: int
    max_bookings: int | None
    bookings: int
    max_schedules: int | None
    schedules: int


class Groups(Struct, frozen=True, kw_only=True):
    """All groups of users."""

    items: list[Group]


class Users(Struct, frozen=True, kw_only=True):
    """All accounts."""

    items: list[User]


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its secret; ``token``, the secret, is only in the answer that made it.

    ``refreshes``: it is only valid for obtaining new access tokens of its session ``session_id``.
    ``expires_at`` is null for a token that does not expire. ``made_by``: the ``token_id`` of the
    token that made it, with which it ends; null where you may not see that one.
    """

    token_id: str
    user_id: str
    role: str
    label: str
    refreshes: bool
    session_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    made_by: str | None = None
    token: str | None = None


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens, never the tokens themselves."""

    items: list[Token]


class Me(Struct, frozen=True, kw_only=True):
    """The account that makes the request, and the role of its token."""

    user: User
    role: str


class Schedule(Struct, frozen=True, kw_only=True):
    """A job description that is submitted at each time of its crontab.

    ``next_fire`` is the next such time. ``prohibit_overlap``: none is submitted while the last
    benchmark has not ended. ``skipped`` counts the times at which none was submitted. ``cron_by``:
    who acts at these times; at those of ``nomad`` runs are counted as skipped that made no
    benchmark. ``problem`` states why Nomad does not have its job now, with the time ``retry_at`` at
    which it is registered again, or why the schedule has ended by itself.
    """

    schedule_id: str
    user_id: str
    cron: str
    prohibit_overlap: bool
    cron_by: str
    description: JsonObject
    created_at: datetime
    next_fire: datetime
    active: bool
    last_benchmark_id: str | None
    skipped: int
    problem: str | None
    retry_at: datetime | None


class RunTask(Struct, frozen=True, kw_only=True):
    """The task of a run that Nomad started: what its ``spec.json`` would hold otherwise."""

    spec: JsonObject


class Schedules(Struct, frozen=True, kw_only=True):
    """Schedules, newest first."""

    items: list[Schedule]


class Scenario(Struct, frozen=True, kw_only=True):
    """A stored scenario without its content; ``jobs`` is null where it describes arrivals."""

    sha256: str
    name: str
    world: Literal["boards", "nodes"]
    seed: int
    duration_s: float
    description: str
    jobs: int | None
    tags: list[str]
    source: str
    size_bytes: int
    created_at: datetime
    by_user_id: str


class ScenarioPage(Struct, frozen=True, kw_only=True):
    """Scenarios, newest first; ``next_cursor`` is null after the last."""

    items: list[Scenario]
    next_cursor: str | None


class Simulation(Struct, frozen=True, kw_only=True):
    """A stored simulation; ``columns_file`` is on the machine that ran it."""

    run_id: str
    kind: str
    state: Literal["running", "completed", "cancelled", "failed"]
    scenario: str
    scenario_name: str
    policy: str
    seed: int
    version: str
    metrics: JsonObject
    columns_file: str | None
    wall_s: float | None
    created_at: datetime
    by_user_id: str


class SimulationPage(Struct, frozen=True, kw_only=True):
    """Simulations, newest first; ``next_cursor`` is null after the last."""

    items: list[Simulation]
    next_cursor: str | None


class FieldProblem(Struct, frozen=True, kw_only=True):
    """One wrong field: its JSON pointer, what is wrong, and what would be accepted, if anything."""

    pointer: str
    reason: str
    accepted: str


class ProblemLimit(Struct, frozen=True, kw_only=True):
    """The limit that a request met: its name, its value, and whose it is."""

    name: str
    value: int
    whose: str


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457); ``limit`` with 413, 429 and 507, where one was met."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem]
    limit: ProblemLimit | None = None


class Version(Struct, frozen=True, kw_only=True):
    """The server's version, the name and the kind of its cluster, the address at which users reach
    it, the share of boards' time for canaries (0: none run), and the engines of those that its
    operator states."""

    version: str
    cluster: str
    cluster_kind: Literal["embedded", "nomad"]
    public_url: str
    canary_share: float
    canary_engines: list[str]


class UploadAnswer(Struct, frozen=True, kw_only=True):
    """What was taken of an upload."""

    files: list[str]


class TwinVersion(Struct, frozen=True, kw_only=True):
    """The version under which a posted state can be read."""

    version: int


class TwinHealth(Struct, frozen=True, kw_only=True):
    """How the digital twin is.

    Attributes:
        status: ``stale``: what is known of the lab is older than dispatch allows.
        age_s: Age of what is known of the lab; null: it has not answered yet.
        cluster_problem: Why the cluster did not answer last time; "": it did.
        version: Of the newest posted state; 0: none.
        refreshing: A newer state is announced.
        held_bytes: Of all posted states.
        max_bytes: Room for them.
    """

    status: Literal["ok", "stale"]
    age_s: float | None
    cluster_problem: str
    version: int
    refreshing: bool
    held_bytes: int
    max_bytes: int


def as_json(model: Struct | None) -> dict[str, Any]:
    """Return a model as the JSON values that the API answers; None is an empty object."""
    found: dict[str, Any] = {} if model is None else to_builtins(model)
    return found
