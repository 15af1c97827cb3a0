"""The benchmark of growth in a short form: some days instead of a year."""

from __future__ import annotations

import pytest

from benchmarks import bench_growth


@pytest.mark.slow
def test_a_later_day_costs_about_what_an_early_one_costs() -> None:
    rows = {
        row.name: row
        for row in bench_growth.run(
            days=30, peer_days=3, per_day=20, block=10, kept_days=10, submissions=10
        )
    }
    assert set(rows) == {"bytes per benchmark", "cycle p99", "submit p99 while pruning"}
    assert all(row.peer is not None and row.ratio is not None for row in rows.values())
    # Pages are 4 KiB, and there are few benchmarks; times are for a machine that does nothing else.
    size = rows["bytes per benchmark"]
    assert 0 < size.value < 40_000
    assert size.ratio is not None
    assert size.ratio < 1.6
