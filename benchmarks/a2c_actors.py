"""Trained actors, one for each arrival rate; the committed ones imitated ``hold`` at first.

``python -m benchmarks.a2c_actors`` takes, of each rate, the seed that was best on the validation
sequences from ``build/a2c`` and writes ``benchmarks/data/a2c_actors.npz``: parameters in half
precision, and a header with settings, seed, date and figures. ``rows`` judges them again.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks import a2c
from benchmarks.tables import Row
from edgeyard.training.a2c.judgement import (
    Totals,
    mean_slowdown,
    play_beside_rules,
    slowdown_ratio,
    unseen_sequences,
)
from edgeyard.training.a2c.networks import Params
from edgeyard.training.a2c.settings import A2cTraining
from edgeyard.training.a2c.trainer import Trainer

ACTORS = Path(__file__).parent / "data" / "a2c_actors.npz"
EXPERIMENT = "rates"
RATES = (0.6, 0.7, 0.8, 0.9)
_EPISODES = 500


def header() -> dict[str, Any]:
    """Return what is known of the actors: ``date``, and by rate its options, seed and figures."""
    with np.load(ACTORS, allow_pickle=False) as file:
        known: dict[str, Any] = json.loads(str(file["header"]))
    return known


def actor(rate: float) -> tuple[A2cTraining, Params]:
    """Return the settings and the parameters of the actor for an arrival rate."""
    known = header()["actors"][f"{rate:g}"]
    prefix = f"{rate:g}/"
    with np.load(ACTORS, allow_pickle=False) as file:
        params = {
            name.removeprefix(prefix): jnp.asarray(file[name], dtype=jnp.float32)
            for name in file.files
            if name.startswith(prefix)
        }
    return a2c.variant_settings(known["options"], known["seed"]), params


def judged(rate: float) -> dict[str, Totals]:
    """Return what an actor and the rules reach on DeepRM's unseen sequences, by policy."""
    settings, params = actor(rate)
    sequences = unseen_sequences(settings.mix, a2c.SEQUENCES, settings.arrival_steps)
    return play_beside_rules(settings, Trainer(settings).chooser(params), sequences, "a2c")


def rows() -> list[Row]:
    """Return the rows of speed, and of the shipped actors against rules."""
    found = _speed()
    by_rate = {rate: judged(rate) for rate in RATES}
    for peer, prefix in (("sjf", ""), ("tetris", "tetris "), ("hold", "a2c hold ")):
        for rate, played in by_rate.items():
            ratio = slowdown_ratio(played["a2c"], played[peer])
            note = (
                f"A2C against {peer}; {a2c.SEQUENCES} unseen sequences, "
                f"{int(played['a2c'].unplaced.sum())} jobs unplaced; "
                f"ratio {ratio.low:.3f} to {ratio.high:.3f}"
            )
            name = f"{prefix}slowdown {rate:g}"
            value, other = mean_slowdown(played["a2c"]), mean_slowdown(played[peer])
            found.append(Row(name, value, "", other, value / other, note))
    return found


def _speed() -> list[Row]:
    settings, _ = actor(0.7)
    trainer = Trainer(settings)
    progress = trainer.start()
    trainer.train(progress, stopped=lambda: len(progress.curve) == 1)  # compiles
    first, began = progress.curve[-1], time.perf_counter()
    enough = first.episodes + _EPISODES
    trainer.train(progress, stopped=lambda: progress.episodes >= enough)
    seconds, last = time.perf_counter() - began, progress.curve[-1]
    steps, episodes = last.steps - first.steps, last.episodes - first.episodes
    note = f"network {settings.network}, {settings.envs} environments, through training"
    return [
        Row("steps/s", steps / seconds, "1/s", note=note),
        Row("500 episodes", seconds * _EPISODES / episodes, "s", note=f"the same; {episodes} run"),
    ]


def main() -> int:
    """Choose and write."""
    experiment = a2c.experiments()[EXPERIMENT]
    actors, arrays = {}, {}
    for variant in experiment["variants"]:
        options = {**experiment["all"], **variant}
        folders = [a2c.folder_of(EXPERIMENT, options, seed) for seed in experiment["seeds"]]
        results = [
            (json.loads((folder / "result.json").read_text())["run"], folder)
            for folder in folders
            if (folder / "result.json").exists()
        ]
        run, folder = min(results, key=lambda each: each[0]["validation_slowdown"])
        rate = f"{variant['rate']:g}"
        actors[rate] = {"options": options, **run}
        with np.load(folder / "actor.npz") as file:
            for name in file.files:
                arrays[f"{rate}/{name}"] = file[name].astype(np.float16)
    known = {"date": datetime.now(UTC).date().isoformat(), "actors": actors}
    np.savez_compressed(ACTORS, header=np.array(json.dumps(known)), **arrays)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
