"""Where machine code of `compiled` functions is kept, and when it is out of date.

Numba's own locators compare a function's file alone. But machine code contains the functions and
the constants of other modules that the function uses, so these locators compare the sources of all
modules of the same package that its module imports, directly or not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from numba.core.caching import (
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

_IMPORTS = re.compile(
    r"^from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|^import\s+([\w.]+)", re.MULTILINE
)


class _Stamped:
    def __init__(self, py_func: object, py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[call-arg]
        self._module = str(py_func.__module__)

    def get_source_stamp(self) -> object:
        """Return what changes with the sources; called when the function is decorated."""
        return super().get_source_stamp(), _digest(self._module)  # type: ignore[misc]


class UserProvided(_Stamped, UserProvidedCacheLocator):
    """Keep code in the folder of ``NUMBA_CACHE_DIR``."""


class InTree(_Stamped, InTreeCacheLocator):
    """Beside the module, where that may be written."""


class UserWide(_Stamped, UserWideCacheLocator):
    """Keep code in the user's folder for caches."""


LOCATORS = ",".join(f"{__name__}.{each.__name__}" for each in (UserProvided, InTree, UserWide))


@cache
def _digest(name: str) -> str:
    """Digest of the sources of the modules that a module imports; the module is being imported."""
    package = name.partition(".")[0]
    found: dict[str, bytes] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        source = _source(sys.modules[each])
        found[each] = sha256(source).digest()
        waiting += [
            other
            for other in _imported(source.decode("utf-8"))
            if other.partition(".")[0] == package and other in sys.modules
        ]
    return sha256(b"".join(found[each] for each in sorted(found))).hexdigest()


def _source(module: ModuleType) -> bytes:
    path = module.__file__
    return b"" if path is None else Path(path).read_bytes()


def _imported(source: str) -> Iterator[str]:
    """Return the names of the modules that a source may import; some are functions or classes."""
    for package, names, module in _IMPORTS.findall(source):
        if module:
            yield module
            continue
        yield package
        for name in re.findall(r"\w+", names):
            yield f"{package}.{name}"
