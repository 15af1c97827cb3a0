"""Showing how benchmarks that are waited for get on: a live view, or one line a change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.sdk.benchmark import Benchmark

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_STEPS: Mapping[str, int] = {
    "loading": 1,
    "warmup": 2,
    "measuring": 3,
    "training": 3,
    "uploading": 4,
}
_STEP_COUNT = 5
"""The fifth is the end."""
_QUEUED = frozenset({"priority", "board_busy"})
"""Codes that take turns while others are placed: one state to who reads a log."""
MESSAGE_INTERVAL_S = 10.0
"""Minimum time between two lines of one benchmark that differ by its message only."""
_ROWS = 20
"""Rows of the live table; the rest is counted below it."""
STATUS_STYLE: Mapping[str, str] = {
    "pending": "yellow",
    "scheduled": "cyan",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "expired": "red",
}


class ProgressView(Protocol):
    """Shows the state of all benchmarks again and again; used as a context manager."""

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """Show these, in this order."""
        ...

    def note(self, sentence: str) -> None:
        """Show a remark, once."""
        ...

    def __enter__(self) -> ProgressView: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def state_line(benchmark: Benchmark) -> str:
    """Describe a benchmark in one line: its status, then the facts that matter in that status."""
    head = benchmark.status.upper()
    facts: list[str] = []
    if benchmark.status == "pending":
        facts += [str(benchmark.waiting_reason)] if benchmark.waiting_reason else []
    elif benchmark.status == "scheduled":
        facts += _start_to_come(benchmark)
        facts += [str(benchmark.waiting_reason)] if benchmark.waiting_reason else []
    elif benchmark.status == "running":
        head = " ".join(filter(None, [head, benchmark.phase, _bar(benchmark.phase)]))
        facts += [f"{benchmark.progress:.0f} %"] if benchmark.progress is not None else []
        facts += [benchmark.progress_message] if benchmark.progress_message else []
    elif benchmark.status == "failed":
        facts += [str(benchmark.failure)] if benchmark.failure else []
    elif benchmark.status == "expired" and benchmark.failure:
        facts.append(benchmark.failure.sentence or benchmark.failure.category)
    if benchmark.target_uid and benchmark.status != "pending":
        facts.append(benchmark.target_uid)
    if benchmark.status == "completed":
        facts += _took(benchmark)
    if len(benchmark.attempts) > 1:
        facts.append(f"attempt {benchmark.attempts[-1].number}")
    return printable(" · ".join([head, *facts])).replace("\n", " ")


def _bar(phase: str | None) -> str:
    step = _STEPS.get(phase or "")
    return f"{'█' * step}{'░' * (_STEP_COUNT - step)} {step}/{_STEP_COUNT}" if step else ""


def _start_to_come(benchmark: Benchmark) -> list[str]:
    """Return the words for one that was handed over ahead of its time."""
    stated = benchmark.description.get("start_time")
    if not isinstance(stated, str):
        return []
    start = datetime.fromisoformat(stated)
    return (
        [f"starts at {start.astimezone():%Y-%m-%d %H:%M:%S}"] if start > datetime.now(UTC) else []
    )


def _took(benchmark: Benchmark) -> list[str]:
    """Return for how long it ran: until its result arrived; its end may be learned of later."""
    if benchmark.started_at is None or benchmark.ended_at is None:
        return []
    results = [each.result_at for each in benchmark.attempts if each.result_at is not None]
    took = min(benchmark.ended_at, max(results, default=benchmark.ended_at)) - benchmark.started_at
    return [f"ran {max(0.0, took.total_seconds()):.1f} s"]


class LineView(AbstractContextManager["LineView"]):
    """One line for each change of state: for logs and pipes.

    A run that reports a message with its progress has a further line for a new message, at most
    every `MESSAGE_INTERVAL_S`.
    """

    def __init__(self, stream: TextIO, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._monotonic_s = monotonic_s
        self._shown: dict[str, tuple[object, ...]] = {}
        self._message: dict[str, tuple[str | None, float]] = {}

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """Print those whose state is another one than when they were last shown."""
        for benchmark in benchmarks:
            waiting = benchmark.waiting_reason.code if benchmark.waiting_reason else None
            state = (
                benchmark.status,
                benchmark.phase,
                "queued" if waiting in _QUEUED else waiting,
                benchmark.target_uid,
            )
            if self._shown.get(benchmark.benchmark_id) != state or self._has_news(benchmark):
                self._shown[benchmark.benchmark_id] = state
                self._message[benchmark.benchmark_id] = (
                    benchmark.progress_message,
                    self._monotonic_s(),
                )
                self.note(f"{benchmark.benchmark_id} {state_line(benchmark)}")

    def _has_news(self, benchmark: Benchmark) -> bool:
        message, at_s = self._message[benchmark.benchmark_id]
        return (
            benchmark.progress_message not in (None, message)
            and self._monotonic_s() - at_s >= MESSAGE_INTERVAL_S
        )

    def note(self, sentence: str) -> None:
        """Print a remark with the time."""
        at = datetime.now().astimezone()
        self._stream.write(f"{at:%H:%M:%S} {printable(sentence)}\n")
        self._stream.flush()

    def __exit__(self, *exception: object) -> None:
        self._stream.flush()


class NoView(AbstractContextManager["NoView"]):
    """Shows nothing."""

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """Show nothing."""

    def note(self, sentence: str) -> None:
        """Show nothing."""

    def __exit__(self, *exception: object) -> None:
        return None


class LiveView(AbstractContextManager["LiveView"]):
    """A view that is drawn again in place; its last picture stays."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live: Live = Live(console=console, refresh_per_second=8, redirect_stdout=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """Draw the table of benchmarks."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        shown = sorted(benchmarks, key=lambda one: one.status == "pending")[:_ROWS]
        for benchmark in shown:
            line = Text(state_line(benchmark), style=STATUS_STYLE.get(benchmark.status, ""))
            table.add_row(Text(benchmark.benchmark_id, no_wrap=True), line)
        parts: list[Table | Text] = [table]
        if len(benchmarks) > 1:
            parts.append(Text(_counts(benchmarks, len(benchmarks) - len(shown)), style="dim"))
        self._live.update(Group(*parts), refresh=True)

    def note(self, sentence: str) -> None:
        """Print a remark above the table."""
        self._console.print(printable(sentence), style="dim", markup=False, highlight=False)

    def __exit__(self, *exception: object) -> None:
        self._live.stop()


def _counts(benchmarks: Sequence[Benchmark], hidden: int) -> str:
    statuses = [benchmark.status for benchmark in benchmarks]
    counted = ", ".join(f"{statuses.count(one)} {one}" for one in STATUS_STYLE if one in statuses)
    return f"{counted} ({hidden} not shown)" if hidden else counted


def view_for(progress: bool) -> ProgressView:
    """Return a live view if stderr is a terminal, otherwise one of lines."""
    if not progress:
        return NoView()
    if sys.stderr.isatty():
        try:
            from rich.console import Console

            return LiveView(Console(file=sys.stderr))
        except ImportError:  # rich is for people's comfort only
            pass
    return LineView(sys.stderr)
