"""What is expected joined with what hosts report, in columns.

A cluster of ten thousand boards says much the same every second: what did not change is kept, and
only what an operator or a live attempt changes of it is put over it in each snapshot.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.model import USED_OUTSIDE, AttributeValue, Board, BoardEngine, Host
from edgeyard.devices.operators import is_of_node
from edgeyard.scheduler.model.decision import Snapshot


class BoardState(StrEnum):
    """State of a board, as operators see it."""

    IDLE = "idle"
    BUSY = "busy"
    OFFLINE = "offline"  # expected, but no ready host reports it
    DRAINED = "drained"  # taken out by an operator
    LEASED = "leased"  # idle, and kept for one user's benchmarks or for maintenance
    QUARANTINED = "quarantined"  # kept from the queue after failures
    UNHEALTHY = "unhealthy"  # its host reports it as unusable
    UNKNOWN = "unknown"  # reported, but not in the inventory: never used


class UnknownDevices(StrEnum):
    """What to do with boards that hosts report and the inventory lacks."""

    DENY = "deny"  # shown, never used
    WARN = "warn"  # used, and pointed out wherever boards are shown
    ALLOW = "allow"  # used


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """The present state of one board.

    Attributes:
        reason: Why it is not idle, or a remark, for people; "" otherwise.
        host: Name of its host; "" if no host reports it.
        holder: Id of the benchmark that holds it; None if none does.
        clock_offset_s: How far its host's clock is ahead of the server's; None: not measured.
    """

    board: Board
    state: BoardState
    reason: str
    host: str
    expected: bool
    online: bool
    drained: bool
    holder: str | None
    clock_offset_s: float | None = None


_NOT_REPORTED = (None, None)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedBoard:
    """One board as expected and reported, without drains and attempts.

    Attributes:
        seen: The reported board; None if no host reports it.
        host: The host that reports it.
        view: Its state, with the reported board limited to what the inventory grants.
        rejected: Why what a host reports under its name is not this board; "" otherwise.
    """

    seen: Board | None
    host: Host | None
    view: BoardView
    attributes: Mapping[str, AttributeValue]
    rejected: str = ""

    @property
    def attribute_names(self) -> Iterable[str]:
        """The attributes of the board and of its node."""
        return (*self.attributes, *(() if self.host is None else self.host.attributes))

    def attribute(self, name: str) -> AttributeValue | None:
        """Return an attribute of the board, or of its node (``${node.class}``); None if unknown."""
        if not is_of_node(name):
            return self.attributes.get(name)
        return None if self.host is None else self.host.attribute(name)


Attributes = tuple[Mapping[str, AttributeValue], ...]


class JoinedBoards:
    """All boards, expected ones first; a value.

    Attributes:
        snapshot: The boards in columns, without drains and attempts, of no time.
        row_of_uid: Their rows.
        with_unknown_tasks: Boards that report a task although no known job holds them.
    """

    def __init__(
        self,
        boards: Sequence[JoinedBoard],
        unknown: UnknownDevices,
        unknown_before: tuple[Board, ...] = (),
    ) -> None:
        self.boards = tuple(boards)
        self.snapshot = _snapshot(self.boards, unknown)
        self.row_of_uid = {uid: row for row, uid in enumerate(self.snapshot.uids)}
        others = tuple(each.view.board for each in self.boards if not each.view.expected)
        self.unknown_boards = unknown_before if others == unknown_before else others
        self.with_unknown_tasks = tuple(
            each.view.board.target_uid
            for each in self.boards
            if each.seen is not None and each.seen.reports_task and not each.seen.busy
        )
        self.of_uid = {each.view.board.target_uid: each for each in self.boards}
        self._with_nodes: tuple[frozenset[str], Attributes] = frozenset(), self.snapshot.attributes

    def attributes(self, of_nodes: frozenset[str]) -> Attributes:
        """Return the attributes of each board, with these of its node. Any thread."""
        known, found = self._with_nodes
        if known != of_nodes:
            found = tuple(
                {**each.attributes, **_node_attributes(each.host, of_nodes)}
                if each.host is not None
                else each.attributes
                for each in self.boards
            )
            self._with_nodes = of_nodes, found
        return found

    def joined(
        self, expected: Mapping[str, Board], hosts: Iterable[Host], unknown: UnknownDevices
    ) -> JoinedBoards:
        """Return the boards with a newer answer of the cluster; itself where it is the same."""
        reported: dict[str, tuple[Board | None, Host | None]] = {
            board.target_uid: (board, host) for host in hosts for board in host.boards
        }
        rejected = {uid: why for host in hosts for uid, why in host.rejected}
        known: dict[str, Board | None] = {**expected}
        known.update((uid, None) for uid in reported if uid not in expected)
        boards = []
        was: Host | None = None
        now: Host | None = None
        alike = True
        for uid, stated in known.items():
            seen, host = reported.get(uid, _NOT_REPORTED)
            before = self.of_uid.get(uid)
            why = rejected.get(uid, "") if rejected and seen is None else ""
            if (
                before is not None
                and before.rejected == why
                and (before.seen is seen or before.seen == seen)
            ):
                if before.host is not was or host is not now:  # mostly the last board's
                    was, now = before.host, host
                    alike = was is now or _same_host_state(was, now)
                if alike:
                    boards.append(before)
                    continue
            boards.append(_join(uid, stated, seen, host, unknown, why))
        if len(boards) == len(self.boards) and all(map(operator.is_, boards, self.boards)):
            return self
        return JoinedBoards(boards, unknown, self.unknown_boards)


def _node_attributes(host: Host, names: frozenset[str]) -> dict[str, str]:
    found = ((name, host.attribute(name)) for name in names)
    return {name: value for name, value in found if value is not None}


def _join(
    uid: str,
    stated: Board | None,
    seen: Board | None,
    host: Host | None,
    unknown: UnknownDevices,
    rejected: str,
) -> JoinedBoard:
    board = seen if stated is None or seen is None else _stricter(stated, seen)
    board = stated if board is None else board
    if board is None:
        raise ValueError(f"board {uid} is neither expected nor reported")
    if rejected:
        board = replace(board, healthy=False, health_reason=rejected)
    view = view_of(board, host, stated is not None, {}, {}, unknown)
    return JoinedBoard(seen, host, view, attributes_of(view.board), rejected)


def _same_host_state(one: Host | None, other: Host | None) -> bool:
    """Return whether two reports of a host are equal, apart from its boards."""
    return (
        one is not None
        and other is not None
        and (one.name, one.ready, one.ready_reason) == (other.name, other.ready, other.ready_reason)
        and one.attributes_read == other.attributes_read
        and (one.attributes is other.attributes or one.attributes == other.attributes)
    )


def _snapshot(joined: Sequence[JoinedBoard], unknown: UnknownDevices) -> Snapshot:
    views = [each.view for each in joined]
    boards = [view.board for view in views]
    uids = tuple(board.target_uid for board in boards)
    # Boards offer few different sets of engines, and mostly share them: a hash of one takes long.
    offers = {id(board.engines): board.engines for board in boards}
    rows: dict[tuple[BoardEngine, ...], int] = {}
    row_of_id = {key: rows.setdefault(offer, len(rows)) for key, offer in offers.items()}
    offered = np.array([row_of_id[id(board.engines)] for board in boards], dtype=np.intp)
    names = sorted({engine.name for offer in rows for engine in offer})
    pairs = sorted(
        {
            (engine.name, kind)
            for offer in rows
            for engine in offer
            for kind in engine.supported_types
        }
    )
    lacking = [  # by offer: hosts may list very many names
        {(engine.name, kind) for engine in offer for kind in engine.undeclared_types}
        for offer in rows
    ]
    allowed = unknown is not UnknownDevices.DENY
    return Snapshot(
        taken_at=None,
        age_s=math.inf,
        uids=uids,
        families=tuple(board.family for board in boards),
        hosts=tuple(view.host for view in views),
        ram_bytes=np.array([board.ram_bytes for board in boards], dtype=np.int64),
        storage_bytes=np.array([board.storage_bytes for board in boards], dtype=np.int64),
        expected=np.array([view.expected or allowed for view in views], dtype=np.bool_),
        online=np.array([view.online for view in views], dtype=np.bool_),
        healthy=np.array([board.healthy for board in boards], dtype=np.bool_),
        drained=np.zeros(len(boards), dtype=np.bool_),
        busy=np.array([board.busy for board in boards], dtype=np.bool_),
        progress=np.array(
            [math.nan if board.progress is None else board.progress for board in boards],
            dtype=np.float64,
        ),
        supports={
            (name, kind): np.array(
                [
                    any(e.name == name and kind in e.supported_types for e in offer)
                    for offer in rows
                ],
                dtype=np.bool_,
            )[offered]
            for name, kind in pairs
        },
        undeclared={
            pair: np.array([pair in own for own in lacking], dtype=np.bool_)[offered]
            for pair in sorted(set[tuple[str, str]]().union(*lacking))
        },
        engines={
            name: np.array([any(e.name == name for e in offer) for offer in rows], np.bool_)[
                offered
            ]
            for name in names
        },
        reasons=tuple(view.reason for view in views),
        attributes=tuple(each.attributes for each in joined),
        conflicts=_conflicts(boards, uids),
    )


def view_of(
    board: Board,
    host: Host | None,
    expected: bool,
    drained: Mapping[str, str],
    holders: Mapping[str, str],
    unknown: UnknownDevices = UnknownDevices.DENY,
    *,
    used_outside: bool = False,
) -> BoardView:
    """Return a board as it is now: drained, held by an attempt, or as its host says.

    Args:
        board: Limited to what the inventory grants.
        host: Who reports it; None if none does.
        expected: It is in the inventory.
        drained: Why, by board that an operator took out.
        holders: Benchmark by board, of every live attempt.
        unknown: What to do with boards that are not expected.
        used_outside: The task that it reports is none of ours.
    """
    uid = board.target_uid
    online = host is not None and host.ready
    holder = holders.get(uid)
    if not expected and unknown is UnknownDevices.DENY:
        state, reason = BoardState.UNKNOWN, "not in the inventory, so it is never used"
    elif uid in drained:
        state, reason = BoardState.DRAINED, drained[uid] or "taken out of service"
    elif host is None and not board.healthy:
        state, reason = BoardState.UNHEALTHY, board.health_reason
    elif host is None:
        state, reason = BoardState.OFFLINE, "no host reports it"
    elif not host.ready:
        state, reason = BoardState.OFFLINE, f"its host {host.name} is {host.ready_reason}"
    elif not board.healthy:
        state, reason = (
            BoardState.UNHEALTHY,
            board.health_reason or "its host reports it as unusable",
        )
    elif holder is not None:
        # Not which one: the sentence reaches other users, who may not know that it exists.
        state, reason = BoardState.BUSY, "runs a benchmark"
    elif board.busy:
        state, reason = BoardState.BUSY, board.busy_reason or "used by another task"
    elif used_outside:
        state, reason = BoardState.BUSY, USED_OUTSIDE
    else:
        state, reason = BoardState.IDLE, ""
        if board.progress:  # of a task that has ended: what a host shows comes late
            board = replace(board, progress=0.0)
    if not expected and unknown is UnknownDevices.WARN:
        reason = f"{reason}; not in the inventory" if reason else "not in the inventory"
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
    """Return the reported board, limited to what the inventory grants it.

    Of which machine it is a slice, and with whom it shares cores, Nomad does not report.
    """
    if (
        seen.ram_bytes <= stated.ram_bytes
        and seen.storage_bytes <= stated.storage_bytes
        and seen.engines == stated.engines
        and (seen.local or stated.local) == seen.local
        and stated.shares_with <= seen.shares_with
    ):
        return seen  # mostly: boards are what they are expected to be
    return replace(
        seen,
        ram_bytes=min(stated.ram_bytes, seen.ram_bytes),
        storage_bytes=min(stated.storage_bytes, seen.storage_bytes),
        engines=_limit_engines(stated.engines, seen.engines),
        local=seen.local or stated.local,
        shares_with=seen.shares_with | stated.shares_with,
    )


@lru_cache(maxsize=4096)  # boards of a family share them
def _limit_engines(
    stated: tuple[BoardEngine, ...], seen: tuple[BoardEngine, ...]
) -> tuple[BoardEngine, ...]:
    kinds = {engine.name: engine.supported_types for engine in stated}
    return tuple(
        replace(engine, supported_types=engine.supported_types & kinds[engine.name])
        for engine in seen
        if engine.name in kinds
    )


def _conflicts(boards: Sequence[Board], uids: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return which boards share cores, shape (boards, boards); None where no two do."""
    if not any(board.shares_with for board in boards):
        return None
    row = {uid: index for index, uid in enumerate(uids)}
    matrix = np.zeros((len(boards), len(boards)), dtype=bool)
    for index, board in enumerate(boards):
        for other in board.shares_with:
            if other in row:
                matrix[index, row[other]] = matrix[row[other], index] = True
    return matrix
