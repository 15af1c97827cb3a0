"""Every benchmark that can be named has a module."""

from importlib.util import find_spec

import pytest

from benchmarks.__main__ import NAMES, REPEATS, SLOW_NAMES


@pytest.mark.parametrize("name", sorted({*NAMES, *SLOW_NAMES} - {*REPEATS}))
def test_a_benchmark_is_a_module(name: str) -> None:
    assert find_spec(f"benchmarks.bench_{name.replace('-', '_')}") is not None
