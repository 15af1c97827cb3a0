"""The leader's lease on both databases: one epoch at a time, and no commit of one that is over."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError

from edgeyard.errors import LeadershipLost, NotFound, Unavailable
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Binding
from edgeyard.scheduler.model.leadership import LeaderLease
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import attempts
from tests.builders import records as make
from tests.builders.cluster import eventually

BOARD = "rpi4b-0001-0001"
_HOLDERS = """
    SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock' AND relation = 'leadership'::regclass
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def _take(store: SqlStore, server_id: str) -> LeaderLease:
    with store.write() as uow:
        taken = uow.leadership.take(uow.leadership.current(), server_id, "http://a", make.NOW)
    assert taken is not None
    return taken


def test_each_leader_begins_an_epoch_of_its_own(store: SqlStore) -> None:
    with store.read() as uow:
        assert uow.leadership.current() == LeaderLease(epoch=0, renewals=0, server_id="", url="")
    first = _take(store, "a")
    assert first == LeaderLease(
        epoch=1, renewals=0, server_id="a", url="http://a", since=make.NOW, at=make.NOW
    )
    assert _take(store, "b").epoch == 2


def test_a_lease_that_was_renewed_is_not_taken(store: SqlStore) -> None:
    seen = _take(store, "a")
    with store.write() as uow:
        uow.leadership.renew(seen.epoch, make.NOW)
    with store.write() as uow:
        assert uow.leadership.take(seen, "b", "", make.NOW) is None
        assert uow.leadership.current() == replace(seen, renewals=1)


def test_only_the_present_leader_renews_and_releases(store: SqlStore) -> None:
    old = _take(store, "a")
    new = _take(store, "b")
    with store.write() as uow, pytest.raises(LeadershipLost):
        uow.leadership.renew(old.epoch, make.NOW)
    with store.write() as uow:
        uow.leadership.release(old.epoch)
        assert uow.leadership.current() == new
        uow.leadership.release(new.epoch)
        assert uow.leadership.current().server_id == ""


def test_the_leaders_time_moves_with_its_clock(store: SqlStore) -> None:
    _take(store, "a")
    with store.write() as uow:
        assert uow.leadership.clock() == ""
        uow.leadership.move_time(-40.5, '{"steps": 1}')
        assert uow.leadership.clock() == '{"steps": 1}'
        assert uow.leadership.current().at == make.NOW - timedelta(seconds=40.5)


def test_a_transaction_of_an_epoch_that_is_over_writes_nothing(store: SqlStore) -> None:
    stale = store.fenced(_take(store, "a").epoch)
    with stale.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-1"))
        uow.log.append(make.an_event("board", benchmark_id=None))
    leader = store.fenced(_take(store, "b").epoch)
    with pytest.raises(LeadershipLost), stale.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-2"))
    with pytest.raises(LeadershipLost):
        stale.prune({RetentionClass.EVENTS: make.at(1)})
    with leader.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-3"))
    with stale.read() as uow:
        assert uow.benchmarks.get("b-3")
        with pytest.raises(NotFound):
            uow.benchmarks.get("b-2")


def test_whoever_takes_the_lease_waits_for_transactions_of_the_leader(store: SqlStore) -> None:
    leader = store.fenced(_take(store, "a").epoch)
    seen_by_the_next: list[bool] = []
    began = threading.Event()

    def take_over() -> None:
        began.set()
        with store.write() as uow:
            assert uow.leadership.take(uow.leadership.current(), "b", "", make.NOW)
            seen_by_the_next.append(bool(uow.benchmarks.get_many(["b-1"])))

    thread = threading.Thread(target=take_over)
    with leader.write() as uow:
        thread.start()
        assert began.wait(30)
        thread.join(0.2)  # long enough for a lock that is not there to be missed now and then
        uow.benchmarks.add(make.a_benchmark("b-1"))
        assert not seen_by_the_next
    thread.join(30)
    assert seen_by_the_next == [True]
    with pytest.raises(LeadershipLost), leader.write():
        pass


@pytest.mark.postgres
def test_a_lease_is_renewed_while_transactions_of_the_leader_are_open(postgres_url: str) -> None:
    store = SqlStore(postgres_url)
    impatient = SqlStore(postgres_url, wait_s=0.2)
    epoch = _take(store, "a").epoch
    with store.fenced(epoch).write(), store.fenced(epoch).write(), impatient.write() as uow:
        uow.leadership.renew(epoch, make.NOW)
    store.close()
    impatient.close()


@pytest.mark.postgres
def test_whoever_takes_the_lease_ends_transactions_of_a_leader_that_was_cut_off(
    postgres_url: str,
) -> None:
    """It sent a statement, and never what ends it: to PostgreSQL it is not idle."""
    store = SqlStore(postgres_url, wait_s=1)
    seen = _take(store, "a")
    cut_off = psycopg.connect(postgres_url, autocommit=True)
    cut_off.execute("SET idle_in_transaction_session_timeout = 1")
    cut_off.pgconn.enter_pipeline_mode()
    for statement in (b"BEGIN", b"SELECT epoch FROM leadership FOR KEY SHARE"):
        cut_off.pgconn.send_query_params(statement, None)
    cut_off.pgconn.send_flush_request()
    cut_off.pgconn.flush()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        eventually(lambda: other.execute(_HOLDERS).fetchone() == (1,), "it holds the lease")
    with pytest.raises(Unavailable), store.write() as uow:  # the transaction is not old enough
        uow.leadership.take(seen, "b", "", make.NOW, 3600)
    with store.write() as uow:
        taken = uow.leadership.take(seen, "b", "", make.NOW, 0.5)
    assert taken is not None
    assert taken.epoch == 2
    cut_off.close()
    store.close()


# --- a board that is decided is held once ---------------------------------------------------------


def test_a_decided_board_is_held_by_one_live_attempt(store: SqlStore) -> None:
    first = make.an_attempt("b-1", target_uid=BOARD)
    second = make.an_attempt("b-2", target_uid=BOARD)
    with store.write() as uow:
        for name in ("b-1", "b-2"):
            uow.benchmarks.add(make.a_benchmark(name))
        assert uow.attempts.add_all([first, second]) == [first]
        ended = uow.attempts.save(replace(first, state=AttemptState.ENDED))
        assert uow.attempts.add_all([second]) == [second]
        assert ended.target_uid == BOARD
        assert uow.attempts.holders() == {BOARD: "b-2"}


def test_an_assumed_board_may_be_another_attempts(store: SqlStore) -> None:
    loose = make.an_attempt("b-1", binding=Binding.LOOSE, target_uid=BOARD)
    filtered = make.an_attempt("b-2", binding=Binding.FILTERED, target_uid=BOARD)
    strict = make.an_attempt("b-3", target_uid=BOARD)
    with store.write() as uow:
        for each in (loose, filtered, strict):
            uow.benchmarks.add(make.a_benchmark(each.benchmark_id))
        assert uow.attempts.add_all([loose, filtered, strict]) == [loose, filtered, strict]


def test_the_database_itself_keeps_a_board_from_two_attempts(
    store: SqlStore, database_url: str
) -> None:
    with store.write() as uow:
        for number in (1, 2):
            uow.benchmarks.add(make.a_benchmark(f"b-{number}"))
            uow.attempts.add_all(
                [make.an_attempt(f"b-{number}", target_uid=f"rpi4b-0001-000{number}")]
            )
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(attempts.update().values(target_uid=BOARD))
    engine.dispose()
