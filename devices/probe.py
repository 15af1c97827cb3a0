"""Health and facts of a board, asked for on its host: here, or by ssh.

A board that answers by ssh is first called on its port, which costs it next to nothing; the login
that also reads temperature and power follows only while no run measures on it.

Imported on boards too: only the standard library, Python 3.10.
"""

import os
import selectors
import shlex
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Mapping, Optional, Set, Tuple

from edgeyard.devices.machine import engine_attributes, facts_command, read_facts
from edgeyard.devices.model import AttributeValue, Board, SshAddress
from edgeyard.devices.power_rails import (
    MAX_POWER_W,
    POWER_PATTERNS,
    Listing,
    choose,
    rails_of,
    read_listing,
    read_text,
)
from edgeyard.devices.ssh import ssh_command

_MAX_OUTPUT_BYTES = 64 * 1024
_MAX_REASON = 200
_DONE = "edgeyard-probe-done"

_REMOTE = (
    "for f in /sys/class/thermal/thermal_zone*/temp; do "
    '[ -r "$f" ] && echo "t $(cat "$f" 2>/dev/null)"; done; '
    f"for f in {' '.join('/' + each for each in POWER_PATTERNS)}; do "
    '[ -r "$f" ] && echo "p $f $(cat "$f" 2>/dev/null)"; done; '
    f"echo {_DONE}"
)


def _command(python: str) -> str:
    """Return the command of a login, whatever the login shell is; its text holds no single quote.

    Args:
        python: Also asks this Python of the board what the board is; "": does not.
    """
    facts = ""
    if python and "'" not in python:
        program, option, text, argument = facts_command(python)
        facts = f'; {shlex.quote(program)} {option} "{text}" {argument} 2>/dev/null'
        if "'" in facts:  # a path with blanks: the facts stay unknown
            facts = ""
    return f"exec sh -c '{_REMOTE}{facts}'"


@dataclass(frozen=True)
class Finding:
    """The health and the sensor values of a board.

    Attributes:
        reason: Why it is not healthy, in words; "" when it is.
        temperature_c: Of its hottest zone; None where it reports none, or was not asked.
        power_w: What it draws, by the rail that is its input, otherwise by the greatest one;
            None as above.
        attributes: What it is, as `machine_attributes`; empty if not asked, or not known.
    """

    healthy: bool
    reason: str = ""
    temperature_c: Optional[float] = None
    power_w: Optional[float] = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


class Prober:
    """Looks at boards; safe to use from several threads.

    Args:
        timeout_s: How long one look may take at most.
        root: Where ``/sys`` is found; tests hand in a made-up one.
    """

    def __init__(self, *, timeout_s: float = 8.0, root: Path = Path("/")) -> None:
        self._timeout_s = timeout_s
        self._root = root
        self._lock = threading.Lock()
        self._children: Set["subprocess.Popen[bytes]"] = set()
        self._closed = False

    def look(self, board: Board, *, quiet: bool = False, facts: bool = False) -> Finding:
        """Look once.

        Args:
            facts: Also ask what the board is, which loads its engines.
            quiet: A benchmark may be measuring there: ask nothing that takes its time.
        """
        gone = [path for path in board.device_files if not os.path.exists(path)]
        if board.ssh is not None:
            # its device files are on the board, not here
            return self._by_ssh(board, board.ssh, quiet, facts)
        if gone:
            return Finding(False, f"{', '.join(gone)} is gone")
        if board.local is not None:
            missing = sorted(set(board.local.cpus) - os.sched_getaffinity(0))
            if missing:
                return Finding(False, f"needs CPU {', '.join(map(str, missing))}, not on this host")
        known = engine_attributes() if facts else {}
        return Finding(True, "", *self._local_facts(board), attributes=known)

    def close(self) -> None:
        """End what still runs; looks that come later find nothing healthy."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            child.kill()

    def _local_facts(self, board: Board) -> Tuple[Optional[float], Optional[float]]:
        zones = (self._root / "sys/class/thermal").glob("thermal_zone*/temp")
        listing = read_listing(self._root, POWER_PATTERNS)
        return _facts([read_text(each) for each in zones], listing, board)

    def _by_ssh(self, board: Board, address: SshAddress, quiet: bool, facts: bool) -> Finding:
        deadline = time.monotonic() + self._timeout_s
        where = f"{address.host} port {address.port}"
        try:
            with socket.create_connection(
                (address.host, address.port), timeout=self._timeout_s / 2
            ) as link:
                greeting = link.recv(4)
        except (OSError, UnicodeError) as error:
            return Finding(False, f"{where} does not answer: {_plain(str(error))}")
        if greeting != b"SSH-":
            return Finding(False, f"{where} is not an ssh server")
        if quiet:
            return Finding(True)
        command = _command(address.python if facts else "")
        status, output, errors = self._run(ssh_command(address, command), deadline)
        lines = output.splitlines()
        # what follows are facts: a board that does not get to them is well
        if _DONE in lines:
            known = _facts(*_sensors(lines), board)
            return Finding(True, "", *known, attributes=read_facts(lines))
        if status is None:
            return Finding(False, f"login to {where} took over {self._timeout_s:g} s")
        said = [_plain(line) for line in errors.splitlines() if line.strip()]
        reason = f"login to {where} failed: {said[-1] if said else f'status {status}'}"
        return Finding(False, reason[:_MAX_REASON])

    def _run(self, command: List[str], deadline: float) -> Tuple[Optional[int], str, str]:
        """Exit status (None: it took too long), and the beginnings of stdout and stderr."""
        with self._lock:
            if self._closed:
                return None, "", ""
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                return 127, "", f"ssh can't be started: {error}"
            self._children.add(child)
        try:
            return _read(child, deadline)
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            with self._lock:
                self._children.discard(child)


def _read(child: "subprocess.Popen[bytes]", deadline: float) -> Tuple[Optional[int], str, str]:
    outputs = [b"", b""]
    with selectors.DefaultSelector() as selector:
        for index, pipe in enumerate((child.stdout, child.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, index)
        while selector.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None, outputs[0].decode("utf-8", "replace"), ""
            for key, _ in selector.select(left_s):
                data = os.read(key.fd, 4096)
                if not data:
                    selector.unregister(key.fileobj)
                outputs[key.data] += data
                if len(outputs[key.data]) > _MAX_OUTPUT_BYTES:
                    return 1, "", "the board answered with a flood"
    try:
        status = child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None, outputs[0].decode("utf-8", "replace"), ""
    return status, outputs[0].decode("utf-8", "replace"), outputs[1].decode("utf-8", "replace")


def _sensors(lines: List[str]) -> Tuple[List[str], Listing]:
    """Return what a board's answer states of its thermal zones and of its power sensors."""
    zones, listing = [], {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "t":
            zones.append(rest.strip())
        elif kind == "p":
            path, _, text = rest.partition(" ")
            listing[path.lstrip("/")] = text.strip()
    return zones, listing


def _facts(
    zones: List[str], listing: Listing, board: Board
) -> Tuple[Optional[float], Optional[float]]:
    """Return the temperature of the hottest plausible zone, and the power of the board's input.

    Sensors that are off report nonsense such as -274 or 0. Where no rail is known to be the input,
    the greatest one is shown: rails contain one another and are never added up.

    Args:
        zones: What the files of thermal zones state, in millidegrees.
        listing: Of `POWER_PATTERNS`.
    """
    degrees = [int(each[:15]) / 1e3 for each in zones if each.isascii() and each.isdigit()]
    heat = max((each for each in degrees if 0 < each < 200), default=None)
    rails = rails_of(listing)
    chosen = choose(rails, board.energy_rail).rail
    watts = [each.watts(listing) or 0.0 for each in (rails if chosen is None else [chosen])]
    return heat, max((each for each in watts if 0 < each < MAX_POWER_W), default=None)


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:_MAX_REASON].strip()
