"""The daily commands that show benchmarks or act on them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.api import api_path, items, record
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    age,
    console,
    emit,
    emit_csv,
    emit_json,
    field,
    json_text,
    local_time,
    plain,
    primary_text,
    warn_of_stale_state,
    when,
    who_cancelled,
)
from edgeyard.benchmark_api.cli.output import (
    show as print_parts,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, echo, verb
from edgeyard.benchmark_api.cli.unknown_names import (
    refuse_unknown_board,
    refuse_unknown_family,
    refuse_unknown_user,
)
from edgeyard.benchmark_api.cli.watching import Campaign, chosen_ids
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.submission import Filters

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a benchmark.", show_default=False)]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Maximum number of rows.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Follow until the benchmark ends.")]
Attempt = Annotated[int | None, typer.Option(help="Number of the attempt; default: the newest.")]


def _why(row: Row) -> str:
    """Return what matters about a benchmark besides its status."""
    for key in ("failure", "waiting_reason"):
        reason = row.get(key)
        if isinstance(reason, dict):
            return f"{reason.get('category') or reason.get('code')}: {reason.get('sentence') or ''}"
    if row.get("status") == "cancelled":
        return who_cancelled(row)
    if row.get("status") == "running":
        progress = row.get("progress")
        done = f"{progress:.0f} %" if isinstance(progress, int | float) else ""
        return " ".join(filter(None, [plain(row.get("phase")), done]))
    return ""


def _board(row: Row) -> str:
    description = row.get("description")
    family = description.get("target") if isinstance(description, dict) else None
    return plain(row.get("target_uid") or family)


def _start(row: Row) -> str:
    """Return the expected start in local time, with the date if it is not today."""
    forecast = row.get("forecast")
    at = when(forecast.get("start")) if isinstance(forecast, dict) else None
    if at is None:
        return ""
    at = at.astimezone()
    return f"{at:%H:%M:%S}" if at.date() == datetime.now(at.tzinfo).date() else f"{at:%m-%d %H:%M}"


def _planned(row: Row) -> str:
    """Return the board that is planned, and why."""
    planned = row.get("planned")
    if not isinstance(planned, dict):
        return ""
    return f"{plain(planned.get('target_uid'))} ({plain(planned.get('reason'))})"


def _place(row: Row) -> str:
    """Return the position in the queue from 1; "-" for what no board of the lab can run."""
    position = row.get("position")
    return str(position + 1) if isinstance(position, int) else "-"


LIST_COLUMNS = (
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True),
    Column(title="STATUS", of=field("status"), whole=True),
    Column(
        title="AGE",
        of=lambda row: age(row.get("submit_time")),
        right=True,
        whole=True,
        from_width=100,
    ),
    Column(title="BOARD", of=_board, whole=True, yields=2),
    Column(title="NAME", of=field("name"), always=False, from_width=100),
    Column(title="MODEL", of=field("description.model"), shorten=True),
    Column(title="RUNTIME", of=field("description.runtime"), from_width=110),
    Column(title="TYPE", of=field("description.benchmark_type"), from_width=110),
    Column(title="RESULT", of=primary_text, right=True, whole=True, yields=1, always=False),
    Column(title="WHY", of=_why, from_width=110, always=False),
)
_QUEUE_COLUMNS = (
    Column(title="#", of=_place, right=True, whole=True),
    Column(
        title="BENCHMARK",
        of=lambda row: plain(row.get("benchmark_id")) or "(another user's)",
        whole=True,
    ),
    Column(title="STARTS", of=_start, whole=True),
    Column(title="PLANNED ON", of=_planned, whole=True, always=False, from_width=120),
    Column(title="PRIO", of=field("priority"), right=True, whole=True),
    Column(title="MODEL", of=field("model"), shorten=True, always=False, from_width=100),
    Column(title="USER", of=field("user_id"), from_width=100),
    Column(title="AGE", of=lambda row: age(row.get("submit_time")), right=True, from_width=100),
    Column(title="FOR", of=field("target"), from_width=100),
    Column(title="WHY IT WAITS", of=_why),
)


def list_benchmarks(
    session: Session,
    status: Annotated[
        list[str] | None, typer.Option(help="Status: pending, running...; repeatable.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Family.")] = None,
    target_uid: Annotated[str | None, typer.Option(help="Board.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Engine.")] = None,
    benchmark_type: Annotated[
        str | None,
        typer.Option("--type", help="TYPE1, TYPE2, TYPE3, GENAI, or a type that engines declare."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Of the result: comparable, suspect or invalid.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Label.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of benchmarks.")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="ID", help="Schedule that submitted them.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Submitted since: a date, RFC 3339, or e.g. '7 d'."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Submitted before this time.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option("--campaign", metavar="ID", help="Campaign: its id or name.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Owner; only operators see those of others.")
    ] = None,
    limit: Limit = 20,
) -> None:
    """List benchmarks, newest first."""
    filters: Filters = {
        "status": status,
        "target": target,
        "target_uid": target_uid,
        "runtime": runtime,
        "benchmark_type": benchmark_type,
        "model": model,
        "verdict": verdict,
        "tag": tag,
        "name": name,
        "schedule_id": schedule,
        "submitted_from": asking.past(since, "--since"),
        "submitted_before": asking.past(until, "--until"),
        "campaign": None if campaign is None else session.client.campaign_id(campaign),
        "user_id": user,
    }
    found = session.client.list(page_size=min(limit, 100), **filters)
    rows = [one.as_json() for one in itertools.islice(found, limit + 1)]
    if not rows:
        _refuse_unknown(session, filters)
    shown = rows[:limit]
    if session.output is Output.TABLE:
        _add_numbers(session, shown)
    emit(session.output, shown, LIST_COLUMNS, "no benchmarks")
    if len(rows) > limit:
        total = session.client.count(**filters)
        session.report(f"{limit} of {total} benchmarks; --limit {total} shows all")


def _add_numbers(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add the primary metric and the verdict to the rows of completed benchmarks."""
    from edgeyard.benchmark_api.sdk import NotFoundError

    ended = {row["benchmark_id"]: row for row in rows if row.get("status") == "completed"}
    with suppress(NotFoundError):  # one was deleted in the meantime
        for measured in map(as_json, session.client.result_rows(ended)):
            names = ("primary_metric", "primary_value", "primary_unit", "verdict", "workload")
            ended[measured["benchmark_id"]] |= {name: measured[name] for name in names}


def _refuse_unknown(session: Session, filters: Filters) -> None:
    """Check that what the filters of an empty list name exists.

    Raises:
        NotFoundError: The campaign or the schedule does not exist.
        InvalidInput: The family, the board or the user is not known.
    """
    for kind, named in (("campaigns", filters["campaign"]), ("schedules", filters["schedule_id"])):
        if named is not None:
            session.client.api.get(api_path(kind, named))
    refuse_unknown_family(session, filters["target"])
    refuse_unknown_board(session, filters["target_uid"], "--target-uid")
    refuse_unknown_user(session, filters["user_id"])


def show(session: Session, benchmark_id: Id) -> None:
    """Show one benchmark.

    Shows its state, description, files and attempts.
    """
    benchmark = session.client.benchmark(benchmark_id)
    if not benchmark.ended:
        warn_of_stale_state(session, benchmark.as_json())
    if session.output is Output.JSON:
        emit_json(benchmark.as_json())
    elif session.output is Output.CSV:
        emit_csv([benchmark.as_json()])
    else:
        from edgeyard.benchmark_api.cli.pictures import benchmark_picture

        print_parts(*benchmark_picture(benchmark))


def explain(
    session: Session,
    benchmark_id: Id,
    every: Annotated[bool, typer.Option("--all", help="List every board.")] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Also show which changes would let it start sooner.")
    ] = False,
) -> None:
    """Explain a decision.

    Shows why a benchmark was placed on its board or waits: its position in the queue, its priority
    and the verdict on each board. With --changes the server repeats the decision with one field of
    the description changed at a time.
    """
    explanation = session.client.explain(benchmark_id, changes=changes)
    warn_of_stale_state(session, as_json(explanation))
    if session.output is Output.JSON:
        emit_json(as_json(explanation))
    elif session.output is Output.CSV:
        emit_csv(items(as_json(explanation), "verdicts"))
    else:
        from edgeyard.benchmark_api.cli.pictures import explanation_picture

        print_parts(*explanation_picture(explanation, every))


def hcl(session: Session, benchmark_id: Id, attempt: Attempt = None) -> None:
    """Print the Nomad job as dispatched, secrets masked."""
    text = session.client.hcl(benchmark_id, attempt)
    if session.output is Output.JSON:
        emit_json({"benchmark_id": benchmark_id, "hcl": text})
    else:
        echo(text.removesuffix("\n"))


def logs(
    session: Session,
    benchmark_id: Id,
    follow: Follow = False,
    stream: Annotated[str, typer.Option(help="stderr (the task's log) or stdout.")] = "stderr",
    attempt: Attempt = None,
) -> None:
    """Print the log of a benchmark's task."""
    if stream not in ("stdout", "stderr"):
        raise InvalidInput.at("--stream", f"there is no {stream!r}", "stdout or stderr")
    # On a terminal a hostile log could move the cursor or retitle the window.
    clean = printable if sys.stdout.isatty() else str
    lines = session.client.logs(benchmark_id, follow=follow, stream=stream, attempt=attempt)
    for line in lines:
        sys.stdout.write(clean(line.expandtabs()) + "\n")
        sys.stdout.flush()


def events(
    session: Session,
    benchmark_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Id of a benchmark; without: the log of acts."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Also print new ones, as they come.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since: a date, RFC 3339, or e.g. '7 d'.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None,
    actor: Annotated[str | None, typer.Option(metavar="USER", help="Who acted.")] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="Type of act, such as board.drained.")
    ] = None,
    board: Annotated[str | None, typer.Option(help="Board that it was done to.")] = None,
    limit: Limit = 50,
) -> None:
    """Print what happened to a benchmark, or without its id who did what, newest first.

    With -o json: one JSON object per line, with all data.
    """
    width = console().width
    if benchmark_id is not None:
        if (since, until, actor, type_, board) != (None,) * 5:
            raise InvalidInput.at("ID", "has no effect with a filter", "one of the two")
        for event in map(as_json, session.client.events(benchmark_id, follow=follow)):
            echo(json_text(event) if session.output is Output.JSON else _event_lines(event, width))
        return
    if follow:
        if (since, until) != (None, None):
            raise InvalidInput.at("--follow", "begins now", "no --since and no --until")
        refuse_unknown_board(session, board, "--board")
        refuse_unknown_user(session, actor, "--actor")
        for act in session.client.follow_acts(actor=actor, type=type_, board=board):
            row = as_json(act)
            echo(json_text(row) if session.output is Output.JSON else _act_line(row))
        return
    found = session.client.acts(
        since=asking.past(since, "--since"),
        until=asking.past(until, "--until"),
        actor=actor,
        type=type_,
        board=board,
    )
    rows = [as_json(each) for each in itertools.islice(found, limit + 1)]
    if not rows:
        refuse_unknown_board(session, board, "--board")
        refuse_unknown_user(session, actor, "--actor")
    if session.output is Output.JSON:
        for row in rows[:limit]:
            echo(json_text(row))
    else:
        emit(session.output, rows[:limit], _ACT_COLUMNS, "no acts")
    if len(rows) > limit:
        session.report(f"the newest {limit} acts; a larger --limit shows more")


def _act_what(row: Row) -> str:
    data = row.get("data")
    facts = data if isinstance(data, dict) else {}
    whose = facts.get("group_id") or facts.get("user_id")
    about = plain(row.get("board") or row.get("benchmark_id") or whose)
    series = " ".join(plain(facts.get(name)) for name in _SERIES_NAMES if facts.get(name))
    count = row.get("count")
    times = f"{count} times" if isinstance(count, int) and count > 1 else ""
    return " ".join(filter(None, [about, series, times, _act_change(row)]))


_SERIES_NAMES = ("change_id", "series_id", "lineage")
"""Fields that name an alert and its series, or a series."""

_NAMES = ("name", "policy", "user_id")
"""Fields that name what an act made or removed, the first of them that it has."""


def _act_change(row: Row) -> str:
    before, after = row.get("before"), row.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    if not before or not after:  # something came or went: which one
        return next(
            (plain(each[name]) for each in (before, after) for name in _NAMES if name in each), ""
        )
    return ", ".join(
        f"{name}: {plain(before[name]) or 'none'} -> {plain(after.get(name)) or 'none'}"
        for name in before
        if name not in ("at", "by_user_id", "reason") and before[name] != after.get(name)
    )


def _act_who(row: Row) -> str:
    return plain(row.get("email") or row.get("user_id"))


_ACT_COLUMNS = (
    Column(title="AT", of=lambda row: local_time(row.get("at")), whole=True),
    Column(title="WHO", of=_act_who),
    Column(title="DOOR", of=field("door"), from_width=90),
    Column(title="FROM", of=field("address"), from_width=110),
    Column(title="TYPE", of=field("kind"), whole=True),
    Column(title="WHAT", of=_act_what),
    Column(title="REASON", of=field("reason")),
)


def _act_line(row: Row) -> str:
    return "  ".join(filter(None, [column.of(row) for column in _ACT_COLUMNS]))


def _event_lines(event: Row, width: int) -> str:
    """Return an event as lines of at most ``width``; ids of jobs are in ``show`` and in JSON."""
    import textwrap

    data = event.get("data")
    facts = data.items() if isinstance(data, dict) else ()
    shown = (
        f"{key}={plain(value)}" for key, value in facts if value is not None and key != "job_id"
    )
    return textwrap.fill(
        " ".join(shown),
        width,
        initial_indent=f"{local_time(event.get('at'))}  {event.get('kind')}  ",
        subsequent_indent=" " * 21,  # below the kind
        break_on_hyphens=False,
    )


@act
def cancel(
    session: Session,
    benchmark_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    campaign: Campaign = None,
) -> None:
    """Cancel benchmarks.

    Their tasks are stopped and their boards freed.
    """
    from edgeyard.benchmark_api.sdk import StateConflict

    chosen = chosen_ids(session, benchmark_ids, campaign, None)
    if not chosen:
        raise InvalidInput.at("ID", "nothing to cancel", "ids, or --campaign ID")
    raws: list[Row] = []
    refused = 0
    for one in chosen:
        try:
            raws.append(session.client.cancel(one).as_json())
        except StateConflict as error:
            refused += campaign is None  # members of a campaign may have ended before
            session.report(f"edgeyard: {error}")
    if raws or session.output is not Output.TABLE:
        emit(session.output, raws, LIST_COLUMNS[:2], "nothing was cancelled")
    if refused:
        raise typer.Exit(1)


@act
def hold(session: Session, benchmark_id: Id) -> None:
    """Hold a pending benchmark: it is not placed until `release`."""
    emit(session.output, [session.client.hold(benchmark_id).as_json()], LIST_COLUMNS, "")


@act
def release(session: Session, benchmark_id: Id) -> None:
    """Release a held benchmark, so that it can be placed."""
    emit(session.output, [session.client.release(benchmark_id).as_json()], LIST_COLUMNS, "")


@act
def preempt(session: Session, benchmark_id: Id) -> None:
    """Preempt a running benchmark: it returns to the queue and keeps its retries.

    For operators. To keep it from starting again at once, hold it or drain its board.
    """
    emit(session.output, [session.client.preempt(benchmark_id).as_json()], LIST_COLUMNS, "")


@act
def prioritise(
    session: Session,
    benchmark_id: Id,
    user_priority: Annotated[
        int,
        typer.Argument(metavar="PRIORITY", min=1, max=10, help="User priority; 10 is the highest."),
    ],
) -> None:
    """Change the user priority of a pending benchmark."""
    emit(
        session.output,
        [session.client.prioritise(benchmark_id, user_priority).as_json()],
        LIST_COLUMNS,
        "",
    )


def queue(
    session: Session,
    limit: Limit = 1000,
    user: Annotated[
        str | None, typer.Option(help="Only this user's; others' for operators.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Only those for this family of boards.")
    ] = None,
) -> None:
    """Show the queue: which benchmarks wait, in which order and why.

    Positions are those in the whole queue.
    """
    params = {"limit": limit, "user": user, "target": target}
    answer = record(session.client.api.get("/v1/queue", params))
    if not items(answer):
        refuse_unknown_user(session, user)
        refuse_unknown_family(session, target)
    emit(session.output, items(answer), _QUEUE_COLUMNS, "no benchmark waits")
    warn_of_stale_state(session, answer)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    verb(app, "list")(list_benchmarks)
    for name, function in (
        ("show", show),
        ("explain", explain),
        ("hcl", hcl),
        ("logs", logs),
        ("events", events),
        ("cancel", cancel),
        ("hold", hold),
        ("release", release),
        ("preempt", preempt),
        ("prioritise", prioritise),
        ("queue", queue),
    ):
        verb(app, name)(function)
