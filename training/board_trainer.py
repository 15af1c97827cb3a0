"""Trains a scorer of boards, and with it a queue policy, in simulated labs, by evolution.

The scorer states ln of what a run on a board costs, in seconds::

    ln cost = ln of the run time that the history expects + s + w x + relu(x W1 + b1) W2

where x are the columns `INPUTS`, as any model of a manifest reads them. It is the only scorer of
seconds in a policy that plans by expected cost, so that it decides which free board is taken, and
whether to wait for a busy one. At the start of a training the cost is the expected time of the run
and, after a failure, of another one.

The queue policy is one of Edgeyard's, or is evolved together with the scorer (`LEARNED_QUEUE`): a
scoring function of queued benchmarks, as `edgeyard.training.windows.score` states it. It
starts with the order of ``shortest_first``.

Candidates are ONNX models with manifests, asked like any user's model; all that happens is decided
by ``decide()``, whose filters say which boards are possible. What counts is the mean over labs of::

    ln(mean completion time / that of default) + (missed deadlines - those of default) / benchmarks

where ``default`` is the policy of that name, with the same arrivals, run times and faults. The
weights that are best on validation labs, which nothing is trained on, are the result.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tomli_w
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.framework.policy import Policy, load_policy, parse_policy, read_policy
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.kernel.queue_inputs import NAMES
from edgeyard.scheduler.learning.features import Input
from edgeyard.scheduler.learning.model import Model, unchecked_model
from edgeyard.scheduler.learning.network import Network
from edgeyard.scheduler.learning.queue_model import QueueModel, unchecked_queue_model
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import Scenario, scenario_hash
from edgeyard.training import windows
from edgeyard.training.board_labs import draw_labs
from edgeyard.training.evolution import evolve
from edgeyard.training.export import board_model, queue_model
from edgeyard.training.progress import Point, Progress

Floats = NDArray[np.float64]
LabFigures = tuple[float, int, int]
"""Mean completion in seconds, missed deadlines, and benchmarks of a simulated lab."""

RegistryOf = Callable[[Model | None, QueueModel | None], Registry]
"""Returns the plugins that there are, with a model as a scorer and one as a queue policy."""

LEARNED_QUEUE = "learned"
"""As the queue policy of a training: one is evolved."""

INPUTS = (
    Input(column="log_history_s", mean=5.5, scale=1.5),
    Input(column="history_spread", mean=0.3, scale=0.3),
    Input(column="failure_rate", mean=0.0, scale=0.5),
    Input(column="log_family_queue", mean=0.0, scale=0.7),
)
"""Columns that the scorer reads."""

_EVOLVED = ("W1", "b1", "W2", "S")
_START_SIGMA = 0.15
_VALIDATE_EVERY = 2
_MODEL = "candidate"
_SLOW_S = 60.0
"""Time for an answer in training: on a busy machine a candidate must not be left out."""
_REFUSED: LabFigures = (1e9, 0, 1)
"""Figures of a candidate whose answers `decide` refuses, because they can't be seconds."""
_VALIDATION = 10_000
"""Offset of the seed of validation labs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTraining:
    """The settings of a training.

    Attributes:
        seed: Of all draws, labs included.
        generations: How many there are.
        candidates: In each generation.
        hidden: Units of the network.
        labs: From which is learned.
        batch: Of these in each generation.
        validation_labs: By which the best weights are chosen.
        jobs: Mean number of benchmarks in a lab.
        queue_policy: That orders the queue; `LEARNED_QUEUE`: one is evolved, with ``hidden`` units.
    """

    seed: int = 0
    generations: int = 20
    candidates: int = 8
    hidden: int = 1
    labs: int = 16
    batch: int = 4
    validation_labs: int = 8
    jobs: int = 60
    queue_policy: str = "priority_age"


@dataclass(frozen=True, slots=True)
class LabTask:
    """A lab to simulate, under the policy ``default`` or under a candidate.

    Attributes:
        registry_of: See `RegistryOf`; a function that can be pickled where processes run tasks.
        settings: Of the training; None: the policy ``default``.
        weights: Of the candidate.
    """

    lab: Scenario
    registry_of: RegistryOf
    settings: BoardTraining | None = None
    weights: tuple[float, ...] = ()


RunAll = Callable[[Callable[[LabTask], LabFigures], Iterable[LabTask]], Iterable[LabFigures]]


def run_lab(task: LabTask) -> LabFigures:
    """Simulate a lab."""
    lab, settings = task.lab, task.settings
    if settings is None:
        policy, known = load_policy("default"), task.registry_of(None, None)
    else:
        weights, hidden = np.array(task.weights), settings.hidden
        model = unchecked_model(*board_model(_MODEL, network_of(weights, hidden), INPUTS, ""))
        queue = None
        if settings.queue_policy == LEARNED_QUEUE:
            name = queue_name(_MODEL, settings)
            queue = unchecked_queue_model(
                *queue_model(name, queue_weights(weights, hidden), hidden, "")
            )
        policy = board_policy(_MODEL, queue_name(_MODEL, settings), _SLOW_S)
        known = task.registry_of(model, queue)
    try:
        run = simulate_lab(lab, policy, known.resolve(policy), seed=lab.seed)
    except InvalidInput:
        if settings is None:
            raise
        return _REFUSED
    found = measured(run).metrics
    return found.figures["turnaround_s"].interval.mean, found.deadline_misses, found.jobs


def weight_count(settings: BoardTraining) -> int:
    """Return how many weights are evolved: the scorer's, then the queue policy's."""
    count = _scorer_weights(settings.hidden)
    if settings.queue_policy == LEARNED_QUEUE:
        count += windows.weight_count(settings.hidden)
    return count


def queue_weights(weights: Floats, hidden: int) -> Floats:
    """Return the part of a vector of weights that is the queue policy's."""
    return weights[_scorer_weights(hidden) :]


def queue_name(model: str, settings: BoardTraining) -> str:
    """Return the name of the queue policy of a trained policy.

    Args:
        model: Name of the scorer.
        settings: Of the training.
    """
    return f"{model}_queue" if settings.queue_policy == LEARNED_QUEUE else settings.queue_policy


def network_of(weights: Floats, hidden: int) -> Network:
    """Return the network of the scorer's weights, the fixed part included."""
    found: dict[str, Floats] = {}
    at = 0
    for name, shape in _shapes(hidden).items():
        size = int(np.prod(shape))
        found[name] = np.array(weights[at : at + size], dtype=np.float64).reshape(shape)
        at += size
    history = INPUTS[0]
    found["S"][0, 0] += history.scale  # undoes the normalising of the history's logarithm
    found["b2"] = np.array([history.mean])
    return Network(weights=found)


def start_weights(settings: BoardTraining) -> Floats:
    """Return the first weights: the expected time, and another run after a failure.

    Those of a queue policy are the order of ``shortest_first``: the logarithm of the expected time
    alone counts.
    """
    rng = np.random.default_rng([settings.seed, 0])
    network = {name: np.zeros(shape) for name, shape in _shapes(settings.hidden).items()}
    network["W1"] = rng.normal(0.0, 0.5, network["W1"].shape)
    network["S"][2, 0] = INPUTS[2].scale
    parts = [network[name].ravel() for name in _EVOLVED]
    if settings.queue_policy == LEARNED_QUEUE:
        queue = np.zeros(windows.weight_count(settings.hidden))
        layer = (len(NAMES) + 1) * settings.hidden
        queue[:layer] = rng.normal(0.0, 0.5, layer)
        queue[NAMES.index("log_requested_s") - len(NAMES)] = 1.0  # of the linear part, the last
        parts.append(queue)
    return np.concatenate(parts)


def board_policy(model: str, queue_policy: str, budget_s: float = 1.0) -> Policy:
    """Return the policy of `board_policy_text`.

    Args:
        model: Name of the scorer.
        queue_policy: That orders the queue.
        budget_s: Time for an answer of the scorer.
    """
    policy = parse_policy(board_policy_text(model, queue_policy))
    first, *others = policy.scorers
    return replace(policy, scorers=(replace(first, budget_s=budget_s), *others))


def board_policy_text(model: str, queue_policy: str) -> str:
    """Return the TOML of the policy ``default`` with a model by whose costs it plans.

    Args:
        model: Name of the scorer, which replaces those of seconds and failures.
        queue_policy: That orders the queue.
    """
    policy = tomllib.loads(read_policy("default"))
    policy |= {"name": model, "queue_policy": queue_policy}
    policy["assignment"]["planner"] = "expected_cost"
    kept = [each for each in policy["scorers"] if each["name"] not in ("fastest", "reliable")]
    policy["scorers"] = [{"name": model, "weight": 1.0}, *kept]
    head = "# The policy default with a trained scorer, by whose costs it plans.\n"
    return head + tomli_w.dumps(policy)


class LabSet:
    """Labs, and what the policy ``default`` reaches in each."""

    def __init__(
        self, labs: Sequence[Scenario], registry_of: RegistryOf, run_all: RunAll = map
    ) -> None:
        """Simulate nothing yet.

        Args:
            registry_of: See `RegistryOf`.
            run_all: ``map``, or that of an executor, which runs several simulations at a time.
        """
        self.labs = labs
        self._registry_of, self._run_all = registry_of, run_all
        self._default: dict[int, LabFigures] = {}

    def losses(
        self, candidates: Sequence[Floats], settings: BoardTraining, places: Sequence[int]
    ) -> list[float]:
        """Return the mean loss of each vector of weights in some of the labs; see the module."""
        new = [place for place in places if place not in self._default]
        tasks = [LabTask(self.labs[place], self._registry_of) for place in new]
        tasks += [
            LabTask(self.labs[place], self._registry_of, settings, tuple(weights.tolist()))
            for weights in candidates
            for place in places
        ]
        found = list(self._run_all(run_lab, tasks))
        self._default.update(zip(new, found, strict=False))
        losses = np.array(found[len(new) :]).reshape(len(candidates), len(places), 3)
        default = np.array([self._default[place] for place in places])
        ratios = np.log(losses[..., 0] / default[:, 0])
        misses = (losses[..., 1] - default[:, 1]) / default[:, 2]
        return [float(each) for each in (ratios + misses).mean(axis=1)]


def lab_sets(
    settings: BoardTraining, registry_of: RegistryOf, run_all: RunAll = map
) -> tuple[LabSet, LabSet]:
    """Return the labs for training and for validation; see `LabSet` for the arguments."""
    training = draw_labs(settings.seed, settings.labs, settings.jobs)
    validation = draw_labs(settings.seed + _VALIDATION, settings.validation_labs, settings.jobs)
    return (
        LabSet(training, registry_of, run_all),
        LabSet(validation, registry_of, run_all),
    )


def digest_of(*lab_sets: LabSet) -> str:
    """Return a digest of all labs; a checkpoint can only be continued with the same ones."""
    digest = hashlib.sha256()
    for lab_set in lab_sets:
        for lab in lab_set.labs:
            digest.update(scenario_hash(lab).encode())
    return digest.hexdigest()


def train(
    settings: BoardTraining,
    training: LabSet,
    validation: LabSet,
    progress: Progress | None = None,
    saved: Callable[[Progress], None] = lambda progress: None,
    advanced: Callable[[float], None] = lambda share: None,
) -> Progress:
    """Train a scorer, and a queue policy where it is learned; return the progress at the end.

    Args:
        settings: See `BoardTraining`.
        training: What it learns from.
        validation: By which the best weights are chosen; the first ones are judged too.
        progress: Where an earlier call with the same settings stopped.
        saved: Called after each validation.
        advanced: Called after each generation with the share that is done.
    """
    if progress is None:
        start = start_weights(settings)
        progress = Progress(generation=0, curve=[], best=start, weights=start)
        _validate(settings, validation, progress, float("nan"))
        saved(progress)

    def judge(candidates: Sequence[Floats]) -> list[float]:
        return training.losses(candidates, settings, _batch(settings, progress.generation))

    generations = evolve(
        progress, judge, seed=settings.seed, candidates=settings.candidates, sigma=_START_SIGMA
    )
    while progress.generation < settings.generations:
        mean = next(generations)
        progress.generation += 1
        last = progress.generation == settings.generations
        if progress.generation % _VALIDATE_EVERY == 0 or last:
            _validate(settings, validation, progress, mean)
            saved(progress)
        advanced(progress.generation / settings.generations)
    return progress


def _validate(settings: BoardTraining, validation: LabSet, progress: Progress, mean: float) -> None:
    (found,) = validation.losses([progress.weights], settings, range(len(validation.labs)))
    if found < progress.best_validation:
        progress.best = progress.weights.copy()
    progress.curve.append(Point(generation=progress.generation, training=mean, validation=found))


def _batch(settings: BoardTraining, generation: int) -> list[int]:
    rng = np.random.default_rng([settings.seed, 1, generation])
    count = min(settings.batch, settings.labs)
    return sorted(rng.choice(settings.labs, count, replace=False).tolist())


def _scorer_weights(hidden: int) -> int:
    return sum(int(np.prod(shape)) for shape in _shapes(hidden).values())


def _shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    inputs = len(INPUTS)
    shapes = {"W1": (inputs, hidden), "b1": (hidden,), "W2": (hidden, 1), "S": (inputs, 1)}
    return {name: shapes[name] for name in _EVOLVED}
