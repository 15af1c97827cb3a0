"""A canary costs nobody anything: all others get the same boards as without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.canaries import canary_plugins, canary_policy, left_over
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.record import Recorder, cycle_input_of, policy_of, result_of
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Snapshot,
)
from edgeyard.scheduler.model.knowledge import Knowledge, Lease
from tests.builders.decision import places, plugins, policy

UIDS = tuple(f"{family}-0001-{number:04}" for family in ("rpi4b", "rpi5") for number in range(1, 5))
PLANNERS = st.sampled_from([None, Planner.MIN_MIN, Planner.EXPECTED_COST])

queues = st.lists(
    st.builds(
        pending,
        benchmark_id=st.uuids().map(str),
        family=st.sampled_from(["rpi4b", "rpi5"]),
        benchmark_type=st.sampled_from(list(BenchmarkType)[:2]),
        user_priority=st.integers(1, 10),
        submit_time=st.sampled_from([NOW, NOW - timedelta(hours=3), NOW - timedelta(days=3)]),
        start_time=st.sampled_from([None, None, None, NOW + timedelta(minutes=5)]),
        binding=st.sampled_from([None, Binding.STRICT]),
        job_completion_threshold=st.none() | st.integers(0, 100),
        tried_uids=st.frozensets(st.sampled_from(UIDS), max_size=2),
    ),
    unique_by=lambda each: each.benchmark_id,
    max_size=7,
)
holders = st.lists(
    st.builds(
        BoardHolder,
        benchmark_id=st.uuids().map(str),
        target_uid=st.sampled_from(UIDS),
        priority=st.integers(1, 100),
        progress=st.none() | st.floats(0, 100),
        preemptible=st.booleans(),
        ending=st.booleans(),
        started_at=st.sampled_from([None, NOW - timedelta(minutes=3)]),
        canary=st.booleans(),
        strict=st.booleans(),
    ),
    unique_by=lambda each: each.target_uid,
    max_size=8,
)
pairs = st.sets(st.sampled_from(list(combinations(UIDS, 2))), max_size=3)
leases = st.lists(
    st.builds(
        Lease,
        lease_id=st.uuids().map(str),
        target_uid=st.sampled_from(UIDS),
        since=st.sampled_from([NOW - timedelta(hours=1), NOW + timedelta(minutes=4)]),
        until=st.just(NOW + timedelta(hours=1)),
        reason=st.just(""),
        user_id=st.sampled_from([None, "user-1", "user-2"]),
    ),
    unique_by=lambda each: each.target_uid,
    max_size=2,
)


def partners(shared: set[tuple[str, str]], uid: str) -> frozenset[str]:
    return frozenset({other for pair in shared if uid in pair for other in pair} - {uid})


def snapshot(running: Sequence[BoardHolder], shared: set[tuple[str, str]]) -> Snapshot:
    """As the twin has it: boards that share cores with one in use are as good as busy."""
    held = {each.target_uid for each in running}
    blocked = {other for uid in held for other in partners(shared, uid)}
    return snapshot_of(
        [
            board(uid, busy=uid in held or uid in blocked, shares_with=partners(shared, uid))
            for uid in UIDS
        ]
    )


@st.composite
def cycles(draw: st.DrawFn) -> tuple[CycleInput, CycleInput]:
    """A cycle, and the same one as if no canary ran."""
    shared = draw(pairs)
    running: list[BoardHolder] = []
    for each in draw(holders):  # none runs next to another
        if not partners(shared, each.target_uid) & {other.target_uid for other in running}:
            running.append(each)
    others = [each for each in running if not each.canary]
    with_canaries = CycleInput(
        snapshot=snapshot(running, shared),
        pending=draw(queues),
        now=NOW,
        holders=running,
        knowledge=Knowledge(leases=tuple(draw(leases))),
        seed=draw(st.integers(0, 5)),
    )
    without = replace(with_canaries, snapshot=snapshot(others, shared), holders=others)
    return with_canaries, without


def cleared(result: CycleResult) -> dict[str, str]:
    """The board of each that waits for the end of a canary."""
    decided = result.decided
    return {
        decided.pending[job].benchmark_id: decided.snapshot.uids[row]
        for job, row in decided.assignment.clearing.items()
    }


@settings(max_examples=300, deadline=None)
@given(both=cycles(), planner=PLANNERS, explore_share=st.sampled_from([0.0, 0.5]))
def test_all_others_get_boards_as_good_as_they_would_get_without_canaries(
    both: tuple[CycleInput, CycleInput], planner: Planner | None, explore_share: float
) -> None:
    given_, without = both
    chosen = replace(policy(), planner=planner, explore_share=explore_share)
    result = decide(given_, chosen, plugins())
    alone = decide(without, chosen, plugins())
    event("waits for a canary" if cleared(result) else "no canary is in the way")

    assert result.order == alone.order
    given_boards = {**places(result), **cleared(result)}
    assert given_boards.keys() == places(alone).keys()
    assert len(set(given_boards.values())) == len(given_boards)
    rows = {uid: row for row, uid in enumerate(UIDS)}
    scores, classes = alone.decided.scores, alone.decided.batch.class_of_job
    for benchmark_id, uid in places(alone).items():
        got = given_boards[benchmark_id]
        if got != uid:  # another one that was left, where it need not wait
            event("has another board that is as good")
            assert got not in places(alone).values()
            assert benchmark_id in places(result)
            job = alone.decided.row_of_id[benchmark_id]
            both_pairs = [scores.pairs.at(int(classes[job]), rows[each]) for each in (uid, got)]
            assert scores.combined[both_pairs[0]] == scores.combined[both_pairs[1]]
    stopped = [each for each in result.preemptions if not each.of_canary]
    assert tuple(stopped) == alone.preemptions
    for benchmark_id, why in alone.waiting.items():
        assert result.waiting[benchmark_id] == why


@settings(max_examples=200, deadline=None)
@given(both=cycles())
def test_those_canaries_are_stopped_that_are_in_the_way_and_no_others(
    both: tuple[CycleInput, CycleInput],
) -> None:
    given_, _ = both
    result = decide(given_, policy(), plugins())
    conflicts = given_.snapshot.conflicts
    rows = {uid: row for row, uid in enumerate(given_.snapshot.uids)}

    def in_the_way(canary: BoardHolder) -> bool:
        wanted = [rows[uid] for uid in cleared(result).values()]
        own = rows[canary.target_uid]
        return own in wanted or (conflicts is not None and bool(conflicts[own, wanted].any()))

    canaries = [each for each in given_.holders if each.canary]
    due = {each.benchmark_id for each in canaries if in_the_way(each) and not each.ending}
    stopped = [each.victim_id for each in result.preemptions if each.of_canary]
    assert sorted(stopped) == sorted(due)


def canary(uid: str, **more: object) -> PendingBenchmark:
    return pending(
        f"canary-{uid}",
        user_id="edgeyard-canary",
        family=uid.split("-", 1)[0],
        target_uid=uid,
        submit_time=NOW - timedelta(days=30),
        user_priority=10,
        **more,
    )


@settings(max_examples=200, deadline=None)
@given(both=cycles(), wanted=st.sets(st.sampled_from(UIDS)))
def test_canaries_get_what_is_left_however_long_they_have_waited(
    both: tuple[CycleInput, CycleInput], wanted: set[str]
) -> None:
    given_, _ = both
    result = decide(given_, policy(), plugins())
    own = left_over(given_, result.decided, [canary(uid) for uid in sorted(wanted)])
    found = decide(own, canary_policy(policy()), canary_plugins(plugins()))

    used = {*places(result).values(), *cleared(result).values()}
    used |= {each.target_uid for each in given_.holders}
    soon = {each.target_uid for each in given_.knowledge.leases}
    got = set(places(found).values())
    event("a canary runs" if got else "no canary runs")
    assert not got & (used | soon)
    conflicts = given_.snapshot.conflicts
    if conflicts is not None:
        rows = {uid: row for row, uid in enumerate(given_.snapshot.uids)}
        near = (conflicts | conflicts.T)[[rows[uid] for uid in got]]
        assert not near[:, [rows[uid] for uid in used | got]].any()
    assert found.preemptions == ()
    assert {each.priority for each in found.placements} <= {1}


@settings(max_examples=100, deadline=None)
@given(both=cycles(), wanted=st.sets(st.sampled_from(UIDS), min_size=1))
def test_a_record_decides_and_explains_both_the_same(
    both: tuple[CycleInput, CycleInput], wanted: set[str]
) -> None:
    given_, _ = both
    result = decide(given_, policy(), plugins())
    own = left_over(given_, result.decided, [canary(uid) for uid in sorted(wanted)])
    canaries = decide(own, canary_policy(policy()), canary_plugins(plugins()))
    for input_, decided, its_plugins in (
        (given_, result, plugins()),
        (own, canaries, canary_plugins(plugins())),
    ):
        record = Recorder().record(input_, decided)
        read = result_of(record, its_plugins)
        again = decide(cycle_input_of(record), policy_of(record), its_plugins)
        assert Recorder().record(cycle_input_of(record), again).digest == record.digest
        assert read.placements == decided.placements == again.placements
        assert read.preemptions == decided.preemptions
        for benchmark_id in decided.order:
            assert read.explanation(benchmark_id) == decided.explanation(benchmark_id)
