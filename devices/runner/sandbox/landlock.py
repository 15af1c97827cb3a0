"""Landlock: a process gives up rights to files, for good (Linux 5.13 and later, for any user).

Used where namespaces can't be had, as in most containers. The three system calls have no wrapper in
the C library; their numbers are the same on all processors.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE, _READ, _LIST = 1, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of rights to files that each version knows."""

_TCP, _TCP_SINCE = 0b11, 4
_SCOPES, SIGNALS_SINCE = 0b11, 6
"""Abstract unix sockets and signals."""


def version() -> int:
    """Return the kernel's version of Landlock; 0 where it has none."""
    found: int = _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, found)


def restrict(*, readable: Sequence[str], writable: Sequence[str], devices: Sequence[str]) -> None:
    """Give up all rights to files but these, for this process and all that it starts.

    Args:
        readable: Files, and folders with all in them, that may be read and executed; what is not
            there is left out.
        writable: Folders in which anything may be done, but no device be made.
        devices: Files that may be read, written and controlled.

    Raises:
        OSError: The kernel refused.
    """
    known = version()
    handled = (1 << _FILE_RIGHTS[min(known, max(_FILE_RIGHTS))]) - 1
    attributes = struct.pack(
        "QQQ",
        handled,
        _TCP if known >= _TCP_SINCE else 0,
        _SCOPES if known >= SIGNALS_SINCE else 0,
    )
    # older kernels take the members that they know, and refuse others unless they are 0
    ruleset = _checked(
        _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    )
    try:
        make_devices = 1 << 6 | 1 << 11
        for paths, rights in (
            (readable, _EXECUTE | _READ | _LIST),
            (writable, (1 << 16) - 1 - make_devices),
            (devices, _READ | _WRITE | _IOCTL),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _checked(_call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(
            _call(
                _ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0)
            )
        )
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    return result


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
