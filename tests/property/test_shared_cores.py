"""Whichever board the cluster gives to a job that is not bound to one, no two share cores."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.testing import board, pending, snapshot_of
from edgeyard.scheduler.model.benchmark import Binding
from edgeyard.scheduler.model.decision import BoardHolder, Placement
from tests.builders.decision import cycle

UIDS = tuple(f"rpi4b-0001-{number:04d}" for number in range(1, 8))
pairs = st.sets(st.sampled_from(list(combinations(UIDS, 2))), max_size=6)
bindings = st.lists(st.sampled_from(list(Binding)), min_size=1, max_size=7)


@settings(max_examples=200, deadline=None)
@given(shared=pairs, asked=bindings, busy=st.sets(st.sampled_from(UIDS), max_size=3))
def test_no_two_jobs_can_get_boards_that_share_cores(
    shared: set[tuple[str, str]], asked: list[Binding], busy: set[str]
) -> None:
    def partners(uid: str) -> frozenset[str]:
        return frozenset({other for pair in shared if uid in pair for other in pair} - {uid})

    # What runs now never shares cores; its neighbours are as good as busy, as the twin has it.
    running: list[str] = []
    for uid in sorted(busy):
        if not partners(uid) & set(running):
            running.append(uid)
    blocked = {other for uid in running for other in partners(uid)}
    boards = [
        board(uid, busy=uid in blocked or uid in running, shares_with=partners(uid)) for uid in UIDS
    ]
    holders = [
        BoardHolder(
            benchmark_id=f"r-{uid}", target_uid=uid, priority=50, progress=10.0, preemptible=False
        )
        for uid in running
    ]
    jobs = [pending(f"b{number}", binding=binding) for number, binding in enumerate(asked)]
    result = cycle(snapshot_of(boards), jobs, holders=holders)

    def could_get(placement: Placement) -> set[str]:
        if placement.binding is Binding.STRICT:
            return {placement.target_uid}
        return set(placement.allowed_uids or UIDS)

    live = [could_get(each) for each in result.placements] + [{uid} for uid in running]
    for one, other in combinations(live, 2):
        for uid in one:
            assert not partners(uid) & other
    # Boards are given out as before: whoever is alone on its cores may still go anywhere.
    for placement in result.placements:
        assert placement.target_uid in could_get(placement)
