"""Lets one thread at a time call the plugins of a policy."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import replace

from edgeyard.errors import Unavailable
from edgeyard.scheduler.framework.registry import Plugins


class PluginLock(AbstractContextManager[None]):
    """A lock around calls of plugins, for which callers may bound their wait."""

    def __init__(self, max_wait_s: float = -1.0) -> None:
        """Make a lock.

        Args:
            max_wait_s: Longest wait for it; negative: any.
        """
        self._lock = threading.RLock()
        self._max_wait_s = max_wait_s

    def bounded(self, max_wait_s: float) -> PluginLock:
        """Return the same lock for a caller that waits at most so long."""
        made = PluginLock(max_wait_s)
        made._lock = self._lock
        return made

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._max_wait_s):
            raise Unavailable("the plugins of the policy are busy with another decision", 1.0)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def with_lock(plugins: Plugins) -> Plugins:
    """Return plugins that several threads may use; the same ones if they have a lock already."""
    if isinstance(plugins.lock, PluginLock):
        return plugins
    return replace(plugins, lock=PluginLock())


def with_max_wait(plugins: Plugins, max_wait_s: float) -> Plugins:
    """Return the same plugins for a caller that does not wait long for other threads.

    Args:
        plugins: Those of a policy.
        max_wait_s: Longest wait for each call; past it the call raises `Unavailable`.
    """
    lock = plugins.lock
    return (
        replace(plugins, lock=lock.bounded(max_wait_s)) if isinstance(lock, PluginLock) else plugins
    )
