"""The first steps inside a sandbox: give up all rights that the run does not need."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
from pathlib import Path
from typing import Any, Mapping

from edgeyard.devices.runner.sandbox import landlock, seccomp
from edgeyard.devices.runner.sandbox.plan import BUBBLEWRAP, LANDLOCK, OFF
from edgeyard.devices.runner.transports.local import die_with_parent

EXIT_NOT_CONFINED = 71
"""The sandbox could not be set up; the log says why."""

_PR_SET_NO_NEW_PRIVS = 38


def confine(order: Mapping[str, Any]) -> None:
    """Confine this process as ordered by `edgeyard.devices.runner.sandbox.run`, for good.

    Raises:
        OSError: It can't be confined so far; the run must not be begun.
    """
    method, uid, outbox = order["method"], order["uid"], order["outbox"]
    if method != OFF:
        # where memory runs out the kernel ends this process, and no server
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    if method == BUBBLEWRAP:
        if uid is not None:
            os.chmod("/tmp", 0o1777)
            os.chmod("/dev/shm", 0o1777)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        os.mkdir(outbox)
    else:
        die_with_parent(order["parent"])
    _hand_over(outbox, order["handover"])
    if method == OFF:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for name, limit in order["limits"].items():
        _limit(getattr(resource, f"RLIMIT_{name}"), limit)
    if method == LANDLOCK:
        landlock.restrict(readable=order["readable"], writable=[outbox], devices=order["devices"])
    if order["filtered"]:
        # only in a network of its own may there be sockets at all: Landlock knows neither UDP nor
        # the sockets of other programs in the file system
        inside = (seccomp.AF_UNIX, seccomp.AF_NETLINK) if method == BUBBLEWRAP else ()
        seccomp.forbid_dangerous_calls(inside)


def _limit(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (limit, limit))


def _hand_over(outbox: str, descriptor: int) -> None:
    """Give the runner the folder of results, which it would not find by name; say no more there."""
    with socket.socket(fileno=descriptor) as handover:
        folder = os.open(outbox, os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(handover, [b"results"], [folder])
        os.close(folder)
