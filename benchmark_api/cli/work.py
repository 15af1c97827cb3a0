"""What results measured, in tables: the parts that differ and those that are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import Column, Row, field, note, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADINGS = {
    "model_sha256": "CONTENT",
    "dataset_sha256": "DATASET",
    "benchmark_type": "TYPE",
    "engine": "ENGINE",
    "engine_version": "VERSION",
    "parameters": "PARAMETERS",
    "inputs": "INPUTS",
    "batch_size": "BATCH",
    "training": "TRAINING",
    "load": "LOAD",
    "metric": "METRIC",
}


GROUP = Column(title="GROUP", of=field("group"), right=True, whole=True)
"""Rows of one group did the same work."""

_OTHER_COLUMNS = 62
"""Width of the columns next to those of the work."""


def work_columns(
    rows: Sequence[Row], differing: Sequence[str], width: int
) -> tuple[list[Column], list[RenderableType]]:
    """Return columns for the parts of the workload that differ, or remarks where they do not fit.

    Args:
        rows: With their ``group``.
        differing: The parts.
        width: Of the table.

    Returns:
        The columns, and a remark on each group with the parts that have no column.
    """
    from edgeyard.benchmark_api.sdk.comparison import workload_text

    columns = difference_columns(differing)
    needed = sum(
        2 + max([len(column.title), *(len(column.of(row)) for row in rows)]) for column in columns
    )
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(plain(row.get("group")), []).append(row)
    if needed <= width - _OTHER_COLUMNS or len(groups) < 2:
        return columns, []
    inside = [
        name
        for name in differing
        if any(len({workload_text(row, name) for row in group}) > 1 for group in groups.values())
    ]
    remarks: list[RenderableType] = []
    for number, (first, *_) in groups.items():
        texts = {name: workload_text(first, name) for name in differing if name not in inside}
        parts = [named_text(name, text) for name, text in texts.items() if text]
        remarks.append(note(f"group {number}", " · ".join(parts)))
    return difference_columns(inside), remarks


_NAMES = {"model_sha256": "content", "dataset_sha256": "dataset", "batch_size": "batch size"}
"""What parts are called that do not say what they are."""


def named_text(name: str, text: str) -> str:
    """Return a part of the workload in words, with its name where the words do not say it."""
    return f"{_NAMES.get(name, '')} {text}".strip()


def column_text(row: Row, name: str) -> str:
    """Return a part of a row's workload for a column that has its name."""
    from edgeyard.benchmark_api.sdk.comparison import workload_text

    text = workload_text(row, name)
    return text.removeprefix("version ") if name == "engine_version" else text


def difference_columns(differing: Sequence[str]) -> list[Column]:
    """Return a column for each part of the workload that differs between rows."""
    return [
        Column(
            title=_HEADINGS[name],
            of=partial(column_text, name=name),
            whole=name == "model_sha256",
        )
        for name in differing
    ]


def shared_work(rows: Sequence[Row], differing: Sequence[str]) -> list[RenderableType]:
    """Return a remark with the parts of the workload that several rows have in common."""
    from edgeyard.benchmark_api.sdk.comparison import WORKLOAD, workload_text

    if len(rows) < 2:
        return []
    same = [
        named_text(name, text)
        for name in WORKLOAD
        if name not in differing and name != "model_sha256"
        if (text := workload_text(rows[0], name))
    ]
    return [note("all", " · ".join(same))] if same else []
