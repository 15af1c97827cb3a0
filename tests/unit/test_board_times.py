"""What boards' time was spent on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from edgeyard.benchmark_api.board_times import MAX_GAP_S, STORE_AFTER_S, BoardTimes, Use
from edgeyard.errors import Unavailable
from edgeyard.scheduler.model.accounting import BoardMonth
from edgeyard.scheduler.model.boards import BoardStateChange
from edgeyard.scheduler.twin.twin import BoardState, BoardView
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import board

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"


def view(uid: str, state: BoardState, **changes: Any) -> BoardView:
    made = BoardView(
        board=board(uid), state=state, reason="", host="h", expected=True, online=True,
        drained=False, holder=None,
    )  # fmt: skip
    return replace(made, **changes)


@dataclass
class Lab:
    """Boards whose states a test sets, and what was counted of them."""

    views: tuple[BoardView, ...] = ()
    age_s: float = 1.0
    clock: FixedClock = field(default_factory=lambda: FixedClock(NOON))
    leads: bool = True
    database_is_away: bool = False
    kept: list[BoardMonth] = field(default_factory=list)
    states: list[BoardStateChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times = BoardTimes(
            self.boards,
            lambda: self.age_s,
            lambda: 60.0,
            self.clock,
            lambda: self.leads,
            self.keep,
            self.keep_states,
        )

    def keep(self, months: Sequence[BoardMonth]) -> None:
        if self.database_is_away:
            raise Unavailable("no database")
        self.kept += months

    def keep_states(self, changes: Sequence[BoardStateChange]) -> None:
        if self.database_is_away:
            raise Unavailable("no database")
        self.states += changes

    def pass_by(self, seconds: float, state: BoardState) -> None:
        """Let time pass with looks every 5 s, of one board in a state."""
        for _ in range(round(seconds / 5)):
            self.clock.forward(5)
            self.look(view(A, state))

    def kept_seconds(self) -> dict[str, list[float]]:
        """Seconds that were stored, by month: busy, idle, down."""
        found: dict[str, list[float]] = {}
        for each in self.kept:
            sums = found.setdefault(each.month, [0.0, 0.0, 0.0])
            for place, more in enumerate((each.busy_s, each.idle_s, each.down_s)):
                sums[place] += more
        return found

    def boards(self) -> tuple[BoardView, ...]:
        return self.views

    def look(self, *views: BoardView) -> None:
        self.views = views
        self.times.sample()

    def seconds(self, uid: str) -> list[float]:
        found = self.times.of_board(uid)
        assert found is not None
        return [found.seconds[use] for use in (Use.BUSY, Use.IDLE, Use.DOWN)]


@pytest.mark.parametrize(
    ("seen", "use"),
    [
        (view(A, BoardState.IDLE), Use.IDLE),
        (view(A, BoardState.LEASED), Use.IDLE),
        (view(A, BoardState.BUSY), Use.BUSY),
        (view(A, BoardState.OFFLINE), Use.DOWN),
        (view(A, BoardState.UNHEALTHY), Use.DOWN),
        (view(A, BoardState.QUARANTINED), Use.DOWN),
        (view(A, BoardState.DRAINED), Use.DOWN),
        (view(A, BoardState.DRAINED, holder="b-1"), Use.BUSY),  # until its benchmark ends
    ],
)
def test_each_state_is_a_use(seen: BoardView, use: Use) -> None:
    lab = Lab()
    lab.look(seen)
    lab.clock.forward(5)
    lab.look(seen)
    assert lab.times.of_families()["rpi4b"] == {each: 5.0 * (each is use) for each in Use}


def test_time_counts_for_what_a_board_did_when_it_began() -> None:
    lab = Lab()
    for state in (BoardState.IDLE, BoardState.BUSY, BoardState.OFFLINE, BoardState.IDLE):
        lab.look(view(A, state))
        lab.clock.forward(10)
    assert lab.seconds(A) == [10.0, 10.0, 10.0]


def test_a_clock_that_is_set_changes_nothing() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.clock.step(86400.0)
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    lab.clock.step(-2 * 86400.0)
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [10.0, 0.0, 0.0]


def test_time_in_which_nobody_looked_is_not_counted() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.clock.forward(MAX_GAP_S + 1)
    lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [0.0, 0.0, 0.0]
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [5.0, 0.0, 0.0]


@pytest.mark.parametrize("age_s", [61.0, float("inf")])
def test_time_in_which_the_cluster_was_silent_is_not_counted_and_nothing_is_lost(
    age_s: float,
) -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    for lab.age_s in (age_s, age_s, 1.0):
        lab.clock.forward(5)
        lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [5.0, 0.0, 0.0]
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [10.0, 0.0, 0.0]


def test_a_board_that_is_removed_takes_nothing_from_its_family() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY), view(B, BoardState.IDLE))
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY), view(B, BoardState.IDLE))
    lab.look(view(A, BoardState.BUSY))
    assert lab.times.of_board(B) is None
    assert lab.times.of_families()["rpi4b"] == {Use.BUSY: 5.0, Use.IDLE: 5.0, Use.DOWN: 0.0}


def test_boards_that_are_never_used_are_not_counted() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.UNKNOWN, expected=False))
    lab.clock.forward(5)
    lab.look(view(A, BoardState.UNKNOWN, expected=False))
    assert lab.times.of_families() == {}


def test_a_database_that_is_away_for_a_moment_costs_nothing() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.clock.forward(5)
    available = lab.boards

    def unavailable() -> tuple[BoardView, ...]:
        raise Unavailable("no database")

    lab.times._boards = unavailable
    with pytest.raises(Unavailable):
        lab.times.sample()
    lab.times._boards = available
    lab.clock.forward(5)
    lab.look(view(A, BoardState.BUSY))
    assert lab.seconds(A) == [10.0, 0.0, 0.0]


def test_what_boards_did_is_stored_by_month_once() -> None:
    lab = Lab(clock=FixedClock(datetime(2026, 11, 30, 23, 58, tzinfo=UTC)))
    lab.look(view(A, BoardState.BUSY))
    lab.pass_by(115, BoardState.BUSY)
    lab.pass_by(2 * STORE_AFTER_S + 5, BoardState.IDLE)  # from midnight on
    assert lab.seconds(A) == [120.0, 120.0, 0.0]
    assert lab.kept_seconds() == {"2026-11": [115.0, 0.0, 0.0], "2026-12": [5.0, 120.0, 0.0]}


def test_what_a_database_could_not_take_is_stored_later() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.database_is_away = True
    lab.pass_by(STORE_AFTER_S - 5, BoardState.BUSY)
    with pytest.raises(Unavailable):
        lab.pass_by(5, BoardState.BUSY)
    lab.database_is_away = False
    lab.pass_by(STORE_AFTER_S, BoardState.BUSY)
    assert lab.kept_seconds() == {"2026-11": [2 * STORE_AFTER_S, 0.0, 0.0]}


def test_of_several_servers_the_leader_stores_what_boards_did() -> None:
    lab = Lab(leads=False)
    lab.look(view(A, BoardState.BUSY))
    lab.pass_by(STORE_AFTER_S, BoardState.BUSY)
    assert not lab.kept
    assert lab.seconds(A) == [STORE_AFTER_S, 0.0, 0.0]
    lab.leads = True
    lab.pass_by(STORE_AFTER_S, BoardState.BUSY)
    assert lab.kept_seconds() == {"2026-11": [STORE_AFTER_S, 0.0, 0.0]}


def test_a_clock_that_is_set_stores_no_time_twice() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.BUSY))
    lab.clock.step(40 * 86400.0)
    lab.pass_by(30, BoardState.BUSY)
    lab.clock.step(-40 * 86400.0)
    lab.pass_by(30, BoardState.BUSY)
    assert lab.kept_seconds() == {"2027-01": [30.0, 0.0, 0.0], "2026-11": [30.0, 0.0, 0.0]}


def test_each_change_of_a_state_is_stored_once() -> None:
    lab = Lab()
    lab.look(view(A, BoardState.IDLE), view(B, BoardState.IDLE))
    for state in (BoardState.BUSY, BoardState.BUSY, BoardState.OFFLINE):
        lab.clock.forward(5)
        holder = "one" if state is BoardState.BUSY else None
        lab.look(view(A, state, holder=holder, reason="why"), view(B, BoardState.IDLE))
    assert [(each.target_uid, each.state, each.benchmark_id) for each in lab.states] == [
        *((A, "idle", None), (B, "idle", None), (A, "busy", "one"), (A, "offline", None)),
    ]
    assert [(each.at - NOON).total_seconds() for each in lab.states[2:]] == [5, 15]
    assert lab.states[-1].reason == "why"


def test_states_of_boards_are_stored_by_the_leader_and_once_the_database_is_back() -> None:
    lab = Lab(leads=False)
    lab.look(view(A, BoardState.IDLE))
    assert not lab.states
    lab.leads, lab.database_is_away = True, True
    with pytest.raises(Unavailable):
        lab.look(view(A, BoardState.OFFLINE))
    lab.database_is_away = False
    lab.look(view(A, BoardState.OFFLINE))
    assert [each.state for each in lab.states] == ["offline"]


def test_nothing_is_stored_while_the_cluster_does_not_answer() -> None:
    lab = Lab(age_s=600.0)
    lab.look(view(A, BoardState.OFFLINE))
    assert not lab.states
