"""Numbered places where a test may kill the process, as a power cut would.

Each commit, HTTP call and file step calls `failpoint` with its name. With
``EDGEYARD_FAILPOINT=n`` the n-th call in this process ends it at once with status 137
(no handlers, no flushes); without it a call costs one comparison.
"""

import os
import threading
from typing import Optional

_named = os.environ.get("EDGEYARD_FAILPOINT")
_target: Optional[int] = int(_named) if _named else None
_threads = ""
_count = 0
_lock = threading.Lock()


def arm(number: int, threads: str = "") -> None:
    """Die at the ``number``-th call from now on, as the environment would have said.

    Args:
        threads: Only calls of threads whose names begin so are counted.
    """
    global _target, _threads, _count
    with _lock:
        _target, _threads, _count = number, threads, 0


def failpoint(name: str) -> None:
    """Die here if this is the call that the environment names.

    Args:
        name: What is about to happen or has just happened, e.g. ``commit:before``;
            written to stderr when it fires.
    """
    global _count
    if _target is None or not threading.current_thread().name.startswith(_threads):
        return
    with _lock:
        _count += 1
        fires = _count == _target
    if fires:
        os.write(2, f"failpoint {_target} fired: {name}\n".encode())
        os._exit(137)
