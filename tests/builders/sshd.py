"""A real sshd on loopback, run as an unprivileged user: a board behind its host."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.process import free_port
from edgeyard.devices.model import SshAddress

_SSHD = "/usr/sbin/sshd"
_SHELLS = {"/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh", "/usr/bin/zsh", "/bin/zsh"}
_READY_S = 20.0

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
        """Start it, and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_identity(self.user),  # type: ignore[call-overload]
            )
        import socket

        deadline = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(0.02)

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

    def new_host_key(self) -> None:
        """As when somebody else answers at the board's address; takes effect at the next start."""
        key = self.folder / "host_key"
        key.unlink()
        _keygen(key)
        _own(self.folder, self.user)


@contextlib.contextmanager
def running_sshd() -> Iterator[Sshd]:
    """A server of our own; skips where there is no sshd or nobody to run it as."""
    if not Path(_SSHD).exists() or shutil.which("ssh") is None:
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
