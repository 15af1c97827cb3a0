"""One board and a queue for it: how long it stands idle between two of its jobs."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.models import light
from benchmarks.nomad import lab
from benchmarks.tables import Row, median_interval
from edgeyard.testbed import LoopbackNomad

RUNS = 20
HOSTS = (lab.boards("rpi5", 1),)
_PATIENCE_S = 600.0
_TERMINAL = ("complete", "failed", "lost")


def run(folder: Path) -> list[Row]:
    """All submitted at once, run one after the other."""
    with (
        lab.nomad(folder / "nomad", HOSTS) as cluster,
        lab.server(folder / "turnover", cluster, HOSTS) as server,
    ):
        body = {
            "model": server.upload(light("squeezenet"))["name"],
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target_uid": "rpi5-0001-0001",
            "nb_inference": 5,
        }
        with _terminal_events(cluster) as arrived:
            made = [server.call("POST", "/v1/benchmarks", body) for _ in range(RUNS + 1)]
            until = time.monotonic() + _PATIENCE_S
            while len(arrived) < len(made) and time.monotonic() < until:
                time.sleep(0.2)  # who asked the server itself would take its time
            for each in made:
                ended = server.wait(str(each["benchmark_id"]))
                assert ended["status"] == "completed", ended
        registered = lab.submitted_at(cluster)
        tasks = _tasks(cluster)
    turns = list(pairwise(sorted(registered, key=lambda job_id: registered[job_id])))
    to_registered = [1000 * (registered[new] - arrived[old]) for old, new in turns]
    to_start = [tasks[new]["StartedAt"] - tasks[old]["FinishedAt"] for old, new in turns]
    return [
        _row(
            "freed to registered",
            to_registered,
            "ms",
            "arrival of the terminal event at a second reader of the stream to the next job's "
            "SubmitTime",
        ),
        _row(
            "end to next start",
            to_start,
            "s",
            "end of a process to the start of the next on the same board, as Nomad reports it",
        ),
    ]


def _row(name: str, values: list[float], unit: str, what: str) -> Row:
    middle, low, high = median_interval(values)
    digits = 0 if unit == "ms" else 2
    return Row(
        name,
        middle,
        unit,
        note=f"{what}; {len(values)} turns, median's interval {low:.{digits}f}-{high:.{digits}f}, "
        f"worst {max(values):.{digits}f}",
    )


@contextmanager
def _terminal_events(cluster: LoopbackNomad) -> Iterator[Mapping[str, float]]:
    """When the first terminal event of each job's allocation came in, seconds since the epoch."""
    arrived: dict[str, float] = {}
    path = f"/v1/event/stream?topic=Allocation:*&namespace={cluster.namespace}"
    request = urllib.request.Request(cluster.address + path)
    request.add_header("X-Nomad-Token", cluster.token)
    stopping = threading.Event()
    # Nomad says something every 10 s.
    with urllib.request.urlopen(request, timeout=30) as stream:

        def read() -> None:
            for line in stream:
                now = time.time()
                if stopping.is_set():
                    return
                for event in json.loads(line).get("Events") or ():
                    allocation = event["Payload"]["Allocation"]
                    if allocation["ClientStatus"] in _TERMINAL:
                        arrived.setdefault(allocation["JobID"], now)

        thread = threading.Thread(target=read, name="terminal-events")
        thread.start()
        try:
            yield arrived
        finally:
            stopping.set()
            thread.join()


def _tasks(cluster: LoopbackNomad) -> dict[str, dict[str, float]]:
    """Start and end of each job's only task, seconds since the epoch."""
    found = cluster.call("GET", f"/v1/allocations?namespace={cluster.namespace}")
    return {
        each["JobID"]: {
            name: datetime.fromisoformat(task[name]).timestamp()
            for name in ("StartedAt", "FinishedAt")
        }
        for each in found
        for task in each["TaskStates"].values()
    }
