"""The trained actors of the experiment ``imitation``, one for each arrival rate.

``python -m benchmarks.a2c_actors`` takes, of each rate, the seed that was best on the validation
sequences from ``build/a2c`` and writes ``benchmarks/data/a2c_actors.npz``: parameters in half
precision, and a header with settings, seed, date and figures. ``rows`` judges them again.
"""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks import a2c
from benchmarks.tables import Row
from edgeyard.training.a2c.judgement import (
    Sequences,
    baseline,
    mean_slowdown,
    play,
    unseen_sequences,
)
from edgeyard.training.a2c.networks import Params
from edgeyard.training.a2c.settings import A2cTraining
from edgeyard.training.a2c.trainer import Trainer

ACTORS = Path(__file__).parent / "data" / "a2c_actors.npz"
EXPERIMENT = "imitation"
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


def slowdown(rate: float, sequences: Sequences) -> tuple[float, int]:
    """Return the mean slowdown of an actor on sequences, and how many jobs did not end."""
    settings, params = actor(rate)
    played = play(settings, sequences, Trainer(settings).chooser(params))
    return mean_slowdown(played), int((played.arrived - played.jobs).sum())


def rows() -> list[Row]:
    """Return ``steps/s``, ``500 episodes``, ``slowdown RATE`` and ``tetris slowdown RATE``."""
    found = _speed()
    judged = {}
    for rate in RATES:
        settings, _ = actor(rate)
        sequences = unseen_sequences(settings.mix, a2c.SEQUENCES, settings.arrival_steps)
        value, unfinished = slowdown(rate, sequences)
        peers = [
            mean_slowdown(play(settings, sequences, baseline(name, 1)))
            for name in ("sjf", "tetris", "place", "hold")
        ]
        judged[rate] = value, unfinished, peers
    for place, prefix in enumerate(("", "tetris ")):
        for rate, (value, unfinished, peers) in judged.items():
            note = (
                f"A2C against {('SJF', 'Tetris')[place]}; {a2c.SEQUENCES} unseen sequences, "
                f"{unfinished} jobs unfinished; place {peers[2]:.2f}, hold {peers[3]:.2f}"
            )
            name, peer = f"{prefix}slowdown {rate:g}", peers[place]
            found.append(Row(name, value, "", peer, value / peer, note))
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
    note = f"network compact, {settings.envs} environments, through training"
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
        run, folder = min(results, key=lambda each: each[0]["validation_slowdown"] or math.inf)
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
