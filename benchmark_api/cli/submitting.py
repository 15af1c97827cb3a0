"""``submit``, and the verbs that make a benchmark of another one: ``retry``, ``clone``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    clock_times,
    emit,
    emit_json,
    field,
    local_time,
    size,
    when,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.cli.watching import IDS_COLUMNS, CancelOnTimeout, Timeout, finish
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Benchmark, UploadedFile


_SUBMITTED_COLUMNS = (
    *IDS_COLUMNS,
    Column(title="MODEL", of=field("model"), shorten=True, always=False),
)

Texts = list[str]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end.")]


def _option(told: str, *names: str, metavar: str | None = None) -> object:
    return typer.Option(*names, help=told, metavar=metavar)


def submit(
    session: Session,
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="Job file, YAML or JSON."),
    ] = None,
    model: Annotated[
        Texts | None, _option("File, URL or name; several make a matrix.", "--model", "-m")
    ] = None,
    runtime: Annotated[
        Texts | None, _option("Engine, e.g. ort; several make a matrix.", "--runtime", "-r")
    ] = None,
    benchmark_type: Annotated[
        str | None, _option("TYPE1 latency, TYPE2 accuracy, TYPE3 training.", "--type", "-t")
    ] = None,
    nb_inference: Annotated[int | None, _option("Timed runs, at least (TYPE1).")] = None,
    precision: Annotated[
        str | None, _option("Measure until the p50 is known so well, e.g. '2 %'.")
    ] = None,
    dataset: Annotated[str | None, _option("File, URL or name (TYPE2, TYPE3).")] = None,
    odt_config: Annotated[
        str | None, _option("File, URL, name, or the JSON itself (TYPE3).")
    ] = None,
    inputs: Annotated[
        Texts | None,
        _option("Random data, e.g. ids=1x128:0..30522:int.", "--input", metavar="NAME=SPEC"),
    ] = None,
    parameter: Annotated[
        Texts | None, _option("Of the engine, e.g. threads=2.", metavar="NAME=VALUE")
    ] = None,
    version_tag: Annotated[str | None, _option("Tag of the engine's image.")] = None,
    target: Annotated[
        Texts | None, _option("Family, e.g. rpi4b; several make a matrix.", "--target")
    ] = None,
    target_uid: Annotated[str | None, _option("One board, by its id.")] = None,
    ram: Annotated[str | None, _option("At least, e.g. '4 GiB'.")] = None,
    storage: Annotated[str | None, _option("At least, e.g. '500 MB'.")] = None,
    constraint: Annotated[
        Texts | None, _option("Further condition, e.g. 'memory.ram >= 4294967296'.")
    ] = None,
    binding: Annotated[str | None, _option("loose, filtered or strict.")] = None,
    if_unavailable: Annotated[str | None, _option("reschedule or notify.")] = None,
    priority: Annotated[int | None, _option("1 to 10.", "--priority")] = None,
    deadline: Annotated[str | None, _option("RFC 3339, or e.g. +2h.")] = None,
    start_time: Annotated[str | None, _option("Not before: RFC 3339, or e.g. +2h.")] = None,
    queue_timeout: Annotated[str | None, _option("Longest wait until its task starts.")] = None,
    user_time: Annotated[str | None, _option("Longest run of one attempt.")] = None,
    max_retries: Annotated[int | None, _option("Further attempts after a failure.")] = None,
    user_budget: Annotated[float | None, _option("Most credits that it may use.")] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--no-preemptible",
            help="Whether a higher priority may displace it before it measures.",
        ),
    ] = None,
    preemptible_measuring: Annotated[
        bool | None,
        typer.Option(
            "--preemptible-measuring/--no-preemptible-measuring",
            help="Whether one may also while it measures.",
        ),
    ] = None,
    job_completion_threshold: Annotated[
        int | None, _option("May displace lower priorities that are below this, %.")
    ] = None,
    cron: Annotated[str | None, _option("Crontab of five fields, UTC.")] = None,
    tag: Annotated[Texts | None, _option("Label to find it by.", "--tag")] = None,
    benchmark_id: Annotated[str | None, _option("Else the server makes one.", "--id")] = None,
    clone: Annotated[
        str | None, _option("Start from this benchmark's description.", metavar="ID")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would happen; submit nothing.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
) -> None:
    """Submit a benchmark.

    From a job file, from flags, or from both (flags win). Local files are uploaded first. Several
    models, runtimes or targets make one benchmark for each combination. The ids go to stdout.
    """
    flags: dict[str, object] = {
        "benchmark_id": benchmark_id,
        "model": asking.one_or_list(model or (), commas=False),
        "runtime": asking.one_or_list(runtime or ()),
        "benchmark_type": benchmark_type,
        "target": asking.one_or_list(target or ()),
        "target_uid": target_uid,
        "nb_inference": nb_inference,
        "precision": precision,
        "dataset": dataset,
        "odt_config": asking.odt_config(odt_config),
        "input": asking.inputs(inputs or ()),
        "parameters": asking.parameters(parameter or ()),
        "version_tag": version_tag,
        "ram": ram,
        "storage": storage,
        "constraints": asking.constraints(constraint or ()),
        "binding": binding,
        "if_unavailable": if_unavailable,
        "user_priority": priority,
        "deadline": asking.moment(deadline, "--deadline"),
        "start_time": asking.moment(start_time, "--start-time"),
        "queue_timeout": queue_timeout,
        "user_time": user_time,
        "max_retries": max_retries,
        "user_budget": user_budget,
        "preemptible": preemptible,
        "preemptible_measuring": preemptible_measuring,
        "job_completion_threshold": job_completion_threshold,
        "cron": cron,
        "tags": tag or [],
    }
    flags = {name: value for name, value in flags.items() if value not in (None, [], {})}
    timeout_s = asking.seconds(timeout, "--timeout")
    if clone is not None:
        with _flags_named(flags):
            _submit_clone(session, clone, job, flags, dry_run, wait, timeout_s, cancel_on_timeout)
        return
    description = _description(job, flags)
    with _flags_named(flags):
        if dry_run:
            from edgeyard.benchmark_api.cli.preview import preview

            preview(session, description, _telling_upload(session))
            return
        submitted = session.client.submit_description(description, upload=_telling_upload(session))
    _answer(session, submitted, wait, timeout_s, cancel_on_timeout)


_FLAG_OF = {
    "benchmark_id": "--id",
    "benchmark_type": "--type",
    "constraints": "--constraint",
    "parameters": "--parameter",
    "tags": "--tag",
    "user_priority": "--priority",
}
"""Flags that are not named as the field of the job description that they set."""


@contextmanager
def _flags_named(flags: Mapping[str, object]) -> Iterator[None]:
    """Name the flag that was typed in place of the field that the server refuses."""
    from edgeyard.benchmark_api.sdk.errors import ValidationFailed

    try:
        yield
    except ValidationFailed as error:
        errors = [replace(each, pointer=_flag(each.pointer, flags)) for each in error.errors]
        raise ValidationFailed(error.status, error.code, error.detail, errors) from error


def _flag(pointer: str, flags: Mapping[str, object]) -> str:
    name = pointer.removeprefix("/description").lstrip("/").split("/", 1)[0]
    if name not in flags:
        return pointer
    return _FLAG_OF.get(name, f"--{name.replace('_', '-')}")


def _description(job: Path | None, flags: dict[str, object]) -> dict[str, object]:
    """The job file with the flags over it; its relative paths are seen from its own folder."""
    if job is None:
        if not flags:
            raise InvalidInput.at(
                "", "nothing to submit", "a job file, or flags: --model --runtime --type --target"
            )
        return flags
    from edgeyard.benchmark_api.sdk.submission import read_job_file, rebased

    return {**rebased(read_job_file(job), job.parent), **flags}


def _submit_clone(
    session: Session,
    origin: str,
    job: Path | None,
    changes: dict[str, object],
    dry_run: bool,
    wait: bool,
    timeout_s: float | None,
    cancel_on_timeout: bool,
) -> None:
    if job is not None or dry_run:
        raise InvalidInput.at("--clone", "goes with flags only, not with a job file or --dry-run")
    cloned = session.client.clone(origin, **changes)
    _answer(session, [cloned], wait, timeout_s, cancel_on_timeout)


def _answer(
    session: Session,
    submitted: list[Benchmark],
    wait: bool,
    timeout_s: float | None,
    cancel_on_timeout: bool,
) -> None:
    for warning in dict.fromkeys(text for one in submitted for text in one.warnings):
        session.say(f"warning: {warning}")
    if submitted and submitted[0].schedule_id is not None:
        _answer_schedule(session, submitted[0])
        return
    campaign = submitted[0].campaign_id if submitted else None
    if wait:
        if campaign is not None:
            session.say(f"campaign {campaign}")
        finish(session, submitted, timeout_s, cancel_on_timeout)
        return
    rows = [{**one.raw, "campaign_id": one.campaign_id} for one in submitted]
    if session.output is Output.JSON and len(submitted) == 1 and not submitted[0].campaign_id:
        emit_json(submitted[0].raw)
    elif session.output is Output.TABLE and len(submitted) == 1:
        typer.echo(submitted[0].benchmark_id)
    else:
        if session.output is Output.TABLE:
            rows = _with_models(session, rows, campaign)
        emit(session.output, rows, _SUBMITTED_COLUMNS, "nothing was submitted")
    if session.output is Output.TABLE and submitted:
        _say_forecast(session, submitted)
        again = f"--campaign {campaign}" if len(submitted) > 1 else submitted[0].benchmark_id
        session.say(f"submitted; wait for the result with: edgeyard wait {again}")


def _say_forecast(session: Session, submitted: list[Benchmark]) -> None:
    """When the benchmark is expected to start and end; nothing where the server did not say."""
    forecast = submitted[0].raw.get("forecast")
    if len(submitted) > 1 or not isinstance(forecast, dict):
        return
    for verb_, name in (("starts", "start"), ("ends", "finish")):
        middle, low, high = (when(forecast.get(f"{name}{end}")) for end in ("", "_low", "_high"))
        if middle is not None and low is not None and high is not None:
            near, soonest, latest = clock_times(middle, low, high)
            session.say(f"{verb_} about {near} (4 times in 5 between {soonest} and {latest})")


def _with_models(
    session: Session, rows: list[dict[str, object]], campaign: str | None
) -> list[dict[str, object]]:
    """The answer to a matrix names no models; what was submitted is told without them, too."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        members = session.client.campaign(campaign) if campaign is not None else []
    except ClientError:
        return rows
    models = {one.benchmark_id: one.description.get("model") for one in members}
    return [{**row, "model": models.get(str(row["benchmark_id"]))} for row in rows]


def _answer_schedule(session: Session, submitted: Benchmark) -> None:
    if session.output is Output.JSON:
        emit_json(submitted.raw)
        return
    typer.echo(submitted.schedule_id)
    first = local_time(submitted.raw.get("next_fire"))
    session.say(f"a schedule, not a benchmark: each firing is one; the first is at {first}")


def _telling_upload(session: Session) -> Callable[[Path], UploadedFile]:
    def upload(path: Path) -> UploadedFile:
        session.say(f"uploading {path.name} ({size(path.stat().st_size)})")
        return session.client.upload(path)

    return upload


def retry(
    session: Session,
    benchmark_id: Annotated[str, typer.Argument(metavar="ID")],
    wait: Wait = False,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
) -> None:
    """Run an ended benchmark again, as a new one."""
    timeout_s = asking.seconds(timeout, "--timeout")
    _answer(session, [session.client.retry(benchmark_id)], wait, timeout_s, cancel_on_timeout)


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    verb(app, "submit")(submit)
    verb(app, "retry")(retry)
