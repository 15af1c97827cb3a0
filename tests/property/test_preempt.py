"""What no preemption ever does, whoever runs and whoever waits."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import board, pending, snapshot_of
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from tests.builders.decision import cycle, policy

UIDS = [f"{family}-0001-{number:04}" for family in ("rpi4b", "rpi5") for number in range(1, 5)]

holders = st.lists(
    st.builds(
        BoardHolder,
        benchmark_id=st.just("on"),
        target_uid=st.sampled_from(UIDS),
        priority=st.integers(1, 100),
        progress=st.none() | st.floats(0, 100),
        preemptible=st.booleans(),
        ending=st.booleans(),
        preempted=st.booleans(),
    ),
    unique_by=lambda each: each.target_uid,
    max_size=8,
)
queues = st.lists(
    st.builds(
        pending,
        benchmark_id=st.uuids().map(str),
        family=st.sampled_from(["rpi4b", "rpi5"]),
        target_uid=st.none(),
        benchmark_type=st.sampled_from(list(BenchmarkType)[:2]),
        user_priority=st.integers(1, 10),
        job_completion_threshold=st.none() | st.integers(0, 100),
        tried_uids=st.frozensets(st.sampled_from(UIDS), max_size=2),
    ),
    unique_by=lambda each: each.benchmark_id,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    holders,
    queues,
    st.frozensets(st.sampled_from(UIDS)),
    st.frozensets(st.sampled_from(UIDS)),
    st.randoms(use_true_random=False),
)
def test_nobody_is_stopped_who_must_not_be(
    running: list[BoardHolder],
    queue: list[PendingBenchmark],
    unhealthy: frozenset[str],
    offline: frozenset[str],
    random: Random,
) -> None:
    held = {each.target_uid: each for each in running}
    content = {uid: random.choice([None, 0.0, 50.0, 100.0]) for uid in UIDS}
    boards = [
        board(uid, busy=uid in held, healthy=uid not in unhealthy, progress=content[uid])
        for uid in UIDS
    ]
    result = cycle(snapshot_of(boards, offline=offline), queue, holders=running)
    asked = {each.benchmark_id: each for each in queue}
    for each in result.preemptions:
        victim, winner = held[each.target_uid], asked[each.benchmark_id]
        assert victim.preemptible
        assert not victim.ending
        assert victim.priority < each.priority
        assert each.priority - victim.priority >= policy().preemption_margin
        assert winner.job_completion_threshold is not None
        assert victim.progress is not None
        assert (
            max(victim.progress, content[each.target_uid] or 0.0) < winner.job_completion_threshold
        )
        assert each.target_uid.startswith(f"{winner.family}-")
        assert each.target_uid not in unhealthy | offline
        assert each.priority == result.priority(each.benchmark_id)
    # Nobody twice, nobody who got a board, and no board that somebody got.
    stopped = [each.target_uid for each in result.preemptions]
    winners = [each.benchmark_id for each in result.preemptions]
    assert len(set(stopped)) == len(stopped)
    assert len(set(winners)) == len(winners)
    assert not {each.benchmark_id for each in result.placements} & set(winners)
    # Whoever stops somebody has nobody before it who would get the board in its place: all that
    # wait there have a board of their own coming.
    order = list(result.order)
    for each in result.preemptions:
        before = order[: order.index(each.benchmark_id)]
        family = asked[each.benchmark_id].family
        rivals = [
            other
            for other in before
            if other in result.waiting and other not in winners and asked[other].family == family
        ]
        coming = [uid for uid in held if held[uid].ending and uid.startswith(f"{family}-")]
        assert len(rivals) <= len(coming)


@settings(max_examples=60, deadline=None)
@given(holders, queues, st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    running: list[BoardHolder], queue: list[PendingBenchmark], random: Random
) -> None:
    held = {each.target_uid for each in running}
    boards = [board(uid, busy=uid in held) for uid in UIDS]
    first = cycle(snapshot_of(boards), queue, holders=running)
    found, waiting, on_boards = list(boards), list(queue), list(running)
    random.shuffle(found)
    random.shuffle(waiting)
    random.shuffle(on_boards)
    second = cycle(snapshot_of(found), waiting, holders=on_boards)
    assert second.preemptions == first.preemptions
    assert dict(second.waiting) == dict(first.waiting)
