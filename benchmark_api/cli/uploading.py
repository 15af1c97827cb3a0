"""Uploads of the command line, with a progress bar for large files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import size
from edgeyard.benchmark_api.cli.program import Session
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import UploadedFile

BAR_FROM_BYTES = 8 * 2**20
"""Smaller uploads take a moment."""


def upload_with_progress(session: Session, path: Path) -> UploadedFile:
    """Upload a file; report it, on a terminal with a bar if it is large.

    Raises:
        InvalidInput: The file cannot be read.
    """
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InvalidInput.at("FILE", f"cannot read {path}: {error.strerror}") from error
    if not path.is_file():
        raise InvalidInput.at("FILE", f"{path} is no regular file", "a file")
    if size_bytes < BAR_FROM_BYTES or not sys.stderr.isatty():
        began = False

        def report(sent: int) -> None:
            nonlocal began
            if not began:
                session.report(f"uploading {path.name} ({size(size_bytes)})")
                if 0 < sent < size_bytes:
                    session.report(f"the server has {size(sent)} of it already, and gets the rest")
            began = True

        return session.client.upload(path, on_sent=report)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("uploading {task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(path.name, total=size_bytes)
        return session.client.upload(
            path, on_sent=lambda sent: progress.update(task, completed=sent)
        )
