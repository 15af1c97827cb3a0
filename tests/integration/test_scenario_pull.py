"""Scenarios are pulled from a real Prometheus, also after it was away."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from deploy.process import free_port
from edgeyard.benchmark_api.bootstrap import open_store
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.store import SqlStore
from edgeyard.simulator.scenario import NodeJob, scenario_from_json
from edgeyard.simulator.scenario_puller import FIRST_WAIT_S, ScenarioPuller
from edgeyard.simulator.server_part import background
from tests.builders.cli import refusal
from tests.builders.cluster import eventually
from tests.programs import programs_of_prometheus

ROOT = Path(__file__).parents[2]
WINDOW_S = 3600.0
STEP_S = 60.0


@dataclass
class Recorded:
    """A Prometheus with some hours of a small cluster, which can be stopped and started."""

    programs: Path
    folder: Path
    port: int
    begin: datetime

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        config = self.folder / "prometheus.yml"
        config.write_text("global: {}\n")
        words: list[str] = [
            str(self.programs / "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=30d",
            "--query.lookback-delta=59s",  # what is recorded here has no marks of its ends
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            eventually(self._ready, "Prometheus is ready", 120.0)
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    programs = programs_of_prometheus()
    if programs is None:
        pytest.skip("Prometheus is not available: make programs")
    folder = tmp_path_factory.mktemp("prometheus")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    begin = hour - timedelta(hours=3)
    (folder / "metrics").write_text(_metrics(begin))
    backfill = ["tsdb", "create-blocks-from", "openmetrics", f"{folder}/metrics", f"{folder}/data"]
    subprocess.run([str(programs / "promtool"), *backfill], check=True, capture_output=True)
    return Recorded(programs=programs, folder=folder, port=free_port(), begin=begin)


def _metrics(begin: datetime) -> str:
    """Five hours, of which two are to come: two nodes, and jobs with their cores and memory."""
    first = begin.timestamp()
    lines: dict[str, list[str]] = {
        "node_cpu_seconds_total": [],
        "node_memory_MemTotal_bytes": [],
        "nomad_client_allocs_cpu_total_percent": [],
        "nomad_client_allocs_memory_usage": [],
    }
    for minute in range(300):
        at = f"{first + 60 * minute:.0f}"
        for node, cores in (("big", 4), ("small", 2)):
            for cpu in range(cores):
                lines["node_cpu_seconds_total"].append(
                    f'node_cpu_seconds_total{{instance="{node}",cpu="{cpu}",mode="idle"}} 1 {at}'
                )
            lines["node_memory_MemTotal_bytes"].append(
                f'node_memory_MemTotal_bytes{{instance="{node}"}} {cores * 2**30} {at}'
            )
        for job, user, start, end, percent, memory in (
            ("a", "ada", 5, 15, 150, 100),
            ("b", "bob", 50, 70, 100, 900),
            ("c", "bob", 130, 140, 900, 1),
            ("d", "ada", 170, 300, 100, 1),
        ):
            if start <= minute < end:
                labels = f'{{alloc_id="{job}",namespace="{user}"}}'
                usage = f"nomad_client_allocs_memory_usage{labels} {memory * 2**20} {at}"
                lines["nomad_client_allocs_memory_usage"].append(usage)
                busy = f"nomad_client_allocs_cpu_total_percent{labels} {percent} {at}"
                lines["nomad_client_allocs_cpu_total_percent"].append(busy)
    parts = []
    for name, rows in lines.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        parts += [f"# TYPE {name.removesuffix('_total')} {kind}", *rows]
    return "\n".join([*parts, "# EOF", ""])


@pytest.fixture
def store(sqlite_template: Path, tmp_path: Path) -> Iterator[SqlStore]:
    shutil.copy(sqlite_template, tmp_path / "edgeyard.db")
    store = open_store(Settings.load(data_dir=tmp_path))
    yield store
    store.close()


class MovedClock:
    """A time of day that a test sets."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


def puller_of(
    recorded: Recorded, store: SqlStore, clock: MovedClock, tmp_path: Path
) -> ScenarioPuller:
    settings = Settings.load(
        None,
        data_dir=tmp_path,
        scenario_prometheus=recorded.url,
        scenario_window_s=WINDOW_S,
        scenario_step_s=STEP_S,
    )
    puller = background(settings, store, clock, lambda: True)  # type: ignore[arg-type]
    assert puller is not None
    return puller


def stored_windows(store: SqlStore) -> dict[str, tuple[NodeJob, ...]]:
    """Jobs of each stored scenario, by the hour in its name."""
    with store.read() as uow:
        found, _ = uow.scenarios.page(tags=["pulled"])
        bodies = [scenario_from_json(uow.scenarios.body(each.sha256)) for each in found]
    return {each.name[-7:]: each.nodes.jobs for each in bodies if each.nodes is not None}


def hour(at: datetime) -> str:
    return f"{at:%H%M%S}Z"


@pytest.mark.prometheus
@pytest.mark.slow
def test_a_server_pulls_each_window_once_and_all_that_it_missed(
    recorded: Recorded, store: SqlStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (recorded.begin + timedelta(hours=n) for n in range(3))
    clock = MovedClock(first + timedelta(minutes=70))
    caplog.set_level("INFO")
    puller = puller_of(recorded, store, clock, tmp_path)
    with recorded.running():
        assert puller.turn() == pytest.approx(50 * 60)
        windows = stored_windows(store)
        assert windows == {
            hour(first): (
                NodeJob(job_id="a", submit_s=300, run_s=600, cpus=2, memory_mb=100, user="ada"),
                NodeJob(job_id="b", submit_s=3000, run_s=600, cpus=1, memory_mb=900, user="bob"),
            )
        }
        assert puller.turn() == pytest.approx(50 * 60)
        assert stored_windows(store) == windows
    clock.at = third + timedelta(minutes=70)  # Prometheus is away for two windows
    caplog.clear()
    assert puller.turn() == FIRST_WAIT_S
    assert puller.turn() == 2 * FIRST_WAIT_S
    assert stored_windows(store) == windows
    messages = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(messages) == 2
    assert "does not answer" in messages[0]
    assert f"127.0.0.1:{recorded.port}" in messages[0]
    assert "what is stored stays" in messages[0]
    assert "failure 2 in a row" in messages[1]
    with recorded.running():
        again = puller_of(recorded, store, clock, tmp_path)  # as after a restart of the server
        assert again.turn() == pytest.approx(50 * 60)
        again.stop()
    puller.stop()
    windows = stored_windows(store)
    assert set(windows) == {hour(first), hour(second), hour(third)}
    assert [(job.job_id, job.submit_s, job.run_s) for job in windows[hour(second)]] == [
        ("b", 0, 600)
    ]
    assert [(job.job_id, job.cpus) for job in windows[hour(third)]] == [("c", 4), ("d", 1)]


@pytest.mark.prometheus
@pytest.mark.slow
def test_the_command_line_pulls_and_says_what_is_wrong(
    recorded: Recorded, store: SqlStore, tmp_path: Path
) -> None:
    db = str(tmp_path / "edgeyard.db")

    def pull(*words: str) -> Result:
        command = ["scenarios", "pull", recorded.url, "--db", db, *words]
        return CliRunner().invoke(app, command)

    queries = tmp_path / "queries.toml"
    with recorded.running():
        done = pull("--step", "60", "--tag", "lab", "--json")
        assert done.exit_code == 0, done.output
        queries.write_text('node_cpus = "sum("')
        assert "refused 'sum('" in pull("--window", "30 min", "--queries", str(queries)).stderr
        queries.write_text('node_cpus = "absent_metric"')
        assert (
            "node_cpus (absent_metric) has no series"
            in pull("--window", "30 min", "--queries", str(queries)).stderr
        )
        queries.write_text('node_cpu = "x"')
        assert (
            "node_cpu: is unknown" in pull("--window", "30 min", "--queries", str(queries)).stderr
        )
    away = refusal(pull("--window", "30 min", "--step", "60"))
    assert f"Prometheus at 127.0.0.1:{recorded.port}: does not answer" in away
    assert "for a window of" in pull("--step", "0.1").stderr
    (row,) = json.loads(done.stdout)
    assert row["tags"] == ["lab", "pulled"]
    assert row["source"] == f"pull http://127.0.0.1:{recorded.port}"
    assert row["jobs"] >= 1


def test_wrong_settings_are_refused(tmp_path: Path, store: SqlStore) -> None:
    clock = MovedClock(datetime.now(UTC))
    for wrong in (
        {"scenario_prometheus": "prometheus:9090"},
        {"scenario_prometheus": "http://x", "scenario_step_s": 0.01},
        {"scenario_prometheus": "http://x", "scenario_queries": tmp_path / "absent.toml"},
    ):
        settings = Settings.load(data_dir=tmp_path, **wrong)
        with pytest.raises(ConfigError, match="scenario_"):
            background(settings, store, clock, lambda: True)  # type: ignore[arg-type]
    none = Settings.load(data_dir=tmp_path)
    assert background(none, store, clock, lambda: True) is None  # type: ignore[arg-type]
    refused = CliRunner().invoke(app, ["scenarios", "pull", "prometheus:9090"])
    assert "is not a URL of Prometheus" in refused.stderr
