"""How the runs of this machine can be confined, and what then stays open."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import edgeyard
from edgeyard.devices.model import Sandbox
from edgeyard.devices.runner.sandbox import landlock, seccomp
from edgeyard.errors import RunFailed

BUBBLEWRAP, LANDLOCK, LIMITS, OFF = "bubblewrap", "landlock", "limits", "off"

OUTBOX = "/tmp/results"
"""Where results are written inside bubblewrap: memory of its own, of a bounded size."""

MIN_SCRATCH_BYTES = 256 * 1024**2
_SCRATCH_SHARE = 4
_SHARED_MEMORY_BYTES = 64 * 1024**2
_PROBE_S = 20.0

_UIDS_FROM = 1_900_000_000
"""Users of this number and the runner's process id: no distribution or tool assigns them."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/timezone", "/etc/os-release"),
)
_FACTS = (
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
    *(
        "/sys/class/thermal",
        "/sys/devices/virtual/thermal",
        "/sys/devices/platform/soc/soc:firmware",
    ),
    "/sys/firmware/devicetree/base",
    "/sys/devices/virtual/dmi/id/bios_version",
)
"""The report states: frequencies, temperatures, throttling, the board's model, its firmware."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_WHY: Mapping[str, str] = {
    "files": "it can read and write what its user can",
    "network": "it reaches the network and the programs of its machine",
    "processes": "it sees the names of other processes",
    "signals": "it can signal other processes of its user",
    "user": "it runs as the runner's user",
    "system_calls": "no system call is refused: libseccomp.so.2 is not installed",
    "disk": "it can fill the disk of its folder",
    "memory": "the board states no memory, so that there is no limit",
}


@dataclass(frozen=True)
class Plan:
    """How one run is confined.

    Attributes:
        method: ``bubblewrap``, ``landlock``, ``limits`` or ``off``.
        uid: User and group of its own; None: the runner's.
        open: What is not confined: keys of the table in ``docs/explanation/sandbox.md``.
        reason: Why no better method was taken; "" for the best one.
        scratch_bytes: Size of the memory that it may write files into; None: they go to the disk.
        prefix: Words that the program is started by.
    """

    method: str
    uid: Optional[int] = None
    open: Tuple[str, ...] = ()
    reason: str = ""
    scratch_bytes: Optional[int] = None
    prefix: Tuple[str, ...] = ()
    readable: Tuple[str, ...] = field(default=(), repr=False)
    devices: Tuple[str, ...] = ()

    @property
    def user(self) -> str:
        """``own``, ``namespace`` (the runner's, without any of its rights) or ``same``."""
        if self.uid is not None:
            return "own"
        return "namespace" if self.method == BUBBLEWRAP else "same"

    @property
    def sufficient(self) -> bool:
        """Whether ``required`` is content: files and the network are confined."""
        return not {"files", "network"} & set(self.open)

    @property
    def confined(self) -> bool:
        """Whether nothing that matters is open: what an operator need not look into."""
        return self.sufficient and "system_calls" not in self.open

    def as_json(self) -> Dict[str, object]:
        """Return the values as the report contains them."""
        return {"method": self.method, "user": self.user, "not_confined": list(self.open)}

    def sentence(self) -> str:
        """Description of the confinement, for logs and ``edgeyard doctor``."""
        users = {
            "own": "a user of its own",
            "namespace": "a user namespace",
            "same": "the runner's user",
        }
        sentence = {
            BUBBLEWRAP: f"each run is confined by bubblewrap, with {users[self.user]}",
            LANDLOCK: "each run is confined by Landlock, with the runner's user",
            LIMITS: "runs are held by resource limits only",
            OFF: "runs are not confined",
        }[self.method]
        left = "; ".join(f"{each}: {_WHY[each]}" for each in self.open)
        sentence += f" ({self.reason})" if self.reason else ""
        return f"{sentence}. Not confined: {left}" if left else sentence


def plan_for(
    sandbox: Sandbox,
    inputs: Sequence[Path] = (),
    *,
    task_dir: Optional[Path] = None,
    ram_bytes: Optional[int] = None,
    storage_bytes: Optional[int] = None,
) -> Plan:
    """Return the best that this machine can do, tried out.

    Args:
        inputs: Files that the run reads.
        task_dir: Folder that must stay hidden, apart from ``inputs``.
        ram_bytes: Memory limit of the run; None: it has none.
        storage_bytes: The largest result; None: as large as the machine's memory allows.

    Raises:
        RunFailed: ``board_fault``: the board's sandbox is ``required``, and there is none.
    """
    without_memory = ("memory",) if ram_bytes is None else ()
    if sandbox.mode == "off":
        kinds = ("files", "network", "processes", "signals", "user", "system_calls", "disk")
        return Plan(OFF, open=(*kinds, *without_memory), reason="sandbox is off")
    filtered = seccomp.available()
    without_filter = () if filtered else ("system_calls",)
    readable = [*_readable(task_dir), *map(str, inputs), *_expanded(sandbox.paths)]
    devices = tuple(_expanded(sandbox.devices))
    scratch = _scratch_bytes(storage_bytes)
    wrapped, reason = _bubblewrap(readable, devices, scratch)
    if wrapped is not None:
        return Plan(
            BUBBLEWRAP,
            uid=_own_uid(),
            open=(*without_filter, *without_memory),
            scratch_bytes=scratch,
            prefix=tuple(wrapped),
            devices=devices,
        )
    version = landlock.version()
    left = ["processes", "user", "disk", *without_filter, *without_memory]
    if version < landlock.SIGNALS_SINCE:
        left.insert(1, "signals")
    if not filtered:  # Landlock itself knows TCP alone
        left.insert(0, "network")
    if version:
        plan = Plan(
            LANDLOCK,
            open=tuple(left),
            reason=reason,
            readable=(*readable, *_FACTS, "/proc"),
            devices=(*_DEVICES, *devices),
        )
    else:
        plan = Plan(
            LIMITS,
            open=("files", *left),
            reason=f"{reason}; this kernel has no Landlock",
        )
    if sandbox.mode == "required" and not plan.sufficient:
        raise RunFailed(
            "board_fault",
            f"this board runs nothing without a sandbox, and there is none: {plan.reason}; "
            "install bubblewrap and libseccomp on its host",
        )
    return plan


def _bubblewrap(
    readable: Sequence[str], devices: Sequence[str], scratch: int
) -> Tuple[Optional[List[str]], str]:
    """Return the words before the program, or why it can't be."""
    program = shutil.which("bwrap")
    if program is None:
        return None, "bubblewrap is not installed"
    said = ""
    for sized in (True, False):  # older ones bound such memory by half of the machine's only
        words = _words(program, readable, devices, scratch if sized else None)
        try:
            done = subprocess.run(
                [*words, sys.executable, "-I", "-S", "-c", ""],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_S,
                env={"PATH": os.defpath},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"bubblewrap can't be run: {error}"
        if done.returncode == 0:
            return words, ""
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-300:]
        if "--size" not in said:
            break
    return None, f"bubblewrap does not work here: {said or 'it said nothing'}"


def _words(
    program: str, readable: Sequence[str], devices: Sequence[str], scratch: Optional[int]
) -> List[str]:
    def memory(folder: str, size: Optional[int]) -> List[str]:
        return [*(() if size is None else ("--size", str(size))), "--tmpfs", folder]

    words = [program, "--die-with-parent", "--hostname", "edgeyard", "--chdir", "/"]
    words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    words += ["--unshare-cgroup-try"]
    if os.geteuid() == 0:
        # it becomes another user itself, as its first step: then all rights are gone
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += memory("/dev/shm", None if scratch is None else _SHARED_MEMORY_BYTES)
    words += memory("/tmp", scratch)
    made = {"/", "/proc", "/dev", "/tmp"}
    for path in (*_FACTS, *readable, *devices):
        above = path
        missing: List[str] = []  # folders on the way, which bubblewrap would make for root alone
        while (above := os.path.dirname(above)) not in made:
            missing.insert(0, above)
        for folder in missing:
            words += ["--dir", folder]
        made.update(missing)
        if path in devices:
            words += ["--dev-bind-try", path, path]
        elif os.path.islink(path) and path in _SYSTEM:
            words += ["--symlink", os.readlink(path), path]
        else:
            words += ["--ro-bind-try", path, path]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _readable(task_dir: Optional[Path]) -> List[str]:
    """System libraries, Python, and what it imports from; nothing that the task's folder is in."""
    package = Path(edgeyard.__file__).parent
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    python.append(str(Path(sys.executable).absolute().parents[1]))  # whatever -S left out
    modules = [path for path in sys.path if os.path.isabs(path)]
    linked = [str(package / "devices")]
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    hidden = os.path.realpath(task_dir) if task_dir is not None else ""
    wanted = {
        each
        for path in (*python, *modules, *linked, *libraries)
        for each in (os.path.abspath(path), os.path.realpath(path))
        if each != "/" and not f"{hidden}/".startswith(f"{each}/") and os.path.exists(each)
    }
    found = [path for path in (*_SYSTEM, *_SETTINGS) if os.path.lexists(path)]
    for path in sorted(wanted):  # a folder comes before what is in it
        if not any(path == each or path.startswith(f"{each}/") for each in found):
            found.append(path)
    return found


def _expanded(patterns: Sequence[str]) -> List[str]:
    """Files that are there now; ``*`` stands for any part of a name."""
    return [path for pattern in patterns for path in sorted(glob.glob(pattern))]


def _scratch_bytes(storage_bytes: Optional[int]) -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = max(MIN_SCRATCH_BYTES, total // _SCRATCH_SHARE)
    return min(size, max(storage_bytes, MIN_SCRATCH_BYTES)) if storage_bytes else size


def _own_uid() -> Optional[int]:
    """Return an unused user id; None if this process may not change its user."""
    if os.geteuid() != 0:
        return None
    wanted = _UIDS_FROM + os.getpid()
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= wanted < first + count:
                return wanted
    return 65534
