"""The digital twin: the last states that were posted, in memory, bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from edgeyard.errors import InvalidInput, NotFound, TooLarge
from edgeyard.scheduler.twin.document import TwinData, read_twin_data

MAX_VERSIONS = 8
"""States that can be pulled: the newest one, and a few for controllers that lag behind."""

DEFAULT_MAX_BYTES = 64 << 20
"""Default maximum bytes of all states together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinState:
    """One state.

    Attributes:
        version: 1 for the first that was posted, and so on.
        body: JSON, as it was posted.
    """

    version: int
    body: bytes
    data: TwinData


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinHealth:
    """How the twin is.

    Attributes:
        version: Of the newest state; 0: nothing was posted yet.
        refreshing: A refresh was requested, and its data has not arrived yet.
    """

    version: int
    refreshing: bool
    nodes: int
    jobs: int
    links: int
    held_bytes: int
    max_bytes: int


class DigitalTwin:
    """Stores the newest state that was sent to it (see the module). Thread-safe."""

    def __init__(
        self, max_bytes: int = DEFAULT_MAX_BYTES, max_versions: int = MAX_VERSIONS
    ) -> None:
        self._max_bytes, self._max_versions = max_bytes, max_versions
        self._lock = threading.Lock()
        self._states: OrderedDict[int, TwinState] = OrderedDict()
        self._held_bytes = 0
        self._version = 0
        self._refreshing = False

    @property
    def max_bytes(self) -> int:
        """Maximum size of all states together."""
        return self._max_bytes

    def refresh(self) -> int:
        """Note that newer data is on its way; return the version of the newest state."""
        with self._lock:
            self._refreshing = True
            return self._version

    def receive(self, body: bytes) -> TwinState:
        """Check a state and hold it as the newest one; the oldest ones make room for it.

        Raises:
            InvalidInput: It is no document of nodes and jobs.
            TooLarge: It alone is over the limit.
        """
        if len(body) > self._max_bytes:
            raise TooLarge("the data", self._max_bytes, "max_bytes", "the twin")
        data = read_twin_data(body)
        with self._lock:
            self._version += 1
            state = TwinState(version=self._version, body=body, data=data)
            self._states[state.version] = state
            self._held_bytes += len(body)
            while len(self._states) > self._max_versions or self._held_bytes > self._max_bytes:
                _, oldest = self._states.popitem(last=False)
                self._held_bytes -= len(oldest.body)
            self._refreshing = False
            return state

    def state(self, version: int | None = None) -> TwinState:
        """Return a state; None: the newest one.

        Raises:
            NotFound: Nothing was posted yet, or that version is held no more.
            InvalidInput: There was no such version yet.
        """
        with self._lock:
            if version is not None and version > self._version:
                raise InvalidInput.at(
                    "version", f"{version} has not been posted yet", f"up to {self._version}"
                )
            wanted = self._version if version is None else version
            state = self._states.get(wanted)
            oldest = next(iter(self._states), 0)
            newest = self._version
        if state is not None:
            return state
        if not newest:
            reason = "no state was posted to the twin yet: POST one, or start a run that does"
        else:
            reason = f"state {wanted} was removed: the twin still has {oldest} to {newest}"
        raise NotFound("state of the twin", str(wanted), reason)

    def health(self) -> TwinHealth:
        """Return what is held."""
        with self._lock:
            newest = self._states.get(self._version)
            data = newest.data if newest else None
            return TwinHealth(
                version=self._version,
                refreshing=self._refreshing,
                nodes=len(data.nodes) if data else 0,
                jobs=len(data.jobs) if data else 0,
                links=len(data.links) if data else 0,
                held_bytes=self._held_bytes,
                max_bytes=self._max_bytes,
            )
