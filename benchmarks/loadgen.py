"""LoadGen's server scenario: the peer of the loads that the runner generates by its rules."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOUND_NS = 10**10
"""No query takes so long: the bound has no part in the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGenRun:
    """A run of LoadGen; times are those of `time.perf_counter`, in the order of the queries.

    Attributes:
        percentiles_ms: Latencies by the percentile as LoadGen writes it: ``99.00``.
        issued_s: When each query was issued.
        begun_s: When its inference began.
        ended_s: When its inference ended.
    """

    percentiles_ms: dict[str, float]
    issued_s: list[float]
    begun_s: list[float]
    ended_s: list[float]


def server_run(
    infer: Callable[[], object], folder: Path, *, rate: float, seed: int, queries: int
) -> LoadGenRun:
    """Run the server scenario on one worker, which serves queries in the order of arrival.

    Args:
        infer: Serves a query.
        folder: For LoadGen's logs.
        rate: Queries per second.
        seed: Of the arrivals.
        queries: How many there are.

    Raises:
        ImportError: mlcommons-loadgen is not installed; it has no wheel for aarch64.
    """
    import mlperf_loadgen as loadgen

    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    issued_s: list[float] = []
    begun_s: list[float] = []
    ended_s: list[float] = []

    def work() -> None:
        while (query := waiting.get()) is not None:
            begun_s.append(time.perf_counter())
            infer()
            ended_s.append(time.perf_counter())
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query, 0, 0)])

    def issue(samples: Any) -> None:
        issued_s.append(time.perf_counter())
        for each in samples:
            waiting.put(each.id)

    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.Server
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = _BOUND_NS
    settings.server_target_latency_percentile = 0.99
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0
    settings.schedule_rng_seed = seed
    logs = loadgen.LogSettings()
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = False
    sut = loadgen.ConstructSUT(issue, lambda: None)
    qsl = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
    worker = threading.Thread(target=work, name="worker")
    worker.start()
    try:
        loadgen.StartTestWithLogSettings(sut, qsl, settings, logs)
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
        waiting.put(None)
        worker.join()
    summary = (folder / "mlperf_log_summary.txt").read_text()
    found = re.findall(r"([0-9.]+) percentile latency \(ns\)\s*: (\d+)", summary)
    return LoadGenRun(
        percentiles_ms={percentile: int(value) / 1e6 for percentile, value in found},
        issued_s=issued_s,
        begun_s=begun_s,
        ended_s=ended_s,
    )
