"""A recorded series: one small model, measured again and again on one machine by the runner.

``python -m benchmarks.series_noise 100`` measures a hundred points more and adds them to
``benchmarks/data/series_noise.json``, with the conditions of each. Two seconds a point.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_repeat import chain, measured

DATA = Path(__file__).parent / "data/series_noise.json"
_SIZE, _LINKS, _RUNS = 96, 4, 300


def recorded() -> NDArray[np.float64]:
    """Return the logarithms of the recorded numbers, in the order of time."""
    points = json.loads(DATA.read_text())["points"]
    return np.log([each["p50_ms"] for each in points])


def record(count: int) -> None:
    """Measure further points of the series, and store each at once."""
    known = json.loads(DATA.read_text()) if DATA.exists() else {"points": []}
    model = chain(_SIZE, _LINKS)
    for _ in range(count):
        report = measured(model, nb_inference=_RUNS)
        conditions = report["conditions"]
        known["points"].append(
            {
                "started_at": report.get("started_at"),
                "p50_ms": report["inference_latency"]["p50"],
                "other_load": conditions.get("other_load"),
                "load_average": round(os.getloadavg()[0], 2),
                "verdict": report["verdict"]["verdict"],
            }
        )
        known["conditions"] = {
            "model": f"{_LINKS} matrix products of {_SIZE} x {_SIZE}, float32",
            "engine": f"ort {report['engine_facts']['version']}",
            "runs": _RUNS,
            "machine": f"{os.cpu_count()} cores shared with other work, {platform.machine()}",
            "cpu": report["board"].get("cpu_model") or platform.processor(),
            "kernel": report["board"].get("kernel"),
        }
        DATA.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    record(int(sys.argv[1]))
