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

from deploy.process import in_cluster
from edgeyard import testbed
from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.testbed import LoopbackNomad
from tests.builders.cli import printed, refusal
from tests.builders.cluster import eventually
from tests.nomad_cluster import access_of, entry, nomad_binary

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


def environment_of(cluster: LoopbackNomad) -> dict[str, str]:
    return in_cluster(address=cluster.address, token=cluster.token, namespace=cluster.namespace)


@pytest.fixture
def scenario(tmp_path: Path, nomad_cluster: LoopbackNomad, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environment_of(nomad_cluster).items():
        monkeypatch.setenv(name, value)
    return write_scenario(tmp_path)


def write_scenario(folder: Path) -> Path:
    path = folder / "nodes.toml"
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


class GatedSweep:
    """A sweep of two runs, which both wait for a file before they begin."""

    def __init__(self, scenario: Path, folder: Path) -> None:
        self.gates, self.out, self._errors = folder / "gates", folder / "out", folder / "errors"
        self.gates.mkdir()
        gate = folder / "python"
        gate.write_text(_GATE.format(folder=self.gates, python=sys.executable))
        gate.chmod(0o755)
        self._command = [sys.executable, "-m", "edgeyard", "sim", "sweep", str(scenario)]
        self._command += ["--policy", "fcfs", "--policy", "sjf", "--out", str(self.out)]
        self._command += ["--python", str(gate), "--on", "nomad", "--memory", "300"]
        self._command += ["--cpu", "50", "--json"]

    def start(self, **environment: str) -> subprocess.Popen[str]:
        with self._errors.open("w") as errors:
            return subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )

    def errors(self) -> str:
        return self._errors.read_text()

    def await_both(self) -> None:
        eventually(lambda: (self.gates / "1").exists() and (self.gates / "2").exists(), "both run")

    def open(self, number: int) -> None:
        (self.gates / f"go-{number}").touch()

    def results(self) -> list[Path]:
        return list(self.out.glob("*.npz"))

    @property
    def repeated(self) -> bool:
        """Whether more than two runs have begun."""
        return (self.gates / "more").exists()


def end(process: subprocess.Popen[str] | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.communicate()


def test_a_sweep_that_was_killed_takes_over_its_jobs(
    scenario: Path, tmp_path: Path, nomad_cluster: LoopbackNomad
) -> None:
    """Killed while two jobs run; the next one meets one that has ended and one that runs."""
    gated = GatedSweep(scenario, tmp_path)

    def ended_jobs() -> int:
        return sum(each.get("Status") == "dead" for each in client.jobs("edgeyard-sweep-"))

    client = NomadClient(access_of(nomad_cluster))
    killed = gated.start()
    resumed = None
    try:
        gated.await_both()
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert gated.results() == []
        gated.open(1)
        eventually(lambda: ended_jobs() == 1, "one has run")
        resumed = gated.start()
        eventually(lambda: len(gated.results()) == 1, "its result is taken over")
        gated.open(2)
        shown, _ = resumed.communicate()
        assert resumed.returncode == 0
        assert len(json.loads(shown)["runs"]) == 2
        assert not gated.repeated
        assert client.jobs("edgeyard-sweep-") == []
    finally:
        end(killed)
        end(resumed)
        for each in client.jobs("edgeyard-sweep-"):
            client.deregister(str(each["ID"]), purge=True)
        client.close()


def running_tasks(cluster: LoopbackNomad) -> int:
    found = cluster.call("GET", f"/v1/allocations?namespace={cluster.namespace}")
    return sum(each["ClientStatus"] == "running" for each in found)


@pytest.mark.timeout(900)
def test_agents_that_are_killed_within_a_sweep_and_come_back_cost_no_run(tmp_path: Path) -> None:
    """First the node's alone, for so long that Nomad misses it, and then the server's, too."""
    host = {"rpi4b": [entry("rpi4b-0001-0001")]}
    cluster = testbed.make(tmp_path / "nomad", nomad_binary(), [host]).up()
    (node,) = cluster.clients
    gated = GatedSweep(write_scenario(tmp_path), tmp_path)
    sweeping = None
    try:
        sweeping = gated.start(**environment_of(cluster))
        gated.await_both()
        eventually(lambda: running_tasks(cluster) == 2, "Nomad knows that")
        node.kill()
        missed = f"Nomad does not hear from its node {node.name}"
        eventually(lambda: missed in gated.errors(), "the node is missed")
        gated.open(1)  # its run ends while no agent looks
        cluster.server.kill()
        silent = f"Nomad at {cluster.address} is not available"
        eventually(lambda: silent in gated.errors(), "the sweep reports that")
        assert (sweeping.poll(), gated.results()) == (None, [])
        cluster.start()
        gated.open(2)
        shown, _ = sweeping.communicate()
        assert sweeping.returncode == 0, gated.errors()
        document = json.loads(shown)
        assert sorted(each["policy"] for each in document["runs"]) == ["fcfs", "sjf"]
        assert document["failures"] == []
        assert f"Nomad at {cluster.address} is available again" in gated.errors()
        assert not gated.repeated
        assert sorted(path.suffix for path in gated.out.iterdir()) == [".npz", ".npz", ".toml"]
        assert cluster.call("GET", f"/v1/jobs?namespace={cluster.namespace}") == []
    finally:
        end(sweeping)
        cluster.down()


def test_a_node_without_edgeyard_is_named(scenario: Path, tmp_path: Path) -> None:
    found = refusal(
        sweep(scenario, "--policy", "fcfs", "--out", tmp_path / "out", "--python", "/no/python")
    )
    assert "/no/python" in found
    assert list((tmp_path / "out").glob("*.npz")) == []
    # Nomad still has the allocation that failed.
    printed(sweep(scenario, "--policy", "fcfs", "--out", tmp_path / "out"))
