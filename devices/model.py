"""Boards, the hosts that they are attached to, and what a board can run: frozen values.

Imported on boards too: only the standard library, Python 3.10.
"""

import re
from dataclasses import dataclass, field
from typing import FrozenSet, Mapping, Optional, Tuple, Union

from edgeyard.devices.benchmark_types import STANDARD_TYPES, DeclaredType

AttributeValue = Union[str, int, float, bool]

NOT_READ = "not read yet"
"""Stands for an attribute of a node that is not known yet: no condition holds for it."""

FAMILY_PATTERN = re.compile(r"^[a-z][a-z0-9]{0,31}$")
"""Families hold no dash: job names split on it, so that none is a prefix of another."""

ENGINE_PATTERN = re.compile(r"^[a-z][a-z0-9_-]{0,31}$")
"""Starts with a letter: Nomad reads a numeric-looking name as a number and never matches it."""

TARGET_UID_PATTERN = re.compile(r"^[a-z][a-z0-9]{0,31}-[0-9]{4}-[0-9]{4}$")
"""``<family>-NNNN-NNNN``, as in ``rpi4b-0001-0001``."""


USED_OUTSIDE = "used by a job outside Edgeyard"
"""Why a board is busy that a job holds which none of ours is."""


@dataclass(frozen=True)
class BoardEngine:
    """A runtime that a board offers.

    Attributes:
        name: Engine name, e.g. ``ort``.
        version: As the host states it; "" where unknown.
        supported_types: Benchmark types, e.g. ``{"TYPE1", "TYPE2"}``.
        declared_types: Of those, the ones that the engine declares; sorted by name.
    """

    name: str
    version: str = ""
    supported_types: FrozenSet[str] = frozenset()
    declared_types: Tuple[DeclaredType, ...] = ()

    def declared_type(self, name: str) -> Optional[DeclaredType]:
        """Return the declared type of that name; None if the engine declares none."""
        return next((each for each in self.declared_types if each.name == name), None)

    @property
    def undeclared_types(self) -> FrozenSet[str]:
        """The listed types that are neither Edgeyard's own nor declared: they mean nothing."""
        return self.supported_types.difference(
            STANDARD_TYPES, [each.name for each in self.declared_types]
        )


@dataclass(frozen=True)
class LocalSlice:
    """The part of this machine that an emulated board of the embedded cluster gets.

    Attributes:
        cpus: CPU numbers that its task is pinned to.
        threads: Threads that the engine may use.
        duty_cycle: Share of the time that the engine computes, above 0 up to 1: below 1 it idles
            after each inference, so that the board is slower than the machine.
    """

    cpus: Tuple[int, ...]
    threads: int
    duty_cycle: float = 1.0


@dataclass(frozen=True)
class SshAddress:
    """Where a board answers by ssh; nothing in it is secret: keys are named by their files.

    Attributes:
        host: Name or address.
        port: Of its sshd.
        user: User to log in as; "": the name of the local user.
        identity_file: The private key's file on this host; "": ssh's own choice.
        known_hosts_file: File of the host keys that are trusted; "": ssh's own files.
        python: Python of the board, with NumPy and the engines.
    """

    host: str
    port: int = 22
    user: str = ""
    identity_file: str = ""
    known_hosts_file: str = ""
    python: str = "python3"


@dataclass(frozen=True)
class Hook:
    """What an operator has done before or after each run on a board.

    Attributes:
        when: ``before`` (a failure fails the run) or ``after`` (whatever became of it).
        run: Program and arguments; no shell takes them apart.
        on: ``host`` or ``board``; the same where the board is not reached by ssh.
        timeout_s: How long it may take at most.
    """

    when: str
    run: Tuple[str, ...]
    on: str = "host"
    timeout_s: float = 60.0


SANDBOX_MODES = ("required", "auto", "off")


@dataclass(frozen=True)
class Sandbox:
    """How runs on a board are confined, and what of the machine they may use all the same.

    Attributes:
        mode: ``required`` (nothing runs where files and network can't be confined), ``auto`` (as
            far as the machine allows) or ``off``.
        devices: Device files that a run may use; ``*`` stands for any part of a name.
        paths: Files and folders that a run may read, in the same form.
    """

    mode: str = "auto"
    devices: Tuple[str, ...] = ()
    paths: Tuple[str, ...] = ()


DEFAULT_SANDBOX = Sandbox()


@dataclass(frozen=True)
class Board:
    """One physical (or openly emulated) edge device.

    Attributes:
        target_uid: Its identity, ``<family>-NNNN-NNNN``.
        family: Kind of board, e.g. ``rpi4b``.
        ram_bytes: Memory that a benchmark may use, bytes.
        storage_bytes: Storage that a benchmark may use, bytes.
        engines: What it can run.
        healthy: Whether its host finds it usable.
        health_reason: Why not, in words; "" when healthy.
        busy: Whether a task holds it now (by allocation, whatever its progress says).
        busy_reason: Who holds it, in words; "" when idle.
        reports_task: Whether the board itself reports a task, of any program; may be outdated.
        progress: Progress of what it runs, 0-100; 0 when idle, None when it reports none.
        local: Its slice of this machine; None on boards that aren't emulated here.
        ssh: Where it answers by ssh; None where its host itself, or a slice of it, is the board.
        hooks: What is done around each run, in this order.
        device_files: Files of its host through which it is reached, e.g. ``/dev/ttyUSB0``.
        sandbox: How its runs are confined.
        energy_rail: Rail of its power sensors that stands for it; "": by rule, see
            `edgeyard.devices.power_rails.choose`.
        energy_command: Program of its host, with arguments, that prints the joules that an
            external meter has counted so far; empty: there is no meter.
        shares_with: Boards that must not measure while this one does (same cores).
        attributes: Further attributes as its host publishes them.
    """

    target_uid: str
    family: str
    ram_bytes: int
    storage_bytes: int
    engines: Tuple[BoardEngine, ...]
    healthy: bool = True
    health_reason: str = ""
    busy: bool = False
    busy_reason: str = ""
    reports_task: bool = False
    progress: Optional[float] = 0.0
    local: Optional[LocalSlice] = None
    ssh: Optional[SshAddress] = None
    hooks: Tuple[Hook, ...] = ()
    device_files: Tuple[str, ...] = ()
    sandbox: Sandbox = DEFAULT_SANDBOX
    energy_rail: str = ""
    energy_command: Tuple[str, ...] = ()
    shares_with: FrozenSet[str] = frozenset()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """A machine that boards are attached to; a Nomad client node.

    Attributes:
        host_id: The cluster's id of it.
        name: Its name, for people.
        ready: Whether the cluster may place work there now.
        ready_reason: Why not, in words ("down", "draining", "ineligible"); "" when ready.
        boards: Its boards.
        rejected: Why what it reports under a board's name is none of its boards, by that name.
        attributes: Of the Nomad node, as constraints spell them: ``${node.class}``,
            ``${attr.cpu.arch}``, ``${meta.rack}``.
        attributes_read: Whether these are all; otherwise ``${attr.…}`` and ``${meta.…}`` are not
            known yet.
    """

    host_id: str
    name: str
    ready: bool
    boards: Tuple[Board, ...]
    ready_reason: str = ""
    rejected: Tuple[Tuple[str, str], ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    attributes_read: bool = True

    def attribute(self, name: str) -> Optional[str]:
        """Return an attribute of the node: `NOT_READ` if it is not known yet, None if none."""
        unknown = not self.attributes_read and not name.startswith("${node.")
        return self.attributes.get(name, NOT_READ if unknown else None)
