"""The real LoadGen as the peer of the loads that are written by its rules, at a fixed rate."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from edgeyard.devices.runner.conditions import Watch
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.load import arrivals_s, load
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


def by_loadgen(folder: Path) -> tuple[dict[str, float], list[float]]:
    """Run LoadGen's server scenario on one worker; its summary, and when it issued queries."""
    waiting: deque[int] = deque()
    ready = threading.Semaphore(0)
    issued: list[float] = []
    model = Sleeping()

    def work() -> None:
        while True:
            ready.acquire()
            if not waiting:
                return
            query = waiting.popleft()
            model.run({})
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
    return found, issued


def test_p90_and_p99_of_a_server_load_are_those_of_loadgen(tmp_path: Path) -> None:
    theirs, issued = by_loadgen(tmp_path)
    rules = LoadRules(
        kind=SERVER, percentile=99.0, duration_s=0.1, bound_s=1.0, rate=RATE, seed=SEED
    )
    ours = load(
        Sleeping(),
        {"x": np.ones(1, np.float32)},
        lambda: Watch(threads=1),
        lambda percent, phase: None,
        rules=rules,
        min_runs=QUERIES,
        max_s=60.0,
    ).as_json()["result"]
    assert isinstance(ours, Mapping)
    assert ours["nb_inference"] == len(issued) == QUERIES
    gaps = np.diff(issued)
    expected = np.diff(arrivals_s(RATE, QUERIES, SEED))
    assert np.median(np.abs(gaps - expected)) < 0.001, "the same arrivals"
    for share, name in (("90.00", "p90"), ("99.00", "p99")):
        low, high = ours[f"{name}_low_ms"], ours[f"{name}_high_ms"]
        assert low <= theirs[share] <= (high or 1e3), (name, theirs, ours)
