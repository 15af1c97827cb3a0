"""Tests with real processes of others may fail once: such a test is run a second time.

How fast a Nomad, a browser or an ssh server does what it is asked depends on the machine's other
work, and none of them is ours to mend. Each second run is counted in pytest's last line and listed
with the failure of the first one (``--rerun-show-tracebacks``). No other test is run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator

import pytest

KINDS = ("nomad", "docker", "ssh", "faketime", "browser", "prometheus", "loadgen")
"""Markers of the tests that may be run a second time."""

_TIMEOUT = pytest.StashKey[object]()
_restorers: list[Callable[[], None]] = []


@contextlib.contextmanager
def restored_before_rerun(restore: Callable[[], None]) -> Iterator[None]:
    """Have ``restore`` called before a second run, for what several tests share.

    Args:
        restore: Brings back what a test may have left changed or dead when it failed.
    """
    _restorers.append(restore)
    try:
        yield
    finally:
        _restorers.remove(restore)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of these kinds for pytest-rerunfailures, unless a debugger stops there."""
    if config.option.usepdb:
        return
    for item in items:
        if any(item.get_closest_marker(kind) for kind in KINDS):
            item.add_marker(pytest.mark.flaky(reruns=1, condition=_is_failure))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(
    item: pytest.Item, settings: object
) -> Generator[None, object, object]:
    """Keep the settings of pytest-timeout, which sets one timer for both runs."""
    item.stash[_TIMEOUT] = settings
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a second run all its time, and restore what tests share before it."""
    if getattr(item, "execution_count", 1) == 1:
        return
    if settings := item.stash.get(_TIMEOUT, None):
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    for restore in _restorers:
        restore()


def _is_failure(error: BaseException | None) -> bool:
    """Whether a second run may do better: a program that is missing stays missing."""
    return not isinstance(error, pytest.skip.Exception)
