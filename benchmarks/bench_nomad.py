"""Edgeyard on a real Nomad: rates, what lies between two jobs, the twin, the plugin."""

import tempfile
from pathlib import Path

from benchmarks.nomad import plugin, rates, turnover, twin
from benchmarks.tables import Row


def run() -> list[Row]:
    """All groups, each with a cluster of its own."""
    rows: list[Row] = []
    for group in (rates, turnover, twin, plugin):
        with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder:
            rows += group.run(Path(folder))
    return rows
