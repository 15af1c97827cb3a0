"""Trains scoring functions of queued jobs on windows of logs: by evolution or by policy gradient.

Each generation judges candidates on a few windows that are drawn anew. What counts is the mean over
windows of ln(mean bounded slowdown / that of the best simple rule on the window). Now and then the
present function is judged on validation windows, which nothing is trained on; the best by them is
the result. All draws depend on the seed and the generation alone, so that a training that was
killed goes on from its checkpoint as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.sim.kernel.queue_inputs import INPUTS
from edgeyard.scheduler.training.windows import (
    Window,
    best_rule,
    sampled_ends,
    score_ends,
    slowdowns,
    weight_count,
)

Floats = NDArray[np.float64]

_MIN_SLOWDOWN = 1.5
"""Windows whose best rule is below it teach nothing: hardly anybody waits."""
_CANDIDATES = 24
_BATCH = 8
"""Windows a generation."""
_SAMPLES = 3
"""Draws of each window in a step of the policy gradient."""
_TEMPERATURE = 0.05
_STEP = 0.01
_VALIDATE_EVERY = 5
_START_SIGMA = 0.3
_EPS = 1e-8
_FORMAT = 1


class Method(StrEnum):
    """Method that finds the weights of a queue policy."""

    EVOLUTION = "evolution"  # CMA-ES; Hansen, "The CMA evolution strategy: a tutorial", 2016
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of the learning curve.

    Attributes:
        generation: How many have been done.
        training: Mean ln ratio of the generation's candidates on its windows.
        validation: Mean ln ratio of the present function on the validation windows.
    """

    generation: int
    training: float
    validation: float


@dataclass(kw_only=True)
class Progress:
    """The state of a training.

    Attributes:
        generation: How many have been done.
        curve: Of the validations so far.
        best: The weights that were best on the validation windows.
        weights: The present ones.
        state: Of the method: arrays by name.
    """

    generation: int
    curve: list[Point]
    best: Floats
    weights: Floats
    state: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def best_validation(self) -> float:
        """Mean ln ratio of the best weights on the validation windows."""
        return min((point.validation for point in self.curve), default=float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """Windows with what the best simple rule reaches on each."""

    windows: Sequence[Window]
    best: Floats


def lesson_of(windows: Sequence[Window]) -> Lesson:
    """Return the windows from which something can be learned."""
    best = best_rule(windows).min(axis=1) if windows else np.zeros(0)
    kept = np.flatnonzero(best >= _MIN_SLOWDOWN).tolist()
    return Lesson(windows=[windows[place] for place in kept], best=best[kept])


def split(windows: Sequence[tuple[Sequence[Window], Sequence[Window]]]) -> tuple[Lesson, Lesson]:
    """Return what is learned from, and by what is chosen, of several logs.

    Args:
        windows: Of each log, those for training and those for validation.

    Raises:
        InvalidInput: Too few of them have jobs that wait.
    """
    training = lesson_of([each for own, _ in windows for each in own])
    validation = lesson_of([each for _, own in windows for each in own])
    if not training.windows or not validation.windows:
        raise InvalidInput.at(
            "--log",
            "too few jobs wait outside of the judged sequences",
            "a longer or busier log, or several logs",
        )
    return training, validation


def digest_of(*lessons: Lesson) -> str:
    """Return a digest of all windows: a checkpoint belongs to them."""
    digest = hashlib.sha256()
    for lesson in lessons:
        for window in lesson.windows:
            digest.update(f"{window.processors}\n".encode())
            for column in (*window.jobs, window.users):
                digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def log_ratio(weights: Floats, hidden: int, lesson: Lesson, places: Sequence[int]) -> float:
    """Return the mean ln(mean bounded slowdown / the best rule's) on some of the windows."""
    found = [
        np.log(
            slowdowns(
                lesson.windows[place], score_ends(lesson.windows[place], weights, hidden)
            ).mean()
            / lesson.best[place]
        )
        for place in places
    ]
    return float(np.mean(found))


def train(
    settings: QueueTraining,
    training: Lesson,
    validation: Lesson,
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
    for score in steps(settings, training, progress):
        progress.generation += 1
        last = progress.generation == settings.generations
        if progress.generation % _VALIDATE_EVERY == 0 or last:
            every = range(len(validation.windows))
            found = log_ratio(progress.weights, settings.hidden, validation, every)
            if found < progress.best_validation:
                progress.best = progress.weights.copy()
            progress.curve.append(
                Point(generation=progress.generation, training=score, validation=found)
            )
            saved(progress)
        advanced(progress.generation / settings.generations)
        if last:
            break
    return progress


def start_weights(settings: QueueTraining) -> Floats:
    """Return the first weights: almost the shortest requested time first."""
    rng = np.random.default_rng([settings.seed, 0])
    weights: Floats = 0.1 * rng.standard_normal(weight_count(settings.hidden))
    weights[-INPUTS:] = 0.0
    weights[-INPUTS] = 1.0
    return weights


def _batch(settings: QueueTraining, generation: int, lesson: Lesson) -> list[int]:
    rng = np.random.default_rng([settings.seed, 1, generation])
    count = min(_BATCH, len(lesson.windows))
    return sorted(rng.choice(len(lesson.windows), count, replace=False).tolist())


def _evolve(settings: QueueTraining, lesson: Lesson, progress: Progress) -> Iterator[float]:
    """Yield the mean score of each generation of CMA-ES; the weights become its mean."""
    import cma

    if "evolution" in progress.state:
        strategy = pickle.loads(progress.state["evolution"].tobytes())
    else:
        options = {
            "popsize": _CANDIDATES,
            "verbose": -9,
            "maxiter": 10**9,
            "seed": 1,
            "randn": _normal,
        }
        strategy = cma.CMAEvolutionStrategy(progress.weights, _START_SIGMA, options)
    while True:
        np.random.seed((settings.seed * 1_000_003 + progress.generation) % 2**32)
        candidates = strategy.ask()
        places = _batch(settings, progress.generation, lesson)
        scores = [log_ratio(each, settings.hidden, lesson, places) for each in candidates]
        strategy.tell(candidates, scores)
        progress.weights = np.array(strategy.result.xfavorite, dtype=np.float64)
        progress.state["evolution"] = np.frombuffer(strategy.pickle_dumps(), dtype=np.uint8)
        yield float(np.mean(scores))


def _normal(*shape: int) -> Floats:
    """Draw normal numbers from NumPy's generator; a checkpoint names this function.

    The library's own default would store a copy of the generator, which no seed reaches.
    """
    return np.random.randn(*shape)


def _climb(settings: QueueTraining, lesson: Lesson, progress: Progress) -> Iterator[float]:
    """Yield the mean score of each step of the policy gradient."""
    state = progress.state
    if not state:
        state["first"], state["second"] = np.zeros((2, len(progress.weights)))
    while True:
        step = progress.generation
        gradients, scores = [], []
        for place in _batch(settings, step, lesson):
            window = lesson.windows[place]
            drawn = []
            for number in range(_SAMPLES):
                seed = (settings.seed * 7919 + step * 101 + place * 10 + number) % 2**31
                end, gradient = sampled_ends(
                    window, progress.weights, settings.hidden, _TEMPERATURE, seed
                )
                ratio = slowdowns(window, end).mean() / lesson.best[place]
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


def save_progress(path: Path, progress: Progress, settings: QueueTraining, data: str) -> None:
    """Write a checkpoint.

    Args:
        path: Replaced as a whole, or not at all.
        progress: Where the training is.
        settings: Of the training.
        data: Digest of the windows.
    """
    header = {
        "format": _FORMAT,
        "settings": asdict(settings),
        "data": data,
        "generation": progress.generation,
        "curve": [asdict(point) for point in progress.curve],
    }
    buffer = io.BytesIO()
    np.savez(
        buffer,
        header=np.array(json.dumps(header)),
        best=progress.best,
        weights=progress.weights,
        **{f"state_{name}": array for name, array in progress.state.items()},  # type: ignore[arg-type]
    )
    with open_atomically(path, sync=True) as file:
        file.write(buffer.getvalue())


def load_progress(path: Path, settings: QueueTraining, data: str) -> Progress:
    """Read a checkpoint of the same training.

    The state of CMA-ES is a pickle, which can run code: load no checkpoint of a stranger.

    Raises:
        InvalidInput: It is no checkpoint, or one of another training.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = {name: file[name] for name in file.files if name != "header"}
        found = {key: header[key] for key in ("format", "settings", "data")}
        curve = [Point(**point) for point in header["curve"]]
        generation = int(header["generation"])
        best, weights = arrays.pop("best"), arrays.pop("weights")
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise InvalidInput.at(
            "--out", f"{path} is not a checkpoint of a training: {error}", "another folder"
        ) from error
    wanted = {"format": _FORMAT, "settings": asdict(settings), "data": data}
    if _without_length(found) != _without_length(wanted) or generation > settings.generations:
        raise InvalidInput.at(
            "--out",
            f"{path} belongs to a training with other logs or settings",
            "the same logs and settings, or another folder",
        )
    return Progress(
        generation=generation,
        curve=curve,
        best=best,
        weights=weights,
        state={name.removeprefix("state_"): array for name, array in arrays.items()},
    )


def _without_length(header: dict[str, Any]) -> dict[str, Any]:
    """Return what must not differ: a training may go on for more generations than before."""
    return {
        **header,
        "settings": {k: v for k, v in header["settings"].items() if k != "generations"},
    }
