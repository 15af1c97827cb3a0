"""A Nomad cluster on loopback, with Edgeyard's device plugin: for development, demos and tests."""

from __future__ import annotations

import json
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

from edgeyard.devices.testbed.agent import PLUGIN, Agent, make_client, make_server

NAMESPACE = "edgeyard"
POLICY = Path(__file__).with_name("edgeyard.policy.hcl")
READY_S = 60.0
"""An agent is up in some 10 s; on a machine that is busy, later."""


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
    server = make_server(folder / "server", nomad)
    clients = []
    for number, mapping in enumerate(boards):
        client = make_client(folder / f"client-{number}", nomad, server, plugins, interface)
        (client.folder / "boards.json").write_text(json.dumps(mapping))
        clients.append(client)
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
