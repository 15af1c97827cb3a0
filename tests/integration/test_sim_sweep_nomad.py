"""``edgeyard sim sweep --on nomad`` on a real agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.testbed import LoopbackNomad
from tests.builders.cli import printed, refusal
from tests.builders.cluster import eventually
from tests.nomad_cluster import access_of

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

SCENARIO = """
name = "nodes"
world = "nodes"
duration_s = 100
[[nodes.nodes]]
count = 2
cpu_cores = 10
memory_mb = 1000
[nodes.mix]
rate = 0.5
steps = 40
"""


@pytest.fixture
def scenario(tmp_path: Path, nomad_cluster: LoopbackNomad, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEYARD_NOMAD_ADDRESS", nomad_cluster.address)
    monkeypatch.setenv("EDGEYARD_NOMAD_TOKEN", nomad_cluster.token)
    monkeypatch.setenv("EDGEYARD_NOMAD_NAMESPACE", nomad_cluster.namespace)
    path = tmp_path / "nodes.toml"
    path.write_text(SCENARIO)
    return path


def sweep(*arguments: object) -> Result:
    command = ["sim", "sweep", *map(str, arguments), "--on", "nomad", "--memory", "300"]
    return CliRunner().invoke(app, [*command, "--cpu", "50", "--json"])


def test_runs_on_nomad_equal_those_of_this_machine(
    scenario: Path, tmp_path: Path, nomad_cluster: LoopbackNomad
) -> None:
    arguments = (scenario, "--policy", "fcfs", "--policy", "sjf")
    remote = json.loads(printed(sweep(*arguments, "--out", tmp_path / "remote")))
    local = CliRunner().invoke(
        app, ["sim", "sweep", *map(str, arguments), "--out", str(tmp_path / "local"), "--json"]
    )
    assert local.exit_code == 0, local.stderr

    def figures(document: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
        return [
            {name: value for name, value in each.items() if name != "wall_s"}
            for each in document["runs"]
        ]

    assert figures(remote) == figures(json.loads(local.stdout))
    assert len(remote["runs"]) == 2
    client = NomadClient(access_of(nomad_cluster))
    try:
        assert client.jobs("edgeyard-sweep-") == []  # results are here, jobs are removed
    finally:
        client.close()
    again = sweep(*arguments, "--out", tmp_path / "remote")
    assert "2 of 2 runs are there already" in again.stderr


_GATE = """#!/bin/sh
# The n-th run that starts here goes on when there is a file go-n.
mkdir {folder}/1 2>/dev/null && n=1 || {{ mkdir {folder}/2 2>/dev/null && n=2; }} || n=more
mkdir -p {folder}/$n
while [ ! -e {folder}/go-$n ]; do sleep 0.2; done
exec {python} "$@"
"""


def test_a_sweep_that_was_killed_takes_over_its_jobs(
    scenario: Path, tmp_path: Path, nomad_cluster: LoopbackNomad
) -> None:
    """Killed while two jobs run; the next one meets one that has ended and one that runs."""
    gates, out = tmp_path / "gates", tmp_path / "out"
    gates.mkdir()
    gate = tmp_path / "python"
    gate.write_text(_GATE.format(folder=gates, python=sys.executable))
    gate.chmod(0o755)
    command = [sys.executable, "-m", "edgeyard", "sim", "sweep", str(scenario)]
    command += ["--policy", "fcfs", "--policy", "sjf", "--out", str(out), "--python", str(gate)]
    command += ["--on", "nomad", "--memory", "300", "--cpu", "50", "--json"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ended_jobs() -> int:
        return sum(each.get("Status") == "dead" for each in client.jobs("edgeyard-sweep-"))

    client = NomadClient(access_of(nomad_cluster))
    killed = start()
    resumed = None
    try:
        eventually(lambda: (gates / "1").exists() and (gates / "2").exists(), "both run")
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert list(out.glob("*.npz")) == []
        (gates / "go-1").touch()
        eventually(lambda: ended_jobs() == 1, "one has run")
        resumed = start()
        eventually(lambda: len(list(out.glob("*.npz"))) == 1, "its result is taken over")
        (gates / "go-2").touch()
        shown, _ = resumed.communicate()
        assert resumed.returncode == 0
        assert len(json.loads(shown)["runs"]) == 2
        assert not (gates / "more").exists()  # nothing ran twice
        assert client.jobs("edgeyard-sweep-") == []
    finally:
        for process in (killed, resumed):
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()
        for each in client.jobs("edgeyard-sweep-"):
            client.deregister(str(each["ID"]), purge=True)
        client.close()


def test_a_node_without_edgeyard_is_named(scenario: Path, tmp_path: Path) -> None:
    found = refusal(
        sweep(scenario, "--policy", "fcfs", "--out", tmp_path / "out", "--python", "/no/python")
    )
    assert "/no/python" in found
    assert list((tmp_path / "out").glob("*.npz")) == []
