"""Every benchmark that can be named has a module."""

from importlib.util import find_spec

import pytest

from benchmarks.__main__ import BY_NAME_ONLY, NAMES, REPEATS


@pytest.mark.parametrize("name", sorted({*NAMES, *BY_NAME_ONLY} - {*REPEATS}))
def test_a_benchmark_is_a_module(name: str) -> None:
    assert find_spec(f"benchmarks.bench_{name.replace('-', '_')}") is not None
