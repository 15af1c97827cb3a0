"""Checkpoints of a training of the paper's agent, and its learning curve as CSV."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.training.a2c.settings import A2cTraining
from edgeyard.training.a2c.trainer import Point, Progress, Trainer
from edgeyard.training.checkpoint import loaded_checkpoint, save_checkpoint

_FORMAT = 2
_WORLD = "world_"
"""Prefix of the arrays of the environments' state."""


def curve_csv(curve: list[Point]) -> str:
    """Return the learning curve as CSV, a line for each generation."""
    lines = ["episodes,steps,updates,cpu_s,mean_return,mean_slowdown,validation_slowdown"]
    for each in curve:
        validation = "" if each.validation is None else f"{each.validation:.4f}"
        lines.append(
            f"{each.episodes},{each.steps},{each.updates},{each.cpu_s:.2f},"
            f"{each.mean_return:.4f},{each.mean_slowdown:.4f},{validation}"
        )
    return "\n".join(lines) + "\n"


def save_progress(path: Path, progress: Progress, settings: A2cTraining) -> None:
    """Write a checkpoint, which replaces the file as a whole or not at all."""
    header = {
        "format": _FORMAT,
        "settings": _comparable(settings),
        "curve": [asdict(point) for point in progress.curve],
        "rounds": progress.rounds,
    }
    leaves = jax.tree.leaves(_tree(progress))
    arrays = {f"array_{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
    arrays |= {_WORLD + name: array for name, array in progress.world.items()}
    save_checkpoint(path, header, arrays)


def load_progress(path: Path, trainer: Trainer) -> Progress:
    """Read a checkpoint of the same training, which may go on for more episodes than before.

    Raises:
        InvalidInput: It is no checkpoint, or one of another training.
    """
    settings = trainer.settings
    start = trainer.start()
    leaves, structure = jax.tree.flatten(_tree(start))
    with loaded_checkpoint(path) as (header, arrays):
        known = header["format"], header["settings"]
        curve, rounds = [Point(**point) for point in header["curve"]], int(header["rounds"])
        same = known == (_FORMAT, _comparable(settings))
        found = [arrays[f"array_{place}"] for place in range(len(leaves))] if same else []
        world = {name: arrays[_WORLD + name] for name in start.world} if same else {}
    if not same:
        raise InvalidInput.at(
            "--out",
            f"{path} belongs to a training with {_differences(known[1], settings)}",
            "the same settings, or another folder",
        )
    expected = [*leaves, *start.world.values()]
    if [np.shape(each) for each in [*found, *world.values()]] != list(map(np.shape, expected)):
        raise InvalidInput.at(
            "--out", f"{path} holds arrays of other shapes than this network's", "another folder"
        )
    learned, best = jax.tree.unflatten(structure, [jnp.asarray(each) for each in found])
    return Progress(curve=curve, learned=learned, best=best, rounds=rounds, world=world)


def _tree(progress: Progress) -> tuple[Any, ...]:
    return progress.learned, progress.best


def _comparable(settings: A2cTraining) -> dict[str, Any]:
    """Return what must not differ between the runs of a training, as JSON has it."""
    whole: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    if not settings.anneal:
        del whole["episodes"]
    return whole


def _differences(found: object, settings: A2cTraining) -> str:
    wanted = _comparable(settings)
    if not isinstance(found, dict):
        return "other settings"
    names = [name for name in wanted if name in found and found[name] != wanted[name]]
    if names == ["episodes"]:  # compared with anneal alone
        return f"episodes {found['episodes']}; with anneal it ends there and can't go on"
    return ", ".join(f"{name} {found[name]}" for name in names) or "another format"
