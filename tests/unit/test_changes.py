"""What would let a benchmark start sooner, and by how much."""

from datetime import timedelta

from edgeyard.plugins.testing import GIB, NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.changes import ChangeKind, Changes, what_would_change
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark
from tests.builders.decision import plugins, policy


def asked(
    *queue: PendingBenchmark,
    boards: tuple[str, ...] = ("rpi4b-0001-0001",),
    busy: tuple[str, ...] = (),
    ram_bytes: int = 4 * GIB,
) -> Changes:
    found = snapshot_of([board(uid, ram_bytes=ram_bytes, busy=uid in busy) for uid in boards])
    holders = [
        BoardHolder(
            benchmark_id=f"runs-on-{uid}", target_uid=uid, priority=99, started_at=NOW, progress=1.0
        )
        for uid in busy
    ]
    given = CycleInput(snapshot=found, pending=queue, now=NOW, holders=holders)
    return what_would_change(given, policy(), plugins(), queue[0].benchmark_id)


def kinds(changes: Changes) -> dict[ChangeKind, str | int | None]:
    return {each.kind: each.value for each in changes.changes}


def test_another_family_with_a_free_board_is_offered_with_its_gain() -> None:
    found = asked(
        pending(user_time_s=100.0),
        boards=("rpi4b-0001-0001", "x86-0001-0001", "rpi5-0001-0001"),
        busy=("rpi4b-0001-0001", "rpi5-0001-0001"),
    )
    assert found.start is not None
    assert found.start > NOW
    [change] = [each for each in found.changes if each.kind is ChangeKind.FAMILY]
    assert change.value == "x86"
    assert change.start == NOW
    assert change.gain_s == (found.start - NOW).total_seconds()


def test_the_least_priority_that_overtakes_is_offered() -> None:
    before = pending("b-2", user_priority=7, submit_time=NOW)
    found = asked(pending("b-9", user_priority=5, submit_time=NOW), before)
    assert kinds(found)[ChangeKind.PRIORITY] == 8


def test_less_memory_is_offered_where_only_memory_keeps_it_off() -> None:
    found = asked(pending(ram_bytes=8 * GIB))
    assert found.start is None
    assert kinds(found)[ChangeKind.RAM] == 4 * GIB
    assert all(each.gain_s is None for each in found.changes)


def test_any_board_is_offered_to_one_that_insists_on_a_busy_one() -> None:
    found = asked(
        pending(target_uid="rpi4b-0001-0001"),
        boards=("rpi4b-0001-0001", "rpi4b-0001-0002"),
        busy=("rpi4b-0001-0001",),
    )
    assert kinds(found)[ChangeKind.BOARD] is None
    assert ChangeKind.BOARD in kinds(found)


def test_a_deadline_out_of_reach_comes_with_the_nearest_that_is_not() -> None:
    soon = NOW + timedelta(seconds=5)
    found = asked(
        pending(user_time_s=300.0, deadline=soon),
        busy=("rpi4b-0001-0001",),
    )
    assert found.deadline == soon
    assert found.reachable_deadline is not None
    assert found.reachable_deadline > soon
    again = asked(
        pending(user_time_s=300.0, deadline=found.reachable_deadline),
        busy=("rpi4b-0001-0001",),
    )
    assert again.reachable_deadline is None


def test_nothing_is_offered_where_nothing_helps() -> None:
    found = asked(pending(), busy=("rpi4b-0001-0001",))
    assert found.changes == ()
    assert found.start is not None
