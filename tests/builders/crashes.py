"""Servers that die around their commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Died(BaseException):
    """The server died; no handler of the server catches it."""


@contextmanager
def dying_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise `Died` where the store reaches a failpoint: ``commit:before`` or ``commit:after``."""

    def die(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as dying:
        dying.setattr("edgeyard.scheduler.store.sql_store.failpoint", die)
        yield
