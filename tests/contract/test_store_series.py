"""Series: what every store keeps to of watched series and their changes, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event, text

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.series import WatchedSeries
from edgeyard.scheduler.model.series_changes import ACTIVE_ALERTS, ALERTS, ChangeStatus
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.rows import benchmark_row
from edgeyard.scheduler.store.series import with_flat_key
from edgeyard.scheduler.store.tables import benchmarks, watched_series
from tests.builders import records as make
from tests.builders.series import change, key


def test_a_series_waits_since_its_first_new_point_and_those_that_wait_longest_are_first(
    store: SqlStore,
) -> None:
    first, second = key(), key(lineage="other")
    with store.write() as uow:
        uow.series.mark_due([first], make.at(2))
        uow.series.mark_due([second], make.at(1))
        uow.series.mark_due([first, second], make.at(9))
    with store.read() as uow:
        due = uow.series.due(limit=10)
        assert [(each.key, each.due_since) for each in due] == [
            (second, make.at(1)),
            (first, make.at(2)),
        ]
        assert len(uow.series.due(limit=1)) == 1
    looked = replace(due[0], due_since=None, looked_at=make.at(10), threshold=0.05)
    looked = replace(looked, threshold_at=make.at(10), alert_unconfirmed=True)
    with store.write() as uow:
        uow.series.save_watched(looked)
        uow.series.mark_due([first], make.at(11))
    with store.read() as uow:
        assert uow.series.watched(second.series_id) == looked
        assert [each.key for each in uow.series.due(limit=10)] == [first]
        known = uow.series.watched_many([first.series_id, second.series_id, "series-none"])
        assert {each.key for each in known} == {first, second}
        with pytest.raises(NotFound):
            uow.series.watched("series-none")


def test_the_cursor_of_the_watch_is_stored(store: SqlStore) -> None:
    with store.read() as uow:
        assert uow.series.seen_seq() == 0
    for seq in (7, 9):
        with store.write() as uow:
            uow.series.set_seen_seq(seq)
    with store.read() as uow:
        assert uow.series.seen_seq() == 9


def test_a_change_comes_back_as_it_was_stored(store: SqlStore) -> None:
    whole = change(
        status=ChangeStatus.CONFIRMED,
        alert_id="alert-0",
        check_ids=("check-1", "check-2"),
        confirmed_size=0.051,
        confirmed_low=0.04,
        confirmed_high=0.06,
        reason="the slowdown is more than 2.50%",
        cause="model",
        blame="the model",
        not_tested=("the firmware", "others"),
        reopened_at=make.at(3),
        ended_at=make.at(4),
        by_user_id="alice",
        note="known",
    )
    with store.write() as uow:
        uow.series.add_change(whole)
    with store.read() as uow:
        assert uow.series.change(whole.change_id) == whole
        with pytest.raises(NotFound):
            uow.series.change("alert-none")


def test_a_series_has_one_change_that_is_not_decided(store: SqlStore) -> None:
    with store.write() as uow:
        uow.series.add_change(change(1))
        uow.series.add_change(change(2, key=key(lineage="other", target_uid="x-1")))
        uow.series.add_change(change(4, key=key(lineage="other")))
        uow.series.add_change(change(5, key=key(lineage="other", user_id="bob")))
        with pytest.raises(Conflict):
            uow.series.add_change(change(3))
        uow.series.save_change(change(1, status=ChangeStatus.CONFIRMING))
        uow.series.save_change(change(1, status=ChangeStatus.NOISE, ended_at=make.at(9)))
        uow.series.add_change(change(3))
    with store.read() as uow:
        undecided = uow.series.undecided()  # of each board one of each owner that is suspected
        assert [each.change_id for each in undecided] == ["alert-2", "alert-3", "alert-5"]
        assert uow.series.confirming() == []
    with store.write() as uow:
        uow.series.save_change(change(3, status=ChangeStatus.CONFIRMING))
    with store.read() as uow:
        undecided = uow.series.undecided()
        ids = [each.change_id for each in undecided]
        assert ids == ["alert-2", "alert-3", "alert-4", "alert-5"]
        assert [each.change_id for each in uow.series.confirming()] == ["alert-3"]
        of_series = uow.series.changes_of([key().series_id], limit=10)
        assert [each.change_id for each in of_series] == ["alert-3", "alert-1"]
        noise = uow.series.changes_of([key().series_id], limit=1, status={ChangeStatus.NOISE})
        assert [each.change_id for each in noise] == ["alert-1"]  # although another one is newer


def test_a_change_moves_as_its_life_allows(store: SqlStore) -> None:
    with store.write() as uow:
        uow.series.add_change(change(1, status=ChangeStatus.NOISE))
    with store.write() as uow, pytest.raises(Conflict, match="noise and can't become confirmed"):
        uow.series.save_change(change(1, status=ChangeStatus.CONFIRMED))


def test_changes_are_listed_by_owner_status_lineage_and_board(store: SqlStore) -> None:
    with store.write() as uow:
        for number, status in enumerate(
            (ChangeStatus.CONFIRMED, ChangeStatus.OPEN, ChangeStatus.NOISE, ChangeStatus.RESOLVED)
        ):
            uow.series.add_change(change(number, status=status))
        foreign = key(user_id="bob", lineage="b", target_uid="x-1")
        uow.series.add_change(change(9, key=foreign, status=ChangeStatus.CONFIRMED))

    def ids(**wanted: object) -> Sequence[str]:
        known = {"user_id": None, "status": ALERTS, "lineage": None, "target_uid": None}
        found, cursor = [], None
        with store.read() as uow:
            while True:
                some, cursor = uow.series.changes_page(
                    **(known | wanted),  # type: ignore[arg-type]
                    limit=2,
                    cursor=cursor,
                )
                found += [each.change_id for each in some]
                if cursor is None:
                    return found

    assert ids() == ["alert-9", "alert-3", "alert-1", "alert-0"]
    assert ids(user_id="alice", status=ACTIVE_ALERTS) == ["alert-1", "alert-0"]
    assert ids(target_uid="x-1", status={ChangeStatus.CONFIRMED}) == ["alert-9"]
    assert ids(lineage="b") == ids(target_uid="x-1") == ["alert-9"]
    with store.read() as uow:
        assert (uow.series.count_alerts(None), uow.series.count_alerts("alice")) == (3, 2)


def test_a_clock_that_is_set_leaves_how_long_changes_wait(store: SqlStore) -> None:
    with store.write() as uow:
        uow.series.add_change(change(1))
        uow.series.add_change(change(2, status=ChangeStatus.NOISE))
        uow.series.move_times(3600.0)
    with store.read() as uow:
        assert uow.series.change("alert-1").found_at == make.at(1) + timedelta(hours=1)
        assert uow.series.change("alert-2").found_at == make.at(2)


@contextmanager
def plan_of_first(store: SqlStore) -> Iterator[list[str]]:
    """Collect the lines of the plan of the first statement that is read."""
    plan: list[str] = []
    sqlite = store._reader.dialect.name == "sqlite"

    def note(connection: object, _: object, statement: str, values: object, *__: object) -> None:
        if plan or not statement.startswith(("SELECT", "WITH")):
            return
        with store._reader.connect() as other:
            how = "EXPLAIN QUERY PLAN " if sqlite else "EXPLAIN "
            found = other.exec_driver_sql(how + statement, values)  # type: ignore[arg-type]
            plan.extend(str(row[3 if sqlite else 0]).strip() for row in found)

    event.listen(store._reader, "before_cursor_execute", note)
    yield plan
    event.remove(store._reader, "before_cursor_execute", note)


@pytest.fixture
def large_store(store: SqlStore) -> SqlStore:
    """10,000 series of alice's with a point each that was not looked at, and one with more."""
    like = replace(make.a_benchmark(), user_id="alice", status=Status.COMPLETED)
    row = benchmark_row(replace(like, target_uid=key().target_uid, ended_at=make.at(1)))
    watched = WatchedSeries(key=key(), due_since=make.at(1))
    names = [f"series {number:05}" for number in range(10_000)]
    points = [{**row, "benchmark_id": each, "series": each, "work": "abc"} for each in names]
    points += [
        {**points[1], "benchmark_id": f"more {number:03}", "ended_at": make.at(number)}
        for number in range(100)
    ]
    with store.write() as uow:
        uow.tx.insert_all(benchmarks, points)
        due = with_flat_key(watched)
        uow.tx.insert_all(
            watched_series, [{**due, "series_id": each, "lineage": each} for each in names]
        )
    if store._writer.dialect.name == "postgresql":
        with store._writer.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))
    return store


ALL = BenchmarkFilter(include_deleted=False)
ALICE = replace(ALL, user_id="alice")
ONE = "series 00001"
COMPLETED = frozenset({Status.COMPLETED})

_POINTS, _SERIES = "ix_benchmarks_points", "ix_benchmarks_series"

READS: Sequence[tuple[Sequence[str], bool, Callable[[UnitOfWork], object]]] = [
    (["ix_watched_series_due"], True, lambda uow: uow.series.due(limit=50)),
    ([_POINTS], True, lambda uow: uow.benchmarks.series(ALICE, limit=100, cursor=None)),
    ([_POINTS], True, lambda uow: uow.benchmarks.series(ALL, limit=100, cursor=None)),
    (
        [_POINTS, _SERIES],
        False,
        lambda uow: uow.series.points(key(lineage=ONE), until=make.at(600), limit=60),
    ),
    (
        [_SERIES],
        False,
        lambda uow: uow.benchmarks.series(replace(ALL, series=ONE), limit=100, cursor=None),
    ),
    (
        [_SERIES],
        False,
        lambda uow: uow.benchmarks.page(
            replace(ALICE, series=ONE, status=COMPLETED), limit=500, cursor=None
        ),
    ),
]
"""Indexes by which each may be read, and whether it comes in the order of that index; the rows of
one lineage may be sorted."""


def test_of_ten_thousand_series_those_that_are_shown_or_due_are_read_by_an_index(
    large_store: SqlStore,
) -> None:
    sorts = ("USE TEMP B-TREE FOR ORDER BY", "USE TEMP B-TREE FOR GROUP BY", "Sort ", "HashAgg")
    for indexes, in_order, read in READS:
        with plan_of_first(large_store) as plan, large_store.read() as uow:
            read(uow)
        shown = "\n".join(plan)
        assert any(each in shown for each in indexes), shown
        lines = [each.removeprefix("->").strip() for each in plan]
        if in_order:
            assert not [each for each in lines if each.startswith(sorts)], shown
