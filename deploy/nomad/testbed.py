"""A Nomad cluster on loopback, with Edgeyard's device plugin: for development, demos and tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.process import free_port

NAMESPACE = "edgeyard"
POLICY = Path(__file__).with_name("edgeyard.policy.hcl")
PLUGIN = "edgeyard-device-plugin"
READY_S = 60.0
"""An agent is up in some 10 s; on a machine that is busy, later."""

_END_S = 20.0
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
server {
  enabled             = true
  bootstrap_expect    = 1
  raft_multiplier     = 1
  heartbeat_grace     = "2s"
  min_heartbeat_ttl   = "2s"
}
"""

_CLIENT = """
client {{
  enabled           = true
  servers           = ["127.0.0.1:{server}"]
  network_interface = "{interface}"
  cpu_total_compute = 20000
  memory_total_mb   = 16384
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
    boards_file    = "{folder}/boards.json"
    state_dir      = "{folder}/state"
    probe_interval = "1s"
    probe_timeout  = "1s"
  }}
}}
"""


@dataclass(slots=True)
class Agent:
    """One agent's process."""

    name: str
    folder: Path
    http: int
    rpc: int
    nomad: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Of its HTTP API."""
        return f"http://127.0.0.1:{self.http}"

    def start(self) -> None:
        """Start it; returns at once."""
        # It would have Nomad's cloud fingerprint read a file of certificates, and fail.
        environment = {name: value for name, value in os.environ.items() if "AWS_" not in name}
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.nomad, "agent", "-config", str(self.folder / "agent.hcl")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def end(self) -> None:
        """Interrupt it, as Nomad's own way to stop; kill it where that takes too long."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def kill(self) -> None:
        """As a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def log_tail(self) -> str:
        """The end of its log, for errors."""
        path = self.folder / "agent.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


@dataclass(slots=True)
class LoopbackNomad:
    """One server, several clients with boards, ACLs on.

    Attributes:
        management: Secret of the token that may do everything; for tests.
        token: Secret of the token that has the policy of `POLICY`.
    """

    folder: Path
    server: Agent
    clients: tuple[Agent, ...]
    management: str
    token: str = ""
    namespace: str = NAMESPACE
    plugin_dir: Path = field(default_factory=Path)

    @property
    def address(self) -> str:
        """Of the server's HTTP API."""
        return self.server.address

    def call(self, method: str, path: str, body: object = None) -> object:
        """A call with all rights; RuntimeError with the answer where it is not a 2xx."""
        return call(self.address, method, path, self.management, body)

    def boards(self, client: int, boards: Mapping[str, Sequence[object]]) -> None:
        """Change the boards of a client's host; its plugin sees it within a probe."""
        path = self.clients[client].folder / "boards.json"
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(boards))
        temporary.replace(path)

    def await_boards(self, count: int) -> None:
        """Until the server knows so many healthy boards on ready nodes."""
        until = time.monotonic() + READY_S
        found = -1
        while time.monotonic() < until:
            nodes = self.call("GET", "/v1/nodes?resources=true")
            found = sum(_healthy(node) for node in nodes) if isinstance(nodes, list) else -1
            if found == count:
                return
            time.sleep(0.2)
        tails = "\n".join(agent.log_tail() for agent in self.clients)
        raise RuntimeError(f"{found} of {count} boards after {READY_S:.0f} s\n{tails}")

    def down(self) -> None:
        """End all agents, clients first, and what is left of their mounts."""
        for agent in (*self.clients, self.server):
            agent.end()
        unmount(self.folder)


def up(
    folder: Path,
    nomad: str,
    boards: Sequence[Mapping[str, Sequence[object]]],
    *,
    plugin: Path | None = None,
    interface: str = "lo",
) -> LoopbackNomad:
    """Start one server and a client for each of ``boards``, and wait until all boards are there.

    Args:
        boards: ``target.json`` of each client's host.
        plugin: Executable to take for the device plugin; None: the installed one.

    Raises:
        RuntimeError: An agent did not come up; with the end of its log.
    """
    plugins = folder / "plugins"
    plugins.mkdir(parents=True)
    (plugins / PLUGIN).symlink_to(plugin or Path(sys.executable).with_name(PLUGIN))
    server = _agent(folder / "server", nomad, "server", _SERVER)
    clients = []
    for number, mapping in enumerate(boards):
        name = f"client-{number}"
        home = folder / name
        text = _CLIENT.format(
            server=server.rpc,
            interface=interface,
            clouds=_CLOUDS,
            plugins=plugins,
            plugin=PLUGIN,
            folder=home,
        )
        clients.append(_agent(home, nomad, name, text))
        (home / "boards.json").write_text(json.dumps(mapping))
    testbed = LoopbackNomad(
        folder=folder,
        server=server,
        clients=tuple(clients),
        management=secrets_uuid(),
        plugin_dir=plugins,
    )
    try:
        server.start()
        set_up_rights(testbed)
        # Not earlier: a client that finds no server tries again only after half a minute.
        for client in clients:
            client.start()
        testbed.await_boards(sum(len(group) for each in boards for group in each.values()))
    except BaseException:
        testbed.down()
        raise
    return testbed


def secrets_uuid() -> str:
    """A secret in the form that Nomad wants of a token."""
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def call(address: str, method: str, path: str, token: str, body: object = None) -> object:
    """One call of Nomad's API."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data=data, method=method)
    request.add_header("X-Nomad-Token", token)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error


def unmount(folder: Path) -> None:
    """Undo the mounts of tasks' secrets that killed agents left: they keep folders from going."""
    if shutil.which("umount") is None:
        return
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def _agent(folder: Path, nomad: str, name: str, role: str) -> Agent:
    folder.mkdir(parents=True)
    http, rpc, serf = free_port(), free_port(), free_port()
    common = _COMMON.format(name=name, folder=folder, http=http, rpc=rpc, serf=serf)
    (folder / "agent.hcl").write_text(common + role)
    return Agent(name=name, folder=folder, http=http, rpc=rpc, nomad=nomad)


def set_up_rights(testbed: LoopbackNomad) -> None:
    """Namespace, policy and a token that has it."""
    until = time.monotonic() + READY_S
    while True:
        try:
            call(
                testbed.address,
                "POST",
                "/v1/acl/bootstrap",
                "",
                {"BootstrapSecret": testbed.management},
            )
            break
        except (OSError, RuntimeError) as error:
            if time.monotonic() > until or testbed.server.process is None:
                raise RuntimeError(f"{error}\n{testbed.server.log_tail()}") from error
            if testbed.server.process.poll() is not None:
                raise RuntimeError(f"the server ended\n{testbed.server.log_tail()}") from error
            time.sleep(0.1)
    testbed.call("POST", f"/v1/namespace/{NAMESPACE}", {"Name": NAMESPACE})
    testbed.call(
        "POST", "/v1/acl/policy/edgeyard", {"Name": "edgeyard", "Rules": POLICY.read_text()}
    )
    token = testbed.call(
        "POST", "/v1/acl/token", {"Name": "edgeyard", "Type": "client", "Policies": ["edgeyard"]}
    )
    assert isinstance(token, dict)
    testbed.token = str(token["SecretID"])


def _healthy(node: object) -> int:
    if not isinstance(node, dict) or node.get("Status") != "ready":
        return 0
    devices = (node.get("NodeResources") or {}).get("Devices") or ()
    return sum(
        1
        for group in devices
        if group["Vendor"] == "daiedge" and group["Type"] == "edgedevice"
        for instance in group["Instances"]
        if instance["Healthy"]
    )
