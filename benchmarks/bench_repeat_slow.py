"""The same as ``bench-repeat`` for a model of more than two seconds an inference."""

from benchmarks.bench_repeat import run_slow
from benchmarks.tables import Row


def run() -> list[Row]:
    """One row."""
    return run_slow()
