"""The boards of a simulated lab: their real state, and what the service sees of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.benchmark_types import simulated_types
from edgeyard.devices.model import Board, BoardEngine
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.simulator.scenario import BoardGroup, Faults, LabScenario

MIB = 1 << 20

UPLOAD_RETRY_S = 30.0
"""Interval between a task's tries to upload its result."""

MAX_UPLOAD_S = 600.0
"""Maximum time for which a task tries to upload its result; then the result stays on the host."""

LOST_HOST_S = 60.0
"""Time from the failure of a host until the cluster reports its jobs as lost."""


@dataclass(slots=True, eq=False)
class LabBoard:
    """A board.

    Attributes:
        row: Its row in the run's columns.
        run_factor: Run times are multiplied by it, compared with other boards of its group.
        present: It belongs to the lab.
        faults: How often it fails.
        down: How many faults of its own it has now.
        holder: Row of the job whose run it really runs; -1: none.
    """

    row: int
    uid: str
    group: BoardGroup
    host: str
    run_factor: float
    present: bool
    faults: Faults
    down: int = 0
    holder: int = -1


def energy_j(group: BoardGroup, run_s: float) -> float | None:
    """Return the energy of a run on a board of a group; None: its power is not stated."""
    return None if group.busy_w is None or run_s <= 0.0 else group.busy_w * run_s


@dataclass(slots=True, eq=False)
class LabHost:
    """A host.

    Attributes:
        off: How many faults it has now.
        unreachable: How many faults of its network there are now.
    """

    name: str
    faults: Faults
    boards: list[LabBoard] = field(default_factory=list)
    off: int = 0
    unreachable: int = 0


class Boards:
    """All boards that are in the lab at any time.

    Attributes:
        rows: All of them, those that join later at the end.
        hosts: By name.
        row_of_uid: Their rows.
    """

    def __init__(self, lab: LabScenario, seed: int) -> None:
        """Make the boards with their own speeds."""
        self.rows: list[LabBoard] = []
        self.hosts: dict[str, LabHost] = {}
        self.row_of_uid: dict[str, int] = {}
        self.joining: list[list[LabBoard]] = []
        self._next_host: defaultdict[str, int] = defaultdict(lambda: 1)
        self._default_faults = lab.faults
        self._seed = seed
        for group in lab.boards:
            self._add(group, present=True)
        for change in lab.changes:
            joins = change.what == "boards_join" and change.group is not None
            self.joining.append(self._add(change.group, present=False) if joins else [])  # type: ignore[arg-type]
        count = len(self.rows)
        self._seen_online = np.array([each.present for each in self.rows], dtype=np.bool_)
        self._seen_healthy = np.ones(count, dtype=np.bool_)
        self._drained = np.zeros(count, dtype=np.bool_)
        self._holding = np.zeros(count, dtype=np.int64)
        self._started_s = np.full(count, np.nan)
        self._run_s = np.ones(count)
        self._present: _PresentBoards | None = None
        self._words = [""] * count

    def _add(self, group: BoardGroup, *, present: bool) -> list[LabBoard]:
        faults = group.faults or self._default_faults
        made: list[LabBoard] = []
        first = self._next_host[group.family]
        for number in range(group.count):
            host_number = first + number // group.per_host
            if group.uids:
                uid = group.uids[number]
                host = (
                    group.hosts[number] if group.hosts else f"{group.family}-host-{host_number:04d}"
                )
            else:
                uid = f"{group.family}-{host_number:04d}-{number % group.per_host + 1:04d}"
                host = f"{group.family}-host-{host_number:04d}"
            random = stream(self._seed, "pace", uid)
            task_rate = group.task_rates.get(uid)
            board = LabBoard(
                row=len(self.rows),
                uid=uid,
                group=group,
                host=host,
                run_factor=float(np.exp(-random.normal(0.0, group.speed_spread)))
                if group.speed_spread
                else 1.0,
                present=present,
                faults=faults
                if task_rate is None
                else msgspec.structs.replace(faults, task_rate=task_rate),
            )
            self.rows.append(board)
            self.row_of_uid[uid] = board.row
            self.hosts.setdefault(host, LabHost(host, faults)).boards.append(board)
            made.append(board)
        self._next_host[group.family] = first + -(-group.count // group.per_host)
        return made

    def sharing(self, board: LabBoard) -> list[LabBoard]:
        """Return the other boards that share its cores."""
        size = board.group.sharing
        if size <= 1:
            return []
        near = [each for each in self.hosts[board.host].boards if each.group is board.group]
        place = near.index(board) // size * size
        return [each for each in near[place : place + size] if each is not board]

    def is_free(self, board: LabBoard) -> bool:
        """Return whether nothing really runs on it, nor on a board that shares its cores."""
        return board.holder == -1 and all(each.holder == -1 for each in self.sharing(board))

    def usable(self, board: LabBoard) -> bool:
        """Return whether a run that starts on it now really starts."""
        host = self.hosts[board.host]
        return board.present and not board.down and not host.off and not host.unreachable

    def see(self, board: LabBoard, *, online: bool, healthy: bool) -> None:
        """Set the state of a board that the service knows, which may be outdated."""
        self._seen_online[board.row] = online
        self._seen_healthy[board.row] = healthy
        self._words[board.row] = "" if healthy else "its host reports it as unusable"

    def is_available(self, row: int) -> bool:
        """Return whether the service knows a board as healthy, busy or not."""
        return bool(
            self.rows[row].present
            and self._seen_online[row]
            and self._seen_healthy[row]
            and not self._drained[row]
        )

    def drain(self, row: int, drained: bool) -> None:
        """Drain a board, or resume it."""
        self._drained[row] = drained

    def hold(self, row: int, now_s: float, run_s: float) -> None:
        """Note that the service holds a board for one more run, of so many seconds.

        There may be two where the cluster gives a board away whose last run has ended, as the
        service does not know yet.
        """
        self._holding[row] += 1
        self._started_s[row], self._run_s[row] = now_s, run_s
        self._words[row] = "runs a benchmark"

    def release(self, row: int) -> None:
        """Note that the service knows that a run has ended."""
        self._holding[row] -= 1
        if self._holding[row]:
            return
        self._started_s[row] = np.nan
        self._words[row] = ""

    def change_members(self) -> None:
        """Note that boards joined or left."""
        self._present = None

    def count_online(self) -> int:
        """Return how many boards are really healthy and online."""
        return sum(1 for each in self._present_boards.boards if self.usable(each))

    @property
    def _present_boards(self) -> _PresentBoards:
        if self._present is None:
            self._present = _present(self, [each for each in self.rows if each.present])
        return self._present

    def snapshot(self, now: datetime, now_s: float, age_s: float, taken_at: datetime) -> Snapshot:
        """Return what the service knows of the boards, in columns.

        Args:
            now: Time of the cycle.
            now_s: The same in seconds of virtual time.
            age_s: Age of the twin.
            taken_at: When it was refreshed.
        """
        present = self._present_boards
        before, rows = present.snapshot, present.rows
        held = self._holding[rows] > 0
        started_s = self._started_s[rows]
        with np.errstate(invalid="ignore"):
            done = np.minimum((now_s - started_s) / self._run_s[rows] * 100.0, 99.0)
        progress = np.where(held, done, 0.0)
        busy = held
        words: Sequence[str] = self._words
        if before.conflicts is not None:
            blocked = (before.conflicts & held[None, :]).any(axis=1) & ~held
            if blocked.any():
                busy = held | blocked
                shown = list(self._words)
                for place in np.flatnonzero(blocked).tolist():
                    other = int(np.flatnonzero(before.conflicts[place] & held)[0])
                    row = int(rows[place])
                    shown[row] = shown[row] or f"its cores are in use by {before.uids[other]}"
                words = shown
        reasons = (
            tuple(words) if present.all_present else tuple(words[row] for row in rows.tolist())
        )
        return replace(
            before,
            taken_at=taken_at,
            age_s=age_s,
            online=self._seen_online[rows],
            healthy=self._seen_healthy[rows],
            drained=self._drained[rows],
            busy=busy,
            progress=progress,
            reasons=reasons,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PresentBoards:
    """What changes only when boards join or leave; in the snapshot all boards are idle."""

    boards: Sequence[LabBoard]
    rows: NDArray[np.intp]
    all_present: bool
    snapshot: Snapshot


def _present(boards: Boards, present: list[LabBoard]) -> _PresentBoards:
    supported: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    offered: defaultdict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(present):
        for engine, types in each.group.engines.items():
            offered[engine].append(place)
            for kind in types:
                supported[engine, kind.value].append(place)
    place_of = {each.uid: place for place, each in enumerate(present)}
    conflicts: NDArray[np.bool_] | None = None
    if any(each.group.sharing > 1 for each in present):
        conflicts = np.zeros((len(present), len(present)), dtype=np.bool_)
        for place, each in enumerate(present):
            for other in boards.sharing(each):
                if other.uid in place_of:
                    conflicts[place, place_of[other.uid]] = True
    count = len(present)
    yes, no = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    return _PresentBoards(
        boards=present,
        rows=np.array([each.row for each in present], dtype=np.intp),
        all_present=count == len(boards.rows),
        snapshot=Snapshot(
            taken_at=None,
            age_s=0.0,
            uids=tuple(each.uid for each in present),
            families=tuple(each.group.family for each in present),
            hosts=tuple(each.host for each in present),
            ram_bytes=np.array([each.group.ram_mib * MIB for each in present], dtype=np.int64),
            storage_bytes=np.array(
                [each.group.storage_mib * MIB for each in present], dtype=np.int64
            ),
            expected=yes,
            online=yes,
            healthy=yes,
            drained=no,
            busy=no,
            progress=np.zeros(count),
            supports={pair: _mask(rows, count) for pair, rows in supported.items()},
            engines={engine: _mask(rows, count) for engine, rows in offered.items()},
            reasons=("",) * count,
            attributes=tuple(attributes_of(board_of(each)) for each in present),
            conflicts=conflicts,
        ),
    )


def _mask(rows: list[int], count: int) -> NDArray[np.bool_]:
    mask = np.zeros(count, dtype=np.bool_)
    mask[rows] = True
    return mask


def _as_published(number: float) -> float:
    """Return a whole number as an int, as hosts publish it."""
    return int(number) if number == int(number) else number


def board_of(each: LabBoard) -> Board:
    """Return a board as its host reports it, without those that share its cores."""
    group = each.group
    return Board(
        target_uid=each.uid,
        family=group.family,
        ram_bytes=group.ram_mib * MIB,
        storage_bytes=group.storage_mib * MIB,
        engines=tuple(
            BoardEngine(
                name=name,
                supported_types=frozenset(kind.value for kind in types),
                declared_types=simulated_types(kind.value for kind in types),
            )
            for name, types in group.engines.items()
        ),
        attributes={} if group.cpu_cores is None else {"cpu.cores": _as_published(group.cpu_cores)},
    )
