"""Evaluator and aggregator: who is rewarded for what, and what weights make of it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.plugins.aggregators.hedge import RATE, SHARE, Hedge
from edgeyard.plugins.evaluators.compared import ComparisonEvaluator
from edgeyard.plugins.testing import all_pairs, proposal, sample_batch
from edgeyard.scheduler.framework.batch import by_class
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit

BATCH = sample_batch(40, 30)
PAIRS = all_pairs(BATCH)
RNG = np.random.default_rng(0)
TRUTH = RNG.random(len(PAIRS), dtype=np.float32)
NOISE = RNG.random(len(PAIRS), dtype=np.float32)
MODEL, ILP, HEURISTIC = ScorerKind.MODEL, ScorerKind.ILP, ScorerKind.HEURISTIC


def rewards(*answers: tuple[str, ScorerKind, np.ndarray]) -> dict[str, float]:
    proposals = [proposal(name, scores, kind=kind) for name, kind, scores in answers]
    return dict(ComparisonEvaluator().evaluate(BATCH, PAIRS, proposals))


def test_an_ai_that_agrees_with_the_ilp_gets_all_and_its_opposite_little() -> None:
    found = rewards(
        ("same", MODEL, TRUTH),
        ("opposite", MODEL, 1 - TRUTH),
        ("ilp", ILP, TRUTH),
        ("h", HEURISTIC, NOISE),
    )
    assert found["same"] == 1.0
    assert found["opposite"] < 0.1
    assert 0.3 < found["h"] < 0.7  # measured against the ILP too


def test_answers_in_seconds_are_rated_by_the_time_that_they_lose() -> None:
    seconds = (1.0 + TRUTH).astype(np.float32)
    double = np.where(seconds == by_class(PAIRS, seconds, np.fmin, 0.0)[PAIRS.rows], 9.0, 1.0)
    found = {
        each: ComparisonEvaluator().evaluate(
            BATCH,
            PAIRS,
            [
                proposal("model", answer.astype(np.float32), kind=MODEL, unit=ScoreUnit.SECONDS),
                proposal("ilp", seconds, kind=ILP, unit=ScoreUnit.SECONDS),
            ],
        )["model"]
        for each, answer in {"same": seconds * 60, "never the best": double}.items()
    }
    assert found["same"] == 1.0
    assert 0.5 <= found["never the best"] < 0.9  # no board takes more than twice the best time


def test_the_heuristic_is_the_reference_where_the_ilp_is_missing_class_by_class() -> None:
    half = TRUTH.copy()
    half[PAIRS.rows % 2 == 1] = np.nan
    found = rewards(("model", MODEL, TRUTH), ("ilp", ILP, half), ("h", HEURISTIC, 1 - TRUTH))
    jobs = np.bincount(BATCH.class_of_job)
    even = np.arange(len(jobs)) % 2 == 0
    assert found["model"] == pytest.approx(jobs[even].sum() / jobs.sum(), abs=0.05)
    assert rewards(("model", MODEL, TRUTH), ("h", HEURISTIC, TRUTH)) == {"model": 1.0}
    assert rewards(("ilp", ILP, TRUTH), ("h", HEURISTIC, 1 - TRUTH))["h"] < 0.1


def test_each_ilp_is_measured_on_the_others_objective() -> None:
    found = rewards(("one", ILP, TRUTH), ("two", ILP, 1 - TRUTH), ("three", ILP, TRUTH))
    assert found["one"] == found["three"] == pytest.approx(0.5, abs=0.05)
    assert found["two"] < 0.1


def test_who_has_nobody_to_be_compared_with_gets_no_reward() -> None:
    nothing = np.full(len(PAIRS), np.nan, dtype=np.float32)
    assert rewards(("h", HEURISTIC, TRUTH)) == {}
    assert rewards(("model", MODEL, TRUTH), ("ilp", ILP, nothing)) == {}
    assert rewards(("model", MODEL, TRUTH), ("ilp", ILP, np.full_like(TRUTH, 0.7))) == {}


def test_a_scorer_that_distinguishes_nothing_gets_what_chance_would() -> None:
    found = rewards(("model", MODEL, np.full_like(TRUTH, 0.2)), ("ilp", ILP, TRUTH))
    assert found["model"] == pytest.approx(0.5, abs=0.1)


# --- weights -------------------------------------------------------------------------------------


def test_weights_follow_rewards_and_never_fall_below_their_share() -> None:
    prior = {"good": 1.0, "bad": 1.0, "shadow": 0.0}
    weights = dict(Hedge().learn(prior, {}, {}))
    assert weights == {"good": 0.5, "bad": 0.5, "shadow": 0.0}
    for _ in range(2000):
        weights = dict(Hedge().learn(prior, weights, {"good": 0.9, "bad": 0.2, "shadow": 1.0}))
        assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["good"] > 0.95
    assert weights["bad"] >= SHARE * 0.5
    for _ in range(300):
        weights = dict(Hedge().learn(prior, weights, {"good": 0.2, "bad": 0.9}))
    assert weights["bad"] > 0.95  # it got better, and came back


def test_who_was_not_rated_keeps_its_weight() -> None:
    prior = {"a": 1.0, "b": 1.0, "asleep": 2.0}
    weights = dict(Hedge().learn(prior, {}, {"a": 1.0, "b": 0.0}))
    assert weights["asleep"] == pytest.approx(0.5)
    assert weights["a"] > 0.25 > weights["b"]


def _regret(
    prior: dict[str, float], rounds: list[dict[str, float]]
) -> dict[str, tuple[float, int]]:
    """By scorer: how far the weighted mean lags behind it, and over how many rounds."""
    weights = dict(Hedge().learn(prior, {}, {}))
    found = {name: (0.0, 0) for name in prior}
    for reported in rounds:
        mass = sum(weights[name] for name in reported)
        gained = sum(weights[name] * reward for name, reward in reported.items()) / mass
        for name, reward in reported.items():
            lag, count = found[name]
            found[name] = lag + reward - gained, count + 1
        weights = dict(Hedge().learn(prior, weights, reported))
    return found


def _bound(prior: float, count: int) -> float:
    return (math.log(1 / prior) + count * math.log(1 / (1 - SHARE))) / RATE + RATE * count / 8


@pytest.mark.parametrize("seed", range(3))
def test_regret_stays_within_its_bound(seed: int) -> None:
    """Honest, noisy, lying and changing scorers; some that sleep half of the rounds."""
    rng = np.random.default_rng(seed)
    prior = {"honest": 0.1, "noisy": 0.4, "lying": 0.3, "changing": 0.15, "sleepy": 0.05}
    rounds = []
    for number in range(3000):
        content = {
            "honest": float(rng.beta(8, 2)),
            "noisy": float(rng.random()),
            "lying": float(rng.beta(1, 9)),
            "changing": 0.95 if number // 500 % 2 else 0.05,
        }
        if rng.random() < 0.5:
            content["sleepy"] = float(rng.beta(9, 1))
        rounds.append(content)
    for name, (lag, count) in _regret(prior, rounds).items():
        assert lag <= _bound(prior[name], count), name


def test_regret_stays_within_its_bound_against_one_who_knows_the_weights() -> None:
    """The reward goes to whoever has the least weight, round after round."""
    prior = {"a": 0.5, "b": 0.5}
    weights = dict(Hedge().learn(prior, {}, {}))
    rounds = []
    for _ in range(3000):
        least = min(weights, key=lambda name: weights[name])
        content = {name: float(name == least) for name in prior}
        rounds.append(content)
        weights = dict(Hedge().learn(prior, weights, content))
    for name, (lag, count) in _regret(prior, rounds).items():
        assert 0 <= lag <= _bound(prior[name], count)


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0]), min_size=1),
        min_size=1,
        max_size=40,
    )
)
def test_regret_stays_within_its_bound_whoever_sleeps(pattern: list[dict[str, float]]) -> None:
    """Any pattern of sleep and rewards, again and again."""
    prior = {"a": 0.1, "b": 0.6, "c": 0.3}
    rounds = (pattern * (3000 // len(pattern) + 1))[:3000]
    for name, (lag, count) in _regret(prior, rounds).items():
        assert lag <= _bound(prior[name], count) + 1e-6, name


def test_a_favourite_that_mostly_sleeps_is_not_forgotten() -> None:
    """It is always better when it is awake, and alone with the worst one half of that time."""
    prior = {"rare": 0.01, "steady": 0.89, "bad": 0.1}
    rounds: list[dict[str, float]] = []
    for number in range(4000):
        if number % 10 == 0:
            rounds.append(
                {"rare": 1.0, "bad": 0.0} if number % 20 else {"rare": 1.0, "steady": 0.5}
            )
        else:
            rounds.append({"steady": 0.5, "bad": 0.0})
    for name, (lag, count) in _regret(prior, rounds).items():
        assert lag <= _bound(prior[name], count), name
