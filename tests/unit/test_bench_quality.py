"""The figures of decisions' quality: ratios, their intervals and what they are compared on."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bench_quality
from benchmarks.bench_quality import Lab, ratio_interval, row


def test_a_ratio_is_of_sums_and_its_interval_is_of_pairs() -> None:
    peer = np.array([100.0, 200.0, 50.0, 400.0])
    assert ratio_interval((0.8 * peer).tolist(), peer.tolist()) == pytest.approx((0.8, 0.8, 0.8))
    rng = np.random.default_rng(0)
    base = rng.uniform(50.0, 500.0, 40)
    ours = base * rng.normal(0.9, 0.05, 40)
    ratio, low, high = ratio_interval(ours.tolist(), base.tolist())
    assert low < ratio < high
    assert high - low < 0.06  # of pairs: the seeds themselves differ by a factor of ten


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
