"""What must never happen in a decision, whatever is pending and whatever the boards do."""

import re
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.constraints import compare
from edgeyard.devices.model import Board
from edgeyard.devices.operators import OPERATORS
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import GIB, NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.feasibility import feasibility
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from tests.builders.decision import cycle, places, plugins

FAMILIES = ("rpi4b", "rpi5", "x86")
UIDS = tuple(f"{family}-0001-000{n}" for family in FAMILIES for n in range(1, 4))
HELD = WaitReason(reason=WaitingReason.HELD, sentence="held")

constraints = st.builds(
    Constraint,
    attribute=st.sampled_from(
        ["camera", "rack", "memory.ram", "family", "engines", "dynamic.progress", "nothing"]
    ),
    operator=st.sampled_from(OPERATORS),
    value=st.sampled_from(["true", "a", "a,b", "2147483648", "50", "rpi4b", "ort", "^r", ""]),
)


@st.composite
def boards(draw: st.DrawFn) -> list[Board]:
    uids = draw(st.lists(st.sampled_from(UIDS), unique=True, max_size=7))
    found = []
    for uid in uids:
        engines = draw(
            st.dictionaries(
                st.sampled_from(["ort", "tflite"]),
                st.sets(st.sampled_from(["TYPE1", "TYPE2", "TYPE3"])),
            )
        )
        found.append(
            board(
                uid,
                ram_bytes=draw(st.sampled_from([GIB, 2 * GIB, 4 * GIB])),
                storage_bytes=draw(st.sampled_from([8 * GIB, 16 * GIB])),
                engines=engines,
                healthy=draw(st.sampled_from([True, True, True, False])),
                busy=draw(st.sampled_from([False, False, False, True])),
                progress=draw(st.sampled_from([None, 0.0, 60.0])),
                shares_with=frozenset(draw(st.sets(st.sampled_from(uids), max_size=1)) - {uid}),
                attributes=draw(
                    st.dictionaries(
                        st.sampled_from(["camera", "rack"]), st.sampled_from([True, "a", "a,b", 7])
                    )
                ),
            )
        )
    return found


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = draw(boards())
    uids = [each.target_uid for each in found]

    def some() -> set[str]:
        return draw(st.sets(st.sampled_from(uids), max_size=2)) if uids else set()

    return snapshot_of(
        found,
        hosts={uid: draw(st.sampled_from(["pi-1", "pi-2"])) for uid in uids},
        unknown=some(),
        offline=some(),
        drained=some(),
        age_s=draw(st.sampled_from([0.0, 0.0, 0.0, 30.0, 61.0, float("inf")])),
    )


jobs = st.builds(
    pending,
    user_priority=st.sampled_from([1, 5, 6, 10]),
    submit_time=st.sampled_from([-10, 0, 60, 7200, 200_000]).map(
        lambda seconds: NOW - timedelta(seconds=seconds)
    ),
    family=st.sampled_from(["rpi4b", "rpi4b", "rpi5", "x86", "rpi9"]),
    engine=st.sampled_from(["ort", "ort", "tflite"]),
    benchmark_type=st.sampled_from([BenchmarkType.TYPE1, BenchmarkType.TYPE1, *BenchmarkType]),
    ram_bytes=st.sampled_from([0, 0, GIB, 2 * GIB, 8 * GIB]),
    storage_bytes=st.sampled_from([0, 0, 16 * GIB]),
    target_uid=st.sampled_from([None, None, None, *UIDS]),
    constraints=st.sampled_from([(), (), ()]) | st.lists(constraints, max_size=2).map(tuple),
    deadline=st.sampled_from([None, NOW + timedelta(hours=1), NOW - timedelta(hours=1)]),
    start_time=st.sampled_from([None, None, None, NOW, NOW + timedelta(seconds=1)]),
    not_ready=st.sampled_from([None, None, None, HELD]),
    binding=st.sampled_from([None, *Binding]),
    campaign_started=st.booleans(),
    tried_uids=st.frozensets(st.sampled_from(UIDS), max_size=2),
)
queues = st.lists(jobs, max_size=10).map(
    lambda found: [replace(each, benchmark_id=f"b-{n}") for n, each in enumerate(found)]
)


def feasible(snapshot: Snapshot, queue: list[PendingBenchmark]) -> NDArray[np.bool_]:
    batch = build_batch(snapshot, queue, NOW, 0)
    fits = feasibility(batch, plugins().filters, PluginRunner()).fits
    return fits[batch.class_of_job]


@settings(max_examples=100, deadline=None)
@given(snapshots(), queues, st.integers(0, 3))
def test_what_must_hold_of_every_decision(
    snapshot: Snapshot, queue: list[PendingBenchmark], seed: int
) -> None:
    result = cycle(snapshot, queue, seed=seed)
    placed = places(result)
    row_of = {uid: row for row, uid in enumerate(snapshot.uids)}
    used = [row_of[uid] for uid in placed.values()]
    fits = feasible(snapshot, queue)
    assert result.faults == ()
    # Everybody is either placed or waits.
    assert len(placed) == len(result.placements)
    assert set(placed) | set(result.waiting) == {each.benchmark_id for each in queue}
    assert len(placed) + len(result.waiting) == len(queue) == len(result.order)
    # No board twice, none that a filter refused, no two that share cores.
    assert len(set(used)) == len(used)
    if snapshot.conflicts is not None:
        either = snapshot.conflicts | snapshot.conflicts.T
        assert not either[np.ix_(used, used)].any()
    taken = set(used)
    blocked = (
        set(np.flatnonzero(either[:, used].any(axis=1)).tolist())
        if snapshot.conflicts is not None and used
        else set()
    )
    promised = {  # to one that is to start later
        row_of[each.target_uid]
        for each in queue
        if each.target_uid in row_of and each.start_time is not None and each.start_time > NOW
    }
    for job, each in enumerate(queue):
        if each.benchmark_id in placed:
            assert fits[job, row_of[placed[each.benchmark_id]]]
            assert snapshot.age_s <= 60.0
            assert each.not_ready is None
            assert each.start_time is None or each.start_time <= NOW
            continue
        # Nobody waits for others while a board that fits is free.
        due = each.start_time is None or each.start_time <= NOW
        if each.not_ready is None and due and snapshot.age_s <= 60.0:
            assert set(np.flatnonzero(fits[job]).tolist()) <= taken | blocked | promised
        waiting = result.waiting[each.benchmark_id]
        assert waiting.sentence
        if each.benchmark_id in result.never:
            assert not fits[job].any()
    for placement in result.placements:
        assert 1 <= placement.priority <= 100
        if placement.allowed_uids:
            assert placement.target_uid in placement.allowed_uids
            assert placement.binding is not Binding.STRICT
            for uid in placement.allowed_uids:
                row = row_of[uid]
                assert snapshot.expected[row]
                assert not snapshot.drained[row]


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.sampled_from(UIDS)),
    st.lists(st.sampled_from([*FAMILIES, *UIDS]), min_size=1, max_size=12),
)
def test_how_many_come_first_is_counted_over_those_who_could_use_the_same_boards(
    busy_uids: set[str], wanted: list[str]
) -> None:
    queue = [
        pending(
            f"b-{number}",
            family=name.split("-")[0],
            target_uid=name if name in UIDS else None,
        )
        for number, name in enumerate(wanted)
    ]
    result = cycle(snapshot_of([board(uid, busy=uid in busy_uids) for uid in UIDS]), queue)
    decided = result.decided
    possible = decided.feasibility.possible[decided.batch.class_of_job]
    line = [job for job in decided.order.tolist() if decided.ready[job]]
    for place, job in enumerate(line):
        waiting = result.waiting.get(queue[job].benchmark_id)
        reported = (
            re.match(r"(\d+) benchmarks? comes? first", waiting.sentence) if waiting else None
        )
        if waiting is None or reported is None:
            continue
        busy = waiting.sentence.endswith("busy")
        ahead = [
            other
            for other in line[:place]
            if (possible[other] & possible[job]).any() and not (busy and decided.placed(other))
        ]
        assert int(reported[1]) == len(ahead)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(UIDS), unique=True),
    st.lists(st.sampled_from([*FAMILIES, *UIDS]), max_size=12),
)
def test_no_board_idles_while_somebody_waits_for_it(uids: list[str], wanted: list[str]) -> None:
    """Many benchmarks, few boards: each asks for a family or for a board."""
    queue = [
        pending(
            f"b-{n:02}",
            family=each.split("-")[0],
            target_uid=each if "-" in each else None,
            submit_time=NOW - timedelta(seconds=100 - n),
        )
        for n, each in enumerate(wanted)
    ]
    placed = places(cycle(snapshot_of([board(uid) for uid in uids]), queue))
    idle = set(uids) - set(placed.values())
    for each in queue:
        if each.benchmark_id not in placed:
            assert each.target_uid not in idle
            if each.target_uid is None:
                assert not any(uid.startswith(f"{each.family}-") for uid in idle)


@settings(max_examples=60, deadline=None)
@given(snapshots(), queues)
def test_every_benchmark_can_be_explained(
    snapshot: Snapshot, queue: list[PendingBenchmark]
) -> None:
    result = cycle(snapshot, queue)
    for rank, benchmark_id in enumerate(result.order):
        explanation = result.explanation(benchmark_id)
        assert explanation.rank == rank
        assert [each.target_uid for each in explanation.verdicts] == list(snapshot.uids)
        assert sum(explanation.priority_parts.values()) == explanation.priority
        assert (explanation.placement is None) == (explanation.waiting is not None)
        assert explanation.never == (benchmark_id in result.never)
        assert all(each.sentence for each in explanation.verdicts)
        assert explanation.never == all(each.never for each in explanation.verdicts)


@settings(max_examples=60, deadline=None)
@given(boards(), queues, st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    found: list[Board], queue: list[PendingBenchmark], seed: int, random: Random
) -> None:
    first = cycle(snapshot_of(found), queue, seed=seed)
    shuffled_boards, shuffled_queue = list(found), list(queue)
    random.shuffle(shuffled_boards)
    random.shuffle(shuffled_queue)
    second = cycle(snapshot_of(shuffled_boards), shuffled_queue, seed=seed)
    assert second.placements == first.placements
    assert second.order == first.order
    assert dict(second.waiting) == dict(first.waiting)


@settings(max_examples=40, deadline=None)
@given(snapshots(), queues, st.integers(0, 3))
def test_the_same_arguments_give_the_same_result(
    snapshot: Snapshot, queue: list[PendingBenchmark], seed: int
) -> None:
    first, second = (cycle(snapshot, queue, seed=seed) for _ in range(2))
    assert first.placements == second.placements
    assert dict(first.waiting) == dict(second.waiting)
    assert [first.explanation(each) for each in first.order] == [
        second.explanation(each) for each in second.order
    ]


@settings(max_examples=60, deadline=None)
@given(jobs, jobs)
def test_priority_never_falls_with_more_of_what_raises_it(
    job: PendingBenchmark, other: PendingBenchmark
) -> None:
    less: dict[str, Any] = {
        "user_priority": min(job.user_priority, other.user_priority),
        "submit_time": max(job.submit_time, other.submit_time),
        "deadline": max(
            (each for each in (job.deadline, other.deadline) if each is not None), default=None
        )
        if job.deadline and other.deadline
        else None,
    }
    more: dict[str, Any] = {
        "user_priority": max(job.user_priority, other.user_priority),
        "submit_time": min(job.submit_time, other.submit_time),
        "deadline": min(
            (each for each in (job.deadline, other.deadline) if each is not None), default=None
        ),
    }
    for field, value in more.items():
        low = replace(job, benchmark_id="low", **less)
        raised: dict[str, Any] = {"benchmark_id": "high", field: value}
        high = replace(low, **raised)
        result = cycle(snapshot_of([]), [low, high])
        assert 1 <= result.priority("low") <= result.priority("high") <= 100


@settings(max_examples=100, deadline=None)
@given(boards(), jobs)
def test_filters_agree_with_the_constraints_of_the_rendered_job(
    found: list[Board], job: PendingBenchmark
) -> None:
    """A board passes the filters of the description just if it meets all its job would state."""
    named = ("target_uid", "family", "engine", "type", "ram", "storage", "constraints")
    known = registry(entry_points=False)
    assert set(named) <= set(known.names(Kind.FILTER))
    filters = tuple(each for each in plugins().filters if each.name in named)
    batch = build_batch(snapshot_of(found), [job], NOW, 0)
    fits = feasibility(batch, filters, PluginRunner()).fits[0]
    stated = [
        ("family", "=", job.family),
        ("engines", "set_contains", job.engine),
        (f"engine.{job.engine}.supported_types", "set_contains", job.benchmark_type.value),
        ("memory.ram", ">=", str(job.ram_bytes)),
        ("memory.storage", ">=", str(job.storage_bytes)),
        *((each.attribute, each.operator, each.value) for each in job.constraints),
        *([("target_uid", "=", job.target_uid)] if job.target_uid else []),
    ]
    meets = [
        all(
            compare(attributes_of(each).get(name), operator, value)
            for name, operator, value in stated
        )
        for each in found
    ]
    assert fits.tolist() == meets
