"""Progress of a training by generations, and its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.training.checkpoint import loaded_checkpoint, save_checkpoint

Floats = NDArray[np.float64]

_FORMAT = 3


class TrainingSettings(Protocol):
    """A frozen data class with the settings of a training."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def generations(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of the learning curve.

    Attributes:
        generation: How many have been done.
        training: Mean loss of the generation's candidates.
        validation: Loss of the present function on what validates it.
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
        best: The weights that were best at a validation.
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
        """The least loss at a validation."""
        return min((point.validation for point in self.curve), default=float("inf"))


def train_generations(
    progress: Progress,
    losses: Iterator[float],
    *,
    generations: int,
    validate_every: int,
    validate: Callable[[Floats], float],
    saved: Callable[[Progress], None],
    advanced: Callable[[float], None],
) -> Progress:
    """Train until all generations have been done; return the progress.

    Args:
        progress: Where the training is, changed in place.
        losses: Changes the weights by one generation at each step, and yields its mean loss.
        generations: How many there are.
        validate_every: Generations from one validation to the next; the last one is validated, too.
        validate: Returns the loss of weights on what validates them.
        saved: Called after each validation.
        advanced: Called after each generation with the share that is done.
    """
    while progress.generation < generations:
        loss = next(losses)
        progress.generation += 1
        if progress.generation % validate_every == 0 or progress.generation == generations:
            found = validate(progress.weights)
            if found < progress.best_validation:
                progress.best = progress.weights.copy()
            progress.curve.append(
                Point(generation=progress.generation, training=loss, validation=found)
            )
            saved(progress)
        advanced(progress.generation / generations)
    return progress


def save_progress(path: Path, progress: Progress, settings: TrainingSettings, data: str) -> None:
    """Write a checkpoint.

    Args:
        path: Replaced as a whole, or not at all.
        progress: Where the training is.
        settings: Of the training.
        data: Digest of what is learned from.
    """
    header = {
        "format": _FORMAT,
        "settings": asdict(settings),
        "data": data,
        "generation": progress.generation,
        "curve": [asdict(point) for point in progress.curve],
    }
    state = {f"state_{name}": array for name, array in progress.state.items()}
    save_checkpoint(path, header, {"best": progress.best, "weights": progress.weights, **state})


def load_progress(path: Path, settings: TrainingSettings, data: str) -> Progress:
    """Read a checkpoint of the same training.

    Raises:
        InvalidInput: It is no checkpoint, or one of another training.
    """
    with loaded_checkpoint(path) as (header, arrays):
        found = {key: header[key] for key in ("format", "settings", "data")}
        curve = [Point(**point) for point in header["curve"]]
        generation = int(header["generation"])
        best, weights = arrays.pop("best"), arrays.pop("weights")
    known = json.loads(json.dumps(asdict(settings)))  # tuples as lists
    wanted = {"format": _FORMAT, "settings": known, "data": data}
    if _without_length(found) != _without_length(wanted) or generation > settings.generations:
        raise InvalidInput.at(
            "--out",
            f"{path} belongs to a training with other data or settings",
            "the same data and settings, or another folder",
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
