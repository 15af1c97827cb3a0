"""What giving boards out must never do, and what doing it jointly must keep to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.benchmark import Binding
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge, Lease
from edgeyard.scheduler.prediction.forecast import sample_futures
from tests.builders.decision import cycle, places

UIDS = tuple(f"rpi4b-0001-000{number}" for number in range(1, 5))
BOUND_S = 900.0

soon = st.integers(1, 2000)
jobs = st.lists(
    st.builds(
        lambda user_time_s, user, uid, start_s: {
            "user_time_s": user_time_s,
            "user_id": user,
            "target_uid": uid,
            "start_time": None if start_s is None else NOW + timedelta(seconds=start_s),
        },
        st.sampled_from([None, 10.0, 100.0, 1000.0]),
        st.sampled_from(["ada", "bob"]),
        st.sampled_from([None, None, *UIDS]),
        st.sampled_from([None, None, None, -5, 30, 300, 3000]),
    ),
    max_size=7,
)


def queue(asked: Sequence[dict[str, object]]) -> list[PendingBenchmark]:
    return [
        pending(f"b{number}", submit_time=NOW - timedelta(hours=1, minutes=-number), **changes)
        for number, changes in enumerate(asked)
    ]


leases = st.lists(
    st.tuples(st.sampled_from(UIDS), soon, st.sampled_from([None, "ada"])), max_size=3
)


def leased(asked: Sequence[tuple[str, int, str | None]]) -> tuple[Lease, ...]:
    return tuple(
        Lease(
            lease_id=str(number),
            target_uid=uid,
            since=NOW + timedelta(seconds=since_s),
            until=NOW + timedelta(seconds=since_s + 100),
            reason="",
            user_id=user,
        )
        for number, (uid, since_s, user) in enumerate(asked)
    )


def bound(each: PendingBenchmark) -> timedelta:
    return timedelta(seconds=each.user_time_s or BOUND_S)


@settings(max_examples=100, deadline=None)
@given(
    jobs,
    leases,
    st.frozensets(st.sampled_from(UIDS), max_size=2),
    st.sampled_from([0, 100, *Planner]),
    st.sampled_from(["default", "native"]),
    st.sampled_from([None, *Binding]),
    st.sampled_from([0.0, 30.0]),
)
def test_no_lease_no_promise_and_no_reserved_start_is_delayed_by_more_than_the_grace(
    asked: list[dict[str, object]],
    kept_by: list[tuple[str, int, str | None]],
    busy: frozenset[str],
    assigned: int | Planner,
    of: str,
    binding: Binding | None,
    grace_s: float,
) -> None:
    """Wherever a job may land by its binding: on any board that it does not rule out itself."""
    benchmarks = queue(asked)
    known = Knowledge(leases=leased(kept_by), max_run_s=BOUND_S)
    result = cycle(
        snapshot_of([board(uid, busy=uid in busy) for uid in UIDS]),
        benchmarks,
        of=of,
        knowledge=known,
        max_joint_jobs=0 if isinstance(assigned, Planner) else assigned,
        planner=assigned if isinstance(assigned, Planner) else None,
        binding=binding,
        booking_grace_s=grace_s,
        holders=[
            BoardHolder(
                benchmark_id=f"on-{uid}",
                target_uid=uid,
                priority=50,
                started_at=NOW - timedelta(seconds=100),
                strict=True,
            )
            for uid in busy
        ],
    )
    by_id = {each.benchmark_id: each for each in benchmarks}
    kept = {
        benchmarks[job].benchmark_id: UIDS[row]
        for job, row in result.decided.timeline.stated_boards.items()
    }
    first = min(
        (each for each in benchmarks if each.start_time and each.target_uid),
        key=lambda each: each.submit_time,
        default=None,
    )
    others = [each for each in benchmarks if each.start_time and not each.target_uid]
    if first is not None and not others and not kept_by and first.target_uid not in busy:
        assert kept[first.benchmark_id] == first.target_uid
    given_out = {each.target_uid: each for each in result.placements}
    for each in result.placements:
        through = NOW + bound(by_id[each.benchmark_id])
        landing = {each.target_uid}
        if each.binding is not Binding.STRICT and by_id[each.benchmark_id].target_uid is None:
            landing = set(each.allowed_uids or UIDS)
        for uid in landing:
            if kept.get(each.benchmark_id) == uid:
                continue
            starts = [
                by_id[other].start_time
                for other, its in kept.items()
                if its == uid and other != each.benchmark_id
            ]
            starts += [
                lease.since
                for lease in known.leases
                if lease.target_uid == uid and lease.user_id != by_id[each.benchmark_id].user_id
            ]
            latest = [
                start + timedelta(seconds=grace_s if start > NOW else 0.0)
                for start in starts
                if start is not None
            ]
            assert all(through <= each for each in latest)
            # Nor does it take the board of one that goes there and nowhere else.
            other_there = given_out.get(uid)
            assert (
                other_there is None
                or other_there is each
                or (
                    other_there.binding is not Binding.STRICT
                    and other_there.benchmark_id not in kept
                )
            )


@st.composite
def lives(draw: st.DrawFn) -> tuple[PendingBenchmark, float]:
    """A benchmark, its submission after `NOW`, and the share of its bound for which it runs."""
    submitted_s = draw(st.integers(0, 6)) * 50
    start_s = draw(st.none() | st.integers(0, 12).map(lambda number: submitted_s + 60 * number))
    each = pending(
        f"b{draw(st.integers(0, 10**9))}",
        submit_time=NOW + timedelta(seconds=submitted_s),
        start_time=None if start_s is None else NOW + timedelta(seconds=start_s),
        user_time_s=float(draw(st.sampled_from([10, 60, 200, 600]))),
        target_uid=draw(st.sampled_from([None, None, *UIDS[:3]])),
        user_priority=draw(st.integers(1, 10)),
        user_id=draw(st.sampled_from(["ada", "bob"])),
    )
    return each, draw(st.sampled_from([0.1, 0.5, 1.0]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(lives(), max_size=9, unique_by=lambda each: each[0].benchmark_id),
    leases,
    st.sampled_from([0.0, 15.0]),
    st.sampled_from([0, 100]),
)
def test_whom_a_board_is_kept_for_starts_at_its_start(
    all_lives: list[tuple[PendingBenchmark, float]],
    kept_by: list[tuple[str, int, str | None]],
    cool_down_s: float,
    max_joint_jobs: int,
) -> None:
    """Cycle after cycle, with runs that end when they like; only one that came before delays it."""
    waiting = {each.benchmark_id: (each, share) for each, share in all_lives}
    known = Knowledge(leases=leased(kept_by), max_run_s=BOUND_S)
    running: dict[str, tuple[BoardHolder, datetime]] = {}
    ended: list[PastRun] = []
    moments = {each.submit_time for each, _ in all_lives}
    moments |= {each.start_time for each, _ in all_lives if each.start_time is not None}
    before: set[str] = set()
    while moments:
        now = min(moments)
        moments.remove(now)
        for uid in [uid for uid, (_, end) in running.items() if end <= now]:
            holder, _ = running.pop(uid)
            ended.append(replace(past_run(uid), benchmark_id=holder.benchmark_id, ended_at=now))
        queue = [each for each, _ in waiting.values() if each.submit_time <= now]
        result = cycle(
            snapshot_of([board(uid, busy=uid in running) for uid in UIDS[:3]]),
            queue,
            now=now,
            knowledge=replace(known, runs=History(ended)),
            max_joint_jobs=max_joint_jobs,
            cool_down_s=cool_down_s,
            hold_quantile=1.0,
            booking_grace_s=0.0,
            holders=[holder for holder, _ in running.values()],
        )
        kept = {queue[job].benchmark_id for job in result.decided.timeline.stated_boards}
        by_id = {each.benchmark_id: each for each in queue}
        placed = places(result)

        def came(
            benchmark_id: str, by_id: dict[str, PendingBenchmark] = by_id
        ) -> tuple[datetime, str]:
            return by_id[benchmark_id].submit_time, benchmark_id

        for lost in (before & set(by_id)) - kept:
            assert any(came(other) < came(lost) for other in kept - before)
        for benchmark_id in kept:
            start = by_id[benchmark_id].start_time
            assert start is not None
            assert (benchmark_id in placed) is (start <= now)
        before = kept - set(placed)
        for benchmark_id, uid in placed.items():
            each, share = waiting.pop(benchmark_id)
            run_s = (each.user_time_s or BOUND_S) * share
            end = now + timedelta(seconds=run_s)
            holder = BoardHolder(
                benchmark_id=benchmark_id,
                target_uid=uid,
                priority=50,
                started_at=now,
                time_limit_s=each.user_time_s,
            )
            running[uid] = holder, end
            moments |= {end, end + timedelta(seconds=cool_down_s)}


@settings(max_examples=50, deadline=None)
@given(
    jobs,
    st.lists(
        st.tuples(st.sampled_from(UIDS), st.integers(-99, 2000), st.sampled_from([None, "ada"])),
        max_size=4,
    ),
    st.sampled_from([0.0, 40.0]),
)
def test_what_is_placed_now_is_predicted_to_start_now_and_nothing_else(
    asked: list[dict[str, object]],
    leases: list[tuple[str, int, str | None]],
    cool_down_s: float,
) -> None:
    known = Knowledge(
        leases=leased(leases),
        max_run_s=BOUND_S,
    )
    result = cycle(
        snapshot_of([board(uid) for uid in UIDS]),
        queue(asked),
        knowledge=known,
        cool_down_s=cool_down_s,
    )
    decided = result.decided
    futures = sample_futures(decided.forecast_input, samples=8)
    assert set(futures.jobs.tolist()) == set(range(len(asked)))
    for job, starts in zip(futures.jobs.tolist(), futures.starts, strict=True):
        assert (starts == 0.0).all() if decided.placed(job) else (starts > 0.0).all()


class Fixed:
    """Scores as the test wants them."""

    name = "fixed"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE
    objective = "test"

    def __init__(self, table: np.ndarray) -> None:
        self._table = table

    def score(self, batch: Batch, pairs: Pairs) -> np.ndarray:
        row_of = {kind.model_sha256: row for row, kind in enumerate(batch.kinds)}
        order = {row: int(str(sha)) for sha, row in row_of.items()}
        rows = np.array([order[row] for row in pairs.rows.tolist()], dtype=np.intp)
        return self._table[rows, pairs.boards]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_jointly_the_same_are_served_and_the_scores_add_up_to_the_most(
    count: int, boards: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.random((count, boards)).astype(np.float32)
    wanted = [None if rng.random() < 0.6 else UIDS[rng.integers(boards)] for _ in range(count)]
    benchmarks = queue(
        [{"model_sha256": str(k), "target_uid": uid} for k, uid in enumerate(wanted)]
    )
    snapshot = snapshot_of([board(uid) for uid in UIDS[:boards]])
    more = {"scorers": (WeightedScorer(scorer=Fixed(table), weight=1.0),)}
    result = cycle(snapshot, benchmarks, max_joint_jobs=100, more_plugins=more)
    jointly = places(result)
    found = result.decided.scores  # as the aggregator made them
    jobs_of_row = np.argsort(result.decided.batch.class_of_job)
    table[jobs_of_row[found.pairs.rows], found.pairs.boards] = found.combined
    best: tuple[list[bool], float] = ([], -1.0)
    for choice in itertools.product([None, *range(boards)], repeat=count):
        used = [each for each in choice if each is not None]
        fits = all(
            each is None or wanted[job] in (None, UIDS[each]) for job, each in enumerate(choice)
        )
        if fits and len(used) == len(set(used)):
            worth = sum(
                float(table[job, each]) for job, each in enumerate(choice) if each is not None
            )
            best = max(best, ([each is not None for each in choice], worth))
    assert [f"b{job}" in jointly for job in range(count)] == best[0]
    got = sum(float(table[int(name[1:]), UIDS.index(uid)]) for name, uid in jointly.items())
    assert abs(got - best[1]) < 1e-3
