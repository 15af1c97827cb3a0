"""Boards, jobs and files for tests of clusters."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from edgeyard.devices.model import Board, BoardEngine, LocalSlice
from edgeyard.scheduler.clusters.observed import ClusterWithNodes
from edgeyard.scheduler.hcl.build import secret_template
from edgeyard.scheduler.hcl.job import (
    Artifact,
    DeviceConstraint,
    NodeConstraint,
    NomadJob,
    Periodic,
    Template,
)
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.ports import JobRun, JobState
from tests.builders.web import QuietHandler, serving

GIB = 2**30
TOKEN = "EDGEYARD_UPLOAD_TOKEN"
PRINT_TOKEN = (
    "import os; path = os.environ['NOMAD_SECRETS_DIR'] + '/token.env';"
    "print(open(path).read().strip().split('=')[1])"
)
"""A task that shows its token, which no test's own tasks would do."""

PATIENCE_S = 60.0
"""How long tests wait for what must happen; far more than it takes."""


def a_board(
    target_uid: str = "rpi4b-0001-0001",
    *,
    ram_bytes: int = 4 * GIB,
    storage_bytes: int = 16 * GIB,
    engines: Mapping[str, Sequence[str]] | None = None,
    cpus: tuple[int, ...] = (),
    shares_with: frozenset[str] = frozenset(),
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Board:
    offered = {"ort": ["TYPE1", "TYPE2"]} if engines is None else engines
    return Board(
        target_uid=target_uid,
        family=target_uid.split("-", 1)[0],
        ram_bytes=ram_bytes,
        storage_bytes=storage_bytes,
        engines=tuple(
            BoardEngine(name=name, supported_types=frozenset(types))
            for name, types in offered.items()
        ),
        local=LocalSlice(cpus=cpus, threads=1),
        shares_with=shares_with,
        attributes=attributes or {},
    )


def where(attribute: str, operator: str, value: str) -> DeviceConstraint:
    return DeviceConstraint(
        attribute=f"${{device.attr.{attribute}}}", operator=operator, value=value
    )


def on(target_uid: str) -> DeviceConstraint:
    return where("target_uid", "=", target_uid)


def a_job(
    code: str = "pass",
    *constraints: DeviceConstraint,
    job_id: str = "benchmark-1",
    priority: int = 50,
    env: Mapping[str, str] | None = None,
    artifacts: tuple[Artifact, ...] = (),
    templates: tuple[Template, ...] | None = None,
    periodic: Periodic | None = None,
    kill_timeout_s: int | None = 5,
    driver: str = "raw_exec",
    node_constraints: tuple[NodeConstraint, ...] = (),
) -> str:
    """The HCL of a job that runs Python code."""
    return render(
        NomadJob(
            job_id=job_id,
            priority=priority,
            driver=driver,
            config={"command": sys.executable, "args": ("-I", "-S", "-c", code)},
            env=env or {},
            constraints=constraints,
            artifacts=artifacts,
            templates=(secret_template(job_id, [TOKEN]),) if templates is None else templates,
            periodic=periodic,
            kill_timeout_s=kill_timeout_s,
            node_constraints=node_constraints,
        )
    )


def eventually(predicate: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds; fail if it never does."""
    pause = threading.Event()
    until_s = time.monotonic() + patience_s
    while True:
        late = time.monotonic() > until_s
        if predicate():
            return
        if late:
            raise AssertionError(f"never happened: {what}")
        pause.wait(0.005)


@contextmanager
def listening(cluster: ClusterWithNodes) -> Iterator[list[str]]:
    """Hints of the cluster's events, as they come in."""
    hints: list[str] = []
    stop = threading.Event()

    def listen() -> None:
        for hint in cluster.events(stop):
            hints.append(hint)

    listener = threading.Thread(target=listen, name="listener")
    listener.start()
    try:
        yield hints
    finally:
        stop.set()
        listener.join(10)
        assert not listener.is_alive()


class Submitter:
    """Dispatches jobs to a cluster and waits for them."""

    def __init__(self, cluster: ClusterWithNodes) -> None:
        self.cluster = cluster

    def dispatch(self, hcl: str, *, job_id: str = "benchmark-1", token: str = "t-1") -> str:
        self.cluster.dispatch(job_id, hcl, {TOKEN: token})
        return job_id

    def run(self, hcl: str, *, job_id: str = "benchmark-1") -> JobState:
        return self.until(self.dispatch(hcl, job_id=job_id), JobRun.ENDED)

    def state(self, job_id: str = "benchmark-1") -> JobState:
        return self.cluster.states([job_id])[job_id]

    def until(self, job_id: str, run: JobRun) -> JobState:
        eventually(
            lambda: self.state(job_id).run in (run, JobRun.ENDED), f"{job_id} is {run.value}"
        )
        state = self.state(job_id)
        assert state.run is run, state
        return state

    def until_log(self, job_id: str, text: str) -> None:
        eventually(lambda: text in self.log(job_id), f"{job_id} writes {text!r}")

    def log(self, job_id: str = "benchmark-1", stream: str = "stdout") -> str:
        data, offset = b"", 0
        while True:
            chunk = self.cluster.logs(job_id, stream, offset)
            data, offset = data + chunk.data, chunk.next_offset
            if not chunk.data:
                return data.decode()


@contextmanager
def file_server(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve files by name under the URL that is yielded; ``busy`` answers 503 once."""
    refusals = ["busy"]

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            if name in refusals:
                refusals.remove(name)
                self.send_error(503)
            elif name not in files:
                self.send_error(404)
            else:
                self.answer(files[name])

    with serving(Handler) as url:
        yield f"{url}/download"


def an_artifact(url: str, name: str, content: bytes | None = None) -> Artifact:
    """In mode file, checked against ``content`` where that is given."""
    checksum = "" if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"
    return Artifact(
        source=f"{url}/{name}", destination=f"local/{name}", mode="file", checksum=checksum
    )
