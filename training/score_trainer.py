"""Trains a score of the paper's jobs by evolution, from rewards alone.

Each generation plays all candidates on the same new episodes; what counts is the mean slowdown of
their jobs. Now and then the present weights are played on validation episodes, which nothing is
trained on; the best by them is the result. All draws depend on the seed and the generation alone,
so that a training that was killed goes on from its checkpoint as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.mixes import JobMix
from edgeyard.training import cluster_scores
from edgeyard.training.a2c.judgement import Choose, Sequences
from edgeyard.training.a2c.settings import MAX_SEED, A2cTraining
from edgeyard.training.cluster_environment import ClusterVectorEnv
from edgeyard.training.cluster_steps import Clusters, empty_clusters
from edgeyard.training.evolution import evolve
from edgeyard.training.progress import Progress, train_generations

Floats = NDArray[np.float64]

_CANDIDATES = 24
_SIGMA = 0.5
_HIDDEN_SCALE = 0.3
"""Standard deviation of the first weights of hidden units; all others begin at 0."""
_VALIDATE_EVERY = 10
_VALIDATION = 1_000
"""Episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTraining:
    """The settings of a training.

    Attributes:
        seed: Of all draws.
        generations: How many there are.
        episodes: New ones in each generation, common to all candidates.
        hidden: Units beside the linear score; 0: none.
        mix: What arrives.
        slots: Visible jobs.
        arrival_steps: Steps of an episode in which jobs arrive.
    """

    seed: int = 0
    generations: int = 100
    episodes: int = 256
    hidden: int = 0
    mix: JobMix = field(default_factory=JobMix)
    slots: int = 5
    arrival_steps: int = 50

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidInput: A number is out of range.
        """
        for name, value, low, high in (
            ("seed", self.seed, 0, MAX_SEED),
            ("generations", self.generations, 1, 100_000),
            ("episodes", self.episodes, 1, 10_000),
            ("hidden", self.hidden, 0, 64),
        ):
            if not low <= value <= high:
                raise InvalidInput.at(name, f"is {value}", f"{low} to {high}")
        if not self.mix.rate > 0:
            raise InvalidInput.at("rate", f"is {self.mix.rate}", "a number above 0, at most 1")
        self.cluster()

    def cluster(self) -> A2cTraining:
        """Return the settings of the cluster, as the paper's agent has them.

        Raises:
            InvalidInput: A number is out of range.
        """
        return A2cTraining(
            seed=self.seed, mix=self.mix, slots=self.slots, arrival_steps=self.arrival_steps
        )


def clusters_of(settings: ScoreTraining, count: int) -> Clusters:
    """Return that many clusters in which nothing arrives yet."""
    cluster = settings.cluster()
    return empty_clusters(
        count,
        settings.arrival_steps,
        nodes=1,
        resources=settings.mix.resources,
        units=cluster.units,
        horizon=cluster.horizon,
        slots=settings.slots,
        backlog=cluster.backlog,
    )


def sequences_of(settings: ScoreTraining, count: int, *key: str | int) -> Sequences:
    """Draw arrivals of some episodes, from a stream of the seed and a key."""
    random = stream(settings.seed, "score", *key)
    drawn = [settings.mix.arrivals(random, settings.arrival_steps) for _ in range(count)]
    return Sequences(
        np.stack([lengths for lengths, _ in drawn]), np.stack([sizes for _, sizes in drawn])
    )


class Player:
    """Plays scores in some clusters, whole episodes a call."""

    def __init__(self, settings: ScoreTraining, count: int) -> None:
        self._clusters = clusters_of(settings, count)
        self._units = settings.cluster().units
        self._long = settings.mix.long[0]

    def load(self, sequences: Sequences) -> None:
        """Take the arrivals of the next episodes."""
        self._clusters.lengths[:] = sequences.lengths
        self._clusters.sizes[:] = sequences.sizes

    def slowdown(self, weights: Floats) -> float:
        """Return the mean slowdown of all jobs; 1 where none arrives."""
        total, jobs = cluster_scores.play_all(
            self._clusters, weights, self._units, self._long, cluster_scores.COSTS
        )
        return total / jobs if jobs else 1.0


def start_weights(settings: ScoreTraining) -> Floats:
    """Return the first weights, with which nothing is placed but where it must."""
    resources = settings.mix.resources
    weights = np.zeros(cluster_scores.weight_count(resources, settings.hidden))
    if settings.hidden:
        start = cluster_scores.input_count(resources)
        random = stream(settings.seed, "score", "start")
        weights[start:] = random.normal(0.0, _HIDDEN_SCALE, len(weights) - start)
    return weights


def train(
    settings: ScoreTraining,
    progress: Progress | None = None,
    saved: Callable[[Progress], None] = lambda progress: None,
    advanced: Callable[[float], None] = lambda share: None,
) -> Progress:
    """Train a score; return the progress at the end.

    Args:
        settings: See `ScoreTraining`.
        progress: Where an earlier call with the same settings stopped.
        saved: Called after each validation.
        advanced: Called after each generation with the share that is done.

    Raises:
        InvalidInput: The state of the progress is none that this function left.
    """
    if progress is None:
        start = start_weights(settings)
        progress = Progress(generation=0, curve=[], best=start, weights=start)
    player, validation = Player(settings, settings.episodes), Player(settings, _VALIDATION)
    validation.load(sequences_of(settings, _VALIDATION, "validation"))

    def judge(candidates: Sequence[Floats]) -> list[float]:
        player.load(sequences_of(settings, settings.episodes, "episodes", progress.generation))
        return [player.slowdown(np.asarray(each)) for each in candidates]

    return train_generations(
        progress,
        evolve(progress, judge, seed=settings.seed, candidates=_CANDIDATES, sigma=_SIGMA),
        generations=settings.generations,
        validate_every=_VALIDATE_EVERY,
        validate=validation.slowdown,
        saved=saved,
        advanced=advanced,
    )


def chooser(settings: ScoreTraining, weights: Floats) -> Choose:
    """Return how a score chooses the actions of all environments."""
    resources = settings.mix.resources
    seen = np.empty((settings.slots, cluster_scores.input_count(resources)))
    units, long = settings.cluster().units, settings.mix.long[0]

    def choose(env: ClusterVectorEnv, images: NDArray[np.float32]) -> NDArray[np.int64]:
        state = env.clusters.state
        slots = np.array(
            [
                cluster_scores.choose(state, place, weights, units, long, seen)
                for place in range(env.num_envs)
            ],
            dtype=np.int64,
        )
        return np.where(slots == settings.slots, 0, slots + 1)

    return choose


def document_of(settings: ScoreTraining, progress: Progress) -> dict[str, object]:
    """Return a trained score as JSON: settings, weights, and how it was chosen."""
    return {
        "settings": asdict(settings),
        "weights": [round(float(each), 6) for each in progress.best],
        "validation_slowdown": progress.best_validation,
        "episodes": progress.generation * settings.episodes * _CANDIDATES,
    }
