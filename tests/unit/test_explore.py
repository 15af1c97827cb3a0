"""A share of the decisions takes a board at random, with a known probability."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from edgeyard.plugins.testing import board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.propensity import propensity
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.model.decision import CycleInput, PendingBenchmark
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from tests.builders.decision import cycle, lab, places, runs_on

UIDS = [f"rpi4b-0001-000{number}" for number in range(1, 5)]
SNAPSHOT = snapshot_of([board(uid) for uid in UIDS])
KNOWN = Knowledge(
    runs=History(
        past_run(uid, run_s=10.0 * (place + 1), ago_s=5000.0 - 10.0 * number - place)
        for number in range(20)
        for place, uid in enumerate(UIDS)
    )
)


def decided(seed: int, *jobs: PendingBenchmark, share: float, **more: object) -> CycleResult:
    given = {"knowledge": KNOWN, **more}
    return cycle(SNAPSHOT, list(jobs or [pending()]), seed=seed, explore_share=share, **given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_boards_are_taken_as_often_as_the_propensity_states() -> None:
    count, share = 500, 0.4
    results = [decided(seed, share=share) for seed in range(count)]
    taken = Counter(places(each)["b-1"] for each in results)
    stated = {places(each)["b-1"]: propensity(each.decided, 0) for each in results}
    assert stated == {
        UIDS[0]: pytest.approx(0.6 + 0.1),
        **{uid: pytest.approx(0.1) for uid in UIDS[1:]},
    }
    for uid, probability in stated.items():
        assert probability is not None
        spread = np.sqrt(probability * (1.0 - probability) * count)
        assert abs(taken[uid] - probability * count) < 4.0 * spread


def test_nothing_is_explored_without_a_share_or_without_a_past() -> None:
    for seed in range(100):
        assert places(decided(seed, share=0.0)) == {"b-1": UIDS[0]}
        unknown = decided(seed, share=0.5, knowledge=Knowledge())
        assert not unknown.decided.assignment.explored
        assert propensity(unknown.decided, 0) == 1.0


@pytest.mark.slow
def test_one_that_names_its_board_or_was_tried_before_is_not_drawn() -> None:
    for seed in range(100):
        named = decided(seed, pending(target_uid=UIDS[2]), share=0.5)
        assert places(named) == {"b-1": UIDS[2]}
        assert propensity(named.decided, 0) == 1.0
        again = decided(seed, pending(tried_uids=frozenset({UIDS[0]})), share=0.5)
        assert places(again) == {"b-1": UIDS[1]}


def test_one_that_a_plan_holds_back_is_drawn_only_when_it_would_start() -> None:
    """Drawn in each cycle of its wait, it would hardly ever wait as long as planned."""
    slow, fast = UIDS[1], UIDS[0]
    held = partial(
        cycle,
        lab(slow, UIDS[2], busy=(fast,)),
        [pending()],
        planner=Planner.EXPECTED_COST,
        explore_share=0.5,
    )
    runs = [
        past_run(uid, run_s=100.0 if uid == fast else 400.0, ago_s=5000.0 - number)
        for number in range(40)
        for uid in UIDS[:3]
    ]
    known = Knowledge(runs=History(runs))
    for seed in range(50):
        waits = held(seed=seed, knowledge=known, holders=[runs_on(fast, 90.0, pending())])
        assert not places(waits)
        assert not waits.decided.assignment.explored
    starts = [held(seed=seed, knowledge=KNOWN) for seed in range(50)]
    assert {places(each)["b-1"] for each in starts} == {slow, UIDS[2]}


def test_boards_that_went_to_earlier_ones_do_not_count() -> None:
    jobs = [pending("a", user_priority=9), pending("b", target_uid=UIDS[1]), pending("c")]
    for seed in range(50):
        found = decided(seed, *jobs, share=0.3, planner=None)  # a plan would hold "c" back
        row = found.decided.row_of_id
        if not found.decided.assignment.explored:
            assert propensity(found.decided, row["a"]) == pytest.approx(0.7 + 0.3 / 4)
            before = 2 if places(found).get("b") else 1
            assert propensity(found.decided, row["c"]) == pytest.approx(0.7 + 0.3 / (4 - before))


def test_the_order_of_boards_does_not_matter_and_a_record_repeats_it() -> None:
    backwards = snapshot_of([board(uid) for uid in reversed(UIDS)])
    for seed in range(50):
        found = decided(seed, share=0.5)
        other = cycle(backwards, [pending()], seed=seed, explore_share=0.5, knowledge=KNOWN)
        assert places(found) == places(other)


def test_an_explanation_says_that_the_board_was_chosen_at_random() -> None:
    results = (decided(seed, share=0.5) for seed in range(100))
    found = next(each for each in results if each.decided.assignment.explored)
    assert found.explanation("b-1").choice.startswith(
        "chosen at random among 4 boards, to learn about them (explore_share: 50% of the decisions)"
    )
    kept = Recorder().record(_given(found), found)
    again = result_of(kept, found.decided.plugins)
    assert again.decided.assignment.explored == found.decided.assignment.explored
    assert propensity(again.decided, 0) == propensity(found.decided, 0)


def _given(result: CycleResult) -> CycleInput:
    decided_ = result.decided
    return CycleInput(
        snapshot=decided_.snapshot,
        pending=decided_.pending,
        now=decided_.now,
        holders=(),
        knowledge=replace(decided_.batch.knowledge),
        seed=decided_.batch.seed,
    )
