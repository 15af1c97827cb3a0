"""The boards of a test bed: what this machine can emulate, on several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgeyard.devices.inventory import Inventory, with_shared_cores
from edgeyard.devices.model import Board


def emulated_hosts(clients: int, boards: int, machine: Inventory) -> tuple[Inventory, ...]:
    """Return what each client's host reports: ``boards`` of the machine's emulated ones, in turn.

    All hosts are this machine, so boards of different hosts share its CPUs.

    Args:
        machine: As `default_embedded_inventory` gives it.
    """
    slices = [board for board in machine.boards if board.local is not None]

    def board(client: int, number: int) -> Board:
        like = slices[(number - 1) % len(slices)]
        return replace(like, target_uid=f"{like.family}-{client:04}-{number:04}")

    return tuple(
        Inventory(tuple(board(client, number) for number in range(1, boards + 1)))
        for client in range(1, clients + 1)
    )


def expected(hosts: Sequence[Inventory], machine: Inventory) -> Inventory:
    """Return the inventory: the boards of all hosts, and one that is missing on purpose."""
    present = [board for host in hosts for board in host.boards]
    absent = [board for board in machine.boards if board.local is None]
    return Inventory(with_shared_cores([*present, *absent]))
