"""``python -m edgeyard.devices.runner.bootstrap``: the first program of the bootstrap container.

The boards file of the host states, by board and engine, in which image an engine runs. Where it
states one, the bootstrap starts a second container from it by the host's own container engine and
ends with it. Where it states none, the runner runs in the bootstrap container itself. Either way it
runs without root, unless the boards file states another user.

The name of the image, its registry and the password come from a file of the host. They are in no
log, no report and no variable of a container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple

from edgeyard.devices.runner.container_engine import ContainerEngine
from edgeyard.errors import RunFailed

CONTAINERS = "EDGEYARD_CONTAINERS"
"""Names the file that the device plugin writes: the board's containers, by engine."""

DEFAULT_USER = "10001:10001"

_LABEL = "edgeyard.allocation"
_STOP_S = 3
"""Time from SIGTERM to SIGKILL; Nomad gives the bootstrap itself 5 s."""

_KILLED = 128 + signal.SIGKILL
"""Status of a container whose runner was killed; one that lives has reported what it knows."""

_PR_SET_DUMPABLE = 4
_RUNNER = ("-m", "edgeyard.devices.runner")
_OWN_VARIABLES = ("PATH", "HOME", "HOSTNAME", "LANG", "PYTHONUNBUFFERED", CONTAINERS)
"""Variables of the bootstrap's image and of the bootstrap: another image has its own."""


def main() -> NoReturn:
    """Run the benchmark in the image of its engine, and exit with its status."""
    environ = os.environ
    try:
        host = _read_host_file(environ)
        container = _container_of(host, environ)
        if container.get("image"):
            sys.exit(_Container(host, container, environ).run())
        _become(str(container.get("user") or DEFAULT_USER), container, environ)
        _refuse_access_to_engine(host, environ)
    except RunFailed as failure:
        from edgeyard.devices.runner.__main__ import run

        sys.exit(run(environ, failure))
    os.execv(sys.executable, [sys.executable, *_RUNNER])


def _read_host_file(environ: Mapping[str, str]) -> Mapping[str, Any]:
    path = environ.get(CONTAINERS)
    if not path:
        return {}
    try:
        host = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise RunFailed(
            "board_fault", f"the host's list of containers can't be read: {type(error).__name__}"
        ) from error
    return host if isinstance(host, dict) else {}


def _container_of(host: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any]:
    engines = host.get("engines")
    found = engines.get(environ.get("RUNTIME", "")) if isinstance(engines, dict) else None
    return found if isinstance(found, dict) else {}


def _become(user: str, container: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Give up root where there is any; the files of the task become the user's."""
    if os.geteuid() != 0:
        return
    user_id, group_id = _numbers(user)
    if user_id == 0:
        return
    try:
        for name in ("NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR"):
            folder = environ.get(name)
            if folder:
                _give(Path(folder), user_id, group_id)
        os.setgroups(_groups_of(container))
        os.setgid(group_id)
        os.setuid(user_id)
    except OSError as error:
        reason = f"the container's user {user} can't be set: {error.strerror}"
        raise RunFailed("board_fault", reason) from error


def _refuse_access_to_engine(host: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Refuse a run in the bootstrap container that could use the host's container engine.

    The engine's socket is there where another engine of the board has an image of its own.
    """
    socket = str(host.get("socket") or "")
    if socket and os.access(socket, os.W_OK):
        engine = environ.get("RUNTIME", "")
        raise RunFailed(
            "board_fault",
            f"engine {engine!r} would run with access to the host's container engine; the lab's "
            "operator states an image for it in the host's boards file, or another user",
        )


def _numbers(user: str) -> Tuple[int, int]:
    first, _, second = user.partition(":")
    try:
        return int(first), int(second or first)
    except ValueError:
        raise RunFailed("board_fault", "the container's user is not UID:GID in numbers") from None


def _give(folder: Path, user_id: int, group_id: int) -> None:
    """Make a folder and what is in it a user's; links are not followed."""
    os.chown(folder, user_id, group_id)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                os.chown(os.path.join(parent, name), user_id, group_id, follow_symlinks=False)


def _groups_of(container: Mapping[str, Any]) -> List[int]:
    """Return the groups that own the board's device files, and are not root."""
    groups = set()
    for device in container.get("devices") or ():
        with contextlib.suppress(OSError):
            groups.add(os.stat(device["container_path"]).st_gid)
    return sorted(groups - {0})


class _Container:
    """The container of an engine's own image.

    It shares the process namespace of the bootstrap: when the bootstrap ends, however that
    comes about, the kernel ends all processes of the container, too.
    """

    def __init__(
        self, host: Mapping[str, Any], container: Mapping[str, Any], environ: Mapping[str, str]
    ) -> None:
        self._container, self._environ = container, environ
        self._image = str(container["image"])
        self._name = f"edgeyard-{environ.get('NOMAD_ALLOC_ID', '')}"
        self._engine = ContainerEngine(str(host.get("socket") or ""))
        self._stopping = threading.Event()
        # Processes of root in the container must not reach the engine's socket through /proc.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def run(self) -> int:
        """Run it to its end; return its exit status.

        Raises:
            RunFailed: ``board_fault``: the container could not be started; ``out_of_memory``.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        environ = self._environ
        own = f"{environ.get('NOMAD_TASK_NAME', '')}-{environ.get('NOMAD_ALLOC_ID', '')}"
        bootstrap = self._engine.inspect_container(own)
        self._remove_old()
        self._prepare_image()
        self._prepare_files()
        created = self._engine.create_container(self._name, self._settings(own, bootstrap))
        try:
            with self._engine.attached(created, sys.stdout.fileno(), sys.stderr.fileno()):
                self._engine.start_container(created)
                status = self._engine.wait(created)
            if status == _KILLED and self._reached_limit(created):
                raise RunFailed(
                    "out_of_memory",
                    "the container was killed: it needed more memory than its job may use; "
                    "the lab's operator sets memory_mib of the cluster",
                )
            return status
        finally:
            with contextlib.suppress(RunFailed):
                self._engine.remove_container(created)

    def _reached_limit(self, container: str) -> bool:
        """Return whether the container has a memory limit, and the kernel killed in it for it."""
        found = self._engine.inspect_container(container)
        return bool(found["State"].get("OOMKilled") and found["HostConfig"].get("Memory"))

    def _prepare_image(self) -> None:
        found = self._engine.inspect_image(self._image)
        if found is None:
            self._engine.pull(self._image, self._container.get("auth"))
            found = self._engine.inspect_image(self._image)
        wanted = self._engine.architecture()
        if found is None or found.get("Architecture") != wanted:
            built = "unknown" if found is None else found.get("Architecture")
            engine = self._environ.get("RUNTIME", "")
            raise RunFailed(
                "board_fault",
                f"the host's image for engine {engine!r} is built for {built}, "
                f"and the host is {wanted}; the lab's operator states another image in the "
                "host's boards file",
            )

    def _prepare_files(self) -> None:
        user_id, group_id = _numbers(self._user)
        for name in ("NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR"):
            folder = self._environ.get(name)
            if folder and user_id:
                with contextlib.suppress(OSError):  # a rootless engine: files are ours alone
                    _give(Path(folder), user_id, group_id)

    @property
    def _user(self) -> str:
        return str(self._container.get("user") or DEFAULT_USER)

    def _settings(self, own: str, bootstrap: Mapping[str, Any]) -> Dict[str, object]:
        """Return what the engine is asked for: limits and network as of the bootstrap."""
        limits = bootstrap["HostConfig"]
        privileged = bool(limits.get("Privileged"))
        kept = ("NOMAD_TASK_DIR", "NOMAD_SECRETS_DIR", "NOMAD_ALLOC_DIR")
        folders = {self._environ[name] for name in kept if self._environ.get(name)}
        progress = self._environ.get("EDGEYARD_PROGRESS_FILE")
        if progress:
            folders.add(str(Path(progress).parent))
        binds = [
            f"{mount['Source']}:{mount['Destination']}"
            for mount in bootstrap["Mounts"]
            if mount.get("Destination") in folders
        ]
        own_variables = {
            name: value for name, value in self._environ.items() if name not in _OWN_VARIABLES
        }
        environment = {**own_variables, **(self._container.get("env") or {})}
        return {
            "Image": self._image,
            "User": self._user,
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Labels": {_LABEL: self._environ.get("NOMAD_ALLOC_ID", "")},
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": {
                "Binds": [*binds, *(self._container.get("volumes") or ())],
                "Devices": [
                    {
                        "PathOnHost": device["host_path"],
                        "PathInContainer": device["container_path"],
                        "CgroupPermissions": device["permissions"],
                    }
                    for device in self._container.get("devices") or ()
                ],
                "GroupAdd": [str(group) for group in _groups_of(self._container)],
                "PidMode": f"container:{own}",
                "NetworkMode": limits.get("NetworkMode") or "none",
                "Memory": limits.get("Memory") or 0,
                "MemorySwap": limits.get("MemorySwap") or 0,
                "CpuShares": limits.get("CpuShares") or 0,
                "CpusetCpus": limits.get("CpusetCpus") or "",
                "Privileged": privileged,
                "CapDrop": [] if privileged else ["ALL"],
                "SecurityOpt": [] if privileged else ["no-new-privileges"],
            },
        }

    def _remove_old(self) -> None:
        """Remove ended containers of earlier bootstraps that were killed."""
        for each in self._engine.list_containers(_LABEL, ("created", "exited", "dead")):
            with contextlib.suppress(RunFailed):
                self._engine.remove_container(str(each["Id"]))

    def _stop(self, number: int, frame: Optional[FrameType]) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            name = self._name
            threading.Thread(target=self._engine.stop, args=(name, _STOP_S), daemon=True).start()


if __name__ == "__main__":
    main()
