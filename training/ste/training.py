"""Training of a registered model by the rewards of step 12: policy gradient in NumPy.

The model gives a number z to each eligible node of a job. While it is trained, it explores: its
favourite is a sample of ``softmax(z)`` over the nodes of a job's class (Gumbel noise, seeded). It
decides alone; the other schedulers are asked and are the evaluator's references. Two rewards say
how good a choice c was, each r in [0, 1]:

* of the evaluator, at once: the references' score of its favourites;
* of the outcome, when the job has ended: as in `edgeyard.scheduler.engine.rewards`.

After each episode the weights climb ``sum A(r) log softmax(z)[c]``, where ``A`` is the reward less
the mean of its kind, over its deviation (REINFORCE with a baseline: Williams, Machine Learning
1992), by Adam. What is written is an ordinary model with its manifest, checked and run like any
other.
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
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class
from edgeyard.scheduler.framework.protocols import Answer, Scorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Plugins, WeightedScorer
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.scheduler.learning.check import CHUNK
from edgeyard.scheduler.learning.features import Encoder, Input
from edgeyard.scheduler.learning.manifest import Manifest, Output, manifest_text
from edgeyard.scheduler.learning.model import read_manifest
from edgeyard.training.checkpoint import loaded_checkpoint, save_checkpoint
from edgeyard.training.ste.network import (
    Array,
    Network,
    network_from_onnx,
    onnx_bytes,
    slopes,
    start,
)

RATE = 0.03
"""Step of Adam."""

MINIBATCH = 64
"""Choices of one step."""

DECAY = 1e-3
"""Weights are drawn to 0 by this share of the step: scores of the sigmoid stay apart."""

HIDDEN = 8

NEW_INPUTS = (
    Input(column="log_history_s", mean=4.0, scale=1.5),
    Input(column="log_history_s?"),
    Input(column="history_spread", mean=0.2, scale=0.3),
    Input(column="failure_rate", mean=0.05, scale=0.1),
    Input(column="log_board_cores", mean=2.0, scale=1.0),
    Input(column="log_board_ram_bytes", mean=22.0, scale=1.0),
    Input(column="host_cpu", mean=0.5, scale=0.3),
    Input(column="host_busy", mean=0.5, scale=0.3),
)
"""Columns of a new model."""


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """A choice among the nodes of one class.

    Attributes:
        x: Shape (nodes, inputs).
        chosen: Row of ``x``.
        weight: How much it counts.
    """

    x: Array
    chosen: int
    weight: float = 1.0


@dataclass(slots=True)
class TrainingState:
    """All that training changes: what a checkpoint holds.

    Attributes:
        means: Means of Adam, by weight.
        squares: Squares of Adam, by weight.
        steps: Steps of Adam.
        episodes: Finished ones.
    """

    network: Network
    means: dict[str, Array] = field(default_factory=dict)
    squares: dict[str, Array] = field(default_factory=dict)
    steps: int = 0
    episodes: int = 0


class PolicyGradient:
    """Trains one model by policy gradients. Not thread-safe: the scheduler controller locks it."""

    def __init__(
        self,
        manifest: Manifest,
        state: TrainingState,
        *,
        frozen: Network | None = None,
        load: Callable[[Path], Scorer] | None = None,
    ) -> None:
        """Take a model.

        Args:
            manifest: As it was registered.
            state: What it has learned so far.
            frozen: The model before its training, for the judgement.
            load: Loads a model as a scorer, for the judgement.
        """
        self._manifest = manifest
        self._frozen, self._load = frozen, load
        self._judged: tuple[str, int, Scorer] | None = None
        self.state = state
        self._scorer = _ExploringScorer(manifest, state.network)
        self._waiting: dict[str, _Choice] = {}
        self._taken: dict[str, list[tuple[_Choice, float]]] = {"evaluator": [], "outcome": []}

    @property
    def name(self) -> str:
        return self._manifest.name

    @property
    def manifest(self) -> Manifest:
        """Manifest of the registered model."""
        return self._manifest

    def exploring_plugins(self, plugins: Plugins) -> Plugins:
        """See `Trainer.exploring_plugins`: the model decides alone, the others are rated."""
        others = [role for role in plugins.scorers if role.scorer.name != self.name]
        return replace(
            plugins,
            scorers=(
                WeightedScorer(scorer=self._scorer),
                *(replace(role, weight=0.0) for role in others),
            ),
        )

    def evaluated_plugins(self, plugins: Plugins, state: str) -> Plugins:
        networks = {"trained": self.state.network, "frozen": self._frozen}
        network = networks.get(state)
        if network is None or self._load is None:
            raise InvalidInput.at("/judged", f"is {state!r}", "trained or frozen")
        if self._judged is None or self._judged[:2] != (state, self.state.steps):
            with tempfile.TemporaryDirectory(prefix="edgeyard-ste-") as folder:
                path = write_model(Path(folder) / f"{self.name}.toml", self._manifest, network)
                self._judged = state, self.state.steps, self._load(path)
        return replace(plugins, scorers=(WeightedScorer(scorer=self._judged[2]),), evaluator=None)

    def add_rewards(self, rewards: Mapping[str, float]) -> None:
        request = self._scorer.last
        if request is None or self.name not in rewards:
            return
        jobs, pairs = request.jobs, request.pairs
        counted = [row for row in pairs.filled.tolist() if jobs[row]]
        total = max(sum(int(jobs[row]) for row in counted), 1)
        for row in counted:
            its = pairs.of(row)
            choice = _Choice(
                request.x[its], int(np.argmax(request.scores[its])), float(jobs[row]) / total
            )
            self._take("evaluator", choice, rewards[self.name])

    def add_decisions(self, result: CycleResult) -> None:
        decided, request = result.decided, self._scorer.last
        if request is None:
            return
        batch, pairs = decided.batch, decided.scores.pairs
        for each in result.placements:
            job = decided.row_of_id[each.benchmark_id]
            row = int(batch.class_of_job[job])
            pair = pairs.at(row, int(decided.assignment.board_of_job[job]))
            if pair is not None:
                its = pairs.of(row)
                self._waiting[each.benchmark_id] = _Choice(request.x[its], pair - int(its.start))

    def add_outcome(self, job_id: str, reward: float) -> None:
        choice = self._waiting.pop(job_id, None)
        if choice is not None:
            self._take("outcome", choice, reward)

    def finish_episode(self) -> Mapping[str, float]:
        figures: dict[str, float] = {}
        choices: list[tuple[_Choice, float]] = []
        for kind, taken in self._taken.items():
            found = np.array([reward for _, reward in taken])
            if not len(found):
                continue
            figures[f"{kind}_reward"] = float(found.mean())
            deviation = float(found.std())
            if deviation > 1e-9:
                choices += [
                    (choice, choice.weight * (reward - float(found.mean())) / deviation)
                    for choice, reward in taken
                ]
            taken.clear()
        self._waiting.clear()
        rng = stream(self.state.episodes, "minibatches")
        order = rng.permutation(len(choices))
        for first in range(0, len(order), MINIBATCH):
            self._climb([choices[at] for at in order[first : first + MINIBATCH].tolist()])
        self.state.episodes += 1
        figures["choices"] = float(len(choices))
        return figures

    def _take(self, kind: str, choice: _Choice, reward: float) -> None:
        if len(choice.x) > 1:  # there was something to choose
            self._taken[kind].append((choice, reward))

    def _climb(self, choices: list[tuple[_Choice, float]]) -> None:
        state = self.state
        x = np.concatenate([choice.x for choice, _ in choices])
        z = state.network.raw(x)[:, 0]
        out = np.zeros((len(x), 1))
        at = 0
        for choice, advantage in choices:
            part = slice(at, at + len(choice.x))
            chances = np.exp(z[part] - z[part].max())
            chances /= chances.sum()
            out[part, 0] = -advantage * chances
            out[at + choice.chosen, 0] += advantage
            at += len(choice.x)
        state.steps += 1
        for name, slope in slopes(state.network, x, out / len(choices)).items():
            mean = state.means.setdefault(name, np.zeros_like(slope))
            square = state.squares.setdefault(name, np.zeros_like(slope))
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope * slope - square)
            step = (mean / (1 - 0.9**state.steps)) / (
                np.sqrt(square / (1 - 0.99**state.steps)) + 1e-8
            )
            state.network.weights[name] += RATE * (step - DECAY * state.network.weights[name])


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """What the model was asked, and its answer.

    Attributes:
        x: Shape (pairs, inputs).
        scores: Shape (pairs,).
        jobs: How many jobs each class has.
    """

    x: Array
    scores: NDArray[np.float32]
    pairs: Pairs
    jobs: NDArray[np.intp]


class _ExploringScorer:
    """The model as a scorer that explores."""

    kind = ScorerKind.MODEL
    unit = ScoreUnit.PREFERENCE

    def __init__(self, manifest: Manifest, network: Network) -> None:
        self.name, self.objective = manifest.name, manifest.objective
        self._inputs, self._network = manifest.inputs, network
        self.last: _Answer | None = None

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """See `DetailedScorer.answer`; the facts are the shape of the tensor."""
        facts = {"rows": float(len(pairs)), "columns": float(len(self._inputs))}
        return Answer(scores=self.score(batch, pairs), facts=facts)

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        chunks = list(Encoder(batch, pairs.rows, pairs.boards, self._inputs).chunks(CHUNK))
        x = np.concatenate(chunks) if chunks else np.zeros((0, len(self._inputs)), np.float32)
        noise = stream(batch.seed, "explore", self.name).gumbel(size=len(pairs))
        z = self._network.raw(x.astype(np.float64))[:, 0] + noise
        low = by_class(pairs, z, np.fmin, 0.0)[pairs.rows]
        span = by_class(pairs, z, np.fmax, 1.0)[pairs.rows] - low
        scores = np.where(span > 0, (z - low) / np.where(span > 0, span, 1.0), 0.5)
        found = np.clip(scores, 0.0, 1.0).astype(np.float32)
        jobs = np.bincount(batch.class_of_job, minlength=batch.shape[0])
        self.last = _Answer(x.astype(np.float64), found, pairs, jobs)
        return found


def new_model(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Write a model that has learned nothing yet; return its manifest's path.

    Raises:
        ConfigError: There is a model of this name already.
        InvalidInput: It is no name of a model.
    """
    path = folder / f"{name}.toml"
    if path.exists():
        raise ConfigError([f"{path} already exists: leave --new out to train it further"])
    network = start(len(NEW_INPUTS), 1, HIDDEN, seed)
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
    arrays = {
        **{f"weight.{name}": value for name, value in state.network.weights.items()},
        **{f"mean.{name}": value for name, value in state.means.items()},
        **{f"square.{name}": value for name, value in state.squares.items()},
    }
    save_checkpoint(path, {"steps": state.steps, "episodes": state.episodes}, arrays)


def read_checkpoint(path: Path) -> TrainingState:
    """Read a checkpoint.

    Raises:
        InvalidInput: It is none.
    """
    found: dict[str, dict[str, Array]] = {"weight": {}, "mean": {}, "square": {}}
    with loaded_checkpoint(path, "--resume", "a new run") as (header, arrays):
        for key, array in arrays.items():
            kind, _, name = key.partition(".")
            found[kind][name] = array.astype(np.float64)
        return TrainingState(
            network=Network(weights=found["weight"]),
            means=found["mean"],
            squares=found["square"],
            steps=int(header["steps"]),
            episodes=int(header["episodes"]),
        )
