"""Scorers over many cycles: rewarded, weighed, suspended, and held against how runs ended."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.engine.metrics import observe_scorers
from edgeyard.scheduler.engine.rewards import (
    SETTLE_S,
    SUSPEND_AFTER_FAULTS,
    SUSPENSION_S,
    Scorekeeper,
    outcome_rewards,
    suspension_reason,
)
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import Answer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from edgeyard.scheduler.model.rating import PlacementRating, ScorerState
from edgeyard.simulator.learning import MemoryScoring, MemoryUnitOfWork
from tests.builders import records as make
from tests.builders.engine import A, B, Lab

KEY = "default/7"


class Fixed:
    """Answers what a test states for boards A and B."""

    objective = "test"
    unit = ScoreUnit.PREFERENCE

    def __init__(self, name: str, a: float, b: float, kind: ScorerKind) -> None:
        self.name, self.kind = name, kind
        self.says = {A: a, B: b}
        self.broken = False

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        if self.broken:
            raise ValueError("no answer today")
        reported = np.array([self.says[uid] for uid in batch.snapshot.uids], dtype=np.float32)
        return reported[pairs.boards]


@pytest.fixture
def scorers() -> tuple[Fixed, Fixed, Fixed]:
    return (
        Fixed("ilp", 1.0, 0.0, ScorerKind.ILP),
        Fixed("good", 0.9, 0.1, ScorerKind.MODEL),
        Fixed("bad", 0.4, 0.5, ScorerKind.MODEL),
    )


@pytest.fixture
def lab(tmp_path: Path, scorers: tuple[Fixed, Fixed, Fixed]) -> Iterator[Lab]:
    policy = replace(
        load_policy("default"),
        version=7,
        evaluator="compared",
        aggregator="hedge",
        scorers=(ScorerChoice(name="least_loaded", weight=1.0),),
    )
    plugins = replace(
        registry(entry_points=False).resolve(policy),
        scorers=tuple(WeightedScorer(scorer=each, weight=1.0) for each in scorers),
    )
    made = Lab(tmp_path, A, B, policy=policy, plugins=plugins)
    yield made
    made.store.close()


def states(lab: Lab) -> dict[str, ScorerState]:
    with lab.store.read() as uow:
        return dict(uow.scoring.states(KEY))


def test_a_cycle_rewards_its_scorers_and_moves_their_weights(lab: Lab) -> None:
    lab.submit()
    lab.turn()
    found = states(lab)
    rewards = {"good": 1.0, "bad": 0.0}  # their favourites are the programme's best and worst
    assert {name: each.reward_sum for name, each in found.items() if each.rounds} == rewards
    assert found["good"].weight > found["bad"].weight  # type: ignore[operator]  # both were learned
    with lab.store.read() as uow:
        (round_,) = uow.scoring.rounds(KEY, limit=9)
    assert round_.rewards == {"good": 1.0, "bad": 0.0}
    assert sum(round_.weights.values()) == pytest.approx(1.0)
    lab.turn()  # places nothing: nothing is learned twice
    assert states(lab) == found


def test_weights_that_were_learned_count_in_the_next_cycle(lab: Lab) -> None:
    with lab.store.write() as uow:
        for name, weight in (("ilp", 0.01), ("good", 0.01), ("bad", 0.98)):
            uow.scoring.save(ScorerState(policy=KEY, scorer=name, weight=weight))
    benchmark_id = lab.submit()
    lab.turn()
    assert lab.attempts(benchmark_id)[0].target_uid == B


def test_a_good_end_rewards_scorers_that_preferred_the_board(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    before = states(lab)
    lab.cluster.end(job_id, Failure(category=FailureCategory.THERMAL, sentence="too hot"))
    lab.reconciler.run()
    lab.clock.forward(SETTLE_S)
    lab.cycle.run()
    found = states(lab)
    assert (found["good"].outcomes, found["bad"].outcomes) == (1, 1)
    assert found["good"].outcome_sum == pytest.approx(0.1)  # it liked the board by 0.9 to 0.1
    assert found["bad"].outcome_sum == pytest.approx(
        0.55
    )  # it would have liked the other a bit more
    gained = {name: found[name].weight - before[name].weight for name in found}  # type: ignore[operator]
    assert gained["bad"] > 0 > gained["good"]
    with lab.store.read() as uow:
        assert uow.scoring.rounds(KEY, limit=9)[0].benchmark_id == benchmark_id
        assert uow.scoring.ended_ratings(limit=9) == []


def test_the_reward_of_an_end_is_its_time_relative_to_the_expected_one() -> None:
    rating = PlacementRating(
        benchmark_id="b",
        attempt=1,
        policy=KEY,
        normalized_scores={"liked": 1.0, "disliked": 0.0, "even": 0.5},
        expected_s=10.0,
    )

    def rewards(run_s: float | None, failure: str | None = None) -> dict[str, float]:
        outcome = make.an_outcome(run_s=run_s, failure_category=failure)
        return {name: round(each, 3) for name, each in outcome_rewards(rating, outcome).items()}

    assert rewards(10.0) == {"liked": 0.5, "disliked": 0.5, "even": 0.5}
    assert rewards(5.0) == {"liked": 0.941, "disliked": 0.059, "even": 0.5}
    assert rewards(20.0) == {"liked": 0.059, "disliked": 0.941, "even": 0.5}
    assert rewards(3.0, "board_fault") == {"liked": 0.0, "disliked": 1.0, "even": 0.5}
    assert rewards(3.0, "user_model") == {}
    assert rewards(None, "preempted_too_often") == {}


def test_predictions_are_rewarded_by_their_error_and_agreement_by_nothing() -> None:
    rating = PlacementRating(
        benchmark_id="b",
        attempt=1,
        policy=KEY,
        normalized_scores={},
        expected_s=10.0,
        predicted_s={"right": 10.0, "half": 5.0, "double": 20.0},
        failure_chances={"sure": 1.0, "even": 0.5, "never": 0.0},
    )

    def rewards(run_s: float | None, failure: str | None = None) -> dict[str, float]:
        outcome = make.an_outcome(run_s=run_s, failure_category=failure)
        return dict(outcome_rewards(rating, outcome))

    ended = {"right": 1.0, "half": 0.5, "double": 0.5}
    assert rewards(10.0) == {**ended, "sure": 0.0, "even": 0.75, "never": 1.0}
    failed = {"sure": 1.0, "even": 0.75, "never": 0.0}
    assert rewards(3.0, "board_fault") == rewards(3.0, "user_model") == failed
    assert rewards(3.0, "preempted") == rewards(None, "rejected") == {}


def test_plans_of_solvers_whose_seconds_include_waiting_predict_no_run(
    lab: Lab, scorers: tuple[Fixed, Fixed, Fixed]
) -> None:
    for each in scorers:
        each.unit = ScoreUnit.SECONDS
    job_id = lab.running(lab.submit(max_retries=0))
    lab.cluster.end(job_id, Failure(category=FailureCategory.THERMAL, sentence="too hot"))
    lab.reconciler.run()
    with lab.store.read() as uow:
        ((rating, _),) = uow.scoring.ended_ratings(limit=9)
    assert rating.predicted_s.keys() == {"good", "bad"}  # not of "ilp"
    assert rating.normalized_scores == {}


def test_weights_follow_rewards_within_each_unit_and_outcomes_more_than_expectations(
    tmp_path: Path,
) -> None:
    """A good unit's scorers gain nothing from the others' low rewards."""
    units = {
        "exact": ScoreUnit.SECONDS,
        "rough": ScoreUnit.SECONDS,
        "sure": ScoreUnit.FAILURE,
        "wrong": ScoreUnit.FAILURE,
    }
    scorers = [Fixed(name, 1.0, 1.0, ScorerKind.MODEL) for name in units]
    for each in scorers:
        each.unit = units[each.name]
    policy = replace(load_policy("default"), version=7, aggregator="hedge")
    plugins = replace(
        registry(entry_points=False).resolve(policy),
        scorers=tuple(WeightedScorer(scorer=each, weight=1.0) for each in scorers),
    )
    scoring, keeper = MemoryScoring(), Scorekeeper()
    rating = PlacementRating(
        benchmark_id="b",
        attempt=1,
        policy=KEY,
        normalized_scores={},
        expected_s=None,
        predicted_s={"exact": 10.0, "rough": 40.0},
        failure_chances={"sure": 0.0, "wrong": 0.5},
    )
    for number in range(20):
        scoring.add_ratings([replace(rating, benchmark_id=f"b-{number}")])
        scoring.end(make.an_outcome(benchmark_id=f"b-{number}", run_s=10.0))
        keeper.settle(MemoryUnitOfWork(scoring).as_unit_of_work(), policy, plugins, make.NOW)
    weights = {name: each.weight or 0.0 for name, each in scoring.states(KEY).items()}
    assert weights["exact"] > 2 * weights["rough"]
    assert weights["sure"] > 1.2 * weights["wrong"]
    assert weights["exact"] + weights["rough"] == pytest.approx(0.5, abs=0.03)


def test_a_scorer_that_keeps_failing_is_suspended_longer_each_time_and_comes_back(
    lab: Lab, scorers: tuple[Fixed, Fixed, Fixed]
) -> None:
    bad = scorers[2]
    job_id = lab.running(lab.submit())
    bad.broken = True
    for _ in range(SUSPEND_AFTER_FAULTS):
        assert states(lab).get("bad", ScorerState(policy=KEY, scorer="bad")).suspended_until is None
        lab.submit()
        lab.cycle.run()
    suspended = states(lab)["bad"]
    assert (suspended.faults, suspended.faults_in_row) == (
        SUSPEND_AFTER_FAULTS,
        SUSPEND_AFTER_FAULTS,
    )
    assert suspended.suspended_until is not None
    assert (suspended.suspended_until - lab.clock.now()).total_seconds() == SUSPENSION_S
    assert "no answer today" in suspension_reason(suspended)

    lab.submit()
    lab.cycle.run()
    assert states(lab)["bad"].faults == SUSPEND_AFTER_FAULTS  # it was not even asked

    lab.clock.forward(SUSPENSION_S)
    lab.submit()
    lab.cycle.run()
    again = states(lab)["bad"]
    assert again.suspended_until is not None
    assert (again.suspended_until - lab.clock.now()).total_seconds() == 2 * SUSPENSION_S

    bad.broken = False
    lab.complete(job_id)
    lab.reconciler.run()
    lab.clock.forward(2 * SUSPENSION_S)
    lab.turn()  # a board is free again
    well = states(lab)["bad"]
    assert (well.faults_in_row, well.suspended_until, well.faults) == (
        0,
        None,
        SUSPEND_AFTER_FAULTS + 1,
    )


def test_a_scorer_that_was_asked_about_no_board_has_not_recovered(
    lab: Lab, scorers: tuple[Fixed, Fixed, Fixed]
) -> None:
    """Between two placements many cycles have no free board: nobody is late in them."""
    bad = scorers[2]
    benchmark_id = lab.submit(target_uid=A)
    for _ in range(SUSPEND_AFTER_FAULTS):
        bad.broken = True
        job_id = lab.running(benchmark_id)
        bad.broken = False
        benchmark_id = lab.submit(target_uid=A)
        assert not lab.cycle.run().placed  # its board is busy
        lab.complete(job_id)
        lab.reconciler.run()
    assert suspension_reason(states(lab)["bad"])


class Killed(Fixed):
    """Answers a simple rule's plan, because its solver was killed after two seconds."""

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        return Answer(
            scores=self.score(batch, pairs), facts={"seconds": 2.0}, fallback="a greedy plan"
        )


def test_metrics_count_the_time_of_a_solver_that_was_killed_and_its_fallback(lab: Lab) -> None:
    killed = WeightedScorer(scorer=Killed("ilp", 1.0, 0.0, ScorerKind.ILP), weight=1.0)
    found: list[tuple[str, float, str]] = []

    def observe(metric: str, value: float, labels: Mapping[str, str]) -> None:
        if metric in ("ilp_seconds", "scorer_fallbacks_total"):
            found.append((metric, value, labels["scorer"]))

    lab.submit()
    outcome = lab.turn()
    (commit,) = outcome.commits
    plugins = replace(commit.policy.plugins, scorers=(killed, *commit.policy.plugins.scorers[1:]))
    result = decide(commit.given, commit.policy.policy, plugins)
    policy = replace(commit.policy, plugins=plugins)
    observe_scorers(observe, replace(commit, policy=policy, result=result))
    assert ("ilp_seconds", 2.0, "ilp") in found
    fallbacks = {name: value for metric, value, name in found if metric != "ilp_seconds"}
    assert fallbacks == {"ilp": 1.0, "good": 0.0, "bad": 0.0}
