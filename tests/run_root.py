"""A root of its own for each run of the tests, which ends with everything that the run has started.

Tests start what outlives them when a run is interrupted: Nomad agents and their tasks, container
engines, database servers, and mounts that keep folders from being removed. So a run has three
processes::

    the process that was called   waits, and passes signals on
      the keeper                  adopts what loses its parent; at the end it kills and removes all
        the run                   pytest, its test processes, and all that tests start

All temporary files of a run lie in its root: the folders of pytest (``--basetemp``, unless another
one is given) and those of the programs (``TMPDIR``). If all three processes are killed at once, the
next run ends what they left, because those processes and mounts name the root.

The exit status is that of the tests. What fails after the last one, such as a program that does
not end, is no failure of a test.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import psutil
import pytest

from edgeyard.testbed.cluster import mounts_below, unmount

PREFIX = "edgeyard-tests-"
_LOCK = "lock"

_INTERRUPT_GRACE_S = 20.0
"""pytest-xdist gives its processes 10 s to end."""
_EXIT_GRACE_S = 60.0
_SELF_END_GRACE_S = 1.0
_TERMINATE_GRACE_S = 5.0
_KILL_GRACE_S = 20.0
_POLL_INTERVAL_S = 1.0
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36  # of prctl(2)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RUN = pytest.StashKey[tuple[Path, int]]()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the tests in a process below a keeper; return their status in the process called."""
    if hasattr(config, "workerinput") or sys.platform != "linux":
        return None  # a test process of pytest-xdist has the root of its run
    if config.option.help or config.option.version or config.option.markers:
        return None
    remove_stale(Path(tempfile.gettempdir()))
    root, lock = _make_root(Path(tempfile.gettempdir()))
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    end_of_caller, caller = os.pipe()
    _prctl(_CHILD_SUBREAPER, 1)  # for the case that the keeper is killed
    if keeper := os.fork():
        os.close(end_of_caller)
        return _await_keeper(keeper, caller, root)
    os.close(caller)
    os.setsid()  # a signal to the group of the process that was called does not end the keeper
    _prctl(_CHILD_SUBREAPER, 1)
    if tests := os.fork():
        given = config.option.basetemp
        status = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            status = _keep(root, tests, end_of_caller)
            _report(
                _clean(
                    root,
                    Path(given) if given else None,
                    quiet=status == pytest.ExitCode.INTERRUPTED,
                )
            )
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(end_of_caller)
    os.close(lock)
    os.setpgid(0, 0)
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # It is ignored where make runs in the background of a script.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_RUN] = (root, os.getpid())
    config.option.basetemp = config.option.basetemp or str(root / "pytest")
    os.environ["TMPDIR"] = tempfile.tempdir = str(root / "tmp")
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Record the status of the tests, which counts however this process ends."""
    try:
        return (yield)
    finally:
        root, process = session.config.stash.get(_RUN, (None, 0))
        if root is not None and process == os.getpid():  # not in a child that a test forked
            (root / "status").write_text(str(int(session.exitstatus)))


def remove_stale(parent: Path) -> None:
    """End and remove what killed runs left in ``parent``; roots of living runs are locked."""
    for root in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(Exception):  # whatever is wrong with it, this run may begin
            if root.is_symlink() or root.stat().st_uid != os.geteuid():
                continue
            lock = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _end(partial(_naming, root))
                _remove(root)
            finally:
                os.close(lock)


def _make_root(parent: Path) -> tuple[Path, int]:
    """Return a new root and the descriptor that locks it; other users may pass through it."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    root.chmod(0o711)
    lock = os.open(root / "new", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (root / "new").rename(root / _LOCK)  # from now on it may be found stale
    return root, lock


def _await_keeper(keeper: int, caller: int, root: Path) -> int:
    """Wait for the keeper's end, pass signals on, and return the status of the tests."""
    before = {}
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda *_: _notify(caller))
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(caller)
    if status < 0:  # the keeper was killed, and with it the process of the tests
        _end(_below)
        _report(_remove(root))
        return int(pytest.ExitCode.INTERRUPTED)
    return status


def _notify(caller: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(caller, b"x")


def _keep(root: Path, tests: int, caller: int) -> int:
    """Wait for the end of the run's process, and return the status of its tests.

    Args:
        tests: Id of that process.
        caller: Becomes readable with each interruption, and ends when the process called dies.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    kill_at, interruptions, readable = float("inf"), 0, [caller, woken]
    while (ended := _reap().get(tests)) is None:
        ready, _, _ = select.select(readable, [], [], _POLL_INTERVAL_S)
        if woken in ready:
            os.read(woken, 4096)
        if caller in ready:
            if not os.read(caller, 1):
                readable.remove(caller)
            interruptions += 1
            if interruptions == 1:
                os.kill(tests, signal.SIGINT)
            kill_at = time.monotonic() + (_INTERRUPT_GRACE_S if interruptions == 1 else 0.0)
        if kill_at == float("inf") and (root / "status").exists():
            kill_at = time.monotonic() + _EXIT_GRACE_S
        if time.monotonic() >= kill_at:
            if not interruptions:
                _report([f"pytest did not end in {_EXIT_GRACE_S:g} s after its last test"])
            os.kill(tests, signal.SIGKILL)
    if interruptions:
        return int(pytest.ExitCode.INTERRUPTED)
    try:
        return int((root / "status").read_text())
    except (OSError, ValueError):
        return ended if ended > 0 else int(pytest.ExitCode.INTERNAL_ERROR)


def _clean(root: Path, given: Path | None, *, quiet: bool) -> list[str]:
    """End, unmount and remove what is left of a run, and return what there is to say of it.

    Args:
        given: Folder of the tests where it is not in the root; it is kept.
        quiet: Leave out processes: the run was interrupted.
    """
    until = time.monotonic() + _SELF_END_GRACE_S
    while _below() and time.monotonic() < until:  # such as the trackers of multiprocessing
        _reap()
        time.sleep(0.05)
    left = _end(_below)
    reports = []
    if left and not quiet:
        named = "; ".join(left[:5]) + ("; ..." if len(left) > 5 else "")
        reports.append(f"Tests left {len(left)} processes running: {named}")
    if given is not None:
        unmount(given.resolve())
    return reports + _remove(root)


def _reap() -> dict[int, int]:
    """Return the status of each child that has ended, by its id; those of signals are negative."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found[child[0]] = os.waitstatus_to_exitcode(child[1])
    return found


def _end(find: Callable[[], Iterable[psutil.Process]]) -> list[str]:
    """Terminate the processes found and kill those that stay; return their commands."""
    found = list(find())
    commands = [_command(process) for process in found]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    begin = time.monotonic()
    while found and time.monotonic() - begin < _TERMINATE_GRACE_S + _KILL_GRACE_S:
        _reap()
        if time.monotonic() - begin > _TERMINATE_GRACE_S:
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)
        found = list(find())
    return commands


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {subprocess.list2cmdline(process.cmdline())[:120]}"
    return str(process.pid)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _below() -> list[psutil.Process]:
    """All living processes below this one; it has adopted those whose parents ended."""
    return [each for each in psutil.Process().children(recursive=True) if _lives(each)]


def _naming(root: Path) -> list[psutil.Process]:
    """Processes whose environment names a root, as what a run starts does, and those below them."""
    found: dict[int, psutil.Process] = {}
    own = {os.getpid(), *(each.pid for each in psutil.Process().parents())}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in own and _names(process.environ(), str(root)):
                below = process.children(recursive=True)
                found |= {each.pid: each for each in (process, *below)}
    return list(found.values())


def _names(environment: Mapping[str, str], root: str) -> bool:
    """Whether a variable names the root; not where a person's shell stands."""
    return any(
        root in value for name, value in environment.items() if name not in ("PWD", "OLDPWD", "_")
    )


def _remove(root: Path) -> list[str]:
    """Unmount and remove a root, and return why that was not possible."""
    unmount(root.resolve())
    if mounted := mounts_below(root.resolve()):
        return [f"{root} is not removed: {mounted[0]} is still mounted"]
    command = ["rm", "-rf", "--one-file-system", "--", str(root)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        subprocess.run(["chmod", "-R", "u+rwX", str(root)], capture_output=True, check=False)
        done = subprocess.run(command, capture_output=True, check=False)
    errors = done.stderr.decode(errors="replace").splitlines()
    return [f"{root} is not removed: {errors[0]}"] if errors else []


def _report(sentences: Iterable[str]) -> None:
    """Write to the standard errors, if that is possible."""
    with contextlib.suppress(Exception):
        for sentence in sentences:
            sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
