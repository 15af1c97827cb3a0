"""What a systemd unit confines a service to, applied without systemd: bubblewrap, seccomp, MDWE."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_ACT_ALLOW = 0x7FFF0000
_NEW_NAMESPACES = {
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "mnt": 0x00020000,
}
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
_EQ, _MASKED_EQ = 4, 7
_NOBODY = "65534"
_NO_WRITE_EXECUTE = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True);"
    "assert libc.prctl(65, 1, 0, 0, 0) == 0, ctypes.get_errno();"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class _Compare(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


class Unit:
    """The ``[Service]`` of a unit and its drop-ins: lists grow, other values are replaced."""

    def __init__(self, *paths: Path) -> None:
        self.values: dict[str, list[str]] = {}
        for path in paths:
            for line in path.read_text().splitlines():
                name, separator, value = line.partition("=")
                if separator and not line.startswith(("#", ";")):
                    if not value:
                        self.values[name] = []
                    else:
                        self.values.setdefault(name, []).append(value)

    def words(self, name: str) -> list[str]:
        """All words of a list."""
        return " ".join(self.values.get(name, [])).split()

    def is_on(self, name: str) -> bool:
        """Whether the last value says yes."""
        return self.values.get(name, ["no"])[-1] in ("yes", "strict")

    def calls(self) -> set[str]:
        """System calls that are allowed."""
        allowed: set[str] = set()
        for value in self.values["SystemCallFilter"]:
            names = {each for word in value.removeprefix("~").split() for each in _calls(word)}
            allowed = allowed - names if value.startswith("~") else allowed | names
        return allowed

    def filter(self) -> bytes:
        """The system call filter as a program for seccomp."""
        library = ctypes.CDLL("libseccomp.so.2")
        library.seccomp_init.restype = ctypes.c_void_p
        context = ctypes.c_void_p(library.seccomp_init(0x00050000 | errno.EPERM))

        def allow(name: str, *compare: _Compare) -> None:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:
                array = (_Compare * len(compare))(*compare)
                args = (context, ctypes.c_uint32(_ACT_ALLOW), number, len(compare), array)
                assert library.seccomp_rule_add_array(*args) == 0, name

        namespaces = self.words("RestrictNamespaces")
        forbidden = sum(
            bit
            for name, bit in _NEW_NAMESPACES.items()
            if namespaces == ["yes"] or name not in namespaces
        )
        for name in self.calls() - {"socket", "clone", "unshare", "clone3", "setns"}:
            allow(name)
        for family in self.words("RestrictAddressFamilies"):
            allow("socket", _Compare(0, _EQ, _FAMILIES[family], 0))
        for name in ("clone", "unshare"):
            allow(name, _Compare(0, _MASKED_EQ, forbidden, 0))
        # what is not known of makes glibc take clone
        clone3 = library.seccomp_syscall_resolve_name(b"clone3")
        no_such = ctypes.c_uint32(0x00050000 | errno.ENOSYS)
        assert library.seccomp_rule_add_array(context, no_such, clone3, 0, None) == 0
        with tempfile.TemporaryFile() as file:
            assert library.seccomp_export_bpf(context, file.fileno()) == 0
            library.seccomp_release(context)
            file.seek(0)
            return file.read()

    def wrapped(self, command: Sequence[str], state: Path, filter_fd: int) -> list[str]:
        """The command as the unit would start it, with one folder that it may write to."""
        assert self.is_on("ProtectSystem")
        assert self.is_on("NoNewPrivileges")
        assert self.values["CapabilityBoundingSet"] == []
        words = [needed("bwrap"), "--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY]
        words += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--die-with-parent"]
        if self.is_on("PrivateTmp"):
            words += ["--tmpfs", "/tmp", "--unsetenv", "TMPDIR"]
            # A checkout below it stands for what is installed elsewhere.
            hidden = {str(ROOT), sys.prefix, sys.base_prefix}
            for path in sorted(each for each in hidden if each.startswith("/tmp/")):
                words += ["--ro-bind", path, path]
        words += ["--bind", str(state), str(state)]
        words += ["--dev", "/dev"] if self.is_on("PrivateDevices") else []
        words += ["--seccomp", str(filter_fd)]
        if self.is_on("MemoryDenyWriteExecute"):
            words += [sys.executable, "-c", _NO_WRITE_EXECUTE]
        return [*words, *command]


def needed(program: str) -> str:
    """Path of a program that the tests use; skips where it is missing."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: make systemd")
    return found


@cache
def _calls(word: str) -> frozenset[str]:
    if not word.startswith("@"):
        return frozenset({word})
    command = [needed("systemd-analyze"), "--no-pager", "syscall-filter", word]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in said.splitlines()[1:]]
    return frozenset(
        each for name in names if name and not name.startswith("#") for each in _calls(name)
    )


def main() -> None:
    """``systemd_unit.py UNIT STATE COMMAND...``: become the command, confined as the unit says."""
    unit, state, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    with tempfile.TemporaryFile() as program:
        program.write(Unit(unit).filter())
        program.seek(0)
        os.set_inheritable(program.fileno(), True)
        words = Unit(unit).wrapped(command, state, program.fileno())
        os.execv(words[0], words)


if __name__ == "__main__":
    main()
