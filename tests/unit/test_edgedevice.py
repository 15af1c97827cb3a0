"""The device plugin's parts that need no process: logs, generated code, probes of this host."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import device_protocol as generate
from edgeyard.devices.edgedevice.hclog import HclogFormatter
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.model import Board, LocalSlice, SshAddress
from edgeyard.devices.probe import Finding, Prober
from edgeyard.devices.ssh import ssh_command
from edgeyard.errors import ConfigError
from tests.builders.edgedevice import board_entry

BOARD = Board(
    target_uid="rpi4b-0001-0001", family="rpi4b", ram_bytes=1, storage_bytes=1, engines=()
)


def test_the_generated_code_is_what_the_proto_files_make(tmp_path: Path) -> None:
    names = generate.generate(tmp_path)
    assert {Path(name).stem for name in names} == {
        f"{path.stem}_pb2" for path in generate.FOLDER.glob("*.proto")
    }
    for name in names:
        assert (tmp_path / name).read_text() == (generate.FOLDER / name).read_text(), (
            f"{name}: run python -m deploy.device_protocol"
        )


def test_a_log_line_is_json_in_hclogs_form() -> None:
    record = logging.makeLogRecord(
        {
            "name": "edgeyard.x",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": "A board is %s.\nreally",
            "args": ("unhealthy",),
            "created": 0.25,
            "reason": 'it "burns"\n',
            "boards": 3,
        }
    )
    line = HclogFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "@level": "warn",
        "@message": "A board is unhealthy.\nreally",
        "@module": "edgeyard.x",
        "@timestamp": "1970-01-01T00:00:00.250000Z",
        "reason": 'it "burns"\n',
        "boards": 3,
    }
    record.exc_info = (ValueError, ValueError("x"), None)
    record.levelname = "CRITICAL"
    entry = json.loads(HclogFormatter().format(record))
    assert (entry["@level"], "ValueError: x" in entry["traceback"]) == ("error", True)


def test_a_board_that_is_its_host_is_healthy_and_reports_heat_and_power(tmp_path: Path) -> None:
    for name, value in {
        "sys/class/thermal/thermal_zone0/temp": "48250\n",
        "sys/class/thermal/thermal_zone1/temp": "-274000\n",
        "sys/class/thermal/thermal_zone2/temp": "what?\n",
        "sys/class/hwmon/hwmon0/power1_input": "5125000\n",
        "sys/class/hwmon/hwmon0/power2_input": "725000\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
    assert Prober(root=tmp_path).look(BOARD) == Finding(True, "", 48.25, 5.125)
    assert Prober(root=tmp_path / "none").look(BOARD) == Finding(True)


def test_a_slice_of_this_host_needs_its_cpus(tmp_path: Path) -> None:
    here = min(os.sched_getaffinity(0))
    prober = Prober(root=tmp_path)
    assert prober.look(replace(BOARD, local=LocalSlice(cpus=(here,), threads=1))).healthy
    found = prober.look(replace(BOARD, local=LocalSlice(cpus=(here, 4000), threads=1)))
    assert found == Finding(False, "needs CPU 4000, not on this host")


def test_the_hosts_side_of_devices_is_kept_to_look_for() -> None:
    entry = board_entry()
    entry["engines"]["ort"]["devices"] = ["/dev/b:/dev/x:rw", "/dev/a", 7, {"host_path": "/dev/c"}]
    entry["engines"]["tflite"]["devices"] = ["/dev/a", "relative", {"path": "/dev/d"}]
    (board,) = Inventory.from_json({"rpi4b": [entry]}).boards
    assert board.device_files == ("/dev/a", "/dev/b", "/dev/c")


def test_an_address_is_read_checked_and_written_back() -> None:
    ssh = {"host": "pi-7.lab", "port": 2222, "user": "bench", "identity_file": "/etc/k"}
    inventory = Inventory.from_json({"rpi4b": [board_entry(ssh=ssh)]})
    assert inventory.boards[0].ssh == SshAddress(**ssh)  # type: ignore[arg-type]
    assert inventory.to_json()["rpi4b"][0]["ssh"] == ssh
    wrong = {
        "host": "-oProxyCommand=x",
        "port": 0,
        "user": "a b",
        "identity_file": "~/.ssh/id",
        "known_hosts_file": "/a%h",
        "password": "x",
    }
    with pytest.raises(ConfigError) as refused:
        Inventory.from_json({"rpi4b": [board_entry(ssh=wrong)]})
    found = [problem.split(": ")[0].rpartition(".")[2] for problem in refused.value.problems]
    assert found == [*wrong]
    both = board_entry(ssh={"host": "a"}, local={"cpus": [0]})
    with pytest.raises(ConfigError, match="not both"):
        Inventory.from_json({"rpi4b": [both]})


def test_ssh_asks_nothing_and_trusts_no_unknown_key() -> None:
    command = ssh_command(SshAddress(host="pi", user="bench", identity_file="/etc/k"), "true")
    assert command[-3:] == ["--", "pi", "true"]
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "Port=22"} <= set(
        command
    )
    assert "-F" in command


def test_hosts_load_no_web_stack_no_numpy_and_no_server() -> None:
    code = (
        "import sys, edgeyard.devices.edgedevice.server; "
        "bad = {'numpy', 'fastapi', 'sqlalchemy', 're2', 'httpx'}; "
        "sys.exit(', '.join(sorted(bad & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
