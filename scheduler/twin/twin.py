"""The digital twin: expected boards, joined with the cluster's last report about them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.model import USED_OUTSIDE, Board, Host
from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import LoadReport
from edgeyard.scheduler.twin.comparison import Comparison, compare
from edgeyard.scheduler.twin.joined import BoardState as BoardState
from edgeyard.scheduler.twin.joined import BoardView as BoardView
from edgeyard.scheduler.twin.joined import JoinedBoard, JoinedBoards, view_of
from edgeyard.scheduler.twin.joined import UnknownDevices as UnknownDevices

logger = logging.getLogger(__name__)

_REPLACED_BY_QUARANTINE = frozenset({BoardState.IDLE, BoardState.BUSY})
"""States that are shown as quarantined; worse states are shown as they are."""

_Rows = NDArray[np.bool_]

_NO_REASONS: Mapping[str, str] = {}
_NO_LOADS: Mapping[str, LoadReport] = {}

LOAD_MAX_AGE = timedelta(minutes=1)
"""Maximum age of hosts' loads; older ones are ignored."""

REPORT_LAG = timedelta(seconds=30)
"""A board that reports a task so soon after a job of Edgeyard held it probably reports that job:
Nomad updates the attributes of boards about 10 s late, later on busy hosts."""

LOAD_STEPS = 20
"""Loads are rounded to twentieths: smaller differences change no placement, and would make every
recorded cycle another one."""


@dataclass(frozen=True, slots=True)
class _Report:
    """The last report of the cluster."""

    hosts: tuple[Host, ...]
    at: datetime
    joined: JoinedBoards


class Twin:
    """Holds the last report of the node source, and returns immutable views. Thread-safe.

    A board is busy if the cluster reports so, or if a live attempt is bound to it. The latter is
    known before the cluster reports it, because attempts are committed before the cluster is
    called.
    """

    def __init__(
        self,
        expected: Sequence[Board],
        unknown: UnknownDevices = UnknownDevices.DENY,
        *,
        may_grow: bool = False,
    ) -> None:
        """Begin without knowledge of the boards; `refresh` brings it.

        Args:
            unknown: How boards that are not expected are treated.
            may_grow: Unexpected boards may appear at any time, and the cluster could place a job
                there that has no allow-list.
        """
        self._expected = tuple(expected)
        self._stated = {board.target_uid: board for board in self._expected}
        self._once_expected = frozenset(self._stated)
        self._unknown = unknown
        self._nothing = JoinedBoards((), unknown).joined(self._stated, (), unknown)
        self._guarded = may_grow and unknown is UnknownDevices.DENY
        self._warned: frozenset[str] = frozenset()
        self._known: _Report | None = None
        self._unusable: dict[str, tuple[datetime, str]] = {}
        self._problem = "the cluster has not answered yet"
        self._reports = _NO_LOADS
        self._loads: Mapping[str, HostLoad] = {}
        self._held_at: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def refresh(
        self, hosts: Sequence[Host], at: datetime, loads: Mapping[str, LoadReport] = _NO_LOADS
    ) -> None:
        """Replace the report, and the loads of hosts by name."""
        with self._lock:
            before, stated = self._known.joined if self._known else self._nothing, self._stated
        joined = before.joined(stated, hosts, self._unknown)
        others = frozenset(board.target_uid for board in joined.unknown_boards)
        with self._lock:
            if self._stated is not stated:  # the inventory has been reloaded
                joined = self._nothing.joined(self._stated, hosts, self._unknown)
                others = frozenset(board.target_uid for board in joined.unknown_boards)
            self._unusable = {
                board.target_uid: (
                    self._unusable.get(board.target_uid, (at, ""))[0],
                    board.health_reason or "its host reports it as unusable",
                )
                for host in hosts
                if host.ready
                for board in host.boards
                if not board.healthy
            }
            self._known = _Report(tuple(hosts), at, joined)
            self._held_at = {
                uid: held for uid, held in self._held_at.items() if at - held <= REPORT_LAG
            } | {
                board.target_uid: at
                for host in hosts
                for board in host.boards
                if board.busy and board.busy_reason != USED_OUTSIDE
            }
            self._reports = loads
            self._problem = ""
            new, self._warned = others - self._warned, others
        if self._unknown is not UnknownDevices.ALLOW:
            for uid in sorted(new):
                logger.warning(
                    "a host reports a board that is not in the inventory",
                    extra={
                        "event": "board.unknown",
                        "target_uid": uid,
                        "used": self._unknown is UnknownDevices.WARN,
                    },
                )

    def set_inventory(self, expected: Sequence[Board]) -> None:
        """Use another inventory from now on. Any thread."""
        stated = {board.target_uid: board for board in expected}
        nothing = JoinedBoards((), self._unknown).joined(stated, (), self._unknown)
        with self._lock:
            self._expected, self._stated, self._nothing = tuple(expected), stated, nothing
            self._once_expected |= frozenset(stated)
            if self._known is not None:
                hosts = self._known.hosts
                joined = JoinedBoards((), self._unknown).joined(stated, hosts, self._unknown)
                self._known = replace(self._known, joined=joined)

    def boards_with_unknown_tasks(self) -> tuple[str, ...]:
        """Return the boards that report a task although no known job holds them."""
        with self._lock:
            known = self._known
        return () if known is None else known.joined.with_unknown_tasks

    def note_held(self, held_at: Mapping[str, datetime]) -> None:
        """Record until when Edgeyard's tasks held these boards, which may still report them."""
        with self._lock:
            for uid, at in held_at.items():
                self._held_at[uid] = max(at, self._held_at.get(uid, at))

    def _used_outside(self, known: _Report | None, holders: Mapping[str, str]) -> frozenset[str]:
        """Return the boards that report a task which cannot be one of Edgeyard's."""
        if known is None or not known.joined.with_unknown_tasks:
            return frozenset()
        with self._lock:
            return frozenset(
                uid
                for uid in known.joined.with_unknown_tasks
                if uid not in holders
                and (uid not in self._held_at or known.at - self._held_at[uid] > REPORT_LAG)
            )

    def comparison(self) -> Comparison | None:
        """Compare reported boards with the inventory; None before the first report."""
        with self._lock:
            known = self._known
        return None if known is None else compare(self._expected, known.hosts)

    def unknown_boards(self) -> tuple[Board, ...]:
        """Return reported boards that the inventory lacks; the same object while none changes."""
        with self._lock:
            known = self._known
        return () if known is None else known.joined.unknown_boards

    def joined(self) -> Mapping[str, JoinedBoard]:
        """Return each board with its attributes, by its uid; the same object while none changes."""
        with self._lock:
            known = self._known
        return (known.joined if known else self._nothing).of_uid

    def record_failed_refresh(self, reason: str) -> None:
        """Record that the cluster did not answer."""
        with self._lock:
            self._problem = reason

    def unusable_since(self, target_uid: str) -> tuple[datetime, str] | None:
        """Return since when, and why, its host finds a board unusable; None if it does not."""
        with self._lock:
            return self._unusable.get(target_uid)

    def is_forbidden(self, target_uid: str) -> bool:
        """Return whether a board is reported, but never was in the inventory and may not be used.

        What runs on a board that was removed from the inventory meanwhile may end there.
        """
        with self._lock:
            known, expected = self._known, self._once_expected
        return (
            self._unknown is UnknownDevices.DENY
            and known is not None
            and target_uid not in expected
            and target_uid in known.joined.of_uid
        )

    def host_of(self, target_uid: str) -> str:
        """Return the host that reports a board; the name of the board if none does."""
        board = self.joined().get(target_uid)
        return target_uid if board is None or board.host is None else board.host.name

    def loads(self, now: datetime) -> Mapping[str, HostLoad]:
        """Return loads within `LOAD_MAX_AGE`, by host; the same object while they are equal."""
        with self._lock:
            found = {
                host: _rounded(report.load)
                for host, report in sorted(self._reports.items())
                if now - report.at <= LOAD_MAX_AGE
            }
            if found != self._loads:
                self._loads = found
            return self._loads

    def unusable_parts(self) -> frozenset[tuple[str, str]]:
        """Return the offline hosts and the unusable boards, each with the reason."""
        with self._lock:
            known, unusable = self._known, self._unusable
        hosts = () if known is None else known.hosts
        return frozenset(
            [
                *((host.name, host.ready_reason) for host in hosts if not host.ready),
                *((uid, reason) for uid, (_, reason) in unusable.items()),
            ]
        )

    @property
    def problem(self) -> str:
        """Why the last refresh failed; "" if it succeeded."""
        with self._lock:
            return self._problem

    def age_s(self, now: datetime) -> float:
        """Return the age of the last report; inf if there is none."""
        with self._lock:
            known = self._known
        return (now - known.at).total_seconds() if known else math.inf

    def views(
        self,
        *,
        drained: Mapping[str, str],
        holders: Mapping[str, str],
        quarantined: Mapping[str, str] = _NO_REASONS,
        leased: Mapping[str, str] = _NO_REASONS,
    ) -> tuple[BoardView, ...]:
        """Return the state of all boards, expected ones first.

        Args:
            drained: Reason, by board that an operator drained.
            holders: Benchmark that holds each board of a live attempt.
            quarantined: Reason, by board in quarantine.
            leased: Until when and why, by board with a present lease.
        """
        with self._lock:
            known, reports = self._known, self._reports
        joined = known.joined if known else self._nothing
        outside = self._used_outside(known, holders)
        views = [
            _current_view(each, drained, holders, self._unknown, outside) for each in joined.boards
        ]
        taken = np.array(
            [
                view.board.busy or view.holder is not None or view.board.target_uid in outside
                for view in views
            ],
            dtype=np.bool_,
        )
        for row, reason in _with_cores_in_use(joined.snapshot, taken).items():
            if views[row].state is BoardState.IDLE:
                views[row] = replace(views[row], state=BoardState.BUSY, reason=reason)
        views = [
            replace(view, clock_offset_s=reports[view.host].clock_offset_s)
            if view.host in reports
            else view
            for view in views
        ]
        return tuple(_taken_out(view, quarantined, leased) for view in views)

    def snapshot(
        self,
        now: datetime,
        *,
        drained: Mapping[str, str],
        holders: Mapping[str, str],
        node_attributes: frozenset[str] = frozenset(),
    ) -> Snapshot:
        """Return all boards in columns.

        Args:
            node_attributes: Those of nodes that are wanted; a node has a hundred.
        """
        with self._lock:
            known = self._known
        joined = known.joined if known else self._nothing
        before = joined.snapshot
        reasons = list(before.reasons)
        busy, taken_out = before.busy.copy(), before.drained.copy()
        outside = self._used_outside(known, holders)
        for uid in {*drained, *holders, *outside}:
            row = joined.row_of_uid.get(uid)
            if row is not None:
                view = _current_view(joined.boards[row], drained, holders, self._unknown, outside)
                reasons[row], taken_out[row] = view.reason, view.drained
                busy[row] |= view.holder is not None or uid in outside
        for row, reason in _with_cores_in_use(before, busy.copy()).items():
            reasons[row] = reasons[row] or reason
            busy[row] = True
        return replace(
            before,
            taken_at=known.at if known else None,
            age_s=(now - known.at).total_seconds() if known else math.inf,
            drained=taken_out,
            busy=busy,
            reasons=tuple(reasons),
            attributes=joined.attributes(node_attributes),
            guarded=self._guarded,
        )


def _with_cores_in_use(snapshot: Snapshot, taken: _Rows) -> Mapping[int, str]:
    """Return the rows of boards that are not taken and share cores with one that is, and why."""
    conflicts = snapshot.conflicts
    if conflicts is None:
        return {}
    blocked = (conflicts & taken[None, :]).any(axis=1) & ~taken
    return {
        row: "its cores are in use by "
        + snapshot.uids[int(np.flatnonzero(conflicts[row] & taken)[0])]
        for row in np.flatnonzero(blocked).tolist()
    }


def _taken_out(
    view: BoardView, quarantined: Mapping[str, str], leased: Mapping[str, str]
) -> BoardView:
    """Return a board with its quarantine, or its lease while nothing runs on it."""
    uid = view.board.target_uid
    if uid in quarantined and view.state in _REPLACED_BY_QUARANTINE:
        return replace(view, state=BoardState.QUARANTINED, reason=quarantined[uid])
    if uid in leased and view.state is BoardState.IDLE:
        return replace(view, state=BoardState.LEASED, reason=leased[uid])
    return view


def _rounded(load: HostLoad) -> HostLoad:
    return HostLoad(
        cpu=round(load.cpu * LOAD_STEPS) / LOAD_STEPS,
        memory=round(load.memory * LOAD_STEPS) / LOAD_STEPS,
    )


def _current_view(
    joined: JoinedBoard,
    drained: Mapping[str, str],
    holders: Mapping[str, str],
    unknown: UnknownDevices,
    outside: frozenset[str],
) -> BoardView:
    """Return a board with its drain, its holder and its use by tasks of others."""
    known = joined.view
    board = known.board
    uid = board.target_uid
    used_outside = uid in outside
    if uid not in drained and uid not in holders and not used_outside:
        return known
    if used_outside and joined.seen is not None:
        board = replace(board, progress=joined.seen.progress)
    return view_of(
        board,
        joined.host,
        known.expected,
        drained,
        holders,
        unknown,
        used_outside=used_outside,
    )
