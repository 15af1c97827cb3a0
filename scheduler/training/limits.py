"""Limits of a training's own process: it may be slow or fail, but takes nothing from the server."""

from __future__ import annotations

import os
import resource

NICENESS = 5
"""The server comes first; on a busy machine the training still gets a third of its share."""


def limit_own_process(max_memory_bytes: int, max_cpu_s: int) -> None:
    """Bound the memory and the processor time of this process from now on, and lower its priority.

    Beyond the memory, allocations raise `MemoryError`; after the time the process is ended.

    Args:
        max_memory_bytes: Of address space, beyond what is mapped now.
        max_cpu_s: Of processor time, beyond what was used.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, mapped + max_memory_bytes)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, max_cpu_s + int(usage.ru_utime + usage.ru_stime) + 1)
    _lower(resource.RLIMIT_CORE, 0)
    os.nice(NICENESS)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (allowed, allowed))
