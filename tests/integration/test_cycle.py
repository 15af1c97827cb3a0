"""The cycle: what it reads, and whom it tells first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.cycle import EXPLAINED_TOGETHER
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.benchmarks import SqlBenchmarks
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


def test_submissions_do_not_wait_until_thousands_are_told_why_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction says so of a few: whoever else writes has its turn between them."""
    lab = Lab(tmp_path)  # without a board
    ids = [lab.submit() for _ in range(2 * EXPLAINED_TOGETHER + 1)]
    told: list[int] = []
    transact = SqlStore.transact

    def stored_waiting(store: SqlStore) -> int:
        with store.read() as uow:
            return sum(uow.benchmarks.counts_by_waiting_reason().values())

    def noted(self: SqlStore, work: Callable[[UnitOfWork], T]) -> T:
        before = stored_waiting(self)
        done = transact(self, work)
        told.append(stored_waiting(self) - before)
        return done

    monkeypatch.setattr(SqlStore, "transact", noted)
    lab.cycle.run()
    assert sum(told) == len(ids)
    assert max(told) <= EXPLAINED_TOGETHER
    with lab.store.read() as uow:
        assert all(uow.cycles.explanation(each) is not None for each in ids)
    lab.store.close()


def test_who_is_placed_is_handed_over_before_others_are_told_why_they_wait(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    first = lab.submit()
    lab.clock.forward(1)
    second = lab.submit()
    seen: list[object] = []

    def hand_over(job_ids: Sequence[str]) -> None:
        (attempt,) = lab.attempts(first)
        seen.append((list(job_ids) == [attempt.job_id], lab.show(second).waiting))

    lab.cycle.run(hand_over)
    waiting = lab.show(second).waiting
    assert seen == [(True, None)]
    assert waiting is not None
    assert waiting.reason is WaitingReason.PRIORITY
    lab.cycle.run(hand_over)
    assert len(seen) == 1  # nobody was placed
    lab.store.close()


def test_boards_are_looked_at_while_it_is_written_down_that_one_fell_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, A)
    first = lab.submit()
    lab.clock.forward(1)
    second = lab.submit()
    job_id = lab.running(first)
    lab.upload(job_id)
    seen: list[tuple[Status, Status]] = []

    def look() -> None:
        seen.append((lab.show(first).status, lab.show(second).status))
        lab.cycle.look()

    lab.reconciler.run(ended=look)
    assert seen == []  # its task runs
    lab.cluster.end(job_id)
    lab.reconciler.run(ended=look)
    assert seen == [(Status.RUNNING, Status.PENDING)]
    assert lab.show(first).status is Status.COMPLETED
    with monkeypatch.context() as patched:
        patched.delattr(FakeCluster, "hosts")  # nobody asks again
        lab.cycle.run(looked=True)
    assert lab.show(second).status is Status.SCHEDULED
    lab.store.close()


def test_what_is_handed_over_is_waited_for_until_it_is_done_or_too_long(
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
