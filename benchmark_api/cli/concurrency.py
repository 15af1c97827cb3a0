"""The curve of several callers at once, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    digits_field,
    field,
    table,
    three_digits,
)
from edgeyard.benchmark_api.figures.concurrency import concurrency_sentence
from edgeyard.benchmark_api.schemas.answers import ConcurrencyResult, as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType


def concurrency_table(found: ConcurrencyResult) -> list[RenderableType]:
    """Return throughput and latency by the number of callers, and where the knee is."""
    from rich.text import Text

    rows = [
        {**as_json(each), "knee": "knee" if each.callers == found.knee else ""}
        for each in found.levels
    ]
    return [
        Text("\nCallers at once", style="bold"),
        table(rows, _LEVELS, console().width),
        Text(concurrency_sentence(found)),
    ]


def _interval(name: str, unit: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        low, high = (three_digits(row.get(f"{name}_{end}{unit}")) for end in ("low", "high"))
        return f"{low or '?'} to {high or '?'}" if low or high else ""

    return text


_LEVELS = (
    Column(title="CALLERS", of=lambda row: f"{row['callers']}", right=True, whole=True),
    Column(title="RUNS/s", of=digits_field("runs_per_s"), right=True, whole=True),
    Column(title="95 %", of=_interval("runs_per_s", ""), right=True, whole=True),
    Column(title="p50 ms", of=digits_field("p50_ms"), right=True, whole=True),
    Column(title="95 %", of=_interval("p50", "_ms"), right=True, whole=True),
    Column(title="p99 ms", of=digits_field("p99_ms"), right=True, whole=True),
    Column(title="95 %", of=_interval("p99", "_ms"), right=True, whole=True, yields=1),
    Column(
        title="J",
        of=digits_field("energy_j"),
        right=True,
        whole=True,
        always=False,
    ),
    Column(title="KNEE", of=field("knee"), whole=True),
)
