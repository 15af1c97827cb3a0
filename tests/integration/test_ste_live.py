"""The stand-alone twin in live mode: the lab by Nomad and Prometheus, without a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.process import free_port, in_cluster
from edgeyard.benchmark_api.live_twin import MetricsSource
from edgeyard.devices.model import Host
from edgeyard.errors import ClusterUnreachable, Unavailable
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.model.benchmark import BenchmarkType, Failure, FailureCategory
from edgeyard.scheduler.ports import JobRun, JobState, LoadReport
from edgeyard.scheduler.twin.document import read_twin_data
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.scheduler.twin.series import Series
from edgeyard.scheduler.twin.twin import Twin, UnknownDevices
from edgeyard.testbed import LoopbackNomad
from edgeyard.training.lab_view import ClusterView, ObservedJob
from edgeyard.training.ste_services.observed_lab import ObservedLab
from edgeyard.training.ste_services.twin import twin_app
from tests.builders.cluster import Submitter, a_job, eventually, on
from tests.builders.ste_services import TOKEN, Processes, served
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import board
from tests.nomad_cluster import access_of, clear
from tests.programs import programs_of_prometheus

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
WAIT_S = 120.0


def job(name: str, run: JobRun, **state: Any) -> ObservedJob:
    return ObservedJob(
        state=JobState(job_id=f"benchmark-{name}", run=run, **state),
        benchmark_id=name,
        user_id="ada",
        family="rpi4b",
        engine="ort",
        benchmark_type=BenchmarkType.TYPE2,
        nb_inference=7,
        priority=60,
        submitted_at=NOW - timedelta(seconds=60),
    )


class View(ClusterView):
    """A cluster that shows what a test says."""

    def __init__(self) -> None:
        self.found: list[ObservedJob] = []
        self.problem = ""
        self.closed = False

    def hosts(self) -> tuple[Host, ...]:
        self._reach()
        return (Host("host-1", "pi-host", True, (board(A), board(B))),)

    def loads(self) -> Mapping[str, LoadReport]:
        return {}

    def jobs(self) -> Sequence[ObservedJob]:
        self._reach()
        return self.found

    def close(self) -> None:
        self.closed = True

    def _reach(self) -> None:
        if self.problem:
            raise ClusterUnreachable(self.problem)


class Figures:
    """A Prometheus that answers, or does not."""

    def __init__(self) -> None:
        self.problem = ""

    def query_range(
        self, promql: str, begin: datetime, end: datetime, step_s: float
    ) -> Sequence[Series]:
        if self.problem:
            raise Unavailable(self.problem)
        labels = {"exported_job": "benchmark-runs"} if "exported_job" in promql else {}
        return [Series(labels=labels or {"instance": "pi-host:9100"}, times=[0.0], values=[1.5])]


def lab_of(view: ClusterView, clock: FixedClock, figures: Figures | None = None) -> ObservedLab:
    source = None if figures is None else MetricsSource(figures.query_range, clock.monotonic_s)
    return ObservedLab(
        view,
        Twin((), UnknownDevices.ALLOW),
        clock,
        name="Nomad at http://nomad.test:4646",
        metrics=source,
        max_age_s=60.0,
        max_run_s=3600.0,
    )


def test_the_live_state_has_boards_jobs_and_the_figures_of_prometheus() -> None:
    view, clock = View(), FixedClock(NOW)
    failure = Failure(category=FailureCategory.BOARD_FAULT, sentence="it broke")
    began = NOW - timedelta(seconds=30)
    view.found = [
        job("went", JobRun.ENDED, target_uid=B, started_at=began, ended_at=NOW),
        job("broke", JobRun.ENDED, target_uid=B, failure=failure, ended_at=NOW),
        job("stopped", JobRun.ENDED, stopped=True, ended_at=NOW),
        job("runs", JobRun.RUNNING, target_uid=A, started_at=began),
        job("waits", JobRun.QUEUED),
    ]
    lab = lab_of(view, clock, Figures())
    lab.refresh()
    with served(twin_app(DigitalTwin(), TOKEN, lab)) as twin:
        found = twin.get("/data").json()
        health = twin.get("/health_check").json()
        posted = twin.post("/", json=found).json()
        assert twin.get("/data", params={"version": posted["version"]}).json() == found
    assert view.closed
    read_twin_data(json.dumps(found).encode())
    nodes = {each["id"]: each for each in found["nodes"]}
    assert (nodes[A].get("busy"), nodes[B].get("busy")) == (True, None)
    assert [each["cpu_load"] for each in nodes.values()] == [1.5, 1.5]
    jobs = {each["job_id"]: each for each in found["jobs"]}
    assert {name: each.get("status", "pending") for name, each in jobs.items()} == {
        "went": "completed",
        "broke": "failed",
        "runs": "running",
        "waits": "pending",
    }
    assert (jobs["went"]["time_run"], jobs["broke"]["failure"]) == (30.0, "board_fault")
    runs = jobs["runs"]
    assert (runs["node_id"], runs["user_id"], runs["cpu_used"]) == (A, "ada", 1.5)
    assert (runs["engine"], runs["benchmark_type"], runs["nb_inference"]) == ("ort", "TYPE2", 7)
    assert {each["kind"] for each in found["links"]} == {"host"}
    assert (health["status"], health["nodes"], health["jobs"]) == ("ok", 2, 4)
    assert health["live"] == {"age_s": 0.0, "cluster_problem": "", "metrics_problem": ""}


def test_a_cluster_that_stops_answering_is_shown_with_the_age_of_the_state() -> None:
    view, clock = View(), FixedClock(NOW)
    view.problem = "connection refused"
    lab = lab_of(view, clock)
    with served(twin_app(DigitalTwin(), TOKEN, lab)) as twin:
        assert twin.get("/data").json()["nodes"] == []
        assert twin.get("/health_check").json()["live"]["age_s"] is None
        lab.refresh()
        health = twin.get("/health_check").json()
        assert health["status"] == "stale"
        assert "nomad.test:4646 does not answer" in health["live"]["cluster_problem"]
        view.problem = ""
        lab.refresh()
        assert twin.get("/health_check").json()["status"] == "ok"
        view.problem = "it hangs"
        clock.forward(59)
        lab.refresh()
        assert twin.get("/health_check").json()["status"] == "ok"
        clock.forward(2)
        health, data = twin.get("/health_check").json(), twin.get("/data").json()
    assert (health["status"], health["live"]["age_s"]) == ("stale", 61.0)
    assert "it hangs" in health["live"]["cluster_problem"]
    assert data["age_s"] == 61.0
    assert "it hangs" in data["source"]
    assert {each["id"] for each in data["nodes"]} == {A, B}


def test_a_prometheus_that_stops_answering_degrades_the_twin_and_hides_nothing() -> None:
    view, clock, figures = View(), FixedClock(NOW), Figures()
    lab = lab_of(view, clock, figures)
    lab.refresh()
    assert lab.health().status == "ok"
    figures.problem = "Prometheus at p.test: does not answer"
    clock.forward(10)
    lab.refresh()
    health, data = lab.health(), lab.data()
    assert (health.status, health.metrics_problem) == ("degraded", figures.problem)
    assert figures.problem in data.source
    assert [each.load_measured for each in data.nodes] == [False, False]
    figures.problem = ""
    clock.forward(10)
    lab.refresh()
    assert lab.health().status == "ok"


def test_the_lab_is_read_again_by_itself_also_after_a_defect() -> None:
    class Broken(View):
        def jobs(self) -> Sequence[ObservedJob]:
            if self.problem == "defect":
                raise ValueError(self.problem)
            return super().jobs()

    view = Broken()
    view.problem = "defect"
    lab = lab_of(view, FixedClock(NOW))
    lab.start()
    try:
        eventually(lambda: "defect" in lab.health().cluster_problem, "it is noted", WAIT_S)
        view.problem = ""
        lab.wake()
        eventually(lambda: lab.health().status == "ok", "it is read again", WAIT_S)
    finally:
        lab.stop()
    assert view.closed


@contextmanager
def prometheus(folder: Path, port: int, job_id: str) -> Iterator[None]:
    """A real Prometheus with the figures of one host and one job, an hour back and ahead."""
    programs = programs_of_prometheus()
    if programs is None:
        pytest.skip("Prometheus is not available: make programs")
    now = time.time()
    series = {
        f'nomad_client_allocs_cpu_total_percent{{exported_job="{job_id}"}}': 75,
        f'nomad_client_allocs_memory_usage{{exported_job="{job_id}"}}': 3 * 2**20,
    }
    lines = []
    for name, value in series.items():
        lines.append(f"# TYPE {name.partition('{')[0]} gauge")
        lines += [f"{name} {value} {now + 15 * step:.0f}" for step in range(-240, 240)]
    (folder / "metrics").write_text("\n".join([*lines, "# EOF", ""]))
    backfill = ["tsdb", "create-blocks-from", "openmetrics", f"{folder}/metrics", f"{folder}/data"]
    subprocess.run([str(programs / "promtool"), *backfill], check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    words = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=30d",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)

    def is_ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    try:
        eventually(is_ready, "Prometheus is ready", WAIT_S)
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder / "data")


@pytest.mark.nomad
@pytest.mark.prometheus
@pytest.mark.slow
@pytest.mark.xdist_group("nomad")
def test_a_live_twin_of_a_real_nomad_and_a_real_prometheus(
    nomad_cluster: LoopbackNomad, tmp_path: Path
) -> None:
    clear(nomad_cluster)
    target, job_id, port = "rpi5-0002-0002", "benchmark-live", free_port()
    environment = {
        **os.environ,
        "EDGEYARD_STE_TOKEN": TOKEN,
        **in_cluster(
            address=nomad_cluster.address,
            namespace=nomad_cluster.namespace,
            token=nomad_cluster.token,
        ),
        "EDGEYARD_TWIN_PROMETHEUS": f"http://127.0.0.1:{port}",
    }
    env = {"TARGET": "rpi5", "RUNTIME": "ort", "BENCHMARK_TYPE": "TYPE1", "NB_INFERENCE": "9"}
    sleep = "import time; print('up', flush=True); time.sleep(600)"
    try:
        with (
            closing(NomadCluster(access_of(nomad_cluster))) as cluster,
            Processes(tmp_path, environment).service("twin", "--live") as url,
            httpx.Client(
                base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60.0
            ) as twin,
        ):
            lab = Submitter(cluster)
            lab.dispatch(a_job(sleep, on(target), job_id=job_id, env=env), job_id=job_id)

            def shown() -> dict[str, Any]:
                twin.post("/refresh")
                jobs = twin.get("/data").json().get("jobs", [])
                return next((each for each in jobs if each["job_id"] == job_id), {})

            def health() -> dict[str, Any]:
                found: dict[str, Any] = twin.get("/health_check").json()
                return found

            eventually(lambda: shown().get("status") == "running", "the job runs", WAIT_S)
            assert health()["status"] == "degraded"
            assert f"127.0.0.1:{port}" in health()["live"]["metrics_problem"]
            with prometheus(tmp_path, port, job_id):
                eventually(lambda: shown().get("cpu_used") == 0.75, "its cores are known", WAIT_S)
                assert health()["status"] == "ok"
            job = shown()
            assert (job["node_id"], job["engine"], job["nb_inference"]) == (target, "ort", 9)
            nodes = {each["id"]: each for each in twin.get("/data").json()["nodes"]}
            assert nodes[target]["busy"]
            assert len(nodes) == 12
            cluster.stop(job_id)
            eventually(lambda: not shown(), "a stopped job is no past run", WAIT_S)
    finally:
        clear(nomad_cluster)
