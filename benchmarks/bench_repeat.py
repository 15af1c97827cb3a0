"""How far two numbers of one model on one quiet board lie apart, against what they say themselves.

Each repeat is a runner process of its own, as in real life. Of every two ``comparable`` numbers,
the 95 % interval of their difference should hold 0 in 92 to 98 % of pairs. It is the one that
``edgeyard results`` shows: with the variance between runs, which the other repeats show. The
reports' numbers stay in ``build/bench/repeat-NAME.reports.json``.

``make bench-repeat-tiny``, ``-shufflenet`` and ``-squeezenet`` take about seven minutes each,
``make bench-repeat-slow`` about twenty, each on an otherwise idle machine.
``EDGEYARD_BENCH_REPEATS=10`` makes any of them shorter.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import light
from benchmarks.tables import Row
from edgeyard.scheduler.model.history import RepeatedNumber
from edgeyard.scheduler.prediction.repeatability import (
    Repeatability,
    RunVariation,
    reported_number,
)

REPEATS, SLOW_REPEATS = 200, 30
SLOW_RUNS = 12
SLOW_S = 2.15
_SIZE = 192
"""Of a matrix that fits into a core's cache, which other virtual machines do not share."""

_TRIED_LINKS = 64
_OPSET, _IR_VERSION = 17, 8
_BOARD, _WORK = "bench-0001-0001", "one"


def run(name: str) -> list[Row]:
    """One row: of ``tiny`` (less than 10 µs), a network, or ``slow`` (more than two seconds)."""
    if name == "slow":
        tries = [_p50_s(measured(chain(_SIZE, _TRIED_LINKS))) for _ in range(3)]
        one_s = min(tries) / _TRIED_LINKS
        slow = chain(_SIZE, round(SLOW_S / one_s))
        repeats = _repeats(SLOW_REPEATS)
        return [_row(name, [measured(slow, nb_inference=SLOW_RUNS) for _ in range(repeats)])]
    model = chain(size=4, links=1) if name == "tiny" else light(name).read_bytes()
    return [_row(name, [measured(model) for _ in range(_repeats(REPEATS))])]


def share_of_pairs(reports: Sequence[Mapping[str, Any]]) -> float:
    """Share of all pairs whose interval of the difference holds 0, as the service compares them.

    Each number's variance between runs comes from the others.
    """
    repeated = Repeatability([_repeated(n, one) for n, one in enumerate(reports)])
    variations = [repeated.of(_BOARD, _WORK, without=str(n)) for n in range(len(reports))]
    return _share(reports, variations)


def share_by_own_intervals(reports: Sequence[Mapping[str, Any]]) -> float:
    """As `share_of_pairs`, by what each run knows of itself alone."""
    return _share(reports, [None] * len(reports))


def share_over_time(reports: Sequence[Mapping[str, Any]]) -> float:
    """As `share_of_pairs`, of pairs of the later half, judged by the earlier half alone."""
    half = len(reports) // 2
    repeated = Repeatability([_repeated(n, one) for n, one in enumerate(reports[:half])])
    later = reports[half:]
    return _share(later, [repeated.of(_BOARD, _WORK)] * len(later))


def _share(
    reports: Sequence[Mapping[str, Any]], variations: Sequence[RunVariation | None]
) -> float:
    numbers = [
        reported_number(one, _BOARD, variation)
        for one, variation in zip(reports, variations, strict=True)
    ]
    held = [
        abs(math.log(number.value / other.value)) <= number.ratio_half_width(other)
        for number, other in combinations(numbers, 2)
        if number is not None and other is not None
    ]
    return float(np.mean(held))


def _repeated(n: int, report: Mapping[str, Any]) -> RepeatedNumber:
    measured = reported_number(report, _BOARD)
    return RepeatedNumber(
        benchmark_id=str(n),
        target_uid=_BOARD,
        workload=_WORK,
        value=report["inference_latency"]["p50"],
        error=measured.error if measured is not None else 0.0,
    )


def _row(name: str, reports: list[Mapping[str, Any]]) -> Row:
    file = Path("build/bench") / f"repeat-{name}.reports.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(reports))
    comparable = [one for one in reports if one["verdict"]["verdict"] == "comparable"]
    note = f"{len(comparable)} of {len(reports)} numbers are comparable"
    if len(comparable) < 2:
        return Row(f"{name}: pairs that agree", 0.0, "%", note=note)
    p50 = np.array([one["inference_latency"]["p50"] for one in comparable])
    half = [one["inference_latency"]["p50_ci95_half_width"] for one in comparable]
    note += (
        f"; p50 {np.median(p50):.4g} ms, standard deviation {p50.std(ddof=1) / p50.mean():.2%}, "
        f"range {p50.min():.4g}-{p50.max():.4g}; median half-width {np.median(half):.2%}; "
        f"each judged by the variance between the others; by their own intervals alone "
        f"{share_by_own_intervals(comparable):.1%}, later half judged by the earlier one "
        f"{share_over_time(comparable):.1%}; wanted: 92-98 %"
    )
    return Row(f"{name}: pairs that agree", 100 * share_of_pairs(comparable), "%", note=note)


def measured(model: bytes, **changes: object) -> Mapping[str, Any]:
    """The report of one runner process on CPU 0."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as name:
        folder = Path(name) / "local"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(model)
        (folder / "spec.json").write_text(
            json.dumps(
                {
                    "version": 1,
                    "benchmark_id": "repeat",
                    "job_id": "repeat",
                    "engine": "ort",
                    "benchmark_type": "TYPE1",
                    "model": {"filename": "model.onnx"},
                    "user_time_s": 600,
                    **changes,
                }
            )
        )
        board = {"target_uid": _BOARD, "family": "bench", "cpus": [0], "threads": 1}
        subprocess.run(
            [sys.executable, "-m", "edgeyard.devices.runner"],
            env={**os.environ, "NOMAD_TASK_DIR": str(folder), "EDGEYARD_BOARD": json.dumps(board)},
            cwd=name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=660,
        )
        report: Mapping[str, Any] = json.loads((folder / "results" / "report.json").read_bytes())
        assert report["status"] == "ok", report["failure"]
        return report


def _p50_s(report: Mapping[str, Any]) -> float:
    return float(report["inference_latency"]["p50"]) / 1e3


def chain(size: int, links: int) -> bytes:
    """Matrix products one after another; values stay of the same magnitude."""
    random = np.random.default_rng(0).normal(size=(size, size))
    weights = np.linalg.qr(random)[0].astype(np.float32)  # keeps lengths, over thousands of links
    names = ["x", *(f"y{link}" for link in range(links))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [size, size])],
        [numpy_helper.from_array(weights, "w")],
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    content: bytes = model.SerializeToString()
    return content


def _repeats(full: int) -> int:
    return int(os.environ.get("EDGEYARD_BENCH_REPEATS") or full)
