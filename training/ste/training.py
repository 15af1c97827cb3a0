"""Training of a registered model by rewards alone: evolution of a score, episode by episode.

The model gives each pair of a job and a node a number; the job with the highest one comes first in
the queue and gets its best free node. While the model is trained it decides alone, and each episode
is played with other weights: a candidate of CMA-ES (`edgeyard.training.evolution`). All candidates
of a generation meet the same arrivals and faults, which the seed of their episodes draws. The
reward of an episode is the mean time that its jobs were in the system, until their end or the end
of the episode, as a negative number. Nothing else is learned from: no other scheduler, no label.

Only the linear way of the network from its inputs to its output is trained, with weights of length
`LENGTH`: the order of scores does not depend on it. What is written is an ordinary model with its
manifest, checked and run like any other.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import ConfigError, InvalidInput, reason_of
from edgeyard.plugins.queue_policies.best_score import BestScore
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, Scorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Plugins, WeightedScorer
from edgeyard.scheduler.learning.check import CHUNK
from edgeyard.scheduler.learning.features import Encoder, Input
from edgeyard.scheduler.learning.manifest import Manifest, Output, manifest_text
from edgeyard.scheduler.learning.model import read_manifest
from edgeyard.scheduler.twin.document import ATTEMPT_MARK, TwinData
from edgeyard.training.checkpoint import loaded_checkpoint, save_checkpoint
from edgeyard.training.evolution import Strategy
from edgeyard.training.ste.network import Array, Network, network_from_onnx, onnx_bytes

CANDIDATES = 8
"""Episodes of a generation, all with the same seed."""

_SIGMA = 0.5
"""Standard deviation of the first generation."""

LENGTH = 3.0
"""Length of the weights: scores of the sigmoid stay apart, and none is 0 or 1."""

NEW_INPUTS = (
    Input(column="log_history_s", mean=5.0, scale=1.5),
    Input(column="log_history_s?"),
    Input(column="log_bound_s", mean=5.0, scale=2.5),
    Input(column="log_board_cores", mean=2.0, scale=1.0),
    Input(column="host_busy", mean=0.5, scale=0.3),
    Input(column="resources_needed", mean=0.3, scale=0.3),
    Input(column="resources_left", mean=0.5, scale=0.3),
    Input(column="resources_aligned", mean=0.2, scale=0.2),
)
"""Columns of a new model: of boards with past runs, and of nodes that jobs share."""


@dataclass(slots=True)
class TrainingState:
    """All that training changes: what a checkpoint holds.

    Attributes:
        network: As it was before the training.
        costs: Mean seconds in the system of each episode so far.
    """

    network: Network
    costs: list[float] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        """Finished ones."""
        return len(self.costs)


class EpisodeEvolution:
    """Trains one model by evolution. Not thread-safe: the scheduler controller locks it."""

    def __init__(
        self,
        manifest: Manifest,
        state: TrainingState,
        *,
        load: Callable[[Path], Scorer] | None = None,
    ) -> None:
        """Take a model.

        Args:
            manifest: As it was registered.
            state: What it has learned so far.
            load: Loads a model as a scorer, for the judgement.
        """
        self._manifest, self._load = manifest, load
        self._judged: tuple[str, int, Scorer] | None = None
        self.state = state
        first = state.network.weights["S"][:, 0]
        self._strategy = Strategy(first, seed=0, candidates=CANDIDATES, sigma=_SIGMA)
        self._candidates = self._strategy.ask()
        for end in range(CANDIDATES, state.episodes + 1, CANDIDATES):
            self._strategy.tell(state.costs[end - CANDIDATES : end])
            self._candidates = self._strategy.ask()
        self._scorer: _CandidateScorer | None = None
        self._seconds_of_job: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self._manifest.name

    @property
    def manifest(self) -> Manifest:
        """Manifest of the registered model."""
        return self._manifest

    @property
    def network(self) -> Network:
        """What was learned so far: the centre of the candidates."""
        return _with_weights(self.state.network, self._strategy.mean)

    def exploring_plugins(self, plugins: Plugins) -> Plugins:
        if self._scorer is None:
            weights = np.asarray(self._candidates[self.state.episodes % CANDIDATES])
            network = _with_weights(self.state.network, weights)
            self._scorer = _CandidateScorer(self._manifest, network)
        return alone(plugins, self._scorer)

    def evaluated_plugins(self, plugins: Plugins, state: str) -> Plugins:
        if state not in ("trained", "frozen") or self._load is None:
            raise InvalidInput.at("/judged", f"is {state!r}", "trained or frozen")
        if self._judged is None or self._judged[:2] != (state, self.state.episodes):
            network = self.network if state == "trained" else self.state.network
            with tempfile.TemporaryDirectory(prefix="edgeyard-ste-") as folder:
                path = write_model(Path(folder) / f"{self.name}.toml", self._manifest, network)
                self._judged = state, self.state.episodes, self._load(path)
        return alone(plugins, self._judged[2])

    def add_state(self, data: TwinData) -> float:
        for job in data.jobs:
            if job.submit_time is None or ATTEMPT_MARK in job.name:
                continue  # a job that is tried again is there under its own name
            until = job.ended_at or data.now
            if until is not None:
                self._seconds_of_job[job.name] = (until - job.submit_time).total_seconds()
        known = self._seconds_of_job.values()
        return -sum(known) / len(known) if known else 0.0

    def finish_episode(self) -> Mapping[str, float]:
        known, self._seconds_of_job = self._seconds_of_job, {}
        if not known:
            raise InvalidInput.at("--train", "no job arrived in the episode", "more rounds")
        return self.learn(sum(known.values()) / len(known), len(known))

    def learn(self, cost: float, jobs: int) -> Mapping[str, float]:
        """End an episode; return figures of the update.

        Args:
            cost: Mean seconds that its jobs were in the system.
            jobs: How many there were.
        """
        self._scorer = None
        self.state.costs.append(cost)
        generation, place = divmod(self.state.episodes, CANDIDATES)
        if not place:
            self._strategy.tell(self.state.costs[-CANDIDATES:])
            self._candidates = self._strategy.ask()
        return {"reward": -cost, "generation": float(generation), "jobs": float(jobs)}


def seed_of_episode(first: int, number: int) -> int:
    """Return the seed of an episode: the candidates of a generation have the same one.

    Args:
        first: Of the first episode.
        number: Of the episode, from 0.
    """
    return first + number // CANDIDATES


def alone(plugins: Plugins, scorer: Scorer) -> Plugins:
    """Return the plugins with a model that decides who starts and where, alone."""
    return replace(
        plugins,
        queue_policy=BestScore(scorer),
        scorers=(WeightedScorer(scorer=scorer),),
        evaluator=None,
    )


def _with_weights(network: Network, weights: Array) -> Network:
    length = float(np.linalg.norm(weights))
    scaled = weights * (LENGTH / length) if length > 0.0 else weights
    return Network(weights={**network.weights, "S": scaled[:, None]})


class _CandidateScorer:
    """The model with the weights of a candidate, as a scorer."""

    kind = ScorerKind.MODEL
    unit = ScoreUnit.PREFERENCE

    def __init__(self, manifest: Manifest, network: Network) -> None:
        self.name, self.objective = manifest.name, manifest.objective
        self._inputs, self._network = manifest.inputs, network

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """See `DetailedScorer.answer`; the facts are the shape of the tensor."""
        facts = {"rows": float(len(pairs)), "columns": float(len(self._inputs))}
        return Answer(scores=self.score(batch, pairs), facts=facts)

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        chunks = list(Encoder(batch, pairs.rows, pairs.boards, self._inputs).chunks(CHUNK))
        x = np.concatenate(chunks) if chunks else np.zeros((0, len(self._inputs)), np.float32)
        return self._network.predict(x.astype(np.float64))[:, 0].astype(np.float32)


def untrained_network(inputs: int) -> Network:
    """Return the network of a new model, to which all nodes and jobs are alike."""
    sizes = {"W1": (inputs, 1), "b1": (1,), "W2": (1, 1), "S": (inputs, 1), "b2": (1,)}
    return Network(weights={name: np.zeros(size) for name, size in sizes.items()})


def new_model(name: str, folder: Path) -> Path:
    """Write a model that has learned nothing yet; return its manifest's path.

    Raises:
        ConfigError: There is a model of this name already.
        InvalidInput: It is no name of a model.
    """
    path = folder / f"{name}.toml"
    if path.exists():
        raise ConfigError([f"{path} already exists: leave --new out to train it further"])
    network = untrained_network(len(NEW_INPUTS))
    manifest = Manifest(
        name=name,
        version=1,
        objective="reward",
        output=Output.SCORE,
        onnx=f"{name}.onnx",
        sha256="0" * 64,
        inputs=NEW_INPUTS,
        trained_on="nothing yet",
    )
    folder.mkdir(parents=True, exist_ok=True)
    return write_model(path, manifest, network)


def load_trainable(path: Path) -> tuple[Manifest, Network]:
    """Read a model that can be trained.

    Raises:
        ConfigError: It is wrong, or of another kind.
    """
    manifest = read_manifest(path)
    if manifest.output is not Output.SCORE:
        raise ConfigError(
            [
                f"{path}: its output is {manifest.output.value}; rewards train models whose output "
                "is score"
            ]
        )
    if required := [
        each.column for each in manifest.inputs if each.is_extra and each.default is None
    ]:
        raise ConfigError(
            [
                f"{path}: it requires {', '.join(required)}; models can be trained only if their "
                "extra columns have defaults"
            ]
        )
    onnx = path.with_name(manifest.onnx)
    try:
        data = onnx.read_bytes()
    except OSError as error:
        raise ConfigError([f"{onnx}: {reason_of(error)}"]) from error
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise ConfigError([f"{onnx}: its SHA-256 differs from the one in {path.name}"])
    try:
        return manifest, network_from_onnx(data)
    except ConfigError as error:
        raise ConfigError([f"{onnx}: {problem}" for problem in error.problems]) from error


def write_model(path: Path, manifest: Manifest, network: Network) -> Path:
    """Write a model: the ONNX file under a name of its own, then the manifest that means it.

    A concurrent reader finds the old model or the new one. The old one's file is removed.

    Args:
        path: Of the manifest.
        manifest: Its ``onnx`` and ``sha256`` are replaced.
        network: What it has learned.

    Returns:
        The path of the manifest.
    """
    data = onnx_bytes(network)
    digest = hashlib.sha256(data).hexdigest()
    name = f"{manifest.name}-{digest[:12]}.onnx"
    text = manifest_text(replace(manifest, onnx=name, sha256=digest))
    old = read_manifest(path).onnx if path.exists() else name
    for target, content in ((path.with_name(name), data), (path, text.encode())):
        with open_atomically(target, sync=True) as file:
            file.write(content)
    if old != name:
        path.with_name(old).unlink(missing_ok=True)
    return path


def write_checkpoint(path: Path, state: TrainingState) -> None:
    """Write all that training has changed."""
    arrays = {f"weight.{name}": value for name, value in state.network.weights.items()}
    save_checkpoint(path, {}, {**arrays, "costs": np.array(state.costs, dtype=np.float64)})


def read_checkpoint(path: Path) -> TrainingState:
    """Read a checkpoint.

    Raises:
        InvalidInput: It is none.
    """
    with loaded_checkpoint(path, "--resume", "a new run") as (_, arrays):
        costs = arrays.pop("costs").astype(np.float64)
        if costs.ndim != 1 or not np.isfinite(costs).all():
            raise ValueError("its costs are no finite numbers")
        weights = {
            name.removeprefix("weight."): array.astype(np.float64) for name, array in arrays.items()
        }
        return TrainingState(network=Network(weights=weights), costs=costs.tolist())
