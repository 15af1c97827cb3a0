"""The real LoadGen as the peer of the loads that are written by its rules, at a fixed rate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.loadgen import server_run
from edgeyard.devices.runner.arrivals import arrivals_s
from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.load import Trial, load
from edgeyard.devices.runner.spec import SERVER, LoadRules

pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen has no wheel for this machine")

pytestmark = pytest.mark.loadgen

RATE, SEED, QUERIES, SERVICE_S = 120.0, 7, 700, 0.005


class Sleeping:
    """A model that takes 5 ms, whatever the machine does besides."""

    inputs = (TensorSpec("x", (1,), "float32"),)
    outputs = (TensorSpec("y", (1,), "float32"),)
    facts: Mapping[str, object] = MappingProxyType({})

    def run(self, feeds: object) -> Sequence[Any]:
        time.sleep(SERVICE_S)
        return [np.ones(1, np.float32)]


def test_p90_and_p99_of_a_server_load_are_those_of_loadgen(tmp_path: Path) -> None:
    model = Sleeping()
    theirs = server_run(lambda: model.run({}), tmp_path, rate=RATE, seed=SEED, queries=QUERIES)
    rules = LoadRules(
        kind=SERVER, percentile=99.0, duration_s=0.1, bound_s=1.0, rate=RATE, seed=SEED
    )
    expected = arrivals_s(RATE, QUERIES, SEED)
    gaps = np.abs(np.diff(theirs.issued_s) - np.diff(expected))
    assert np.median(gaps) < 0.001, "the same arrivals"
    # By the times of this very run: in a second one the machine's other work would be another.
    first = min(np.array(theirs.issued_s) - expected)
    begun, ended = (
        (1e9 * (np.array(each) - first)).astype(np.int64)
        for each in (theirs.begun_s, theirs.ended_s)
    )
    ours = Trial(
        rules=rules,
        rate=RATE,
        planned=QUERIES,
        due_ns=(1e9 * expected).astype(np.int64),
        start_ns=begun,
        end_ns=ended,
        ended="complete",
        conditions=cast(Any, None),
    ).report
    assert ours["nb_inference"] == QUERIES
    for share, name in (("90.00", "p90"), ("99.00", "p99")):
        low, high = (
            cast(float, ours[f"{name}_low_ms"]),
            cast("float | None", ours[f"{name}_high_ms"]),
        )
        assert low <= theirs.percentiles_ms[share] <= (high or 1e3), (
            name,
            theirs.percentiles_ms,
            ours,
        )


def test_a_run_has_the_queries_of_loadgen() -> None:
    rules = LoadRules(
        kind=SERVER, percentile=99.0, duration_s=0.1, bound_s=1.0, rate=RATE, seed=SEED
    )
    found = load(
        Sleeping(),
        {"x": np.ones(1, np.float32)},
        lambda: Watch(threads=1),
        lambda percent, phase: None,
        rules=rules,
        min_runs=QUERIES,
        max_s=60.0,
    ).as_json()["result"]
    assert isinstance(found, Mapping)
    assert (found["nb_inference"], found["ended"]) == (QUERIES, "complete")
    assert found["p50_ms"] >= 1e3 * SERVICE_S
    assert found["duration_s"] >= arrivals_s(RATE, QUERIES, SEED)[-1]
