"""Scores of the paper's jobs: episodes, training by evolution, look-ahead, command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.cluster_scores import RATES, shipped_score, unseen
from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.simulator.mixes import JobMix
from edgeyard.training.a2c.judgement import (
    Sequences,
    baseline,
    mean_slowdown,
    play,
    slowdown_ratio,
    unseen_sequences,
)
from edgeyard.training.cluster_lookahead import Floats, Lookahead
from edgeyard.training.cluster_scores import weight_count
from edgeyard.training.progress import Progress, load_progress, save_progress
from edgeyard.training.score_trainer import Player, ScoreTraining, chooser, sequences_of, train
from tests.builders.cli import refusal

pytestmark = pytest.mark.slow


def short(**changes: Any) -> ScoreTraining:
    """A training of a second."""
    chosen: dict[str, Any] = {"generations": 10, "episodes": 8, "mix": JobMix(rate=0.8)}
    return ScoreTraining(**{**chosen, **changes})


def drawn_weights(hidden: int, seed: int) -> Floats:
    """Weights that nothing has trained."""
    return np.random.default_rng(seed).normal(0.0, 1.0, weight_count(2, hidden))


class TestAScore:
    @pytest.mark.parametrize("hidden", [0, 3])
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_of_any_weights_finishes_every_job(self, hidden: int, seed: int) -> None:
        settings = short(hidden=hidden)
        sequences = sequences_of(settings, 20, "test")
        played = play(settings.cluster(), sequences, chooser(settings, drawn_weights(hidden, seed)))
        assert (played.jobs == played.arrived).all()

    @pytest.mark.parametrize("hidden", [0, 3])
    def test_is_judged_in_training_as_in_the_environment(self, hidden: int) -> None:
        settings = short(hidden=hidden)
        weights, sequences = drawn_weights(hidden, 7), sequences_of(settings, 20, "test")
        player = Player(settings, 20)
        player.load(sequences)
        played = play(settings.cluster(), sequences, chooser(settings, weights))
        assert player.slowdown(weights) == pytest.approx(mean_slowdown(played))

    def test_that_prefers_short_jobs_is_that_rule(self) -> None:
        settings = short()
        weights = np.zeros(weight_count(2, 0))
        weights[0], weights[1] = 2.0, -1.0  # above 0 for each run time: always the shortest
        sequences = sequences_of(settings, 20, "test")
        cluster = settings.cluster()

        def shortest(env: Any, images: Any) -> Any:
            state = env.clusters.state
            lengths = np.take_along_axis(state.lengths, np.maximum(state.slots, 0), axis=1)
            ordered = np.where(env.action_masks()[:, 1:] > 0, lengths, 10**9)
            return np.where(ordered.min(axis=1) < 10**9, ordered.argmin(axis=1) + 1, 0)

        by_rule = play(cluster, sequences, shortest)
        by_score = play(cluster, sequences, chooser(settings, weights))
        assert np.array_equal(by_score.sums, by_rule.sums)


class TestATraining:
    def test_by_rewards_alone_is_below_shortest_job_first(self) -> None:
        settings = short(generations=20, episodes=32)
        progress = train(settings)
        sequences = unseen_sequences(settings.mix, 100, 50)
        cluster = settings.cluster()
        played = play(cluster, sequences, chooser(settings, progress.best))
        ratio = slowdown_ratio(played, play(cluster, sequences, baseline("sjf", 0)))
        assert ratio.high < 0.9

    def test_that_was_stopped_goes_on_as_if_nothing_had_happened(self, tmp_path: Path) -> None:
        half, whole = short(generations=10), short(generations=20)
        path = tmp_path / "checkpoint.npz"
        save_progress(path, train(half), half, "")
        continued = train(whole, load_progress(path, whole, ""))
        assert np.array_equal(continued.best, train(whole).best)
        assert [each.generation for each in continued.curve] == [10, 20]

    def test_that_is_finished_is_left_as_it_is(self) -> None:
        progress = Progress(generation=10, curve=[], best=np.ones(3), weights=np.ones(3))
        assert train(short(), progress) is progress

    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({"hidden": 65}, "hidden"),
            ({"generations": 0}, "generations"),
            ({"mix": JobMix(rate=0.0)}, "rate"),
            ({"slots": 0}, "slots"),
        ],
    )
    def test_refuses_what_can_not_be(self, changes: dict[str, Any], name: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            short(**changes)
        assert [each.pointer for each in refused.value.errors] == [name]


class TestTheLookahead:
    def test_never_leaves_the_base_without_a_better_choice(self) -> None:
        settings, weights = short(), drawn_weights(0, 1)
        sequences = sequences_of(settings, 5, "test")
        ahead = Lookahead(settings, weights, futures=2, errors=math.inf)
        found = play(settings.cluster(), sequences, ahead.choose)
        base = play(settings.cluster(), sequences, chooser(settings, weights))
        assert np.array_equal(found.sums, base.sums)

    def test_is_better_than_a_bad_base(self) -> None:
        settings, weights = short(), drawn_weights(0, 1)
        sequences = sequences_of(settings, 10, "test")
        ahead = Lookahead(settings, weights, futures=8)
        found = play(settings.cluster(), sequences, ahead.choose)
        base = play(settings.cluster(), sequences, chooser(settings, weights))
        assert mean_slowdown(found) < 0.9 * mean_slowdown(base)

    def test_does_not_see_what_arrives_later(self) -> None:
        settings, weights = short(), drawn_weights(0, 2)
        first = sequences_of(settings, 1, "one")
        other = sequences_of(settings, 1, "two")
        lengths, sizes = first.lengths.copy(), first.sizes.copy()
        lengths[:, 30:], sizes[:, 30:] = other.lengths[:, 30:], other.sizes[:, 30:]

        def choices(sequences: Sequences) -> list[int]:
            ahead = Lookahead(settings, weights, futures=4)
            made = []

            def choose(env: Any, images: Any) -> Any:
                found = ahead.choose(env, images)
                if env.clusters.state.counts[0, 0] < 29:
                    made.append(int(found[0]))
                return found

            play(settings.cluster(), sequences, choose)
            return made

        assert choices(first) == choices(Sequences(lengths, sizes))

    def test_needs_two_futures_for_a_standard_error(self) -> None:
        with pytest.raises(ValueError, match="futures is 1"):
            Lookahead(short(), drawn_weights(0, 1), futures=1)


@pytest.mark.parametrize("rate", RATES)
def test_the_shipped_score_is_below_the_best_rule(rate: float) -> None:
    settings, weights = shipped_score(rate)
    sequences, cluster = unseen(settings), settings.cluster()
    played = play(cluster, sequences, chooser(settings, weights))
    assert (played.jobs == played.arrived).all()
    ratio = slowdown_ratio(played, play(cluster, sequences, baseline("hold", 0)))
    assert ratio.mean <= 0.97
    assert ratio.high < 1.0


class TestTheCommand:
    def test_trains_judges_and_goes_on(self, tmp_path: Path) -> None:
        words = ["learn", "score", "--rate", "0.8", "--generations", "2", "--out", str(tmp_path)]
        first = CliRunner().invoke(app, words)
        assert first.exit_code == 0, first.output
        assert "score" in first.stdout
        assert "of hold's" in first.stdout
        words[5] = "4"
        second = CliRunner().invoke(app, [*words, "--json"])
        assert second.exit_code == 0, second.output
        document = json.loads(second.stdout)
        assert document["episodes"] == 4 * 256 * 24
        assert {each["policy"] for each in document["judged"]} >= {"score", "hold", "sjf"}
        assert document["to_hold"]["low"] < document["to_hold"]["ratio"]
        assert json.loads((tmp_path / "score.json").read_text()) == document
        assert "going on from generation 2" in second.stderr

    @pytest.mark.parametrize(
        ("flag", "value"), [("--rate", "0"), ("--rate", "nan"), ("--seed", "3000000000")]
    )
    def test_names_the_flag_that_can_not_be(self, flag: str, value: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        found = CliRunner().invoke(app, ["learn", "score", flag, value, "--out", str(out)])
        assert refusal(found).startswith(f"edgeyard: {flag}: ")
        assert not out.exists()

    def test_is_trained_where_more_arrives_than_can_run(self, tmp_path: Path) -> None:
        """One visible job, and 1.8 times the work that the cluster can do."""
        words = ["learn", "score", "--rate", "1", "--slots", "1", "--generations", "1", "--json"]
        found = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
        assert found.exit_code == 0, found.output
        judged = {each["policy"]: each for each in json.loads(found.stdout)["judged"]}
        assert judged["score"]["unplaced"] == 0

    def test_refuses_a_folder_of_another_training(self, tmp_path: Path) -> None:
        words = ["learn", "score", "--generations", "1", "--out", str(tmp_path)]
        assert CliRunner().invoke(app, words).exit_code == 0
        other = CliRunner().invoke(app, [*words, "--rate", "0.9"])
        assert "belongs to a training with other data or settings" in refusal(other)
