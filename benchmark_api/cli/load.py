"""A load by LoadGen's rules, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import Column, Row, console, plain, table, three_digits
from edgeyard.benchmark_api.figures.load import load_sentence
from edgeyard.benchmark_api.schemas.answers import LoadResult, as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType


def load_table(found: LoadResult) -> list[RenderableType]:
    """Return a row for each trial, and what they show together."""
    from rich.text import Text

    return [
        Text("\nTrials by LoadGen's rules", style="bold"),
        table([as_json(each) for each in found.trials], _TRIALS, console().width),
        Text(load_sentence(found)),
    ]


def _number(name: str) -> Callable[[Row], str]:
    return lambda row: three_digits(row[name])


def _kept(row: Row) -> str:
    return "invalid" if row["valid"] is False else plain(row["kept"])


_TRIALS = (
    Column(title="RATE/s", of=_number("rate"), right=True, whole=True),
    Column(title="QUERIES", of=lambda row: plain(row["nb_inference"]), right=True, whole=True),
    Column(title="KEPT", of=_kept, whole=True),
    Column(title="LATE", of=lambda row: plain(row["late"]), right=True, whole=True),
    Column(title="p50 ms", of=_number("p50_ms"), right=True, whole=True),
    Column(title="p90 ms", of=_number("p90_ms"), right=True, whole=True),
    Column(title="p99 ms", of=_number("p99_ms"), right=True, whole=True),
    Column(title="QUEUE", of=lambda row: plain(row["queue_max"]), right=True, whole=True),
    Column(title="LATENESS", of=_number("generator_late_ms"), right=True, whole=True),
)
