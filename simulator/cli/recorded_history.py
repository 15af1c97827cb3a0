"""The recorded history of a lab, for commands that simulate it: from a server or an export."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.exporting import export_tables
from edgeyard.errors import InvalidInput

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"]

Since = Annotated[
    datetime | None,
    typer.Option(formats=_TIMES, help="Only benchmarks submitted at or after this time (UTC)."),
]
Until = Annotated[
    datetime | None,
    typer.Option(formats=_TIMES, help="Only benchmarks submitted before this time (UTC)."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Read this folder of edgeyard export instead of the server's database.",
    ),
]


@contextmanager
def exported_history(
    export: Path | None,
    since: datetime | None,
    until: datetime | None,
    data_dir: Path | None,
    config: Path | None,
) -> Iterator[tuple[Path, str]]:
    """Yield a folder of `edgeyard export`, and what the user typed to name it, for errors.

    Raises:
        InvalidInput: A folder is given together with what selects from a database.
    """
    if export is not None:
        if since or until or data_dir or config:
            reason = "can't be combined with --since, --until, --data-dir or --config"
            raise InvalidInput.at("--export", reason, "--export alone, or without --export")
        yield export, f"--export {export}"
        return
    with tempfile.TemporaryDirectory(prefix="edgeyard-history-") as folder:
        recorded = Path(folder)
        tables = ("benchmarks", "boards", "loads", "users")
        export_tables(recorded, tables, since, until, data_dir, config)
        # Predictions are made from the earlier ones.
        export_tables(recorded, ("outcomes",), None, None, data_dir, config)
        yield recorded, "--since" if since else "--until" if until else "--data-dir"
