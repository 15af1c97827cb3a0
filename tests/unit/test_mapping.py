"""Mapping heuristics: benchmarks that may wait for a busy, faster board."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.errors import ConfigError
from edgeyard.plugins.testing import NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.mapping import MAX_MAPPED, PROGRAMMES
from edgeyard.scheduler.framework.policy import MAPPINGS, Planner, parse_policy, read_policy
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge, Lease
from edgeyard.scheduler.prediction.simulated_lab import expected_left_s, expected_run_times
from tests.builders.decision import cycle, lab, places, runs_on
from tests.builders.plain_mapping import PlainMapping

FAST, SLOW, OTHER = "rpi4b-0001-0001", "rpi4b-0002-0001", "rpi4b-0003-0001"
JOB = pending("job", model_sha256="m" * 64)
EVERY = list(MAPPINGS)
TEXTBOOK = [each for each in EVERY if each not in PROGRAMMES]


def history(**run_s: float) -> Knowledge:
    """Many runs of the same model on each board, of so many seconds."""
    uids = {"fast": FAST, "slow": SLOW, "other": OTHER}
    return Knowledge(
        runs=History(
            [
                past_run(uids[name], run_s=seconds * (1.0 + 0.001 * number), of=JOB)
                for name, seconds in run_s.items()
                for number in range(40)
            ]
        )
    )


def one(ran_s: float, mapping: Planner, **more: object) -> CycleResult:
    """One benchmark; a board that runs it in 60 s and is busy, and one that takes 300 s."""
    return cycle(
        lab(SLOW, busy=(FAST,)),
        [JOB],
        holders=[runs_on(FAST, ran_s, of=JOB)],
        knowledge=history(fast=60.0, slow=300.0),
        planner=mapping,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("mapping", EVERY)
def test_a_benchmark_waits_for_a_busy_board_where_it_ends_sooner(mapping: Planner) -> None:
    result = one(50.0, mapping)
    assert not result.placements
    waiting = result.waiting["job"]
    assert waiting.reason is WaitingReason.FASTER_BOARD
    assert waiting.sentence.startswith(f"waits for {FAST}, expected free at 20")
    assert f"sooner there than on {SLOW}, which is free" in waiting.sentence
    verdicts = {each.target_uid: each for each in result.explanation("job").verdicts}
    assert verdicts[SLOW].reason is WaitingReason.FASTER_BOARD
    assert FAST in verdicts[SLOW].sentence
    assert verdicts[FAST].reason is WaitingReason.BOARD_BUSY


def test_without_a_mapping_it_takes_the_free_board() -> None:
    known = history(fast=60.0, slow=300.0)
    holders = [runs_on(FAST, 50.0, of=JOB)]
    result = cycle(lab(SLOW, busy=(FAST,)), [JOB], holders=holders, knowledge=known, planner=None)
    assert places(result) == {"job": SLOW}


@pytest.mark.parametrize("mapping", [each for each in EVERY if each is not Planner.MET])
def test_it_takes_the_slow_board_where_it_ends_sooner_there(mapping: Planner) -> None:
    known = history(fast=60.0, slow=70.0)
    result = cycle(
        lab(SLOW, busy=(FAST,)),
        [JOB],
        holders=[runs_on(FAST, 1.0, of=JOB)],
        knowledge=known,
        planner=mapping,
    )
    assert places(result) == {"job": SLOW}


def test_met_waits_for_the_fastest_board_at_any_price() -> None:
    known = history(fast=60.0, slow=70.0)
    result = cycle(
        lab(SLOW, busy=(FAST,)),
        [JOB],
        holders=[runs_on(FAST, 1.0, of=JOB)],
        knowledge=known,
        planner=Planner.MET,
    )
    assert not places(result)
    assert f"runs in less time there than on {SLOW}" in result.waiting["job"].sentence


@pytest.mark.parametrize("mapping", EVERY)
def test_nobody_waits_past_the_guard_time(mapping: Planner) -> None:
    assert places(one(50.0, mapping, guard_s=0.0)) == {"job": SLOW}


@pytest.mark.parametrize("mapping", EVERY)
def test_nobody_waits_for_a_board_that_is_leased_or_busy_with_something_unknown(
    mapping: Planner,
) -> None:
    known = history(fast=60.0, slow=300.0)
    soon, later = NOW + timedelta(seconds=30), NOW + timedelta(days=1)
    for since in (NOW, soon):
        lease = Lease(lease_id="l", target_uid=FAST, since=since, until=later, reason="")
        leased = replace(known, leases=(lease,))
        snapshot, holders = lab(SLOW, busy=(FAST,)), [runs_on(FAST, 50.0, of=JOB)]
        result = cycle(snapshot, [JOB], holders=holders, knowledge=leased, planner=mapping)
        assert places(result) == {"job": SLOW}
    result = cycle(lab(SLOW, busy=(FAST,)), [JOB], knowledge=known, planner=mapping)
    assert places(result) == {"job": SLOW}


@pytest.mark.parametrize("mapping", EVERY)
def test_a_board_that_has_just_failed_it_is_never_taken(mapping: Planner) -> None:
    known = history(fast=60.0, slow=300.0)
    rests = pending(
        "job", avoid_until=((SLOW, NOW + timedelta(seconds=60)),), model_sha256="m" * 64
    )
    result = cycle(lab(SLOW), [rests], knowledge=known, planner=mapping)
    assert not places(result)
    assert "its last attempt" in result.waiting["job"].sentence
    tried = pending("job", tried_uids=frozenset({FAST}), model_sha256="m" * 64)
    assert places(cycle(lab(SLOW, FAST), [tried], knowledge=known, planner=mapping)) == {
        "job": SLOW
    }
    assert places(cycle(lab(FAST), [tried], knowledge=known, planner=mapping)) == {"job": FAST}


@pytest.mark.parametrize("mapping", EVERY)
def test_a_user_at_the_limit_takes_no_board_from_others(mapping: Planner) -> None:
    known = replace(
        history(fast=60.0, slow=300.0), entitlements={"user-1": Entitlement(max_running=1)}
    )
    jobs = [
        pending(name, model_sha256="m" * 64, user_id=user)
        for name, user in [("a", "user-1"), ("b", "user-1"), ("c", "user-2")]
    ]
    result = cycle(lab(FAST, SLOW, OTHER), jobs, knowledge=known, planner=mapping)
    assert sum(each in places(result) for each in "ab") <= 1


def test_boards_that_share_cores_are_mapped_as_one() -> None:
    shared = replace(lab(FAST, SLOW), conflicts=np.array([[False, True], [True, False]]))
    jobs = [JOB, pending("second", model_sha256="m" * 64)]
    known = history(fast=60.0, slow=300.0)
    result = cycle(shared, jobs, knowledge=known, planner=Planner.MCT)
    assert list(places(result).values()) == [FAST]


@pytest.mark.slow
@given(
    times=st.lists(
        st.lists(st.sampled_from([20.0, 45.0, 100.0, 230.0, 500.0]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    kinds=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    busy=st.sets(st.sampled_from([FAST, SLOW]), max_size=2),
    mapping=st.sampled_from(TEXTBOOK),
)
def test_each_heuristic_is_the_textbook_s(
    times: list[list[float]], kinds: list[int], busy: set[str], mapping: Planner
) -> None:
    """Against the definitions, benchmark by benchmark on the whole matrix of expected times."""
    uids = (FAST, SLOW, OTHER)
    models = [pending("m", model_sha256=f"{number}" * 64) for number in range(len(times))]
    jobs = [
        pending(
            f"b-{place}",
            model_sha256=models[kind % len(times)].model_sha256,
            submit_time=NOW - timedelta(seconds=100 - place),
        )
        for place, kind in enumerate(kinds)
    ]
    runs = [
        past_run(uid, run_s=seconds * (1.0 + 0.001 * number), of=model)
        for model, row in zip(models, times, strict=True)
        for uid, seconds in zip(uids, row, strict=True)
        for number in range(12)
    ]
    known = Knowledge(runs=History(runs))
    holders = [runs_on(uid, 10.0, of=JOB) for uid in sorted(busy)]
    snapshot = lab(*(uid for uid in uids if uid not in busy), busy=tuple(sorted(busy)))
    result = cycle(snapshot, jobs, holders=holders, knowledge=known, planner=mapping)
    batch, order = result.decided.batch, result.decided.order
    boards = np.arange(3)
    run_s = np.stack(
        [expected_run_times(batch, np.full(3, batch.class_of_job[job]), boards) for job in order]
    )
    ready = np.zeros(3)
    for holder, left_s in zip(holders, expected_left_s(batch, holders), strict=True):
        ready[batch.row_of_uid[holder.target_uid]] = left_s
    free = np.array([uid not in busy for uid in snapshot.uids])
    scores = np.zeros(batch.shape)
    pairs = result.decided.scores.pairs
    scores[pairs.rows, pairs.boards] = result.decided.scores.combined
    place = np.empty(3)
    place[batch.board_order] = np.linspace(0.0, 1e-6, 3)
    ties = place - scores[batch.class_of_job[order]]
    expected = textbook(mapping, run_s, ready, free, ties)
    assert places(result) == {
        jobs[order[row]].benchmark_id: snapshot.uids[column] for row, column in expected.items()
    }


def textbook(
    mapping: Planner,
    run_s: np.ndarray,
    ready: np.ndarray,
    free: np.ndarray,
    ties: np.ndarray,
) -> dict[int, int]:
    """Return which rows start on which free columns now; Maheswaran et al., Braun et al.

    Args:
        mapping: The heuristic.
        run_s: Shape (rows, columns).
        ready: Shape (columns,).
        free: Shape (columns,).
        ties: Shape (rows, columns): of columns that are equally good the least one is taken.
    """
    open_, starts, taken = list(range(len(run_s))), {}, ~free

    def best(row: int) -> int:
        ends, same_s = ready + run_s[row], 1e-9
        if mapping is Planner.MET:
            ends = np.where(run_s[row] <= run_s[row].min() + same_s, ends, math.inf)
        first = np.flatnonzero(ends <= ends.min() + same_s)
        return int(min(first, key=lambda column: ties[row, column]))

    def give(row: int, column: int) -> None:
        if not taken[column]:
            starts[row] = column
            taken[column] = True
        ready[column] += run_s[row, column]
        open_.remove(row)

    while open_:
        if mapping is Planner.SUFFERAGE:
            claims: dict[int, tuple[float, int]] = {}
            for row in open_:
                column = best(row)
                ends = np.sort(ready + run_s[row])
                claim = (-round(float(ends[1] - ends[0]), 6), row)
                claims[column] = min(claim, claims.get(column, claim))
            for column, (_, row) in claims.items():
                give(row, column)
            continue
        row = open_[0]
        if mapping in (Planner.MIN_MIN, Planner.MAX_MIN):
            sign = 1.0 if mapping is Planner.MIN_MIN else -1.0
            row = min(
                open_,
                key=lambda each: (sign * round(float((ready + run_s[each]).min()), 6), each),
            )
        give(row, best(row))
    return starts


def test_a_long_queue_is_mapped_in_part_and_every_class_is_served() -> None:
    known = history(fast=60.0, slow=300.0)
    jobs: list[PendingBenchmark] = [
        pending(f"b-{number:05}", model_sha256="m" * 64, submit_time=NOW - timedelta(hours=1))
        for number in range(MAX_MAPPED + 100)
    ]
    pinned = pending("pinned", target_uid=OTHER, model_sha256="m" * 64)
    result = cycle(
        lab(SLOW, OTHER, busy=(FAST,)),
        [*jobs, pinned],
        holders=[runs_on(FAST, 50.0, of=JOB)],
        knowledge=known,
        planner=Planner.MAX_MIN,
        queue_policy="fifo",
    )
    assert OTHER in places(result).values()


def test_a_policy_names_its_mapping() -> None:
    text = read_policy("default")
    assert parse_policy(text).planner is Planner.EXPECTED_COST

    def named(planner: str) -> str:
        return text.replace('planner = "expected_cost"', f'planner = "{planner}"')

    assert parse_policy(named("none")).planner is None
    assert parse_policy(named("sufferage")).planner is Planner.SUFFERAGE
    with pytest.raises(ConfigError, match="planner: is not one of none, met, mct, min_min"):
        parse_policy(named("olb"))
    with pytest.raises(ConfigError, match="max_joint_jobs: must be 0 with planner"):
        parse_policy(named("sufferage").replace("max_joint_jobs = 0", "max_joint_jobs = 5"))


lab_times = st.lists(
    st.lists(st.sampled_from([20.0, 20.0, 45.0, 100.0, 230.0, 500.0]), min_size=6, max_size=6),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    times=lab_times,
    kinds=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15)), min_size=1, max_size=14),
    busy=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1.0, 30.0, 400.0])), max_size=4),
    shared=st.booleans(),
    mapping=st.sampled_from(TEXTBOOK),
)
def test_the_fast_way_decides_as_the_plain_one(
    times: list[list[float]],
    kinds: list[tuple[int, int]],
    busy: list[tuple[int, float]],
    shared: bool,
    mapping: Planner,
) -> None:
    uids = [f"rpi4b-000{number}-0001" for number in range(1, 7)]
    models = [pending("m", model_sha256=f"{number}" * 64) for number in range(len(times))]
    jobs = [
        pending(
            f"b-{place}",
            model_sha256=models[kind % len(times)].model_sha256,
            submit_time=NOW - timedelta(seconds=100 - place),
            tried_uids=frozenset(uids[: more % 4]),
            avoid_until=((uids[more // 4], NOW + timedelta(seconds=60)),) if more > 11 else (),
        )
        for place, (kind, more) in enumerate(kinds)
    ]
    runs = [
        past_run(uid, run_s=seconds * (1.0 + 0.001 * number), of=model)
        for model, row in zip(models, times, strict=True)
        for uid, seconds in zip(uids, row, strict=True)
        for number in range(12)
    ]
    holders = {uids[board]: runs_on(uids[board], ran_s, of=JOB) for board, ran_s in busy}
    snapshot = snapshot_of(
        [board(uid, busy=uid in holders) for uid in uids],
        hosts={uid: f"host-{uid}" for uid in uids},
    )
    if shared:
        conflicts = np.zeros((6, 6), dtype=np.bool_)
        conflicts[0, 1] = conflicts[2, 3] = True
        snapshot = replace(snapshot, conflicts=conflicts)

    def decided() -> tuple[object, ...]:
        result = cycle(
            snapshot,
            jobs,
            holders=list(holders.values()),
            knowledge=Knowledge(runs=History(runs)),
            planner=mapping,
        )
        return places(result), result.decided.assignment.holds, dict(result.waiting)

    fast = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgeyard.scheduler.decide.mapping._Mapping", PlainMapping)
        assert fast == decided()
