"""``results --history``: one model's results over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    emit,
    field,
    local_time,
    marked,
    not_shown_to_differ,
    plain,
    ratio_text,
    when,
)
from edgeyard.benchmark_api.cli.plot import COLOURS
from edgeyard.benchmark_api.cli.program import Session
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.comparison import WORKLOAD, ratio_of, workload_text
from edgeyard.benchmark_api.sdk.errors import MissingExtra
from edgeyard.benchmark_api.sdk.fields import number, record
from edgeyard.errors import InvalidInput

_COLUMNS = (
    Column(title="ENDED", of=lambda row: local_time(row.get("ended_at")), whole=True),
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True, from_width=100),
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="CONTENT", of=lambda row: workload_text(row, "model_sha256"), whole=True),
    Column(title="ENGINE", of=lambda row: workload_text(row, "engine_version"), from_width=110),
    Column(title="P50 ms", of=marked("p50_ms"), right=True, whole=True),
    Column(
        title="TO PREVIOUS (95 %)",
        of=ratio_text,
        style=not_shown_to_differ,
        right=True,
        whole=True,
    ),
    Column(title="VERDICT", of=field("verdict"), from_width=100),
)


def show_history(
    session: Session,
    model: str,
    board: str | None,
    since: str | None,
    benchmark_type: str | None,
    plot: Path | None,
) -> None:
    """Show a model's results in the order of time, each against the one before it.

    Raises:
        InvalidInput: The model has no results there.
    """
    found = session.client.list(
        model=model,
        target_uid=board,
        status="completed",
        benchmark_type=benchmark_type,
        submitted_from=asking.past(since, "--since"),
    )
    ids = [one.benchmark_id for one in found]
    rows = over_time([as_json(row) for row in session.client.result_rows(reversed(ids))])
    if not rows:
        where = f" on {board}" if board else ""
        raise InvalidInput.at(
            "--history", f"no completed benchmark of {model!r}{where} has a latency"
        )
    emit(session.output, rows, _COLUMNS, "")
    if plot is not None:
        draw_history(rows, plot)
        session.report(f"wrote {plot}")


def over_time(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the rows with a latency by time, with the ratio to the one before.

    The one before is the last valid one of the same board that did the same work, except that the
    content of the model and the version of the engine may differ: their effect is what a history
    shows.
    """
    ordered = sorted(
        (row for row in rows if row.get("p50_ms")), key=lambda row: plain(row.get("ended_at"))
    )
    last: dict[tuple[str, ...], Row] = {}
    shown = []
    for row in ordered:
        key = (plain(row.get("target_uid")), *_work(row))
        before = last.get(key)
        ratio, low, high = (None, None, None) if before is None else ratio_of(row, before)
        shown.append({**row, "ratio": ratio, "ratio_low": low, "ratio_high": high})
        if row.get("verdict") != "invalid":
            last[key] = row
    return shown


def _work(row: Row) -> list[str]:
    workload = record(row, "workload")
    changing = ("model_sha256", "engine_version")
    return [plain(workload.get(name)) for name in WORKLOAD if name not in changing]


def draw_history(rows: Sequence[Row], path: Path) -> None:
    """Draw the p50 of each result over time, with its interval, a line for each board.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "plot", "a plot") from error
    figure = Figure(figsize=(8.0, 4.8), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault((plain(row.get("target_uid")), *_work(row)), []).append(row)
    for position, line in enumerate(lines.values()):
        _draw_line(axes, line, COLOURS[position % len(COLOURS)])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("latency of one inference, ms")
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"{plain(rows[0].get('model'))} over time (p50, 95 %)", loc="left", fontsize=11)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.autofmt_xdate()
    figure.savefig(path)


def _draw_line(axes: Any, line: Sequence[Row], colour: str) -> None:
    points: list[tuple[datetime, float, float, float]] = []
    for row in line:
        at, p50 = when(row.get("ended_at")), number(row, "p50_ms")
        if at is None or p50 is None:
            continue
        low, high = number(row, "p50_repeat_low_ms"), number(row, "p50_repeat_high_ms")
        if low is None or high is None:
            low, high = number(row, "p50_low_ms"), number(row, "p50_high_ms")
        points.append((at, p50, max(0.0, p50 - (low or p50)), max(0.0, (high or p50) - p50)))
    axes.errorbar(
        [at for at, *_ in points],
        [p50 for _, p50, *_ in points],
        yerr=[[below for *_, below, _ in points], [above for *_, above in points]],
        color=colour,
        marker="o",
        ms=4,
        lw=1.2,
        capsize=3,
        label=f"{plain(line[0].get('target_uid'))} · {plain(line[0].get('runtime'))}",
    )
