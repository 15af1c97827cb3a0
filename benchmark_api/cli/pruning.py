"""``server prune``: delete or count data that is past its retention."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.program import AsJson, Reason, echo
from edgeyard.benchmark_api.cli.replaying import Config, DataDir, opened

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; delete nothing.")]

_COLUMNS = (
    Column(title="CLASS", of=field("class"), whole=True),
    Column(title="RETAINED", of=lambda row: _age(row.get("kept_s"))),
    Column(title="ROWS", of=field("rows"), right=True),
    Column(title="MB", of=lambda row: f"{float(str(row['size_bytes'])) / 1e6:,.1f}", right=True),
)


def prune(
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    config: Config = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Delete data that is older than the settings retain_..._s allow.

    The server also does this every hour; it may keep running meanwhile. Live data and what it
    needs stay regardless of their age. "content" is stored content that no file refers to any
    more; with --dry-run, files that would be deleted still count.
    """

    from edgeyard.benchmark_api.bootstrap import check_file_store, open_files, retention
    from edgeyard.benchmark_api.local_acts import acting_here
    from edgeyard.scheduler.clock import SharedClock, SteadyClock
    from edgeyard.scheduler.engine.housekeeping import collect_garbage
    from edgeyard.scheduler.model.acts import acting_as
    from edgeyard.scheduler.model.event import Event

    with opened(data_dir, config) as (store, settings):
        kept, files = retention(settings), open_files(settings)
        check_file_store(settings, store, files)
        clock = SharedClock(SteadyClock())
        if not dry_run:
            now = clock.now()
            bounds = {kind.value: kept_s for kind, kept_s in kept.items() if kept_s is not None}
            begun = Event(at=now, kind="server.pruned", data={"retained_s": bounds})
            # Before the first deletion: one that is killed half-way has its record, too.
            with acting_as(acting_here("server.pruned", now, reason=reason)):
                store.transact(lambda uow: uow.log.append(begun))
        found = collect_garbage(store, files, clock, kept, dry_run=dry_run)
    rows: list[dict[str, object]] = [
        {
            "class": kind.value,
            "kept_s": kept.get(kind),
            "rows": pruned.rows,
            "size_bytes": pruned.size_bytes,
        }
        for kind, pruned in found.pruned.items()
    ]
    content = found.content
    rows.append(
        {"class": "content", "kept_s": None, "rows": content.rows, "size_bytes": content.size_bytes}
    )
    if as_json:
        emit_json({"dry_run": dry_run, "classes": rows})
        return
    show(table(rows, _COLUMNS, console().width))
    if dry_run:
        echo("dry run: nothing was deleted", err=True)


def _age(kept_s: object) -> str:
    return "" if kept_s is None else f"{float(str(kept_s)) / 86400:g} days"
