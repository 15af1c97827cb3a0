"""A Nomad cluster on loopback, with Edgeyard's device plugin: for development, demos and tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import StartFailed
from edgeyard.testbed.agent import (
    DOCKER_SOCKET,
    PLUGIN,
    Agent,
    command_lines,
    make_client,
    make_server,
)
from edgeyard.testbed.tls import FOLDER, Certificates

NAMESPACE = "edgeyard"
BOARDS_FILE = "boards.json"
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

    @property
    def agents(self) -> tuple[Agent, ...]:
        """All agents, the server first."""
        return (self.server, *self.clients)

    @property
    def address(self) -> str:
        """URL of the server's HTTP API."""
        return self.server.address

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a call with all rights; RuntimeError with the answer where it is not a 2xx."""
        return call(self.address, method, path, self.management, body, tls=self.tls)

    @property
    def tls(self) -> Certificates | None:
        """Where its agents speak https alone, and only with those that show a certificate."""
        return self.server.tls

    def boards(self, client: int, boards: Mapping[str, Sequence[object]]) -> None:
        """Change the boards of a client's host; its plugin sees it within a probe."""
        with open_atomically(self.clients[client].folder / BOARDS_FILE) as file:
            file.write(json.dumps(boards).encode())

    def up(self, report: Callable[[str], None] = lambda sentence: None) -> Self:
        """Do what `start` does, but leave nothing running where that fails."""
        try:
            self.start(report)
        except BaseException:
            self.down()
            raise
        return self

    def start(self, report: Callable[[str], None] = lambda sentence: None) -> None:
        """Start what does not run, and wait until all boards are there.

        Args:
            report: Called with what is under way.

        Raises:
            StartFailed: With the end of the log of the agent that did not come up.
        """
        if self.server.pid is None:
            report(f"starting the server on port {self.server.http}")
            self.server.start()
        if self.token:
            _await(self.server, lambda: self.call("GET", "/v1/acl/token/self"))
        else:
            set_up_rights(self)
        # Not earlier: a client that finds no server tries again only after half a minute.
        for client in self.clients:
            if client.pid is None:
                report(f"starting {client.name}")
                client.start()
        for client in self.clients:
            # Until the server has heard of it: earlier reports of its boards may be old.
            path = "/v1/agent/health?type=client"
            _await(client, partial(call, client.address, "GET", path, "", tls=client.tls))
        self.await_boards(sum(self.expected_boards().values()), report)

    def await_boards(
        self, count: int, report: Callable[[str], None] = lambda sentence: None
    ) -> None:
        """Until the server knows so many healthy boards on ready nodes.

        Raises:
            StartFailed: They were not there in time.
        """
        until = time.monotonic() + READY_S
        found = -1
        while time.monotonic() < until:
            before, found = found, sum(self.boards_by_client().values())
            if found != before:
                report(f"{found} of {count} boards are there")
            if found == count:
                return
            time.sleep(0.2)
        tails = "\n".join(client.log_tail() for client in self.clients)
        raise StartFailed(f"{found} of {count} boards were there after {READY_S:.0f} s", tails)

    def expected_boards(self) -> Mapping[str, int]:
        """Return how many boards each client's host should have, by the client's name."""
        return {
            client.name: sum(
                map(len, json.loads((client.folder / BOARDS_FILE).read_text()).values())
            )
            for client in self.clients
        }

    def boards_by_client(self) -> Mapping[str, int]:
        """Healthy boards on ready nodes, by the client's name."""
        nodes = self.call("GET", "/v1/nodes?resources=true")
        return {node["Name"]: _healthy(node) for node in nodes} if isinstance(nodes, list) else {}

    def down(self) -> None:
        """End all agents, clients first, and what is left of their tasks and mounts."""
        for agent in reversed(self.agents):
            agent.end()
        end_tasks(self.folder)
        unmount(self.folder)


def make(
    folder: Path,
    nomad: str,
    boards: Sequence[Mapping[str, Sequence[object]]],
    *,
    plugin: Path | None = None,
    interface: str = "lo",
    heartbeat_s: float = 2.0,
    tls: bool = False,
    docker_socket: Path = DOCKER_SOCKET,
) -> LoopbackNomad:
    """Write down one server and a client for each of ``boards``; nothing is started.

    Args:
        boards: ``target.json`` of each client's host.
        plugin: Executable to take for the device plugin; None: the installed one.
        heartbeat_s: Clients that are not heard for twice as long are down.
        tls: Mutual TLS, with certificates of a CA that is made here.
        docker_socket: Of the engine that the driver ``docker`` uses.
    """
    folder = folder.resolve()  # tasks are known again by their working directory
    plugins = folder / "plugins"
    plugins.mkdir(parents=True)
    (plugins / PLUGIN).symlink_to(plugin or Path(sys.executable).with_name(PLUGIN))
    certificates = Certificates.make(folder / FOLDER, nomad) if tls else None
    server = make_server(folder / "server", nomad, heartbeat_s, certificates)
    clients = []
    for number, mapping in enumerate(boards):
        client = make_client(
            folder / f"client-{number}", nomad, server, plugins, interface, docker_socket
        )
        (client.folder / BOARDS_FILE).write_text(json.dumps(mapping))
        clients.append(client)
    return LoopbackNomad(
        folder=folder, server=server, clients=tuple(clients), management=secrets_uuid()
    )


def secrets_uuid() -> str:
    """Return a secret in the form that Nomad wants of a token."""
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def call(
    address: str,
    method: str,
    path: str,
    token: str,
    body: object = None,
    *,
    tls: Certificates | None = None,
) -> Any:
    """Call Nomad's API, and return the decoded answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data=data, method=method)
    request.add_header("X-Nomad-Token", token)
    try:
        context = None if tls is None else tls.context()
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()[:500]
            raise RuntimeError(f"{method} {path}: {error.code} {text!r}") from error


def end_tasks(folder: Path) -> None:
    """Kill tasks, plugins, and Nomad's processes that mind tasks: all outlive a killed agent."""
    allocations = f"NOMAD_ALLOC_DIR={folder}/".encode()
    plugins = f"{folder}/plugins/".encode()
    for pid, words in command_lines():
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            minds = words[1:2] in ([b"executor"], [b"logmon"]) and (
                folder in (process / "cwd").readlink().parents
            )
            plugs = any(word.startswith(plugins) for word in words)
            runs = b"\0" + allocations in b"\0" + (process / "environ").read_bytes()
            if minds or plugs or runs:
                os.kill(pid, signal.SIGKILL)


def unmount(folder: Path) -> None:
    """Undo the mounts of tasks' secrets that killed agents left: they keep folders from going."""
    if shutil.which("umount") is None:
        return
    for mount in reversed(mounts_below(folder)):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def mounts_below(folder: Path) -> list[str]:
    """Return where something is mounted below a folder, outer mounts first."""
    table = Path("/proc/mounts").read_text("utf-8", errors="surrogateescape")
    # The kernel writes spaces, tabs, newlines and backslashes in octal digits.
    places = [
        re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[1])
        for line in table.splitlines()
    ]
    return sorted(each for each in places if each.startswith(f"{folder}/"))


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
                tls=testbed.tls,
            )
            break
        except (OSError, RuntimeError) as error:
            if "ACL bootstrap already done" in str(error):
                break  # by a start that was cut off
            _check(testbed.server, error, until)
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


def _await(agent: Agent, ask: Callable[[], object]) -> None:
    """Call until an answer comes, or raise StartFailed."""
    until = time.monotonic() + READY_S
    while True:
        try:
            ask()
            return
        except (OSError, RuntimeError) as error:
            _check(agent, error, until)
            time.sleep(0.1)


def _check(agent: Agent, error: Exception, until: float) -> None:
    """After a call that failed: another one may do better, or StartFailed."""
    if agent.pid is None:
        raise StartFailed(f"{agent.name} ended", agent.log_tail()) from error
    if time.monotonic() > until:
        raise StartFailed(f"{agent.name}: {error}", agent.log_tail()) from error


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
