"""How the C library keeps memory that was freed, for a process of many threads.

glibc gives threads arenas of their own, eight for each core, and what one arena has free is of no
use to another: with forty threads that each need some MiB now and then, a server that is used grew
by two MiB a minute. One arena costs nothing here, as Python's own lock lets one thread allocate at
a time. And whenever a large block is freed, glibc makes blocks of its size part of the heap from
then on (up to 32 MiB), where a small one behind it keeps it from being given back.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
"""A number of glibc's ``malloc.h``."""

_LARGE_BYTES = 128 * 1024
"""Blocks from this size on are mapped, and given back when they are freed: glibc's first value."""

_FREE_BYTES = 1024 * 1024
"""Free memory at the end of the heap from which on it is given back."""


def give_back_freed_memory() -> None:
    """Set the C library's allocator for the rest of this process; before it has threads.

    Other libraries than glibc are left as they are.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return
    set_option(_M_ARENA_MAX, 1)
    set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    set_option(_M_TRIM_THRESHOLD, _FREE_BYTES)
