"""Jobs a second: from decision and from submission to registered, against a bare client."""

import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.load import closed_loop, post
from benchmarks.models import light
from benchmarks.nomad import lab
from benchmarks.tables import Row, median, median_interval
from deploy.process import Server, in_cluster
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
    Status,
)
from edgeyard.scheduler.store import SqlStore
from edgeyard.testbed import LoopbackNomad

JOBS = 500
ROUNDS = 5
HOSTS = (lab.boards("rpi5", JOBS),)
_PATIENCE_S = 120.0
_DUE_S = 5.0  # a server that starts is not what is measured
_ENVIRONMENT = {
    **in_cluster(memory_mib=lab.UNPLACEABLE_MIB, connections=lab.CONNECTIONS),
    "EDGEYARD_DISPATCH_THREADS": str(lab.CONNECTIONS),
}


def run(folder: Path) -> list[Row]:
    """Ours and both peers in turn.

    The peer makes the same three calls for each job as Edgeyard does: parse, write the variable
    with the job's token, register. A client without the variable shows what that call costs.
    """
    decided, submitted, two_calls, three_calls = [], [], [], []
    with lab.nomad(folder / "nomad", HOSTS) as cluster:
        for number in range(ROUNDS):
            rate, texts = _dispatch(folder / f"dispatch-{number}", cluster)
            decided.append(rate)
            two_calls.append(_bare(cluster, texts))
            three_calls.append(_bare(cluster, texts, secrets=True))
            submitted.append(_submit(folder / f"submit-{number}", cluster))
    return [
        _row("dispatch", decided, three_calls, "decision committed to registered in Nomad"),
        _row(
            "submit to registered",
            submitted,
            three_calls,
            f"POST /v1/benchmarks on {lab.CONNECTIONS} connections to registered in Nomad",
        ),
        _row(
            "bare with variable",
            three_calls,
            two_calls,
            "the peer of the rows above",
            peer="a bare client that parses and registers alone, without the variable",
        ),
    ]


def _row(
    name: str,
    ours: list[float],
    theirs: list[float],
    what: str,
    peer: str = "a bare client that parses the same HCL, writes the job's variable and registers",
) -> Row:
    ratio, low, high = median_interval([a / b for a, b in zip(ours, theirs, strict=True)])
    return Row(
        name,
        median(ours),
        "1/s",
        median(theirs),
        ratio,
        f"{what}; peer: {peer}; {JOBS} jobs, {lab.CONNECTIONS} connections each, "
        f"{ROUNDS} rounds in turn, ratio {low:.2f}-{high:.2f}",
    )


def _dispatch(data_dir: Path, cluster: LoopbackNomad) -> tuple[float, list[str]]:
    """The rate, and the jobs' texts for the peer."""
    with lab.server(data_dir, cluster, HOSTS, **_ENVIRONMENT):
        pass  # makes the database and the admin
    _queue(data_dir, datetime.now(UTC) + timedelta(seconds=_DUE_S))
    with lab.server(data_dir, cluster, HOSTS, **_ENVIRONMENT):
        attempts = _registered(data_dir)
        ended = max(lab.submitted_at(cluster).values())
    began = max(attempt.created_at for attempt in attempts).timestamp()  # of one cycle
    lab.clear(cluster)
    return JOBS / (ended - began), [str(attempt.hcl) for attempt in attempts]


def _queue(data_dir: Path, due: datetime) -> None:
    """Benchmarks that are all to be decided on at one moment."""
    store = SqlStore(f"sqlite:///{data_dir}/edgeyard.db")
    model = BenchmarkFile(
        role=FileRole.MODEL,
        position=0,
        name="light_squeezenet.onnx",
        sha256="a" * 64,
        size_bytes=1000,
    )
    description = JobDescription(
        model="light_squeezenet.onnx",
        runtime="ort",
        benchmark_type=BenchmarkType.TYPE1,
        target="rpi5",
        nb_inference=20,
        start_time=due,
    )
    with store.write() as uow:
        for number in range(JOBS):
            uow.benchmarks.add(
                Benchmark(
                    benchmark_id=f"rpi5-ort-{number}",
                    user_id="admin",
                    description=description,
                    submit_time=datetime.now(UTC),
                    status=Status.PENDING,
                    files=(model,),
                )
            )
    store.close()


def _submit(data_dir: Path, cluster: LoopbackNomad) -> float:
    with lab.server(data_dir, cluster, HOSTS, **_ENVIRONMENT) as server:
        request = _submission(server)
        began = time.time()
        load = closed_loop(server.port, request, clients=lab.CONNECTIONS, requests=JOBS)
        assert set(load.statuses) == {202}, load.statuses
        _registered(data_dir)
        ended = max(lab.submitted_at(cluster).values())
    lab.clear(cluster)
    return JOBS / (ended - began)


def _submission(server: Server) -> bytes:
    model = server.upload(light("squeezenet"))
    body = {
        "model": model["name"],
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi5",
        "nb_inference": 20,
    }
    return post("/v1/benchmarks", json.dumps(body).encode(), server.token)


def _registered(data_dir: Path) -> list[Attempt]:
    """All attempts, once the store knows that all are registered."""
    until = time.monotonic() + _PATIENCE_S
    with closing(sqlite3.connect(f"file:{data_dir}/edgeyard.db?mode=ro", uri=True)) as reader:
        while True:
            states = Counter(state for (state,) in reader.execute("SELECT state FROM attempts"))
            if states[AttemptState.QUEUED.value] == JOBS:
                break
            if time.monotonic() > until:
                raise RuntimeError(f"{JOBS} jobs not registered in {_PATIENCE_S:.0f} s: {states}")
            time.sleep(0.25)
    store = SqlStore(f"sqlite:///{data_dir}/edgeyard.db")
    try:
        with store.read() as uow:
            return list(uow.attempts.live())
    finally:
        store.close()


def _bare(cluster: LoopbackNomad, texts: list[str], *, secrets: bool = False) -> float:
    request = {
        "address": cluster.address,
        "token": cluster.token,
        "namespace": cluster.namespace,
        "connections": lab.CONNECTIONS,
        "secrets": secrets,
        "texts": texts,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.nomad.bare_client"],
        input=json.dumps(request),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    rate = JOBS / (max(lab.submitted_at(cluster).values()) - float(done.stdout))
    lab.clear(cluster)
    return rate
