"""``replay``: repeat recorded decisions from the server's database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit_json,
    field,
    local_time,
    plain,
    show,
    table,
)
from edgeyard.benchmark_api.cli.program import AsJson, echo

if TYPE_CHECKING:
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.scheduler.engine.replay import ReplayedCycle
    from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord
    from edgeyard.scheduler.ports import Store

_PAGE = 200

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Data folder of the server."),
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings file of the server, if it has one.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"], help="Only cycles at or after this time (UTC)."
    ),
]
StopRule = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"], help="Only cycles before this time (UTC)."
    ),
]


def replay(
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Policy, or queue policy, that decides; default: the one of each cycle.",
        ),
    ] = None,
    since: Since = None,
    until: StopRule = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Repeat the decisions of recorded cycles and show the differences.

    Reads the server's database; the server may keep running. With the recorded policy every
    decision is the same, byte for byte. Another policy decides on each cycle as it was recorded:
    the effects of its decisions on later cycles are not simulated.
    """
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.scheduler.engine.replay import replay as decide_again
    from edgeyard.scheduler.framework.named import policy_named

    with opened(data_dir, config) as (store, settings), known_plugins(settings) as known:
        chosen = None if policy is None else policy_named(policy, known)
        found = [
            (head.seq, decide_again(_record(store, head.seq), known, chosen))
            for head in cycles_within(store, utc(since), utc(until), "Replaying")
        ]
    if as_json:
        emit_json({"policy": policy, "cycles": [_json(seq, each) for seq, each in found]})
    else:
        _show(found, own=policy is None)
    if policy is None and not all(each.same for _, each in found):
        raise typer.Exit(1)


@contextmanager
def opened(
    data_dir: Path | None, config: Path | None, *, error_status: int = 2
) -> Iterator[tuple[Store, Settings]]:
    """Open the server's database and settings; on an error report it and exit."""
    from edgeyard.benchmark_api.bootstrap import open_store
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.errors import ConfigError

    try:
        settings = Settings.load(config, data_dir=data_dir)
        if settings.database_url is None and not (settings.data_dir / "edgeyard.db").exists():
            raise ConfigError(
                [f"{settings.data_dir} has no database: set --data-dir to the folder of the server"]
            )
        store = open_store(settings)
        try:
            yield store, settings
        finally:
            store.close()
    except ConfigError as error:
        for problem in error.problems:
            echo(f"edgeyard: {problem}", err=True)
        raise typer.Exit(error_status) from None


def utc(when: datetime | None) -> datetime | None:
    """Return a time in UTC, which is also the default zone."""
    if when is None:
        return None
    return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)


def cycles_within(
    store: Store,
    since: datetime | None,
    until: datetime | None,
    doing: str,
    *,
    shadows: bool = False,
) -> Iterator[CycleHead]:
    """Yield recorded cycles, with those of shadows if asked, and show the progress on stderr."""
    from rich.console import Console
    from rich.progress import track

    heads: list[CycleHead] = []
    while True:
        with store.read() as uow:
            page = uow.cycles.page(
                after=heads[-1].seq if heads else 0,
                since=since,
                until=until,
                limit=_PAGE,
                shadows=shadows,
            )
        heads += page
        if len(page) < _PAGE:
            break
    errors = Console(stderr=True)
    yield from track(heads, doing, console=errors, transient=True, disable=not errors.is_terminal)


def _record(store: Store, seq: int) -> CycleRecord:
    with store.read() as uow:
        return uow.cycles.get(seq)


def _json(seq: int, each: ReplayedCycle) -> dict[str, object]:
    return {
        "seq": seq,
        "decided_at": each.decided_at.isoformat(),
        "policy": each.policy,
        "pending": each.pending,
        "placed_then": each.placed_then,
        "placed_now": each.placed_now,
        "reordered": each.reordered,
        "reprioritised": each.reprioritised,
        "preemptions": each.preemptions,
        "rescored": each.rescored,
        "differences": [asdict(difference) for difference in each.differences],
        "expected_then_s": each.expected_then_s,
        "expected_now_s": each.expected_now_s,
        "same": each.same,
    }


def _show(found: list[tuple[int, ReplayedCycle]], *, own: bool) -> None:
    from edgeyard.scheduler.engine.replay import totals_of

    totals = totals_of([each for _, each in found])
    echo(
        f"{totals.cycles} cycles, {sum(each.same for _, each in found)} decided the same; "
        f"benchmarks placed: {totals.placed_then} recorded, {totals.placed_now} replayed; "
        f"{totals.reordered} with another place in the queue"
    )
    rows = [
        {"cycle": seq, "at": each.decided_at.isoformat(), **asdict(difference)}
        for seq, each in found
        for difference in each.differences
    ]
    show_differences(rows, then="RECORDED", now="REPLAYED")
    for seq, each in found:
        if not each.differences and (found_differences := _other_differences(each, own=own)):
            echo(f"cycle {seq}: the same boards; {found_differences}")


def show_differences(rows: Sequence[Row], *, then: str, now: str) -> None:
    """Print which benchmarks have another board: one that waits differs in many cycles, once.

    Args:
        rows: ``cycle``, its time (``at``), ``benchmark_id``, and the boards ``then`` and ``now``.
        then: What the first decision is called.
        now: What the second one is called.
    """
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault((row["benchmark_id"], row["then"], row["now"]), []).append(row)
    shown = [
        {**min(each, key=lambda row: int(str(row["cycle"]))), "cycles": len(each)}
        for each in alike.values()
    ]
    if not shown:
        return
    columns = (
        Column(title="CYCLE", of=field("cycle"), right=True, whole=True),
        Column(title="DECIDED", of=lambda row: local_time(plain(row["at"])), from_width=100),
        Column(title="CYCLES", of=field("cycles"), right=True, whole=True),
        Column(title="BENCHMARK", of=field("benchmark_id"), whole=True),
        Column(title=then, of=lambda row: str(row["then"] or "waits")),
        Column(title=now, of=lambda row: str(row["now"] or "waits")),
    )
    show(table(shown, columns, console().width))


def _other_differences(each: ReplayedCycle, *, own: bool) -> str:
    """Return what differs besides the boards."""
    counts = {
        "preemptions": each.preemptions,
        "positions in the queue": each.reordered,
        "priorities": each.reprioritised,
        "scores": each.rescored,
    }
    counted = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if counted:
        return f"{counted} differ"
    # The record of another policy always differs.
    return "verdicts, weights or details of scorers differ" if own and not each.same else ""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("replay")(replay)
