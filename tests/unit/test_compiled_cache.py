"""Machine code on disk is not used after a change of a module that it was compiled from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each test compiles in two processes or more

ROOT = Path(__file__).parents[2]
_CALLER = (
    "from edgeyard.scheduler.kernel.compiled import compiled\n"
    "from kernels.{module} import {name}\n"
    "@compiled\ndef double(number):\n    return 2 * {use}\n"
)
_CALLEE = (
    "from edgeyard.scheduler.kernel.compiled import compiled\n"
    "@compiled\ndef plus(number):\n    return number + {added}\n"
)


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    return folder


def result(kernels: Path, *, misses: bool) -> int:
    """What the function gives in a new process, and whether that had to compile it."""
    script = (
        "from kernels.caller import double; print(double(1));print(bool(double.stats.cache_misses))"
    )
    environment = {"PYTHONPATH": f"{kernels.parent}:{ROOT / 'src'}", "HOME": str(kernels.parent)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    number, missed = done.stdout.split()
    assert missed == str(misses)
    return int(number)


def test_a_changed_function_of_another_module_is_compiled_again(kernels: Path) -> None:
    (kernels / "caller.py").write_text(
        _CALLER.format(module="callee", name="plus", use="plus(number)")
    )
    (kernels / "callee.py").write_text(_CALLEE.format(added=1))
    assert result(kernels, misses=True) == 4
    assert result(kernels, misses=False) == 4
    (kernels / "callee.py").write_text(_CALLEE.format(added=10))
    assert result(kernels, misses=True) == 22
    assert result(kernels, misses=False) == 22


def test_a_changed_constant_of_a_module_that_an_imported_one_imports_is_noticed(
    kernels: Path,
) -> None:
    (kernels / "caller.py").write_text(
        _CALLER.format(module="between", name="ADDED", use="(number + ADDED)")
    )
    (kernels / "between.py").write_text("from kernels.constants import (\n    ADDED,\n)\n")
    (kernels / "constants.py").write_text("ADDED = 1\n")
    assert result(kernels, misses=True) == 4
    (kernels / "constants.py").write_text("ADDED = 10\n")
    assert result(kernels, misses=True) == 22


def test_a_change_of_a_module_that_is_not_imported_compiles_nothing(kernels: Path) -> None:
    (kernels / "caller.py").write_text(
        _CALLER.format(module="callee", name="plus", use="plus(number)")
    )
    (kernels / "callee.py").write_text(_CALLEE.format(added=1))
    assert result(kernels, misses=True) == 4
    (kernels / "other.py").write_text("ADDED = 1\n")
    assert result(kernels, misses=False) == 4
