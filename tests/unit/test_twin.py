"""The twin: what hosts report against what is expected, and what becomes of the unknown."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from edgeyard.devices.inventory import with_shared_cores
from edgeyard.devices.model import Board, BoardEngine, Host, LocalSlice
from edgeyard.plugins.testing import board, pending
from edgeyard.scheduler.clusters.local.boards import BoardPool
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding, WaitingReason
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import LoadReport
from edgeyard.scheduler.twin.comparison import compare
from edgeyard.scheduler.twin.twin import BoardState, Twin, UnknownDevices
from tests.builders.decision import cycle, places

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
A, B, C, D = (f"rpi4b-0001-000{number}" for number in range(1, 5))


def host(name: str, *boards: Board, ready: bool = True) -> Host:
    return Host(name, name, ready, boards, "" if ready else "down")


def test_the_check_reports_missing_unknown_and_differing_boards() -> None:
    expected = [board(A), board(B), board(C, ram_bytes=8 * 2**30)]
    other = board(C, engines={"ort": ["TYPE1"], "tflite": ["TYPE1"]})
    found = compare(expected, [host("h1", board(D), other), host("h2", board(A), ready=False)])
    assert [(each.target_uid, each.reason) for each in found.missing] == [
        (A, "its host h2 is down"),
        (B, "no host reports it"),
    ]
    assert [(each.target_uid, each.host) for each in found.unknown] == [(D, "h1")]
    (differing,) = found.differing
    assert {each.what: (each.expected, each.found) for each in differing.differences} == {
        "ram": ("8 GiB", "4 GiB"),
        "types of ort": ("TYPE1, TYPE2", "TYPE1"),
        "engine tflite": ("absent", "offered"),
    }
    assert "ram is 4 GiB, not 8 GiB" in differing.reason


def test_boards_that_are_as_expected_need_no_word() -> None:
    found = compare([board(A)], [host("h", board(A, busy=True, healthy=False))])
    assert (found.missing, found.unknown, found.differing) == ((), (), ())


def test_cores_that_the_inventory_says_are_shared_stay_so_where_hosts_do_not_tell() -> None:
    twin = Twin([board(A, shares_with=frozenset({B})), board(B)])
    twin.refresh([host("h1", board(A)), host("h2", board(B))], NOW)
    snapshot = twin.snapshot(NOW, drained={}, holders={B: "benchmark-1"})
    assert dict(zip(snapshot.uids, snapshot.busy, strict=True)) == {A: True, B: True}
    assert snapshot.reasons[0] == f"its cores are in use by {B}"


def test_a_board_whose_cores_are_in_use_closes_no_other_one() -> None:
    """A and B have a core each, and C has both: while A runs, C is closed, and B is not."""
    slices = {A: (0,), B: (1,), C: (0, 1)}
    boards = with_shared_cores(
        [board(uid, local=LocalSlice(cpus, len(cpus))) for uid, cpus in slices.items()]
    )
    twin = Twin(boards)
    reported = BoardPool(boards).views({A: "job"}, {A: 10.0})
    twin.refresh([host("h", *reported)], NOW)
    snapshot = twin.snapshot(NOW, drained={}, holders={A: "benchmark-1"})
    assert dict(zip(snapshot.uids, snapshot.busy, strict=True)) == {A: True, B: False, C: True}
    views = {each.board.target_uid: each for each in twin.views(drained={}, holders={})}
    assert views[C].reason == f"its cores are in use by {A}"
    assert (views[C].state, views[B].state is BoardState.BUSY) == (BoardState.BUSY, False)


@pytest.mark.parametrize("states_it", [A, B])
def test_a_board_is_busy_for_people_where_it_is_for_decisions(states_it: str) -> None:
    """Its cores are used by a run on a drained board, or only the other one's entry states them."""
    other = {A: B, B: A}[states_it]
    shared = board(states_it, shares_with=frozenset({other}))
    twin = Twin([shared, board(other)])
    twin.refresh([host("h", shared, board(other))], NOW)
    for drained in ({}, {A: "new fan"}):
        snapshot = twin.snapshot(NOW, drained=drained, holders={A: "benchmark-1"})
        views = {
            each.board.target_uid: each
            for each in twin.views(drained=drained, holders={A: "benchmark-1"})
        }
        row = snapshot.uids.index(B)
        assert snapshot.busy[row]
        assert views[B].state is BoardState.BUSY
        assert views[B].reason == snapshot.reasons[row] == f"its cores are in use by {A}"


def test_a_leased_board_is_shown_as_leased_unless_it_runs_something_or_can_t() -> None:
    twin = Twin([board(A), board(B)])
    twin.refresh([host("h", board(A), board(B, healthy=False))], NOW)
    leased = {A: "leased for maintenance until noon", B: "leased to a user until noon"}

    def states(**others: dict[str, str]) -> list[tuple[str, str]]:
        given = {"drained": {}, "holders": {}, "leased": leased, **others}
        return [(each.state.value, each.reason) for each in twin.views(**given)]

    assert states()[0] == ("leased", "leased for maintenance until noon")
    assert states()[1][0] == "unhealthy"
    assert states(holders={A: "benchmark-1"})[0] == ("busy", "runs a benchmark")
    assert states(drained={A: ""})[0][0] == "drained"
    assert states(quarantined={A: "its runs fail"})[0][0] == "quarantined"


def test_boards_beside_the_inventory_are_the_same_tuple_until_one_of_them_changes() -> None:
    twin = Twin([board(A)])
    assert twin.unknown_boards() == ()
    twin.refresh([host("h", board(A), board(B))], NOW)
    first = twin.unknown_boards()
    assert [each.target_uid for each in first] == [B]
    twin.refresh([host("h", board(A), board(B))], NOW)
    assert twin.unknown_boards() is first
    twin.refresh([host("h", board(A, busy=True), board(B))], NOW)
    assert twin.unknown_boards() is first
    twin.refresh([host("h", board(A), board(B, ram_bytes=2**30))], NOW)
    assert [each.ram_bytes for each in twin.unknown_boards()] == [2**30]


def test_loads_are_reported_in_steps_for_a_minute_and_are_the_same_while_they_say_the_same() -> (
    None
):
    def report(cpu: float, at: datetime) -> LoadReport:
        return LoadReport(load=HostLoad(cpu=cpu, memory=0.5), at=at)

    twin, later = Twin([board(A)]), NOW + timedelta(seconds=40)
    assert not twin.loads(NOW)
    twin.refresh([], NOW, {"h1": report(0.42, NOW), "h2": report(0.99, NOW)})
    first = twin.loads(NOW)
    assert first == {"h1": HostLoad(cpu=0.4, memory=0.5), "h2": HostLoad(cpu=1.0, memory=0.5)}
    twin.refresh([], later, {"h1": report(0.38, later), "h2": report(0.98, NOW)})
    assert twin.loads(later) is first
    assert twin.loads(NOW + timedelta(seconds=61)).keys() == {"h1"}


def test_a_version_that_nobody_states_is_no_difference() -> None:
    def with_version(version: str) -> Board:
        return Board(A, "rpi4b", 1, 1, (BoardEngine("ort", version, frozenset()),))

    def differs(expected: str, found: str) -> bool:
        return bool(compare([with_version(expected)], [host("h", with_version(found))]).differing)

    assert not differs("", "1.2")
    assert not differs("1.2", "")
    assert differs("1.2", "1.3")


@pytest.mark.parametrize("declares", [True, False])
def test_a_board_runs_the_further_types_that_its_host_declares(declares: bool) -> None:
    """What the inventory declares does not count: a host may have another version."""
    stated = board(A, engines={"memory": ["TYPE4"]})
    listing = replace(stated, engines=(BoardEngine("memory", "", frozenset({"TYPE4"})),))
    twin = Twin([stated])
    twin.refresh([host("h", stated if declares else listing)], NOW)
    snapshot = twin.snapshot(NOW, drained={}, holders={})
    assert snapshot.supports["memory", "TYPE4"].tolist() == [True]
    assert snapshot.offers["memory", "TYPE4"].tolist() == [declares]
    result = cycle(snapshot, [pending(engine="memory", benchmark_type=BenchmarkType("TYPE4"))])
    assert bool(result.placements) is declares


def test_a_host_that_lists_many_unknown_types_costs_no_more_than_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    undeclared: Any = vars(BoardEngine)["undeclared_types"]

    def counted(engine: BoardEngine) -> Any:
        asked.append(engine.name)
        return undeclared.fget(engine)

    monkeypatch.setattr(BoardEngine, "undeclared_types", property(counted))
    names = frozenset(f"type-{number}" for number in range(50))
    listing = replace(board(A), engines=(BoardEngine("memory", "", names),))
    twin = Twin([listing])
    twin.refresh([host("h", listing)], NOW)
    assert len(twin.snapshot(NOW, drained={}, holders={}).undeclared) == 50
    assert len(asked) < 10


def seen(unknown: UnknownDevices, *, may_grow: bool = False) -> Twin:
    """A is expected, B is not; both are there."""
    twin = Twin([board(A, engines={"ort": ["TYPE1"]})], unknown, may_grow=may_grow)
    twin.refresh([host("h", board(A, engines={"ort": ["TYPE1"]}), board(B))], NOW)
    return twin


def decided(twin: Twin, binding: Binding, holders: dict[str, str] | None = None) -> CycleResult:
    snapshot = twin.snapshot(NOW, drained={}, holders=holders or {})
    return cycle(snapshot, [pending("b", binding=binding)])


def test_by_default_an_unknown_board_is_shown_and_never_used() -> None:
    twin = seen(UnknownDevices.DENY)
    state = {view.board.target_uid: view.state for view in twin.views(drained={}, holders={})}
    assert state == {A: BoardState.IDLE, B: BoardState.UNKNOWN}
    assert places(decided(twin, Binding.STRICT)) == {"b": A}
    waiting = decided(twin, Binding.STRICT, {A: "other"}).waiting["b"]
    assert waiting.reason is WaitingReason.BOARD_BUSY


@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED])
def test_a_job_whose_board_the_cluster_chooses_is_kept_to_known_ones(binding: Binding) -> None:
    (placement,) = decided(seen(UnknownDevices.DENY), binding).placements
    assert placement.allowed_uids == (A,)


def test_a_filtered_job_is_kept_to_known_boards_where_an_unknown_one_may_appear_later() -> None:
    def allowed(
        unknown: UnknownDevices, may_grow: bool, binding: Binding = Binding.FILTERED
    ) -> tuple[str, ...]:
        twin = Twin([board(A)], unknown, may_grow=may_grow)
        twin.refresh([host("h", board(A))], NOW)
        (placement,) = decided(twin, binding).placements
        return placement.allowed_uids

    assert allowed(UnknownDevices.DENY, True, Binding.LOOSE) == ()

    assert allowed(UnknownDevices.DENY, True) == (A,)
    assert allowed(UnknownDevices.DENY, False) == ()
    assert allowed(UnknownDevices.WARN, True) == ()
    assert allowed(UnknownDevices.ALLOW, True) == ()


@pytest.mark.parametrize("unknown", [UnknownDevices.WARN, UnknownDevices.ALLOW])
def test_unknown_boards_that_are_let_in_are_used(unknown: UnknownDevices) -> None:
    twin = seen(unknown)
    view = next(view for view in twin.views(drained={}, holders={}) if view.board.target_uid == B)
    assert view.state is BoardState.IDLE
    assert not view.expected
    assert ("not in the inventory" in view.reason) == (unknown is UnknownDevices.WARN)
    assert places(decided(twin, Binding.STRICT, {A: "other"})) == {"b": B}
    (placement,) = decided(twin, Binding.LOOSE).placements
    assert placement.allowed_uids == ()


def test_an_unknown_board_is_pointed_out_once(caplog: pytest.LogCaptureFixture) -> None:
    def reported(unknown: UnknownDevices) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            twin = seen(unknown)
            twin.refresh([host("h", board(A), board(B))], NOW)
        return len([each for each in caplog.records if "inventory" in each.message])

    assert (reported(UnknownDevices.DENY), reported(UnknownDevices.WARN)) == (1, 1)
    assert reported(UnknownDevices.ALLOW) == 0


def test_nothing_is_compared_before_the_cluster_has_answered() -> None:
    twin = Twin([board(A)])
    assert twin.comparison() is None
    twin.refresh([], NOW)
    found = twin.comparison()
    assert found is not None
    assert [each.target_uid for each in found.missing] == [A]


def test_a_board_that_was_freed_is_idle_whatever_progress_it_still_shows() -> None:
    twin = Twin([board(A), board(B)])
    twin.refresh([host("h1", board(A, progress=97.0), board(B, progress=97.0, busy=True))], NOW)
    freed, taken = twin.views(drained={}, holders={})
    assert (freed.state, freed.board.progress) == (BoardState.IDLE, 0.0)
    assert (taken.state, taken.board.progress) == (BoardState.BUSY, 97.0)


class TestUseByOthers:
    """A board reports a task, and no job is seen that holds it: another namespace's, say."""

    def test_a_board_that_works_for_somebody_else_is_busy_and_says_so(self) -> None:
        twin = Twin([board(A), board(B)])
        twin.refresh([host("h", board(A, reports_task=True, progress=40.0), board(B))], NOW)
        view = twin.views(drained={}, holders={})[0]
        assert (view.state, view.reason) == (BoardState.BUSY, "used by a job outside Edgeyard")
        assert view.board.progress == 40.0
        assert twin.snapshot(NOW, drained={}, holders={}).busy.tolist() == [True, False]
        twin.refresh([host("h", board(A), board(B))], NOW)
        assert twin.views(drained={}, holders={})[0].state is BoardState.IDLE
        assert not twin.snapshot(NOW, drained={}, holders={}).busy.any()

    def test_the_late_news_of_a_task_of_ours_is_nobody_else_s(self) -> None:
        twin = Twin([board(A)])
        working = host("h", board(A, reports_task=True))
        twin.note_held({A: NOW})
        for age_s, state in ((5, BoardState.IDLE), (31, BoardState.BUSY)):
            at = NOW + timedelta(seconds=age_s)
            twin.refresh([working], at)
            assert twin.views(drained={}, holders={})[0].state is state
            assert twin.snapshot(at, drained={}, holders={}).busy[0] == (state is BoardState.BUSY)
        # While a benchmark of ours is there, it is ours.
        (view,) = twin.views(drained={}, holders={A: "benchmark-1"})
        assert view.reason == "runs a benchmark"

    def test_who_waits_for_it_learns_whose_it_is(self) -> None:
        twin = Twin([board(A)])
        twin.refresh([host("h", board(A, reports_task=True))], NOW)
        result = cycle(twin.snapshot(NOW, drained={}, holders={}), [pending("b")])
        waiting = result.waiting["b"]
        assert waiting.reason is WaitingReason.BOARD_BUSY
        assert "used by a job outside Edgeyard" in waiting.sentence
