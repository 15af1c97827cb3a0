"""The windows of a soak, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    digits_field,
    field,
    plain,
    table,
    three_digits,
)
from edgeyard.benchmark_api.figures.soaks import is_steady, soak_sentence
from edgeyard.benchmark_api.schemas.answers import SoakResult, as_json

if TYPE_CHECKING:
    from rich.console import RenderableType


def soak_table(found: SoakResult) -> list[RenderableType]:
    """Return all windows of a soak, and what they mean."""
    from rich.text import Text

    rows = [
        {**as_json(each), "steady": "yes" if is_steady(each, found.steady) else "no"}
        for each in found.windows
    ]
    return [
        Text(f"\nWindows of {found.window_s:g} s", style="bold"),
        table(rows, _WINDOWS, console().width),
        Text(soak_sentence(found)),
    ]


def _interval(row: Row) -> str:
    low, high = row.get("p50_low_ms"), row.get("p50_high_ms")
    if low is None or high is None:
        return ""
    return f"{three_digits(low)} to {three_digits(high)}"


_WINDOWS = (
    Column(title="FROM s", of=lambda row: f"{row['begin_s']:.1f}", right=True),
    Column(title="p50 ms", of=digits_field("p50_ms"), right=True, whole=True),
    Column(title="95 %", of=_interval, right=True),
    Column(title="p99 ms", of=digits_field("p99_ms"), right=True),
    Column(title="J", of=digits_field("energy_j"), right=True, always=False),
    Column(title="°C", of=digits_field("temperature_c"), right=True),
    Column(title="MHz", of=digits_field("clock_mhz"), right=True),
    Column(title="THROTTLED", of=lambda row: plain(row.get("throttled"))),
    Column(title="STEADY", of=field("steady"), whole=True),
)
