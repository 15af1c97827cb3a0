"""``edgeyard testbed`` with real agents: found again by other processes, after kill -9 too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeyard.testbed import LoopbackNomad, saved, standing
from edgeyard.testbed.agent import command_lines
from edgeyard.testbed.cluster import mounts_below
from tests.builders.cluster import eventually
from tests.nomad_cluster import nomad_binary

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]


def cli(folder: Path, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(sys.executable, "-m", "edgeyard", "testbed", verb, "--folder", str(folder)), *options],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "bed"
    yield folder
    if left := saved.load(folder):
        standing.end(left)


def found(folder: Path) -> LoopbackNomad:
    there = saved.load(folder)
    assert there is not None
    return there


def a_task(bed: LoopbackNomad) -> str:
    """Start a task that goes on for ever; its allocation."""
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "sleep", "args": ["1000"]}}
    group = {"Name": "g", "Tasks": [task]}
    job = {"ID": "j", "Type": "batch", "Datacenters": ["*"], "TaskGroups": [group]}
    bed.call("POST", "/v1/jobs", {"Job": job})
    eventually(lambda: state(bed) == "running", "the task runs")
    return str(allocation(bed)["ID"])


def allocation(bed: LoopbackNomad) -> dict[str, Any]:
    listed = bed.call("GET", "/v1/job/j/allocations")
    return dict(listed[0]) if listed else {}


def state(bed: LoopbackNomad) -> str:
    return str(allocation(bed).get("ClientStatus"))


def sleeps(bed: LoopbackNomad) -> list[int]:
    """Processes of the task."""
    ours = []
    for pid, words in command_lines():
        if words[1:] == [b"1000"]:
            where = Path(f"/proc/{pid}/cwd").readlink()
            ours += [pid] if bed.folder in where.parents else []
    return ours


def test_a_test_bed_outlives_its_starter_and_a_crash_and_leaves_nothing(folder: Path) -> None:
    nomad = nomad_binary()
    up = cli(folder, "up", "--clients", "1", "--boards", "2", "--nomad", nomad, "--json")
    assert up.returncode == 0, up.stderr
    assert "2 of 2 boards are there" in up.stderr
    reported = json.loads(up.stdout)
    assert reported["running"]
    assert [(each["name"], each["boards"]) for each in reported["agents"]] == [
        ("server", None),
        ("client-0", 2),
    ]
    bed = found(folder)
    assert all(
        each["pid"] == agent.pid for each, agent in zip(reported["agents"], bed.agents, strict=True)
    )
    settings = Path(reported["settings"]).read_text()
    assert str(folder.resolve() / "token") in settings
    assert bed.token not in settings + up.stdout + up.stderr
    allocation_id = a_task(bed)

    again = cli(folder, "up")
    assert (again.returncode, json.loads(cli(folder, "status", "--json").stdout)) == (0, reported)
    assert "is running already" in again.stderr
    other = cli(folder, "up", "--boards", "3")
    assert other.returncode == 1
    assert "1 clients with 2 boards each" in other.stderr

    for agent in bed.agents:
        assert agent.pid is not None
        os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: not any(agent.pid for agent in bed.agents), "the agents are gone")
    status = cli(folder, "status")
    assert status.returncode == 1
    assert status.stdout.count("stopped") == 2
    assert "server, client-0 ended without `down`" in status.stderr

    up = cli(folder, "up")
    assert up.returncode == 0, up.stderr
    assert (allocation(bed)["ID"], state(bed)) == (allocation_id, "running")
    client = bed.clients[0].pid
    assert client is not None
    os.kill(client, signal.SIGKILL)

    assert len(sleeps(bed)) == 1, "a task outlives its agent"
    down = cli(folder, "down")
    assert down.returncode == 0, down.stderr
    assert not folder.exists()
    assert not any(agent.pid for agent in bed.agents)
    assert sleeps(bed) == []
    assert mounts_below(folder.resolve()) == []
    left = [words for _, words in command_lines() if str(folder).encode() in b" ".join(words)]
    assert left == []
    assert "no test bed" in cli(folder, "down").stderr
