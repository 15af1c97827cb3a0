"""``wait`` and ``watch``: follow benchmarks to their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    accuracy,
    digits_field,
    emit,
    emit_json,
    field,
    note,
    plain,
    primary_column,
    reasons_of,
    show,
    who_cancelled,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Benchmark
    from edgeyard.benchmark_api.sdk.benchmark import Benchmarks

IDS_COLUMNS = (
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True),
    Column(title="STATUS", of=field("status"), whole=True),
)
_BEFORE = (
    *IDS_COLUMNS,
    Column(title="MODEL", of=field("model"), shorten=True, always=False),
    Column(title="TYPE", of=field("type"), whole=True, always=False),
    Column(title="BOARD", of=field("target_uid"), always=False, from_width=100),
)
_AFTER = (
    Column(title="ACCURACY", of=accuracy, right=True, whole=True, always=False),
    Column(
        title="LOSS",
        of=digits_field("final_loss"),
        right=True,
        whole=True,
        always=False,
    ),
    Column(title="VERDICT", of=field("verdict"), always=False),
)
_MEASURED = (
    "primary_metric",
    "primary_title",
    "primary_unit",
    "primary_better",
    "primary_value",
    "primary_low",
    "primary_high",
    "accuracy",
    "metric",
    "metric_value",
    "final_loss",
    "verdict",
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", show_default=False)]
Campaign = Annotated[
    str | None,
    typer.Option("--campaign", metavar="ID", help="All members of a campaign, by id or name."),
]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="All benchmarks with this tag.")
]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Maximum time to wait, e.g. 90 or '15 min'; then exit with 4."
    ),
]
CancelOnTimeout = Annotated[
    bool, typer.Option("--cancel-on-timeout", help="Cancel what has not ended within --timeout.")
]


def wait_limit_s(
    timeout: str | None, cancel_on_timeout: bool, *, waits: bool = True
) -> float | None:
    """Return ``--timeout`` in seconds; None: it waits without limit.

    Args:
        timeout: As given.
        cancel_on_timeout: As given.
        waits: Whether the command waits at all.

    Raises:
        InvalidInput: It is no duration, or one of the two would have no effect.
    """
    if timeout is not None and not waits:
        accepted = "--wait, or --user-time for the limit of the run"
        raise InvalidInput.at("--timeout", "has an effect with --wait only", accepted)
    if cancel_on_timeout and timeout is None:
        accepted = "--timeout, or no --cancel-on-timeout"
        raise InvalidInput.at("--cancel-on-timeout", "has an effect with --timeout only", accepted)
    return asking.seconds(timeout, "--timeout")


def wait(
    session: Session,
    benchmark_ids: Ids = None,
    campaign: Campaign = None,
    tag: Tag = None,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
) -> None:
    """Wait until benchmarks have ended.

    The exit status is 0 if all completed, 3 if one failed or expired, 4 if the time was up, 5 if
    one was cancelled. Ctrl-C ends only the waiting.
    """
    timeout_s = wait_limit_s(timeout, cancel_on_timeout)
    chosen = chosen_ids(session, benchmark_ids, campaign, tag)
    if not chosen:
        raise InvalidInput.at("ID", "nothing to wait for", "ids, --campaign ID or --tag TAG")
    finish(session, chosen, timeout_s, cancel_on_timeout)


def watch(
    session: Session,
    benchmark_ids: Ids = None,
    campaign: Campaign = None,
    tag: Tag = None,
    timeout: Timeout = None,
) -> None:
    """Show the progress of benchmarks until they have ended.

    Without ids: all of your benchmarks that have not ended. The exit status is that of `wait`.
    """
    timeout_s = wait_limit_s(timeout, False)
    chosen = chosen_ids(session, benchmark_ids, campaign, tag)
    if not chosen:
        live = session.client.list(
            status=["running", "scheduled", "pending"], user_id=session.client.user_id()
        )
        chosen = [one.benchmark_id for one in live]
    if not chosen:
        session.report("you have no benchmark that waits or runs")
        return
    finish(session, chosen, timeout_s, False)


def chosen_ids(
    session: Session, given: Sequence[str] | None, campaign: str | None, tag: str | None
) -> list[str]:
    """Return the given ids and those of the campaign and of the tag."""
    ids = list(given or ())
    if campaign is not None:
        found = session.client.campaign(campaign)
        if not found:
            raise InvalidInput.at("--campaign", f"{campaign} has no benchmarks any more")
        ids += [one.benchmark_id for one in found]
    if tag is not None:
        tagged = [one.benchmark_id for one in session.client.list(tag=tag)]
        if not tagged:
            raise InvalidInput.at("--tag", f"no benchmark has the tag {tag!r}")
        ids += reversed(tagged)
    return list(dict.fromkeys(ids))


def finish(
    session: Session,
    benchmarks: Sequence[str | Benchmark],
    timeout_s: float | None,
    cancel_on_timeout: bool,
) -> None:
    """Wait for all, show how they ended and exit accordingly.

    Raises:
        typer.Exit: With the exit status, unless all completed.
    """
    from edgeyard.benchmark_api.cli.exits import Exit, exit_of
    from edgeyard.benchmark_api.sdk import WaitTimeout

    ids = [one if isinstance(one, str) else one.benchmark_id for one in benchmarks]
    try:
        states = session.client.wait(ids, timeout_s, check=False)
    except KeyboardInterrupt:
        which = "the benchmark goes" if len(ids) == 1 else "the benchmarks go"
        session.report(
            f"\nstopped waiting; {which} on; resume with: {_resume_command(session, ids)}"
        )
        raise typer.Exit(Exit.INTERRUPTED) from None
    except WaitTimeout as error:
        _show_ends(session, list(error.benchmarks))  # type: ignore[arg-type]
        session.report(f"edgeyard: {error}")
        if cancel_on_timeout:
            cancel_all(session, error.benchmark_ids)
        else:
            session.report(f"resume with: {_resume_command(session, error.benchmark_ids)}")
        raise typer.Exit(Exit.TIMED_OUT) from None
    _show_ends(session, states)
    status = exit_of(states)
    if status:
        raise typer.Exit(status)


def _resume_command(session: Session, ids: Sequence[str]) -> str:
    profile = f" --profile {session.profile}" if session.profile else ""
    return f"edgeyard wait{profile} {' '.join(ids)}"


def cancel_all(session: Session, ids: Sequence[str]) -> None:
    """Cancel benchmarks that have not ended, and report it of each."""
    from edgeyard.benchmark_api.sdk import StateConflict

    for benchmark_id in ids:
        try:
            session.client.cancel(benchmark_id)
        except StateConflict:
            session.report(f"{benchmark_id} has ended in the meantime")
        else:
            session.report(f"{benchmark_id} is being cancelled")


def _show_ends(session: Session, states: Benchmarks) -> None:
    if session.output is Output.JSON:
        raws = [one.as_json() for one in states]
        emit_json(raws[0] if len(raws) == 1 else raws)
        return
    rows = {one.benchmark_id: _end_row(one) for one in states}
    completed = [one.benchmark_id for one in states if one.status == "completed"]
    for measured in map(as_json, session.client.result_rows(completed)):
        row = rows[str(measured.get("benchmark_id"))]
        row |= {name: measured.get(name) for name in _MEASURED}
        row["why"] = reasons_of(measured)
        if session.output is Output.TABLE:
            row["reasons"] = measured.get("reasons")  # they mark the accuracy
            row["workload"] = measured.get("workload")  # with the percentile of a load
    types = {plain(one.description.get("benchmark_type")) for one in states}
    if len(types) > 1 and session.output is Output.TABLE:
        for one in states:
            rows[one.benchmark_id]["type"] = plain(one.description.get("benchmark_type"))
    ends = list(rows.values())
    columns = (*_BEFORE, primary_column(ends, always=False), *_AFTER)
    emit(session.output, ends, columns, "nothing")
    if session.output is Output.TABLE:
        show(*(note(name, plain(row["why"])) for name, row in rows.items() if row["why"]))


def _end_row(benchmark: Benchmark) -> dict[str, object]:
    why = benchmark.failure or (None if benchmark.ended else benchmark.waiting_reason)
    return {
        "benchmark_id": benchmark.benchmark_id,
        "status": benchmark.status,
        "target_uid": benchmark.target_uid,
        "model": benchmark.description.get("model"),
        **dict.fromkeys(_MEASURED),
        "why": str(why) if why else who_cancelled(benchmark.as_json()),
    }


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    verb(app, "wait")(wait)
    verb(app, "watch")(watch)
