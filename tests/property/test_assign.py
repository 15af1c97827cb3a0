"""What giving boards out must never do, and what doing it jointly must keep to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.forecast import roll
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.framework.registry import Seat
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.knowledge import Knowledge, Lease, Promise
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


@settings(max_examples=50, deadline=None)
@given(
    jobs,
    st.lists(st.tuples(st.sampled_from(UIDS), soon, st.sampled_from([None, "ada"])), max_size=3),
    st.lists(st.tuples(st.sampled_from(UIDS), soon, st.integers(0, 8)), max_size=3),
    st.sampled_from([0, 100]),
)
def test_no_lease_no_promise_and_no_reserved_start_is_ever_delayed(
    asked: list[dict[str, object]],
    leases: list[tuple[str, int, str | None]],
    promises: list[tuple[str, int, int]],
    joint_most: int,
) -> None:
    benchmarks = queue(asked)
    known = Knowledge(
        leases=tuple(
            Lease(
                lease_id=str(number),
                target_uid=uid,
                since=NOW + timedelta(seconds=since_s),
                until=NOW + timedelta(seconds=since_s + 100),
                reason="",
                user_id=user,
            )
            for number, (uid, since_s, user) in enumerate(leases)
        ),
        promises=tuple(
            Promise(
                benchmark_id=f"b{number}", target_uid=uid, start=NOW + timedelta(seconds=start_s)
            )
            for uid, start_s, number in promises
        ),
        most_run_s=BOUND_S,
    )
    result = cycle(
        snapshot_of([board(uid) for uid in UIDS]),
        benchmarks,
        knowledge=known,
        joint_most=joint_most,
    )
    by_id = {each.benchmark_id: each for each in benchmarks}
    for benchmark_id, uid in places(result).items():
        through = NOW + timedelta(seconds=by_id[benchmark_id].user_time_s or BOUND_S)
        others = [
            promise.start
            for promise in known.promises
            if promise.target_uid == uid
            and promise.benchmark_id != benchmark_id
            and promise.benchmark_id in by_id
        ]
        others += [
            each.start_time
            for each in benchmarks
            if each.target_uid == uid
            and each.benchmark_id != benchmark_id
            and each.start_time is not None
            and each.start_time > NOW
        ]
        owns = any(
            promise.target_uid == uid and promise.benchmark_id == benchmark_id
            for promise in known.promises
        )
        others += [
            lease.since
            for lease in known.leases
            if lease.target_uid == uid and lease.user_id != by_id[benchmark_id].user_id
        ]
        assert owns or all(through <= start for start in others)


@settings(max_examples=50, deadline=None)
@given(
    jobs,
    st.lists(
        st.tuples(st.sampled_from(UIDS), st.integers(-99, 2000), st.sampled_from([None, "ada"])),
        max_size=4,
    ),
    st.dictionaries(st.integers(0, 6), st.tuples(st.sampled_from(UIDS), st.integers(-99, 2000))),
    st.sampled_from([0.0, 40.0]),
)
def test_who_is_decided_now_is_foretold_to_start_now_and_nobody_else(
    asked: list[dict[str, object]],
    leases: list[tuple[str, int, str | None]],
    promises: dict[int, tuple[str, int]],
    cool_down_s: float,
) -> None:
    known = Knowledge(
        leases=tuple(
            Lease(
                lease_id=str(number),
                target_uid=uid,
                since=NOW + timedelta(seconds=since_s),
                until=NOW + timedelta(seconds=since_s + 100),
                reason="",
                user_id=user,
            )
            for number, (uid, since_s, user) in enumerate(leases)
        ),
        promises=tuple(
            Promise(
                benchmark_id=f"b{number}", target_uid=uid, start=NOW + timedelta(seconds=start_s)
            )
            for number, (uid, start_s) in promises.items()
            if number >= len(asked) or asked[number]["start_time"] is None
        ),
        most_run_s=BOUND_S,
    )
    result = cycle(
        snapshot_of([board(uid) for uid in UIDS]),
        queue(asked),
        knowledge=known,
        cool_down_s=cool_down_s,
    )
    placed = places(result)
    # promised one board, but asks for another or is placed there: that promise is void
    wanted = {f"b{job}": each["target_uid"] for job, each in enumerate(asked)} | placed
    assume(all(wanted.get(f"b{job}") in (None, uid) for job, (uid, _) in promises.items()))
    decided = result.decided
    rolled = roll(decided, samples=8)
    assert set(rolled.jobs.tolist()) == set(range(len(asked)))
    for job, starts in zip(rolled.jobs.tolist(), rolled.starts, strict=True):
        assert (starts == 0.0).all() if decided.placed(job) else (starts > 0.0).all()


class Fixed:
    """Scores as the test wants them."""

    name = "fixed"
    kind = ScorerKind.HEURISTIC
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
    more = {"scorers": (Seat(scorer=Fixed(table), weight=1.0),)}
    result = cycle(snapshot, benchmarks, joint_most=100, more_plugins=more)
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
