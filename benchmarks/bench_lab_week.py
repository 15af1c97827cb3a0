"""A simulated week of a large lab, decisions only: 1,000 boards and 100,000 benchmarks."""

from benchmarks.lab_days import lab_day
from benchmarks.tables import Row


def run() -> list[Row]:
    """One row, which takes minutes."""
    return [lab_day("lab week", boards=1000, jobs=100_000, days=7.0)]
