"""What a run takes from the board's supply, in joules.

The runner's parent process reads the board's sensor, or asks an external meter, while its child
measures: before the run for the idle power, then ten times (a meter: once) a second. The measuring
process does nothing for it but state the instants between which inferences ran; these are of
``CLOCK_MONOTONIC``, which all processes of a machine share. `Trace.between` is the energy between
two of them.

A counter is a sum of joules: differences are added up. Power is integrated by trapezoids. What a
sensor can't have measured makes the numbers *void*, with the reason and whose fault it is: a
counter that runs backwards (one that states its range begins again at 0), one that stands still, a
value that no board draws, a gap. A run is never failed for it: its latencies are right.

Only the standard library, until there is something to compute an interval of.
"""

from __future__ import annotations

import bisect
import math
import os
import re
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from edgeyard.devices.power_rails import (
    COUNTER,
    MAX_POWER_W,
    OF_A_PART,
    Rail,
    choose,
    rails_of,
    read_listing,
    read_text,
)
from edgeyard.devices.runner.engine import BoardFacts

SAMPLES_PER_S = 10.0
"""Rate of a board's sensor. A reading takes 0.05 ms, over I2C about 1 ms: at most 1 % of a core."""

METER_SAMPLES_PER_S = 1.0
"""Rate of an external meter: each reading starts a program."""

PART_S, METER_PART_S = 0.5, 2.0
"""Minimum time of inferences in a part; the interval comes from the energies of the parts."""

MEASURE_S, METER_MEASURE_S = 6.0, 20.0
"""Minimum time of inferences whose energy is measured: some twelve, or eight, parts, also where
later launches are faster than the first, which decides how many inferences all take."""

IDLE_S, METER_IDLE_S = 3.0, 12.0
"""Time for which the idle board is observed before the run."""

METER = "meter"
"""Scope of an external meter: only the lab knows what it measures."""

_MAX_WRAP = 0.5
"""Share of a counter's range that it counts at most between two readings where it begins again."""

_MAX_GAP = 5.0
"""Periods without a value after which sampled power is not known."""

_ROUNDING = 1e-6
"""Smaller shares of the energy of an inference are rounding errors, not energy above idle."""

_METER_TIMEOUT_S = 5.0
_MAX_OUTPUT_BYTES = 1000
_MAX_SPANS = 100_000

Span = Tuple[float, float, float]
"""When inferences ran, one after another or at once: begin and end of ``CLOCK_MONOTONIC`` in
seconds, and how many."""


class EnergyUnknown(Exception):
    """No energy is known for a time; the message says why, and whose fault it is."""


@dataclass
class Trace:
    """Readings of one sensor, in their order, as the energy since the first one.

    Attributes:
        source: Name of the sensor, for messages.
        period_s: Stated distance of two readings.
        readings: How many counted.
        dropped: How many were not plausible, or could not be read.
    """

    source: str
    period_s: float
    readings: int = 0
    dropped: int = 0
    _instants_s: List[float] = field(default_factory=list)
    _joules: List[float] = field(default_factory=list)
    _faults: List[Tuple[float, float, str]] = field(default_factory=list)
    _last: Optional[float] = None
    _zero_s: Optional[float] = None

    @property
    def span_s(self) -> Tuple[float, float]:
        """The instants of the first and the last reading.

        Raises:
            EnergyUnknown: There are no two readings.
        """
        if len(self._instants_s) < 2:
            raise EnergyUnknown(f"{self.source} gave no two readings that can be used")
        return self._instants_s[0], self._instants_s[-1]

    def add_power(self, at_s: float, watts: Optional[float]) -> None:
        """Add a reading of power.

        Args:
            at_s: Of ``CLOCK_MONOTONIC``, later than the one before.
            watts: None: it could not be read. A single 0 among other values is a slip of the
                sensor; several in a row are a part of the board that is off.
        """
        if watts is None or not 0 <= watts < MAX_POWER_W:
            self.dropped += 1
            return
        if watts == 0 and self._zero_s is None and self._last != 0:
            self._zero_s = at_s
            return
        if self._zero_s is not None and watts > 0:
            self.dropped += 1
        elif self._zero_s is not None:
            self._add_watts(self._zero_s, 0.0)
        self._zero_s = None
        self._add_watts(at_s, watts)

    def _add_watts(self, at_s: float, watts: float) -> None:
        before, joules = self._last, 0.0
        if before is not None:
            gap_s = at_s - self._instants_s[-1]
            joules = (before + watts) / 2 * gap_s
            if gap_s > _MAX_GAP * self.period_s:
                self._fault(at_s, f"gave no plausible power for {gap_s:.2g} s")
        self._append(at_s, joules, watts)

    def add_count(self, at_s: float, joules: Optional[float], wraps_at: Optional[float]) -> None:
        """Add a reading of a counter.

        Args:
            at_s: As of `add_power`.
            joules: None: it could not be read.
            wraps_at: Joules after which the counter begins again at 0; None: it never does.
        """
        if joules is None or not math.isfinite(joules) or joules < 0:
            self.dropped += 1
            return
        step = 0.0
        if self._last is not None:
            gap_s = at_s - self._instants_s[-1]
            step = joules - self._last
            if step < 0 and wraps_at is not None and joules <= wraps_at >= self._last:
                ahead = step + wraps_at
                # a step back of less than half the range is no beginning again
                if ahead <= min(MAX_POWER_W * gap_s, _MAX_WRAP * wraps_at):
                    step = ahead
            if step < 0:
                self._fault(at_s, f"ran backwards, from {self._last:.6g} to {joules:.6g} J")
            elif step > MAX_POWER_W * gap_s:
                self._fault(at_s, f"jumped from {self._last:.6g} to {joules:.6g} J")
        self._append(at_s, max(0.0, step), joules)

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the energy between two instants, joules, above 0.

        Between readings the power counts as constant.

        Args:
            begin_s: Of ``CLOCK_MONOTONIC`` (`time.monotonic`).
            end_s: Later than that.

        Raises:
            EnergyUnknown: The readings do not cover the time, or the sensor can't have measured
                what it stated meanwhile.
        """
        joules = self.counted(begin_s, end_s)
        if joules <= 0:
            raise self.still(end_s - begin_s)
        return joules

    def still(self, seconds: float) -> EnergyUnknown:
        """Return that no energy was counted in a time."""
        return EnergyUnknown(
            f"{self.source} stood still for {seconds:.2g} s: its resolution is too coarse, or it "
            "does not work; that is for the lab to mend"
        )

    def counted(self, begin_s: float, end_s: float) -> float:
        """Return what `between` does, or 0 where the sensor stood still.

        Raises:
            EnergyUnknown: As `between`, but not for that.
        """
        first_s, last_s = self.span_s
        if not begin_s < end_s or begin_s < first_s or end_s > last_s:
            raise EnergyUnknown(f"{self.source} was not read during all of the measurement")
        for fault_begin_s, fault_end_s, sentence in self._faults:
            if fault_begin_s < end_s and fault_end_s > begin_s:
                raise EnergyUnknown(sentence)
        return self._until(end_s) - self._until(begin_s)

    def _until(self, at_s: float) -> float:
        place = min(max(bisect.bisect_right(self._instants_s, at_s), 1), len(self._instants_s) - 1)
        begin_s, end_s = self._instants_s[place - 1 : place + 1]
        low, high = self._joules[place - 1 : place + 1]
        return low + (high - low) * (at_s - begin_s) / (end_s - begin_s)

    def _append(self, at_s: float, joules: float, value: float) -> None:
        self._joules.append((self._joules[-1] if self._joules else 0.0) + joules)
        self._instants_s.append(at_s)
        self._last = value
        self.readings += 1

    def _fault(self, at_s: float, what: str) -> None:
        sentence = f"{self.source} {what}: a fault of the sensor, not of the model or its user"
        self._faults.append((self._instants_s[-1], at_s, sentence))


class Source(Protocol):
    """A sensor or a meter."""

    def read_into(self, trace: Trace) -> None:
        """Read once."""
        ...

    @property
    def cpu_s(self) -> float:
        """Processor time that programs took which it started."""
        ...


class RailSource:
    """A rail of this machine.

    Args:
        root: Where ``sys`` is; tests use a fake tree.
    """

    cpu_s = 0.0

    def __init__(self, rail: Rail, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._rail, self._root, self._clock = rail, root, clock

    def read_into(self, trace: Trace) -> None:
        """Read once; of the time that this takes, the middle counts."""
        rail = self._rail
        before_s = self._clock()
        listing = {each: read_text(self._root / each) for each in rail.files}
        at_s = (before_s + self._clock()) / 2
        if rail.kind == COUNTER:
            max_j = None if rail.max_uj is None else rail.max_uj / 1e6
            trace.add_count(at_s, rail.joules(listing), max_j)
        else:
            trace.add_power(at_s, rail.watts(listing))


_JOULES = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _joules(text: str) -> float:
    """Return what a meter printed; Python itself would read ``1_000`` and ``nan`` as numbers.

    Raises:
        ValueError: It is no finite decimal number.
    """
    joules = float(text) if _JOULES.fullmatch(text) else math.nan
    if not math.isfinite(joules):
        raise ValueError(text)
    return joules


class MeterSource:
    """An external meter, which a program asks: it prints joules since some start.

    Attributes:
        problem: Why a reading failed, the last one that did; "": none failed.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self.cpu_s = 0.0
        self.problem = ""

    def read_into(self, trace: Trace) -> None:
        """Ask once."""
        before_s = time.monotonic()
        output = self._output()
        joules = None
        if output is not None:
            try:
                joules = _joules(output)
            except ValueError:
                self.problem = f"printed {output[:40]!r}, which is no number"
        if joules is not None and joules < 0:
            self.problem = f"printed {joules:.6g}, and joules since some start are never below 0"
        trace.add_count((before_s + time.monotonic()) / 2, joules, None)

    def _output(self) -> Optional[str]:
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.problem = f"can't be started: {error}"
            return None
        before = os.times()
        output = None
        try:
            output = _printed(process, time.monotonic() + _METER_TIMEOUT_S)
        finally:
            if output is None or process.poll() is None:
                _end(process)
            if process.stdout is not None:
                process.stdout.close()
        if output is None:
            self.problem = f"took longer than {_METER_TIMEOUT_S:g} s"
            return None
        after = os.times()
        self.cpu_s += after.children_user - before.children_user
        self.cpu_s += after.children_system - before.children_system
        if len(output) > _MAX_OUTPUT_BYTES:
            self.problem = f"printed more than {_MAX_OUTPUT_BYTES} bytes"
            return None
        if process.returncode:
            self.problem = f"ended with status {process.returncode}"
            return None
        return output.decode("utf-8", "replace").strip()


def _printed(process: "subprocess.Popen[bytes]", until_s: float) -> Optional[bytes]:
    """Return what a program prints until it ends, or one byte more than it may.

    Returns:
        None: it did not end in time, or a program that it started keeps its output open.
    """
    assert process.stdout is not None
    output = b""
    while len(output) <= _MAX_OUTPUT_BYTES:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
            return None
        block = os.read(process.stdout.fileno(), _MAX_OUTPUT_BYTES + 1 - len(output))
        if not block:
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            return output
        output += block
    return output


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program with all that it started."""
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How a board's energy is measured, as a report states it.

    Attributes:
        sensor: Chip, ``rapl``, or the meter's program.
        rail: Label of the rail; "": of a meter.
        method: ``energy counter``, ``power`` or ``current times voltage``.
        scope: ``board``, ``processor``, ``part``, or ``meter``.
        chosen: Why this rail.
        samples_per_s: Stated rate of readings.
        part_s: Time of inferences of one part at least.
        measure_s: Time of inferences that a run should have.
        idle_s: Time of the observation before the run.
    """

    sensor: str
    rail: str
    method: str
    scope: str
    chosen: str
    samples_per_s: float = SAMPLES_PER_S
    part_s: float = PART_S
    measure_s: float = MEASURE_S
    idle_s: float = IDLE_S

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the energy meter {self.sensor}" if not self.rail else f"{self.sensor}/{self.rail}"


class Sampler:
    """Reads a source in a thread of its own, at a stated rate, between `start` and `stop`."""

    def __init__(self, source: Source, measuring: Measuring) -> None:
        self.trace = Trace(measuring.name, 1 / measuring.samples_per_s)
        self._source = source
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._cpu_s = 0.0
        self._began_s = self._ended_s = 0.0

    def start(self) -> None:
        """Begin to read; no process may be forked by hand while the thread runs."""
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._read, name="energy")
        self._thread.start()

    def stop(self) -> None:
        """Read once more, and end; may be called again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @property
    def cpu_share(self) -> Optional[float]:
        """Share of a core that reading took, with the programs that it started."""
        spent_s = self._ended_s - self._began_s
        return (self._cpu_s + self._source.cpu_s) / spent_s if spent_s > 0 else None

    def _read(self) -> None:
        began_cpu_s = time.thread_time()
        period_s = self.trace.period_s
        due_s = time.monotonic()
        stopped = False
        while not stopped:
            self._source.read_into(self.trace)
            due_s = max(due_s + period_s, time.monotonic())
            stopped = self._stop.wait(due_s - time.monotonic())
        self._source.read_into(self.trace)
        self._ended_s = time.monotonic()
        self._cpu_s = time.thread_time() - began_cpu_s


class EnergyMeasurement:
    """The energy of one run: idle power first, then the run, then the numbers of the report.

    Args:
        measuring: How it is measured.
        source: What is read.
    """

    def __init__(self, measuring: Measuring, source: Source) -> None:
        self.measuring = measuring
        self._source = source
        self._idle = Sampler(source, measuring)
        self._run = Sampler(source, measuring)
        self._started = False
        self._to_our_clock_s = math.inf

    def observe_idle(self) -> None:
        """Observe the board before the run begins; takes `Measuring.idle_s`."""
        self._idle.start()
        try:
            time.sleep(self.measuring.idle_s)
        finally:
            self._idle.stop()

    def on_progress(self, at_s: Optional[float]) -> None:
        """Read from the first call on.

        Args:
            at_s: When the run sent it, of the clock of its board, which differs from ours where
                the board is behind its host; None: on this machine.
        """
        if not self._started:
            self._started = True
            self._run.start()
        if at_s is not None:
            # the message that took the shortest time shows the difference of the clocks best
            self._to_our_clock_s = min(self._to_our_clock_s, time.monotonic() - at_s)

    def stop(self) -> None:
        """Read no more; may be called again, and without a run."""
        self._run.stop()

    def report(self, work: object) -> Dict[str, object]:
        """Return the ``energy`` of the report; call `stop` before.

        Args:
            work: When inferences ran: `Span`s by launch, of the clock of `on_progress`; None: the
                type has none, so that only power and energy of the run are known.
        """
        measuring = self.measuring
        found: Dict[str, object] = {
            "sensor": measuring.sensor,
            "rail": measuring.rail or None,
            "method": measuring.method,
            "scope": measuring.scope,
            "chosen": measuring.chosen,
            "samples_per_s": measuring.samples_per_s,
            "samples": self._run.trace.readings,
            "dropped": self._run.trace.dropped,
            "cpu_share": self._run.cpu_share,
            "joules": None,
            "seconds": None,
            "power_w": None,
            "idle": None,
            "per_inference": None,
            "per_inference_above_idle": None,
            "void": None,
        }
        try:
            found["idle"] = self._idle_power()
            begin_s, end_s = self._run.trace.span_s
            found["joules"] = self._run.trace.between(begin_s, end_s)
            found["seconds"] = end_s - begin_s
        except EnergyUnknown as unknown:
            found["void"] = self._why(unknown)
        try:
            found.update(self._of_inferences(work, found["idle"]))
        except EnergyUnknown as unknown:
            found["void"] = found["void"] or self._why(unknown)
        return found

    def of_part(self, spans: object) -> Dict[str, Optional[float]]:
        """Return the energy of an inference in a part of a run, with the ends of its interval.

        Args:
            spans: When the part's inferences ran, as of one launch of `report`.

        Returns:
            ``energy_j``, ``energy_low_j`` and ``energy_high_j``; None: not known, so of a part of
            too short a time.
        """
        try:
            found = _energy_of(self._parts(self._on_our_clock([spans])))
        except EnergyUnknown:
            found = {"value": None, "ci95": None}
        value, ends = found["value"], found["ci95"]
        low, high = ends if isinstance(ends, list) else (None, None)
        return {
            "energy_j": value if isinstance(value, float) else None,
            "energy_low_j": low,
            "energy_high_j": high,
        }

    def _why(self, unknown: EnergyUnknown) -> str:
        problem = self._source.problem if isinstance(self._source, MeterSource) else ""
        name = self.measuring.name
        return f"{name} {problem}; that is for the lab to mend" if problem else str(unknown)

    def _idle_power(self) -> Dict[str, object]:
        trace = self._idle.trace
        begin_s, end_s = trace.span_s
        parts = parts_of([(begin_s, end_s, 1.0)], self.measuring.part_s)
        watts = [_part(trace, part).power_w for part in parts]
        return {**_estimate([watts]), "unit": "W", "seconds": end_s - begin_s}

    def _of_inferences(self, work: object, idle: object) -> Dict[str, object]:
        trace = self._run.trace
        if work is None:
            begin_s, end_s = trace.span_s
            return {"power_w": trace.between(begin_s, end_s) / (end_s - begin_s)}
        launches = self._on_our_clock(work)
        whole = _part(trace, [span for launch in launches for span in launch])
        parts = self._parts(launches)
        found = _energy_of(parts)
        return {
            "power_w": whole.power_w,
            "per_inference": {**found, "unit": "J"},
            "per_inference_above_idle": _above_idle(parts, found, idle),
        }

    def _on_our_clock(self, work: object) -> List[List[Span]]:
        shift_s = self._to_our_clock_s if math.isfinite(self._to_our_clock_s) else 0.0
        return [
            [(begin_s + shift_s, end_s + shift_s, runs) for begin_s, end_s, runs in launch]
            for launch in _checked(work)
        ]

    def _parts(self, launches: Sequence[Sequence[Span]]) -> List[List[_Part]]:
        """Return the parts of each launch, equally many."""
        divided = _divided(launches, self.measuring.part_s)
        return [[_part(self._run.trace, part) for part in launch] for launch in divided]


@dataclass(frozen=True)
class _Part:
    """Inferences of a part of a run."""

    joules: float
    seconds: float
    runs: float

    @property
    def power_w(self) -> float:
        return self.joules / self.seconds


def _part(trace: Trace, spans: Sequence[Span]) -> _Part:
    """Return the inferences of these spans with their energy.

    Raises:
        EnergyUnknown: As `Trace.between`.
    """
    joules = sum(trace.counted(begin_s, end_s) for begin_s, end_s, _ in spans)
    seconds = _seconds(spans)
    if joules <= 0:
        raise trace.still(seconds)
    return _Part(joules=joules, seconds=seconds, runs=sum(runs for _, _, runs in spans))


def _seconds(spans: Sequence[Span]) -> float:
    return sum(end_s - begin_s for begin_s, end_s, _ in spans)


def energy_of(board: BoardFacts, root: Path) -> Tuple[Optional[EnergyMeasurement], Optional[str]]:
    """Return what measures the energy of a run on this board, or why nothing does.

    Args:
        root: Where ``sys`` is.

    Returns:
        The measurement, or None with a reason; both None: the board has no sensors.
    """
    if not board.may_measure_energy:
        return None, None
    if board.energy_command:
        program = Path(board.energy_command[0]).name
        meter = Measuring(
            sensor=program,
            rail="",
            method=COUNTER,
            scope=METER,
            chosen="energy_command of the boards file",
            samples_per_s=METER_SAMPLES_PER_S,
            part_s=METER_PART_S,
            measure_s=METER_MEASURE_S,
            idle_s=METER_IDLE_S,
        )
        return EnergyMeasurement(meter, MeterSource(board.energy_command)), None
    listing = read_listing(root)
    choice = choose(rails_of(listing), board.energy_rail)
    if choice.rail is None:
        return None, choice.reason or None
    rail = choice.rail
    if not all(listing[path] for path in rail.files):
        return None, (
            f"{rail.name} can't be read by the user of the runner; the lab's operator may allow "
            f"it: /{rail.files[0]}"
        )
    measuring = Measuring(
        sensor=rail.sensor,
        rail=rail.label,
        method=rail.kind,
        scope=choice.scope,
        chosen=choice.reason,
    )
    return EnergyMeasurement(measuring, RailSource(rail, root)), None


def add_energy(report: Dict[str, object], energy: Mapping[str, object]) -> None:
    """Add ``energy`` to a report, and the power that the platform's reports state.

    Args:
        energy: As of `EnergyMeasurement.report`, or only ``void``.
    """
    report["energy"] = dict(energy)
    if energy.get("scope") not in OF_A_PART:
        report["power_consumption"] = energy.get("power_w")


def add_energy_of_parts(
    report: Mapping[str, object], measurement: EnergyMeasurement, parts: object
) -> None:
    """Add the energy of an inference to each window of a soak, or number of callers of a curve.

    Args:
        measurement: Of this run, after `EnergyMeasurement.stop`.
        parts: When the inferences of each ran, in their order; may come from anywhere.
    """
    for holder, key in (("soak", "windows"), ("concurrency", "levels")):
        found = report.get(holder)
        rows = found.get(key) if isinstance(found, dict) else None
        if isinstance(rows, list) and isinstance(parts, list) and len(rows) == len(parts):
            for row, spans in zip(rows, parts):  # noqa: B905
                row.update(measurement.of_part(spans))


def parts_of(spans: Sequence[Span], part_s: float, count: Optional[int] = None) -> List[List[Span]]:
    """Divide the time of inferences into parts of equal length.

    Args:
        spans: In their order.
        part_s: Length of a part at least; one part where there is less.
        count: So many parts; None: as many as ``part_s`` allows.

    Returns:
        The pieces of spans of each part; a piece has its share of the inferences of its span.
    """
    zero_s = spans[0][0] if spans else 0.0  # a clock of months has no nanoseconds
    spans = [(begin_s - zero_s, end_s - zero_s, runs) for begin_s, end_s, runs in spans]
    total_s = _seconds(spans)
    count = count or max(1, int(total_s / part_s + 1e-9))
    parts: List[List[Span]] = [[] for _ in range(count)]
    done_s, place = 0.0, 0
    for begin_s, end_s, runs in spans:
        rate = runs / (end_s - begin_s)
        while begin_s < end_s:
            room_s = total_s * (place + 1) / count - done_s
            until_s = end_s if place == count - 1 else min(end_s, begin_s + room_s)
            if until_s > begin_s:
                parts[place].append((begin_s, until_s, rate * (until_s - begin_s)))
            done_s += max(0.0, until_s - begin_s)
            is_next = place < count - 1 and done_s >= total_s * (place + 1) / count - 1e-9
            # what is too short for the clock moves neither; so the next part takes the rest
            if is_next or (until_s <= begin_s and place < count - 1):
                place += 1
            begin_s = max(until_s, begin_s)
    placed = [
        [
            (begin_s + zero_s, end_s + zero_s, runs)
            for begin_s, end_s, runs in part
            if begin_s + zero_s < end_s + zero_s
        ]
        for part in parts
    ]
    return [part for part in placed if part]


def _divided(launches: Sequence[Sequence[Span]], part_s: float) -> List[List[List[Span]]]:
    """Return as many parts of each launch."""
    shortest_s = min(map(_seconds, launches))
    if shortest_s < part_s:
        raise EnergyUnknown(
            f"inferences took {shortest_s:.2g} s, and a number of the energy takes {part_s:g} s of "
            "them: state more of them, a longer load_duration or a longer user_time"
        )
    count = int(shortest_s / part_s)
    return [parts_of(launch, part_s, count) for launch in launches]


def _checked(work: object) -> List[List[Span]]:
    """Return the spans that a run states, checked: a user's model runs in its process."""
    try:
        launches = [
            [(float(begin_s), float(end_s), float(runs)) for begin_s, end_s, runs in launch]
            for launch in work  # type: ignore[attr-defined]
        ]
    except (TypeError, ValueError, OverflowError):
        launches = []
    spans = [span for launch in launches for span in launch]
    ordered = all(a[1] <= b[0] + 1e-6 for a, b in zip(spans, spans[1:]))  # noqa: B905, RUF007
    sound = all(math.isfinite(sum(span)) and span[0] < span[1] and span[2] > 0 for span in spans)
    if not all(launches) or not spans or len(spans) > _MAX_SPANS or not (ordered and sound):
        raise EnergyUnknown("the run did not state when its inferences ran")
    return launches


def _estimate(groups: Sequence[Sequence[float]]) -> Dict[str, object]:
    """Return the median of parts with its interval: by launches, as that of latencies.

    Args:
        groups: Of each launch, equally many. There is no interval if the median of a launch is not
            above 0, which what is above idle may be.
    """
    # NumPy is loaded after the run only; a host that has none still states the number
    try:
        import numpy as np

        from edgeyard.devices.runner.interval import (
            MIN_LAUNCHES,
            launches_interval,
            median_interval,
        )
    except ImportError:
        values = sorted(each for group in groups for each in group)
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
        return {"value": middle, "ci95": None, "ci95_degrees": None, "parts": len(values)}
    series = np.array([each for group in groups for each in group], dtype=np.float64)
    interval = median_interval(series)
    if interval is not None and len(groups) >= MIN_LAUNCHES:
        launches = np.array(groups, dtype=np.float64)
        above = np.median(launches, axis=1).min() > 0
        interval = launches_interval(interval, launches) if above else None
    return {
        "value": float(np.median(series)),
        "ci95": None if interval is None else [interval.low, interval.high],
        "ci95_degrees": None if interval is None else interval.degrees,
        "parts": len(series),
    }


def _energy_of(parts: Sequence[Sequence[_Part]], idle_w: float = 0.0) -> Dict[str, object]:
    """Return the energy of an inference, J, less what is drawn anyway."""
    return _estimate(
        [[(each.joules - idle_w * each.seconds) / each.runs for each in launch] for launch in parts]
    )


def _above_idle(
    parts: Sequence[Sequence[_Part]], taken: Mapping[str, object], idle: object
) -> Optional[Dict[str, object]]:
    """Return the energy less what the idle board takes in that time; None: not known.

    The ends of the interval are as far away as those of both, whose errors are independent:
    the root of the sum of the squares. None, too, where the board drew no more than idle, in all
    launches together or in one of them, or where the interval contains 0: such a number is noise.

    Args:
        taken: Energy of an inference, J, with what is drawn anyway.
        idle: Power, W.
    """
    base = idle.get("value") if isinstance(idle, dict) else None
    if not isinstance(base, float) or not isinstance(idle, dict):
        return None
    found = _energy_of(parts, base)
    above, whole = found["value"], taken["value"]
    if not isinstance(above, float) or not isinstance(whole, float) or above <= _ROUNDING * whole:
        return None
    ends, idle_ends = found["ci95"], idle["ci95"]
    if ends is None and taken["ci95"] is not None:
        return None
    inference_s = (whole - above) / base
    interval = None
    if isinstance(ends, list) and isinstance(idle_ends, list):
        low = math.hypot(above - ends[0], (idle_ends[1] - base) * inference_s)
        high = math.hypot(ends[1] - above, (base - idle_ends[0]) * inference_s)
        interval = [above - low, above + high]
        if interval[0] <= 0:
            return None
    return {
        "value": above,
        "ci95": interval,
        "ci95_degrees": found["ci95_degrees"] if interval else None,
        "unit": "J",
    }
