"""One Nomad agent on loopback: its configuration and its process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgeyard.testbed.tls import Certificates

PLUGIN = "edgeyard-device-plugin"

_END_S = 20.0
_POLL_INTERVAL_S = 0.05
_CLOUDS = "env_aws,env_gce,env_azure,env_digitalocean"

_COMMON = """
name                 = "{name}"
data_dir             = "{folder}/data"
bind_addr            = "127.0.0.1"
disable_update_check = true
leave_on_terminate   = false
log_level            = "INFO"
advertise {{
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}}
ports {{
  http = {http}
  rpc  = {rpc}
  serf = {serf}
}}
acl {{
  enabled   = true
  token_ttl = "1s"
}}
"""

_SERVER = """
server {{
  enabled             = true
  bootstrap_expect    = 1
  raft_multiplier     = 1
  heartbeat_grace     = "{heartbeat_s:g}s"
  min_heartbeat_ttl   = "{heartbeat_s:g}s"
}}
"""

_CLIENT = """
client {{
  enabled           = true
  servers           = ["127.0.0.1:{server}"]
  network_interface = "{interface}"
  node_class        = "emulated"
  cpu_total_compute = 20000
  memory_total_mb   = 16384
  meta {{
    host = "{name}"
  }}
  options = {{
    "fingerprint.denylist" = "{clouds}"
  }}
}}
plugin "raw_exec" {{
  config {{
    enabled = true
  }}
}}
plugin_dir = "{plugins}"
plugin "{plugin}" {{
  config {{
    docker_socket  = "{docker_socket}"
    boards_file    = "{folder}/boards.json"
    state_dir      = "{folder}/state"
    probe_interval = "1s"
    probe_timeout  = "1s"
  }}
}}
"""

_DOCKER = """
plugin "docker" {{
  config {{
    endpoint = "unix://{socket}"
    gc {{
      image = false
    }}
  }}
}}
"""

DOCKER_SOCKET = Path("/var/run/docker.sock")


@dataclass(slots=True)
class Agent:
    """One agent; its process may have been started by another program, or by none yet.

    Attributes:
        process: Where this program started it.
        tls: What it takes and shows; None: it speaks plain HTTP.
    """

    name: str
    folder: Path
    http: int
    rpc: int
    nomad: str
    process: subprocess.Popen[bytes] | None = None
    tls: Certificates | None = None

    @property
    def address(self) -> str:
        """URL of the agent's HTTP API."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.http}"

    @property
    def config(self) -> Path:
        """Its configuration, which no other process names: it is known again by that."""
        return self.folder / "agent.hcl"

    @property
    def pid(self) -> int | None:
        """Id of its process while it runs, also if another program started it."""
        if self.process is not None and self.process.poll() is None:
            return self.process.pid
        ours = [b"agent", b"-config", str(self.config).encode()]
        return next((pid for pid, words in command_lines() if words[1:] == ours), None)

    def start(self) -> None:
        """Start it; returns at once."""
        # It would have Nomad's cloud fingerprint read a file of certificates, and fail.
        environment = {name: value for name, value in os.environ.items() if "AWS_" not in name}
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.nomad, "agent", "-config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def end(self) -> None:
        """Interrupt it, as Nomad's own way to stop; kill it where that takes too long."""
        if not self._signal(signal.SIGTERM, _END_S):
            self.kill()
        self.process = None

    def kill(self) -> None:
        """Kill the agent without a chance to clean up, like a power cut."""
        self._signal(signal.SIGKILL, _END_S)

    def log_tail(self) -> str:
        """Return the end of its log, for errors."""
        path = self.folder / "agent.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _signal(self, number: signal.Signals, patience_s: float) -> bool:
        """Return whether it is gone in that time."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + patience_s
        while self.pid is not None:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_INTERVAL_S)
        return True


def command_lines() -> Iterator[tuple[int, list[bytes]]]:
    """Yield every process that we can see, with its command line in words."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            yield int(path.parent.name), path.read_bytes().split(b"\0")[:-1]


def make_server(
    folder: Path, nomad: str, heartbeat_s: float, tls: Certificates | None = None
) -> Agent:
    """Write down a server's configuration; nothing is started.

    Args:
        heartbeat_s: Time between two heartbeats of a client, and for how long it may be late.
    """
    role = _SERVER.format(heartbeat_s=heartbeat_s) + (tls.block("server") if tls else "")
    return _agent(folder, nomad, "server", role, tls)


def make_client(
    folder: Path,
    nomad: str,
    server: Agent,
    plugins: Path,
    interface: str = "lo",
    docker_socket: Path = DOCKER_SOCKET,
) -> Agent:
    """Write down the configuration of a client with the plugin; nothing is started.

    Args:
        plugins: Nomad's ``plugin_dir``.
        docker_socket: Of the engine that the driver ``docker`` uses.
    """
    role = _CLIENT.format(
        server=server.rpc,
        name=folder.name,
        interface=interface,
        clouds=_CLOUDS,
        plugins=plugins,
        plugin=PLUGIN,
        folder=folder,
        docker_socket=docker_socket,
    )
    role += _DOCKER.format(socket=docker_socket)
    if server.tls is not None:
        role += server.tls.block("client")
    return _agent(folder, nomad, folder.name, role, server.tls)


def free_port() -> int:
    """Return a port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _agent(folder: Path, nomad: str, name: str, role: str, tls: Certificates | None) -> Agent:
    folder.mkdir(parents=True)
    http, rpc, serf = free_port(), free_port(), free_port()
    common = _COMMON.format(name=name, folder=folder, http=http, rpc=rpc, serf=serf)
    (folder / "agent.hcl").write_text(common + role)
    return Agent(name=name, folder=folder, http=http, rpc=rpc, nomad=nomad, tls=tls)
