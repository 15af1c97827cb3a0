"""Uploads of the command line, with a progress bar for large files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import size
from edgeyard.benchmark_api.cli.program import Session
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import UploadedFile

BAR_FROM_BYTES = 8 * 2**20
"""Smaller uploads take a moment."""

HASH_BAR_FROM_BYTES = 256 * 2**20
"""Smaller files are read in a moment."""


def upload_with_progress(session: Session, path: Path) -> UploadedFile:
    """Upload a file; report it, on a terminal with a bar if it is large.

    Raises:
        InvalidInput: The file cannot be read.
    """
    from edgeyard.benchmark_api.sdk.resuming import RESUME_FROM_BYTES

    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InvalidInput.at("FILE", f"cannot read {path}: {error.strerror}") from error
    if not path.is_file():
        raise InvalidInput.at("FILE", f"{path} is not a regular file", "a file")
    if size_bytes < BAR_FROM_BYTES or not sys.stderr.isatty():
        began = False

        def report(sent: int) -> None:
            nonlocal began
            if not began:
                session.report(f"uploading {path.name} ({size(size_bytes)})")
                if size_bytes >= RESUME_FROM_BYTES and 0 < sent < size_bytes:
                    session.report(f"the server has {size(sent)} of it already, and gets the rest")
            began = True

        return session.client.upload(path, on_sent=report)
    with _bar(f"uploading {path.name}", size_bytes) as update:
        return session.client.upload(path, on_sent=update)


def hash_with_progress(session: Session, path: Path) -> str:
    """Return the SHA-256 of a file; report a large one, on a terminal with a bar.

    Raises:
        InvalidInput: The file cannot be read.
    """
    from edgeyard.benchmark_api.sdk.preview import sha256_of

    size_bytes = path.stat().st_size
    if size_bytes < HASH_BAR_FROM_BYTES:
        return sha256_of(path)
    if not sys.stderr.isatty():
        session.report(f"reading {path.name} ({size(size_bytes)})")
        return sha256_of(path)
    with _bar(f"reading {path.name}", size_bytes) as update:
        return sha256_of(path, update)


@contextmanager
def _bar(title: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, and yield the function that sets the number of bytes done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=size_bytes)
        yield lambda done: progress.update(task, completed=done)
