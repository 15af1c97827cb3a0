"""A test bed that stands on its own: brought up, found again and ended by different programs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from edgeyard.devices.inventory import Inventory
from edgeyard.errors import ConfigError
from edgeyard.installing import extra_command
from edgeyard.testbed import saved
from edgeyard.testbed.cluster import LoopbackNomad, make
from edgeyard.testbed.lab import emulated_hosts, expected

HEARTBEAT_S = 10.0
"""Nomad's own: benchmarks may take all CPUs of this machine for a while."""


def new(
    folder: Path,
    nomad: Path,
    clients: int,
    boards: int,
    machine: Inventory,
    *,
    tls: bool = False,
) -> LoopbackNomad:
    """Write down a test bed in a folder where none is; nothing is started.

    Args:
        machine: As `default_embedded_inventory` gives it.

    Raises:
        ConfigError: The folder holds other things, or the device plugin can't run here.
    """
    missing = [name for name in ("grpc", "msgpack") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            [f"the device plugin needs {', '.join(missing)}: {extra_command('edgedevice')}"]
        )
    saved.clear(folder)  # what a start left that was cut off before anything ran
    if not saved.is_free(folder):
        raise ConfigError([f"{folder} holds other things: name a folder that is empty or new"])
    hosts = emulated_hosts(clients, boards, machine)
    files = [host.to_json() for host in hosts]
    testbed = make(folder, str(nomad), files, heartbeat_s=HEARTBEAT_S, tls=tls)
    saved.save(testbed, expected(hosts, machine))
    return testbed


def start(testbed: LoopbackNomad, report: Callable[[str], None]) -> None:
    """Start what does not run; what runs goes on.

    Raises:
        StartFailed: All agents were ended again; their logs are where they were.
    """
    testbed.up(report)
    saved.save(testbed)  # with its token


def end(testbed: LoopbackNomad) -> None:
    """End it and remove what it left."""
    testbed.down()
    saved.clear(testbed.folder)
