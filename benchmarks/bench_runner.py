"""The p50 that Edgeyard reports against a bare onnxruntime loop, in turn."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.models import light
from benchmarks.tables import Row, median, median_interval
from deploy.process import Server, edgeyard

NETWORKS = ("squeezenet", "shufflenet", "resnet50")
ALTERNATIONS = 24
RUNS = {"squeezenet": 150, "shufflenet": 150, "resnet50": 40}

_BARE = """
import json, os, sys, time
import numpy as np, onnxruntime as ort
path, threads, cpus, runs, warmup = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), 15
os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
rng = np.random.default_rng(0)
feeds = {i.name: rng.random([d if isinstance(d, int) else 1 for d in i.shape], dtype=np.float32)
         for i in session.get_inputs()}
for _ in range(warmup):
    session.run(None, feeds)
times = []
for _ in range(runs):
    began = time.perf_counter_ns()
    session.run(None, feeds)
    times.append(time.perf_counter_ns() - began)
print(json.dumps(float(np.median(times)) / 1e6))
"""


def run() -> list[Row]:
    """One row a network."""
    with (
        tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder,
        edgeyard(Path(folder) / "data") as server,
    ):
        return [_network(server, name) for name in NETWORKS]


def _network(server: Server, network: str) -> Row:
    path = light(network)
    name = str(server.upload(path)["name"])
    ours, theirs, ratios = [], [], []
    for turn in range(ALTERNATIONS + 1):
        # Who comes first changes, so that a drift of the machine hits both alike.
        if turn % 2:
            a, b = _ours(server, name, RUNS[network]), _bare(path, RUNS[network])
        else:
            b, a = _bare(path, RUNS[network]), _ours(server, name, RUNS[network])
        if turn:
            ours.append(a)
            theirs.append(b)
            ratios.append(a / b)
    ratio, low, high = median_interval(ratios)
    return Row(
        f"p50 {network}",
        median(ours),
        "ms",
        median(theirs),
        ratio,
        f"peer: bare onnxruntime loop, 1 thread on CPU 0 each; {ALTERNATIONS} alternations of "
        f"{RUNS[network]} runs; interval of the median ratio {low:.3f}-{high:.3f}",
    )


def _ours(server: Server, model: str, runs: int) -> float:
    made = server.call(
        "POST",
        "/v1/benchmarks",
        {
            "model": model,
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target_uid": "emumid-0001-0001",
            "nb_inference": runs,
        },
    )
    ended = server.wait(str(made["benchmark_id"]))
    assert ended["status"] == "completed", ended
    found = server.call("GET", f"/v1/benchmarks/{made['benchmark_id']}/results")
    return float(found["reports"][0]["report"]["inference_latency"]["p50"])


def _bare(path: Path, runs: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _BARE, str(path), "1", "0", str(runs)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return float(json.loads(done.stdout))
