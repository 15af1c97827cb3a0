"""The numbers that Edgeyard reports against a bare loop of the same engine, in turn."""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.models import light, ncnn_squeezenet
from benchmarks.tables import Row, median, median_interval
from deploy.process import Server, edgeyard
from edgeyard.benchmark_api.sdk.model_folder import packed, with_weights
from edgeyard.devices.runner.launches import LAUNCHES

ALTERNATIONS = 24
PROMPT_LENGTH, OUTPUT_LENGTH, REQUESTS = 64, 256, 10
TINY_LLAMA = Path(__file__).parents[1] / "deploy/demo/tiny_llama"
SOAK_S, SOAK_WINDOW_S = 180, 60
LOAD_RATE, LOAD_SEED, LOAD_QUERIES, LOAD_ALTERNATIONS = 40, 7, 700, 8


@dataclass(frozen=True, slots=True)
class Case:
    """A network on an engine.

    Attributes:
        runs: Inferences of one alternation, ours and theirs each.
    """

    network: str
    engine: str
    model: Path
    runs: int

    @property
    def name(self) -> str:
        return f"p50 {self.network}" + ("" if self.engine == "ort" else f" {self.engine}")


def cases(folder: Path) -> tuple[Case, ...]:
    """Return what is measured.

    Args:
        folder: For files that are made.
    """
    return (
        Case("squeezenet", "ort", light("squeezenet"), 150),
        Case("shufflenet", "ort", light("shufflenet"), 150),
        Case("resnet50", "ort", light("resnet50"), 40),
        Case("squeezenet", "openvino", light("squeezenet"), 150),
        Case("shufflenet", "openvino", light("shufflenet"), 150),
        Case("squeezenet", "ncnn", ncnn_squeezenet(folder), 150),
    )


_LOOP = """
runs = int(sys.argv[4])
for _ in range(warmup):
    run()
times = []
for _ in range(runs):
    began = time.perf_counter_ns()
    run()
    times.append(time.perf_counter_ns() - began)
print(json.dumps([each / 1e6 for each in times]))
"""
_HEAD = """
import json, os, sys, time
import numpy as np
path, threads, cpus = sys.argv[1], int(sys.argv[2]), sys.argv[3]
warmup = 15
os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
rng = np.random.default_rng(0)
"""
_BARE = {
    "ort": """
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
feeds = {i.name: rng.random([d if isinstance(d, int) else 1 for d in i.shape], dtype=np.float32)
         for i in session.get_inputs()}
def run():
    return session.run(None, feeds)
""",
    "openvino": """
sys.modules["openvino.tools.ovc"] = None
import openvino as ov
core = ov.Core()
compiled = core.compile_model(
    core.read_model(path), "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
)
request = compiled.create_infer_request()
feeds = {at: rng.random([d.get_length() if d.is_static else 1 for d in i.partial_shape],
                        dtype=np.float32) for at, i in enumerate(compiled.inputs)}
def run():
    return list(request.infer(feeds, share_inputs=True).values())
""",
    "ncnn": """
import ncnn
net = ncnn.Net()
net.opt.num_threads = threads
assert net.load_param(path) == 0 and net.load_model(path.replace(".param", ".bin")) == 0
image = rng.random((3, 224, 224), dtype=np.float32)
def run():  # from an array to an array, as the other engines
    extractor = net.create_extractor()
    extractor.input("data_0", ncnn.Mat(image).clone())
    return np.array(extractor.extract("softmaxout_1")[1])
""",
}

_BARE_TOKENS = """
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime_genai as og
prompt_length, output_length, requests = (int(each) for each in sys.argv[4:])
config = og.Config(path)
options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
model = og.Model(config)
prompt = rng.integers(0, 259, (1, prompt_length)).astype(np.int32)
length = prompt_length + output_length
def rate():
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    generator.generate_next_token()
    began = time.perf_counter_ns()
    while not generator.is_done():
        generator.generate_next_token()
    return (output_length - 1) * 1e9 / (time.perf_counter_ns() - began)
for _ in range(warmup):
    rate()
rates, began = [], time.perf_counter()
while len(rates) < requests or time.perf_counter() - began < 0.5:
    rates.append(rate())
print(json.dumps(float(np.median(rates))))
"""


_LOADGEN = """
from pathlib import Path
from benchmarks.loadgen import server_run
queries, rate, seed = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
for _ in range(warmup):
    run()
found = server_run(run, Path(sys.argv[7]), rate=rate, seed=seed, queries=queries)
print(json.dumps(found.percentiles_ms["99.00"]))
"""


def run() -> list[Row]:
    """One row a network and engine."""
    with (
        tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder,
        # Otherwise a check of a suspected change would run beside the bare loops.
        edgeyard(Path(folder) / "data", {"EDGEYARD_CONFIRM_BUDGET_S": "0"}) as server,
    ):
        rows = [_network(server, case) for case in cases(Path(folder))]
        return [*rows, _tokens(server), _soak(server), _server(server, light("squeezenet"))]


def _network(server: Server, case: Case) -> Row:
    name = str(server.upload(with_weights(case.model))["name"])
    warmup, took_s = 0, 0.0

    def ours() -> float:
        nonlocal warmup, took_s
        began = time.monotonic()
        report = _report(
            server,
            {
                "model": name,
                "runtime": case.engine,
                "benchmark_type": "TYPE1",
                "target_uid": "emumid-0001-0001",
                "nb_inference": case.runs,
            },
            asked_after_s=0.9 * took_s,  # nobody asks the bare loop
        )
        warmup = math.ceil(report["warmup"]["runs"] / LAUNCHES)
        took_s = time.monotonic() - began
        return float(report["inference_latency"]["p50"])

    ours()
    found = _in_turn(ours, lambda: _bare(case, warmup))
    peer = f"{_bare_loop(case.engine)}, in {LAUNCHES} processes as Edgeyard's"
    return _row(case.name, "ms", peer, f"{case.runs} runs", found)


def _tokens(server: Server) -> Row:
    """Return the tokens per second of a small language model."""
    name = str(server.upload(packed(TINY_LLAMA))["name"])

    def ours() -> float:
        report = _report(
            server,
            {
                "model": name,
                "runtime": "ort-genai",
                "benchmark_type": "GENAI",
                "target_uid": "emumid-0001-0001",
                "parameters": {
                    "prompt_length": PROMPT_LENGTH,
                    "output_length": OUTPUT_LENGTH,
                    "requests": REQUESTS,
                },
            },
        )
        return float(report["results"]["decode_tokens_per_s"]["value"])

    lengths = [str(PROMPT_LENGTH), str(OUTPUT_LENGTH), str(REQUESTS)]
    found = _in_turn(ours, lambda: float(_run(f"{_HEAD}{_BARE_TOKENS}", TINY_LLAMA, lengths)))
    work = f"{REQUESTS} requests of {PROMPT_LENGTH} tokens that generate {OUTPUT_LENGTH}"
    return _row("decode tokens/s", "1/s", _bare_loop("onnxruntime-genai"), work, found)


def _in_turn(
    ours: Callable[[], float], theirs: Callable[[], float], alternations: int = ALTERNATIONS
) -> tuple[list[float], list[float]]:
    """Return our numbers and theirs; the first pair is left out."""
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(alternations + 1):
        # Who comes first changes, so that a drift of the machine hits both alike.
        if turn % 2:
            a, b = ours(), theirs()
        else:
            b, a = theirs(), ours()
        if turn:
            found[0].append(a)
            found[1].append(b)
    return found


def _bare_loop(engine: str) -> str:
    return f"bare {engine} loop, 1 thread on CPU 0 each"


def _row(name: str, unit: str, peer: str, work: str, found: tuple[list[float], list[float]]) -> Row:
    ours, theirs = found
    ratio, low, high = median_interval([a / b for a, b in zip(ours, theirs, strict=True)])
    return Row(
        name,
        median(ours),
        unit,
        median(theirs),
        ratio,
        f"peer: {peer}; {len(ours)} alternations of {work}; "
        f"interval of the median ratio {low:.3f}-{high:.3f}",
    )


def _soak(server: Server) -> Row:
    """Return Edgeyard's own share of a core during a soak."""
    model = str(server.upload(light("squeezenet"))["name"])
    result = _report(
        server,
        {
            "model": model,
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target_uid": "emumid-0001-0001",
            "soak": SOAK_S,
            "soak_window": SOAK_WINDOW_S,
        },
    )["soak"]
    return Row(
        "soak overhead",
        float(result["overhead"]),
        "",
        note=f"processor time outside inferences, divided by the time of a soak of {SOAK_S} s, "
        f"windows of {SOAK_WINDOW_S} s; at most 0.01",
    )


def _server(server: Server, model: Path) -> Row:
    """Return the p99 of a server load against the real LoadGen's, at one rate."""
    name = str(server.upload(model)["name"])
    job: dict[str, object] = {
        "model": name,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target_uid": "emumid-0001-0001",
        "load": "server",
        "load_bound": 10,
        "load_rate": LOAD_RATE,
        "load_seed": LOAD_SEED,
        "nb_inference": LOAD_QUERIES,
        "load_duration": 1,
    }

    def ours() -> float:
        # Each question to the server takes some of the time that the p99 is made of.
        report = _report(server, job, asked_after_s=LOAD_QUERIES / LOAD_RATE)
        return float(report["load_test"]["result"]["p99_ms"])

    found = _in_turn(ours, lambda: _loadgen(model), LOAD_ALTERNATIONS)
    peer = f"LoadGen with the same arrivals at {LOAD_RATE}/s and a bare ort loop on CPU 0"
    row = _row("server p99", "ms", peer, f"{LOAD_QUERIES} queries", found)
    return replace(row, note=f"{row.note}, which has to hold 1")


def _loadgen(model: Path) -> float:
    """Return the p99 by the real LoadGen, ms."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder:
        script = f"{_HEAD}{_BARE['ort']}{_LOADGEN}"
        return float(
            _run(script, model, [str(LOAD_QUERIES), str(LOAD_RATE), str(LOAD_SEED), folder])
        )


def _report(
    server: Server, job: dict[str, object], *, asked_after_s: float = 0.0
) -> dict[str, Any]:
    made = server.call("POST", "/v1/benchmarks", job)
    time.sleep(asked_after_s)
    ended = server.wait(str(made["benchmark_id"]))
    assert ended["status"] == "completed", ended
    found = server.call("GET", f"/v1/benchmarks/{made['benchmark_id']}/results")
    report: dict[str, Any] = found["reports"][0]["report"]
    return report


def _bare(case: Case, warmup: int) -> float:
    """Return the median of as many runs in as many processes as Edgeyard's, ms.

    Processes differ in where their memory lies, with ncnn by up to 7 %.

    Args:
        warmup: Runs before them in each process, as many as Edgeyard's: a processor that has just
            begun to compute is faster, with ncnn by 1 % after 15 runs instead of 200.
    """
    script = f"{_HEAD}warmup = {warmup}\n{_BARE[case.engine]}{_LOOP}"
    runs = str(math.ceil(case.runs / LAUNCHES))
    return median([each for _ in range(LAUNCHES) for each in _run(script, case.model, [runs])])


def _run(script: str, model: Path, numbers: Sequence[str]) -> Any:
    """Run a bare loop in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), "1", "0", *numbers],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return json.loads(done.stdout)
