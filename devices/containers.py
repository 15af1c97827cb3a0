"""Containers of a host's boards, by engine: what the boards file states for the host alone.

Image, registry and password stay on the host. The server reads the same file without them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import ConfigError

_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]{0,511}")
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_BIND = re.compile(r"/[^:\x00]*:/[^:\x00]*(:[a-z,]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PERMISSIONS = re.compile(r"[rwm]{1,3}")


@dataclass(frozen=True)
class Container:
    """How an engine of a board runs in a container.

    Attributes:
        image: "": in the image of the bootstrap.
        auth: ``username`` and ``password`` at the image's registry.
        devices: Device files as `device_mappings` returns them.
        volumes: Docker's text, ``/host:/inside:ro``.
        user: ``UID:GID``; "": the default, which is not root.
    """

    image: str = ""
    auth: Optional[Mapping[str, str]] = field(default=None, repr=False)
    devices: Tuple[Mapping[str, str], ...] = ()
    volumes: Tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str = ""


def containers_from_file(path: Path) -> Dict[str, Dict[str, Container]]:
    """Read the containers of a boards file that is otherwise valid, by board and engine.

    Raises:
        ConfigError: A container is wrong; every mistake with its place, and without its value.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"inventory {path}: {error}"]) from error
    problems: List[str] = []
    found = {
        str(board["target_uid"]): {
            name: _container(f"$.{family}[{index}].engines.{name}", engine, problems)
            for name, engine in board["engines"].items()
        }
        for family, boards in data.items()
        for index, board in enumerate(boards)
    }
    if problems:
        raise ConfigError([f"inventory {path}: {each}" for each in problems])
    return found


def device_mappings(devices: object) -> List[Dict[str, str]]:
    """Return device files in one form; other forms are left out.

    Docker's text (``/dev/a``, ``/dev/a:/dev/b``, ``/dev/a:/dev/b:rw``) and objects with
    ``host_path`` are understood.
    """
    found = []
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            host, inside = device.get("host_path"), device.get("container_path")
            permissions = device.get("permissions") or device.get("cgroup_permissions")
        else:
            host, inside, permissions = (*str(device).split(":"), None, None)[:3]
        if isinstance(host, str) and host.startswith("/"):
            found.append(
                {
                    "host_path": host,
                    "container_path": str(inside or host),
                    "permissions": str(permissions or "rwm"),
                }
            )
    return found


class ContainerFiles:
    """One file for each board, that only root of this host reads: it may hold a password."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, target_uid: str, containers: Mapping[str, Container], socket: Path) -> Path:
        """Write what the bootstrap of the board's next task reads; return its path.

        Raises:
            OSError: It can't be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._folder / target_uid
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "containers.json"
        document = {
            "socket": str(socket),
            "engines": {name: asdict(container) for name, container in containers.items()},
        }
        with open_atomically(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(document).encode())
        return path


def _container(place: str, engine: Mapping[str, Any], problems: List[str]) -> Container:
    def stated(name: str, good: bool, wanted: str) -> None:
        if engine.get(name) is not None and not good:
            problems.append(f"{place}.{name}: must be {wanted}")

    image, auth, user = engine.get("image"), engine.get("auth"), engine.get("user")
    volumes, env = engine.get("volumes") or [], engine.get("env") or {}
    devices = device_mappings(engine.get("devices"))
    if isinstance(env, list):  # Docker's other form
        env = dict(str(each).partition("=")[::2] for each in env)
    stated("image", _matches(_IMAGE, image), "an image's name, such as registry.example/ort:1")
    stated("user", _matches(_USER, user), "UID:GID in numbers, such as 10001:10001")
    if not image:  # the rest belongs to it
        return Container(devices=tuple(devices), user=str(user or ""))
    logins = isinstance(auth, dict) and all(
        isinstance(auth.get(name), str) for name in ("username", "password")
    )
    stated("auth", logins, "an object with username and password")
    binds = isinstance(volumes, list) and all(_matches(_BIND, each) for each in volumes)
    stated("volumes", binds, "a list of texts such as /host:/inside:ro")
    variables = isinstance(env, dict) and all(
        _matches(_VARIABLE, name) and isinstance(value, str) and "\0" not in value
        for name, value in env.items()
    )
    stated("env", variables, "an object of names and texts")
    permitted = all(_matches(_PERMISSIONS, each["permissions"]) for each in devices)
    stated("devices", permitted, "a list of texts such as /dev/a:/dev/a:rw")
    return Container(
        image=str(image),
        auth={name: auth[name] for name in ("username", "password")} if logins and auth else None,
        devices=tuple(devices),
        volumes=tuple(volumes) if binds else (),
        env=dict(env) if variables else {},
        user=str(user or ""),
    )


def _matches(pattern: "re.Pattern[str]", value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
