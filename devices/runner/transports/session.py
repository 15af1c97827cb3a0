"""One ssh session with a board: bytes there and back, its stderr, and what its end means."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from typing import Callable, Iterator, Optional

from edgeyard.devices.model import SshAddress
from edgeyard.devices.runner.behind_host import HEARTBEAT_S
from edgeyard.devices.runner.transports.local import die_with_parent, orphaned
from edgeyard.devices.ssh import ssh_command
from edgeyard.errors import RunFailed

STALLED_S = 60.0
"""A board that takes nothing in for so long, or says nothing after its run's time, is given up."""

_PARENT_POLL_INTERVAL_S = 0.5
_BLOCK = 256 * 1024
_MAX_LINE = 1024 * 1024
_TAIL_CHARACTERS = 300
_SSH_FAILED = 255
_NOT_FOUND = (126, 127)

OnOutput = Callable[[bytes], None]


class ParentGone(Exception):
    """The process that started this one has ended."""


@contextlib.contextmanager
def open_link(
    address: SshAddress,
    command: str,
    on_output: OnOutput,
    parent_pid: Optional[int],
) -> Iterator[Link]:
    """Have the board's shell run a command; the session ends with the block.

    Args:
        on_output: Called with what the command writes to stderr.
        parent_pid: Process that we must not outlive.

    Raises:
        RunFailed: ``board_fault``: ssh can't be started here.
    """
    me = os.getpid()
    try:
        session = subprocess.Popen(
            ssh_command(address, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            preexec_fn=lambda: die_with_parent(me),
        )
    except OSError as error:
        raise RunFailed("board_fault", f"the board's host can't start ssh: {error}") from error
    link = Link(session, address, on_output, parent_pid)
    try:
        yield link
    finally:
        link.close()


class Link:
    """The session: sends without waiting for ever, hears stdout and stderr, keeps itself heard."""

    def __init__(
        self,
        session: "subprocess.Popen[bytes]",
        address: SshAddress,
        on_output: OnOutput,
        parent_pid: Optional[int],
    ) -> None:
        assert session.stdin is not None
        assert session.stdout is not None
        assert session.stderr is not None
        self._session = session
        self._address = address
        self._on_output = on_output
        self._parent_pid = parent_pid
        self._in, self._out = session.stdin.fileno(), session.stdout.fileno()
        self._err: Optional[int] = session.stderr.fileno()
        self._heard = b""
        self._tail = ""
        self._beat_at = time.monotonic() + HEARTBEAT_S
        os.set_blocking(self._in, False)

    def send(self, data: bytes) -> None:
        """Send all bytes.

        Raises:
            RunFailed: The board is gone, or takes nothing in.
            ParentGone: Our parent is gone.
        """
        until = time.monotonic() + STALLED_S
        while data:
            if self._look(until, writing=True):
                try:
                    data = data[os.write(self._in, data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise self._lost() from None
                until = time.monotonic() + STALLED_S

    def line(self, patience_s: float) -> bytes:
        """Return the next line that the board says; raises as `send`."""
        until = time.monotonic() + patience_s
        while b"\n" not in self._heard:
            if len(self._heard) > _MAX_LINE:
                raise RunFailed(
                    "board_fault", "the board sent data that is not of the runner's protocol"
                )
            self._hear(until)
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def copy(self, count: int, write: Callable[[bytes], object]) -> None:
        """Pass the next ``count`` bytes from the board to ``write``; raises as `send`."""
        while count:
            if not self._heard:
                self._hear(time.monotonic() + STALLED_S)
            data, self._heard = self._heard[:count], self._heard[count:]
            write(data)
            count -= len(data)

    def close(self) -> None:
        """Hang up; the board ends the run and cleans up."""
        for pipe in (self._session.stdin, self._session.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            self._session.wait(1.0)
        except subprocess.TimeoutExpired:
            self._session.kill()
            self._session.wait()
        if self._session.stderr is not None:
            self._session.stderr.close()

    def _hear(self, until: float) -> None:
        while True:
            if self._look(until, writing=False):
                data = os.read(self._out, _BLOCK)
                if not data:
                    raise self._lost()
                self._heard += data
                return

    def _look(self, until: float, *, writing: bool) -> bool:
        """Wait for a moment; whether the pipe that is asked for is ready."""
        now = time.monotonic()
        if now >= until:
            raise RunFailed("network", f"the board at {self._where()} does not answer any more")
        if orphaned(self._parent_pid):
            raise ParentGone
        if not writing and now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._in, b".")
        reading = [] if writing else [self._out]
        errors = [] if self._err is None else [self._err]
        ready, writable, _ = select.select(
            reading + errors,
            [self._in] if writing else [],
            [],
            min(_PARENT_POLL_INTERVAL_S, until - now),
        )
        if self._err in ready:
            self._hear_errors()
        return bool(writable) if writing else self._out in ready

    def _hear_errors(self) -> None:
        if self._err is None:
            return
        data = os.read(self._err, _BLOCK)
        if not data:
            self._err = None
            return
        self._tail = (self._tail + data.decode("utf-8", "replace"))[-_TAIL_CHARACTERS:]
        self._on_output(data)

    def _lost(self) -> RunFailed:
        """Return what the end of the session means."""
        try:
            status = self._session.wait(5.0)
        except subprocess.TimeoutExpired:
            status = _SSH_FAILED
        while self._err is not None:
            ready, _, _ = select.select([self._err], [], [], 0.5)
            if not ready:
                break
            self._hear_errors()
        said = " ".join(self._tail.split())
        where = self._where()
        if status in _NOT_FOUND:
            return RunFailed(
                "board_fault", f"the board at {where} has no {self._address.python}: {said}"
            )
        if status == _SSH_FAILED and "Host key verification failed" in said:
            return RunFailed(
                "board_fault",
                f"the board at {where} shows a host key that is not the known one, and was sent "
                f"nothing: find out why before you change {self._known_hosts()}",
            )
        if status == _SSH_FAILED and "Permission denied" in said:
            return RunFailed(
                "board_fault",
                f"the board at {where} rejects the log-in: see user and identity_file of its ssh "
                f"entry in the boards file ({said})",
            )
        if status == _SSH_FAILED or status < 0:
            why = said or "the connection was cut"
            return RunFailed("network", f"the board at {where} can't be reached: {why}")
        why = said or "it said nothing"
        return RunFailed("board_fault", f"the board at {where} ended the session: {why}")

    def _known_hosts(self) -> str:
        return self._address.known_hosts_file or "ssh's known_hosts"

    def _where(self) -> str:
        return f"{self._address.host} port {self._address.port}"
