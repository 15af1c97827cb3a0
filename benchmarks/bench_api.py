"""Submissions against a bare insert; status, list and queue with 100,000 stored against 100."""

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.load import closed_loop, get, post
from benchmarks.models import light
from benchmarks.servers import peer
from benchmarks.tables import Row, median, median_interval
from deploy.process import Server, edgeyard
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkType, JobDescription, Status
from edgeyard.scheduler.store import SqlStore

CLIENTS = 50
ROUNDS = 9
REQUESTS = 400
STORED_FEW, STORED_MANY = 100, 100_000
PENDING = 50


def run() -> list[Row]:
    """Both parts."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as folder:
        return [_submit(Path(folder)), *_stored(Path(folder))]


def _description(server: Server) -> bytes:
    model = server.upload(light("squeezenet"))
    # An offline board keeps submissions in the queue: submitting is measured, not running.
    return json.dumps(
        {
            "model": model["name"],
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target": "rpi4b",
            "nb_inference": 20,
            "tags": ["bench", "api"],
            "extra": {"padding": "x" * 1500},
        }
    ).encode()


def _submit(folder: Path) -> Row:
    (folder / "peer").mkdir()
    rates, peers, ratios, errors = [], [], [], 0
    with (
        edgeyard(folder / "submit") as ours,
        peer("benchmarks.peers:app", PEER_FOLDER=str(folder / "peer")) as theirs,
    ):
        body = _description(ours)
        request = post("/v1/benchmarks", body, ours.token)
        bare = post("/rows", body)
        for round_number in range(ROUNDS + 1):
            a = closed_loop(ours.port, request, clients=CLIENTS, requests=REQUESTS)
            b = closed_loop(theirs.port, bare, clients=CLIENTS, requests=REQUESTS)
            errors += sum(count for status, count in a.statuses.items() if status != 202)
            if round_number:  # the first warms both up
                rates.append(a.rate_per_s)
                peers.append(b.rate_per_s)
                ratios.append(a.rate_per_s / b.rate_per_s)
    ratio, low, high = median_interval(ratios)
    return Row(
        "submit",
        median(rates),
        "1/s",
        median(peers),
        ratio,
        f"peer: bare FastAPI route, one insert; 1 process, WAL, synchronous=FULL, {CLIENTS} "
        f"connections each; {ROUNDS} rounds, ratio {low:.2f}-{high:.2f}; answers not 202: {errors}",
    )


def _stored(folder: Path) -> list[Row]:
    few, many = folder / "few", folder / "many"
    for data_dir, count in ((few, STORED_FEW), (many, STORED_MANY)):
        with edgeyard(data_dir):
            pass  # makes the database and the admin
        _fill(data_dir, count)
    calls: list[tuple[str, Callable[[str], str]]] = [
        ("status", lambda benchmark_id: f"/v1/benchmarks/{benchmark_id}"),
        ("list", lambda _: "/v1/benchmarks?limit=50"),
        ("queue", lambda _: "/v1/queue"),
    ]
    rows = []
    with edgeyard(many) as big, edgeyard(few) as small:
        for name, path in calls:
            ours, theirs, ratios = [], [], []
            big_call = get(path(f"bench-{STORED_MANY // 2}"), big.token)
            small_call = get(path(f"bench-{STORED_FEW // 2}"), small.token)
            for round_number in range(ROUNDS + 1):
                a = closed_loop(big.port, big_call, clients=4, requests=200)
                b = closed_loop(small.port, small_call, clients=4, requests=200)
                assert set(a.statuses) == set(b.statuses) == {200}, (a.statuses, b.statuses)
                if round_number:
                    ours.append(median(a.latencies_s) * 1000)
                    theirs.append(median(b.latencies_s) * 1000)
                    ratios.append(ours[-1] / theirs[-1])
            ratio, low, high = median_interval(ratios)
            rows.append(
                Row(
                    f"{name} 100k",
                    median(ours),
                    "ms",
                    median(theirs),
                    ratio,
                    f"peer: the same with {STORED_FEW} stored; {PENDING} of each pending; "
                    f"4 connections, {ROUNDS} rounds, ratio {low:.2f}-{high:.2f}",
                )
            )
    return rows


def _fill(data_dir: Path, count: int) -> None:
    """Store benchmarks at their end, and as many pending ones in either case."""
    store = SqlStore(f"sqlite:///{data_dir}/edgeyard.db")
    description = JobDescription(
        model="light_squeezenet.onnx",
        runtime="ort",
        benchmark_type=BenchmarkType.TYPE1,
        target="rpi4b",
        tags=("bench",),
    )
    began = datetime.now(UTC) - timedelta(days=1)
    for start in range(0, count, 1000):
        with store.write() as uow:
            for number in range(start, min(start + 1000, count)):
                at = began + timedelta(milliseconds=number)
                pending = number >= count - PENDING
                uow.benchmarks.add(
                    Benchmark(
                        benchmark_id=f"bench-{number}",
                        user_id="admin",
                        description=description,
                        submit_time=at,
                        status=Status.PENDING if pending else Status.COMPLETED,
                        ended_at=None if pending else at,
                    )
                )
    store.close()
