"""Watches the boards of this host: the boards file, their health, and what their tasks say."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterable, Mapping, Optional, Tuple

from edgeyard.devices.containers import Container, ContainerFiles, containers_from_file
from edgeyard.devices.edgedevice.config import PluginConfig
from edgeyard.devices.edgedevice.publishing import PublishedBoard, Publisher
from edgeyard.devices.edgedevice.task_file import TaskFiles
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.machine import of_engines
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.devices.probe import Finding, Prober
from edgeyard.errors import ConfigError

logger = logging.getLogger(__name__)

_TICK_S = 0.5
"""How often files are read: what a task reports is at most so old when it is used."""

_FIRST_READING_TIMEOUT_S = 10.0
"""A board that could not be read by then counts as unhealthy; Nomad's client itself waits for
50 s, and boards that are reported as unhealthy at each start of the plugin would fail tasks."""

_FACT_TRIES = 3
"""Logins that ask a board what it is, until it answers."""

_LOGIN_EVERY_S = 60.0
"""A board behind its host that is well is only called on its port between two logins, which cost
both sides far more, and never logged in to while a task measures there."""

_MAX_PROBES = 32
_JOIN_S = 2.0
_NOT_YET = Finding(False, "was not checked yet")

_FileMark = Optional[Tuple[int, int, int]]


@dataclass(frozen=True)
class HostBoards:
    """The boards of this host, as reported to Nomad or as they are.

    Attributes:
        version: Grows with each change.
        problem: What is wrong with the boards file; "" when nothing is.
    """

    version: int
    boards: Mapping[str, PublishedBoard]
    problem: str = ""


@dataclass(frozen=True)
class Reservation:
    """What the next task of a board gets.

    Attributes:
        container_file: The board's containers by engine, for the bootstrap alone.
        devices: Device files of all of the board's engines.
        docker_socket: None: no engine of the board has an image of its own.
    """

    board: Board
    progress_file: Path
    container_file: Path
    devices: Tuple[Mapping[str, str], ...] = ()
    docker_socket: Optional[Path] = None


class Watch:
    """One thread that looks, and a pool that asks the boards.

    `wait`, `now` and `reserve` may be called from any thread.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, config: PluginConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._files = TaskFiles(config.state_dir / "boards")
        self._container_files = ContainerFiles(config.state_dir / "containers")
        self._containers: Mapping[str, Mapping[str, Container]] = {}
        self._prober = Prober(timeout_s=config.probe_timeout_s)
        self._pool = ThreadPoolExecutor(_MAX_PROBES, thread_name_prefix="probe")
        self._publisher = Publisher()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._reported: Optional[HostBoards] = None
        self._current: Dict[str, PublishedBoard] = {}
        self._problem = ""
        self._mark: _FileMark = (-1, -1, -1)
        self._boards: Tuple[Board, ...] = ()
        self._found: Dict[str, Finding] = {}
        self._last_error: Dict[str, str] = {}
        self._facts: Dict[str, Mapping[str, AttributeValue]] = {}
        self._fact_tries: Dict[str, int] = {}
        self._probes: Dict[str, Tuple["Future[Finding]", Optional[float]]] = {}
        self._let_in: Dict[str, float] = {}
        self._next_probe: Dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="watch")
        self._thread.start()

    def close(self) -> None:
        """End the threads; those who wait are let go."""
        self._stop.set()
        self._prober.close()
        with self._changed:
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join(_JOIN_S)

    def wait(self, seen: int, timeout_s: float) -> Optional[HostBoards]:
        """Wait for a report that is newer than ``seen``; None when there is none by then."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stop.is_set() or self._newer(seen) is not None, timeout_s
            )
            return self._newer(seen)

    def now(self) -> Mapping[str, PublishedBoard]:
        """Return the boards as they are, whatever was reported to Nomad."""
        with self._changed:
            return dict(self._current)

    def reserve(self, target_uid: str) -> Reservation:
        """Make a board ready for its next task.

        Raises:
            LookupError: There is no such board here, or it is not healthy; it says why.
            OSError: The files of the task can't be made.
        """
        self.wait(0, _FIRST_READING_TIMEOUT_S + _TICK_S)
        with self._changed:
            shown = self._current.get(target_uid)
        if shown is None:
            raise LookupError(f"{target_uid} is not a board of this host")
        if not shown.board.healthy:
            raise LookupError(f"{target_uid} is unhealthy: {shown.board.health_reason}")
        containers = self._containers.get(target_uid, {})
        socket = self._config.docker_socket
        return Reservation(
            board=shown.board,
            progress_file=self._files.prepare(target_uid),
            container_file=self._container_files.write(target_uid, containers, socket),
            devices=_device_files(containers.values()),
            docker_socket=socket if any(each.image for each in containers.values()) else None,
        )

    def _newer(self, seen: int) -> Optional[HostBoards]:
        report = self._reported
        return report if report is not None and report.version > seen else None

    def _run(self) -> None:
        started = self._clock()
        while not self._stop.is_set():
            try:
                self._look(started)
            except Exception:
                # the outermost loop of this thread: a board that breaks us must not end all others
                logger.exception("Looking at the boards failed; trying again.")
            self._stop.wait(_TICK_S)

    def _look(self, started: float) -> None:
        now = self._clock()
        self._read_boards()
        self._collect(now)
        current = {board.target_uid: self._shown(board, now) for board in self._boards}
        with self._changed:
            self._current = current
        all_found = all(board.target_uid in self._found for board in self._boards)
        if self._reported is None and not all_found and now - started < _FIRST_READING_TIMEOUT_S:
            return
        boards = self._publisher.publish(now, current)
        before = self._reported
        if boards is None and before is not None and before.problem == self._problem:
            return
        report = HostBoards(
            version=before.version + 1 if before else 1,
            boards=boards if boards is not None else before.boards if before else {},
            problem=self._problem,
        )
        with self._changed:
            self._reported = report
            self._changed.notify_all()

    def _read_boards(self) -> None:
        path = self._config.boards_file
        mark = _mark(path)
        if mark == self._mark:
            return
        self._mark = mark
        try:
            boards = Inventory.from_file(path).boards
            containers = containers_from_file(path)
        except ConfigError as error:
            self._problem = str(error)
            logger.error(
                "The boards file can't be used; %s.",
                "the boards known before stay" if self._boards else "there are no boards",
                extra={"event": "boards_file_refused", "problem": self._problem},
            )
            return
        self._problem = ""
        before = {board.target_uid: board for board in self._boards}
        self._boards = boards
        self._containers = containers
        # another address or device: what was found there says nothing of this one
        same = {each.target_uid for each in boards if before.get(each.target_uid) == each}
        self._found = {uid: found for uid, found in self._found.items() if uid in same}
        self._last_error = {uid: text for uid, text in self._last_error.items() if uid in same}
        self._probes = {uid: probe for uid, probe in self._probes.items() if uid in same}
        self._let_in = {uid: at for uid, at in self._let_in.items() if uid in same}
        self._facts = {uid: facts for uid, facts in self._facts.items() if uid in same}
        self._fact_tries = {uid: count for uid, count in self._fact_tries.items() if uid in same}
        self._next_probe = {uid: at for uid, at in self._next_probe.items() if uid in same}
        logger.info(
            "The boards file was read.",
            extra={"event": "boards_file_read", "boards": len(boards), "path": str(path)},
        )

    def _collect(self, now: float) -> None:
        """Take in what probes have found, and send out those that are due."""
        for uid, (probe, login_at) in list(self._probes.items()):
            if probe.done():
                del self._probes[uid]
                found = _finding(probe)
                if login_at is not None:
                    self._let_in.pop(uid, None)
                    if found.healthy:
                        self._let_in[uid] = login_at
                self._take(uid, found)
        interval_s = self._config.probe_interval_s
        for index, board in enumerate(self._boards, start=1):
            uid = board.target_uid
            due = self._next_probe.get(uid)
            if uid not in self._probes and (due is None or now >= due):
                # the first look is at once; the next ones are spread, not all in one moment
                spread = index / len(self._boards) if due is None else 1.0
                self._next_probe[uid] = now + interval_s * spread
                quiet = self._quiet(uid, now)
                tries = self._fact_tries.get(uid, 0)
                facts = not quiet and tries < _FACT_TRIES and not self._facts.get(uid)
                if facts:
                    self._fact_tries[uid] = tries + 1
                probe = self._pool.submit(self._prober.look, board, quiet=quiet, facts=facts)
                self._probes[uid] = probe, None if quiet else now

    def _quiet(self, uid: str, now: float) -> bool:
        """Whether a mere call will do: the last login went well, and is recent or would disturb."""
        let_in, shown = self._let_in.get(uid), self._current.get(uid)
        if let_in is None or shown is None:
            return False
        return shown.board.busy or (shown.board.healthy and now - let_in < _LOGIN_EVERY_S)

    def _take(self, uid: str, found: Finding) -> None:
        before = self._found.get(uid)
        if found.temperature_c is None and found.power_w is None and before is not None:
            found = replace(found, temperature_c=before.temperature_c, power_w=before.power_w)
        if not found.healthy:
            self._last_error[uid] = found.reason
        if before is None or before.healthy != found.healthy or before.reason != found.reason:
            logger.log(
                logging.INFO if found.healthy else logging.WARNING,
                "A board is healthy." if found.healthy else "A board is unhealthy.",
                extra={"event": "board_health", "target_uid": uid, "reason": found.reason},
            )
        self._found[uid] = found
        if found.attributes:
            self._facts[uid] = found.attributes

    def _shown(self, board: Board, now: float) -> PublishedBoard:
        uid = board.target_uid
        found = self._found.get(uid, _NOT_YET)
        task = self._files.read(uid, now)
        return PublishedBoard(
            board=replace(
                board,
                healthy=found.healthy,
                health_reason=found.reason,
                busy=task.busy,
                progress=0.0,
                attributes={**of_engines(self._facts.get(uid, {}), board), **board.attributes},
            ),
            percent=int(task.percent) if task.busy else 0,
            last_error=self._last_error.get(uid, ""),
            temperature_c=found.temperature_c,
            power_w=found.power_w,
        )


def _finding(probe: "Future[Finding]") -> Finding:
    error = probe.exception()
    if error is None:
        return probe.result()
    logger.error("A probe failed.", exc_info=error)
    return Finding(False, f"the probe itself failed: {type(error).__name__}: {error}"[:200])


def _device_files(containers: Iterable[Container]) -> Tuple[Mapping[str, str], ...]:
    """Return the device files of all engines, each once; other files are no devices."""
    found: Dict[str, Mapping[str, str]] = {}
    for container in containers:
        for device in container.devices:
            with contextlib.suppress(OSError):
                mode = os.stat(device["host_path"]).st_mode
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    found.setdefault(device["container_path"], device)
    return tuple(found.values())


def _mark(path: Path) -> _FileMark:
    """Changes whenever the file does; None while there is none."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
