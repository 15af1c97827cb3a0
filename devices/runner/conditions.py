"""What else happened on our CPUs while something was timed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from edgeyard.devices.runner import board

_TICK_ERROR = 2
"""Ticks by which /proc/stat and our own CPU time may differ on each CPU: one at either end."""

_MIN_TIME_S = 0.1
"""One lost time slice (4 ms) in a shorter series would look like a busy machine; it moves one of
its runs, and no p50."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Circumstances of a measurement. None: this kernel does not report it.

    Attributes:
        wall_s: Time between first and last look.
        own_cpu_s: CPU time of this process.
        other_load: Share of our CPUs' time that others had, 0-1, the hypervisor included.
        steal: The hypervisor's part of it.
        queued: Share of the time that a thread of ours waited for its CPU, 0-1.
        cpus: Where we might run.
        affinity_changed: The set changed meanwhile.
        affinity_missed: We were to stay on CPUs that we did not get.
        frequencies_mhz: Lowest frequency of our CPUs at each look.
        throttle_events: Counted by the kernel meanwhile.
        throttled: A board's firmware said so at some look.
        clock_error: Relative difference between the clock we time with and the raw hardware clock.
    """

    wall_s: float
    own_cpu_s: float
    cpus: Tuple[int, ...] = ()
    other_load: Optional[float] = None
    steal: Optional[float] = None
    queued: Optional[float] = None
    affinity_changed: bool = False
    affinity_missed: bool = False
    frequencies_mhz: Tuple[float, ...] = ()
    throttle_events: Optional[int] = None
    throttled: Optional[bool] = None
    temperature_before_c: Optional[float] = None
    temperature_after_c: Optional[float] = None
    load_average_before: Optional[float] = None
    load_average_after: Optional[float] = None
    clock_error: float = 0.0

    @property
    def cpu_use(self) -> float:
        """Own CPU time as a share of what our CPUs had to give."""
        return self.own_cpu_s / (self.wall_s * max(1, len(self.cpus))) if self.wall_s > 0 else 0.0

    def as_json(self) -> Mapping[str, object]:
        """Return the values as the report contains them."""
        seen = self.frequencies_mhz
        return {
            "wall_s": self.wall_s,
            "own_cpu_s": self.own_cpu_s,
            "other_load": self.other_load,
            "steal": self.steal,
            "queued": self.queued,
            "cpus": list(self.cpus),
            "affinity_changed": self.affinity_changed,
            "frequency_mhz": {
                "first": seen[0],
                "last": seen[-1],
                "min": min(seen),
                "max": max(seen),
            }
            if seen
            else None,
            "temperature_c": {
                "before": self.temperature_before_c,
                "after": self.temperature_after_c,
            },
            "throttle_events": self.throttle_events,
            "throttled": self.throttled,
            "load_average": {
                "before": self.load_average_before,
                "after": self.load_average_after,
            },
            "clock_error": self.clock_error,
        }


def together(parts: Sequence[Conditions]) -> Conditions:
    """Merge the conditions of several successive measurements into those of one."""
    wall_s = sum(one.wall_s for one in parts)

    def mean(of: Callable[[Conditions], Optional[float]]) -> Optional[float]:
        values = [(of(one), one.wall_s) for one in parts]
        known = [(value, weight) for value, weight in values if value is not None]
        total = sum(weight for _, weight in known)
        return sum(value * weight for value, weight in known) / total if total > 0 else None

    throttles = [one.throttle_events for one in parts if one.throttle_events is not None]
    throttled = [one.throttled for one in parts if one.throttled is not None]
    return Conditions(
        wall_s=wall_s,
        own_cpu_s=sum(one.own_cpu_s for one in parts),
        cpus=parts[0].cpus,
        other_load=mean(lambda one: one.other_load),
        steal=mean(lambda one: one.steal),
        queued=mean(lambda one: one.queued),
        affinity_changed=any(one.affinity_changed or one.cpus != parts[0].cpus for one in parts),
        affinity_missed=any(one.affinity_missed for one in parts),
        frequencies_mhz=tuple(each for one in parts for each in one.frequencies_mhz),
        throttle_events=sum(throttles) if throttles else None,
        throttled=any(throttled) if throttled else None,
        temperature_before_c=parts[0].temperature_before_c,
        temperature_after_c=parts[-1].temperature_after_c,
        load_average_before=parts[0].load_average_before,
        load_average_after=parts[-1].load_average_after,
        clock_error=max(one.clock_error for one in parts),
    )


class Watch:
    """Looks at the machine at the start, between chunks of runs, and at the end."""

    def __init__(
        self, *, threads: int, wanted_cpus: Sequence[int] = (), root: Path = board.ROOT
    ) -> None:
        self._root = root
        self._threads = threads
        self._wanted = tuple(sorted(wanted_cpus))

    def start(self) -> None:
        """Begin to observe; called after the warm-up, right before the first timed run."""
        self._cpus = tuple(sorted(os.sched_getaffinity(0)))
        self._changed = False
        self._frequencies: List[float] = []
        self._throttled: Optional[bool] = None
        self._temperature = board.temperature_c(self._root)
        self._load = os.getloadavg()[0]
        self._throttles = board.throttle_count(self._cpus, self._root)
        self.look()
        self._queued = board.queued_s(self._root)
        self._busy = board.busy_s(self._cpus, self._root)
        self._own_cpu = board.process_s()
        self._raw = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
        self._started = time.perf_counter()

    def look(self) -> None:
        """Sample CPU affinity, frequency and throttling; cheap, called a few times a second."""
        self._changed |= tuple(sorted(os.sched_getaffinity(0))) != self._cpus
        frequency = board.frequency_mhz(self._cpus, self._root)
        if frequency is not None:
            self._frequencies.append(frequency)
        now = board.throttled_now(self._root)
        if now is not None:
            self._throttled = bool(self._throttled) or now

    def stop(self) -> Conditions:
        """End the observation; called right after the last timed run."""
        wall_s = time.perf_counter() - self._started
        raw_s = time.clock_gettime(time.CLOCK_MONOTONIC_RAW) - self._raw
        own_cpu_s = board.process_s() - self._own_cpu
        other_load, steal = self._other_load(wall_s, own_cpu_s)
        queued = board.queued_s(self._root)
        self.look()
        throttles = board.throttle_count(self._cpus, self._root)
        return Conditions(
            wall_s=wall_s,
            own_cpu_s=own_cpu_s,
            cpus=self._cpus,
            other_load=other_load,
            steal=steal,
            queued=self._share_queued(queued, wall_s),
            affinity_changed=self._changed,
            affinity_missed=bool(self._wanted) and self._wanted != self._cpus,
            frequencies_mhz=tuple(self._frequencies),
            throttle_events=None
            if throttles is None or self._throttles is None
            else throttles - self._throttles,
            throttled=self._throttled,
            temperature_before_c=self._temperature,
            temperature_after_c=board.temperature_c(self._root),
            load_average_before=self._load,
            load_average_after=os.getloadavg()[0],
            # a short span says nothing: reading the two clocks takes a microsecond
            clock_error=abs(wall_s - raw_s) / wall_s if wall_s > 0.01 else 0.0,
        )

    def _other_load(
        self, wall_s: float, own_cpu_s: float
    ) -> Tuple[Optional[float], Optional[float]]:
        before, after = self._busy, board.busy_s(self._cpus, self._root)
        if before is None or after is None or wall_s <= 0:
            return None, None
        capacity_s = wall_s * len(self._cpus)
        doubt_s = _TICK_ERROR * len(self._cpus) / os.sysconf("SC_CLK_TCK")
        other_s = after[0] - before[0] - own_cpu_s - doubt_s
        steal_s = after[1] - before[1] - doubt_s
        return min(1.0, max(0.0, other_s / capacity_s)), max(0.0, steal_s / capacity_s)

    def _share_queued(self, after: Optional[float], wall_s: float) -> Optional[float]:
        # more threads than CPUs wait for each other, which says nothing about others
        if after is None or self._queued is None or self._threads > len(self._cpus) or not wall_s:
            return None
        span_s = max(wall_s, _MIN_TIME_S)
        return min(1.0, max(0.0, (after - self._queued) / (span_s * self._threads)))
