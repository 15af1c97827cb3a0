"""The worker's side: loads one scorer and answers calls until the server is gone.

``python -m edgeyard.scheduler.workers.worker FD SOURCE OPTIONS``: FD is its end of the connection,
SOURCE ``module:attribute`` or ``/path/to/file.py:attribute``, OPTIONS JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.workers.frames import Frame, receive, send, unpickled

_PR_SET_PDEATHSIG = 1
_MAX_MEMORY_BYTES = 4 << 30
"""Limit of the address space: enough for a batch of 10,000 by 10,000 and a network."""

_MAX_ASK_BYTES = 2 << 30


def main(words: list[str]) -> int:
    """Serve until the server closes the connection."""
    fd, source, options = int(words[0]), words[1], json.loads(words[2])
    _limit()
    link = socket.socket(fileno=fd)
    # Whatever the scorer prints goes nowhere: this process has one thing to say, on the link.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        scorer = load(source)(**options)
        greeting = {
            "objective": str(scorer.objective),
            "kind": str(scorer.kind),
            "unit": str(scorer.unit),
        }
    except Exception as error:
        send(link, Frame.FAILED, _words(error))
        return 1
    send(link, Frame.HELLO, json.dumps(greeting).encode())
    with contextlib.suppress(EOFError, OSError):
        while True:
            _, data = receive(link, max_bytes=_MAX_ASK_BYTES)
            request: Any = unpickled(data)
            _answer(link, scorer, *request)
    return 0


def load(source: str) -> Callable[..., Any]:
    """Return the factory of the scorer.

    Raises:
        ImportError: There is no such module or file.
        AttributeError: It has no such attribute.
    """
    place, _, attribute = source.rpartition(":")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), attribute)  # type: ignore[no-any-return]
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, attribute)  # type: ignore[no-any-return]


def _answer(link: socket.socket, scorer: Any, batch: Batch, pairs: Pairs) -> None:
    try:
        scores = np.ascontiguousarray(scorer.score(batch, pairs))
        if scores.dtype.kind != "f":
            raise TypeError(f"scores of type {scores.dtype}")
        data = scores.astype("<f4").tobytes()
    except Exception as error:
        send(link, Frame.FAILED, _words(error))
    else:
        send(link, Frame.SCORES, data)


def _words(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}"[:1000].encode("utf-8", "replace")


def _limit() -> None:
    """End together with the server, and limit memory."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    max_bytes = (
        _MAX_MEMORY_BYTES
        if hard_limit == resource.RLIM_INFINITY
        else min(hard_limit, _MAX_MEMORY_BYTES)
    )
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    os.nice(5)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
