"""The cycle: what it reads, and whom it tells first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from edgeyard.devices.model import Host
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.charging import set_credits
from edgeyard.scheduler.engine.committer import MAX_REASONS_PER_COMMIT
from edgeyard.scheduler.engine.cycle import MAX_IDLE_S
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.benchmarks import SqlBenchmarks
from edgeyard.scheduler.store.sql_store import SqlUnitOfWork
from tests.builders.engine import A, B, Lab
from tests.fakes.cluster import FakeCluster

T = TypeVar("T")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of benchmarks that were read together."""
    found: list[str] = []
    get_many = SqlBenchmarks.get_many

    def noted(self: SqlBenchmarks, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        found.extend(benchmark_ids)
        return get_many(self, benchmark_ids)

    monkeypatch.setattr(SqlBenchmarks, "get_many", noted)
    return found


def test_only_what_others_changed_is_read_again(tmp_path: Path, read: list[str]) -> None:
    lab = Lab(tmp_path, A, B)
    ids = [lab.submit() for _ in range(5)]
    lab.cycle.run()
    assert sorted(read) == sorted(ids)
    read.clear()
    lab.cycle.run()
    assert read == []
    waits = [each for each in ids if lab.show(each).status is Status.PENDING]
    assert len(waits) == 3
    with lab.store.write() as uow:
        lifecycle.hold(uow, waits[0], lab.clock.now(), "ann", True)
    lab.cycle.run()
    assert read == [waits[0]]
    read.clear()
    lab.cycle.run()
    assert read == []
    lab.store.close()


def test_submissions_do_not_wait_until_thousands_have_their_waiting_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction says so of a few: whoever else writes has its turn between them."""
    lab = Lab(tmp_path)  # without a board
    ids = [lab.submit() for _ in range(2 * MAX_REASONS_PER_COMMIT + 1)]
    batches: list[int] = []
    transact = SqlStore.transact

    def stored_waiting(store: SqlStore) -> int:
        with store.read() as uow:
            return sum(uow.benchmarks.counts_by_waiting_reason().values())

    def noted(self: SqlStore, work: Callable[[UnitOfWork], T]) -> T:
        before = stored_waiting(self)
        done = transact(self, work)
        batches.append(stored_waiting(self) - before)
        return done

    monkeypatch.setattr(SqlStore, "transact", noted)
    lab.cycle.run()
    assert sum(batches) == len(ids)
    assert max(batches) <= MAX_REASONS_PER_COMMIT
    with lab.store.read() as uow:
        assert all(uow.cycles.explaining_cycle(each) is not None for each in ids)
    lab.store.close()


def test_placements_can_be_dispatched_before_the_reasons_of_others_are_stored(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A)
    first = lab.submit()
    lab.clock.forward(1)
    second = lab.submit()
    lab.refresher.refresh()
    outcome = lab.cycle.place()
    (attempt,) = lab.attempts(first)
    assert outcome.placed == (attempt.job_id,)
    assert lab.show(second).waiting is None
    lab.cycle.explain(outcome)
    waiting = lab.waiting(second)
    assert waiting.reason is WaitingReason.PRIORITY
    assert outcome.waiting == {second: waiting}
    assert lab.cycle.run().placed == ()
    lab.store.close()


def test_an_outcome_names_who_was_placed_who_expired_and_why_others_wait(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    late = lab.submit(deadline=lab.clock.now() + timedelta(seconds=5))
    poor = lab.submit("bob")
    lab.clock.forward(10)
    with lab.store.write() as uow:
        set_credits(uow, "bob", 0.0, lab.clock.now(), "op")
    taken = lab.submit()
    outcome = lab.cycle.run()
    assert outcome.active.expired == (late,)
    assert [each.benchmark_id for each in outcome.active.placed] == [taken]
    assert outcome.waiting[poor].reason is WaitingReason.BUDGET
    assert set(outcome.waiting) == {poor}
    assert (outcome.preempted, outcome.active.refused, len(outcome.live)) == ((), (), 3)
    assert outcome.seconds >= 0.0
    lab.store.close()


def test_boards_are_asked_for_while_it_is_stored_that_one_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    first = lab.submit()
    lab.clock.forward(1)
    second = lab.submit()
    job_id = lab.running(first)
    lab.upload(job_id)
    asked: list[str] = []
    hosts = FakeCluster.hosts

    def noted(cluster: FakeCluster) -> tuple[Host, ...]:
        asked.append(threading.current_thread().name)
        return hosts(cluster)

    monkeypatch.setattr(FakeCluster, "hosts", noted)
    seen: list[tuple[Status, Status]] = []

    def prefetch() -> None:
        seen.append((lab.show(first).status, lab.show(second).status))
        lab.refresher.prefetch()

    lab.reconciler.run(ended=prefetch)
    assert seen == []  # its task runs
    lab.cluster.end(job_id)
    lab.reconciler.run(ended=prefetch)
    assert seen == [(Status.RUNNING, Status.PENDING)]
    assert lab.show(first).status is Status.COMPLETED
    lab.refresher.refresh()  # takes the answer that was asked for
    assert len(asked) == 1
    lab.cycle.place()
    assert lab.show(second).status is Status.SCHEDULED
    lab.refresher.refresh()
    assert len(asked) == 2
    lab.store.close()


def test_handed_over_work_is_awaited_up_to_a_limit(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A)
    waits = lab.submit()
    dispatcher = lab.dispatcher
    dispatcher.await_done(0.0)  # nothing is under way
    (job_id,) = lab.decide()
    dispatcher.put(job_id)
    began_s = time.monotonic()
    dispatcher.await_done(0.05)
    assert time.monotonic() - began_s >= 0.05
    with ThreadPoolExecutor(1) as waiter:
        called = waiter.submit(dispatcher.await_done, 60.0)
        lab.dispatch()
        called.result(10.0)
    assert lab.attempts(waits)[0].state is AttemptState.QUEUED
    lab.store.close()


def test_with_an_empty_queue_nothing_is_decided_until_something_changes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B)
    assert not lab.cycle.run().idle
    assert lab.cycle.run().idle
    drained = BoardOverride(
        target_uid=A,
        drained=True,
        reason="repair",
        by_user_id="op",
        at=lab.clock.now(),
    )
    with lab.store.write() as uow:
        uow.board_overrides.put(drained)
    assert not lab.cycle.run().idle  # its record shows the lab as it is
    assert lab.cycle.run().idle
    taken = lab.submit()
    outcome = lab.cycle.run()
    assert not outcome.idle
    assert [each.benchmark_id for each in outcome.active.placed] == [taken]
    outcome = lab.cycle.run()
    assert outcome.idle
    assert (outcome.placed, outcome.active.seq) == ((), None)
    lab.clock.forward(MAX_IDLE_S)
    assert not lab.cycle.run().idle  # forecasts of what runs are made from it
    lab.store.close()


def test_a_cycle_reads_its_input_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    lab.submit()
    lab.submit()
    lab.cycle.run()
    reads: list[int] = []
    read = SqlStore.read

    def counted(self: SqlStore) -> AbstractContextManager[SqlUnitOfWork]:
        reads.append(1)
        return read(self)

    monkeypatch.setattr(SqlStore, "read", counted)
    outcome = lab.cycle.place()  # one benchmark waits, and nothing is new
    assert not outcome.idle
    assert len(reads) == 1
    lab.store.close()
