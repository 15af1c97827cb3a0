"""Fake trees of ``/sys`` with power sensors, and a supply that moves them as time goes by."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HWMON = "sys/class/hwmon"
RAPL = "sys/class/powercap"

ORIN_NX = {
    f"{HWMON}/hwmon1/name": "ina3221",
    **{
        f"{HWMON}/hwmon1/in{number}_label": label
        for number, label in enumerate(("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), start=1)
    },
    **{f"{HWMON}/hwmon1/in{number}_input": "5000" for number in (1, 2, 3)},
    **{f"{HWMON}/hwmon1/curr{number}_input": str(1200 // number) for number in (1, 2, 3)},
    f"{HWMON}/hwmon1/in4_input": "24",
    f"{HWMON}/hwmon1/curr4_input": "2200",
    f"{HWMON}/hwmon1/in7_input": "40",
}
"""A Jetson Orin NX: currents, voltages and labels, no power; channel 4 is a sum of currents."""


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below a root, each whole or not at all."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}")
        part.write_text(f"{text}\n")
        part.replace(path)
    return root


def package(energy_uj: int, max_uj: int, *, number: int = 0) -> dict[str, str]:
    """Return the files of RAPL's domain of a processor package with a core within it."""
    folder = f"{RAPL}/intel-rapl:{number}"
    return {
        f"{folder}/name": f"package-{number}",
        f"{folder}/energy_uj": str(energy_uj),
        f"{folder}/max_energy_range_uj": str(max_uj),
        f"{folder}:0/name": "core",
        f"{folder}:0/energy_uj": str(energy_uj // 2),
        f"{folder}:0/max_energy_range_uj": str(max_uj),
    }


@contextmanager
def replayed(root: Path, files_at: Callable[[float], Mapping[str, str]]) -> Iterator[Path]:
    """Move the sensors of a tree a hundred times a second.

    Args:
        files_at: Returns what changes, by the seconds since the beginning.
    """
    stop, began = threading.Event(), time.monotonic()

    def replay() -> None:
        while not stop.wait(0.01):
            write_tree(root, files_at(time.monotonic() - began))

    thread = threading.Thread(target=replay, name="supply")
    write_tree(root, files_at(0.0))
    thread.start()
    try:
        yield root
    finally:
        stop.set()
        thread.join()
