"""What a board's host states about the machine."""

from dataclasses import replace
from pathlib import Path

from edgeyard.devices.machine import machine_attributes
from edgeyard.devices.model import LocalSlice
from tests.fakes.cluster import board


def test_processor_cores_and_system_are_attributes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nmodel name\t: Cortex-A72\x07\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME=x\nPRETTY_NAME="Debian 12"\n')
    part = replace(board("emumid-0001-0001"), local=LocalSlice(cpus=(0,), threads=1))
    found = machine_attributes(part, root=tmp_path)
    assert found["cpu.model"] == "Cortex-A72"
    assert found["os.name"] == "Debian 12"
    assert found["cpu.cores"] == 1
    assert found["cpu.arch"]


def test_what_the_machine_does_not_state_is_left_out(tmp_path: Path) -> None:
    found = machine_attributes(board("rpi4b-0001-0001"), root=tmp_path)
    assert not {"cpu.model", "os.name"} & found.keys()
    assert isinstance(found["cpu.cores"], int)
