"""The p50 of runs that are confined against that of runs that are not, in turn.

Each measurement is a runner process of its own, as in real life; only the ``sandbox`` differs.
``EDGEYARD_BENCH_REPEATS=4`` makes it shorter, or longer.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.models import light, ncnn_squeezenet
from benchmarks.tables import Row, median, median_interval
from edgeyard.benchmark_api.sdk.model_folder import with_weights

NETWORKS = (("squeezenet", "ort"), ("shufflenet", "ort"), ("squeezenet", "ncnn"))
"""With their engines."""

ALTERNATIONS = 24


def run() -> list[Row]:
    """Two rows a network: its p50, and how long the whole run takes."""
    return [row for network, engine in NETWORKS for row in _rows(network, engine)]


def _rows(network: str, engine: str) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder:
        made = light(network) if engine == "ort" else ncnn_squeezenet(Path(folder))
        model = with_weights(made).read_bytes()
    alternations = int(os.environ.get("EDGEYARD_BENCH_REPEATS") or ALTERNATIONS)
    found: dict[str, list[tuple[float, float]]] = {"auto": [], "off": []}
    method = ""
    for turn in range(alternations + 1):
        # Who comes first changes, so that a drift of the machine hits both alike.
        for mode in ("auto", "off") if turn % 2 else ("off", "auto"):
            report, seconds = _measured(model, engine, mode)
            if mode == "auto":
                method = report["confinement"]["method"]
            if turn:
                found[mode].append((report["inference_latency"]["p50"], seconds))
    pairs = list(zip(found["auto"], found["off"], strict=True))
    rows = []
    for index, what, unit in ((0, "p50", "ms"), (1, "whole run", "s")):
        ratio, low, high = median_interval([ours[index] / other[index] for ours, other in pairs])
        rows.append(
            Row(
                f"{what} {network}{'' if engine == 'ort' else f' {engine}'}, confined",
                median([ours[index] for ours, _ in pairs]),
                unit,
                median([other[index] for _, other in pairs]),
                ratio,
                f"by {method}; peer: the same, unconfined; {alternations} alternations; 95 % "
                f"interval of the median ratio {low:.4f}-{high:.4f}",
            )
        )
    return rows


def _measured(model: bytes, engine: str, mode: str) -> tuple[Mapping[str, Any], float]:
    """The report of one runner process on one CPU, and how long it took."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as name:
        folder = Path(name) / "local"
        folder.mkdir()
        (folder / "model").write_bytes(model)
        spec = {
            "version": 1,
            "benchmark_id": "sandbox",
            "job_id": "sandbox",
            "engine": engine,
            "benchmark_type": "TYPE1",
            "model": {"filename": "model"},
            "user_time_s": 600,
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        board = {
            "target_uid": "bench-0001-0001",
            "family": "bench",
            "cpus": [min(os.sched_getaffinity(0))],
            "threads": 1,
            "ram_bytes": 2 << 30,
            "sandbox": {"mode": mode},
        }
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "edgeyard.devices.runner"],
            env={**os.environ, "NOMAD_TASK_DIR": str(folder), "EDGEYARD_BOARD": json.dumps(board)},
            cwd=name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=660,
        )
        seconds = time.monotonic() - began
        report: Mapping[str, Any] = json.loads((folder / "results" / "report.json").read_bytes())
        assert report["status"] == "ok", report["failure"]
        return report, seconds
