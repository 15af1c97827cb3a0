"""The progress of long work on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """Yield a function that shows the progress of a stage; it does nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("reading", total=1.0)

        def advanced(stage: str, share: float) -> None:
            bars.update(task, description=stage, completed=share)

        yield advanced
