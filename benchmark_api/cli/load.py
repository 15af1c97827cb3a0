"""A load by LoadGen's rules, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import Column, Row, console, digits_field, plain, table
from edgeyard.benchmark_api.figures.load import load_sentence
from edgeyard.benchmark_api.schemas.answers import LoadResult, as_json

if TYPE_CHECKING:
    from rich.console import RenderableType


def load_table(found: LoadResult) -> list[RenderableType]:
    """Return a row for each trial, by rate, and what they show together."""
    from rich.text import Text

    trials = sorted(found.trials, key=lambda each: each.rate or 0.0)
    return [
        Text("\nTrials by LoadGen's rules", style="bold"),
        table([as_json(each) for each in trials], _TRIALS, console().width),
        Text(load_sentence(found)),
    ]


def _kept(row: Row) -> str:
    return "invalid" if row["valid"] is False else plain(row["kept"])


_TRIALS = (
    Column(title="RATE/s", of=digits_field("rate"), right=True, whole=True, always=False),
    Column(title="QUERIES", of=lambda row: plain(row["nb_inference"]), right=True, whole=True),
    Column(title="KEPT", of=_kept, whole=True, always=False),
    Column(
        title="LATE",
        of=lambda row: plain(row["late"]),
        right=True,
        whole=True,
        always=False,
    ),
    Column(title="p50 ms", of=digits_field("p50_ms"), right=True, whole=True),
    Column(title="p90 ms", of=digits_field("p90_ms"), right=True, whole=True),
    Column(title="p99 ms", of=digits_field("p99_ms"), right=True, whole=True),
    Column(
        title="MAX QUEUE",
        of=lambda row: plain(row["queue_max"]),
        right=True,
        whole=True,
        always=False,
    ),
    Column(
        title="SENT LATE ms",
        of=digits_field("generator_late_ms"),
        right=True,
        whole=True,
        always=False,
    ),
)
"""``LATE`` counts queries, ``MAX QUEUE`` the queries that waited, and the last column is how late
the generator was at the percentile that counts."""
