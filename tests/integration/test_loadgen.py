"""The real LoadGen as the peer of the loads that are written by its rules, at a fixed rate."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.load import Trial, arrivals_s, load
from edgeyard.devices.runner.spec import SERVER, LoadRules

loadgen: Any = pytest.importorskip(
    "mlperf_loadgen", reason="mlcommons-loadgen has no wheel for this machine"
)

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


class Seen(NamedTuple):
    """A run of LoadGen: its percentiles, ms, and when each query was issued, begun and ended, s."""

    percentiles: dict[str, float]
    issued: list[float]
    begun: list[float]
    ended: list[float]


def by_loadgen(folder: Path) -> Seen:
    """Run LoadGen's server scenario on one worker."""
    waiting: deque[int] = deque()
    ready = threading.Semaphore(0)
    issued: list[float] = []
    begun: list[float] = []
    ended: list[float] = []
    model = Sleeping()

    def work() -> None:
        while True:
            ready.acquire()
            if not waiting:
                return
            query = waiting.popleft()
            begun.append(time.perf_counter())
            model.run({})
            ended.append(time.perf_counter())
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query, 0, 0)])

    def issue(samples: Any) -> None:
        issued.append(time.perf_counter())
        for each in samples:
            waiting.append(each.id)
            ready.release()

    worker = threading.Thread(target=work)
    worker.start()
    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.Server
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = RATE
    settings.server_target_latency_ns = 10**9
    settings.server_target_latency_percentile = 0.99
    settings.min_query_count = settings.max_query_count = QUERIES
    settings.min_duration_ms = 0
    settings.schedule_rng_seed = SEED
    logs = loadgen.LogSettings()
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = False
    sut = loadgen.ConstructSUT(issue, lambda: None)
    qsl = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
    try:
        loadgen.StartTestWithLogSettings(sut, qsl, settings, logs)
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
        ready.release()
        worker.join()
    summary = (folder / "mlperf_log_summary.txt").read_text()
    found = {
        share: int(value) / 1e6
        for share, value in re.findall(r"([0-9.]+) percentile latency \(ns\)\s*: (\d+)", summary)
    }
    return Seen(found, issued, begun, ended)


def test_p90_and_p99_of_a_server_load_are_those_of_loadgen(tmp_path: Path) -> None:
    theirs = by_loadgen(tmp_path)
    rules = LoadRules(
        kind=SERVER, percentile=99.0, duration_s=0.1, bound_s=1.0, rate=RATE, seed=SEED
    )
    expected = arrivals_s(RATE, QUERIES, SEED)
    gaps = np.abs(np.diff(theirs.issued) - np.diff(expected))
    assert np.median(gaps) < 0.001, "the same arrivals"
    # By the times of this very run: in a second one the machine's other work would be another.
    first = min(np.array(theirs.issued) - expected)
    begun, ended = (
        (1e9 * (np.array(each) - first)).astype(np.int64) for each in (theirs.begun, theirs.ended)
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
        assert low <= theirs.percentiles[share] <= (high or 1e3), (name, theirs.percentiles, ours)


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
