"""One currency: what a run on a board is expected to cost, in seconds."""

from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from edgeyard.plugins.aggregators.expected_cost import ExpectedCost
from edgeyard.plugins.testing import (
    all_pairs,
    batch_of,
    board,
    past_run,
    pending,
    proposal,
    snapshot_of,
)
from edgeyard.scheduler.framework.protocols import Combination, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.estimates import RETRY_S
from tests.builders.decision import cycle, places

UIDS = [f"rpi4b-0001-000{number}" for number in range(1, 4)]
BATCH = batch_of([board(uid) for uid in UIDS], [pending()])
PAIRS = all_pairs(BATCH)


def combined(**answers: tuple[ScoreUnit, list[float]]) -> Combination:
    return weighed({}, **answers)


def weighed(weights: dict[str, float], **answers: tuple[ScoreUnit, list[float]]) -> Combination:
    proposals = [
        proposal(name, np.array(scores, np.float32), weight=weights.get(name, 1.0), unit=unit)
        for name, (unit, scores) in answers.items()
    ]
    return ExpectedCost().combine(BATCH, PAIRS, proposals)


def test_a_small_difference_stays_small_and_does_not_outvote_a_large_one() -> None:
    found = combined(
        run=(ScoreUnit.SECONDS, [10.0, 10.02, 10.01]),
        risk=(ScoreUnit.FAILURE, [0.9, 0.05, 0.05]),
    )
    assert found.scores[0] < 0.5
    assert found.scores[1] == found.scores[2] > 0.9


def test_the_cost_is_the_run_and_its_failures_in_seconds() -> None:
    found = combined(
        run=(ScoreUnit.SECONDS, [10.0, 20.0, 30.0]), risk=(ScoreUnit.FAILURE, [0.5, 0.0, 0.1])
    )
    assert found.costs is not None
    another_s = 20.0 + RETRY_S
    assert found.costs.total_s.tolist() == pytest.approx(
        [10.0 + 0.5 * another_s, 20.0, 30.0 + 0.1 * another_s]
    )
    assert found.costs.parts_s["run"].tolist() == [10.0, 20.0, 30.0]


def test_preferences_decide_between_near_ties_alone() -> None:
    tied = combined(
        run=(ScoreUnit.SECONDS, [10.0, 10.05, 11.0]), calm=(ScoreUnit.PREFERENCE, [0.0, 1.0, 1.0])
    )
    assert tied.scores.argsort().tolist()[::-1] == [1, 0, 2]


def test_differences_within_the_error_are_ties() -> None:
    seconds = np.array([10.0, 12.0, 30.0], np.float32)
    calm = proposal("calm", np.array([0.0, 1.0, 1.0], np.float32))

    def best(error_s: float) -> int:
        errors = np.full(3, error_s, np.float32)
        run = proposal("run", seconds, unit=ScoreUnit.SECONDS, errors=errors)
        return int(ExpectedCost().combine(BATCH, PAIRS, [run, calm]).scores.argmax())

    assert best(0.1) == 0
    assert best(3.0) == 1


def test_credits_and_joules_count_by_what_one_is_worth_in_seconds() -> None:
    answers = {
        "run": (ScoreUnit.SECONDS, [10.0, 11.0, 30.0]),
        "price": (ScoreUnit.CREDITS, [5.0, 1.0, 1.0]),
    }
    assert weighed({"price": 0.01}, **answers).scores.argmax() == 0
    assert weighed({"price": 2.0}, **answers).scores.argmax() == 1


def test_a_board_of_which_nothing_is_known_is_taken_for_an_average_one() -> None:
    found = combined(run=(ScoreUnit.SECONDS, [10.0, np.nan, 30.0]))
    assert found.costs is not None
    assert found.costs.total_s.tolist() == [10.0, 20.0, 30.0]
    assert found.costs.error_s.tolist() == [0.0, 20.0, 0.0]
    assert np.isnan(found.costs.parts_s["run"][1])
    assert found.scores.argmin() == 2  # it may be good: it comes before the one that is not


def test_classes_without_any_cost_are_scored_by_preferences() -> None:
    nothing = [np.nan] * 3
    found = combined(
        run=(ScoreUnit.SECONDS, nothing), calm=(ScoreUnit.PREFERENCE, [0.2, 0.9, np.nan])
    )
    assert found.scores[:2].tolist() == pytest.approx([0.2, 0.9])
    assert np.isnan(found.scores[2])


# --- in decisions --------------------------------------------------------------------------------


def chosen(runs: Iterable[PastRun], of: str = "default") -> list[str]:
    """Return the board of each of 40 decisions, which differ in their seeds."""
    boards = snapshot_of([board(uid) for uid in UIDS[:2]])
    known = Knowledge(runs=History(sorted(runs, key=lambda run: run.ended_at)))
    decide = partial(cycle, boards, [pending()], of=of, knowledge=known, explore_share=0.0)
    return [places(decide(seed=seed))["b-1"] for seed in range(40)]


# The third shipped policy, native, has no scorers: Nomad chooses the board.
@pytest.mark.parametrize("of", ["default", "learned"])
def test_a_board_that_failed_twice_is_not_preferred_to_one_with_nine_good_runs(of: str) -> None:
    bad, good = UIDS[:2]
    runs = [past_run(bad, ago_s=60.0 * k, failure="board_fault") for k in (1, 2)]
    runs += [past_run(good, ago_s=100.0 * k, run_s=10.0 + 0.01 * k) for k in range(1, 10)]
    assert set(chosen(runs, of)) == {good}


def test_the_default_policy_takes_the_faster_board() -> None:
    slow, fast = UIDS[:2]
    runs = [
        past_run(uid, ago_s=100.0 * k, run_s=run_s)
        for k in range(1, 6)
        for uid, run_s in ((slow, 30.0), (fast, 10.0))
    ]
    assert set(chosen(runs)) == {fast}


class Constant:
    """States the same number for each pair, where it should state seconds."""

    name = "constant"
    objective = "run time"
    kind = ScorerKind.MODEL
    unit = ScoreUnit.SECONDS

    def __init__(self, answer: float) -> None:
        self._answer = answer

    def score(self, batch: object, pairs: object) -> np.ndarray:
        return np.full(len(PAIRS), self._answer, np.float32)


@pytest.mark.parametrize(
    ("answer", "ratio"),
    [
        (10.0 / 86400.0, "1.16e-05"),  # days
        (10.0 / 3600.0, "0.000278"),  # hours
        (9_000.0, "900"),  # milliseconds, of runs that took a little longer than it predicts
        (0.0, "0"),
    ],
)
def test_a_scorer_of_another_unit_than_seconds_is_dropped_and_named(
    answer: float, ratio: str
) -> None:
    runs = History([past_run(uid, run_s=10.0) for uid in UIDS])
    result = cycle(
        snapshot_of([board(uid) for uid in UIDS]),
        [pending()],
        knowledge=Knowledge(runs=runs),
        more_plugins={"scorers": (WeightedScorer(scorer=Constant(answer)),)},
    )
    assert result.fallback
    assert len(result.placements) == 1
    (fault,) = result.faults
    assert str(fault) == (
        f"constant answered: {ratio} times the seconds that such runs took; "
        "are they in another unit?"
    )


@pytest.mark.parametrize("answer", [0.5, 200.0])
def test_a_scorer_of_seconds_may_differ_from_the_past(answer: float) -> None:
    runs = History([past_run(uid, run_s=10.0) for uid in UIDS])
    result = cycle(
        snapshot_of([board(uid) for uid in UIDS]),
        [pending()],
        knowledge=Knowledge(runs=runs),
        more_plugins={"scorers": (WeightedScorer(scorer=Constant(answer)),)},
    )
    assert (result.fallback, result.faults) == (False, ())
