"""A test bed that outlives the program that started it: what is in its folder.

::

    testbed.json        agents with their ports; no secrets
    token               ACL token with Edgeyard's policy, 0600
    management.token    ACL token that may do everything, 0600
    inventory.json      the boards, as Edgeyard expects them
    server.toml         settings for ``edgeyard up --config``, 0600
    server, client-N    of each agent: agent.hcl, agent.log, data
    tls                 certificates, where it has them
    lock                held while agents are started or ended
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from edgeyard.atomic_files import open_atomically
from edgeyard.devices.inventory import Inventory
from edgeyard.errors import ConfigError, Conflict
from edgeyard.testbed.agent import Agent
from edgeyard.testbed.cluster import LoopbackNomad
from edgeyard.testbed.tls import FOLDER, Certificates

CLUSTER = "testbed"
"""Name of its entry in the settings."""

TOKEN = "token"
INVENTORY = "inventory.json"
SETTINGS = "server.toml"

MEMORY_MIB = 2048
"""Nomad's own 300 is enforced, also with raw_exec, and too little for most networks."""

START_LEAD_S = 60.0
"""So that Nomad itself starts what has a start time, to the second."""

_STATE = "testbed.json"
_MANAGEMENT = "management.token"
_LOCK = "lock"
_FILES = (_STATE, TOKEN, _MANAGEMENT, INVENTORY, SETTINGS)
_FOLDERS = ("plugins", "server", "client-*", FOLDER)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing, for us alone.

    Raises:
        Conflict: Another program starts or ends this test bed now.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(f"the test bed in {folder} is being started or ended now") from error
        yield


def save(testbed: LoopbackNomad, inventory: Inventory | None = None) -> None:
    """Write down what `load` reads, and what points Edgeyard at it.

    Args:
        inventory: None: the one that was saved before.
    """
    folder = testbed.folder
    if inventory is not None:
        _write(folder / INVENTORY, json.dumps(inventory.to_json(), indent=2) + "\n")
    _write(folder / TOKEN, testbed.token + "\n")
    _write(folder / _MANAGEMENT, testbed.management + "\n")
    cluster = {
        "address": testbed.address,
        "namespace": testbed.namespace,
        "token_file": str(folder / TOKEN),
        "memory_mib": MEMORY_MIB,
    }
    if testbed.tls is not None:
        cluster |= {
            "ca_cert": str(testbed.tls.ca_cert),
            "client_cert": str(testbed.tls.client_cert),
            "client_key": str(testbed.tls.client_key),
        }
    settings = {
        "driver": "raw_exec",
        "raw_exec_command": [sys.executable, "-m", "edgeyard.devices.runner"],
        "inventory": str(folder / INVENTORY),
        "start_lead_s": START_LEAD_S,
        "clusters": {CLUSTER: cluster},
    }
    _write(folder / SETTINGS, tomli_w.dumps(settings))
    state = {
        "namespace": testbed.namespace,
        "nomad": testbed.server.nomad,
        "agents": [
            {"name": agent.name, "http": agent.http, "rpc": agent.rpc} for agent in testbed.agents
        ],
    }
    _write(folder / _STATE, json.dumps(state, indent=2) + "\n")  # last: now it is there


def load(folder: Path) -> LoopbackNomad | None:
    """Return the test bed in a folder, running or not; None where there is none.

    Raises:
        ConfigError: A file of it is damaged.
    """
    folder = folder.resolve()
    try:
        state = json.loads((folder / _STATE).read_text())
        tls = Certificates(folder / FOLDER) if (folder / FOLDER).is_dir() else None
        server, *clients = (_agent(folder, state["nomad"], each, tls) for each in state["agents"])
        return LoopbackNomad(
            folder=folder,
            server=server,
            clients=tuple(clients),
            management=(folder / _MANAGEMENT).read_text().strip(),
            token=(folder / TOKEN).read_text().strip(),
            namespace=state["namespace"],
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"{folder / _STATE} is damaged ({error}): remove {folder}"]) from error


def clear(folder: Path) -> None:
    """Remove what we made in a folder, and the folder where nothing else is in it."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    for pattern in _FOLDERS:
        for path in folder.glob(pattern):
            shutil.rmtree(path)


def leave(folder: Path) -> None:
    """After `clear`: the folder itself goes where nothing of others is in it."""
    (folder / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def is_free(folder: Path) -> bool:
    """Return whether nothing lies in a folder but our lock."""
    return all(path.name == _LOCK for path in folder.iterdir())


def _agent(
    folder: Path, nomad: str, facts: Mapping[str, object], tls: Certificates | None
) -> Agent:
    name, http, rpc = str(facts["name"]), int(str(facts["http"])), int(str(facts["rpc"]))
    return Agent(name=name, folder=folder / name, http=http, rpc=rpc, nomad=nomad, tls=tls)


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with open_atomically(path, mode=0o600) as file:
        file.write(text.encode())
