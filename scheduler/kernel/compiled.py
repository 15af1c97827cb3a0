"""Compilation of the inner loops by Numba, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., object])

COMPILED = find_spec("numba") is not None
"""Numba is installed (the extra ``compiled``); else Python interprets the loops."""


def compiled(function: _Function) -> _Function:
    """Compile a function of arrays and numbers to machine code at its first call.

    The code is kept on disk for the next process, until the function's module or one that it
    imports changes. Without Numba the function is returned as it is: it computes the same, about a
    hundred times slower.
    """
    if not COMPILED:
        return function
    import numba

    from edgeyard.scheduler.kernel.compiled_cache import LOCATORS

    settings = vars(numba.config)
    before = settings["CACHE_LOCATOR_CLASSES"]
    settings["CACHE_LOCATOR_CLASSES"] = LOCATORS  # of this function alone
    try:
        return cast(_Function, numba.njit(cache=True)(function))
    finally:
        settings["CACHE_LOCATOR_CLASSES"] = before
