"""System calls that a run may not make, by libseccomp (the library that systemd and Docker use).

A forbidden call fails with an error and ends nothing: a library that tries one falls back.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
from typing import Any, List, Optional, Sequence, Tuple

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_TSYNC, _NO_MITIGATION = 4, 7
"""Attributes: all threads of the process; and without the mitigation of speculative stores, which
kernels before 5.16 turn on with each filter: it slows programs down, and protects a process from
what it runs itself."""

_MASKED_EQUAL = 7
_UNKNOWN = -1
_INT = 0xFFFFFFFF

_FORBIDDEN = (
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    # namespaces and mounts
    *("unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "open_tree"),
    *("move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    # the kernel itself
    *("bpf", "perf_event_open", "kexec_load", "kexec_file_load", "init_module", "finit_module"),
    *("delete_module", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *(
        "keyctl",
        "add_key",
        "request_key",
        "syslog",
        "acct",
        "quotactl",
        "quotactl_fd",
        "lookup_dcookie",
    ),
    *("iopl", "ioperm", "modify_ldt", "vm86", "vm86old", "uselib", "ustat", "sysfs", "_sysctl"),
    # the machine
    *("reboot", "swapon", "swapoff", "settimeofday", "clock_settime", "clock_settime64"),
    *("clock_adjtime", "clock_adjtime64", "adjtimex", "stime", "sethostname", "setdomainname"),
    *("name_to_handle_at", "open_by_handle_at", "vhangup", "fanotify_init", "nfsservctl"),
    # memory that outlives the process, and is shared with others of its user
    *("shmget", "msgget", "semget", "mq_open"),
)
_CLONE_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
_CLONE_THREAD = 0x10000
_FAMILIES = 46
AF_UNIX, AF_NETLINK = 1, 16


class _Compare(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def available() -> bool:
    """Return whether libseccomp is installed here."""
    return _library() is not None


def forbid_dangerous_calls(socket_families: Sequence[int]) -> None:
    """Take calls away that no inference needs, for this process and all that it starts.

    Args:
        socket_families: Address families of sockets that may still be made.

    Raises:
        OSError: The kernel refused the filter, or libseccomp is not there.
    """
    rules: List[Tuple[str, int, Sequence[Tuple[int, int, int]]]] = [
        (name, errno.EPERM, ()) for name in _FORBIDDEN
    ]
    # its flags lie where a filter can't look: glibc takes `clone` where there is no `clone3`
    rules.append(("clone3", errno.ENOSYS, ()))
    rules += [("clone", errno.EPERM, [(0, flag, flag)]) for flag in _CLONE_NAMESPACES]
    rules += [
        ("socket", errno.EACCES, [(0, _INT, family)])
        for family in range(_FAMILIES)
        if family not in socket_families
    ]
    _load(rules)


def forbid_new_processes() -> None:
    """Threads may still be started, but neither processes nor programs.

    Raises:
        OSError: The kernel refused the filter, or libseccomp is not there.
    """
    names = ("fork", "vfork", "execve", "execveat")
    _load(
        [
            *((name, errno.EPERM, ()) for name in names),
            ("clone", errno.EPERM, [(0, _CLONE_THREAD, 0)]),
        ]
    )


def _load(rules: Sequence[Tuple[str, int, Sequence[Tuple[int, int, int]]]]) -> None:
    library = _library()
    if library is None:
        raise OSError(errno.ENOSYS, "libseccomp.so.2 is not installed")
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise MemoryError
    try:
        _check(library.seccomp_attr_set(context, _TSYNC, 1))
        library.seccomp_attr_set(context, _NO_MITIGATION, 1)  # libseccomp before 2.5 has it not
        for name, number, conditions in rules:
            call = library.seccomp_syscall_resolve_name(name.encode())
            if call == _UNKNOWN:  # a newer call than the library, or one of another processor
                continue
            array = (_Compare * len(conditions))(
                *(_Compare(place, _MASKED_EQUAL, mask, value) for place, mask, value in conditions)
            )
            _check(
                library.seccomp_rule_add_array(
                    context, _ERRNO | number, call, len(conditions), array
                )
            )
        _check(library.seccomp_load(context))
    finally:
        library.seccomp_release(context)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, "the filter of system calls was refused")


def _library() -> Optional[Any]:
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Compare),
    ]
    return library
