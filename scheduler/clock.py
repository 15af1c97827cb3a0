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
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from edgeyard.atomic_files import open_atomically
from edgeyard.scheduler.ports import Clock

_K = TypeVar("_K", bound=Hashable)

logger = logging.getLogger(__name__)

TOLERANCE_S = 2.0
"""Clocks that differ by less agree: NTP slews by less between two readings."""

SETTLE_S = 60.0
"""A new time of a clock is accepted when the clock has kept it for this time."""

SLEW = 0.005
"""Seconds per second by which a leader's shared time approaches its machine's clock."""

MAX_RESUMED_S = 86400.0
"""A machine that starts further behind the shared time is right, unless it is set in a minute."""

_ATOMIC_S = 0.2
"""Two readings within this time count as simultaneous."""

_READINGS = 5


def _boottime_s() -> float:
    """Return seconds since the machine started, including suspended time."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def boot_id() -> str:
    """Return what names the time from one start of this machine to the next; "" for unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A simultaneous reading of both clocks of a machine."""

    wall: datetime
    monotonic_s: float

    def at(self, monotonic_s: float) -> datetime:
        """Return the time of day at another moment, by the monotonic clock."""
        return self.wall + timedelta(seconds=monotonic_s - self.monotonic_s)


@dataclass(frozen=True, slots=True)
class ClockState:
    """The state of a `SteadyClock` at one moment.

    Attributes:
        now: See `edgeyard.scheduler.ports.Clock.now`.
        certain: See `edgeyard.scheduler.ports.Clock.certain`.
        disagreement_s: See `edgeyard.scheduler.ports.Clock.disagreement_s`.
        stepped_s: Sum of all steps that were believed; positive is forwards.
    """

    now: datetime
    certain: datetime
    disagreement_s: float
    stepped_s: float


class SteadyClock:
    """The machine's clock, guarded by its monotonic clock. Thread-safe."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic_s: Callable[[], float] = _boottime_s,
    ) -> None:
        """Read both clocks; the machine's is right as it is now.

        Args:
            wall: The machine's clock, aware UTC.
            monotonic_s: A clock in seconds that can't be set.
        """
        self._wall = wall
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._agreed = self._read()  # the last reading at which both clocks agreed
        self._stepped: ClockReading | None = None  # the first reading of the new time
        self._newest = self._agreed.wall
        self._off_s = 0.0
        self._stepped_s = 0.0

    def restore(self, earlier: ClockReading) -> None:
        """Begin anew from what an earlier process read of the same clocks when they agreed."""
        with self._lock:
            self._agreed, self._newest = earlier, earlier.wall
            self._stepped, self._off_s = None, 0.0

    def now(self) -> datetime:
        with self._lock:
            return self._look()

    def state(self) -> ClockState:
        """Return the state of the clock at one moment."""
        with self._lock:
            now = self._look()
            certain = now if self._stepped is None else min(now, self._agreed.wall)
            return ClockState(now, certain, self._off_s, self._stepped_s)

    def monotonic_s(self) -> float:
        return self._monotonic_s()

    def certain(self) -> datetime:
        return self.state().certain

    def disagreement_s(self) -> float:
        return self.state().disagreement_s

    def agreed(self) -> ClockReading:
        """Return the newest reading at which both clocks agreed."""
        with self._lock:
            self._look()
            return self._agreed

    def _look(self) -> datetime:
        """Read both clocks and return the time; the caller holds the lock."""
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
                extra={"event": "clock.stepped", "by_s": round(off_s, 3), "wait_s": SETTLE_S},
            )
            self._stepped = found
        elif found.monotonic_s - stepped.monotonic_s >= SETTLE_S:
            logger.warning(
                "the machine's clock kept its new time, which is the server's from now on",
                extra={"event": "clock.settled", "by_s": round(off_s, 3)},
            )
            self._stepped_s += off_s
            return self._agree(found, found.wall)
        self._newest = max(steady, self._newest)
        return self._newest

    def _agree(self, found: ClockReading, now: datetime) -> datetime:
        self._agreed, self._stepped, self._newest, self._off_s = found, None, now, 0.0
        return now

    def _read(self) -> ClockReading:
        """Read both clocks simultaneously: a delay between the readings would look like a step."""
        for _ in range(_READINGS):
            before_s, wall, after_s = self._monotonic_s(), self._wall(), self._monotonic_s()
            if after_s - before_s <= _ATOMIC_S:
                break
        return ClockReading(wall, after_s)


class SharedClock(Clock):
    """The time that all servers of one database share: the leader's. Thread-safe.

    It is this machine's guarded time plus a correction. A server that follows corrects its time to
    the leader's at each renewal of the lease that it sees. The next leader carries that time on, so
    that no stored time is compared with another machine's clock. The leader lets the shared time
    approach its own machine's clock by `SLEW`.
    """

    def __init__(self, own: SteadyClock, *, boot_id: str = "") -> None:
        """Start with this machine's time.

        Args:
            own: This machine's guarded time.
            boot_id: Names the time from one start of the machine to the next; "" for unknown.
        """
        self._own = own
        self._boot_id = boot_id
        self._lock = threading.Lock()  # guards all below
        self._correction_s = 0.0
        self._known = False
        self._restored = (-1, -math.inf)
        self._steps = 0
        self._leads = False
        self._slewed_at_s = 0.0
        self._stepped_s = 0.0
        self._pending_step_s = 0.0
        self._far_since_s: float | None = None
        self._held: tuple[datetime, float] | None = None  # certain time, until when by monotonic
        self._certain = own.certain()

    def restore(self, record: str) -> None:
        """Continue from what an earlier process knew, unless a newer record has been restored.

        Args:
            record: From `record`; one of another machine, or from before this one was started
                again, changes nothing, nor does a damaged one.
        """
        found = _read_record(record, self._boot_id)
        with self._lock:
            if found is None or found.age_key <= self._restored:
                return
            self._restored, self._steps = found.age_key, found.steps
            self._own.restore(found.reading)
            self._correction_s, self._known = found.correction_s, True
            self._certain = self._own.certain() + timedelta(seconds=self._correction_s)

    def record(self, step_s: float = 0.0) -> str:
        with self._lock:
            self._look()
            reading = self._own.agreed()
            return json.dumps(
                {
                    "boot_id": self._boot_id,
                    "wall": reading.wall.isoformat(),
                    "monotonic_s": reading.monotonic_s,
                    "correction_s": self._correction_s + step_s,
                    "steps": self._steps + bool(step_s),
                }
            )

    def now(self) -> datetime:
        with self._lock:
            return self._look().now

    def monotonic_s(self) -> float:
        return self._own.monotonic_s()

    def certain(self) -> datetime:
        with self._lock:
            return self._look().certain

    def disagreement_s(self) -> float:
        with self._lock:
            return self._look().disagreement_s

    def ahead_s(self) -> float:
        """Return how far this machine's clock is ahead of the shared time, seconds."""
        with self._lock:
            self._look()
            return -self._correction_s

    def pending_step_s(self) -> float:
        with self._lock:
            self._look()
            return self._pending_step_s

    def take_step(self, step_s: float) -> None:
        with self._lock:
            self._look()
            self._correction_s += step_s
            self._steps += 1
            self._pending_step_s, self._held = self._pending_step_s - step_s, None

    def follow(self, leaders: datetime) -> None:
        """Adopt the leader's time.

        Args:
            leaders: What it is now, or was up to a moment ago: it is never ahead of the truth, so
                that a reading which lags by less than `TOLERANCE_S` changes nothing.
        """
        with self._lock:
            self._look()
            self._leads, self._pending_step_s, self._held = False, 0.0, None
            self._far_since_s = None
            found_s = (leaders - self._own.now()).total_seconds()
            if not self._known or not 0 <= self._correction_s - found_s <= TOLERANCE_S:
                self._correct(found_s)
            self._known = True

    def resume(self, last: datetime, *, lag_s: float = 0.0) -> None:
        """Continue the time of a leader that this process has not seen alive.

        If it is unknown how long ago ``last`` was, this machine's clock is believed after
        `SETTLE_S`: until then nothing is certain that came after ``last``.

        Args:
            last: The last time that a leader is known to have had.
            lag_s: The leader may have stored times that were later by so much, seconds.
        """
        with self._lock:
            gap_s = (self._look().now - last).total_seconds()
            if gap_s < 0:
                self._correct(self._correction_s - gap_s + lag_s)
                self._far_since_s = self._own.monotonic_s() if gap_s < -MAX_RESUMED_S else None
            elif not self._known and gap_s > TOLERANCE_S:
                self._held = (last, self._own.monotonic_s() + SETTLE_S)
            self._known = True

    def lead(self) -> None:
        """Let other servers follow this server's time; called regularly while it leads."""
        with self._lock:
            self._look()
            at_s = self._own.monotonic_s()
            if not self._leads:
                self._leads = self._known = True
                self._slewed_at_s = at_s
            if self._far_since_s is not None and at_s >= self._far_since_s + SETTLE_S:
                self._far_since_s = None
                if self._correction_s > MAX_RESUMED_S:  # the last leader's clock was wrong
                    self._pending_step_s -= self._correction_s
                    self._held = (self._certain, math.inf)

    def _correct(self, correction_s: float) -> None:
        if abs(correction_s) > TOLERANCE_S and abs(correction_s - self._correction_s) > TOLERANCE_S:
            logger.warning(
                "this machine's clock differs from the time that the servers share, which is used",
                extra={"event": "clock.differs", "ahead_s": round(-correction_s, 3)},
            )
        self._correction_s = correction_s

    def _slew(self) -> None:
        """Let the leader's time approach its machine's, evenly: it never goes back."""
        at_s = self._own.monotonic_s()
        left_s = max(0.0, abs(self._correction_s) - SLEW * (at_s - self._slewed_at_s))
        self._correction_s = math.copysign(left_s, self._correction_s)
        self._slewed_at_s = at_s

    def _look(self) -> ClockState:
        """Read the machine's clock; its accepted steps do not change the shared time.

        A leader's step away from the shared time is left for `take_step`. The lock is held.
        """
        own = self._own.state()
        step_s = own.stepped_s - self._stepped_s
        if step_s:
            self._stepped_s = own.stepped_s
            closer = abs(self._correction_s - step_s) < abs(self._correction_s)
            self._correction_s -= step_s
            if self._leads and not closer:
                self._pending_step_s += step_s
                self._held = (self._certain, math.inf)
        off_s = own.disagreement_s
        if self._held is not None and self._own.monotonic_s() >= self._held[1] and not off_s:
            self._held = None
        if self._leads:
            if off_s or self._held is not None:
                self._slewed_at_s = self._own.monotonic_s()
            else:
                self._slew()
        correction = timedelta(seconds=self._correction_s)
        now, certain = own.now + correction, own.certain + correction
        if self._held is not None:
            held, _ = self._held
            certain = min(held, certain)
            off_s = off_s or self._pending_step_s or (now - held).total_seconds()
        self._certain = certain
        return ClockState(now, certain, off_s, own.stepped_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What one process leaves for the next: see `SharedClock.record`.

    Attributes:
        reading: The last one at which the machine's clocks agreed.
        correction_s: By how much the shared time is ahead of the machine's.
        steps: How many steps of the machine's clock the shared time has taken since it started.
    """

    reading: ClockReading
    correction_s: float
    steps: int

    @property
    def age_key(self) -> tuple[int, float]:
        """Return a key that orders records of one machine, the newest last."""
        return self.steps, self.reading.monotonic_s


def _read_record(text: str, boot_id: str) -> _Record | None:
    """Return a record of this machine since it started; None if it is none."""
    try:
        written = json.loads(text)
        if not boot_id or written["boot_id"] != boot_id:
            return None
        wall = datetime.fromisoformat(written["wall"])
        reading = ClockReading(wall, float(written["monotonic_s"]))
        found = _Record(
            reading=reading,
            correction_s=float(written["correction_s"]),
            steps=int(written["steps"]),
        )
    except (ValueError, TypeError, KeyError):
        return None
    return found if wall.tzinfo else None


class ClockFile:
    """Passes the time from one process to the next, so that a step between the two is noticed."""

    def __init__(self, path: Path) -> None:
        """Describe the file; `read` reads it."""
        self._path = path

    def read(self) -> str:
        """Return what was written; "" if there is nothing."""
        try:
            return self._path.read_text()
        except (OSError, ValueError):
            return ""

    def write(self, record: str) -> None:
        """Replace the file; log an error of the disk instead of raising it.

        Args:
            record: From `SharedClock.record`.
        """
        try:
            with open_atomically(self._path) as file:
                file.write(record.encode())
        except OSError as error:
            logger.warning(
                "the time could not be kept", extra={"event": "clock.unkept", "reason": str(error)}
            )


@dataclass(frozen=True, slots=True)
class _FirstReading:
    """The first measurement of the time since a moment.

    Attributes:
        passed_s: Seconds from ``since`` to the measurement, by the time of day.
        at_s: Time of the measurement, by the monotonic clock.
    """

    since: datetime
    passed_s: float
    at_s: float


class Stopwatches(Generic[_K]):
    """Measures durations by the monotonic clock. For one thread.

    What began before it was first asked for has lasted as long as the time that has certainly come
    says; from then on a clock that is set, and believed, makes it neither longer nor shorter. What
    is still to begin follows the time of day until it has.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin without measurements."""
        self._clock = clock
        self._readings: dict[_K, _FirstReading] = {}

    def elapsed_s(self, key: _K, since: datetime) -> float:
        """Return the seconds from ``since`` to now; negative before it.

        Args:
            key: What is measured; with another ``since`` it is measured anew.
            since: When it began, by the server's clock.
        """
        at_s = self._clock.monotonic_s()
        first = self._readings.get(key)
        if first is None or first.since != since or first.passed_s < 0:
            passed_s = (self._clock.certain() - since).total_seconds()
            first = self._readings[key] = _FirstReading(since, passed_s, at_s)
        return first.passed_s + at_s - first.at_s

    def retain(self, wanted: Callable[[_K], bool]) -> None:
        """Stop all other measurements."""
        for key in [each for each in self._readings if not wanted(each)]:
            del self._readings[key]
