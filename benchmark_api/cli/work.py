"""What results measured, in tables: the parts that differ and those that are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output import Column, Row, note

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
}


def difference_columns(differing: Sequence[str]) -> list[Column]:
    """Return a column for each part of the workload that differs between rows."""
    from edgeyard.benchmark_api.sdk.comparison import workload_text

    return [
        Column(
            title=_HEADINGS[name],
            of=partial(workload_text, name=name),
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
        workload_text(rows[0], name)
        for name in WORKLOAD
        if name not in differing and name != "model_sha256"
    ]
    return [note("all", " · ".join(filter(None, same)))] if any(same) else []
