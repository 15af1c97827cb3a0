"""Trains scoring functions of queued jobs on windows of logs: by evolution or by policy gradient.

Each generation judges candidates on a few windows that are drawn anew. What counts is the mean over
windows of ln(mean bounded slowdown / that of the best simple rule on the window). Now and then the
present function is judged on validation windows, which nothing is trained on; the best by them is
the result. All draws depend on the seed and the generation alone, so that a training that was
killed goes on from its checkpoint as if nothing had happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.kernel.queue_inputs import INPUTS
from edgeyard.training.evolution import evolve
from edgeyard.training.progress import Progress, train_generations
from edgeyard.training.windows import (
    Window,
    best_rule,
    sampled_ends,
    score_ends,
    slowdowns,
    weight_count,
)

Floats = NDArray[np.float64]

_MIN_SLOWDOWN = 1.5
"""Windows whose best rule is below it are left out, because hardly any job waits in them."""
_CANDIDATES = 24
_BATCH = 8
"""Windows per generation."""
_SAMPLES = 3
"""Draws of each window in a step of the policy gradient."""
_TEMPERATURE = 0.05
_STEP = 0.01
_VALIDATE_EVERY = 5
_START_SIGMA = 0.3
_EPS = 1e-8


class Method(StrEnum):
    """Method that finds the weights of a queue policy."""

    EVOLUTION = "evolution"  # CMA-ES: `edgeyard.training.evolution`
    GRADIENT = "gradient"  # REINFORCE with a baseline by window, Adam


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTraining:
    """The settings of a training.

    Attributes:
        method: See `Method`.
        seed: Of all draws.
        generations: How many there are.
        hidden: Units of the scoring function.
    """

    method: Method = Method.EVOLUTION
    seed: int = 0
    generations: int = 150
    hidden: int = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowSet:
    """Windows with the mean bounded slowdown of the best simple rule on each."""

    windows: Sequence[Window]
    best: Floats


def window_set_of(windows: Sequence[Window]) -> WindowSet:
    """Return the windows from which something can be learned."""
    best = best_rule(windows).min(axis=1) if windows else np.zeros(0)
    kept = np.flatnonzero(best >= _MIN_SLOWDOWN).tolist()
    return WindowSet(windows=[windows[place] for place in kept], best=best[kept])


def split(
    windows: Sequence[tuple[Sequence[Window], Sequence[Window]]],
) -> tuple[WindowSet, WindowSet]:
    """Return the windows of several logs for training and for validation.

    Args:
        windows: Of each log, those for training and those for validation.

    Raises:
        InvalidInput: Too few of them have jobs that wait.
    """
    training = window_set_of([each for own, _ in windows for each in own])
    validation = window_set_of([each for _, own in windows for each in own])
    if not training.windows or not validation.windows:
        raise InvalidInput.at(
            "--log",
            "too few jobs wait outside of the judged sequences",
            "a longer or busier log, or several logs",
        )
    return training, validation


def digest_of(*window_sets: WindowSet) -> str:
    """Return a digest of all windows; a checkpoint can only be continued with the same ones."""
    digest = hashlib.sha256()
    for window_set in window_sets:
        for window in window_set.windows:
            digest.update(f"{window.processors}\n".encode())
            for column in (*window.jobs, window.users):
                digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def log_ratio(weights: Floats, hidden: int, window_set: WindowSet, places: Sequence[int]) -> float:
    """Return the mean ln(mean bounded slowdown / the best rule's) on some of the windows."""
    found = [
        np.log(
            slowdowns(
                window_set.windows[place], score_ends(window_set.windows[place], weights, hidden)
            ).mean()
            / window_set.best[place]
        )
        for place in places
    ]
    return float(np.mean(found))


def train(
    settings: QueueTraining,
    training: WindowSet,
    validation: WindowSet,
    progress: Progress | None = None,
    saved: Callable[[Progress], None] = lambda progress: None,
    advanced: Callable[[float], None] = lambda share: None,
) -> Progress:
    """Train a scoring function; return the progress at the end.

    Args:
        settings: See `QueueTraining`.
        training: What it learns from.
        validation: By which the best weights are chosen.
        progress: Where an earlier call with the same settings and windows stopped.
        saved: Called after each validation.
        advanced: Called after each generation with the share that is done.
    """
    if progress is None:
        start = start_weights(settings)
        progress = Progress(generation=0, curve=[], best=start, weights=start)
    steps = _evolve if settings.method is Method.EVOLUTION else _climb
    every = range(len(validation.windows))
    return train_generations(
        progress,
        steps(settings, training, progress),
        generations=settings.generations,
        validate_every=_VALIDATE_EVERY,
        validate=lambda weights: log_ratio(weights, settings.hidden, validation, every),
        saved=saved,
        advanced=advanced,
    )


def start_weights(settings: QueueTraining) -> Floats:
    """Return the first weights: almost the shortest requested time first."""
    rng = np.random.default_rng([settings.seed, 0])
    weights: Floats = 0.1 * rng.standard_normal(weight_count(settings.hidden))
    weights[-INPUTS:] = 0.0
    weights[-INPUTS] = 1.0
    return weights


def _batch(settings: QueueTraining, generation: int, window_set: WindowSet) -> list[int]:
    rng = np.random.default_rng([settings.seed, 1, generation])
    count = min(_BATCH, len(window_set.windows))
    return sorted(rng.choice(len(window_set.windows), count, replace=False).tolist())


def _evolve(settings: QueueTraining, window_set: WindowSet, progress: Progress) -> Iterator[float]:
    """Return the mean score of each generation of CMA-ES."""

    def judge(candidates: Sequence[Floats]) -> list[float]:
        places = _batch(settings, progress.generation, window_set)
        return [log_ratio(each, settings.hidden, window_set, places) for each in candidates]

    return evolve(progress, judge, seed=settings.seed, candidates=_CANDIDATES, sigma=_START_SIGMA)


def _sample_seed(*key: int) -> int:
    """Return a seed of the compiled loops' own generator; different keys give independent ones."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def _climb(settings: QueueTraining, window_set: WindowSet, progress: Progress) -> Iterator[float]:
    """Yield the mean score of each step of the policy gradient."""
    state = progress.state
    if not state:
        state["first"], state["second"] = np.zeros((2, len(progress.weights)))
    while True:
        step = progress.generation
        gradients, scores = [], []
        for place in _batch(settings, step, window_set):
            window = window_set.windows[place]
            drawn = []
            for number in range(_SAMPLES):
                seed = _sample_seed(settings.seed, step, place, number)
                end, gradient = sampled_ends(
                    window, progress.weights, settings.hidden, _TEMPERATURE, seed
                )
                ratio = slowdowns(window, end).mean() / window_set.best[place]
                drawn.append((float(np.log(ratio)), gradient))
            mean = np.mean([score for score, _ in drawn])
            gradients += [(score - mean) * gradient for score, gradient in drawn]
            scores.append(mean)
        gradient = np.mean(gradients, axis=0)
        norm = float(np.linalg.norm(gradient))
        gradient = gradient / norm if norm > 0.0 else gradient
        first = 0.9 * state["first"] + 0.1 * gradient
        second = 0.999 * state["second"] + 0.001 * gradient**2
        state["first"], state["second"] = first, second
        unbiased = first / (1.0 - 0.9 ** (step + 1))
        scale = np.sqrt(second / (1.0 - 0.999 ** (step + 1))) + _EPS
        progress.weights = progress.weights - _STEP * unbiased / scale
        yield float(np.mean(scores))
