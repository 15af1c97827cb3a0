"""Columns of a cycle: copies with one column changed, families, and turns."""

from dataclasses import fields, replace

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch import (
    Batch,
    Pairs,
    Queue,
    by_value,
    has_family,
    other_families,
    pairs_of,
)
from edgeyard.scheduler.framework.batch_builder import build_batch
from tests.builders.decision import cycle

FAMILIES = ("rpi4b", "rpi5", "jetsonorinnano")


def batch_of(*families: str) -> Batch:
    boards = [board(f"{name}-0001-000{row}") for name in FAMILIES for row in (1, 2)]
    jobs = [pending(f"b-{row}", family=family) for row, family in enumerate(families)]
    return build_batch(snapshot_of(boards), jobs, NOW, seed=1)


def test_a_batch_with_another_queue_is_that_batch_otherwise() -> None:
    batch = batch_of("rpi4b", "rpi5")
    assert batch.row_of_uid  # derived, and not handed on
    queue = np.array([1, 0])
    found, stated = batch.with_queue(queue), replace(batch, queue=queue)
    for each in fields(Batch):
        assert getattr(found, each.name) is getattr(stated, each.name), each.name
    assert found.row_of_uid is not batch.row_of_uid
    assert batch.queue.tolist() == [0, 1]


def test_pairs_within_another_time_are_the_same_pairs() -> None:
    pairs = pairs_of(np.array([[True, False], [False, False], [True, True]]))
    assert pairs.filled.tolist() == [0, 2]
    found, stated = pairs.within(0.5), replace(pairs, budget_s=0.5)
    for each in fields(Pairs):
        assert getattr(found, each.name) is getattr(stated, each.name), each.name
    assert found.filled.tolist() == stated.filled.tolist() == [0, 2]


@pytest.mark.parametrize(
    "families",
    [(), ("rpi5",), ("rpi4b", "rpi5", "rpi4b"), ("unknown",), ("unknown", "jetsonorinnano")],
)
def test_boards_of_other_families_are_found(families: tuple[str, ...]) -> None:
    batch = batch_of(*families)
    stated = by_value(batch, batch.families, lambda family: ~has_family(batch, family))
    np.testing.assert_array_equal(other_families(batch), stated)


@pytest.mark.parametrize("users", [1, 2, 3])
def test_turns_count_the_places_of_each_user(users: int) -> None:
    jobs = [
        pending(f"b-{row:02}", user_id=f"user-{row * row % users}", user_priority=1 + row % 9)
        for row in range(40)
    ]
    snapshot = snapshot_of([board("rpi4b-0001-0001")])
    queue: Queue = cycle(snapshot, jobs).decided.queue
    queue = replace(queue, turn_size=7)
    places: dict[str, int] = {}
    for row in sorted(range(40), key=lambda row: (-queue.priorities[row], -queue.ages_s[row], row)):
        place = places[queue.users[row]] = places.get(queue.users[row], -1) + 1
        assert queue.turns[row] == place // 7
