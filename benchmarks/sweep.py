"""``python -m benchmarks.sweep [--minutes M]``: what real networks take on emulated systems.

Runs networks of the onnx package through the project's own runner, as a board's task does, over
systems that differ in CPUs, threads, memory and crowding, and writes one line a run to
``benchmarks/data/sweep.csv``. Failures are real: the runner's memory limit, its time limit.
Nothing in it is generated. ``sweep.json`` next to it states the machine; what other work took
of the CPUs meanwhile stands in each line, since this is meant to run on a machine in use (with
``nice``).
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.models import NETWORKS, facts_of, with_batch

DATA = Path(__file__).parent / "data"
MIB = 1 << 20
BATCHES = (1, 2, 4)
_SPIN = "while True: pass"


@dataclass(frozen=True, slots=True)
class System:
    """One emulated board.

    Attributes:
        crowding: Busy processes of ours on its CPUs.
    """

    name: str
    cpus: tuple[int, ...]
    threads: int
    ram_mib: int
    crowding: int


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One run, a line of the CSV; empty where there is none.

    Attributes:
        cores: CPUs of the system.
        run_s: Of the runner's process, start to end.
        category: Of the failure.
        p50_ms: Of one inference (of ``batch`` images).
        other_load: Share of the system's CPUs that others had while it measured, 0-1.
        load_before: Load average over a minute, of the whole machine.
    """

    started_at: str
    system: str
    cores: int
    threads: int
    ram_mib: int
    crowding: int
    network: str
    batch: int
    nb_inference: int
    user_time_s: float
    nodes: int
    parameters: int
    macs: int
    largest: int
    model_sha256: str
    run_s: float
    category: str
    p50_ms: float | None
    ram_peak_bytes: int | None
    other_load: float | None
    load_before: float
    verdict: str


def systems(count: int, seed: int) -> list[System]:
    """Different ones, drawn by the seed; on one CPU where the machine has but one."""
    rng = np.random.default_rng(seed)
    available = sorted(os.sched_getaffinity(0))
    both = tuple(available[:2])
    drawn: dict[tuple[object, ...], System] = {}
    while len(drawn) < count:
        cpus = (both[:1], both[-1:], both)[int(rng.integers(3))]
        threads = int(rng.choice([1, 2]))
        ram_mib = int(rng.choice([128, 192, 256, 384, 640, 1024]))
        crowding = int(rng.choice([0, 0, 0, 1, 2]))
        name = f"c{len(cpus)}t{threads}r{ram_mib}x{crowding}"
        drawn.setdefault(
            (len(cpus), threads, ram_mib, crowding), System(name, cpus, threads, ram_mib, crowding)
        )
    return list(drawn.values())


def main() -> int:
    """Run until time is up, system by system in turns, so that a drift hits all alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--systems", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", default="1,2,4,8", help="user_time_s to draw from")
    parser.add_argument("--append", action="store_true", help="go on with an earlier sweep's file")
    parser.add_argument("--out", type=Path, default=DATA / "sweep.csv")
    wanted = parser.parse_args()
    times = [float(each) for each in wanted.times.split(",")]
    facts_file = wanted.out.with_suffix(".json")
    earlier = json.loads(facts_file.read_text()) if wanted.append else []
    rng = np.random.default_rng([wanted.seed, len(earlier) + 1])
    all_systems = systems(wanted.systems, wanted.seed)
    until = time.monotonic() + wanted.minutes * 60
    began = datetime.now(UTC)
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="edgeyard-sweep-") as folder,
        wanted.out.open("a" if wanted.append else "w", newline="", encoding="utf-8") as file,
    ):
        models = _Models(Path(folder))
        writer = csv.DictWriter(file, [each.name for each in fields(SweepRow)], lineterminator="\n")
        if not wanted.append:
            writer.writeheader()
        done = 0
        while time.monotonic() < until:
            for system in rng.permutation(len(all_systems)).tolist():
                if time.monotonic() >= until:
                    break
                found = _run(all_systems[system], models, Path(folder), times, rng)
                writer.writerow(asdict(found))
                file.flush()
                done += 1
                print(f"{done:4} {found.system:14} {found.network:14} x{found.batch} "
                      f"{found.run_s:6.2f} s {found.category}")  # fmt: skip
    facts = {
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": done,
        "command": f"nice -n {os.nice(0)} python -m benchmarks.sweep --minutes {wanted.minutes:g} "
        f"--systems {wanted.systems} --seed {wanted.seed} --times {wanted.times}"
        + (" --append" if wanted.append else ""),
        "cpu": _cpu(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "others": "The machine was in use by others; see load_before and other_load.",
    }
    facts_file.write_text(json.dumps([*earlier, facts], indent=2) + "\n")
    return 0


class _Models:
    """Networks with their batch, written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._facts: dict[tuple[str, int], tuple[Path, dict[str, int], str]] = {}

    def get(self, network: str, batch: int) -> tuple[Path, dict[str, int], str]:
        if (network, batch) not in self._facts:
            model = with_batch(network, batch)
            data = model.SerializeToString()
            path = self._folder / f"{network}-{batch}.onnx"
            path.write_bytes(data)
            self._facts[network, batch] = (
                path,
                asdict(facts_of(model)),
                hashlib.sha256(data).hexdigest(),
            )
        return self._facts[network, batch]


def _run(
    system: System,
    models: _Models,
    folder: Path,
    times: Sequence[float],
    rng: np.random.Generator,
) -> SweepRow:
    network = NETWORKS[int(rng.integers(len(NETWORKS)))]
    batch = int(rng.choice(BATCHES, p=[0.7, 0.2, 0.1]))
    nb_inference = int(np.exp(rng.uniform(np.log(4), np.log(40))))
    user_time_s = float(rng.choice(times))
    path, facts, sha256 = models.get(network, batch)
    task = Path(tempfile.mkdtemp(dir=folder))
    os.link(path, task / "model.onnx")
    (task / "spec.json").write_text(
        json.dumps(
            {
                "version": 1,
                "benchmark_id": task.name,
                "engine": "ort",
                "benchmark_type": "TYPE1",
                "model": {"filename": "model.onnx"},
                "nb_inference": nb_inference,
                "user_time_s": user_time_s,
            }
        )
    )
    board = {
        "target_uid": "emulated-0001-0001",
        "family": "emulated",
        "cpus": system.cpus,
        "threads": system.threads,
        "ram_bytes": system.ram_mib * MIB,
        "emulated": True,
    }
    environ = {
        **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
        "NOMAD_TASK_DIR": str(task),
        "EDGEYARD_BOARD": json.dumps(board),
    }
    load_before = os.getloadavg()[0]
    with _crowd(system):
        started_at = datetime.now(UTC)
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "edgeyard.devices.runner"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        run_s = time.perf_counter() - began
    report = json.loads((task / "results" / "report.json").read_text())
    latency = report.get("inference_latency") or {}
    conditions = report.get("conditions") or {}
    return SweepRow(
        started_at=started_at.isoformat(timespec="milliseconds"),
        system=system.name,
        cores=len(system.cpus),
        threads=system.threads,
        ram_mib=system.ram_mib,
        crowding=system.crowding,
        network=network,
        batch=batch,
        nb_inference=nb_inference,
        user_time_s=user_time_s,
        nodes=facts["nodes"],
        parameters=facts["parameters"],
        macs=facts["macs"],
        largest=facts["largest"],
        model_sha256=sha256,
        run_s=round(run_s, 4),
        category=(report.get("failure") or {}).get("category", ""),
        p50_ms=_rounded(latency.get("p50")),
        ram_peak_bytes=report.get("ram_peak"),
        other_load=_rounded(conditions.get("other_load")),
        load_before=round(load_before, 2),
        verdict=(report.get("verdict") or {}).get("verdict", ""),
    )


@contextmanager
def _crowd(system: System) -> Iterator[None]:
    """Busy neighbours on the system's CPUs, stopped by their ids."""
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", _SPIN],
            preexec_fn=lambda: os.sched_setaffinity(0, system.cpus),
        )
        for _ in range(system.crowding)
    ]
    try:
        yield
    finally:
        for each in crowd:
            each.kill()
            each.wait()


def _rounded(value: object) -> float | None:
    return round(float(value), 4) if isinstance(value, (int, float)) else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
