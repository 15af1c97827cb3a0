"""A real sshd on loopback, run as an unprivileged user: a board behind its host."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from deploy import programs
from deploy.process import free_port
from edgeyard.devices.model import SshAddress

_SSHD = programs.find("sshd") or "/usr/sbin/sshd"
_SHELLS = {"/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh", "/usr/bin/zsh", "/bin/zsh"}
_READY_S = 60.0
_STARTS = 5
_PACKAGES = ("numpy", "numpy.libs", "onnxruntime", "flatbuffers", "google", "packaging")
"""What the engine ``ort`` needs."""

_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
"""


@dataclass
class Sshd:
    """A running server.

    Attributes:
        address: How to reach it, with a key that it trusts and a file that trusts its key.
        folder: Readable for its user.
    """

    address: SshAddress
    folder: Path
    port: int
    user: pwd.struct_passwd
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens.

        Where a signal ends it before it listens, it is started again: nothing here sends one,
        but a kernel that can't read a page of the program back from a busy disk does (SIGBUS).
        An sshd that ends by itself has a reason, which its log says.
        """
        for _ in range(_STARTS):
            if (code := self._started()) is None:
                return
            assert code < 0, f"sshd ended with {code}: {(self.folder / 'log').read_text()}"
        raise AssertionError(f"a signal ended sshd {_STARTS} times; its last exit code: {code}")

    def _started(self) -> int | None:
        """None once it listens; how it ended where it ended before that."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_identity(self.user),  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + _READY_S
        while (code := self.process.poll()) is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return None
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(0.02)
        self.process = None
        return code

    def stop(self) -> None:
        """As when the link to the board is cut: its sessions end too, not what they run."""
        if self.process is None:
            return
        for session in _sessions(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, 9)
        self.process.kill()
        self.process.wait()
        self.process = None

    def script(self, name: str, text: str) -> str:
        """A program there."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def new_host_key(self) -> None:
        """As when somebody else answers at the board's address; takes effect at the next start."""
        key = self.folder / "host_key"
        key.unlink()
        _keygen(key)
        _own(self.folder, self.user)


@dataclass
class BehindHost:
    """A board that answers by ssh; ``tmp`` is where it keeps what it is handed."""

    sshd: Sshd
    tmp: Path

    def left(self) -> list[str]:
        """What lies there now."""
        return [path.name for path in self.tmp.iterdir()]

    def processes(self) -> list[int]:
        """Those that work in a folder of a run."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if str(self.tmp) in (path / "cmdline").read_text() and state != "Z":
                    found.append(int(path.name))
        return found


@contextlib.contextmanager
def board_behind_host() -> Iterator[BehindHost]:
    """A board whose Python has NumPy and the engines of ours."""
    with running_sshd() as sshd:
        tmp = sshd.folder / "tmp"
        tmp.mkdir()
        os.chown(tmp, sshd.user.pw_uid, sshd.user.pw_gid)
        python = _python_of(sshd.user)
        run = f'TMPDIR="{tmp}" PYTHONPATH="{_packages_for(sshd)}" exec {python} "$@"'
        sshd.address = replace(sshd.address, python=sshd.script("python", run))
        yield BehindHost(sshd, tmp)


@contextlib.contextmanager
def running_sshd() -> Iterator[Sshd]:
    """A server of our own; skips where there is no sshd or nobody to run it as."""
    if not Path(_SSHD).exists() or programs.find("ssh") is None:
        pytest.skip("needs openssh-server and openssh-client")
    user = _somebody()
    folder = Path(tempfile.mkdtemp(prefix="edgeyard-sshd-"))  # tmp_path is closed to others
    try:
        folder.chmod(0o755)
        _keygen(folder / "host_key")
        _keygen(folder / "key")
        (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
        port = free_port()
        kind, key = (folder / "host_key.pub").read_text().split()[:2]
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
        (folder / "sshd_config").write_text(_CONFIG.format(folder=folder, port=port))
        _own(folder, user)
        # ssh takes no private key that belongs to somebody else
        os.chown(folder / "key", os.getuid(), os.getgid())
        server = Sshd(
            address=SshAddress(
                host="127.0.0.1",
                port=port,
                user=user.pw_name,
                identity_file=str(folder / "key"),
                known_hosts_file=str(folder / "known_hosts"),
            ),
            folder=folder,
            port=port,
            user=user,
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sessions(pid: int) -> list[int]:
    """The sshd processes below one: of each session there are two."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().startswith("sshd"):
                found += [int(child), *_sessions(int(child))]
    return found


def _somebody() -> pwd.struct_passwd:
    """Ourselves, or, where we are root, a user with a shell who is not."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    for user in pwd.getpwall():
        if user.pw_uid != 0 and user.pw_shell in _SHELLS:
            return user
    pytest.skip("needs a user with a shell who is not root")


def _python_of(user: pwd.struct_passwd) -> str:
    """A Python that the board's user may run, and that fits our NumPy and engine."""
    if user.pw_uid == os.getuid():
        return sys.executable
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"needs a Python 3.{sys.version_info.minor} that other users may run")
    return found


def _packages_for(sshd: Sshd) -> Path:
    """Our packages, where its user may read them: a checkout may lie in a home that is closed."""
    ours = Path(np.__file__).parents[1]
    if sshd.user.pw_uid == os.getuid() or all(
        folder.stat().st_mode & 0o005 == 0o005 for folder in (ours, *ours.parents)
    ):
        return ours
    return _copied(ours)


@cache
def _copied(packages: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="edgeyard-packages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    for name in _PACKAGES:
        if (packages / name).is_dir():
            shutil.copytree(packages / name, folder / name)
    return folder


def _identity(user: pwd.struct_passwd) -> dict[str, object]:
    if os.getuid() == user.pw_uid:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _keygen(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def _own(folder: Path, user: pwd.struct_passwd) -> None:
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            if path.name != "key":
                os.chown(path, user.pw_uid, user.pw_gid)
