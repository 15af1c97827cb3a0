"""What a board's host states about the machine."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from edgeyard.devices.machine import (
    engine_attributes,
    facts_command,
    machine_attributes,
    of_engines,
    read_facts,
)
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


def test_a_board_that_idles_states_its_duty_cycle(tmp_path: Path) -> None:
    part = board("emumid-0001-0001")
    slow = replace(part, local=LocalSlice(cpus=(0,), threads=1, duty_cycle=0.25))
    assert machine_attributes(slow, root=tmp_path)["cpu.duty_cycle"] == 0.25
    whole = replace(part, local=LocalSlice(cpus=(0,), threads=1))
    assert "cpu.duty_cycle" not in machine_attributes(whole, root=tmp_path)


def test_what_the_machine_does_not_state_is_left_out(tmp_path: Path) -> None:
    found = machine_attributes(board("rpi4b-0001-0001"), root=tmp_path)
    assert not {"cpu.model", "os.name"} & found.keys()
    assert isinstance(found["cpu.cores"], int)


def test_accelerators_are_found_by_their_drivers_files(tmp_path: Path) -> None:
    part = board("rpi4b-0001-0001")
    assert machine_attributes(part, root=tmp_path)["accelerators"] == "none"
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("dri/renderD128", "apex_0", "nvidia0"):
        (tmp_path / "dev" / name).touch()
    found = machine_attributes(part, root=tmp_path)
    assert found["accelerators"] == "nvidia-gpu,coral-edgetpu"


def test_another_python_prints_what_its_machine_is() -> None:
    done = subprocess.run(facts_command(sys.executable), capture_output=True, text=True, check=True)
    found = read_facts(done.stdout.splitlines())
    here = machine_attributes(board("rpi4b-0001-0001"))
    assert {name: found.get(name) for name in here} == here
    assert "CPUExecutionProvider" in str(found["engine.ort.execution_providers"])


def test_engines_are_stated_with_versions_and_providers() -> None:
    import onnxruntime

    found = engine_attributes()
    assert found["engine.ort.version"] == onnxruntime.__version__
    kept = of_engines(found, board("rpi4b-0001-0001"))
    assert "engine.ort.version" in kept
    assert "CPU" in str(found["engine.openvino.execution_providers"]).split(",")
    assert str(found["engine.openvino.version"])[0].isdigit()
    assert str(found["engine.ncnn.version"])[0].isdigit()
    assert not [name for name in kept if name.startswith("engine.tflite")]


def test_an_engine_with_a_hyphen_in_its_name_has_its_version_too() -> None:
    lines = ["fact engine.ort-genai.version 0.9.1", "fact engine.-x.version 1"]
    assert read_facts(lines) == {"engine.ort-genai.version": "0.9.1"}


def test_what_a_board_prints_otherwise_is_left_out() -> None:
    lines = [
        "fact cpu.cores many",
        "fact cpu.cores 4",
        "fact target_uid other-0001-0001",
        "fact cpu.model Cortex\x07-A72",
        "welcome",
        "fact",
        "fact os.name " + "x" * 1000,
    ]
    found = read_facts(lines)
    assert found == {"cpu.cores": 4, "cpu.model": "Cortex-A72", "os.name": "x" * 128}
