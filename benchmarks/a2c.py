"""Runs an experiment with the paper's agent: ``python -m benchmarks.a2c NAME``.

``benchmarks/data/a2c_experiments.toml`` has the experiments: ``rates``, ``networks``, ``returns``
and ``resources``. Trainings keep their checkpoints in ``build/a2c``: the same command goes on after
a stop. Writes ``benchmarks/data/a2c_NAME.json`` and ``docs/images/a2c_NAME.png``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import a2c_trace as trace_jobs
from edgeyard.scheduler.sim.mixes import JobMix
from edgeyard.scheduler.training.a2c.judgement import (
    RULES,
    Sequences,
    Totals,
    baseline,
    figures,
    mean_slowdown,
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
"""Generations of which the curves show the mean, at least."""
_MAX_POINTS = 100
"""About as many points a curve keeps."""
_ENUMS = {"critic": Critic, "network": NetworkKind, "reward": Reward}


def experiments() -> Mapping[str, Any]:
    """Return all experiments by name."""
    return tomllib.loads(EXPERIMENTS.read_text("utf-8"))


def settings_of(options: Mapping[str, Any], seed: int) -> A2cTraining:
    """Return the settings of a variant; raises TypeError for an unknown name."""
    given = {**options, "seed": seed}
    given.pop("label")
    mix = JobMix()
    if given.pop("trace", None):
        mix = trace_jobs.MIX
    names = [name for name in ("rate", "resources") if name in given]
    mix = replace(mix, **{name: given.pop(name) for name in names})
    for name, kind in _ENUMS.items():
        if name in given:
            given[name] = kind(given[name])
    if "n_steps" in given:
        given["n_steps"] = given["n_steps"] or None
    return A2cTraining(mix=mix, **given)


class Arrivals(NamedTuple):
    """What a variant learns from and is judged on.

    Attributes:
        trained: Sequences that episodes are drawn from; None: new ones of the mix.
        validation: On which the best actor is chosen; None: as `A2cTraining` states.
        judged: On which it is judged.
    """

    trained: Sequences | None
    validation: Sequences | None
    judged: Sequences


def arrivals_of(options: Mapping[str, Any], settings: A2cTraining) -> Arrivals:
    """Return the arrivals of a variant.

    Raises:
        OSError: It needs the log, which is not there.
    """
    if not options.get("trace"):
        judged = unseen_sequences(settings.mix, SEQUENCES, settings.arrival_steps)
        return Arrivals(None, None, judged)
    windows = trace_jobs.windows(settings.arrival_steps)
    judged = trace_jobs.repeated(windows.judged, trace_jobs.DRAWS)
    if options["trace"] == "alone":
        return Arrivals(windows.judged, windows.judged, judged)
    return Arrivals(windows.trained, windows.validation, judged)


def folder_of(name: str, options: Mapping[str, Any], seed: int) -> Path:
    """Return where a training keeps its checkpoint and its result."""
    return ROOT / "build/a2c" / name / f"{options['label'].replace(' ', '_')}-{seed}"


def trained(
    settings: A2cTraining, arrivals: Arrivals, folder: Path, until: float = math.inf
) -> tuple[Trainer, Progress]:
    """Train, or go on where an earlier run stopped; stop at a time, in seconds of the epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.npz"
    trainer = Trainer(settings, sequences=arrivals.trained, validation=arrivals.validation)
    progress = load_progress(checkpoint, trainer) if checkpoint.exists() else trainer.start()
    trainer.train(
        progress,
        lambda now: save_progress(checkpoint, now, settings),
        stopped=lambda: time.time() > until,
    )
    return trainer, progress


def run_seed(
    name: str, options: Mapping[str, Any], seed: int, until: float = math.inf
) -> dict[str, Any]:
    """Train and judge an agent; return the result, which is kept for the next call.

    ``actor.npz`` next to it has the agent's parameters.
    """
    folder = folder_of(name, options, seed)
    kept = folder / "result.json"
    if kept.exists():
        known: dict[str, Any] = json.loads(kept.read_text())
        return known
    settings = settings_of(options, seed)
    arrivals = arrivals_of(options, settings)
    began = time.monotonic()
    trainer, progress = trained(settings, arrivals, folder, until)
    wall_s = time.monotonic() - began
    agent = play(settings, arrivals.judged, trainer.chooser(progress.result))
    last, best = progress.curve[-1], progress.best_validation
    smooth = smoothed(progress.curve)
    result = {
        "run": {
            "seed": seed,
            "episodes": last.episodes,
            "steps": last.steps,
            "updates": last.updates,
            "cpu_s": round(last.cpu_s, 1),
            "wall_s": round(wall_s, 1),
            "slowdown": round(mean_slowdown(agent), 3),
            "unfinished": int((agent.arrived - agent.jobs).sum()),
            "validation_slowdown": round(best, 3) if math.isfinite(best) else None,
            "last_sampled_slowdown": round(smooth[-1][1], 3),
            "converged_after_episodes": converged_at(progress.curve),
        },
        "curve": smooth[:: max(1, len(smooth) // _MAX_POINTS)],
        "played": {field: getattr(agent, field).tolist() for field in Totals._fields},
    }
    actor: dict[str, Any] = {key: np.asarray(of) for key, of in progress.result.items()}
    np.savez(folder / "actor.npz", **actor)
    kept.write_text(json.dumps(result) + "\n")
    return result


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
    window = max(_SMOOTHED, len(curve) // _MAX_POINTS)
    return [
        (
            float(point.episodes),
            float(np.mean([e.mean_slowdown for e in curve[max(0, at + 1 - window) : at + 1]])),
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
        result = run_seed(name, options, seed)
        print(json.dumps({"variant": options["label"], **result["run"]}), file=sys.stderr)
        runs.append(result["run"])
        curves.append([(float(at), float(value)) for at, value in result["curve"]])
        played["a2c"].append(Totals(*(np.array(result["played"][of]) for of in Totals._fields)))
        settings = settings_of(options, seed)
        judged = arrivals_of(options, settings).judged
        for rule in RULES:
            played.setdefault(rule, []).append(play(settings, judged, baseline(rule, seed)))
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
    from edgeyard.benchmark_api.cli.a2c_plots import curve_image

    path = EXPERIMENTS.parent / f"a2c_{given.experiment}.json"
    path.write_text(json.dumps(table, indent=1) + "\n")
    (ROOT / f"docs/images/a2c_{given.experiment}.png").write_bytes(curve_image(curves))
    print(markdown(table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
