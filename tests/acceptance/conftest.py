"""A real server, as a process, for all tests of this folder that leave it as they found it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.models import light
from deploy.process import Server, edgeyard


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An embedded cluster with emulated boards, one of them offline."""
    with edgeyard(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def squeezenet() -> Path:
    """A real network."""
    return light("squeezenet")


@pytest.fixture
def enter() -> Iterator[Callable[[contextlib.AbstractContextManager[str]], str]]:
    """Enters a context that is left when the test ends."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context
