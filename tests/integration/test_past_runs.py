"""The past is read once, then only what is new; both databases."""

from __future__ import annotations

from datetime import timedelta

from edgeyard.scheduler.engine.history import PastRuns
from edgeyard.scheduler.ports import Store
from tests.builders.records import NOW, a_benchmark, an_outcome


def ended(store: Store, *numbers: int, late_s: float = 0.0) -> None:
    with store.write() as uow:
        for number in numbers:
            at = NOW + timedelta(seconds=number - late_s)
            uow.benchmarks.add(a_benchmark(f"b-{number}"))
            uow.attempts.add_outcome(
                an_outcome(
                    f"b-{number}", user_id="user-7", nb_inference=number, variant="v", ended_at=at
                )
            )


def test_what_is_new_is_added_and_nothing_twice(store: Store) -> None:
    past = PastRuns(most=4)
    ended(store, 1, 2)
    with store.read() as uow:
        first = past.read(uow, NOW)
        assert past.read(uow, NOW) is first
    assert [run.kind.nb_inference for run in first] == [1, 2]
    assert (first[0].user_id, first[0].kind.variant) == ("user-7", "v")
    ended(store, 3)
    ended(store, 4, late_s=3600.0)  # of a transaction that was slow to commit
    with store.read() as uow:
        assert [run.kind.nb_inference for run in past.read(uow, NOW)] == [1, 2, 3, 4]
    ended(store, 5)
    with store.read() as uow:
        assert [run.kind.nb_inference for run in past.read(uow, NOW)] == [2, 3, 4, 5]


def test_what_is_too_old_is_forgotten(store: Store) -> None:
    past = PastRuns(max_age_s=100.0)
    ended(store, 1, 50)
    with store.read() as uow:
        assert len(past.read(uow, NOW + timedelta(seconds=60))) == 2
        assert len(past.read(uow, NOW + timedelta(seconds=120))) == 1
        assert len(past.read(uow, NOW + timedelta(seconds=900))) == 0
