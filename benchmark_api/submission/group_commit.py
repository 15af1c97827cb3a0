"""Writes of many requests in one transaction: they share the lock and the wait for the disk.

A commit that survives a power cut costs more than all that a submission writes. So a request
that finds no other one writing writes for all that have gathered; each is answered once the shared
commit is safe.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from edgeyard.errors import EdgeyardError, Unavailable
from edgeyard.scheduler.model.acts import acting, acting_as
from edgeyard.scheduler.ports import Store, UnitOfWork

MAX_GROUP = 64
"""Changes of one transaction: the first waits for the last of them."""

_View = TypeVar("_View")
_Found = TypeVar("_Found")
_Made = TypeVar("_Made")
_Seen = TypeVar("_Seen", contravariant=True)


class GroupCommit(Generic[_View]):
    """Runs changes of many threads, each in full or not at all. Thread-safe."""

    def __init__(self, store: Store, view: Callable[[UnitOfWork], _View]) -> None:
        """Nothing is written before `run`.

        Args:
            view: What all looks of one transaction see it through; it may keep what it found that
                no change touches.
        """
        self._store = store
        self._view = view
        self._lock = threading.Lock()
        self._waiting: deque[_Runnable[_View]] = deque()
        self._led = False

    def run(
        self,
        look: Callable[[_View], _Found],
        change: Callable[[UnitOfWork, _Found], _Made],
        user_id: str = "",
    ) -> _Made:
        """Look and change in one transaction, maybe others' too; returns once it is committed.

        Args:
            look: Only reads; what it raises is this caller's alone.
            change: Writes; where it raises, everybody's changes are tried again one by one.
            user_id: Whose change it is: all who share a transaction lock users in one order.

        Raises:
            Unavailable: As `Store.write`; and whatever the two raise.
        """
        item = _Item(look, change, user_id)
        with self._lock:
            self._waiting.append(item)
            leads = not self._led
            self._led = True
        if not leads:
            item.turn.wait()
        if not item.done:
            self._lead()
        return item.result()

    def _lead(self) -> None:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(MAX_GROUP, len(self._waiting)))]
        try:
            self._commit(group)
        finally:
            with self._lock:
                successor = self._waiting[0] if self._waiting else None
                self._led = successor is not None
            for item in group:
                item.done = True
                item.turn.set()
            if successor is not None:
                successor.turn.set()

    def _commit(self, group: Sequence[_Runnable[_View]]) -> None:
        try:
            with acting_as(None):
                self._store.transact(partial(self._run, group))
        except Exception as error:
            # Trying a store again that can't be had now would only keep everybody waiting.
            alone = len(group) == 1 or isinstance(error, Unavailable)
            if alone or not isinstance(error, EdgeyardError):
                for item in group:
                    item.failed(error)
                return
            for item in group:
                self._commit([item])

    def _run(self, group: Sequence[_Runnable[_View]], uow: UnitOfWork) -> None:
        view = self._view(uow)
        for item in sorted(group, key=lambda each: each.user_id):
            item.run(view, uow)


class _Runnable(Protocol[_Seen]):
    done: bool
    turn: threading.Event
    user_id: str

    def run(self, view: _Seen, uow: UnitOfWork) -> None: ...
    def failed(self, error: Exception) -> None: ...


class _Item(Generic[_View, _Found, _Made]):
    """One caller's change and its result."""

    def __init__(
        self,
        look: Callable[[_View], _Found],
        change: Callable[[UnitOfWork, _Found], _Made],
        user_id: str,
    ) -> None:
        self.user_id = user_id
        self._acting = acting()
        self._look = look
        self._change = change
        self._made: _Made | None = None
        self._error: Exception | None = None
        self.done = False
        self.turn = threading.Event()

    def run(self, view: _View, uow: UnitOfWork) -> None:
        """Do it; an error of looking stays here, one of changing goes out to undo everything."""
        self._made, self._error = None, None
        try:
            found = self._look(view)
        except EdgeyardError as error:
            self._error = error
        else:
            with acting_as(self._acting):  # one request writes for others, too
                self._made = self._change(uow, found)

    def failed(self, error: Exception) -> None:
        """Record that the change was rolled back."""
        self._error = error

    def result(self) -> _Made:
        """Return what the change gave."""
        if self._error is not None:
            raise self._error
        return self._made  # type: ignore[return-value]  # set where no error is
