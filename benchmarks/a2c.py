"""Runs an experiment with the paper's agent: ``python -m benchmarks.a2c NAME``.

``benchmarks/data/a2c_experiments.toml`` has the experiments: ``rates``, ``networks``, ``returns``
and ``resources``. Trainings keep their checkpoints in ``build/a2c``: the same command goes on after
a stop. Writes ``benchmarks/data/a2c_NAME.json`` and ``docs/images/a2c_NAME.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from edgeyard.benchmark_api.cli.a2c_plots import curve_image
from edgeyard.scheduler.sim.mixes import JobMix
from edgeyard.scheduler.training.a2c.judgement import (
    RULES,
    Totals,
    baseline,
    figures,
    play,
    unseen_sequences,
)
from edgeyard.scheduler.training.a2c.settings import A2cTraining, Critic, NetworkKind, Reward
from edgeyard.scheduler.training.a2c.trainer import (
    Point,
    Progress,
    Trainer,
    load_progress,
    save_progress,
)

ROOT = Path(__file__).parents[1]
EXPERIMENTS = Path(__file__).parent / "data" / "a2c_experiments.toml"
SEQUENCES = 100
_SMOOTHED = 5
"""Generations of which the curves show the mean."""
_ENUMS = {"critic": Critic, "network": NetworkKind, "reward": Reward}


def experiments() -> Mapping[str, Any]:
    """Return all experiments by name."""
    return tomllib.loads(EXPERIMENTS.read_text("utf-8"))


def settings_of(options: Mapping[str, Any], seed: int) -> A2cTraining:
    """Return the settings of a variant; raises TypeError for an unknown name."""
    given = {**options, "seed": seed}
    given.pop("label")
    names = [name for name in ("rate", "resources") if name in given]
    mix = JobMix(**{name: given.pop(name) for name in names})
    for name, kind in _ENUMS.items():
        if name in given:
            given[name] = kind(given[name])
    if "n_steps" in given:
        given["n_steps"] = given["n_steps"] or None
    return A2cTraining(mix=mix, **given)


def trained(settings: A2cTraining, folder: Path) -> tuple[Trainer, Progress]:
    """Train, or go on where an earlier run stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.npz"
    trainer = Trainer(settings)
    before = load_progress(checkpoint, trainer) if checkpoint.exists() else trainer.start()
    progress = trainer.train(before, lambda now: save_progress(checkpoint, now, settings))
    return trainer, progress


def converged_at(curve: Sequence[Point]) -> int | None:
    """Return after how many episodes the slowdown came within 5 % of its lowest, for good.

    Of the means of `_SMOOTHED` generations; None: that is not before the last tenth.
    """
    values = smoothed(curve)
    limit = min(value for _, value in values) * 1.05
    above = [place for place, (_, value) in enumerate(values) if value > limit]
    first = above[-1] + 1 if above else 0
    return int(values[first][0]) if first < 0.9 * len(values) else None


def smoothed(curve: Sequence[Point]) -> list[tuple[float, float]]:
    """Return episodes and the mean slowdown of the last generations."""
    return [
        (
            float(point.episodes),
            float(np.mean([e.mean_slowdown for e in curve[max(0, at + 1 - _SMOOTHED) : at + 1]])),
        )
        for at, point in enumerate(curve)
    ]


def joined(parts: Sequence[Totals]) -> Totals:
    """Return the sums over seeds of what was played on the same sequences."""
    return Totals(
        np.sum([each.sums for each in parts], axis=0),
        np.sum([each.jobs for each in parts], axis=0),
        np.sum([each.arrived for each in parts], axis=0),
    )


def run_variant(
    name: str, options: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[dict[str, Any], list[list[tuple[float, float]]]]:
    """Train and judge a variant with each seed; return its rows and curves."""
    played: dict[str, list[Totals]] = {"a2c": []}
    runs, curves = [], []
    for seed in seeds:
        settings = settings_of(options, seed)
        folder = ROOT / "build/a2c" / name / f"{options['label'].replace(' ', '_')}-{seed}"
        trainer, progress = trained(settings, folder)
        sequences = unseen_sequences(settings.mix, SEQUENCES, settings.arrival_steps)
        agent = play(settings, sequences, trainer.chooser(progress.result))
        played["a2c"].append(agent)
        for rule in RULES:
            played.setdefault(rule, []).append(play(settings, sequences, baseline(rule, seed)))
        last = progress.curve[-1]
        found = figures("a2c", agent, played["sjf"][-1])
        runs.append(
            {
                "seed": seed,
                "episodes": last.episodes,
                "steps": last.steps,
                "updates": last.updates,
                "cpu_s": round(last.cpu_s, 1),
                "slowdown": round(found.slowdown.mean, 3) if found.jobs else None,
                "unfinished": found.unfinished,
                "last_sampled_slowdown": round(smoothed(progress.curve)[-1][1], 3),
                "converged_after_episodes": converged_at(progress.curve),
            }
        )
        curves.append(smoothed(progress.curve))
        print(json.dumps({"variant": options["label"], **runs[-1]}), file=sys.stderr)
    sums = {policy: joined(parts) for policy, parts in played.items()}
    rows = [figures(policy, each, sums["sjf"]).document for policy, each in sums.items()]
    return {"label": options["label"], "runs": runs, "judged": rows}, curves


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table of an experiment."""
    lines = [
        "| | policy | slowdown | to SJF | completion, steps | wait, steps | unfinished |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for variant in found["variants"]:
        for row in variant["judged"]:
            slowdown, to_sjf = row["slowdown"], row["slowdown_to_sjf"]
            if slowdown is None:
                lines.append(
                    f"| {variant['label']} | {row['policy']} | - | | - | - | {row['unfinished']} |"
                )
                continue
            difference = f"{to_sjf['mean']:+.2f} ({to_sjf['low']:+.2f} to {to_sjf['high']:+.2f})"
            lines.append(
                f"| {variant['label']} | {row['policy']} | {slowdown['mean']:.2f} "
                f"({slowdown['low']:.2f}-{slowdown['high']:.2f}) | "
                f"{'' if row['policy'] == 'sjf' else difference} | "
                f"{row['turnaround']['mean']:.2f} | {row['wait']['mean']:.2f} | "
                f"{row['unfinished']} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Train, judge, print and write."""
    known = experiments()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.a2c", description=__doc__)
    parser.add_argument("experiment", choices=sorted(known))
    parser.add_argument("--seeds", type=int, nargs="+", help="others than the configured ones")
    parser.add_argument("--episodes", type=int, help="another number than the configured one")
    given = parser.parse_args()
    experiment = known[given.experiment]
    seeds = given.seeds or experiment["seeds"]
    shared = dict(experiment["all"])
    if given.episodes:
        shared["episodes"] = given.episodes
    variants, curves = [], {}
    for variant in experiment["variants"]:
        found, curves[variant["label"]] = run_variant(
            given.experiment, {**shared, **variant}, seeds
        )
        variants.append(found)
    table = {
        "experiment": given.experiment,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": seeds,
        "configuration": {"all": shared, "variants": experiment["variants"]},
        "sequences": SEQUENCES,
        "variants": variants,
    }
    path = EXPERIMENTS.parent / f"a2c_{given.experiment}.json"
    path.write_text(json.dumps(table, indent=1) + "\n")
    (ROOT / f"docs/images/a2c_{given.experiment}.png").write_bytes(curve_image(curves))
    print(markdown(table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
