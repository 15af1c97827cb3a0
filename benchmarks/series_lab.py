"""A simulated lab that measures models every night: noise, shifts, and what Edgeyard makes of them.

The rules are the service's own: what is suspected, how a check decides, and what is blamed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.series_noise import recorded
from edgeyard.devices.metrics import P50
from edgeyard.scheduler.decide.blame import Cause, Evidence, Neighbour, Shift, Sister, Trial
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.decide.series_watch import Suspicion, suspicion
from edgeyard.scheduler.decide.slowdown import judge
from edgeyard.scheduler.model.checks import Check, CheckStatus, Pair
from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint, WatchedSeries, raised_threshold
from edgeyard.scheduler.model.series_changes import CONFIRM_PAIRS, ChangeStatus, SeriesChange

Floats = NDArray[np.float64]
Random = np.random.Generator

BOARDS = 20
_FIRST_NIGHT = datetime(2026, 1, 1, 2, tzinfo=UTC)
_KEY = SeriesKey(
    lineage="net",
    user_id="ada",
    target_uid="board-0",
    engine="ort",
    benchmark_type="TYPE1",
    work="",
)


class Noise:
    """Logarithms of the results of a series whose level does not change.

    Half of all series are generated: noise of 0.5 to 1.5 %, temperatures that drift over weeks, a
    week's rhythm, day and night (a run starts somewhere within eight hours), and outliers: one run
    in forty is 5 to 40 % slower. The others are pieces of the recorded series, whose points are
    seconds apart, without what changes slower than its pieces are long, and scaled to the same
    noise.
    """

    def __init__(self, rng: Random, nights: int) -> None:
        """Draw a series.

        Args:
            rng: The source of all that is random in it.
            nights: How many results it has.
        """
        self._rng = rng
        self._spread = rng.uniform(0.005, 0.015)
        self._is_recorded = rng.random() < 0.5
        if self._is_recorded:
            pieces = _recorded_pieces()
            starts = rng.integers(0, len(pieces) - _PIECE, size=nights // _PIECE + 1)
            joined = np.concatenate([pieces[at : at + _PIECE] for at in starts])
            self.values: Floats = self._spread * joined[:nights]
            return
        self._drift = np.zeros(nights)
        steps = rng.normal(0.0, 0.1 * self._spread, nights)
        for night in range(1, nights):
            self._drift[night] = 0.9 * self._drift[night - 1] + steps[night]
        self._drift += (
            0.2 * self._spread * np.sin(2 * np.pi * (np.arange(nights) + rng.integers(7)) / 7)
        )
        self.values = self._drift + self._fast(nights)

    def runs(self, night: int, count: int) -> Floats:
        """Return further results of one night, which were measured one after the other."""
        if self._is_recorded:
            pool = _recorded_pieces()
            drawn: Floats = self._spread * pool[self._rng.integers(0, len(pool), size=count)]
            return drawn
        found: Floats = self._drift[night] + self._fast(count)
        return found

    def _fast(self, count: int) -> Floats:
        hours = self._rng.uniform(0.0, 8.0, count)
        daily = 0.2 * self._spread * np.cos(2 * np.pi * hours / 24)
        is_outlier = self._rng.random(count) < 1 / 40
        outliers = np.where(is_outlier, np.log1p(self._rng.uniform(0.05, 0.4, count)), 0.0)
        return self._rng.normal(0.0, self._spread, count) + daily + outliers


_PIECE = 5
"""Length of the pieces of the recorded series, points."""


@cache
def _recorded_pieces() -> Floats:
    """Return the recorded series around its moving median, with a noise of 1."""
    logs = recorded()
    half = _PIECE
    level = [np.median(logs[max(0, at - half) : at + half + 1]) for at in range(len(logs))]
    around = logs - np.array(level)
    scaled: Floats = around / (1.4826 * np.median(np.abs(around - np.median(around))))
    return scaled


# By whether a check confirms; None: it did not decide.
_TRIALS = {True: Trial.DIFFERENT, False: Trial.EQUAL, None: Trial.UNDECIDED}
_STATUSES = {
    True: ChangeStatus.CONFIRMED,
    False: ChangeStatus.NOISE,
    None: ChangeStatus.UNCONFIRMED,
}


@dataclass(kw_only=True)
class Watched:
    """A series of a simulated lab, looked at every night as the service does.

    Attributes:
        noise: Its results without shifts.
        shift: Logarithm of the shift that each night has.
        model: Version of the model, for each night.
        model_shift: Logarithm of the shift by each version, which a check of versions measures.
        changes: What was suspected, newest first.
        runs: How many runs confirmations took so far.
    """

    noise: Noise
    shift: Floats
    model: Sequence[str]
    model_shift: Mapping[str, float]
    changes: list[SeriesChange] = field(default_factory=list)
    trials: dict[str, Trial] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        self._state = WatchedSeries(key=_KEY)
        values = np.exp(self.noise.values + self.shift).tolist()
        self._points = [
            SeriesPoint(
                benchmark_id=str(night),
                ended_at=_FIRST_NIGHT + timedelta(days=night),
                value=value,
                better=P50.better,
                metric=P50.name,
                model_sha256=self.model[night],
            )
            for night, value in enumerate(values)
        ]

    def look(self, night: int) -> SeriesChange | None:
        """Look at a night's result, and confirm or refute what is suspected before the next one."""
        now = _FIRST_NIGHT + timedelta(days=night, hours=1)
        points = self._points[max(0, night + 1 - LOOK_BACK) : night + 1]
        found = suspicion(points, self.changes, self._state.threshold_now(now), now)
        if found is None:
            return None
        change = self._confirmed(found, night, now)
        self.changes.insert(0, change)
        if change.status is ChangeStatus.NOISE:
            raised = raised_threshold(self._state.threshold_now(now), change.size)
            self._state = replace(self._state, threshold=raised, threshold_at=now)
        return change

    def _confirmed(self, found: Suspicion, night: int, now: datetime) -> SeriesChange:
        """Return a change as its checks end."""
        old, new = self.model[int(found.before_id)], self.model[int(found.begin_id)]
        half = (abs(found.size) if found.worse else -abs(found.size)) / 2
        trial, size = Trial.NOT_RUN, found.size
        confirms: bool | None = None
        if old != new:
            confirms, size = self._check(half, night, new, lambda at: self._run(night, old))
            trial = _TRIALS[confirms]
        if confirms is not True:
            level = [each.value or 1.0 for each in self._points[: int(found.begin_id)]][::-1]
            count = min(len(level), CONFIRM_PAIRS)
            confirms, size = self._check(
                half, night, new, lambda at: math.log(level[at]), recorded=count
            )
        change = SeriesChange(
            change_id=str(night),
            key=_KEY,
            begin_id=found.begin_id,
            before_id=found.before_id,
            metric=found.metric,
            worse=found.worse,
            size=found.size,
            low=found.low,
            high=found.high,
            found_at=now,
            confirmed_size=size if confirms else None,
            status=_STATUSES[confirms],
        )
        self.trials[change.change_id] = trial
        return change

    def _run(self, night: int, model: str) -> float:
        """Measure a version in a night, without what the model's own shift is in that night."""
        own = self.model_shift.get(self.model[night], 0.0)
        other = self.model_shift.get(model, 0.0)
        return float(self.noise.runs(night, 1)[0] + self.shift[night] - own + other)

    def _check(
        self,
        max_slowdown: float,
        night: int,
        new: str,
        baseline: Callable[[int], float],
        recorded: int = 0,
    ) -> tuple[bool | None, float]:
        """Return whether a check finds the change, and the slowdown that it measures."""
        pairs: list[Pair] = []
        max_pairs = recorded or CONFIRM_PAIRS
        while True:
            before, after = baseline(len(pairs)), self._run(night, new)
            self.runs += 1 if recorded else 2
            ratio = math.exp(after - before)
            pairs.append(
                Pair(
                    baseline_id="",
                    candidate_id="",
                    baseline_value=math.exp(before),
                    candidate_value=math.exp(after),
                    ratio=ratio,
                    slowdown=ratio - 1,
                    counts=True,
                )
            )
            found = judge(pairs, P50, max_slowdown=max_slowdown, max_pairs=max_pairs)
            if found.status is not CheckStatus.RUNNING:
                ended = Check(
                    check_id="",
                    user_id="",
                    baseline="",
                    candidate="",
                    max_slowdown=max_slowdown,
                    budget_s=0.0,
                    max_pairs=max_pairs,
                    versions={},
                    created_at=_FIRST_NIGHT,
                    status=found.status,
                )
                return ended.confirms, found.slowdown or 0.0


_BEFORE, _AFTER = 30, 6
_ENGINES = ("ort", "tflite", "openvino")


@dataclass(frozen=True, kw_only=True)
class Story:
    """What truly happened in a lab of `BOARDS` boards in one night.

    Attributes:
        cause: Of the shift of the series on the first board.
        log_shift: Its size.
        coincidence: Another fact that changed in the same night and did nothing; None: none did.
    """

    cause: Cause
    log_shift: float
    coincidence: Cause | None


def drawn_story(rng: Random, cause: Cause, percent: float) -> Story:
    """Draw a shift to the worse or to the better; one night in five something else changed, too."""
    others = [Cause.MODEL, Cause.ENGINE, Cause.KERNEL]
    coincidence = others[rng.integers(len(others))] if rng.random() < 0.2 else None
    return Story(
        cause=cause,
        log_shift=(1 if rng.random() < 0.5 else -1) * math.log1p(percent / 100),
        coincidence=None if coincidence is cause else coincidence,
    )


def evidence_of(
    rng: Random, story: Story, nights: int, change: SeriesChange, trial: Trial
) -> Evidence:
    """Return what the lab's other series and boards show some nights after a story.

    A new version of the model is measured on all boards in its night. A new engine or kernel is on
    half of the boards, the first one among them; engines that are not updated do not change. The
    canaries of three engines run on each board; what the shift makes of them is 0.6 to 1.2 times
    of what it makes of the series.
    """
    happened = {story.cause, story.coincidence} - {None, Cause.BOARD}
    facts = {each: "old" for each in (Cause.MODEL, Cause.ENGINE, Cause.KERNEL, Cause.FIRMWARE)}
    facts |= {Cause.RUNNER: "0.9", Cause.GOVERNOR: "performance"}
    after = {**facts, **{each: "new" for each in happened if each is not None}}
    neighbours = []
    for engine in _ENGINES:
        is_shifted = story.cause is Cause.BOARD or (
            story.cause is Cause.ENGINE and engine == _KEY.engine
        )
        own = story.log_shift * rng.uniform(0.6, 1.2) if is_shifted else 0.0
        shift = _shift(rng, own, nights)
        if shift is not None:
            neighbours.append(Neighbour(name=f"canary/{engine}", canary=True, shift=shift))
    sisters = []
    for board in range(1, BOARDS):
        updated = board < BOARDS // 2
        changes = {each for each in happened if each is Cause.MODEL or updated}
        own = story.log_shift if story.cause in changes else 0.0
        shift = _shift(rng, own, nights)
        if shift is not None:
            named = frozenset(each for each in changes if each is not None)
            sisters.append(Sister(target_uid=f"board-{board}", shift=shift, changes=named))
    size = change.best_size
    return Evidence(
        target_uid=_KEY.target_uid,
        shift=Shift(slowdown=size, low=change.low, high=change.high),
        before=facts,
        after=after,
        trial=trial,
        neighbours=neighbours,
        sisters=sisters,
    )


def _shift(rng: Random, log_shift: float, nights: int) -> Shift | None:
    values = np.exp(Noise(rng, _BEFORE + _AFTER).values)
    values[_BEFORE:] *= math.exp(log_shift)
    before, after = values[:_BEFORE].tolist(), values[_BEFORE : _BEFORE + nights].tolist()
    return Shift.between(before, after, P50)
