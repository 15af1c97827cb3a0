"""The units: how exposed they are, and that what they forbid is not needed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.process import Server, await_ready, edgeyard, free_port, on_nomad
from edgeyard import testbed
from tests.nomad_cluster import entry, nomad_binary
from tests.systemd_unit import Unit, needed

pytestmark = pytest.mark.systemd

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "deploy/systemd/edgeyard.service"
EMBEDDED = ROOT / "deploy/systemd/embedded.conf"
HOST = ROOT / "deploy/nomad/nomad-client.service"
MODEL = ROOT / "deploy/demo/digits.onnx"
MAX_EXPOSURE = 3.0


@pytest.mark.parametrize(
    ("unit", "drop_ins"), [(SERVER, []), (SERVER, [EMBEDDED]), (HOST, [])], ids=str
)
def test_units_are_rated_below_the_bound(tmp_path: Path, unit: Path, drop_ins: list[Path]) -> None:
    folder = tmp_path / "etc/systemd/system"
    (folder / f"{unit.name}.d").mkdir(parents=True)
    (folder / unit.name).write_bytes(unit.read_bytes())
    for path in drop_ins:
        (folder / f"{unit.name}.d" / path.name).write_bytes(path.read_bytes())
    command = [needed("systemd-analyze"), "security", "--offline=true", f"--root={tmp_path}"]
    said = subprocess.run(
        [*command, "--no-pager", unit.name], capture_output=True, text=True, check=False
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert found, said
    assert float(found[1]) < MAX_EXPOSURE, said.stdout


@pytest.mark.parametrize("unit", [SERVER, HOST], ids=lambda path: path.name)
def test_systemd_understands_each_line_of_the_units(unit: Path) -> None:
    said = subprocess.run(
        [needed("systemd-analyze"), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    lines = [line for line in said.splitlines() if unit.name in line]
    # the programs and the units beside it are not on this machine
    expected = ("is not executable", "not found")
    assert [line for line in lines if not any(each in line for each in expected)] == []


@pytest.mark.slow
@pytest.mark.xdist_group("server")
@pytest.mark.parametrize("runs_tasks", [False, True], ids=["server", "embedded"])
def test_a_server_works_with_what_its_unit_leaves_it(
    tmp_path: Path, squeezenet: Path, runs_tasks: bool
) -> None:
    """A user without rights, a read-only file system, and the unit's system calls."""
    unit = Unit(SERVER, *([EMBEDDED] if runs_tasks else []))
    folder, port = tmp_path / "data", free_port()
    folder.mkdir()
    command = [sys.executable, "-m", "edgeyard", "up"]
    command += ["--data-dir", str(folder), "--port", str(port)]
    with tempfile.TemporaryFile() as program, (tmp_path / "log").open("wb") as log:
        program.write(unit.filter())
        program.seek(0)
        process = subprocess.Popen(
            unit.wrapped(command, folder, program.fileno()),
            pass_fds=[program.fileno()],
            stdout=log,
            stderr=log,
        )
    try:
        await_ready(process, port, "/readyz")
        token = (folder / "admin.token").read_text().strip()
        server = Server(f"http://127.0.0.1:{port}", port, process, token)
        name = server.upload(squeezenet)["name"]
        if not runs_tasks:
            return
        body = {"model": name, "runtime": "ort", "benchmark_type": "TYPE1", "target": "emufast"}
        made = server.call("POST", "/v1/benchmarks", body)
        ended = server.wait(str(made["benchmark_id"]))
        assert ended["status"] == "completed", ended["failure"]
    except RuntimeError as error:
        raise AssertionError((tmp_path / "log").read_text()[-3000:]) from error
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.nomad
@pytest.mark.xdist_group("nomad-systemd")
def test_a_host_works_with_what_its_unit_leaves_it(tmp_path: Path) -> None:
    """Nomad's agents, the device plugin and the runner, confined as above."""
    confined = tmp_path / "nomad.sh"
    words = [sys.executable, str(ROOT / "tests/systemd_unit.py"), str(HOST), str(tmp_path)]
    confined.write_text(f'#!/bin/sh\nexec {shlex.join([*words, nomad_binary()])} "$@"\n')
    confined.chmod(0o755)
    boards = [{"rpi4b": [entry("rpi4b-0001-0001")]}]
    cluster = testbed.make(tmp_path / "cluster", str(confined), boards).up()
    try:
        outside = cluster.clients[0].pid  # bubblewrap, which waits for the agent
        agent = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()[0]
        status = Path(f"/proc/{agent}/status").read_text()
        assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE), status
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
        inventory = tmp_path / "inventory.json"
        inventory.write_text(json.dumps(boards[0]))
        with edgeyard(tmp_path / "data", on_nomad(cluster, inventory)) as server:
            name = server.upload(MODEL)["name"]
            body = {"model": name, "runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi4b"}
            made = server.call("POST", "/v1/benchmarks", body)
            ended = server.wait(str(made["benchmark_id"]))
            assert ended["status"] == "completed", ended["failure"]
    finally:
        cluster.down()
