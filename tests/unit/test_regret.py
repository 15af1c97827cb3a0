"""The evaluator by regret: choices are judged by what past runs let expect of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.evaluators.regret import RegretEvaluator
from edgeyard.plugins.testing import NOW, all_pairs, board, past_run, pending, proposal, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.world import LabWorld
from edgeyard.simulator.scenario import Arrivals, BoardGroup, JobKind, LabScenario, Scenario

UIDS = tuple(f"rpi4b-0001-{number:04}" for number in range(1, 5))
RUN_S = {UIDS[0]: 10.0, UIDS[1]: 10.02, UIDS[2]: 20.0, UIDS[3]: 40.0}


def batch_of(runs: int, jobs: int = 1) -> Batch:
    """Four boards, each with so many runs that took the same time, as stated above."""
    past = [
        past_run(uid, run_s=run_s, ago_s=60.0 * (number + 1))
        for uid, run_s in RUN_S.items()
        for number in range(runs)
    ]
    return build_batch(
        snapshot_of([board(uid) for uid in UIDS]),
        [pending(f"b-{number}") for number in range(jobs)],
        NOW,
        0,
        Knowledge(runs=History(past)),
    )


def rewards(batch: Batch, **answers: list[float]) -> dict[str, float]:
    pairs = all_pairs(batch)
    proposals = [
        proposal(name, np.array(scores, dtype=np.float32)) for name, scores in answers.items()
    ]
    return dict(RegretEvaluator().evaluate(batch, pairs, proposals))


def test_a_choice_is_worth_what_the_best_one_costs_over_its_cost_and_ties_are_worth_all() -> None:
    found = rewards(
        batch_of(200),
        best=[1.0, 0.5, 0.2, 0.1],
        as_good=[0.5, 1.0, 0.2, 0.1],
        double=[0.5, 0.5, 1.0, 0.1],
        worst=[0.5, 0.5, 0.2, 1.0],
    )
    assert found["best"] == found["as_good"] == 1.0
    assert found["double"] == pytest.approx(10.0 / 20.0, abs=0.05)
    assert found["worst"] == pytest.approx(10.0 / 40.0, abs=0.05)


def test_boards_that_a_scorer_finds_alike_are_taken_by_lot() -> None:
    found = rewards(batch_of(200), alike=[0.5] * 4)
    assert found["alike"] == pytest.approx(10.0 / np.mean(list(RUN_S.values())), abs=0.05)


def test_a_class_takes_as_many_boards_as_it_has_benchmarks() -> None:
    """Two benchmarks take a scorer's two favourites: the best order of bad ones is no better."""
    found = rewards(batch_of(200, jobs=2), good=[0.5, 1.0, 0.2, 0.1], bad=[1.0, 0.0, 0.0, 0.9])
    assert found["good"] == 1.0
    assert found["bad"] == pytest.approx(20.0 / 50.0, abs=0.05)
    everybody = rewards(batch_of(200, jobs=9), any=[0.1, 0.2, 0.5, 1.0])
    assert everybody == {"any": 1.0}


def test_regret_grows_with_what_the_past_can_tell_apart() -> None:
    worst = [0.1, 0.2, 0.5, 1.0]
    known, little = (rewards(batch_of(runs), it=worst)["it"] for runs in (200, 1))
    assert known < little
    assert rewards(batch_of(0), it=worst) == {}


def test_who_abstains_is_not_judged_and_agreement_plays_no_part() -> None:
    nothing = [float("nan")] * 4
    assert rewards(batch_of(200), silent=nothing) == {}
    wrong = [0.1, 0.2, 0.5, 1.0]
    found = rewards(batch_of(200), right=[1.0, 0.5, 0.2, 0.1], one=wrong, two=wrong, three=wrong)
    assert found["right"] == 1.0
    assert max(found["one"], found["two"], found["three"]) < 0.3


# --- a simulated lab -----------------------------------------------------------------------------

DECISIONS = 200
MEDIAN_S = 300.0


class Predicting:
    """Predicts seconds, each board's from a table."""

    objective = "run time"
    kind = ScorerKind.MODEL
    unit = ScoreUnit.SECONDS

    def __init__(self, name: str, seconds: dict[str, float]) -> None:
        self.name, self._seconds = name, seconds

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        seconds = np.array([self._seconds[uid] for uid in batch.snapshot.uids], dtype=np.float32)
        return seconds[pairs.boards]


def lab() -> LabScenario:
    """Twenty boards of different speeds, half of them busy, and five earlier runs on each."""
    return LabScenario(
        boards=(BoardGroup(family="rpi4b", count=20, speed_spread=0.5),),
        arrivals=Arrivals(
            rate_per_hour=120.0, mix=(JobKind(model="m", run_s=MEDIAN_S, run_spread=0.1),)
        ),
        history_jobs=100,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_oracle_good_noise_and_adversary_are_ranked_right_within_200_decisions(seed: int) -> None:
    boards = Boards(lab(), seed).rows
    rng = np.random.default_rng(seed)
    truth = {each.uid: MEDIAN_S * each.run_factor / each.group.speed for each in boards}
    answers = {
        "oracle": truth,
        "good": {uid: run_s * float(np.exp(rng.normal(0.0, 0.25))) for uid, run_s in truth.items()},
        "noise": dict(zip(truth, rng.permutation(list(truth.values())).tolist(), strict=True)),
        "adversary": {uid: MEDIAN_S**2 / run_s for uid, run_s in truth.items()},
    }
    policy = replace(
        load_policy("default"), evaluator="regret", aggregator="hedge", explore_share=0.0
    )
    plugins = replace(
        registry(entry_points=False).resolve(policy),
        scorers=tuple(
            WeightedScorer(scorer=Predicting(name, seconds), weight=1.0)
            for name, seconds in answers.items()
        ),
    )
    scenario = Scenario(name="lab", world="boards", duration_s=3 * 3600.0, lab=lab())
    world = LabWorld(scenario, policy, plugins, seed=seed)
    decided: list[int] = []
    regrets: dict[str, list[float]] = {name: [] for name in answers}
    weights: dict[str, float] = {}

    def watch(at_s: float, given: CycleInput, result: CycleResult) -> None:
        if sum(decided) < DECISIONS:
            decided.append(len(result.placements))
            weights.update(given.knowledge.weights)
            for name, reward in result.rewards.items():
                regrets[name].append(reward)

    world.watch = watch
    while world.step() and sum(decided) < DECISIONS:
        pass
    assert sum(decided) >= DECISIONS
    ranked = sorted(answers, key=lambda name: -weights[name])
    means = {name: float(np.mean(rewards)) for name, rewards in regrets.items()}
    assert ranked == list(answers), weights
    assert sorted(answers, key=lambda name: -means[name]) == list(answers), means
