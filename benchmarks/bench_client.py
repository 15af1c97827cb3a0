"""The client as the wheel without an extra gives it: its size, and how long it takes to start."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.tables import Row

ROUNDS = 10
ROOT = Path(__file__).parents[1]
IMPORT_MS, HELP_MS = 100.0, 400.0
"""What an import and the help page may take at most."""


def run() -> list[Row]:
    """Build the wheel, install it into an empty environment, and start it there.

    Times are processor time, the best of some rounds, because others use this machine, too.
    """
    with tempfile.TemporaryDirectory(prefix="edgeyard-client-") as name:
        folder = Path(name)
        _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", name, str(ROOT))
        (wheel,) = folder.glob("edgeyard-*.whl")
        _run(sys.executable, "-m", "venv", str(folder / "client"))
        python = str(folder / "client/bin/python")
        packages = next(folder.glob("client/lib/python3*/site-packages"))
        before = _size_bytes(packages)
        _run(python, "-m", "pip", "install", "--quiet", str(wheel))
        installed = (_size_bytes(packages) - before) / 2**20
        start_ms = _best_ms(python, "-c", "pass")
        note = f"processor time, best of {ROUNDS}; "
        return [
            Row("installed", installed, "MiB", note="with its packages, without pip"),
            Row(
                "import edgeyard",
                _best_ms(python, "-c", "import edgeyard") - start_ms,
                "ms",
                note=f"{note}without Python's own {start_ms:.0f} ms; at most {IMPORT_MS:.0f}",
            ),
            Row(
                "import Client",
                _best_ms(python, "-c", "from edgeyard import Client") - start_ms,
                "ms",
                note=f"{note}without Python's own start",
            ),
            Row(
                "edgeyard --help",
                _best_ms(python, "-m", "edgeyard", "--help"),
                "ms",
                note=f"{note}at most {HELP_MS:.0f}",
            ),
        ]


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _best_ms(*words: str) -> float:
    """Processor time of a command, ms: the best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(*words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append(used_s * 1e3)
    return min(found)


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
