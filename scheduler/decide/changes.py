"""What would let a benchmark start sooner: a recorded cycle, decided again with one thing changed.

Pure, and within a second: of the queue only those are kept that ask for a family in question, since
nobody else takes its boards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np

from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.forecast import forecasts
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.decision import CycleInput, PendingBenchmark

_SAMPLES = 16
_MOST = 3
_LEAST_GAIN_S = 1.0
_HIGHEST_USER_PRIORITY = 10
_FEW = 3  # values that are tried of one thing: the nearest ones


class ChangeKind(StrEnum):
    """What is changed, the cheapest first."""

    PRIORITY = "user_priority"
    DEADLINE = "deadline"
    BOARD = "target_uid"
    RAM = "ram"
    FAMILY = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change and what it gains.

    Attributes:
        kind: The field of the job description.
        value: What it would be, as it is written there; None: left out.
        start: Expected start with it.
        gain_s: By how much sooner that is; None where the benchmark has no expected start as it is.
    """

    kind: ChangeKind
    value: str | int | None
    start: datetime
    gain_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The answer.

    Attributes:
        start: Expected start as it is; None: not in sight.
        changes: The cheapest that gain something, at most three.
        deadline: Its own.
        reachable_deadline: The nearest that is met nine times in ten; None where its own is, or
            where none is in sight.
    """

    start: datetime | None
    changes: tuple[Change, ...]
    deadline: datetime | None
    reachable_deadline: datetime | None


@dataclass(frozen=True, slots=True)
class _Expected:
    start: datetime
    finish_high: datetime


def what_would_change(
    given: CycleInput, policy: Policy, plugins: Plugins, benchmark_id: str
) -> Changes:
    """Try what a user could change.

    Args:
        given: A cycle's input with the benchmark among its pending ones.
        policy: The cycle's.
        plugins: The policy's.
        benchmark_id: Of the benchmark.

    Raises:
        KeyError: It is not pending in that cycle.
    """
    own = {each.benchmark_id: each for each in given.pending}[benchmark_id]

    def expected(changed: PendingBenchmark) -> _Expected | None:
        families = {own.family, changed.family}
        pending = [
            each
            for each in given.pending
            if each.benchmark_id != benchmark_id and each.family in families
        ]
        tried = replace(given, pending=[*pending, changed])
        result = decide(tried, policy, plugins)
        found = forecasts(result.decided, samples=_SAMPLES, last=benchmark_id).get(benchmark_id)
        if found is None:
            return None
        placed = not result.waiting.get(benchmark_id)
        return _Expected(given.now if placed else found.start, found.finish_high)

    base = expected(own)
    free = expected(replace(own, deadline=None)) if own.deadline is not None else base
    reachable = None
    if own.deadline is not None and free is not None and free.finish_high > own.deadline:
        reachable = _next_minute(free.finish_high)
    found: list[Change] = []
    for kind, candidates in _candidates(given, own, reachable):
        change = _first_that_gains(kind, candidates, expected, base)
        if change is not None:
            found.append(change)
    return Changes(
        start=None if base is None else base.start,
        changes=tuple(found[:_MOST]),
        deadline=own.deadline,
        reachable_deadline=reachable,
    )


_Candidate = tuple[str | int | None, PendingBenchmark]


def _candidates(
    given: CycleInput, own: PendingBenchmark, reachable: datetime | None
) -> Iterator[tuple[ChangeKind, Sequence[_Candidate]]]:
    """By kind, each kind's smallest change first."""
    snapshot = given.snapshot
    raised = range(own.user_priority + 1, _HIGHEST_USER_PRIORITY + 1)
    yield ChangeKind.PRIORITY, [(value, replace(own, user_priority=value)) for value in raised]
    if reachable is not None:
        yield ChangeKind.DEADLINE, [(reachable.isoformat(), replace(own, deadline=reachable))]
    if own.target_uid is not None:
        yield ChangeKind.BOARD, [(None, replace(own, target_uid=None))]
    in_family = np.array([family == own.family for family in snapshot.families], dtype=bool)
    smaller = np.unique(snapshot.ram_bytes[in_family & (snapshot.ram_bytes < own.ram_bytes)])
    yield (
        ChangeKind.RAM,
        [(int(ram), replace(own, ram_bytes=int(ram))) for ram in smaller[::-1][:_FEW]],
    )
    supports = snapshot.supports.get((own.engine, own.benchmark_type.value))
    if supports is not None:
        others = sorted(
            {snapshot.families[board] for board in np.flatnonzero(supports)} - {own.family}
        )
        free = {
            family: -int(
                sum(
                    1
                    for board in np.flatnonzero(supports & ~snapshot.busy & snapshot.online)
                    if snapshot.families[board] == family
                )
            )
            for family in others
        }
        nearest = sorted(others, key=lambda family: (free[family], family))[:_FEW]
        yield (
            ChangeKind.FAMILY,
            [(family, replace(own, family=family, target_uid=None)) for family in nearest],
        )


def _first_that_gains(
    kind: ChangeKind,
    candidates: Sequence[_Candidate],
    expected: Callable[[PendingBenchmark], _Expected | None],
    base: _Expected | None,
) -> Change | None:
    # Mostly not even the highest priority helps: asked first, since that settles it.
    if kind is ChangeKind.PRIORITY and candidates:
        candidates = candidates if _change(kind, candidates[-1], expected, base) else ()
    for candidate in candidates:
        change = _change(kind, candidate, expected, base)
        if change is not None:
            return change
    return None


def _change(
    kind: ChangeKind,
    candidate: _Candidate,
    expected: Callable[[PendingBenchmark], _Expected | None],
    base: _Expected | None,
) -> Change | None:
    value, changed = candidate
    found = expected(changed)
    if found is None:
        return None
    gain_s = None if base is None else (base.start - found.start).total_seconds()
    if gain_s is not None and gain_s < _LEAST_GAIN_S and kind is not ChangeKind.DEADLINE:
        return None
    return Change(kind=kind, value=value, start=found.start, gain_s=gain_s)


def _next_minute(when: datetime) -> datetime:
    return when.replace(second=0, microsecond=0) + timedelta(minutes=1)
