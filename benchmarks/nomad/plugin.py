"""What the device plugin costs its host, with a tenth of the boards running tasks."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.nomad import lab
from benchmarks.tables import Row

COUNTS = (20, 200)
MEASURED_S = 30.0
_FAMILY = "rpi5"

# What the runner does: a number, written anew twice a second.
_TASK = """
import itertools, os, sys, time
until = time.monotonic() + float(sys.argv[2])
for percent in itertools.cycle(range(5, 100, 5)):
    if time.monotonic() > until:
        break
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(percent))
    os.replace(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(0.5)
"""


def run(folder: Path) -> list[Row]:
    """A host for each count."""
    return [row for count in COUNTS for row in _host(folder / f"plugin-{count}", count)]


def _host(folder: Path, count: int) -> list[Row]:
    with lab.nomad(folder, [lab.boards(_FAMILY, count)]) as cluster:
        (client,) = cluster.clients
        assert client.process is not None
        pid = _plugin(client.process.pid)
        tasks = [
            subprocess.Popen((sys.executable, "-c", _TASK, str(file), str(MEASURED_S)))
            for file in _progress_files(client.folder, count // 10)
        ]
        cpu_s, began = _cpu_s(pid), time.monotonic()
        for task in tasks:
            task.wait()
        share = (_cpu_s(pid) - cpu_s) / (time.monotonic() - began)
        memory_mib = _resident_mib(pid)
    what = f"{count} boards, probed each second, {count // 10} report progress twice a second"
    return [
        Row(f"plugin memory {count}", memory_mib, "MiB", note=f"resident; {what}"),
        Row(
            f"plugin CPU {count}", 100 * share, "%", note=f"of one core, {MEASURED_S:.0f} s; {what}"
        ),
    ]


def _plugin(client: int) -> int:
    """The plugin's process among the children of a Nomad client."""
    for child in Path(f"/proc/{client}/task").glob("*/children"):
        for pid in child.read_text().split():
            if b"edgeyard-device-plugin" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise RuntimeError("no device plugin runs")


def _progress_files(client: Path, count: int) -> Iterator[Path]:
    for number in range(1, count + 1):
        folder = client / "state/boards" / f"{_FAMILY}-0001-{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder / "progress"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if "VmRSS" in line).split()[1]) / 1024
