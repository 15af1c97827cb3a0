"""The times of a model's layers, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import (
    MARKS,
    Column,
    Row,
    console,
    field,
    marked,
    plain,
    table,
    three_digits,
)
from edgeyard.benchmark_api.schemas.answers import LayerProfile, as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

SHOWN = 10
"""Layers and operators that are shown, by time."""


def layer_tables(found: LayerProfile, verdict: str = "") -> list[RenderableType]:
    """Return the layers and the operators that take longest, and how the profile was taken.

    Args:
        found: The profile.
        verdict: On the run: it marks the times, because the profile was taken right after it.
    """
    from rich.text import Text

    width = console().width
    raw, whole_ms = as_json(found), found.profiled_p50_ms
    for each in (*raw["layers"], *raw["operators"]):
        each["verdict"] = verdict
        each["of_run"] = each["time_ms"] / whole_ms if whole_ms > 0 else None
    layers, operators = found.layers[:SHOWN], found.operators[:SHOWN]
    overhead = "" if found.overhead is None else f", {found.overhead:+.0%} against the timed runs"
    sentence = (
        f"{found.runs} profiled runs, p50 {three_digits(whole_ms)} ms{overhead}; "
        f"{three_digits(found.outside_ms)} ms of a run are in no layer"
    )
    if whole_ms > 0:
        sentence += f", {found.outside_ms / whole_ms:.0%} of it"
    if any(each.time_ms == 0 for each in layers):
        sentence += "; a time of 0 is less than the engine's clock can show"
    providers = ", ".join(f"{each.provider} {each.share:.0%}" for each in found.providers)
    return [
        Text(f"\nLayers that take longest ({len(layers)} of {found.count})", style="bold"),
        table(raw["layers"][:SHOWN], _LAYERS, width),
        Text(f"\nOperators ({len(operators)} of {len(found.operators)})", style="bold"),
        table(raw["operators"][:SHOWN], _OPERATORS, width),
        Text(f"\nby provider: {providers}"),
        Text(sentence),
    ]


def _share(name: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        value, mark = row.get(name), MARKS.get(plain(row.get("verdict")), "")
        return f"{value:.1%}{mark}" if isinstance(value, int | float) else ""

    return text


_TIME = (
    Column(title="ms", of=marked("time_ms"), right=True),
    Column(title="OF THE RUN", of=_share("of_run"), right=True, whole=True),
    Column(title="OF LAYERS", of=_share("share"), right=True, whole=True),
)

_LAYERS = (
    Column(title="LAYER", of=field("name"), shorten=True),
    Column(title="OPERATOR", of=field("operator"), whole=True),
    Column(
        title="PROVIDER",
        of=lambda row: plain(row.get("provider")).removesuffix("ExecutionProvider"),
        whole=True,
    ),
    *_TIME,
)

_OPERATORS = (
    Column(title="OPERATOR", of=field("operator"), whole=True),
    Column(title="LAYERS", of=field("layers"), right=True),
    *_TIME,
)
