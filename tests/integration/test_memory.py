"""How a server gives back memory that it used once."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from tests.builders.api import Api, running

pytestmark = pytest.mark.one_database("the database is not what is looked at")

ARENAS = """
import ctypes, sys, threading
from edgeyard.benchmark_api.memory import give_back_freed_memory

if sys.argv[1] == "set":
    give_back_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
together = threading.Barrier(6)

def use():
    together.wait()
    libc.malloc(1000)
    together.wait()

threads = [threading.Thread(target=use) for _ in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""

CYCLES = """
import gc, weakref
from edgeyard.benchmark_api.main import collect_seldom

class Link:
    pass

collect_seldom()
links = weakref.WeakSet()
for _ in range(30):
    held = []
    for _ in range(3_000):  # in use until younger collections have passed over them
        link = Link()
        link.itself = link
        links.add(link)
        held.append(link)
    more = [[] for _ in range(120_000)]
    del held, link, more
print(len(links))
"""


def _output(program: str, *args: str) -> str:
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_threads_share_an_arena() -> None:
    """A thread that began before, as those of a library do, may have another one."""
    assert _output(ARENAS, "left").count("<heap nr=") > 3
    assert _output(ARENAS, "set").count("<heap nr=") <= 2


def test_cycles_that_grew_old_are_collected_too() -> None:
    """Those of connections and requests that were open when the collector looked."""
    assert int(_output(CYCLES)) < 30 * 3_000 / 2


def test_a_cycle_s_seed_is_not_kept() -> None:
    snapshot = snapshot_of([board("b-1"), board("b-2")])
    seeds = range(1 << 60, (1 << 60) + 600)
    build_batch(snapshot, [pending()], NOW, 0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for seed in seeds:
            build_batch(snapshot, [pending()], NOW, seed)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50 * len(seeds)


@pytest.fixture(name="api", scope="module")
def an_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("memory")) as found:
        yield found


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/benchmarks/none", "/v1/benchmarks/none/explain", "/v1/benchmarks?limit=0"),
        *("/v1/benchmarks?limit=5", "/v1/queue", "/v1/boards", "/v1/files", "/v1/files/none"),
        *("/v1/results?limit=5", "/v1/limits", "/readyz?verbose", "/none"),
    ],
)
def test_a_request_leaves_no_call_in_a_cycle(api: Api, path: str) -> None:
    """An exception that its own frame refers to keeps all that the calls had until it is found."""
    client = api.as_("alice")
    status = client.get(path).status_code
    with _garbage() as left:
        assert [client.get(path).status_code for _ in range(5)] == [status] * 5
    frames = [str(each) for each in left if isinstance(each, FrameType)]
    assert [each for each in frames if "edgeyard" in each] == []


@contextmanager
def _garbage() -> Iterator[list[object]]:
    """Yield a list, which has what was left in cycles after the block."""
    left: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
