"""Chooses a board for a job, or explains why there is none yet."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.constraints import meets
from edgeyard.devices.model import Board
from edgeyard.scheduler.clusters.fitting import choose
from edgeyard.scheduler.clusters.local.admission import LocalJob

HOST_ID = "embedded"
DATACENTER = "dc1"

_RUNS = "runs a job"

_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""Nomad calls architectures as Go does."""


class BoardPool:
    """The boards of this machine. Immutable: running jobs are an argument."""

    def __init__(self, boards: Sequence[Board]) -> None:
        present = os.sched_getaffinity(0)
        self.boards = tuple(_checked(board, present) for board in boards)
        self.node_attributes = _node_attributes()
        self._attributes = {
            board.target_uid: {**attributes_of(board), **self.node_attributes}
            for board in self.boards
        }
        self._conflicts = {
            board.target_uid: [other.target_uid for other in self.boards if _conflict(board, other)]
            for board in self.boards
        }

    def choose(self, job: LocalJob, running: Mapping[str, str]) -> tuple[Board | None, str]:
        """Return a board for the job, or None and the reason.

        Attributes are those of the idle board: a busy one is not considered at all, as its device
        is not free in Nomad's eyes either, whatever its progress says.

        Args:
            running: Job by board.
        """
        if not {DATACENTER, "*"} & set(job.datacenters):
            return None, f"no board is in the datacenters {', '.join(job.datacenters)}"
        return choose(
            sorted(self.boards, key=lambda board: -self._met(board, job))
            if job.wishes
            else self.boards,
            job.conditions,
            lambda board: self._unavailable(board, running),
            lambda board: self._attributes[board.target_uid],
        )

    def _met(self, board: Board, job: LocalJob) -> int:
        """Return the sum of the weights of the job's wishes that a board meets."""
        attributes = self._attributes[board.target_uid]
        return sum(
            weight
            for each, weight in job.wishes
            if meets(each.attribute, attributes.get(each.attribute), each.operator, each.value)
        )

    def views(self, running: Mapping[str, str], progress: Mapping[str, float]) -> tuple[Board, ...]:
        """Return the present state of the boards.

        Boards that share cores with one that runs are not busy here: the twin closes them, and
        would close those that share cores with them, too.
        """
        return tuple(
            replace(
                board,
                busy=board.target_uid in running,
                busy_reason=_RUNS if board.target_uid in running else "",
                progress=progress.get(board.target_uid, 0.0),
            )
            for board in self.boards
        )

    def _unavailable(self, board: Board, running: Mapping[str, str]) -> str:
        return board.health_reason if not board.healthy else self._held(board, running)

    def _held(self, board: Board, running: Mapping[str, str]) -> str:
        # Not by which job: the sentence reaches users who may not know that it exists.
        if board.target_uid in running:
            return _RUNS
        for other in self._conflicts[board.target_uid]:
            if other in running:
                return f"shares cores with {other}, which is busy"
        return ""


def _node_attributes() -> dict[str, str]:
    """Return the attributes of this machine, as a Nomad node on it would have them."""
    machine = platform.machine()
    return {
        "${node.unique.id}": HOST_ID,
        "${node.unique.name}": HOST_ID,
        "${node.datacenter}": DATACENTER,
        "${node.class}": "",
        "${node.pool}": "default",
        "${attr.kernel.name}": platform.system().lower(),
        "${attr.cpu.arch}": _GO_ARCHITECTURES.get(machine, machine),
        "${attr.cpu.numcores}": str(os.cpu_count() or 1),
    }


def _conflict(board: Board, other: Board) -> bool:
    """Return whether two boards must not measure at the same time."""
    if board.target_uid == other.target_uid:
        return False
    if other.target_uid in board.shares_with or board.target_uid in other.shares_with:
        return True
    cpus = set(board.local.cpus) if board.local else set()
    return bool(cpus & set(other.local.cpus)) if other.local else False


def _checked(board: Board, present: set[int]) -> Board:
    """Return an idle board, unhealthy if this machine lacks the CPUs that it consists of."""
    idle = replace(board, busy=False, busy_reason="", progress=0.0)
    if board.local is None:
        return replace(idle, healthy=False, health_reason="is not a slice of this machine")
    missing = sorted(set(board.local.cpus) - present)
    if missing:
        cpus = ", ".join(map(str, missing))
        return replace(idle, healthy=False, health_reason=f"needs CPU {cpus}, not on this machine")
    return idle
