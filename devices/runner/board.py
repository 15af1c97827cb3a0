"""What this machine shows of itself in ``/proc`` and ``/sys``: facts, read as they are now.

Each reader returns None (or an empty value) where the kernel has no value: boards differ.
Tests hand in a made-up ``root``.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

ROOT = Path("/")

_PI_THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
_PI_THROTTLED_NOW = 0xF
"""Raspberry Pi firmware: bits 0-3 are under-voltage, capped, throttled, soft limit: now."""


def board_facts(cpus: Sequence[int], root: Path = ROOT) -> Mapping[str, object]:
    """Return what does not change during a run: CPU model, governor, kernel and so on."""
    return {
        "cpu_model": cpu_model(root),
        "model": _text(root / "proc/device-tree/model"),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "firmware": firmware(root),
        "cpus_present": os.cpu_count(),
        "governor": governor(cpus, root),
        "frequency_max_mhz": _max(_cpufreq(cpus, "cpuinfo_max_freq", root), 1e-3),
        "memory_total_bytes": _memory_total(root),
    }


def cpu_model(root: Path = ROOT) -> Optional[str]:
    """Return the processor's name; ARM kernels show implementer and part instead."""
    text = _text(root / "proc/cpuinfo") or ""
    for key in ("model name", "Model", "Hardware", "cpu model"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match.group(1).strip()
    match = re.search(r"^CPU part\s*:\s*(.+)$", text, re.MULTILINE)
    return f"ARM part {match.group(1).strip()}" if match else None


def firmware(root: Path = ROOT) -> Optional[str]:
    """Return the version of what started the kernel: a Raspberry Pi's bootloader, or the BIOS."""
    places = (
        "proc/device-tree/chosen/bootloader/version",
        "sys/devices/virtual/dmi/id/bios_version",
    )
    return next((found for place in places if (found := _text(root / place))), None)


def governor(cpus: Sequence[int], root: Path = ROOT) -> Optional[str]:
    """Frequency governor of our CPUs, several joined by ``+``."""
    names = {
        name
        for cpu in cpus
        if (name := _text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
    }
    return "+".join(sorted(names)) or None


def frequency_mhz(cpus: Sequence[int], root: Path = ROOT) -> Optional[float]:
    """Lowest present frequency of our CPUs."""
    found = _cpufreq(cpus, "scaling_cur_freq", root)
    return min(found) / 1000 if found else None


def temperature_c(root: Path = ROOT) -> Optional[float]:
    """Return the hottest thermal zone."""
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*/temp"))
    found = [value / 1000 for zone in zones if (value := _number(zone)) is not None]
    # sensors that are off report nonsense such as -274 or 0
    return max((value for value in found if 0 < value < 200), default=None)


def throttle_count(cpus: Sequence[int], root: Path = ROOT) -> Optional[int]:
    """Return how often our CPUs were throttled since boot, where the kernel counts it."""
    counts = [
        int(value)
        for cpu in cpus
        for kind in ("core", "package")
        if (
            value := _number(
                root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/{kind}_throttle_count"
            )
        )
        is not None
    ]
    return sum(counts) if counts else None


def throttled_now(root: Path = ROOT) -> Optional[bool]:
    """Return whether a Raspberry Pi's firmware holds the CPU back at this moment."""
    text = _text(root / _PI_THROTTLED)
    try:
        return None if text is None else bool(int(text, 16) & _PI_THROTTLED_NOW)
    except ValueError:
        return None


def busy_s(cpus: Sequence[int], root: Path = ROOT) -> Optional[Tuple[float, float]]:
    """Seconds since boot that our CPUs were busy for anybody, and that the hypervisor took.

    The first holds the second. Resolution is the kernel's tick, mostly 10 ms.
    """
    text = _text(root / "proc/stat")
    if not text:
        return None
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    busy = steal = 0.0
    found = False
    wanted = {f"cpu{cpu}" for cpu in cpus}
    for line in text.splitlines():
        name, *fields = line.split()
        if name in wanted and len(fields) >= 8:
            user, nice, system, _, _, irq, softirq, stolen = map(int, fields[:8])
            busy += (user + nice + system + irq + softirq + stolen) * tick_s
            steal += stolen * tick_s
            found = True
    return (busy, steal) if found else None


def process_s() -> float:
    """Return the processor time of this process so far, seconds.

    Where the processor time of a process is limited, Linux adds up what its threads take only when
    one is switched or a tick comes: a call of 0.1 ms then seems to take none. To ask for the time
    of the thread itself brings that up to date.
    """
    time.thread_time()
    return time.process_time()


def queued_s(root: Path = ROOT) -> Optional[float]:
    """Seconds that this process's threads were ready to run while others had their CPU.

    The second field of ``schedstat`` (kernel documentation: sched-stats), in nanoseconds.
    """
    total = 0
    found = False
    for path in (root / "proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(path.read_text().split()[1])
            found = True
    return total / 1e9 if found else None


def memory_bytes() -> Mapping[str, int]:
    """This process's VmHWM, VmRSS and VmSize in bytes."""
    found: Dict[str, int] = {}
    for line in (_text(ROOT / "proc/self/status") or "").splitlines():
        key, _, rest = line.partition(":")
        if key in ("VmHWM", "VmRSS", "VmSize"):
            found[key] = int(rest.split()[0]) * 1024
    return found


def peak_bytes() -> Optional[int]:
    """This process's largest resident memory so far; None: the kernel does not state it."""
    return memory_bytes().get("VmHWM")


def resident_bytes() -> int:
    """This process's resident memory; 0: the kernel does not state it."""
    return memory_bytes().get("VmRSS", 0)


def _memory_total(root: Path) -> Optional[int]:
    match = re.search(r"^MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _cpufreq(cpus: Sequence[int], name: str, root: Path) -> List[float]:
    paths = [root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}" for cpu in cpus]
    return [value for path in paths if (value := _number(path)) is not None]


def _max(values: Sequence[float], factor: float) -> Optional[float]:
    return max(values) * factor if values else None


def _number(path: Path) -> Optional[float]:
    try:
        return float(_text(path) or "")
    except ValueError:
        return None


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(errors="replace").strip("\x00\n ")
    except OSError:
        return None
