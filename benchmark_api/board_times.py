"""For how long each board was busy, idle and down, as this server has seen it.

The server that leads also stores it by month, for reports of usage, and each change of a state.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.model.accounting import BoardMonth, month_of
from edgeyard.scheduler.model.boards import BoardStateChange
from edgeyard.scheduler.ports import Clock
from edgeyard.scheduler.twin.twin import BoardState, BoardView

logger = logging.getLogger(__name__)

SAMPLE_S = 5.0
"""Interval between two samples; the twin itself learns of a change within about a second."""

MAX_GAP_S = 60.0
"""What a board did between two samples further apart is not known, and not counted."""

STORE_AFTER_S = 60.0
"""Interval at which what was counted is stored; a server that dies loses that much."""

JOIN_S = 5.0


class Use(StrEnum):
    """What a board's time was spent on."""

    BUSY = "busy"  # runs a benchmark or another task, or its cores are in use
    IDLE = "idle"  # could run something, leases included
    DOWN = "down"  # offline, unhealthy, drained or in quarantine, and runs nothing


_USE_OF_STATE = {
    BoardState.IDLE: Use.IDLE,
    BoardState.LEASED: Use.IDLE,
    BoardState.BUSY: Use.BUSY,
    BoardState.OFFLINE: Use.DOWN,
    BoardState.UNHEALTHY: Use.DOWN,
    BoardState.DRAINED: Use.DOWN,
    BoardState.QUARANTINED: Use.DOWN,
}
"""Unknown boards are never used, and not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTime:
    """What one board did.

    Attributes:
        since: When this server saw the board first.
        seconds: By use.
    """

    since: datetime
    seconds: Mapping[Use, float]


class BoardTimes:
    """Adds up what boards do between two samples. Thread-safe; `start` begins a thread for them.

    Durations are those of the monotonic clock: a time of day that is set changes none of them.
    """

    def __init__(
        self,
        boards: Callable[[], Sequence[BoardView]],
        age_s: Callable[[], float],
        max_age_s: Callable[[], float],
        clock: Clock,
        leads: Callable[[], bool],
        keep: Callable[[Sequence[BoardMonth]], None],
        keep_states: Callable[[Sequence[BoardStateChange]], None],
    ) -> None:
        """Take no sample yet; nothing is counted before the second one.

        Args:
            boards: The present state of all boards.
            age_s: Age of that state, seconds; inf: the cluster has not answered yet.
            max_age_s: Age past which the state is not known, and nothing is counted.
            clock: Clock of the samples.
            leads: Whether this server leads: of several one stores what boards did.
            keep: Adds seconds to what is stored.
            keep_states: Stores states of boards that differ from the stored ones.
        """
        self._leads, self._keep, self._keep_states = leads, keep, keep_states
        self._states: Mapping[str, tuple[str, str | None]] = {}
        self._unstored: dict[tuple[str, str], BoardMonth] = {}
        self._stored_s = clock.monotonic_s()
        self._boards, self._age_s, self._max_age_s = boards, age_s, max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampled_s: float | None = None
        self._last: dict[str, tuple[str, Use]] = {}
        self._since: dict[str, datetime] = {}
        self._of_board: dict[str, dict[Use, float]] = {}
        self._of_family: dict[str, dict[Use, float]] = {}

    def sample(self) -> None:
        """Count the time since the last sample for what each board did then.

        Raises:
            Unavailable: The database does not answer.
        """
        known, leads = self._age_s() <= self._max_age_s(), self._leads()
        views = self._boards() if known else ()
        now_s, now = self._clock.monotonic_s(), self._clock.now()
        found = {
            view.board.target_uid: (view.board.family, _use(view))
            for view in views
            if view.state in _USE_OF_STATE
        }
        with self._lock:
            passed_s = 0.0 if self._sampled_s is None else now_s - self._sampled_s
            if known and 0 < passed_s <= MAX_GAP_S:
                for uid, (family, use) in self._last.items():
                    if uid in found:
                        self._of_board[uid][use] += passed_s
                        self._of_family[family][use] += passed_s
                        if leads:
                            self._count(uid, month_of(now), family, use, passed_s)
            self._sampled_s, self._last = now_s, found
            if known:
                self._since = {uid: self._since.get(uid, now) for uid in found}
                self._of_board = {uid: self._of_board.get(uid) or _nothing() for uid in found}
                for family, _ in found.values():
                    self._of_family.setdefault(family, _nothing())
        if leads:
            self._store_states(views, now)
        else:
            self._states = {}  # another server stores others meanwhile
        if now_s - self._stored_s >= STORE_AFTER_S:
            self._store(now_s)

    def _store_states(self, views: Sequence[BoardView], now: datetime) -> None:
        """Store the states that differ from those of the last sample. One thread at a time."""
        known = [view for view in views if view.state in _USE_OF_STATE]
        found = {view.board.target_uid: (view.state.value, view.holder) for view in known}
        changes = [
            BoardStateChange(
                target_uid=uid,
                at=now,
                state=view.state.value,
                reason=view.reason,
                benchmark_id=view.holder,
            )
            for view in known
            if self._states.get(uid := view.board.target_uid) != found[uid]
        ]
        if changes:
            self._keep_states(changes)
        self._states = {**self._states, **found}

    def _count(self, uid: str, month: str, family: str, use: Use, seconds: float) -> None:
        none = BoardMonth(target_uid=uid, month=month, family=family)
        known = self._unstored.get((uid, month), none)
        name = f"{use.value}_s"
        changed = {"family": family, name: getattr(known, name) + seconds}
        self._unstored[uid, month] = dataclasses.replace(known, **changed)

    def _store(self, now_s: float) -> None:
        """Store what was counted; it stays counted where that fails. One thread at a time."""
        with self._lock:
            due, self._unstored = self._unstored, {}
        self._stored_s = now_s
        if not due:
            return
        try:
            self._keep([each for _, each in sorted(due.items())])
        except EdgeyardError:
            with self._lock:  # nothing else counts: this is the thread that samples
                self._unstored = due
            raise

    def of_families(self) -> dict[str, dict[Use, float]]:
        """Return seconds by family and use, of all boards that the family ever had; they grow."""
        with self._lock:
            return {family: dict(seconds) for family, seconds in self._of_family.items()}

    def of_board(self, target_uid: str) -> BoardTime | None:
        """Return what a board did; None where this server has not seen it yet."""
        with self._lock:
            since = self._since.get(target_uid)
            if since is None:
                return None
            return BoardTime(since=since, seconds=dict(self._of_board[target_uid]))

    def start(self) -> None:
        """Take a sample every `SAMPLE_S` from now on."""
        self._thread = threading.Thread(target=self._loop, name="edgeyard-board-times")
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            if not self._thread.is_alive():
                self._try(lambda: self._store(self._clock.monotonic_s()))

    def _loop(self) -> None:
        """Outermost of its thread, so it may catch everything."""
        while True:
            self._try(self.sample)
            if self._stop.wait(SAMPLE_S):
                return

    @staticmethod
    def _try(work: Callable[[], None]) -> None:
        try:
            work()
        except EdgeyardError as error:
            logger.debug(
                "boards could not be sampled",
                extra={"event": "board_times.failed", "reason": str(error)},
            )
        except Exception:
            logger.exception("sampling boards broke", extra={"event": "board_times.broke"})


def _use(view: BoardView) -> Use:
    """Return what a board does: a drained one is busy until its benchmark ends."""
    return Use.BUSY if view.holder is not None else _USE_OF_STATE[view.state]


def _nothing() -> dict[Use, float]:
    return dict.fromkeys(Use, 0.0)
