"""Reports conditions of the lab to operators: one event at its beginning, one at its end.

A condition is stored when it is reported, so that neither a restart nor another leader reports it
again, and is removed when it has ended. Conditions that last only for seconds are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.lab_conditions import LabCondition
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork
from edgeyard.scheduler.twin.twin import BoardState, BoardView

CHECK_S = 5.0
"""Interval between two readings of the lab's state."""

OFFLINE_S = 300.0
"""Time for which a board is offline before that is reported: it may only restart."""

STALE_S = 60.0
"""Time for which the state of the boards is too old before that is reported."""

DISK_S = 60.0
"""Time for which the disk has little room before that is reported."""

_LEADER = "server.leader"
_OFFLINE, _STALE, _DISK, _SCORER = "board.offline", "twin.stale", "disk.low", "scorer.suspended"
_AWAY = frozenset({BoardState.OFFLINE, BoardState.UNHEALTHY})


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a condition is reported.

    Attributes:
        ends: Type of the event at its end.
        after_s: How long it holds before it is reported, s.
        field: Field of the event's data that names the board or scorer; "" for the lab.
    """

    ends: str
    after_s: float
    field: str


_RULES: Mapping[str, _Rule] = {
    _OFFLINE: _Rule("board.online", OFFLINE_S, "target_uid"),
    _STALE: _Rule("twin.fresh", STALE_S, ""),
    _DISK: _Rule("disk.enough", DISK_S, ""),
    _SCORER: _Rule("scorer.resumed", 0.0, "scorer"),
}
"""By the type of the event at the beginning of a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSources:
    """Where the state of the lab is read.

    Attributes:
        boards: Every board as the twin knows it now.
        twin_age_s: Age of that.
        max_twin_age_s: The age past which nothing is dispatched.
        twin_problem: Why the cluster does not answer; "" if it does.
        disk_problem: How little room there is; "" if there is enough.
        leader: The server that leads, this one.
    """

    boards: Callable[[], Sequence[BoardView]]
    twin_age_s: Callable[[], float]
    max_twin_age_s: float
    twin_problem: Callable[[], str]
    disk_problem: Callable[[], str]
    leader: Callable[[], LeaderView]


class LabWatch:
    """Compares the state of the lab with what was reported. One thread."""

    def __init__(self, store: Store, sources: LabSources, clock: Clock) -> None:
        self._store = store
        self._sources = sources
        self._clock = clock
        self._since_s: dict[str, float] = {}

    def run(self) -> None:
        """Read the state of the lab once, and store and report what has changed."""
        now, now_s = self._clock.now(), self._clock.monotonic_s()
        stale = self._sources.twin_age_s() > self._sources.max_twin_age_s
        boards = {} if stale else {each.board.target_uid: each for each in self._sources.boards()}
        with self._store.read() as uow:
            known = {each.name: each for each in uow.lab_conditions.all()}
            found = {
                f"{kind} {about}".rstrip(): (kind, about, reason)
                for kind, about, reason in (
                    *_offline(boards),
                    *self._of_server(stale),
                    *self._of_scorers(uow, known),
                )
            }
        self._since_s = {name: self._since_s.get(name, now_s) for name in found}
        begun = [
            LabCondition(name=name, about=about, reason=reason, since=now)
            for name, (kind, about, reason) in found.items()
            if name not in known and now_s - self._since_s[name] >= _RULES[kind].after_s
        ]
        ended = [
            each
            for name, each in known.items()
            if name not in found and name != _LEADER and not (stale and _kind(each) == _OFFLINE)
        ]
        leader, before = self._sources.leader(), known.get(_LEADER)
        new_leader = leader.leads and (before is None or before.about != leader.server_id)
        if not begun and not ended and not new_leader:
            return

        def write(uow: UnitOfWork) -> None:
            for each in begun:
                uow.lab_conditions.put(each)
                uow.log.append(_event(_kind(each), each, reason=each.reason))
            for each in ended:
                uow.lab_conditions.remove(each.name)
                view = boards.get(each.about)
                if _kind(each) != _OFFLINE or (view is not None and view.online):
                    lasted_s = round((now - each.since).total_seconds(), 1)
                    at_end = LabCondition(name=each.name, about=each.about, reason="", since=now)
                    uow.log.append(_event(_RULES[_kind(each)].ends, at_end, lasted_s=lasted_s))
            if new_leader:
                uow.lab_conditions.put(
                    LabCondition(name=_LEADER, about=leader.server_id, reason="", since=now)
                )
                if before is not None:
                    data = {"server": leader.url, "reason": f"{leader.url} leads now"}
                    uow.log.append(Event(at=now, kind=_LEADER, data=data))

        self._store.transact(write)

    def _of_server(self, stale: bool) -> Iterator[tuple[str, str, str]]:
        if stale:
            why = self._sources.twin_problem() or "no answer"
            yield _STALE, "", f"nothing is dispatched: the cluster does not answer ({why})"
        if disk := self._sources.disk_problem():
            yield _DISK, "", disk

    def _of_scorers(
        self, uow: UnitOfWork, known: Mapping[str, LabCondition]
    ) -> Iterator[tuple[str, str, str]]:
        """Yield scorers that were suspended and have not answered well since."""
        now = self._clock.now()
        for policy in uow.scoring.policies():
            for state in uow.scoring.states(policy).values():
                about = f"{policy}/{state.scorer}"
                is_begun = state.suspended_until is not None and state.suspended_until > now
                if state.suspensions and (is_begun or f"{_SCORER} {about}" in known):
                    yield _SCORER, about, state.last_fault or "it failed repeatedly"


def _offline(boards: Mapping[str, BoardView]) -> Iterator[tuple[str, str, str]]:
    for uid, view in boards.items():
        if view.expected and not view.drained and view.state in _AWAY:
            yield _OFFLINE, uid, view.reason


def _kind(condition: LabCondition) -> str:
    return condition.name.partition(" ")[0]


def _event(kind: str, condition: LabCondition, **data: object) -> Event:
    field = _RULES[_kind(condition)].field
    return Event(
        at=condition.since,
        kind=kind,
        data={**({field: condition.about} if field else {}), **data},
    )
