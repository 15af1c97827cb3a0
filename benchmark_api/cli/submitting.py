"""``submit`` and ``retry``: the commands that create benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import typer

from edgeyard.benchmark_api.cli.api import api_path, record
from edgeyard.benchmark_api.cli.ci import ci_fields
from edgeyard.benchmark_api.cli.job_flags import JobFlags, fields_of
from edgeyard.benchmark_api.cli.output import (
    Column,
    clock_times,
    emit,
    emit_json,
    field,
    local_time,
    parameters_text,
    when,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, echo, verb
from edgeyard.benchmark_api.cli.watching import (
    IDS_COLUMNS,
    CancelOnTimeout,
    Timeout,
    finish,
    wait_limit_s,
)
from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Benchmark, ClientError, UploadedFile


_SUBMITTED_COLUMNS = (
    *IDS_COLUMNS,
    Column(title="MODEL", of=field("model"), shorten=True, always=False),
    Column(
        title="PARAMETERS",
        of=lambda row: parameters_text(row.get("parameters")),
        always=False,
    ),
)

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")]


@act
def submit(
    session: Session,
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="Job file, YAML or JSON."),
    ] = None,
    clone: Annotated[
        str | None, typer.Option(help="Start from this benchmark's description.", metavar="ID")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would happen; nothing is run, and a local file is uploaded only if "
            "the server compares it with one that it has.",
        ),
    ] = False,
    alerts: Annotated[
        Literal["mail", "webhook"] | None,
        typer.Option(help="Subscribe to the alerts of its series, by mail or webhook."),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
    **flags: Unpack[JobFlags],
) -> None:
    """Submit a benchmark.

    Its description comes from a job file, from flags, or from both; flags take precedence. Local
    files are uploaded first. Several models, runtimes, targets or values of --sweep make one
    benchmark for each combination, and --count one for each board. The ids are printed on stdout.
    """
    fields = fields_of(flags)
    if dry_run and timeout is not None:
        raise InvalidInput.at("--timeout", "has no effect with --dry-run", "one of the two")
    if dry_run and alerts is not None:
        raise InvalidInput.at("--alerts", "has no effect with --dry-run", "one of the two")
    timeout_s = wait_limit_s(timeout, cancel_on_timeout, waits=wait)
    if alerts is not None:
        _check_subscription(session, alerts)
    if clone is not None:
        _refuse_waiting_for_schedule(fields, wait)
        changes = {**ci_fields(), **fields}
        cloned = _submit_clone(session, clone, job, changes, dry_run)
        if cloned is not None:
            _answer(session, [cloned], wait, timeout_s, cancel_on_timeout, alerts)
        return
    description = _description(job, fields)
    _refuse_waiting_for_schedule(description, wait)
    upload = _reported_upload(session)
    if dry_run:
        from edgeyard.benchmark_api.cli.preview import preview

        preview(session, description, upload)
        return
    submitted = session.client.submit_description(description, upload=upload)
    _answer(session, submitted, wait, timeout_s, cancel_on_timeout, alerts)


def _check_subscription(session: Session, channel: str) -> None:
    """Refuse a channel by which no alerts can be sent, before anything is submitted.

    Raises:
        InvalidInput: The account has no address or webhook, or the server sends no mail.
    """
    from edgeyard.benchmark_api.sdk.errors import ValidationFailed
    from edgeyard.scheduler.model.subscriptions import alert_types

    try:
        session.client.subscribe(channel=channel, events=list(alert_types()), dry_run=True)
    except ValidationFailed as error:
        raise InvalidInput([replace(each, pointer="--alerts") for each in error.errors]) from error


def _subscribe(
    session: Session, submitted: Sequence[Benchmark], channel: str | None
) -> ClientError | None:
    """Subscribe to the alerts of what was submitted, by a channel; None: do not.

    Returns:
        Why that was refused: the ids of what was submitted are printed first.
    """
    if channel is None or not submitted:
        return None
    from edgeyard.benchmark_api.sdk import ClientError
    from edgeyard.benchmark_api.sdk.errors import StateConflict
    from edgeyard.scheduler.model.subscriptions import alert_types

    try:
        for lineage in _lineages(session, submitted):
            try:
                session.client.subscribe(
                    "series", lineage, channel=channel, events=list(alert_types())
                )
            except StateConflict:
                session.report(f"you have a subscription to {lineage} by {channel} already")
            else:
                session.report(f"alerts of {lineage} are sent to you by {channel}")
    except ClientError as error:
        return error
    return None


def _lineages(session: Session, submitted: Sequence[Benchmark]) -> Sequence[str]:
    """Return the lineages of the series of what was submitted."""
    first = submitted[0]
    if first.schedule_id is not None:
        schedule = record(session.client.api.get(api_path("schedules", first.schedule_id)))
        stated = record(schedule["description"])
        return [str(stated.get("series") or stated.get("name") or first.schedule_id)]
    if first.campaign_id is not None:
        members = session.client.campaign(first.campaign_id)
    else:
        members = [session.client.benchmark(first.benchmark_id)]
    return list(dict.fromkeys(str(each.as_json()["series"]) for each in members))


def _refuse_waiting_for_schedule(description: Mapping[str, object], wait: bool) -> None:
    if wait and description.get("cron") is not None:
        reason = "creates a schedule, which --wait cannot wait for"
        raise InvalidInput.at("--cron", reason, "one of the two")


def _description(job: Path | None, flags: dict[str, object]) -> dict[str, object]:
    """Merge flags into the job file, whose relative paths are resolved from its own folder."""
    if job is None:
        if not flags:
            raise InvalidInput.at(
                "JOB.yaml",
                "nothing to submit",
                "a job file, or flags: --model --runtime --type --target",
            )
        return _with_batch_size({**ci_fields(), **flags})
    from edgeyard.benchmark_api.sdk.submission import read_job_file, rebased

    return _with_batch_size({**ci_fields(), **rebased(read_job_file(job), job.parent), **flags})


def _with_batch_size(description: dict[str, object]) -> dict[str, object]:
    """Return a description whose sweep may name ``batch_size`` by its short name, ``batch``.

    Types that engines declare have parameters of their own, which are left as they are.
    """
    sweep = description.get("sweep")
    declared = description.get("benchmark_type", "TYPE1") not in STANDARD_TYPES
    if not isinstance(sweep, Mapping) or declared:
        return description
    if {"batch", "batch_size"} <= sweep.keys():
        raise InvalidInput.at("--sweep", "'batch_size' is given twice", "batch or batch_size once")
    named = {"batch_size" if name == "batch" else name: each for name, each in sweep.items()}
    return {**description, "sweep": named}


def _submit_clone(
    session: Session,
    origin: str,
    job: Path | None,
    changes: dict[str, object],
    dry_run: bool,
) -> Benchmark | None:
    """Submit a clone, or show what would happen to it and return None."""
    if job is not None:
        raise InvalidInput.at("--clone", "can be combined with flags only, not with a job file")
    if "sweep" in changes:
        accepted = f"--parameter NAME=VALUE, or the job file that `edgeyard show {origin}` states"
        raise InvalidInput.at("--sweep", "makes several benchmarks, and a clone is one", accepted)
    if dry_run:
        from edgeyard.benchmark_api.cli.preview import preview_clone

        preview_clone(session, origin, changes, _reported_upload(session))
        return None
    return session.client.clone_description(origin, changes)


def _answer(
    session: Session,
    submitted: list[Benchmark],
    wait: bool,
    timeout_s: float | None,
    cancel_on_timeout: bool,
    alerts: str | None = None,
) -> None:
    """Print what was submitted, or its results if it is waited for, and subscribe to alerts.

    Raises:
        ClientError: The subscription was refused, which ends nothing before.
    """
    for warning in dict.fromkeys(text for one in submitted for text in one.warnings):
        session.report(f"warning: {warning}")
    refused = _subscribe(session, submitted, alerts)
    if submitted and submitted[0].schedule_id is not None:
        _answer_schedule(session, submitted[0])
    elif wait:
        if refused is not None:
            session.report(f"warning: no alerts are sent to you: {refused}")
        _wait(session, submitted, timeout_s, cancel_on_timeout)
    else:
        _print(session, submitted)
    if refused is not None:
        raise refused


def _members(session: Session, submitted: list[Benchmark]) -> list[Benchmark]:
    """Return all benchmarks of its campaign: a retry or a clone answers the first one alone."""
    campaign = submitted[0].campaign_id if submitted else None
    if campaign is None or len(submitted) > 1:
        return submitted
    return session.client.campaign(campaign)


def _wait(
    session: Session, submitted: list[Benchmark], timeout_s: float | None, cancel_on_timeout: bool
) -> None:
    submitted = _members(session, submitted)
    if submitted and submitted[0].campaign_id is not None:
        session.report(f"campaign {submitted[0].campaign_id}")
    finish(session, submitted, timeout_s, cancel_on_timeout)


def _print(session: Session, submitted: list[Benchmark]) -> None:
    submitted = _members(session, submitted)
    campaign = submitted[0].campaign_id if submitted else None
    rows = [{**one.as_json(), "campaign_id": one.campaign_id} for one in submitted]
    if session.output is Output.JSON and len(submitted) == 1 and not campaign:
        emit_json(submitted[0].as_json())
    elif session.output is Output.TABLE and len(submitted) == 1:
        echo(submitted[0].benchmark_id)
    else:
        if session.output is Output.TABLE:
            rows = _with_varied_fields(session, rows, campaign)
        emit(session.output, rows, _SUBMITTED_COLUMNS, "nothing was submitted")
    if session.output is Output.TABLE and submitted:
        _report_forecast(session, submitted)
        again = f"--campaign {campaign}" if len(submitted) > 1 else submitted[0].benchmark_id
        session.report(f"submitted; wait for the result with: edgeyard wait {again}")


def _report_forecast(session: Session, submitted: list[Benchmark]) -> None:
    """Report the expected start and end, if the server predicted them."""
    forecast = submitted[0].as_json().get("forecast")
    if len(submitted) > 1 or not isinstance(forecast, dict):
        return
    from edgeyard.benchmark_api.cli.pictures import held_lately

    for what, name in (("start", "start"), ("end", "finish")):
        middle, low, high = (when(forecast.get(f"{name}{end}")) for end in ("", "_low", "_high"))
        if middle is not None and low is not None and high is not None:
            at, earliest, latest = clock_times(middle, low, high)
            held = held_lately(forecast.get("coverage"), what)
            label = f"interval that held {held} {what}s lately" if held else "interval, unchecked"
            session.report(f"expected {what} {at} ({label}: {earliest} to {latest})")


def _with_varied_fields(
    session: Session, rows: list[dict[str, object]], campaign: str | None
) -> list[dict[str, object]]:
    """Add what varies, which the answer to a matrix lacks, if the server can be asked for it."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        members = session.client.campaign(campaign) if campaign is not None else []
    except ClientError:
        return rows
    by_id = {one.benchmark_id: one.description for one in members}
    vary = len({str(each.get("parameters")) for each in by_id.values()}) > 1
    known = ("model", "parameters") if vary else ("model",)
    return [
        {**row, **{name: by_id.get(str(row["benchmark_id"]), {}).get(name) for name in known}}
        for row in rows
    ]


def _answer_schedule(session: Session, submitted: Benchmark) -> None:
    if session.output is Output.JSON:
        emit_json(submitted.as_json())
        return
    echo(submitted.schedule_id or "")
    first = local_time(submitted.as_json().get("next_fire"))
    session.report(
        f"created a schedule, which submits a benchmark whenever it fires; first at {first}"
    )


def _reported_upload(session: Session) -> Callable[[Path], UploadedFile]:
    def upload(path: Path) -> UploadedFile:
        from edgeyard.benchmark_api.cli.uploading import upload_with_progress

        return upload_with_progress(session, path)

    return upload


@act
def retry(
    session: Session,
    benchmark_id: Annotated[str, typer.Argument(metavar="ID")],
    wait: Wait = False,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
) -> None:
    """Run an ended benchmark again as a new benchmark."""
    timeout_s = wait_limit_s(timeout, cancel_on_timeout, waits=wait)
    _answer(session, [session.client.retry(benchmark_id)], wait, timeout_s, cancel_on_timeout)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    verb(app, "submit")(submit)
    verb(app, "retry")(retry)
