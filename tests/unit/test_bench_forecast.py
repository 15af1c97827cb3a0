"""Figures of forecasts come with intervals over parts that are drawn as a whole."""

import numpy as np
import pytest

from benchmarks.bench_forecast import drawn_parts, forecast_rows, interval_scores
from benchmarks.shifted_queues import Change, simulated_lab


def test_runs_of_one_part_are_one_observation() -> None:
    values, peers = np.repeat([1.0, 3.0], 500), np.full(1000, 2.0)
    parts = ["a"] * 500 + ["b"] * 500
    (low, high), (ratio_low, ratio_high) = drawn_parts(values, peers, parts)
    assert (low, high) == (1.0, 3.0)
    assert (ratio_low, ratio_high) == (0.5, 1.5)
    (low, high), _ = drawn_parts(values, peers, [str(row) for row in range(1000)])
    assert high - low < 0.4


def test_the_interval_score_is_that_of_its_definition() -> None:
    x = np.array([0.0, -1.0, 3.0])
    found = interval_scores(x, np.zeros(3), np.ones(3))
    assert found == pytest.approx([1.0, 1.0 + 10.0, 1.0 + 20.0])


def test_a_row_says_where_the_peer_is_significantly_better() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000)
    parts = [str(row // 20) for row in range(2000)]
    good = np.full(2000, -1.28), np.full(2000, 1.28)
    wide = np.full(2000, -4.0), np.full(2000, 4.0)
    rows = {row.name: row for row in forecast_rows("log", x, wide, good, parts, "a note")}
    assert set(rows) == {"log: coverage of 80 %", "log: mean width", "log: interval score"}
    assert "significantly worse than the peer" in rows["log: interval score"].note
    assert all("95 %: " in row.note and "ratio " in row.note for row in rows.values())
    rows = {row.name: row for row in forecast_rows("log", x, good, wide, parts, "a note")}
    assert "significantly worse" not in rows["log: interval score"].note
    assert rows["log: interval score"].ratio == pytest.approx(3.5 / 8.0, rel=0.05)


def test_a_row_says_which_bound_it_misses() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000)
    parts = [str(row // 20) for row in range(2000)]
    good = np.full(2000, -1.28), np.full(2000, 1.28)
    narrow = np.full(2000, -0.8), np.full(2000, 0.8)
    for ours, bounds, coverage_missed, score_missed in (
        (good, {}, False, False),
        (narrow, {}, True, False),
        (narrow, {"min_coverage": 0.7, "max_ratio": 1.1}, True, True),
        (narrow, {"min_coverage": 0.5, "max_ratio": 1.5}, False, False),
    ):
        coverage, _, score = forecast_rows("log", x, ours, good, parts, "a note", **bounds)
        assert ("MISSED" in coverage.note) is coverage_missed
        assert ("MISSED" in score.note) is score_missed


def test_a_queue_that_changes_is_simulated_alike_each_time() -> None:
    starts, ends = simulated_lab(Change.BOARDS, 3, submitted=24)
    again, _ = simulated_lab(Change.BOARDS, 3, submitted=24)
    assert np.array_equal(starts.ours, again.ours)
    assert len(ends.came) == 12
    assert (ends.ours[0] <= ends.ours[1]).all()
    assert (ends.plain[0] <= ends.plain[1]).all()
