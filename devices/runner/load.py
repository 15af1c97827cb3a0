"""TYPE1 under a load of queries by LoadGen's rules: ``single-stream`` and ``server``.

The rules are those of LoadGen, the load generator of MLCommons (Reddi et al., "MLPerf inference
benchmark", ISCA 2020); its package has no build for aarch64, so they are written here. A number
measured by them is no MLPerf result: those also prescribe models, data sets and reviews.

- *single-stream*: the next query begins when the last one ended, for at least so long and so many.
- *server*: queries arrive as a Poisson process, whatever the board does. A latency is counted from
  the time at which the query was to arrive, and so contains the waits in the queue. A rate keeps
  the bound if LoadGen's early stopping says so: were the share of late queries only just too
  large, so few late ones would be seen in 1 of 100 trials at most (`max_late`). The largest such
  rate is found by bisection. Arrivals are those of LoadGen with the same seed, and of each rate the
  same ones on another scale, so that a larger rate is always the harder one.

One thread serves the queue in the order of arrival. It also waits for arrivals: what it begins
later than a query arrived and the one before it ended is its own lateness.
"""

from __future__ import annotations

import gc
import math
import time
from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.metrics import rate_text
from edgeyard.devices.runner.arrivals import arrivals_of, max_late, min_queries
from edgeyard.devices.runner.concurrency import part_rates
from edgeyard.devices.runner.conditions import Conditions, Watch, together
from edgeyard.devices.runner.engine import Progress, Session
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.interval import (
    autocorrelation_time,
    median_interval,
    quantile_interval,
)
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    WARMED_PERCENT,
    Clock,
    Measurement,
    Note,
    Ready,
    check_finite,
    collections_paused,
    prepare,
)
from edgeyard.devices.runner.spec import MAX_LEVEL_RUNS, SERVER, LoadRules
from edgeyard.devices.runner.trust import (
    MAX_INTERVAL_WIDTH,
    Reason,
    bracket_wide,
    generator_late,
    judge,
    load_cut_short,
    made_wait,
    percentile_uncertain,
    rate_not_sustained,
)
from edgeyard.errors import RunFailed

RESOLUTION = 0.05
"""Relative distance of the rates that did and did not keep the bound at which the search ends."""

MAX_TRIALS = 16
"""Maximum number of trials of a search."""

_ALONE_TRIALS = 3
"""A bound cannot be kept at any rate if it is not in so many trials without a queue: of few queries
the rules allow one to be late, and other work may make two."""

_EXPECTED_TRIALS = 8
_FIRST_SHARE, _UP, _DOWN = 0.5, 1.5, 0.5
"""The search begins at half of what one query after another allows, and goes up or down by these
factors until it has a rate that keeps the bound and one that does not."""

MAX_LATENESS = 0.05
"""Lateness of the generator at the percentile that counts, as a share of the bound: a trial in
which it is larger is invalid."""

MAX_QUEUE = 1000
"""A trial ends when more queries wait, or four times as many as arrive within the bound."""

_QUEUE_BOUNDS = 4
_STALL_S = 1.0
"""At a fixed rate, what arrives in so long may wait, too: the board catches up after a stall."""

_MAX_LATE_TRIALS = 3
"""A search ends after so many trials in a row that only the generator's lateness made invalid: it
does not depend on the rate."""

_LOOK_NS = 250_000_000
"""Interval between readings of the machine and reports of progress, between queries."""

_LOOK_TAKES_NS = 2_000_000

_SPIN_NS = 200_000
"""The last part of a wait for an arrival is not slept: a sleep ends late by some 0.1 ms."""

Sleep = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Queries at one rate, or one after another.

    Attributes:
        rate: Of arrivals, 1/s; None: single-stream.
        planned: Queries that there are if nothing ends the trial before.
        due_ns: Shape (queries,): when each was to arrive, since the beginning.
        start_ns: When it began.
        end_ns: When it ended.
        ended: ``complete``; ``late``: too many were late to keep the bound; ``queue``: too many
            waited; ``time``: the time of the run was used up.
        began_s: When it began, of `time.monotonic`.
    """

    rules: LoadRules
    rate: Optional[float]
    planned: int
    due_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    ended: str
    conditions: Conditions
    began_s: float = 0.0

    @cached_property
    def latencies_ms(self) -> NDArray[np.float64]:
        """From the arrival to the end; shape (queries,)."""
        found: NDArray[np.float64] = (self.end_ns - self.due_ns) / 1e6
        return found

    @property
    def lasted_s(self) -> float:
        """How long it was, until its last query ended; 0 without one."""
        return float(self.end_ns[-1]) / 1e9 if len(self.end_ns) else 0.0

    @property
    def span(self) -> Tuple[float, float, float]:
        """The whole trial, as a span of `Measurement`: waits for arrivals are part of a query."""
        return (self.began_s, self.began_s + self.lasted_s, len(self.end_ns))

    @property
    def late(self) -> Optional[int]:
        """Queries that took longer than the bound; None: there is no bound."""
        if self.rules.bound_s is None:
            return None
        return int(np.count_nonzero(self.latencies_ms > self.rules.bound_s * 1e3))

    @property
    def kept(self) -> Optional[bool]:
        """Whether the bound was kept; None: there is none, or the time was used up before."""
        late = self.late
        if late is None or self.ended == "time":
            return None
        return self.ended == "complete" and late <= max_late(self.planned, self.rules.share)

    @cached_property
    def lateness_ms(self) -> NDArray[np.float64]:
        """By how much the generator began each query late."""
        free = np.concatenate([[0], self.end_ns[:-1]])
        found: NDArray[np.float64] = (self.start_ns - np.maximum(self.due_ns, free)) / 1e6
        return found

    @property
    def valid(self) -> bool:
        """Whether the generator's own lateness does not count against the bound."""
        if self.rate is None or self.rules.bound_s is None:
            return True
        late_ms = float(np.percentile(self.lateness_ms, 100 * self.rules.share))
        return late_ms <= MAX_LATENESS * self.rules.bound_s * 1e3

    @cached_property
    def report(self) -> Mapping[str, object]:
        """The values as the report contains them; their intervals take time on a board."""
        shares = (0.5, 0.9, 0.99, self.rules.share)
        p50, p90, p99, counts = (_quantile(self.latencies_ms, each) for each in shares)
        # queries that have arrived and not begun, at the begin of each
        waiting = np.searchsorted(self.due_ns, self.start_ns, "right") - np.arange(
            1, len(self.start_ns) + 1
        )
        queued = self.rate is not None
        lateness = self.lateness_ms
        return {
            "rate": self.rate,
            "nb_inference": len(self.latencies_ms),
            "planned": self.planned,
            "duration_s": self.lasted_s,
            "ended": self.ended,
            "late": self.late,
            "max_late": max_late(self.planned, self.rules.share) if self.late is not None else None,
            "kept": self.kept,
            "valid": self.valid,
            **_ends("latency", counts),
            **_ends("p50", p50),
            **_ends("p90", p90),
            **_ends("p99", p99),
            "queue_mean": float(np.mean(waiting)) if queued else None,
            "queue_max": int(np.max(waiting)) if queued else None,
            "generator_late_ms": _percentile(lateness, self.rules.share) if queued else None,
            "generator_late_max_ms": float(np.max(lateness)) if queued else None,
        }


_Estimate = Tuple[float, Optional[float], Optional[float]]


def _percentile(values: NDArray[np.float64], share: float) -> float:
    return float(np.percentile(values, 100 * share))


def _quantile(latencies_ms: NDArray[np.float64], share: float) -> _Estimate:
    if share > 0.5:
        return (_percentile(latencies_ms, share), *quantile_interval(latencies_ms, share))
    known = median_interval(latencies_ms)
    ends = (None, None) if known is None else (known.low, known.high)
    return (float(np.median(latencies_ms)), *ends)


def _ends(name: str, known: _Estimate) -> Dict[str, object]:
    return {f"{name}_ms": known[0], f"{name}_low_ms": known[1], f"{name}_high_ms": known[2]}


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a load showed.

    Attributes:
        alone: Queries one after another before a search, none of which waits.
        trials: In the order in which they were made.
        result: The one that the result is of.
        not_kept: The smallest rate that did not keep the bound, or whose trial was invalid, above
            that of the result; None: there was none.
        ended: Why no more trials followed: ``found``, ``trials``, ``time``, ``fixed`` (there was
            one trial to make).
    """

    rules: LoadRules
    min_queries: int
    alone: Optional[Trial]
    trials: Sequence[Trial]
    result: Trial
    not_kept: Optional[Trial]
    ended: str
    measurement: Measurement

    def as_json(self) -> Dict[str, object]:
        """Return the ``load_test`` of the report."""
        rules, result = self.rules, self.result.report
        searched = rules.searches
        low, high = result["latency_low_ms"], result["latency_high_ms"]
        return {
            "rules": "LoadGen's rules",
            "kind": rules.kind,
            "percentile": rules.percentile,
            "bound_ms": None if rules.bound_s is None else rules.bound_s * 1e3,
            "seed": rules.seed if rules.kind == SERVER else None,
            "min_duration_s": rules.duration_s,
            "min_queries": self.min_queries,
            "rate": self.result.rate,
            "largest_rate": self.result.rate if searched else None,
            "rate_not_kept": None if self.not_kept is None else self.not_kept.rate,
            "not_kept_valid": None if self.not_kept is None else self.not_kept.valid,
            "ended": self.ended,
            "latency_ms": result["latency_ms"],
            "latency_ci95": None if low is None or high is None else [low, high],
            "latency_ci95_degrees": _degrees(self.result.latencies_ms, rules.share),
            "early_stopping_ms": _early_stopping(self.result.latencies_ms, rules.share),
            "alone": None if self.alone is None else self.alone.report,
            "result": result,
            "trials": [each.report for each in self.trials],
        }


def _degrees(latencies_ms: NDArray[np.float64], share: float) -> float:
    """Return the degrees of freedom of the interval of a percentile."""
    below = latencies_ms <= _percentile(latencies_ms, share)
    return max(1.0, len(latencies_ms) / autocorrelation_time(below) - 1)


def _early_stopping(latencies_ms: NDArray[np.float64], share: float) -> Optional[float]:
    """Return LoadGen's early-stopping estimate of a percentile: with 99 % it is no larger."""
    late = max_late(len(latencies_ms), share)
    return float(np.sort(latencies_ms)[len(latencies_ms) - late]) if late >= 1 else None


def doubts(report: Mapping[str, object]) -> Sequence[Reason]:
    """Return the reasons against the primary metric of a load that `judge` does not find.

    Args:
        report: As `Load.as_json` returns it.
    """
    result = report["result"]
    assert isinstance(result, Mapping)
    found: List[Reason] = []
    late_ms, bound_ms = result["generator_late_ms"], report["bound_ms"]
    if not result["valid"]:
        found.append(generator_late(_number(late_ms), _number(bound_ms), invalid=True))
    if result["ended"] == "queue":
        found.append(rate_not_sustained(_number(result["rate"])))
    lasted_s, min_s = _number(result["duration_s"]), _number(report["min_duration_s"])
    cut_short = result["planned"] == MAX_LEVEL_RUNS and lasted_s < min_s
    if cut_short and result["ended"] == "complete":
        found.append(load_cut_short(MAX_LEVEL_RUNS, lasted_s, min_s))
    if report["largest_rate"] is None:
        value, low, high = (
            _number_or_none(result[f"latency{end}_ms"]) for end in ("", "_low", "_high")
        )
        if low is None or high is None or (high - low) / 2 > MAX_INTERVAL_WIDTH * (value or 0.0):
            cut_off = cut_short or result["ended"] != "complete"
            found.append(
                percentile_uncertain(_number(report["percentile"]), low, high, cut_off=cut_off)
            )
        return found
    rate, other = _number(report["largest_rate"]), _number_or_none(report["rate_not_kept"])
    if report["not_kept_valid"] is False:
        trials = report["trials"]
        assert isinstance(trials, list)
        at = next(each for each in trials if each["rate"] == other)
        late_ms = _number(at["generator_late_ms"])
        found.append(generator_late(late_ms, _number(bound_ms), invalid=False))
    if other is None or other > (1 + RESOLUTION) * rate:
        found.append(bracket_wide(rate, other, RESOLUTION))
    return found


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _number_or_none(value: object) -> Optional[float]:
    return None if value is None else _number(value)


def load(
    session: Session,
    feeds: Feeds,
    watch_of: Callable[[], Watch],
    progress: Progress,
    *,
    rules: LoadRules,
    min_runs: int,
    max_s: float,
    max_warmup_s: float = math.inf,
    clock: Clock = time.perf_counter_ns,
    sleep: Sleep = time.sleep,
    note: Note = lambda sentence: None,
) -> Load:
    """Warm up, then send queries by the rules.

    Args:
        watch_of: Returns what observes one trial.
        min_runs: Queries of each trial, if the percentile does not take more.
        max_s: Of everything, the warm-up included.
        note: Takes what the present trial shows, before the progress.

    Raises:
        RunFailed: As `measure`; ``user_input``: the bound can't be kept at any rate; ``timeout``:
            the time was too short for a result.
    """
    end_ns = clock() + int(max_s * 1e9)
    ready = prepare(session, feeds, progress, clock=clock, max_warmup_s=max_warmup_s)
    queries = max(min_runs, min_queries(rules.share))
    sender = _Sender(session, feeds, watch_of, progress, rules, queries, end_ns, clock, sleep, note)
    gc.collect()
    with collections_paused():
        if rules.kind != SERVER:
            only = sender.single_stream(rules.duration_s)
            found = _Outcome(None, [only], only, None, "fixed")
        elif rules.rate is not None:
            only = sender.server(rules.rate, gives_up=False)
            found = _Outcome(None, [only], only, None, "fixed")
        else:
            found = _search(sender, rules)
    result = found.result
    if result.ended == "time":
        needs = queries if rules.kind != SERVER else result.planned
        raise RunFailed(
            "timeout",
            f"the time of the run was used up after {len(result.end_ns):,} queries in "
            f"{result.lasted_s:.3g} s, and a trial takes {needs:,} queries and "
            f"{rules.duration_s:g} s: state a longer user_time",
        )
    check_finite(session, session.run(feeds))
    return _load(rules, queries, found, ready)


@dataclass(frozen=True)
class _Outcome:
    alone: Optional[Trial]
    trials: Sequence[Trial]
    result: Trial
    not_kept: Optional[Trial]
    ended: str


def _load(rules: LoadRules, queries: int, found: _Outcome, ready: Ready) -> Load:
    result = found.result
    conditions = together([each.conditions for each in found.trials])
    return Load(
        rules=rules,
        min_queries=queries,
        alone=found.alone,
        trials=found.trials,
        result=result,
        not_kept=found.not_kept,
        ended=found.ended,
        measurement=Measurement(
            latencies_ms=result.latencies_ms,
            warmup=ready.warmup,
            conditions=conditions,
            verdict=judge(
                result.latencies_ms,
                conditions,
                warmup=ready.warmup,
                of_the_p50=rules.kind != SERVER,
            ),
            first_ms=ready.first_ms,
            rows_a_run=ready.rows_a_run,
            peak_bytes=ready.peak_bytes,
            rates=part_rates(result.end_ns / 1e9, 0.0, 1),
            spans=[result.span],
            primary=rules.primary_metric,
        ),
    )


def _search(sender: "_Sender", rules: LoadRules) -> _Outcome:
    """Find the largest rate that keeps the bound.

    Raises:
        RunFailed: As of `load`.
    """
    for _ in range(_ALONE_TRIALS):
        alone = sender.single_stream(0.0)
        if alone.ended != "late":
            break
    _check_bound(alone, rules)
    rate = _FIRST_SHARE * 1e3 / float(np.mean(alone.latencies_ms))
    trials: List[Trial] = []
    best: Optional[Trial] = None
    worst: Optional[Trial] = None
    ended = "trials"
    late_trials = 0
    while len(trials) < MAX_TRIALS and late_trials < _MAX_LATE_TRIALS:
        if not sender.fits(rate):
            ended = "time"
            break
        one = sender.server(rate, gives_up=True, so_far=_so_far(best, worst))
        if one.ended == "time":
            ended = "time"
            break
        trials.append(one)
        late_trials = late_trials + 1 if one.kept and not one.valid and best is None else 0
        if one.kept and one.valid:
            best = one
        else:
            worst = one
        low, high = (None if each is None else each.rate for each in (best, worst))
        if low is not None and high is not None and high <= (1 + RESOLUTION) * low:
            ended = "found"
            break
        rate = _next_rate(low, high)
    if best is None:
        raise _none_kept(trials, rules, ended, rate)
    return _Outcome(alone, trials, best, worst, ended)


def _next_rate(low: Optional[float], high: Optional[float]) -> float:
    if low is not None and high is not None:
        return math.sqrt(low * high)
    if low is not None:
        return _UP * low
    assert high is not None
    return _DOWN * high


def _check_bound(alone: Trial, rules: LoadRules) -> None:
    """Refuse a bound that queries that wait for nothing do not keep."""
    assert rules.bound_s is not None
    if alone.ended == "late":
        found = (
            f"load_bound: {rules.bound_s * 1e3:g} ms can't be kept at any rate. Of "
            f"{len(alone.latencies_ms):,} queries one after another, none of which waited, "
            f"{alone.late:,} took longer (median {np.median(alone.latencies_ms):.4g} ms, "
            f"99th percentile {_percentile(alone.latencies_ms, 0.99):.4g} ms), and "
            f"{max_late(alone.planned, rules.share):,} of {alone.planned:,} may for "
            f"{rules.percentile:g} %"
        )
        raise _not_kept(found, "state a larger load_bound", alone.conditions)
    if alone.ended == "time":
        raise RunFailed(
            "timeout",
            f"the time of the run was used up after {len(alone.latencies_ms):,} of the "
            f"{alone.planned:,} queries before the first trial: state a longer user_time",
        )


def _none_kept(
    trials: Sequence[Trial], rules: LoadRules, ended: str, next_rate: float
) -> RunFailed:
    """Return the failure of a search that found no rate."""
    assert rules.bound_s is not None
    bound = f"{rules.bound_s * 1e3:g} ms at {rules.percentile:g} %"
    if not trials:
        return RunFailed(
            "timeout",
            f"the time of the run was too short for a trial at {rate_text(next_rate)}/s: state a "
            "longer user_time, or a smaller load_percentile",
        )
    lowest = min(trials, key=lambda each: each.rate or 0.0)
    if lowest.kept and not lowest.valid:
        late_ms = _percentile(lowest.lateness_ms, rules.share)
        found = (
            f"the generator itself was late by {late_ms:.3g} ms at {rate_text(lowest.rate)}/s, "
            f"more than {MAX_LATENESS:.0%} of {bound}"
        )
        if busy := made_wait(lowest.conditions):
            again = "This shows nothing about the model: submit it again when the board is quiet"
            return RunFailed("user_input", f"load_bound: {found}. {busy} {again}")
        advice = "state a larger load_bound: this board can't time so short a one"
        return RunFailed("user_input", f"load_bound: {found}: {advice}")
    found = (
        f"load_bound: {bound} was not kept at any of {len(trials)} rates, down to "
        f"{rate_text(lowest.rate)}/s"
    )
    if ended == "time":
        return RunFailed("timeout", f"{found}: state a longer user_time")
    return _not_kept(found, "state a larger load_bound", lowest.conditions)


def _not_kept(found: str, advice: str, conditions: Conditions) -> RunFailed:
    """Return the failure of a bound that was not kept, with the other work that had a part in it.

    It is not the board's, whose failures count against it: the user chose the bound.

    Args:
        found: What was measured, without a full stop.
        advice: What the user may do.
        conditions: Under which it was measured.
    """
    busy = made_wait(conditions)
    if busy is None:
        return RunFailed("user_input", f"{found}: {advice}")
    return RunFailed("user_input", f"{found}. {busy} Submit it again, or {advice}")


def _so_far(best: Optional[Trial], worst: Optional[Trial]) -> str:
    known = []
    if best is not None:
        known.append(f"kept at {rate_text(best.rate)}/s")
    if worst is not None:
        known.append(f"not at {rate_text(worst.rate)}/s")
    return "; bound " + ", ".join(known) if known else ""


class _Sender:
    """Sends the queries of trials, and runs them in the order in which they arrive."""

    def __init__(
        self,
        session: Session,
        feeds: Feeds,
        watch_of: Callable[[], Watch],
        progress: Progress,
        rules: LoadRules,
        queries: int,
        end_ns: int,
        clock: Clock,
        sleep: Sleep,
        note: Note,
    ) -> None:
        self._run, self._feeds, self._watch_of = session.run, feeds, watch_of
        self._progress, self._note = progress, note
        self._rules, self._queries, self._end_ns = rules, queries, end_ns
        self._clock, self._sleep = clock, sleep
        self._trials = 0

    def fits(self, rate: float) -> bool:
        """Return whether there is time for a trial at this rate."""
        need_s = float(arrivals_of(self._rules, rate, self._queries)[-1])
        return need_s <= (self._end_ns - self._clock()) / 1e9

    def single_stream(self, min_s: float) -> Trial:
        """Send the next query when the last one ended, for at least so long."""
        clock, run, feeds = self._clock, self._run, self._feeds
        starts, ends = array("q"), array("q")
        searching = self._rules.kind == SERVER
        bound_ns, allowed = self._limits(self._queries) if searching else (None, 0)
        late, ended = 0, "complete"
        watch = self._watch_of()
        watch.start()
        zero = looked = now = clock()
        min_ns = int(min_s * 1e9)
        while len(ends) < self._queries or now - zero < min_ns:
            if len(ends) >= MAX_LEVEL_RUNS:
                break
            began = clock()
            run(feeds)
            now = clock()
            starts.append(began - zero)
            ends.append(now - zero)
            if bound_ns is not None and now - began > bound_ns:
                late += 1
                if late > allowed:
                    ended = "late"
                    break
            if now - looked >= _LOOK_NS:
                if now >= self._end_ns:
                    ended = "time"
                    break
                watch.look()
                self._show_single(len(ends), now - zero, min_ns, searching)
                looked = clock()
        times = np.array(starts, dtype=np.int64)
        return Trial(
            rules=self._rules,
            rate=None,
            planned=len(ends) if ended == "complete" else max(self._queries, len(ends)),
            due_ns=times,
            start_ns=times,
            end_ns=np.array(ends, dtype=np.int64),
            ended=ended,
            conditions=watch.stop(),
            began_s=zero / 1e9,  # perf_counter and monotonic are one clock on Linux
        )

    def server(self, rate: float, *, gives_up: bool, so_far: str = "") -> Trial:
        """Send queries at this rate.

        Args:
            gives_up: The trial ends when too many are late to keep the bound.
            so_far: What other trials showed, for the message of the progress.
        """
        clock, sleep, run, feeds = self._clock, self._sleep, self._run, self._feeds
        self._trials += 1
        due = (arrivals_of(self._rules, rate, self._queries) * 1e9).astype(np.int64)
        dues: List[int] = due.tolist()
        starts, ends = array("q"), array("q")
        bound_ns, allowed = self._limits(len(due))
        assert bound_ns is not None
        max_stall_ns = _QUEUE_BOUNDS * bound_ns
        if not gives_up:
            max_stall_ns = max(max_stall_ns, int(_STALL_S * 1e9))
        max_queue = max(MAX_QUEUE, math.ceil(rate * max_stall_ns / 1e9))
        late, ended = 0, "complete"
        watch = self._watch_of()
        watch.start()
        zero = looked = clock()
        for place, arrives in enumerate(dues):
            while True:
                now = clock() - zero
                left = arrives - now
                # not right before an arrival, unless it is overdue
                if now + zero - looked >= _LOOK_NS and not 0 < left < _LOOK_TAKES_NS:
                    if now + zero >= self._end_ns:
                        ended = "time"
                    elif int(np.searchsorted(due, now)) - place > max_queue:
                        ended = "queue"
                    if ended != "complete":
                        break
                    watch.look()
                    self._show_server(rate, place, len(dues), late, so_far)
                    looked = clock()
                elif left <= 0:
                    break
                elif left > _SPIN_NS:
                    sleep(min(left - _SPIN_NS // 2, _LOOK_NS) / 1e9)
            if ended != "complete":
                break
            run(feeds)
            then = clock() - zero
            starts.append(now)
            ends.append(then)
            if then - arrives > bound_ns:
                late += 1
                if gives_up and late > allowed:
                    ended = "late"
                    break
        done = len(ends)
        return Trial(
            rules=self._rules,
            rate=rate,
            planned=len(dues),
            due_ns=due[:done],
            start_ns=np.array(starts, dtype=np.int64),
            end_ns=np.array(ends, dtype=np.int64),
            ended=ended,
            conditions=watch.stop(),
            began_s=zero / 1e9,
        )

    def _limits(self, queries: int) -> Tuple[Optional[int], int]:
        """Return the bound, and how many queries may be above."""
        bound_s = self._rules.bound_s
        allowed = max_late(queries, self._rules.share)
        return (None if bound_s is None else int(bound_s * 1e9)), allowed

    def _show_single(self, done: int, spent_ns: int, min_ns: int, searching: bool) -> None:
        if searching:
            self._note(f"{done:,} of {self._queries:,} queries one after another")
            self._progress(WARMED_PERCENT, "measuring")
            return
        self._note(f"{done:,} queries one after another")
        share = min(done / self._queries, spent_ns / min_ns if min_ns else 1.0)
        self._progress(_percent(share), "measuring")

    def _show_server(self, rate: float, done: int, planned: int, late: int, so_far: str) -> None:
        searches = self._rules.searches
        at = f"{rate_text(rate)}/s"
        name = f"trial {self._trials} at {at}" if searches else at
        self._note(f"{name}: {done:,} of {planned:,} queries, {late:,} late{so_far}")
        share = done / planned
        if searches:
            share = (self._trials - 1 + share) / max(_EXPECTED_TRIALS, self._trials)
        self._progress(_percent(share), "measuring")


def _percent(share: float) -> float:
    return WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * min(1.0, share)
