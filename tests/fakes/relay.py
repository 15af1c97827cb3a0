"""Passes connections on until the test cuts them: a network, or a balancer before servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_CHUNK_BYTES = 65536
_CONNECT_S = 5.0

Address = str | tuple[str, int]
"""Path of a Unix socket, or host and port."""


class Relay:
    """Connects whoever calls to the first of its targets that takes the connection.

    Attributes:
        targets: May be replaced at any time; new connections go there.
    """

    def __init__(self, targets: Sequence[Address]) -> None:
        self.targets = tuple(targets)
        self._cut = False
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def cut(self) -> None:
        """Break all connections and take no new ones."""
        with self._lock:
            self._cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Hold all that is sent back without closing anything, as a network that drops packets.

        What was sent meanwhile arrives when it is mended, as it does by TCP.
        """
        self._flows.clear()

    def mend(self) -> None:
        """Take connections again, and pass on what was held back."""
        with self._lock:
            self._cut = False
        self._flows.set()

    @contextmanager
    def listening(self, at: Address) -> Iterator[Address]:
        """Listen for the length of a ``with`` block; yields the address."""
        with _socket_for(at) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(at)
            listener.listen(128)
            thread = threading.Thread(target=self._accept, args=(listener,), name="relay")
            thread.start()
            try:
                yield listener.getsockname()
            finally:
                self.cut()
                self._flows.set()
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()

    def _accept(self, listener: socket.socket) -> None:
        passing: list[threading.Thread] = []
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                break
            self._flows.wait()
            target = None if self._cut else self._connected()
            if target is None:
                caller.close()
                continue
            with self._lock:
                self._open |= {caller, target}
            passing = [thread for thread in passing if thread.is_alive()]
            passing.append(threading.Thread(target=self._pass, args=(caller, target)))
            passing[-1].start()
        for thread in passing:
            thread.join()

    def _connected(self) -> socket.socket | None:
        for address in self.targets:
            target = _socket_for(address)
            target.settimeout(_CONNECT_S)
            try:
                target.connect(address)
            except OSError:
                target.close()
                continue
            target.settimeout(None)
            return target
        return None

    def _pass(self, caller: socket.socket, target: socket.socket) -> None:
        back = threading.Thread(target=_copy, args=(target, caller, self._flows))
        back.start()
        _copy(caller, target, self._flows)
        back.join()
        with self._lock:
            self._open -= {caller, target}
        caller.close()
        target.close()


def _copy(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            flows.wait()
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _socket_for(address: Address) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM)
