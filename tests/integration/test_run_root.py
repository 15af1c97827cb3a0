"""A run of the tests, interrupted or not, leaves no process, mount or folder behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from edgeyard.testbed.cluster import mounts_below
from tests.builders.cluster import eventually
from tests.run_root import PREFIX

ROOT = Path(__file__).parents[2]

_LEAVES = """
import os, subprocess, sys, time

def test_leaves(tmp_path):
    # Two forks and a session of its own: nothing but the keeper finds this one.
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code], cwd="/", env={{"NAME": "{mark}"}}, check=True)
    folder = tmp_path / "mounted"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True)
    with open("{mark}", "w"):
        pass
    {then}
"""
_RESTS = "time.sleep(600)"


class Run:
    """A run of one test that leaves a process and, where that is allowed, a mount."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        then: str = _RESTS,
        errors: BinaryIO | None = None,
    ) -> None:
        self.folder = folder
        self.tmp = folder / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.mark = folder / f"mark-{time.monotonic_ns()}"
        (folder / "test_it.py").write_text(_LEAVES.format(mark=self.mark, then=then))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-p", "xdist.plugin"),
                    *("-p", "tests.run_root", "-c", os.devnull),
                    *("--rootdir", str(folder), "-p", "no:cacheprovider", "-q", *arguments),
                    str(folder / "test_it.py"),
                ],
                cwd=folder,
                env={
                    **{name: each for name, each in os.environ.items() if "PYTEST" not in name},
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # loading all takes longer than the run
                    "TMPDIR": str(self.tmp),
                },
                stdout=log,
                stderr=errors or log,
                start_new_session=True,
            )

    def until_it_rests(self) -> None:
        eventually(self.mark.exists, "the test has left what it leaves", 60.0)

    def end(self) -> int:
        return self.process.wait(60)

    @property
    def output(self) -> str:
        return self.log.read_text()

    def below(self) -> list[psutil.Process]:
        """All processes of the run, the keeper first."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def left(self) -> list[str]:
        """What is left of it: processes, mounts, folders."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("NAME") == str(self.mark):
                    found.append(f"process {process.cmdline()}")
        found += mounts_below(self.tmp)
        return found + [path.name for path in self.tmp.iterdir()]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # of a test that failed
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(tmp_path) in process.environ().get("NAME", ""):
                process.kill()


def test_a_run_ends_what_its_tests_left(folder: Path) -> None:
    run = Run(folder, "-n", "2", then="pass")
    assert run.end() == pytest.ExitCode.OK, run.output
    assert "1 passed" in run.output
    assert "Tests left 1 processes running" in run.output
    assert run.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    run = Run(folder)
    run.until_it_rests()
    run.process.send_signal(number)
    assert run.end() == pytest.ExitCode.INTERRUPTED, run.output
    assert run.left() == []


def test_ctrl_c_in_a_terminal_leaves_nothing_of_several_processes(folder: Path) -> None:
    run = Run(folder, "-n", "2")
    run.until_it_rests()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == pytest.ExitCode.INTERRUPTED, run.output
    assert run.left() == []


def test_a_second_signal_kills_tests_that_ignore_the_first(folder: Path) -> None:
    ignores = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    run = Run(folder, then=ignores.replace("; ", "\n    "))
    run.until_it_rests()
    begin = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == pytest.ExitCode.INTERRUPTED, run.output
    assert time.monotonic() - begin < 15.0
    assert run.left() == []


@pytest.mark.parametrize("victim", ["group", "caller", "keeper", "tests"])
def test_a_run_with_a_killed_process_leaves_nothing(folder: Path, victim: str) -> None:
    run = Run(folder, *(("-n", "2") if victim == "group" else ()))
    run.until_it_rests()
    keeper, tests = run.below()[:2]
    if victim == "group":
        os.killpg(run.process.pid, signal.SIGKILL)
    else:
        chosen = {"caller": run.process.pid, "keeper": keeper.pid, "tests": tests.pid}[victim]
        os.kill(chosen, signal.SIGKILL)
    assert run.end() != 0, run.output
    eventually(lambda: run.left() == [], f"nothing of {run.left()} is left", 40.0)


def test_what_a_run_left_whose_processes_were_all_killed_ends_with_the_next(folder: Path) -> None:
    killed = Run(folder)
    killed.until_it_rests()
    for process in [psutil.Process(killed.process.pid), *killed.below()[:2]]:
        process.suspend()
    for process in [*killed.below()[:2], psutil.Process(killed.process.pid)]:
        process.kill()
    killed.process.wait()
    (root,) = killed.tmp.glob(f"{PREFIX}*")

    following = Run(folder, then="pass")
    assert following.end() == pytest.ExitCode.OK, following.output
    assert not root.exists()
    assert [line for line in killed.left() if not line.startswith("process")] == []


def test_a_run_leaves_the_root_of_another_alone(folder: Path) -> None:
    living = Run(folder)
    living.until_it_rests()
    (root,) = living.tmp.glob(f"{PREFIX}*")
    assert Run(folder, then="pass").end() == pytest.ExitCode.OK
    assert root.exists()
    assert living.process.poll() is None
    living.process.send_signal(signal.SIGINT)
    living.end()
    assert living.left() == []


@pytest.mark.parametrize(
    ("after", "then", "status"),
    [
        ("raise RuntimeError('after the last test')", "pass", pytest.ExitCode.OK),
        ("os._exit(9)", "pass", pytest.ExitCode.OK),
        ("time.sleep(600)", "pass", pytest.ExitCode.OK),
        ("raise RuntimeError('after the last test')", "assert 0", pytest.ExitCode.TESTS_FAILED),
        ("os._exit(0)", "assert 0", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_what_comes_after_the_last_test_does_not_change_the_status(
    folder: Path, after: str, then: str, status: pytest.ExitCode
) -> None:
    (folder / "conftest.py").write_text(
        "import os, time\nfrom tests import run_root\nrun_root._EXIT_GRACE_S = 1.0\n"
        f"def pytest_unconfigure():\n    {after}\n"
    )
    run = Run(folder, then=then)
    assert run.end() == status, run.output
    assert run.left() == []


def test_the_status_is_not_that_of_a_child_which_a_test_forked(folder: Path) -> None:
    forks = "if os.fork() == 0:\n        time.sleep(1)\n        return\n    assert 0"
    (folder / "conftest.py").write_text(
        "import time\ndef pytest_unconfigure():\n    time.sleep(2)\n"
    )
    run = Run(folder, then=forks)
    assert run.end() == pytest.ExitCode.TESTS_FAILED, run.output
    assert run.left() == []


def test_what_is_mounted_from_elsewhere_is_not_removed(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    if subprocess.run(["mount", "--bind", elsewhere, elsewhere], check=False).returncode:
        pytest.skip("mounting is not possible here")
    subprocess.run(["umount", elsewhere], check=True)
    mounts = (
        "for name in (b'plain', b'a name', b'na\\\\me', b'n\\xe4me'):\n"
        "        place = os.path.join(os.fsencode(tmp_path), name)\n"
        "        os.mkdir(place)\n"
        f"        subprocess.run(['mount', '--bind', {str(elsewhere)!r}, place], check=True)"
    )
    run = Run(folder, then=mounts)
    assert run.end() == pytest.ExitCode.OK, run.output
    assert (elsewhere / "file").exists()
    assert run.left() == []


def test_folders_that_resist_are_removed(folder: Path) -> None:
    makes = (
        "os.chdir(tmp_path)\n    os.mkdir('closed')\n    os.chmod('closed', 0)\n"
        "    for _ in range(1300):\n        os.mkdir('deep')\n        os.chdir('deep')"
    )
    run = Run(folder, then=makes)
    assert run.end() == pytest.ExitCode.OK, run.output
    assert run.left() == []


def test_a_folder_that_is_only_called_like_a_root_stays(folder: Path) -> None:
    notes = folder / "tmp" / f"{PREFIX}results"
    notes.mkdir(parents=True)
    run = Run(folder, then="pass")
    assert run.end() == pytest.ExitCode.OK, run.output
    assert run.left() == [notes.name]


def test_a_run_without_tests_and_one_that_cannot_begin_have_pytest_s_status(folder: Path) -> None:
    assert Run(folder, "-k", "nothing").end() == pytest.ExitCode.NO_TESTS_COLLECTED
    assert Run(folder, "--no-such-flag").end() == pytest.ExitCode.USAGE_ERROR
    assert Run(folder, "--help").end() == pytest.ExitCode.OK


def test_a_report_that_nobody_can_read_changes_nothing(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        run = Run(folder, then="pass", errors=full)
    assert run.end() == pytest.ExitCode.OK, run.output
    assert "1 passed" in run.output
    assert run.left() == []
