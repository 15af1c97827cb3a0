"""``edgeyard sim sweep --on nomad`` on a real agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.testbed import LoopbackNomad
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
    found = sweep(*arguments, "--out", tmp_path / "remote")
    assert found.exit_code == 0, found.stderr
    remote = json.loads(found.stdout)
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


def test_a_node_without_edgeyard_is_named(scenario: Path, tmp_path: Path) -> None:
    found = sweep(scenario, "--policy", "fcfs", "--out", tmp_path / "out", "--python", "/no/python")
    assert found.exit_code == 1
    assert "/no/python" in found.stderr
    assert list((tmp_path / "out").glob("*.npz")) == []
