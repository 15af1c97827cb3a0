"""Values of the model as the API answers them: each function builds one model of ``schemas``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import asdict, replace

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.own_urls import with_own_urls
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.metrics import (
    HIGHER,
    PREFILL_TOKENS_PER_S,
    TIME_TO_FIRST_TOKEN_MS,
    Metric,
    known_ends,
    primary_metric,
)
from edgeyard.scheduler.decide.slowdown import judge_check
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.accounts import Charge, IdleTime, Quarantine
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkType,
    Failure,
    Status,
    WaitReason,
)
from edgeyard.scheduler.model.checks import Check
from edgeyard.scheduler.model.decision import Explanation, Placement, PlannedStart, Verdict
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import Report, ResultFile, Upload, UserFile
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.series import SeriesKey, WatchedSeries
from edgeyard.scheduler.model.series_changes import SeriesChange
from edgeyard.scheduler.model.shares import Share
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.subscriptions import Delivery, DeliveryState, Subscription
from edgeyard.scheduler.model.users import ApiToken, User
from edgeyard.scheduler.model.wire import description_to_json
from edgeyard.scheduler.model.workload import workload
from edgeyard.scheduler.prediction.repeatability import RunVariation, reported_number

_Model = TypeVar("_Model", bound=msgspec.Struct)

_PARTS = ("hcl", "explanation", "events", "logs", "results")


def same(shape: type[_Model], value: object, **others: object) -> _Model:
    """Return the model whose fields are attributes of a value by the same names.

    Args:
        shape: The model.
        value: Has the attributes.
        others: Fields that the value lacks, or has in another form.

    Raises:
        msgspec.ValidationError: One is missing, or has another type there: a defect.
    """
    if not others:
        return msgspec.convert(value, shape, from_attributes=True)
    known = (name for name in shape.__struct_fields__ if hasattr(value, name))
    fields = {name: getattr(value, name) for name in known if name not in others}
    return msgspec.convert(fields | others, shape, from_attributes=True)


def url(services: Services, *parts: str) -> str:
    """Return a URL of this server, with each part quoted."""
    return services.public_url + "".join(f"/{quote(part, safe='')}" for part in parts)


def links(services: Services, benchmark_id: str) -> dict[str, str]:
    """Return the URLs of a benchmark and of its parts."""
    base = url(services, "v1", "benchmarks", benchmark_id)
    return {"self": base, **{part: f"{base}/{part}" for part in _PARTS}}


def listed_benchmark(services: Services, benchmark: Benchmark) -> shapes.ListedBenchmark:
    """Return a benchmark as lists show it: without files and attempts."""
    return same(
        shapes.ListedBenchmark,
        benchmark,
        name=benchmark.description.name,
        waiting_reason=waiting_reason(services, benchmark.waiting),
        description=_description(services, benchmark),
        deadline=benchmark.description.deadline,
        user_priority=benchmark.user_priority or benchmark.description.user_priority,
        links=links(services, benchmark.benchmark_id),
    )


def _description(services: Services, benchmark: Benchmark) -> dict[str, object]:
    """Return its description without who starts it, which only schedules state."""
    shown = description_to_json(with_own_urls(benchmark, services.public_url))
    return {name: value for name, value in shown.items() if name != "cron_by"}


def benchmark(
    services: Services, benchmark: Benchmark, attempts: Sequence[Attempt]
) -> shapes.Benchmark:
    """Return a benchmark with its files, attempts and forecast."""
    return shapes.Benchmark(
        **asdict(listed_benchmark(services, benchmark)),
        forecast=forecast(services, newest_forecast(services, benchmark)),
        planned=planned_start(
            services,
            services.engine.planned(benchmark.benchmark_id)
            if benchmark.status is Status.PENDING
            else None,
        ),
        **cluster_state(services),
        files=[same(shapes.NamedFile, file) for file in benchmark.files],
        attempts=[_attempt(services, each) for each in attempts],
    )


def _attempt(services: Services, attempt: Attempt) -> shapes.Attempt:
    return same(shapes.Attempt, attempt, cluster_page=services.cluster.page_of(attempt.job_id))


def failure(failure: Failure | None) -> shapes.Failure | None:
    """Return why something failed; None where it did not."""
    return None if failure is None else same(shapes.Failure, failure)


def cluster_state(services: Services) -> dict[str, Any]:
    """Return how old the state of the boards is, and why the cluster does not answer."""
    age_s = services.engine.twin_age_s()
    return {
        "age_s": round(age_s, 3) if math.isfinite(age_s) else None,
        "cluster_problem": services.engine.cluster_problem(),
    }


def waiting_reason(services: Services, waiting: WaitReason | None) -> shapes.Reason | None:
    """Return why a benchmark waits; None where it does not."""
    if waiting is None:
        return None
    now = waiting_reasons.while_silent(waiting, services.engine.cluster_problem())
    return shapes.Reason(code=now.reason.value, sentence=now.sentence)


def newest_forecast(services: Services, benchmark: Benchmark) -> Forecast | None:
    """Return when a benchmark is expected to start and end; None where that is not known.

    While nothing waits there are no newer forecasts: one that was made before the start is about
    the time from the start on, and an end that should have come is known to be later.
    """
    if benchmark.status in TERMINAL:
        return None
    found, started_at = services.engine.forecast(benchmark.benchmark_id), benchmark.started_at
    if found is None or benchmark.status is not Status.RUNNING or started_at is None:
        return found
    now, later = services.clock.now(), started_at - found.start
    if found.finish_high + later < now:
        return None
    return dataclasses.replace(
        found,
        place=None,
        start=started_at,
        start_low=started_at,
        start_high=started_at,
        finish=max(found.finish + later, now),
        finish_low=max(found.finish_low + later, now),
        finish_high=found.finish_high + later,
    )


def forecast(services: Services, found: Forecast | None) -> shapes.Forecast | None:
    """Return when something is expected to start and end; None where that is not known.

    When it starts nobody knows while the cluster does not answer.
    """
    if found is None or (found.place is not None and services.engine.cluster_problem()):
        return None
    return same(
        shapes.Forecast,
        found,
        age_s=round(max((services.clock.now() - found.made_at).total_seconds(), 0.0), 3),
        coverage=services.engine.coverage(),
    )


def planned_start(services: Services, found: PlannedStart | None) -> shapes.PlannedStart | None:
    """Return the board and the start that are planned; None: no plan, or a silent cluster."""
    if found is None or services.engine.cluster_problem():
        return None
    return same(shapes.PlannedStart, found)


def explanation(
    services: Services,
    benchmark: Benchmark,
    found: Explanation,
    ran_on: str | None,
    in_cluster: WaitReason | None,
) -> shapes.Explanation:
    """Return why a benchmark was placed, or waits, with every board's verdict.

    While it waits, its place and its start are the newest forecast's, which the other routes show;
    the decision that is explained may be older.

    Args:
        services: Knows the cluster.
        benchmark: That is explained.
        found: By the cycle that decided it.
        ran_on: The board of its newest attempt, if that has started.
        in_cluster: Why the cluster does not start its job; None: it has none, or starts it.
    """
    waiting = found.waiting or in_cluster
    shown = None if waiting is None else waiting_reason(services, waiting)
    expected = newest_forecast(services, benchmark)
    rank, planned = found.rank - found.never_ahead, found.planned
    if found.placement is None and expected is not None and expected.place is not None:
        rank, planned = expected.place - 1, services.engine.planned(found.benchmark_id)
    return same(
        shapes.Explanation,
        found,
        rank=rank,
        verdicts=[_verdict(each) for each in found.verdicts],
        placement=None if found.placement is None else placement(found.placement),
        waiting=None
        if shown is None
        else shapes.WaitingExplanation(reason=shown.code, sentence=shown.sentence),
        ran_on=ran_on,
        planned=planned_start(services, planned),
        **cluster_state(services),
        forecast=forecast(services, expected),
    )


def placement(found: Placement) -> shapes.Placement:
    """Return where a benchmark was placed; it is a tuple, whose fields `same` does not read."""
    return same(shapes.Placement, found._asdict())


def _verdict(verdict: Verdict) -> shapes.Verdict:
    return shapes.Verdict(
        target_uid=verdict.target_uid,
        reason=None if verdict.reason is None else verdict.reason.value,
        sentence=verdict.sentence,
        never=verdict.never,
        score=verdict.score,
        scores=dict(verdict.scores),
        cost_s=verdict.cost_s,
        cost_error_s=verdict.cost_error_s,
        cost_parts_s=dict(verdict.cost_parts_s),
        energy_j=verdict.energy_j,
        energy_low_j=verdict.energy_low_j,
        energy_high_j=verdict.energy_high_j,
    )


def event(event: Event) -> shapes.Event:
    """Return one line of the log."""
    return same(shapes.Event, event)


def lease(lease: Lease, caller: Caller) -> shapes.Lease:
    """Return a lease; only its user and operators see whose it is."""
    shown = same(shapes.Lease, lease)
    mine = caller.may_see(lease.user_id or "")
    return shown if mine else replace(shown, user_id=None, by_user_id=None, ended_by=None)


def quarantine(quarantine: Quarantine, caller: Caller) -> shapes.Quarantine:
    """Return why a board is in quarantine; only operators see who put it there, and the probe."""
    shown = same(shapes.Quarantine, quarantine)
    return shown if caller.is_operator else replace(shown, by_user_id=None, probe_id=None)


def user(user: User) -> shapes.User:
    """Return an account."""
    return same(shapes.User, user)


def token(token: ApiToken, secret: str | None = None) -> shapes.Token:
    """Return a token without its hash; ``secret`` is the token itself, when it is made."""
    return same(shapes.Token, token, token=secret)


def tokens(found: Sequence[ApiToken]) -> list[shapes.Token]:
    """Return tokens in the order of a list, each naming the one that made it if that is there."""
    there = {each.token_id for each in found}
    return [
        same(shapes.Token, each, made_by=each.made_by if each.made_by in there else None)
        for each in found
    ]


def share(share: Share, address: str | None = None) -> shapes.Share:
    """Return a link without its hash; ``address`` is its URL, when it is made."""
    return same(
        shapes.Share,
        share,
        kind=share.kind.value,
        benchmark_ids=list(share.benchmark_ids),
        url=address,
    )


def subscription(subscription: Subscription) -> shapes.Subscription:
    """Return a subscription."""
    return same(
        shapes.Subscription,
        subscription,
        topic=subscription.topic.value,
        channel=subscription.channel.value,
        events=list(subscription.events),
    )


_SUBJECTS = ("change_id", "target_uid", "model")
"""Names in the data of a message that identify its subject, besides the benchmark."""


def delivery(delivery: Delivery) -> shapes.Delivery:
    """Return a message of the log, without what it was about where that was withheld."""
    body = msgspec.json.decode(delivery.body)
    shown = delivery.state is not DeliveryState.WITHHELD
    data = body["data"]
    subjects = (delivery.benchmark_id, *(data.get(name) for name in _SUBJECTS))
    return same(
        shapes.Delivery,
        delivery,
        channel=delivery.channel.value,
        state=delivery.state.value,
        type=delivery.kind if shown else "",
        text=str(body["text"]) if shown else "",
        about=next((str(each) for each in subjects if each), "") if shown else "",
        page=str(body.get("page", "")) if shown else "",
        benchmark_id=delivery.benchmark_id if shown else None,
    )


def check(
    services: Services, check: Check, run: Benchmark | None = None, warnings: Sequence[str] = ()
) -> shapes.StoredCheck:
    """Return a check with what its pairs mean so far.

    Args:
        services: Know why a run waits.
        check: The check.
        run: Its run that is under way, whose waiting is the reason of the check.
        warnings: About its two versions.
    """
    found = judge_check(check)
    waiting = None if run is None else waiting_reason(services, run.waiting)
    reason = check.reason
    if run is not None and waiting is not None:
        reason = f"its run {run.benchmark_id} waits: {waiting.sentence}"
    return same(
        shapes.StoredCheck,
        check,
        reason=reason,
        purpose=check.purpose.value,
        status=check.status.value,
        metric=same(shapes.CheckMetric, check.metric),
        slowdown=found.slowdown,
        low=found.low,
        high=found.high,
        level=found.level,
        pairs=[same(shapes.CheckPair, each, reasons=list(each.reasons)) for each in check.pairs],
        run_id=check.run_ids[-1] if check.run_ids else None,
        errors=[same(shapes.FieldProblem, each) for each in check.errors],
        links={"self": url(services, "v1", "checks", check.check_id)},
        warnings=list(warnings),
    )


def series_change(services: Services, change: SeriesChange) -> shapes.SeriesChange:
    """Return a change of a series, with its sentence."""
    return same(
        shapes.SeriesChange,
        change,
        **_series(change.key),
        status=change.status.value,
        sentence=change.sentence(),
        check_ids=list(change.check_ids),
        not_tested=list(change.not_tested),
        links={
            "self": url(services, "v1", "alerts", change.change_id),
            "begin": url(services, "v1", "benchmarks", change.begin_id),
            "before": url(services, "v1", "benchmarks", change.before_id),
        },
    )


def watched_series(series: WatchedSeries, now: datetime) -> shapes.WatchedSeries:
    """Return what the watch knows of a series now."""
    threshold = series.threshold_now(now)
    return same(shapes.WatchedSeries, series, **_series(series.key), threshold=threshold)


def _series(key: SeriesKey) -> dict[str, str]:
    return {
        "series_id": key.series_id,
        "lineage": key.lineage,
        "user_id": key.user_id,
        "target_uid": key.target_uid,
        "runtime": key.engine,
        "benchmark_type": key.benchmark_type,
    }


def charge(charge: Charge) -> shapes.Charge:
    """Return the cost of an attempt."""
    return same(shapes.Charge, charge)


def idle_time(idle: IdleTime) -> shapes.IdleTime:
    """Return what a booking or a lease cost because it kept boards idle."""
    return same(shapes.IdleTime, idle)


def schedule(schedule: CronSchedule) -> shapes.Schedule:
    """Return a schedule; its files are stored next to the description, which is what users know."""
    description = schedule.description.get("description")
    known = description if isinstance(description, Mapping) else {}
    return same(shapes.Schedule, schedule, description=known)


def user_file(services: Services, file: UserFile) -> shapes.UserFile:
    """Return a user's file with its URL."""
    content = url(services, "v1", "files", file.file_id, "content")
    return same(shapes.UserFile, file, size=file.size_bytes, url=content)


def upload(found: Upload) -> shapes.Upload:
    """Return an unfinished upload."""
    return same(shapes.Upload, found, size=found.size_bytes, offset=found.offset_bytes)


def result_file(services: Services, file: ResultFile) -> shapes.ResultFile:
    """Return an uploaded file of an attempt with its URL."""
    parts = ("v1", "benchmarks", file.benchmark_id, "results", str(file.attempt), file.name)
    return same(shapes.ResultFile, file, url=url(services, *parts))


def summary(
    benchmark: Benchmark, stored: Report | None, variation: RunVariation | None
) -> shapes.ResultRow:
    """Return one row of a table of results; what was not measured is None.

    Args:
        benchmark: Whose result it is.
        stored: Its newest report.
        variation: How much numbers of this work vary on its board between runs.
    """
    report = stored.report if stored is not None else {}
    latency = table(report, "inference_latency")
    verdict = table(report, "verdict")
    accuracy = table(report, "accuracy")
    low, high = known_ends(latency.get("p50"), latency.get("p50_ci95"))
    primary = primary_metric(report)
    metric = primary.metric if primary is not None else None
    energy = table(report, "energy")
    is_generation = benchmark.description.benchmark_type is BenchmarkType.GENAI
    results = table(report, "results") if is_generation else {}
    first_token = table(results, TIME_TO_FIRST_TOKEN_MS.name)
    prefill = table(results, PREFILL_TOKENS_PER_S.name)
    joules = table(energy, "per_inference")
    energy_low, energy_high = known_ends(joules.get("value"), joules.get("ci95"))
    repeat_low, repeat_high = _repeat_interval(report, benchmark.target_uid, variation)
    return shapes.ResultRow(
        benchmark_id=benchmark.benchmark_id,
        model=benchmark.description.model,
        target=benchmark.description.family,
        target_uid=benchmark.target_uid,
        runtime=benchmark.description.runtime,
        benchmark_type=benchmark.description.benchmark_type.value,
        status=benchmark.status,
        workload=msgspec.convert(workload(benchmark, report), shapes.Workload),
        primary_metric=metric.name if metric is not None else None,
        primary_title=metric.title if metric is not None else None,
        primary_unit=metric.unit if metric is not None else None,
        primary_better=_better(metric),
        primary_value=primary.value if primary is not None else None,
        primary_low=primary.low if primary is not None else None,
        primary_high=primary.high if primary is not None else None,
        primary_degrees=primary.degrees if primary is not None else None,
        primary_repeat_low=repeat_low,
        primary_repeat_high=repeat_high,
        between_runs=_between_runs(variation),
        p50_ms=number(latency, "p50"),
        p50_low_ms=low,
        p50_high_ms=high,
        p90_ms=number(latency, "p90"),
        p99_ms=number(latency, "p99"),
        mean_ms=number(latency, "mean"),
        nb_inference=_count(report, "nb_inference"),
        inner_loops=_count(report, "inner_loops"),
        runs_per_s=number(report, "runs_per_s"),
        rows_per_s=number(report, "rows_per_s"),
        accuracy=number(accuracy, "top1"),
        top5=number(accuracy, "top5"),
        metric=text(accuracy, "name"),
        metric_value=number(accuracy, "value"),
        final_loss=number(table(report, "training"), "final_loss"),
        load_cold_ms=number(table(report, "load"), "cold_ms"),
        load_warm_ms=number(table(report, "load"), "warm_ms"),
        first_inference_ms=number(report, "first_inference_ms"),
        time_to_first_token_ms=number(first_token, "value"),
        prefill_tokens_per_s=number(prefill, "value"),
        ram_peak_bytes=number(report, "ram_peak"),
        ram_baseline_bytes=number(report, "ram_baseline"),
        ram_model_bytes=number(report, "ram_model"),
        energy_j=number(joules, "value"),
        energy_low_j=energy_low,
        energy_high_j=energy_high,
        energy_above_idle_j=number(table(energy, "per_inference_above_idle"), "value"),
        power_w=number(energy, "power_w"),
        energy_scope=text(energy, "scope"),
        verdict=text(verdict, "verdict"),
        reasons=_reasons(verdict.get("reasons")),
        kernel=text(table(report, "board"), "kernel"),
        firmware=text(table(report, "board"), "firmware"),
        ended_at=benchmark.ended_at,
    )


def _better(metric: Metric | None) -> Literal["lower", "higher"] | None:
    if metric is None:
        return None
    return "higher" if metric.better == HIGHER else "lower"


def inference_sets(report: Mapping[str, object]) -> list[shapes.InferenceSet]:
    """Return what was measured with each set of the user's own inputs."""
    listed = report.get("inference")
    found = []
    for each in listed if isinstance(listed, list) else []:
        if not isinstance(each, Mapping):
            continue
        latency = table(each, "inference_latency")
        low, high = known_ends(latency.get("p50"), latency.get("p50_ci95"))
        verdict = table(each, "verdict")
        numbers = {
            "p50_ms": number(latency, "p50"),
            "p50_low_ms": low,
            "p50_high_ms": high,
            "p90_ms": number(latency, "p90"),
            "p99_ms": number(latency, "p99"),
            "mean_ms": number(latency, "mean"),
            "verdict": text(verdict, "verdict"),
            "reasons": _reasons(verdict.get("reasons")),
        }
        if (one := _converted({**each, **numbers}, shapes.InferenceSet)) is not None:
            found.append(one)
    return found


def layer_profile(report: Mapping[str, object]) -> shapes.LayerProfile | None:
    """Return the times of the layers; None where they were not measured."""
    return _converted(table(report, "layers"), shapes.LayerProfile)


def soak_result(report: Mapping[str, object]) -> shapes.SoakResult | None:
    """Return the windows of a soak; None where it was none."""
    return _converted(_with_known_ends(table(report, "soak"), "windows"), shapes.SoakResult)


def concurrency_result(report: Mapping[str, object]) -> shapes.ConcurrencyResult | None:
    """Return the curve of several callers at once; None where there was but one."""
    curve = _with_known_ends(table(report, "concurrency"), "levels")
    return _converted(curve, shapes.ConcurrencyResult)


def _with_known_ends(part: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a part of a report whose rows state no ends of intervals that are not known.

    Args:
        part: Of a report.
        key: Of its rows, each with numbers such as ``p50_ms``, ``p50_low_ms`` and ``p50_high_ms``.
    """
    rows = part.get(key)
    if not isinstance(rows, list):
        return part
    return {**part, key: [_row_with_known_ends(row) for row in rows]}


def _row_with_known_ends(row: object) -> object:
    if not isinstance(row, Mapping):
        return row
    ends: dict[str, float | None] = {}
    for low in row:
        if isinstance(low, str) and "_low" in low:
            high = low.replace("_low", "_high")
            stated = (row[low], row.get(high))
            if (
                None not in stated
                and known_ends(row.get(low.replace("_low", "")), stated)[0] is None
            ):
                ends |= {low: None, high: None}
    return {**row, **ends}


def load_result(report: Mapping[str, object]) -> shapes.LoadResult | None:
    """Return a load by LoadGen's rules; None where there was none."""
    load = _with_known_ends(table(report, "load_test"), "trials")
    single = {name: _row_with_known_ends(load.get(name)) for name in ("alone", "result")}
    interval = load.get("latency_ci95")
    if None in known_ends(load.get("latency_ms"), interval):
        interval = None
    return _converted({**load, **single, "latency_ci95": interval}, shapes.LoadResult)


S = TypeVar(
    "S",
    shapes.InferenceSet,
    shapes.LayerProfile,
    shapes.SoakResult,
    shapes.ConcurrencyResult,
    shapes.LoadResult,
)


def _converted(part: Mapping[str, object], shape: type[S]) -> S | None:
    """Return a part of a report as a model; None where a foreign runner wrote another one."""
    try:
        return msgspec.convert(part, shape)
    except msgspec.ValidationError:
        return None


def _repeat_interval(
    report: Mapping[str, object], target_uid: str | None, variation: RunVariation | None
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of another run of the same work on the same board."""
    measured = reported_number(report, target_uid or "", variation)
    if measured is None or variation is None:
        return None, None
    return measured.repeat_interval() or (None, None)


def _between_runs(variation: RunVariation | None) -> shapes.BetweenRuns | None:
    if variation is None:
        return None
    return same(shapes.BetweenRuns, variation)


def table(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return an object of a report; empty where there is none."""
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def number(report: Mapping[str, object], key: str) -> int | float | None:
    """Return a number of a report; None where there is none."""
    value = report.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(report: Mapping[str, object], key: str) -> int | None:
    value = number(report, key)
    return value if isinstance(value, int) else None


def text(report: Mapping[str, object], key: str) -> str | None:
    """Return a text of a report; None where there is none."""
    value = report.get(key)
    return value if isinstance(value, str) else None


def _reasons(reasons: object) -> list[shapes.Reason]:
    given = reasons if isinstance(reasons, list) else []
    return [
        shapes.Reason(code=text(one, "code") or "", sentence=text(one, "sentence") or "")
        for one in given
        if isinstance(one, Mapping)
    ]
