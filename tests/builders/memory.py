"""Cgroups whose memory is limited, where a test may make them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A cgroup below our own with this limit; skips where none can be made."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    first = next((line for line in lines if "memory" in line[1].split(",")), None)
    mount = "/sys/fs/cgroup/memory" if first is not None else "/sys/fs/cgroup"
    file = "memory.limit_in_bytes" if first is not None else "memory.max"
    path = (first or lines[-1])[2]
    folder = Path(f"{mount}{path.rstrip('/')}/edgeyard-test-{os.getpid()}")
    try:
        folder.mkdir()
        (folder / file).write_text(str(limit_bytes))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        folder.rmdir()
