"""Limits of a training's own process: it may be slow or fail, but takes nothing from the server."""

from __future__ import annotations

import importlib
import os
import resource
import signal
from types import FrameType

NICENESS = 5
"""The server comes first; on a busy machine the training still gets a third of its share."""


_PRELOADED = ("onnx", "onnxruntime", "scipy.optimize", "scipy.stats")

END_AFTER_S = 5
"""Processor time beyond the limit after which a training that did not end is killed."""


class ProcessorTimeUsed(Exception):
    """The training used all of its processor time."""


def limit_own_process(max_memory_bytes: int, max_cpu_s: int) -> None:
    """Bound the memory and the processor time of this process from now on, and lower its priority.

    Beyond the memory, allocations raise `MemoryError`; after the time the main thread raises
    `ProcessorTimeUsed`, and is killed where it does not end within `END_AFTER_S`. Large modules
    that a training needs are imported before: an import that gets no memory may hang.

    Args:
        max_memory_bytes: Of address space, beyond what is mapped now.
        max_cpu_s: Of processor time, beyond what was used.
    """
    for module in _PRELOADED:
        importlib.import_module(module)
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, mapped + max_memory_bytes)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = max_cpu_s + int(usage.ru_utime + usage.ru_stime) + 1
    signal.signal(signal.SIGXCPU, _end)
    _lower(resource.RLIMIT_CPU, limit_s, limit_s + END_AFTER_S)
    _lower(resource.RLIMIT_CORE, 0)
    os.nice(NICENESS)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)  # it comes again each second
    raise ProcessorTimeUsed


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    _, now = resource.getrlimit(which)
    allowed = [
        value if now == resource.RLIM_INFINITY else min(value, now)
        for value in (soft, soft if hard is None else hard)
    ]
    resource.setrlimit(which, (allowed[0], allowed[1]))
