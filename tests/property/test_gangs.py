"""Gangs start whole, and none waits for ever: neither for single benchmarks nor for other gangs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.prediction.forecast import sample_futures
from tests.builders.decision import cycle, places
from tests.builders.virtual_lab import MAX_RUN_S, Life, VirtualLab

GUARD_S = 1800.0
UNKNOWN_SHARE = 0.25
"""Median of a run of which nothing is known, as a share of its bound."""
UIDS = tuple(f"rpi4b-0001-000{number}" for number in range(1, 6))


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def gang(name: str, size: int, **more: object) -> list[PendingBenchmark]:
    return [
        pending(f"{name}-{number}", **{"gang_id": name, "gang_size": size, **more})
        for number in range(size)
    ]


def pairs_of_neighbours(boards: int, shared: int) -> NDArray[np.bool_] | None:
    """The first ``shared`` pairs of boards share cores; None: no boards do."""
    conflicts = np.zeros((boards, boards), dtype=np.bool_)
    for first in range(0, 2 * shared, 2):
        conflicts[first, first + 1] = conflicts[first + 1, first] = True
    return conflicts if shared else None


@given(
    boards=st.integers(1, 5),
    busy=st.sets(st.integers(0, 4)),
    shared=st.integers(0, 2),
    sizes=st.lists(st.integers(2, 5), max_size=3),
    ages_s=st.lists(st.integers(0, 3 * 86400), min_size=4, max_size=4),
    singles=st.integers(0, 4),
    seed=st.integers(0, 99),
    of=st.sampled_from(["default", "native", "learned"]),
)
@settings(deadline=None, max_examples=40)
def test_a_cycle_places_gangs_whole_on_boards_of_their_own(
    boards: int,
    busy: set[int],
    shared: int,
    sizes: list[int],
    ages_s: list[int],
    singles: int,
    seed: int,
    of: str,
) -> None:
    conflicts = pairs_of_neighbours(boards, min(shared, boards // 2))
    snapshot = snapshot_of(
        [board(uid, busy=number in busy) for number, uid in enumerate(UIDS[:boards])]
    )
    snapshot = replace(snapshot, conflicts=conflicts)
    gangs = [
        gang(f"gang{number}", size, submit_time=after(-ages_s[number]))
        for number, size in enumerate(sizes)
    ]
    others = [
        pending(f"single-{number}", submit_time=after(-ages_s[3])) for number in range(singles)
    ]
    found = places(cycle(snapshot, [*itertools.chain(*gangs), *others], seed=seed, of=of))
    for members in gangs:
        ids = [each.benchmark_id for each in members]
        placed = [found[each] for each in ids if each in found]
        assert len(placed) in (0, len(ids))
        assert len(set(placed)) == len(placed)
        rows = [UIDS.index(uid) for uid in placed]
        assert busy.isdisjoint(rows)
        if conflicts is not None:
            assert not conflicts[np.ix_(rows, rows)].any()


@given(
    boards=st.integers(2, 4),
    shared=st.integers(0, 1),
    gangs=st.lists(
        st.tuples(st.integers(2, 4), st.integers(0, 600), st.integers(1, 10)),
        min_size=1,
        max_size=3,
    ),
    gap_s=st.integers(120, 900),
    share=st.floats(0.3, 1.0),
    booked=st.booleans(),
)
@settings(deadline=None, max_examples=15)
def test_no_gang_waits_for_ever_for_singles_bookings_or_other_gangs(
    boards: int,
    shared: int,
    gangs: list[tuple[int, int, int]],
    gap_s: int,
    share: float,
    booked: bool,
) -> None:
    """More urgent singles could use every board all the time; all gangs have run in the end."""
    conflicts = pairs_of_neighbours(boards, shared)
    at_once = boards - shared
    members = [
        gang(
            f"gang{number}",
            min(size, at_once),
            submit_time=after(submitted_s),
            user_priority=priority,
            user_id=f"user-{number}",
        )
        for number, (size, submitted_s, priority) in enumerate(gangs)
        if min(size, at_once) > 1
    ]
    older = 600.0 * boards / gap_s / at_once  # singles on each board that have waited longer
    bound_s = GUARD_S * 2 + MAX_RUN_S * (2 * len(members) + older + 2)
    until_s = 600.0 + bound_s
    singles = [
        Life(
            pending=pending(
                f"single-{number:04}",
                submit_time=after(number * gap_s / boards),
                user_priority=10,
                user_id="eve",
            ),
            share=share,
        )
        for number in range(int(until_s * boards / gap_s))
    ]
    bookings = [
        Life(
            pending=pending(
                f"booking-{number:04}",
                submit_time=after(number * 1200.0),
                start_time=after(number * 1200.0 + 1800.0),
                user_time_s=60.0,
                user_id="eve",
            )
        )
        for number in range(int(until_s / 1200.0))
        if booked
    ]
    lab = VirtualLab(
        uids=UIDS[:boards],
        lives=[*(Life(pending=each) for each in itertools.chain(*members)), *singles, *bookings],
        changes={"guard_s": GUARD_S, "reservation_lead_s": GUARD_S},
        conflicts=conflicts,
    )
    ids = [[each.benchmark_id for each in some] for some in members]
    lab.run(
        since=NOW,
        until=after(until_s),
        watched=lambda: all(each in lab.started for some in ids for each in some),
    )
    for some, whole in zip(ids, members, strict=True):
        starts = {lab.started.get(each) for each in some}
        assert len(starts) == 1
        start = starts.pop()
        assert start is not None
        assert (start - whole[0].submit_time).total_seconds() <= bound_s


@given(
    boards=st.integers(2, 4),
    shared=st.integers(0, 1),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    tens=st.lists(st.integers(1, 9), min_size=8, max_size=8),
    waited_too_long=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_gangs_start_when_their_forecast_says_if_all_runs_last_as_predicted(
    boards: int, shared: int, sizes: list[int], tens: list[int], waited_too_long: bool
) -> None:
    """Sums of run times are unequal: of boards that come free at once either may be the first.

    Those that have waited too long reserve boards that share cores, until runs are certain to be
    over; these boards come free sooner than that.
    """
    shared = 0 if waited_too_long else shared
    at_once = boards - shared
    conflicts = pairs_of_neighbours(boards, shared)
    age_s = 1e6 if waited_too_long else 100.0
    jobs: list[PendingBenchmark] = []
    for number, (size, ten) in enumerate(zip(sizes, tens, strict=False)):
        run_s = 10.0 * ten + 0.001 * 2**number
        more = {"submit_time": after(number - age_s), "user_time_s": run_s / UNKNOWN_SHARE}
        members = min(size, at_once)
        name = f"job{number}"
        jobs += gang(name, members, **more) if members > 1 else [pending(name, **more)]
    lab = VirtualLab(
        uids=UIDS[:boards],
        lives=[Life(pending=each, share=UNKNOWN_SHARE) for each in jobs],
        conflicts=conflicts,
    )
    snapshot = snapshot_of([board(uid) for uid in UIDS[:boards]])
    first = cycle(replace(snapshot, conflicts=conflicts), jobs)
    futures = sample_futures(first.decided.forecast_input, samples=1)
    lab.run(since=NOW, until=after(1e5), watched=lambda: len(lab.started) == len(jobs))
    predicted = {
        jobs[row].benchmark_id: start
        for row, start in zip(futures.jobs.tolist(), futures.starts[:, 0].tolist(), strict=True)
    }
    simulated = {name: (start - NOW).total_seconds() for name, start in lab.started.items()}
    assert predicted == pytest.approx(simulated, abs=0.0005)
