"""The inventory: which boards are expected, and what each may be used for.

The file has the shape of the platform's ``target.json``::

    {"rpi4b": [{"target_uid": "rpi4b-0001-0001",
                "memory": {"ram": "4 GiB", "storage": 34359738368},
                "engines": {"ort": {"version": "1.20", "supported_types": ["TYPE1", "TYPE2"]}},
                "local": {"cpus": [0], "threads": 1}}]}

``local`` is ours: the board is a slice of this machine. So are ``ssh``, for a board behind its host
(``{"host", "port", "user", "identity_file", "known_hosts_file", "python"}``), and ``hooks``, a list
of ``{"when", "run", "on", "timeout_s"}`` that are run around each benchmark. What the platform adds
for its hosts (``image``, ``volumes``, ``env``, ``auth`` of an engine) is skipped and never kept; of
``devices`` the paths are, since a board whose files are gone is gone.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Dict, List, Optional, Tuple, TypeGuard

from edgeyard.devices.model import (
    ENGINE_PATTERN,
    FAMILY_PATTERN,
    TARGET_UID_PATTERN,
    Board,
    BoardEngine,
    Hook,
    LocalSlice,
    SshAddress,
)
from edgeyard.devices.sizes import parse_size
from edgeyard.errors import ConfigError

_SKIPPED = frozenset({"image", "devices", "volumes", "env", "auth"})
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9_])?|::1|::")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")
_PLAIN_PATH = re.compile(r"/[^\x00-\x20\x7f\"'%$]{1,1023}")
"""An absolute path without what ssh would expand or take apart."""
_TYPE = re.compile(r"TYPE[0-9]{1,2}")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MAX_CPU = 4096
_MAX_HOOK_S = 3600
_GIB = 1 << 30


@dataclass(frozen=True)
class Family:
    """Facts of a kind of board, from ``families/*.toml``.

    Attributes:
        family: Its key, e.g. ``rpi4b``.
        name: For people.
        emulated: Its boards are slices of a bigger machine.
    """

    family: str
    name: str
    description: str
    emulated: bool = False


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
        """Its boards; none for an unknown family."""
        return tuple(board for board in self.boards if board.family == family)

    def board(self, target_uid: str) -> Optional[Board]:
        """The board of that name, or None."""
        return next((board for board in self.boards if board.target_uid == target_uid), None)

    def max_ram_bytes(self, family: Optional[str] = None) -> int:
        """The most that any board has, of the family where one is named; 0 without boards."""
        boards = self.boards if family is None else self.of_family(family)
        return max((board.ram_bytes for board in boards), default=0)

    def max_storage_bytes(self, family: Optional[str] = None) -> int:
        """As `max_ram_bytes`, of storage."""
        boards = self.boards if family is None else self.of_family(family)
        return max((board.storage_bytes for board in boards), default=0)

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
        """As `from_file`, from the text itself."""
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
        """As `from_file`, from parsed JSON."""
        return cls._checked(data, [])

    @classmethod
    def _checked(cls, data: object, problems: List[str]) -> "Inventory":
        reader = _Reader(problems)
        boards = reader.boards(data)
        if problems:
            raise ConfigError(problems)
        return cls(with_shared_cores(boards))

    def to_json(self) -> Dict[str, List[Dict[str, object]]]:
        """The shape of the file, with sizes in bytes."""
        found: Dict[str, List[Dict[str, object]]] = {}
        for board in self.boards:
            entry: Dict[str, object] = {
                "target_uid": board.target_uid,
                "memory": {"storage": board.storage_bytes, "ram": board.ram_bytes},
                "engines": {
                    engine.name: {
                        "version": engine.version,
                        "supported_types": sorted(engine.supported_types),
                    }
                    for engine in board.engines
                },
            }
            if board.local is not None:
                entry["local"] = {
                    "cpus": list(board.local.cpus),
                    "threads": board.local.threads,
                }
            if board.ssh is not None:
                entry["ssh"] = {key: value for key, value in asdict(board.ssh).items() if value}
            if board.hooks:
                entry["hooks"] = [{**asdict(hook), "run": list(hook.run)} for hook in board.hooks]
            found.setdefault(board.family, []).append(entry)
        return found


def with_shared_cores(boards: Sequence[Board]) -> Tuple[Board, ...]:
    """The boards, each with the names of those that use a CPU of its own slice."""
    cpus = {
        board.target_uid: frozenset(board.local.cpus) for board in boards if board.local is not None
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
        )
    return found


class _Reader:
    """Reads boards and gathers what is wrong, each with its JSON path."""

    def __init__(self, problems: List[str]) -> None:
        self._problems = problems
        self._seen: Dict[str, str] = {}

    def boards(self, data: object) -> List[Board]:
        found: List[Board] = []
        if not isinstance(data, dict):
            self._wrong("$", "is not an object of families")
            return found
        for family, entries in data.items():
            path = f"$.{family}"
            if not FAMILY_PATTERN.fullmatch(family):
                self._wrong(path, "a family is a letter, then letters and digits, all lower case")
                continue
            if not isinstance(entries, list):
                self._wrong(path, "is not a list of boards")
                continue
            for index, entry in enumerate(entries):
                board = self._board(f"{path}[{index}]", family, entry)
                if board is not None:
                    found.append(board)
        return found

    def _wrong(self, path: str, reason: str) -> None:
        self._problems.append(f"{path}: {reason}")

    def _object(self, path: str, value: object, keys: "frozenset[str]") -> Dict[str, object]:
        if not isinstance(value, dict):
            self._wrong(path, "is missing" if value is None else "is not an object")
            return {}
        for key in sorted(value.keys() - keys):
            self._wrong(f"{path}.{key}", f"is none of {', '.join(sorted(keys))}")
        return value

    def _board(self, path: str, family: str, value: object) -> Optional[Board]:
        before = len(self._problems)
        keys = frozenset({"target_uid", "memory", "engines", "local", "ssh", "hooks"})
        entry = self._object(path, value, keys)
        if not entry:
            if isinstance(value, dict):
                self._wrong(path, "is empty")
            return None
        uid = self._uid(f"{path}.target_uid", family, entry.get("target_uid"))
        memory = self._object(f"{path}.memory", entry.get("memory"), frozenset({"ram", "storage"}))
        given = isinstance(entry.get("memory"), dict)
        ram = self._size(f"{path}.memory.ram", memory.get("ram")) if given else 0
        storage = self._size(f"{path}.memory.storage", memory.get("storage")) if given else 0
        engines = self._engines(f"{path}.engines", entry.get("engines"))
        local = self._local(f"{path}.local", entry["local"]) if "local" in entry else None
        ssh = self._ssh(f"{path}.ssh", entry["ssh"]) if "ssh" in entry else None
        hooks = self._hooks(f"{path}.hooks", entry.get("hooks", []))
        if local is not None and ssh is not None:
            self._wrong(path, "is either local or reached by ssh, not both")
        if len(self._problems) > before:
            return None
        return Board(
            target_uid=uid,
            family=family,
            ram_bytes=ram,
            storage_bytes=storage,
            engines=engines,
            local=local,
            ssh=ssh,
            hooks=hooks,
            device_files=_device_files(entry["engines"]),
        )

    def _uid(self, path: str, family: str, value: object) -> str:
        if not isinstance(value, str) or not TARGET_UID_PATTERN.fullmatch(value):
            self._wrong(path, f"is not <family>-NNNN-NNNN, as in {family}-0001-0001")
            return ""
        if not value.startswith(f"{family}-"):
            self._wrong(path, f"{value} does not begin with its family {family}")
        if value in self._seen:
            self._wrong(path, f"{value} is also at {self._seen[value]}")
        self._seen.setdefault(value, path)
        return value

    def _size(self, path: str, value: object) -> int:
        try:
            return parse_size(value)
        except ValueError as error:
            self._wrong(path, "is missing" if value is None else str(error))
            return 0

    def _engines(self, path: str, value: object) -> Tuple[BoardEngine, ...]:
        if not isinstance(value, dict):
            self._wrong(path, "is missing" if value is None else "is not an object")
            return ()
        found = []
        for name, facts in value.items():
            here = f"{path}.{name}"
            if not ENGINE_PATTERN.fullmatch(name):
                self._wrong(here, "an engine is a letter, then letters, digits and '_'")
                continue
            keys = frozenset({"version", "supported_types"}) | _SKIPPED
            entry = self._object(here, facts, keys)
            types = entry.get("supported_types") if isinstance(facts, dict) else []
            if not isinstance(types, list) or not all(
                isinstance(each, str) and _TYPE.fullmatch(each) for each in types
            ):
                self._wrong(f"{here}.supported_types", "is not a list such as ['TYPE1']")
                continue
            version = entry.get("version", "")
            if isinstance(version, bool) or not isinstance(version, (str, int, float)):
                self._wrong(f"{here}.version", "is not text")
                continue
            found.append(
                BoardEngine(name=name, version=str(version), supported_types=frozenset(types))
            )
        return tuple(found)

    def _local(self, path: str, value: object) -> Optional[LocalSlice]:
        entry = self._object(path, value, frozenset({"cpus", "threads"}))
        if not isinstance(value, dict):
            return None
        cpus, threads = entry.get("cpus"), entry.get("threads", 1)
        if (
            not isinstance(cpus, list)
            or not cpus
            or not all(_whole(each) and 0 <= each < _MAX_CPU for each in cpus)
        ):
            self._wrong(f"{path}.cpus", "is not a list of CPU numbers")
            return None
        if not _whole(threads) or not 1 <= threads <= _MAX_CPU:
            self._wrong(f"{path}.threads", "is not a number of threads from 1 on")
            return None
        return LocalSlice(cpus=tuple(sorted(set(cpus))), threads=threads)

    def _ssh(self, path: str, value: object) -> Optional[SshAddress]:
        before = len(self._problems)
        keys = frozenset({"host", "port", "user", "identity_file", "known_hosts_file", "python"})
        entry = self._object(path, value, keys)
        if not isinstance(value, dict):
            return None
        host, port = entry.get("host"), entry.get("port", 22)
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            self._wrong(f"{path}.host", "is not a host's name or address")
        if not _whole(port) or not 1 <= port <= 65535:
            self._wrong(f"{path}.port", "is not a port from 1 to 65535")
        user = entry.get("user", "")
        if not isinstance(user, str) or (user and not _USER.fullmatch(user)):
            self._wrong(f"{path}.user", "is not a user's name")
        for key in ("identity_file", "known_hosts_file"):
            file = entry.get(key, "")
            if not isinstance(file, str) or (file and not _PLAIN_PATH.fullmatch(file)):
                self._wrong(
                    f"{path}.{key}", "is not an absolute path without blanks, quotes, % or $"
                )
        python = entry.get("python", "python3")
        if not isinstance(python, str) or not (
            _PROGRAM.fullmatch(python) or _PLAIN_PATH.fullmatch(python)
        ):
            self._wrong(f"{path}.python", "is not a program's name or absolute path")
        if len(self._problems) > before:
            return None
        return SshAddress(
            host=str(host),
            port=port if _whole(port) else 22,
            user=str(user),
            identity_file=str(entry.get("identity_file", "")),
            known_hosts_file=str(entry.get("known_hosts_file", "")),
            python=str(python),
        )

    def _hooks(self, path: str, value: object) -> Tuple[Hook, ...]:
        if not isinstance(value, list):
            self._wrong(path, "is not a list of hooks")
            return ()
        found = []
        for index, each in enumerate(value):
            here = f"{path}[{index}]"
            entry = self._object(here, each, frozenset({"when", "run", "on", "timeout_s"}))
            if not isinstance(each, dict):
                continue
            when, on = entry.get("when"), entry.get("on", "host")
            run, timeout_s = entry.get("run"), entry.get("timeout_s", 60)
            if when not in ("before", "after"):
                self._wrong(f"{here}.when", "is neither before nor after")
            elif on not in ("host", "board"):
                self._wrong(f"{here}.on", "is neither host nor board")
            elif (
                not isinstance(run, list)
                or not run
                or not all(isinstance(word, str) and "\0" not in word for word in run)
                or not run[0]
            ):
                self._wrong(f"{here}.run", "is not a program with its arguments, as a list of text")
            elif (
                isinstance(timeout_s, bool)
                or not isinstance(timeout_s, (int, float))
                or not 0 < timeout_s <= _MAX_HOOK_S
            ):
                self._wrong(f"{here}.timeout_s", f"is not a time up to {_MAX_HOOK_S} s")
            else:
                found.append(
                    Hook(when=str(when), run=tuple(run), on=str(on), timeout_s=float(timeout_s))
                )
        return tuple(found)


def _device_files(engines: object) -> Tuple[str, ...]:
    """The host's side of ``devices``: text as Docker takes it (``/dev/a:/dev/b:rw``), or objects.

    What else stands there is the platform's own matter, and skipped as such.
    """
    found: List[str] = []
    for facts in engines.values() if isinstance(engines, dict) else ():
        devices = facts.get("devices") if isinstance(facts, dict) else None
        for device in devices if isinstance(devices, list) else ():
            path = device.get("host_path") if isinstance(device, dict) else device
            if isinstance(path, str) and path.startswith("/"):
                found.append(path.split(":", 1)[0])
    return tuple(sorted(set(found)))


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _repeated(keys: List[str]) -> List[str]:
    return sorted(key for key, count in Counter(keys).items() if count > 1)
