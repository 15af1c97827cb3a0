"""The inventory: which boards are expected, and what each may be used for.

The file has the shape of the platform's ``target.json``::

    {"rpi4b": [{"target_uid": "rpi4b-0001-0001",
                "memory": {"ram": "4 GiB", "storage": 34359738368},
                "engines": {"ort": {"version": "1.20", "supported_types": ["TYPE1", "TYPE2"]}},
                "local": {"cpus": [0], "threads": 1}}]}

`edgeyard.devices.inventory_file` describes all of it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from edgeyard.devices.inventory_file import BoardEntry, boards_of
from edgeyard.devices.model import (
    Board,
    BoardEngine,
    LocalSlice,
    Sandbox,
)
from edgeyard.errors import ConfigError

_GIB = 1 << 30


@dataclass(frozen=True)
class Family:
    """Facts of a kind of board, from ``families/*.toml``.

    Attributes:
        family: Its key, e.g. ``rpi4b``.
        name: For people.
        emulated: Its boards are slices of a bigger machine.
        devices: Device files that its engines use, with ``*``.
        paths: Other files and folders that they read.
    """

    family: str
    name: str
    description: str
    emulated: bool = False
    devices: Tuple[str, ...] = ()
    paths: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Inventory:
    """The expected boards, in the order of the file."""

    boards: Tuple[Board, ...]

    def families(self) -> Tuple[str, ...]:
        """Families that have a board, sorted."""
        return tuple(sorted({board.family for board in self.boards}))

    def engines(self) -> Mapping[str, "frozenset[str]"]:
        """Benchmark types by engine, over all boards."""
        found: Dict[str, frozenset[str]] = {}
        for board in self.boards:
            for engine in board.engines:
                found[engine.name] = found.get(engine.name, frozenset()) | engine.supported_types
        return dict(sorted(found.items()))

    def of_family(self, family: str) -> Tuple[Board, ...]:
        """Return the boards of a family; empty for an unknown one."""
        return tuple(board for board in self.boards if board.family == family)

    def board(self, target_uid: str) -> Optional[Board]:
        """Return the board of that name, or None."""
        return next((board for board in self.boards if board.target_uid == target_uid), None)

    def max_ram_bytes(self, family: Optional[str] = None) -> int:
        """Return the largest memory of a board, or of a board of the family; 0 without boards."""
        boards = self.boards if family is None else self.of_family(family)
        return max((board.ram_bytes for board in boards), default=0)

    @classmethod
    def from_file(cls, path: Path) -> "Inventory":
        """Read a file.

        Raises:
            ConfigError: It can't be read or is wrong; every mistake with its place.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"inventory {path}: {error}"]) from error
        try:
            return cls.from_text(text)
        except ConfigError as error:
            raise ConfigError([f"inventory {path}: {each}" for each in error.problems]) from error

    @classmethod
    def from_text(cls, text: str) -> "Inventory":
        """Return the inventory of a text; errors as in `from_file`."""
        problems: List[str] = []

        def unique(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
            keys = [key for key, _ in pairs]
            problems.extend(f"key {key!r} is given twice" for key in _repeated(keys))
            return dict(pairs)

        try:
            data = json.loads(text, object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            raise ConfigError([f"not JSON: {error}"]) from error
        return cls._checked(data, problems)

    @classmethod
    def from_json(cls, data: object) -> "Inventory":
        """Return the inventory of parsed JSON; errors as in `from_file`."""
        return cls._checked(data, [])

    @classmethod
    def _checked(cls, data: object, problems: List[str]) -> "Inventory":
        boards = boards_of(data, problems)
        if problems:
            raise ConfigError(problems)
        return cls(with_shared_cores(boards))

    def to_json(self) -> Dict[str, List[Dict[str, object]]]:
        """Return the content of the file, with sizes in bytes and without defaults."""
        found: Dict[str, List[Dict[str, object]]] = {}
        for board in self.boards:
            entry = BoardEntry.of(board).model_dump(exclude_defaults=True)
            found.setdefault(board.family, []).append(entry)
        return found


def with_shared_cores(boards: Sequence[Board]) -> Tuple[Board, ...]:
    """Return the boards, each with the names of those that use a CPU of its own slice.

    Boards whose duty cycles add up to at most 1 on a CPU do not share it: there is time for all.
    """
    used: Dict[int, float] = {}
    for board in boards:
        if board.local is not None:
            for cpu in board.local.cpus:
                used[cpu] = used.get(cpu, 0.0) + board.local.duty_cycle
    cpus = {
        board.target_uid: frozenset(cpu for cpu in board.local.cpus if used[cpu] > 1.0)
        for board in boards
        if board.local is not None
    }
    return tuple(
        replace(
            board,
            shares_with=frozenset(
                uid
                for uid, others in cpus.items()
                if uid != board.target_uid and others & cpus[board.target_uid]
            ),
        )
        if board.target_uid in cpus
        else board
        for board in boards
    )


def default_embedded_inventory(
    cpus: Sequence[int], ram_bytes: int, engines: Sequence[BoardEngine]
) -> Inventory:
    """Boards that this machine can emulate, and one Raspberry Pi that is expected but not there.

    Families differ by threads and affinity alone: nothing is slowed down otherwise. On a machine
    with one CPU the fast family has one thread on it, and the medium one a single board.

    Args:
        cpus: CPUs that may be used (the server's own affinity); the first two are.
        ram_bytes: Memory of the machine.
        engines: What is installed here.

    Raises:
        ConfigError: There is no CPU.
    """
    used = tuple(sorted(set(cpus)))[:2]
    if not used:
        raise ConfigError(["no CPU that boards could be emulated on"])

    def emulated(uid: str, on: Tuple[int, ...], threads: int, share: int) -> Board:
        return Board(
            target_uid=uid,
            family=uid.split("-", 1)[0],
            ram_bytes=ram_bytes // share,
            storage_bytes=16 * _GIB,
            engines=tuple(engines),
            local=LocalSlice(cpus=on, threads=threads),
        )

    boards = [
        emulated("emufast-0001-0001", used, len(used), 2),
        *(
            emulated(f"emumid-0001-{number:04}", (cpu,), 1, 4)
            for number, cpu in enumerate(used, start=1)
        ),
        emulated("emuslow-0001-0001", used[-1:], 2, 4),
        Board(
            target_uid="rpi4b-0001-0001",
            family="rpi4b",
            ram_bytes=4 * _GIB,
            storage_bytes=32 * _GIB,
            engines=tuple(engines),
        ),
    ]
    return Inventory(with_shared_cores(boards))


@cache
def known_families() -> Mapping[str, Family]:
    """Families that this version has facts of; an inventory may hold others."""
    import tomllib  # Python 3.11: only the server asks for these facts

    found = {}
    for path in sorted((Path(__file__).parent / "families").glob("*.toml")):
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = Family(
            family=path.stem,
            name=facts["name"],
            description=facts["description"],
            emulated=facts["emulated"],
            devices=tuple(facts.get("devices", ())),
            paths=tuple(facts.get("paths", ())),
        )
    return found


def sandbox_of(board: Board) -> Sandbox:
    """Return how its runs are confined: its own word, and what its family and its engines need."""
    family = known_families().get(board.family)
    devices = (*board.sandbox.devices, *board.device_files, *(family.devices if family else ()))
    paths = (*board.sandbox.paths, *(family.paths if family else ()))
    return Sandbox(
        mode=board.sandbox.mode,
        devices=tuple(dict.fromkeys(devices)),
        paths=tuple(dict.fromkeys(paths)),
    )


def _repeated(keys: List[str]) -> List[str]:
    return sorted(key for key, count in Counter(keys).items() if count > 1)
