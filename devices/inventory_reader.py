"""Boards of a ``target.json``, checked: every mistake is told with its JSON path."""

import re
from typing import Dict, List, Optional, Tuple, TypeGuard

from edgeyard.devices.model import (
    DEFAULT_SANDBOX,
    ENGINE_PATTERN,
    FAMILY_PATTERN,
    SANDBOX_MODES,
    TARGET_UID_PATTERN,
    Board,
    BoardEngine,
    Hook,
    LocalSlice,
    Sandbox,
    SshAddress,
)
from edgeyard.devices.sizes import parse_size

_SKIPPED = frozenset({"image", "devices", "volumes", "env", "auth"})
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9_])?|::1|::")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")
_PLAIN_PATH = re.compile(r"/[^\x00-\x20\x7f\"'%$]{1,1023}")
"""An absolute path without what ssh would expand or take apart."""
_PATTERN = re.compile(r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+")
_TYPE = re.compile(r"TYPE[0-9]{1,2}")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MAX_CPU = 4096
_MAX_HOOK_S = 3600


class BoardsReader:
    """Reads boards and gathers what is wrong, each with its JSON path."""

    def __init__(self, problems: List[str]) -> None:
        """Takes the list that what is wrong is added to."""
        self._problems = problems
        self._seen: Dict[str, str] = {}

    def boards(self, data: object) -> List[Board]:
        """The boards of a whole file that are right."""
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
        keys = frozenset({"target_uid", "memory", "engines", "local", "ssh", "hooks", "sandbox"})
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
        sandbox = self._sandbox(f"{path}.sandbox", entry.get("sandbox", {}))
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
            sandbox=sandbox,
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

    def _sandbox(self, path: str, value: object) -> Sandbox:
        entry = self._object(path, value, frozenset({"mode", "devices", "paths"}))
        mode = entry.get("mode", DEFAULT_SANDBOX.mode)
        if not isinstance(mode, str) or mode not in SANDBOX_MODES:
            self._wrong(f"{path}.mode", f"is none of {', '.join(SANDBOX_MODES)}")
            return DEFAULT_SANDBOX
        return Sandbox(
            mode=mode,
            devices=self._patterns(f"{path}.devices", entry.get("devices", [])),
            paths=self._patterns(f"{path}.paths", entry.get("paths", [])),
        )

    def _patterns(self, path: str, value: object) -> Tuple[str, ...]:
        if not isinstance(value, list) or not all(
            isinstance(each, str) and _PATTERN.fullmatch(each) for each in value
        ):
            self._wrong(path, "is not a list of absolute paths below the root folder")
            return ()
        return tuple(value)

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
