"""Whether a process that was killed had needed too much memory: by what the kernel shows of it.

Anybody who may signal a process can kill it, and a machine that runs out of memory kills what
others need. Only a limit that the run itself had reached makes the end its own matter.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Mapping, Optional

from edgeyard.devices.runner.engine import BoardFacts

_NEAR = 0.9
"""Share of its limit from which on a process has reached it: page tables, buffers of the kernel and
files in memory are used as well, and are not resident."""

_MAIN = 0.5
"""Share of a board's memory that a run holds at least if the board ran out of it for the run."""

_SAME_BYTES = 1024**2
"""Two limits that differ by less are the same: the kernel rounds them to pages."""


@dataclass(frozen=True)
class _Counts:
    """How often a cgroup's limit was hit, and a process of it killed by the kernel."""

    hits: int
    kills: int


class MemoryEvidence:
    """What is known of the memory of a run: made before it begins, and asked after its end."""

    def __init__(
        self, board: BoardFacts, environ: Mapping[str, str], root: Path = Path("/")
    ) -> None:
        """Note what the kernel shows before the run.

        Args:
            environ: Of the runner; Nomad states the job's limit there.
            root: Folder under which ``/proc`` and ``/sys`` are.
        """
        job = job_limit_bytes(environ)
        limits = [limit for limit in (board.ram_bytes, job) if limit]
        memory = {} if board.emulated else _memory(root)
        if {"MemTotal", "MemAvailable"} <= memory.keys():
            # a board of its own: the run may have what the system leaves
            limits.append(max(memory["MemAvailable"], int(_MAIN * memory["MemTotal"])))
        self.limit_bytes = min(limits, default=None)
        self._cgroup = None if job is None else _cgroup_of_limit(root, job)
        self._before = None if self._cgroup is None else _counts(self._cgroup)

    def shows_need(self, peak_rss_bytes: int) -> bool:
        """Return whether the run had reached its limit before it was killed.

        Args:
            peak_rss_bytes: Largest resident memory of a process of the run.
        """
        return self._limit_killed() or is_near(peak_rss_bytes, self.limit_bytes)

    def _limit_killed(self) -> bool:
        """Return whether the kernel killed in the task's own cgroup because its limit was hit."""
        if self._cgroup is None or self._before is None:
            return False
        now = _counts(self._cgroup)
        return now is not None and now.kills > self._before.kills and now.hits > self._before.hits


def is_near(peak_rss_bytes: int, limit_bytes: Optional[int]) -> bool:
    """Return whether a process had come so close to a limit that this is why it was killed.

    Args:
        limit_bytes: None: there was none.
    """
    return bool(limit_bytes) and peak_rss_bytes >= _NEAR * (limit_bytes or 0)


def job_limit_bytes(environ: Mapping[str, str]) -> Optional[int]:
    """Return the memory limit of the Nomad job; None outside Nomad."""
    mib = environ.get("NOMAD_MEMORY_LIMIT", "")
    return int(mib) * 1024**2 if mib.isdigit() and int(mib) else None


def _memory(root: Path) -> Mapping[str, int]:
    """Return the values of ``/proc/meminfo`` in bytes."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            words = value.split()
            if words[1:] == ["kB"]:
                found[name] = int(words[0]) * 1024
    return found


def _cgroup_of_limit(root: Path, limit_bytes: int) -> Optional[Path]:
    """Return the cgroup of this process if its limit is that of the job: it is the task's own.

    A cgroup with another limit, or none, is shared with other programs, whose ends it counts too.
    """
    for folder in _cgroups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                if abs(int((folder / name).read_text("ascii")) - limit_bytes) < _SAME_BYTES:
                    return folder
    return None


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders in which the cgroup of this process may be, of either version."""
    lines: List[str] = []
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "memory" in controllers.split(","):
            mounts = ["sys/fs/cgroup/memory"]
        else:
            continue
        for mount in mounts:
            yield root / mount / path.lstrip("/")
            yield root / mount  # in a container, which sees its own cgroup there


def _counts(cgroup: Path) -> Optional[_Counts]:
    """Return the counts of a cgroup; None where the kernel keeps none, or it is gone."""
    try:
        if (cgroup / "memory.events").exists():
            events = _pairs(cgroup / "memory.events")
            return _Counts(hits=events["oom"], kills=events["oom_kill"])
        hits = int((cgroup / "memory.failcnt").read_text("ascii"))
        return _Counts(hits=hits, kills=_pairs(cgroup / "memory.oom_control")["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def _pairs(file: Path) -> Mapping[str, int]:
    words = file.read_text("ascii").split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}
