"""Edgeyard on a real Nomad: rates, latencies between jobs, the twin's size, the plugin's cost."""

import tempfile
from pathlib import Path

from benchmarks.nomad import rates
from benchmarks.tables import Row


def run() -> list[Row]:
    """All groups, each on a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder:
        return rates.run(Path(folder))
