"""The digital twin: expected boards joined with what the cluster last said of them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

import numpy as np

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.model import Board, BoardEngine, Host
from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.scheduler.twin.comparison import Comparison, compare

logger = logging.getLogger(__name__)


class BoardState(StrEnum):
    """One word for an operator."""

    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"  # expected, but no ready host reports it
    DRAINED = "drained"  # taken out by an operator
    UNHEALTHY = "unhealthy"  # its host finds it unusable
    UNKNOWN = "unknown"  # reported, but not on the inventory: never used


class UnknownDevices(StrEnum):
    """What becomes of boards that hosts report and the inventory doesn't know."""

    DENY = "deny"  # shown, never used
    WARN = "warn"  # used, and pointed out wherever boards are shown
    ALLOW = "allow"  # used


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """One board as the twin knows it now.

    Attributes:
        reason: Why it is not idle, in words, or what else is to be said of it; "" otherwise.
        host: Name of its host; "" when no host reports it.
        holder: Benchmark that holds it; None when none of ours does.
    """

    board: Board
    state: BoardState
    reason: str
    host: str
    expected: bool
    online: bool
    drained: bool
    holder: str | None


@dataclass(frozen=True, slots=True)
class _Known:
    """What the cluster said, and when."""

    hosts: tuple[Host, ...]
    at: datetime


class Twin:
    """Keeps the last answer of the node source; hands out immutable views. Thread-safe.

    A board is busy when the cluster says so, or when a live attempt of ours is bound to it: the
    second needs no memory of its own, since attempts are committed before the cluster is called.
    """

    def __init__(
        self,
        expected: Sequence[Board],
        unknown: UnknownDevices = UnknownDevices.DENY,
        *,
        may_grow: bool = False,
    ) -> None:
        """Nothing is known of the boards before `refresh`.

        Args:
            unknown: What becomes of other boards.
            may_grow: Boards that are not expected may appear at any time, and the cluster could
                place a job there that is not kept to known ones.
        """
        self._expected = tuple(expected)
        self._unknown = unknown
        self._guarded = may_grow and unknown is UnknownDevices.DENY
        self._warned: frozenset[str] = frozenset()
        self._known: _Known | None = None
        self._unusable: dict[str, tuple[datetime, str]] = {}
        self._trouble = "the cluster has not answered yet"
        self._lock = threading.Lock()

    def refresh(self, hosts: Sequence[Host], at: datetime) -> None:
        """Take the cluster's answer in."""
        known = {board.target_uid for board in self._expected}
        others = frozenset(
            board.target_uid
            for host in hosts
            for board in host.boards
            if board.target_uid not in known
        )
        with self._lock:
            self._unusable = {
                board.target_uid: (
                    self._unusable.get(board.target_uid, (at, ""))[0],
                    board.health_reason or "its host finds it unusable",
                )
                for host in hosts
                if host.ready
                for board in host.boards
                if not board.healthy
            }
            self._known = _Known(tuple(hosts), at)
            self._trouble = ""
            new, self._warned = others - self._warned, others
        if self._unknown is not UnknownDevices.ALLOW:
            for uid in sorted(new):
                logger.warning(
                    "a board that is not on the inventory",
                    extra={
                        "event": "board.unknown",
                        "target_uid": uid,
                        "used": self._unknown is UnknownDevices.WARN,
                    },
                )

    def comparison(self) -> Comparison | None:
        """What hosts report against the inventory; None before the cluster's first answer."""
        with self._lock:
            known = self._known
        return None if known is None else compare(self._expected, known.hosts)

    def missed(self, reason: str) -> None:
        """The cluster did not answer; what is known grows older."""
        with self._lock:
            self._trouble = reason

    def unusable(self, target_uid: str) -> tuple[datetime, str] | None:
        """Since when the board's own ready host has found it unusable, and why; else None."""
        with self._lock:
            return self._unusable.get(target_uid)

    @property
    def trouble(self) -> str:
        """Why the last refresh failed; "" when it did not."""
        with self._lock:
            return self._trouble

    def age_s(self, now: datetime) -> float:
        """Age of the last answer; inf when there never was one."""
        with self._lock:
            known = self._known
        return (now - known.at).total_seconds() if known else math.inf

    def views(
        self, *, drained: Mapping[str, str], holders: Mapping[str, str]
    ) -> tuple[BoardView, ...]:
        """All boards, expected ones first.

        Args:
            drained: Why, by board that an operator took out.
            holders: Benchmark by board, of every live attempt.
        """
        with self._lock:
            known = self._known
        reported: dict[str, tuple[Board, Host]] = {
            board.target_uid: (board, host)
            for host in (known.hosts if known else ())
            for board in host.boards
        }
        expected = {board.target_uid: board for board in self._expected}
        views = []
        for uid, stated in expected.items():
            seen = reported.get(uid)
            board = _stricter(stated, seen[0]) if seen else stated
            views.append(_view(board, seen[1] if seen else None, True, drained, holders))
        for uid, (board, host) in reported.items():
            if uid not in expected:
                views.append(_view(board, host, False, drained, holders, self._unknown))
        return tuple(views)

    def snapshot(
        self, now: datetime, *, drained: Mapping[str, str], holders: Mapping[str, str]
    ) -> Snapshot:
        """All boards in columns."""
        with self._lock:
            known = self._known
        views = self.views(drained=drained, holders=holders)
        boards = [view.board for view in views]
        uids = tuple(board.target_uid for board in boards)
        busy = np.array([view.holder is not None or view.board.busy for view in views], dtype=bool)
        conflicts = _conflicts(boards, uids)
        reasons = [view.reason for view in views]
        if conflicts is not None:
            blocked = (conflicts & busy[None, :]).any(axis=1) & ~busy
            for row in np.flatnonzero(blocked):
                other = uids[int(np.flatnonzero(conflicts[row] & busy)[0])]
                reasons[row] = reasons[row] or f"its cores are in use by {other}"
            busy = busy | blocked
        engines = sorted({engine.name for board in boards for engine in board.engines})
        pairs = sorted(
            {
                (engine.name, kind)
                for board in boards
                for engine in board.engines
                for kind in engine.supported_types
            }
        )
        return Snapshot(
            taken_at=known.at if known else None,
            age_s=(now - known.at).total_seconds() if known else math.inf,
            uids=uids,
            families=tuple(board.family for board in boards),
            hosts=tuple(view.host for view in views),
            ram_bytes=np.array([board.ram_bytes for board in boards], dtype=np.int64),
            storage_bytes=np.array([board.storage_bytes for board in boards], dtype=np.int64),
            expected=np.array(
                [view.expected or self._unknown is not UnknownDevices.DENY for view in views],
                dtype=bool,
            ),
            online=np.array([view.online for view in views], dtype=bool),
            healthy=np.array([board.healthy for board in boards], dtype=bool),
            drained=np.array([view.drained for view in views], dtype=bool),
            busy=busy,
            progress=np.array(
                [math.nan if board.progress is None else board.progress for board in boards],
                dtype=np.float64,
            ),
            supports={
                (name, kind): np.array(
                    [
                        any(e.name == name and kind in e.supported_types for e in board.engines)
                        for board in boards
                    ],
                    dtype=bool,
                )
                for name, kind in pairs
            },
            engines={
                name: np.array(
                    [any(engine.name == name for engine in board.engines) for board in boards],
                    dtype=bool,
                )
                for name in engines
            },
            reasons=tuple(reasons),
            attributes=tuple(attributes_of(board) for board in boards),
            conflicts=conflicts,
            guarded=self._guarded,
        )


def _view(
    board: Board,
    host: Host | None,
    expected: bool,
    drained: Mapping[str, str],
    holders: Mapping[str, str],
    unknown: UnknownDevices = UnknownDevices.DENY,
) -> BoardView:
    uid = board.target_uid
    online = host is not None and host.ready
    holder = holders.get(uid)
    if not expected and unknown is UnknownDevices.DENY:
        state, reason = BoardState.UNKNOWN, "not on the inventory, so it is never used"
    elif uid in drained:
        state, reason = BoardState.DRAINED, drained[uid] or "taken out by an operator"
    elif host is None:
        state, reason = BoardState.OFFLINE, "no host reports it"
    elif not host.ready:
        state, reason = BoardState.OFFLINE, f"its host {host.name} is {host.ready_reason}"
    elif not board.healthy:
        state, reason = BoardState.UNHEALTHY, board.health_reason or "its host finds it unusable"
    elif holder is not None:
        # Not which one: the sentence reaches other users, who may not know that it exists.
        state, reason = BoardState.BUSY, "runs a benchmark"
    elif board.busy:
        state, reason = BoardState.BUSY, board.busy_reason or "held by another task"
    else:
        state, reason = BoardState.IDLE, ""
        if board.progress:  # of a task that has ended: what a host shows comes late
            board = replace(board, progress=0.0)
    if not expected and unknown is UnknownDevices.WARN:
        reason = f"{reason}; not on the inventory" if reason else "not on the inventory"
    return BoardView(
        board=board,
        state=state,
        reason=reason,
        host=host.name if host else "",
        expected=expected,
        online=online,
        drained=uid in drained,
        holder=holder,
    )


def _stricter(stated: Board, seen: Board) -> Board:
    """The reported board, limited to what the inventory grants it.

    Of which machine it is a slice, and with whom it shares cores, Nomad does not tell.
    """
    limits = {
        "ram_bytes": min(stated.ram_bytes, seen.ram_bytes),
        "storage_bytes": min(stated.storage_bytes, seen.storage_bytes),
        "engines": _granted(stated.engines, seen.engines),
        "local": seen.local or stated.local,
        "shares_with": seen.shares_with | stated.shares_with,
    }
    if all(getattr(seen, name) == value for name, value in limits.items()):
        return seen  # mostly: boards are what they are expected to be
    return replace(seen, **limits)  # type: ignore[arg-type]  # each is its field's


@lru_cache(maxsize=4096)  # boards of a family share them
def _granted(
    stated: tuple[BoardEngine, ...], seen: tuple[BoardEngine, ...]
) -> tuple[BoardEngine, ...]:
    kinds = {engine.name: engine.supported_types for engine in stated}
    return tuple(
        replace(engine, supported_types=engine.supported_types & kinds[engine.name])
        for engine in seen
        if engine.name in kinds
    )


def _conflicts(boards: Sequence[Board], uids: Sequence[str]) -> np.ndarray | None:
    """Shape (boards, boards), or None when no two boards share cores."""
    if not any(board.shares_with for board in boards):
        return None
    row = {uid: index for index, uid in enumerate(uids)}
    matrix = np.zeros((len(boards), len(boards)), dtype=bool)
    for index, board in enumerate(boards):
        for other in board.shares_with:
            if other in row:
                matrix[index, row[other]] = matrix[row[other], index] = True
    return matrix
