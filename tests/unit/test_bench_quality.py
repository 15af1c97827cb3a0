"""The figures of decisions' quality: ratios, their intervals and what they are compared on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks import bench_quality
from benchmarks.bench_quality import Lab, random_comparisons, ratio_interval, row
from benchmarks.random_labs import LabFigures, random_lab


def test_a_ratio_is_of_sums_and_its_interval_is_of_pairs() -> None:
    peer = np.array([100.0, 200.0, 50.0, 400.0])
    assert ratio_interval((0.8 * peer).tolist(), peer.tolist()) == pytest.approx((0.8, 0.8, 0.8))
    rng = np.random.default_rng(0)
    base = rng.uniform(50.0, 500.0, 40)
    ours = base * rng.normal(0.9, 0.05, 40)
    ratio, low, high = ratio_interval(ours.tolist(), base.tolist())
    assert low < ratio < high
    assert high - low < 0.06  # of pairs: the seeds themselves differ by a factor of ten


def test_random_labs_are_small_and_the_same_each_time() -> None:
    labs = [random_lab(number) for number in range(1, 61)]
    pinned = []
    assert labs[:3] == [random_lab(number) for number in (1, 2, 3)]
    for each in labs:
        assert each.lab is not None
        boards = Counter[str]()
        for group in each.lab.boards:
            boards[group.family] += group.count
            assert 0.2 <= group.speed <= 6.0
        assert 1 <= len(boards) <= 4
        assert max(boards.values()) <= 9
        assert each.lab.arrivals is not None
        for kind in each.lab.arrivals.mix:
            assert 2.0 <= kind.run_s <= 1200.0
            pinned.append(kind.pinned_share > 0.0)
    assert any(pinned)
    assert not all(pinned)


def test_rows_of_random_labs_state_whether_their_bounds_hold() -> None:
    def figures(turnaround_s: list[float], wait_s: list[float]) -> LabFigures:
        return LabFigures(
            turnaround_s=np.array(turnaround_s),
            p99_wait_s=np.array(wait_s),
            long_wait_s=np.array(wait_s),
            completed=np.array([60, 60]),
        )

    found = {
        "default": figures([90.0, 9.0], [50.0, 1.0]),
        "priority_age": figures([120.0, 12.0], [40.0, 1.0]),
        "min_min": figures([100.0, 10.0], [0.0, 0.0]),
        "f1": figures([100.0, 9.0], [0.0, 0.0]),
        "sjf": figures([80.0, 12.0], [0.0, 0.0]),
        "mct": figures([91.0, 9.0], [0.0, 0.0]),
    }
    rows = {each.name: each for each in random_comparisons(found)}
    assert rows["random labs min_min"].ratio == pytest.approx(0.9)
    assert rows["random labs min_min"].note.endswith("holds")
    assert rows["random labs f1"].note.endswith("MISSED")  # the interval reaches 1
    assert rows["random labs mct"].note.endswith("MISSED")
    assert rows["random labs above best"].value == 0.5
    assert rows["random labs p99 wait"].ratio == pytest.approx(51.0 / 41.0)
    assert rows["random labs p99 wait"].note.endswith("at most 1: MISSED")
    assert rows["random labs long runs wait"].note.endswith("at most 1.5: holds")


@pytest.mark.slow
def test_policies_meet_the_same_benchmarks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_quality, "SIZES", {20: (2, 1800.0)})
    bench_quality.runs.cache_clear()
    first, second = (bench_quality.runs(Lab(20), each) for each in ("default", "least_loaded"))
    progress = capsys.readouterr().err.splitlines()
    assert [each.split(",")[:2] for each in progress] == [
        ["20 boards", f" {policy}: seed {seed} of 2"]
        for policy in ("default", "least_loaded")
        for seed in (1, 2)
    ]
    for ours, peer in zip(first, second, strict=True):
        assert ours.seed == peer.seed
        assert ours.jobs.submit_s.tolist() == peer.jobs.submit_s.tolist()
    found = row("completion default 20", Lab(20), "default", "least_loaded", at_most=0.85)
    assert found.ratio is not None
    assert found.ratio < 1.0
    assert "2 seeds" in found.note
    assert found.note.endswith("holds" if found.ratio <= 0.85 else "MISSED")
    same = row("same", Lab(20), "default", "default")
    assert same.ratio == 1.0
    assert same.note.endswith("holds")
    assert row("same", Lab(20), "default", "default", at_most=None).note.endswith("benchmarks")
    bench_quality.runs.cache_clear()
