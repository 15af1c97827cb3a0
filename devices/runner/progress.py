"""Reports how far the run is: to a file for the board's host, and to the API."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path
from typing import Optional, Tuple

from edgeyard.atomic_files import open_atomically

logger = logging.getLogger(__name__)

_CALL_INTERVAL_S = 0.5
"""Minimum time between two reports of progress."""

_CALL_TIMEOUT_S = 5.0
_JOIN_S = 1.0

State = Tuple[float, str, str]


class ProgressFile:
    """One number, 0-100, that the host's device plugin publishes as ``dynamic.progress``."""

    def __init__(self, path: Optional[Path]) -> None:
        self._path = path
        self._lock: Optional[int] = None

    def hold(self) -> None:
        """Lock ``<name>.lock`` until this process ends, however it ends.

        By this the host knows that the number's author lives: a killed runner can't write the 0.
        """
        if self._path is None or self._lock is not None:
            return
        try:
            self._lock = os.open(
                self._path.with_name(f"{self._path.name}.lock"),
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o644,
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            logger.debug("The progress file could not be locked.", exc_info=True)

    def write(self, percent: float) -> None:
        """Replace the number; a reader sees the old one or the new one, never a half."""
        if self._path is None:
            return
        try:
            with open_atomically(self._path) as file:
                file.write(b"%.1f\n" % min(100.0, max(0.0, percent)))
        except OSError:
            logger.debug("The progress file could not be written.", exc_info=True)


class ProgressCalls:
    """Posts the newest state to the API from a thread of its own; what fails is forgotten.

    The run never waits for the network: states that come faster than they can be sent are skipped.
    """

    def __init__(self, url: Optional[str], token: Optional[str]) -> None:
        self._url, self._token = url, token
        self._newest: Optional[State] = None
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: Optional[threading.Thread] = None

    def report(self, percent: float, phase: str, message: str = "") -> None:
        """Take a state to send; starts the thread, so call it after forking."""
        if self._url is None:
            return
        self._newest = (percent, phase, message)
        self._wake.set()
        if self._thread is None:
            # a daemon: a call that hangs must not keep a board busy
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        # here, next to the run that it reports, and not before the run may start
        from edgeyard.devices.runner.upload import post_json

        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            state, self._newest = self._newest, None
            if state is not None and not self._stop.is_set():
                percent, phase, message = state
                try:
                    post_json(
                        self._url or "",
                        self._token,
                        {"progress": round(percent, 1), "phase": phase, "message": message},
                        timeout_s=_CALL_TIMEOUT_S,
                    )
                except (OSError, ValueError) as error:
                    logger.debug("Progress could not be sent: %s", error)
                self._stop.wait(_CALL_INTERVAL_S)
