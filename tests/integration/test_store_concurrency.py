"""Many writers at once: no lost change, no missed event, and an end to every wait."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from edgeyard.errors import Conflict, Unavailable
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.write_queue import WriteQueue
from tests.builders import records as make
from tests.builders.cluster import eventually


def _together(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(0..count-1)`` in as many threads that start together; their errors are ours."""
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(run, range(count)))


def test_twenty_threads_lose_no_update(store: SqlStore) -> None:
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark(priority=0))

    def work(number: int) -> None:
        for turn in range(10):
            with store.write() as uow:
                benchmark = uow.benchmarks.get("b-1")
                uow.benchmarks.save(replace(benchmark, priority=(benchmark.priority or 0) + 1))
                uow.benchmarks.add(make.a_benchmark(f"b-{number}-{turn}"))
                uow.log.append(make.an_event())

    _together(20, work)
    with store.read() as uow:
        changed = uow.benchmarks.get("b-1")
        assert (changed.priority, changed.version) == (200, 200)
        assert uow.benchmarks.counts_by_status()[Status.PENDING] == 201
        assert uow.benchmarks.count(BenchmarkFilter(user_id="ada")) == 201
        assert uow.log.last_seq() == 200


def test_of_many_that_add_the_same_id_one_succeeds(store: SqlStore) -> None:
    won: list[int] = []

    def work(number: int) -> None:
        try:
            with store.write() as uow:
                uow.benchmarks.add(make.a_benchmark(user_id=f"user-{number}"))
                uow.attempts.add_all([make.an_attempt()])
            won.append(number)
        except Conflict:
            pass

    _together(8, work)
    with store.read() as uow:
        assert [uow.benchmarks.get("b-1").user_id] == [f"user-{number}" for number in won]
        assert len(uow.attempts.live()) == 1


def test_a_reader_of_the_log_misses_no_event(store: SqlStore) -> None:
    writers, each = 6, 20
    done = threading.Event()
    seen: list[tuple[int, str]] = []

    def follow() -> None:
        last = 0
        while True:
            ended = done.is_set()
            with store.read() as uow:
                events = uow.log.events(after=last, limit=7)
            seen.extend((event.seq, event.kind) for event in events)
            if events:
                last = events[-1].seq
            elif ended:
                return

    def write(number: int) -> None:
        for turn in range(each):
            try:
                with store.write() as uow:
                    uow.benchmarks.add(make.a_benchmark(f"b-{number}-{turn}"))
                    for part in "ab":
                        uow.log.append(make.an_event(f"{number}-{turn}-{part}"))
                    if turn % 5 == 4:
                        raise RuntimeError("rolled back")
            except RuntimeError:
                continue

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        _together(writers, write)
    finally:
        done.set()
        reader.join(60)
    kept = {f"{n}-{t}-{p}" for n in range(writers) for t in range(each) if t % 5 != 4 for p in "ab"}
    assert [seq for seq, _ in seen] == list(range(1, len(kept) + 1))
    assert {kind for _, kind in seen} == kept
    place = {kind: seq for seq, kind in seen}
    assert all(place[k] + 1 == place[k[:-1] + "b"] for k in kept if k.endswith("a"))


def test_two_stores_on_one_database_write_in_turn(database_url: str) -> None:
    stores = [SqlStore(database_url) for _ in range(2)]

    def work(number: int) -> None:
        for turn in range(20):
            with stores[number % 2].write() as uow:
                uow.benchmarks.add(make.a_benchmark(f"b-{number}-{turn}"))
                uow.log.append(make.an_event())

    _together(4, work)
    with stores[0].read() as uow:
        assert uow.log.last_seq() == 80
        assert uow.benchmarks.count(BenchmarkFilter()) == 80
    for store in stores:
        store.close()


# --- a database that does not answer ------------------------------------------------------------


def test_a_locked_database_is_unavailable_for_writers_alone(sqlite_url: str) -> None:
    store = SqlStore(sqlite_url, wait_s=0.05)
    blocker = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable), store.write():
        pass
    with store.read() as uow:
        assert uow.log.last_seq() == 0
    store.ping()
    blocker.execute("ROLLBACK")
    blocker.close()
    with store.write() as uow:
        uow.log.append(make.an_event())
    store.close()


def test_a_full_database_is_unavailable_and_recovers(sqlite_url: str) -> None:
    store = SqlStore(sqlite_url)

    def limit(pages: int) -> None:
        with store._writer.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    limit(1)  # SQLite makes it as many as there are
    big = make.a_benchmark(description=make.a_description(extra={"x": "x" * 10**6}))
    with pytest.raises(Unavailable, match="room"), store.write() as uow:
        uow.benchmarks.add(big)
    limit(10**6)
    with store.write() as uow:
        uow.benchmarks.add(big)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()
    store.close()


def test_a_commit_is_synced_to_disk(sqlite_store: SqlStore) -> None:
    with sqlite_store._writer.connect() as connection:
        full = 2
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == full
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


@pytest.mark.postgres
def test_a_cut_connection_is_unavailable_and_the_next_one_works(postgres_url: str) -> None:
    store = SqlStore(postgres_url)
    with (  # noqa: PT012
        psycopg.connect(postgres_url, autocommit=True) as other,
        pytest.raises(Unavailable),
        store.write() as uow,
    ):
        uow.benchmarks.add(make.a_benchmark())
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        uow.benchmarks.add(make.a_benchmark("b-2"))
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark())
    store.ping()
    store.close()


@pytest.mark.postgres
def test_a_closed_store_leaves_no_connection_behind(postgres_url: str) -> None:
    """Neither of a thread that was reading, nor of one that has not noticed yet."""
    store = SqlStore(postgres_url)
    with store.read() as uow:
        store.close()
        assert not uow.benchmarks.get_many(["b-1"])
    store.ping()
    others = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(postgres_url, autocommit=True) as other:
        eventually(lambda: other.execute(others).fetchone() == (0,), "no connection is left")


@pytest.mark.postgres
def test_a_locked_benchmark_is_waited_for_up_to_the_timeout(postgres_url: str) -> None:
    store = SqlStore(postgres_url)
    impatient = SqlStore(postgres_url, wait_s=0.05)
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark())
    with store.write() as uow:
        uow.benchmarks.get("b-1")
        with pytest.raises(Unavailable), impatient.write() as other:
            other.benchmarks.get("b-1")
        with impatient.read() as reading:
            assert reading.benchmarks.get("b-1")
    store.close()
    impatient.close()


@pytest.mark.postgres
def test_a_deadlock_is_tried_again_until_both_are_done(postgres_url: str) -> None:
    store = SqlStore(postgres_url)
    names = ("b-0", "b-1")
    with store.write() as uow:
        for name in names:
            uow.benchmarks.add(make.a_benchmark(name))
    both_hold_one = threading.Barrier(2)
    tries: list[int] = []

    def work(number: int) -> None:
        def change(uow: UnitOfWork) -> None:
            tries.append(number)
            first = uow.benchmarks.get(names[number])
            if tries.count(number) == 1:
                both_hold_one.wait(60)
            second = uow.benchmarks.get(names[1 - number])
            for each in (first, second):
                uow.benchmarks.save(replace(each, progress=(each.progress or 0.0) + 1.0))

        store.transact(change)

    _together(2, work)
    assert sorted(tries) in ([0, 0, 1], [0, 1, 1])
    with store.read() as uow:
        assert [uow.benchmarks.get(name).progress for name in names] == [2.0, 2.0]
    store.close()


def test_a_transaction_that_was_overtaken_is_run_again_with_what_is_stored_now(
    store: SqlStore,
) -> None:
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-1"))
    with store.read() as uow:
        seen = uow.benchmarks.get("b-1")
    tries = 0

    def change(uow: UnitOfWork) -> float | None:
        nonlocal tries
        tries += 1
        # The first try decides about what was read before the transaction.
        current = seen if tries == 1 else uow.benchmarks.get("b-1")
        return uow.benchmarks.save(replace(current, progress=50.0)).progress

    with store.write() as uow:
        uow.benchmarks.save(replace(seen, phase="measuring"))
    assert store.transact(change) == 50.0
    with store.read() as uow:
        stored = uow.benchmarks.get("b-1")
    assert (tries, stored.phase, stored.progress) == (2, "measuring", 50.0)


def test_what_is_overtaken_every_time_is_unavailable_and_no_conflict(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeyard.scheduler.store.sql_store.RETRY_DELAYS_S", (0.0, 0.0))
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-1"))
        seen = uow.benchmarks.get("b-1")
        uow.benchmarks.save(seen)
    with pytest.raises(Unavailable):
        store.transact(lambda uow: uow.benchmarks.save(seen))
    with store.read() as uow:
        assert uow.benchmarks.get("b-1").version == seen.version + 1


def test_a_refusal_of_the_unit_of_work_itself_is_not_tried_again(store: SqlStore) -> None:
    tries: list[str] = []

    def refuse(uow: UnitOfWork) -> None:
        tries.append("once")
        raise Conflict("it has ended")

    with pytest.raises(Conflict, match="it has ended"):
        store.transact(refuse)
    assert tries == ["once"]


# --- turns --------------------------------------------------------------------------------------


def test_nobody_waits_for_ever_while_others_take_turns() -> None:
    turns = WriteQueue(wait_s=30.0)
    inside = 0
    finished: list[int] = []

    def work(number: int) -> None:
        nonlocal inside
        for _ in range(200):
            with turns.turn():
                inside += 1
                assert inside == 1
                inside -= 1
        finished.append(number)

    _together(16, work)
    assert sorted(finished) == list(range(16))


def test_a_writer_that_times_out_gets_unavailable_and_the_next_one_writes() -> None:
    turns = WriteQueue(wait_s=0.01)
    with turns.turn(), pytest.raises(Unavailable), turns.turn():
        pass
    with turns.turn():
        pass


def test_a_store_of_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="its folder is missing"):
        SqlStore(f"sqlite:///{tmp_path}/missing/edgeyard.db")
