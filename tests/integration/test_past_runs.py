"""The past is read once, then only what is new; both databases."""

from __future__ import annotations

import threading
from datetime import timedelta

from edgeyard.scheduler.model.history import History, PastRunColumns
from edgeyard.scheduler.ports import Store
from edgeyard.scheduler.prediction.history import PastRuns
from tests.builders.records import NOW, a_benchmark, an_outcome, past_run


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


def test_new_runs_are_added_once(store: Store) -> None:
    past = PastRuns(max_runs=4)
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


def test_reading_many_past_runs_blocks_nobody(store: Store) -> None:
    past = PastRuns()
    ended(store, 1)
    began, goes_on = threading.Event(), threading.Event()

    def load() -> None:
        with store.read() as uow:
            after = uow.attempts.past_runs_after

            def slow(seq: int, *, newest: int) -> PastRunColumns:
                began.set()
                assert goes_on.wait(60)
                return after(seq, newest=newest)

            uow.attempts.past_runs_after = slow  # type: ignore[method-assign]
            past.load(uow, NOW)

    loading = threading.Thread(target=load)
    loading.start()
    assert began.wait(60)
    with store.read() as uow:
        assert len(past.read(uow, NOW)) == 0  # as in a lab that is new
        goes_on.set()
        loading.join(60)
        assert len(past.read(uow, NOW)) == 1


def test_columns_are_what_single_outcomes_are(store: Store) -> None:
    ended(store, 3, 1, 2)
    with store.write() as uow:
        uow.benchmarks.add(a_benchmark("b-4"))
        uow.attempts.add_outcome(an_outcome("b-4", target_uid=None))  # nobody named its board
    with store.read() as uow:
        outcomes = sorted(uow.attempts.outcomes(), key=lambda each: each.seq)
        columns = uow.attempts.past_runs_after(0, newest=9)
        assert list(History(columns)) == [past_run(each) for each in outcomes[:3]]
