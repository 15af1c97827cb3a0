"""``make soak-memory``: whether the memory of a server that is used grows, with the store as it is.

Users submit, watch, explain, list, upload, cancel and delete for half an hour. What is stored is
held constant: each round removes what it made, and ended benchmarks are pruned each minute. The
server's anonymous memory (``RssAnon``, without pages of files) is read each ten seconds, and its
slope after the first ten minutes is estimated by Theil and Sen, with a bootstrap interval over
blocks of a minute, because neighbouring readings depend on one another.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deploy import process
from deploy.demo.make_digits import HERE as DIGITS
from edgeyard.scheduler.clock import SharedClock, SteadyClock
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.store import SqlStore

MAX_SLOPE_MIB_PER_MIN = 0.2
_SETTLED_S = 600.0
_EVERY_S = 10.0
_BLOCK = 6
_RESAMPLES = 1000
_USERS = 4
_PAUSE_S = 0.05


def main() -> int:
    """Run; 1 where the upper bound of the slope is above the limit."""
    parser = argparse.ArgumentParser(prog="make soak-memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgeyard-memory-") as folder:
        times, values, requests = _measure(Path(folder), given.minutes * 60.0, given.seed)
    settled = times >= min(_SETTLED_S, times[-1] / 3)
    slope, low, high = slope_interval(times[settled] / 60.0, values[settled], seed=given.seed)
    passed = high <= MAX_SLOPE_MIB_PER_MIN
    sys.stdout.write(
        f"{requests} requests in {times[-1] / 60:.0f} min; RssAnon {values[0]:.1f} MiB at the "
        f"begin, {values[settled][0]:.1f} when settled, {values[-1]:.1f} at the end\n"
        f"slope {slope:.3f} MiB a minute (95 %: {low:.3f} to {high:.3f}), limit "
        f"{MAX_SLOPE_MIB_PER_MIN}: {'passed' if passed else 'FAILED'}\n"
    )
    out = Path("build/soak-memory.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"seconds": times.tolist(), "mib": values.tolist()}))
    return 0 if passed else 1


def slope_interval(
    minutes: NDArray[np.float64], mib: NDArray[np.float64], *, seed: int
) -> tuple[float, float, float]:
    """Return the slope in MiB a minute, and its 95 % interval by a bootstrap of blocks.

    Source: Theil, "A rank-invariant method of linear and polynomial regression analysis", 1950;
    Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 1968. The residuals
    are drawn in blocks: Kuensch, "The jackknife and the bootstrap for general stationary
    observations", Annals of Statistics 1989.
    """
    slope = _theil_sen(minutes, mib)
    fitted = slope * minutes + np.median(mib - slope * minutes)
    rest = mib - fitted
    generator = np.random.default_rng(seed)
    blocks = len(rest) - _BLOCK + 1
    count = -(-len(rest) // _BLOCK)
    found = np.empty(_RESAMPLES)
    for number in range(_RESAMPLES):
        starts = generator.integers(0, blocks, count)
        drawn = np.concatenate([rest[start : start + _BLOCK] for start in starts])[: len(rest)]
        found[number] = _theil_sen(minutes, fitted + drawn)
    low, high = np.quantile(found, (0.025, 0.975))
    return slope, float(low), float(high)


def _theil_sen(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def _measure(
    folder: Path, seconds: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    environment = {
        "EDGEYARD_TRUSTED_REQUESTS_PER_MINUTE": "100000",
        "EDGEYARD_ADDRESS_REQUESTS_PER_MINUTE": "100000",
        "EDGEYARD_LOG_LEVEL": "warning",
    }
    server = process.start(folder / "data", environment)
    end, count = threading.Event(), [0] * _USERS
    try:
        users = [
            threading.Thread(target=_use, args=(server, number, seed, end, count), daemon=True)
            for number in range(_USERS)
        ]
        for user in users:
            user.start()
        began = time.monotonic()
        times: list[float] = []
        values: list[float] = []
        pruned_s = 0.0
        while (passed_s := time.monotonic() - began) < seconds:
            times.append(passed_s)
            values.append(anonymous_mib(server.process.pid))
            if passed_s - pruned_s >= 60.0:
                pruned_s = passed_s
                _prune(folder / "data")
                sys.stderr.write(f"{passed_s / 60:5.1f} min  {values[-1]:7.1f} MiB\n")
            time.sleep(_EVERY_S)
        end.set()
        for user in users:
            user.join(30.0)
    finally:
        end.set()
        server.end()
    return np.array(times), np.array(values), sum(count)


def anonymous_mib(pid: int) -> float:
    """Return the resident anonymous memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not report RssAnon")


def _prune(data: Path) -> None:
    """Remove what has ended, sooner than any setting allows."""
    store = SqlStore(f"sqlite:///{data}/edgeyard.db")
    kept = dict.fromkeys(RetentionClass, 30.0)
    collect_garbage(store, ContentFiles(data / "files"), SharedClock(SteadyClock()), kept)
    store.close()


def _use(
    server: process.Server, number: int, seed: int, end: threading.Event, count: list[int]
) -> None:
    """One user, until the end."""
    chosen = random.Random(seed * 1000 + number)
    model = DIGITS / "digits.onnx"
    server.upload(model)
    job: dict[str, object] = {
        "model": model.name,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "emumid",
        "nb_inference": 3,
    }
    turns = 0

    def call(method: str, path: str, body: object = None) -> object:
        count[number] += 1
        time.sleep(_PAUSE_S)
        try:
            return server.call(method, path, body)
        except RuntimeError:  # of what is refused; and the database is locked while it is pruned
            return None

    while not end.is_set():
        turns += 1
        later = {} if turns % 10 == 1 else {"start_time": "2099-01-01T00:00:00Z"}
        made = call("POST", "/v1/benchmarks", {**job, **later})
        if not isinstance(made, dict):
            continue
        benchmark = str(made["benchmark_id"])
        for path in chosen.sample(
            [
                f"/v1/benchmarks/{benchmark}",
                f"/v1/benchmarks/{benchmark}/explain",
                "/v1/benchmarks?limit=50",
                "/v1/queue",
                "/v1/boards",
                "/v1/files",
                "/v1/limits",
                "/v1/results?limit=20",
                "/readyz?verbose",
                "/v1/benchmarks/none",
            ],
            6,
        ):
            call("GET", path)
        count[number] += 1
        server.text("/metrics")
        call("POST", "/v1/benchmarks?dry_run=true", job)
        call("POST", f"/v1/benchmarks/{benchmark}/cancel")


if __name__ == "__main__":
    sys.exit(main())
