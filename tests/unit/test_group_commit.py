"""Writes that share a transaction: each in full or not at all, whatever the others do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.benchmark_api.submission.group_commit import GroupCommit
from edgeyard.errors import Conflict, InvalidInput, Unavailable
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.sql_store import SqlUnitOfWork

Group = GroupCommit[UnitOfWork]
NOW = datetime(2026, 11, 21, tzinfo=UTC)


class CountingStore(SqlStore):
    """Counts transactions; `gate` holds the first of them until it is opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder}/db")
        self.writes = 0
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.broken = False

    @contextmanager
    def write(self) -> Iterator[SqlUnitOfWork]:
        self.writes += 1
        self.entered.set()
        self.gate.wait(60)
        if self.broken:
            raise Unavailable("the disk is gone")
        with super().write() as uow:
            yield uow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    made = CountingStore(tmp_path)
    yield made
    made.close()


def add(user_id: str) -> Callable[[UnitOfWork, None], str]:
    def change(uow: UnitOfWork, _: None) -> str:
        uow.accounts.add_user(User(user_id=user_id, role=Role.SUBMITTER, created_at=NOW))
        return user_id

    return change


def adding(user_id: str) -> Callable[[Group], object]:
    return lambda group: group.run(nothing, add(user_id))


def nothing(uow: UnitOfWork) -> None:
    return None


def grouping(store: SqlStore) -> Group:
    """Looks see the unit of work itself."""
    return GroupCommit(store, lambda uow: uow)


def together(store: CountingStore, calls: list[Callable[[Group], object]]) -> list[object]:
    """Run calls so that all but the first gather while the first one writes; their outcomes."""
    group = grouping(store)

    def outcome(call: Callable[[Group], object]) -> object:
        try:
            return call(group)
        except Exception as error:
            return type(error)

    with ThreadPoolExecutor(len(calls)) as pool:
        first = pool.submit(outcome, calls[0])
        assert store.entered.wait(60)
        rest = [pool.submit(outcome, call) for call in calls[1:]]
        while len(group._waiting) < len(rest):
            threading.Event().wait(0.001)
        store.gate.set()
        return [future.result(20) for future in (first, *rest)]


def users(store: SqlStore) -> set[str]:
    with store.read() as uow:
        return {user.user_id for user in uow.accounts.users()}


def test_changes_that_gather_share_one_transaction(store: CountingStore) -> None:
    names = [f"u{number}" for number in range(20)]
    calls = [adding(name) for name in names]
    assert together(store, calls) == names
    assert users(store) == set(names)
    assert store.writes == 2


def test_looks_of_one_transaction_share_what_they_see_it_through(store: CountingStore) -> None:
    store.gate.set()
    views: list[set[str]] = []

    def view(uow: UnitOfWork) -> set[str]:
        views.append({user.user_id for user in uow.accounts.users()})
        return views[-1]

    group = GroupCommit(store, view)
    seen = [group.run(lambda known: known, lambda uow, known: known) for _ in range(2)]
    assert group.run(lambda known: None, add("a")) == "a"
    assert group.run(lambda known: known, lambda uow, known: known) == {"a"}
    assert [id(each) for each in seen] == [id(each) for each in views[:2]]


def test_one_that_conflicts_does_not_undo_the_others(store: CountingStore) -> None:
    names = ["a", "b", "same", "same", "c"]
    calls = [adding(name) for name in names]
    outcomes = together(store, calls)
    assert sorted(map(str, outcomes)) == sorted(["a", "b", "same", str(Conflict), "c"])
    assert users(store) == {"a", "b", "same", "c"}


def test_what_one_finds_wrong_is_its_own_matter(store: CountingStore) -> None:
    def refuse(uow: UnitOfWork) -> None:
        raise InvalidInput.at("/model", "no such file")

    outcomes = together(
        store,
        [
            lambda group: group.run(nothing, add("a")),
            lambda group: group.run(refuse, add("b")),
            lambda group: group.run(nothing, add("c")),
        ],
    )
    assert outcomes == ["a", InvalidInput, "c"]
    assert users(store) == {"a", "c"}
    assert store.writes == 2


def test_a_store_that_fails_fails_everybody_and_goes_on_later(store: CountingStore) -> None:
    store.broken = True
    calls = [adding(name) for name in "abc"]
    assert together(store, calls) == [Unavailable] * 3
    store.broken = False
    assert grouping(store).run(nothing, add("d")) == "d"
    assert users(store) == {"d"}


def test_a_mistake_in_the_code_reaches_its_callers(store: CountingStore) -> None:
    def broken(uow: UnitOfWork, _: None) -> str:
        raise RuntimeError("a bug")

    store.gate.set()
    group = grouping(store)
    with pytest.raises(RuntimeError):
        group.run(nothing, broken)
    assert group.run(nothing, add("a")) == "a"


def test_many_threads_for_long_lose_and_double_nothing(store: CountingStore) -> None:
    store.gate.set()
    group = grouping(store)
    names = [f"u{number}" for number in range(300)]
    with ThreadPoolExecutor(24) as pool:
        made = list(pool.map(lambda name: group.run(nothing, add(name)), names))
    assert made == names
    assert users(store) == set(names)
