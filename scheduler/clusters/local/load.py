"""How busy this machine is, as its kernel reports."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import LoadReport

MIN_LOAD_INTERVAL = timedelta(seconds=5)
"""Minimum time between two readings of CPU time: over less, ticks of 10 ms are too coarse."""

_TIMES = 8  # user nice system idle iowait irq softirq steal; guests are within user
_IDLE = (3, 4)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)


class MachineLoad:
    """The load of the CPUs that this process may use, of which boards are made. Thread-safe.

    The CPUs are read at once, so that the first load is known after `MIN_LOAD_INTERVAL`.
    """

    def __init__(self, now: Callable[[], datetime], proc: Path = Path("/proc")) -> None:
        self._now = now
        self._proc = proc
        self._lock = threading.Lock()
        self._at = now()
        self._ticks = self._cpu_ticks()
        self._report: LoadReport | None = None

    def look(self) -> LoadReport | None:
        """Return the newest load; None where the kernel does not report it, or not yet."""
        with self._lock:
            now = self._now()
            if (
                not timedelta(0) <= now - self._at < MIN_LOAD_INTERVAL
            ):  # the clock may have been set
                self._at, before, self._ticks = now, self._ticks, self._cpu_ticks()
                self._report = self._since(before)
            return self._report

    def _since(self, before: tuple[int, int] | None) -> LoadReport | None:
        memory = self._memory()
        if before is None or self._ticks is None or memory is None:
            return None
        busy, total = self._ticks[0] - before[0], self._ticks[1] - before[1]
        if total <= 0:  # a CPU went, or came
            return None
        cpu = min(max(busy / total, 0.0), 1.0)
        return LoadReport(load=HostLoad(cpu=cpu, memory=memory), at=self._at)

    def _cpu_ticks(self) -> tuple[int, int] | None:
        """Return busy and total CPU time."""
        busy = total = 0
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        try:
            for line in (self._proc / "stat").read_text().splitlines():
                name, *rest = line.split()
                if name in names:
                    times = [int(each) for each in rest[:_TIMES]]
                    total += sum(times)
                    busy += sum(times) - sum(times[place] for place in _IDLE)
        except (OSError, ValueError, IndexError):
            return None
        return busy, total

    def _memory(self) -> float | None:
        try:
            text = (self._proc / "meminfo").read_text()
        except OSError:
            return None
        available, total = _AVAILABLE.search(text), _TOTAL.search(text)
        if available is None or total is None or not int(total[1]):
            return None
        return min(max(1.0 - int(available[1]) / int(total[1]), 0.0), 1.0)
