"""The server's time: the machine's clock, guarded by its monotonic clock.

The machine's clock can be set: by an operator, by NTP, by a hypervisor. The monotonic clock can
not, but it does not know the time of day. `SteadyClock` compares the two at each reading. While
they agree, its time is the machine's. When the machine's clock steps, its time runs on evenly by
the monotonic clock, and nothing that can't be taken back is done, until the machine's clock is back
or has kept its new time for a while: then that is the time.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)

logger = logging.getLogger(__name__)

TOLERANCE_S = 2.0
"""Clocks that differ by less agree: NTP slews by less between two readings."""

SETTLE_S = 60.0
"""A clock that was set is believed when it has kept its new time for so long."""

_ATOMIC_S = 0.2
"""Two clocks that are read within this time are read at once."""

_READINGS = 5


def _boottime_s() -> float:
    """Seconds since the machine started; unlike ``time.monotonic`` it counts a suspended time."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Both clocks of a machine at one moment."""

    wall: datetime
    monotonic_s: float

    def at(self, monotonic_s: float) -> datetime:
        """The time of day at another moment, by the monotonic clock."""
        return self.wall + timedelta(seconds=monotonic_s - self.monotonic_s)


class SteadyClock:
    """See the module. Thread-safe."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic_s: Callable[[], float] = _boottime_s,
        *,
        settle_s: float = SETTLE_S,
        earlier: Reading | None = None,
    ) -> None:
        """Read both clocks.

        Args:
            wall: The machine's clock, aware UTC.
            monotonic_s: A clock in seconds that nobody can set.
            settle_s: How long a clock that was set has to keep its new time to be believed.
            earlier: What an earlier process read of the same clocks when they agreed; None: the
                machine's clock is right as it is now.
        """
        self._wall = wall
        self._monotonic_s = monotonic_s
        self._settle_s = settle_s
        self._lock = threading.Lock()
        self._agreed = earlier or self._read()  # the last reading at which both clocks agreed
        self._stepped: Reading | None = None  # the first reading of the new time
        self._newest = self._agreed.wall
        self._off_s = 0.0

    def now(self) -> datetime:
        """See `edgeyard.scheduler.ports.Clock`."""
        with self._lock:
            return self._look()

    def monotonic_s(self) -> float:
        """See `edgeyard.scheduler.ports.Clock`."""
        return self._monotonic_s()

    def certain(self) -> datetime:
        """See `edgeyard.scheduler.ports.Clock`."""
        with self._lock:
            now = self._look()
            return now if self._stepped is None else min(now, self._agreed.wall)

    def disagreement_s(self) -> float:
        """See `edgeyard.scheduler.ports.Clock`."""
        with self._lock:
            self._look()
            return self._off_s

    def agreed(self) -> Reading:
        """Return the newest reading at which both clocks agreed."""
        with self._lock:
            self._look()
            return self._agreed

    def _look(self) -> datetime:
        """Read both clocks; returns the time. The lock is held."""
        found = self._read()
        steady = self._agreed.at(found.monotonic_s)
        off_s = (found.wall - steady).total_seconds()
        if abs(off_s) <= TOLERANCE_S:
            if self._stepped is not None:
                logger.info("the machine's clock is back", extra={"event": "clock.back"})
            return self._agree(found, max(found.wall, self._newest))
        self._off_s = off_s
        stepped = self._stepped
        if stepped is None or (
            abs((found.wall - stepped.at(found.monotonic_s)).total_seconds()) > TOLERANCE_S
        ):
            logger.warning(
                "the machine's clock was set: nothing that can't be taken back is done until it is "
                "back, or has kept its new time for a while",
                extra={"event": "clock.stepped", "by_s": round(off_s, 3), "wait_s": self._settle_s},
            )
            self._stepped = found
        elif found.monotonic_s - stepped.monotonic_s >= self._settle_s:
            logger.warning(
                "the machine's clock kept its new time, which is the server's from now on",
                extra={"event": "clock.settled", "by_s": round(off_s, 3)},
            )
            return self._agree(found, found.wall)
        self._newest = max(steady, self._newest)
        return self._newest

    def _agree(self, found: Reading, now: datetime) -> datetime:
        self._agreed, self._stepped, self._newest, self._off_s = found, None, now, 0.0
        return now

    def _read(self) -> Reading:
        """Both clocks at once: a thread that has to wait between them would see a step."""
        for _ in range(_READINGS):
            before_s, wall, after_s = self._monotonic_s(), self._wall(), self._monotonic_s()
            if after_s - before_s <= _ATOMIC_S:
                break
        return Reading(wall, after_s)


class ClockFile:
    """Hands the time on from one process to the next, so that a step between the two is seen.

    The monotonic clock begins anew with the machine: what was written before it started again is
    not used.
    """

    def __init__(self, path: Path, boot_id: Callable[[], str] = _boot_id) -> None:
        """Nothing is read yet.

        Args:
            path: Of the file.
            boot_id: Names the time from one start of the machine to the next; "" for unknown.
        """
        self._path = path
        self._boot_id = boot_id()

    def read(self) -> Reading | None:
        """Return what was written since the machine started; None where there is nothing."""
        try:
            told = json.loads(self._path.read_text())
            if not self._boot_id or told["boot_id"] != self._boot_id:
                return None
            wall = datetime.fromisoformat(told["wall"])
            return Reading(wall, float(told["monotonic_s"])) if wall.tzinfo else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, clock: SteadyClock) -> None:
        """Replace the file; a full disk is no reason to fail."""
        found = clock.agreed()
        told = {
            "boot_id": self._boot_id,
            "wall": found.wall.isoformat(),
            "monotonic_s": found.monotonic_s,
        }
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(told))
            new.replace(self._path)
        except OSError as error:
            logger.warning(
                "the time could not be kept", extra={"event": "clock.unkept", "reason": str(error)}
            )


@dataclass(frozen=True, slots=True)
class _Begun:
    """What had passed since a moment when it was first asked for.

    Attributes:
        passed_s: By the time of day.
        at_s: When it was asked, by the monotonic clock.
    """

    since: datetime
    passed_s: float
    at_s: float


class Stopwatches(Generic[_K]):
    """Measures how long things last, by the monotonic clock. One thread.

    What began before it was first asked for has lasted as long as the time of day says; from then
    on a clock that is set, and believed, makes it neither longer nor shorter. What is still to
    begin follows the time of day until it has.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing is measured yet."""
        self._clock = clock
        self._begun: dict[_K, _Begun] = {}

    def elapsed_s(self, key: _K, since: datetime) -> float:
        """Seconds from ``since`` to now; negative before it.

        Args:
            key: What is measured; with another ``since`` it is measured anew.
            since: When it began, by the server's clock.
        """
        at_s = self._clock.monotonic_s()
        begun = self._begun.get(key)
        if begun is None or begun.since != since or begun.passed_s < 0:
            passed_s = (self._clock.now() - since).total_seconds()
            begun = self._begun[key] = _Begun(since, passed_s, at_s)
        return begun.passed_s + at_s - begun.at_s

    def retain(self, wanted: Callable[[_K], bool]) -> None:
        """Stop measuring all else."""
        for key in [each for each in self._begun if not wanted(each)]:
            del self._begun[key]


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Clock

    _: Clock = SteadyClock()
