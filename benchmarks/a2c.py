"""Runs an experiment with the paper's agent: ``python -m benchmarks.a2c NAME``.

``benchmarks/data/a2c_experiments.toml`` has the experiments. The learning rate of each variant is
the one of the experiment's ``sweep`` with which a training with another seed was best on validation
sequences. Trainings keep their checkpoints in ``build/a2c``: the same command goes on after a stop.
Writes ``benchmarks/data/a2c_NAME.json`` and ``docs/images/a2c_NAME.png``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import a2c_trace as trace_jobs
from edgeyard.training.a2c.checkpoints import load_progress, save_progress
from edgeyard.training.a2c.judgement import (
    RULES,
    Sequences,
    Totals,
    baseline,
    figures,
    mean_slowdown,
    play,
    slowdown_ratio,
    unseen_sequences,
)
from edgeyard.training.a2c.settings import A2cTraining, settings_of
from edgeyard.training.a2c.trainer import Point, Progress, Trainer

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
EXPERIMENTS = Path(__file__).parent / "data" / "a2c_experiments.toml"
SEQUENCES = 100
SWEEP_SEED = 101
"""Of the trainings by which learning rates are chosen."""
_SMOOTHED = 5
"""Generations of which the curves show the mean, at least."""
_SETTLED = 20
"""Generations of which the mean, over all seeds, decides about convergence: the means of fewer
differ by more than `_NEAR` even for a fixed rule, whose episodes have other arrivals each time."""
_NEAR = 0.1
"""Share of the last mean."""
_DRAWS = 2_000
"""Number of bootstrap draws of the seeds."""
_MAX_POINTS = 100
"""About as many points a curve keeps."""


def experiments() -> Mapping[str, Any]:
    """Return all experiments by name."""
    return tomllib.loads(EXPERIMENTS.read_text("utf-8"))


def variant_settings(options: Mapping[str, Any], seed: int) -> A2cTraining:
    """Return the settings of a variant; raises InvalidInput for an unknown name."""
    given = {name: each for name, each in options.items() if name not in ("label", "log")}
    return settings_of({**given, "seed": seed}, trace_jobs.MIX if options.get("log") else None)


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
    if not options.get("log"):
        judged = unseen_sequences(settings.mix, SEQUENCES, settings.arrival_steps)
        return Arrivals(None, None, judged)
    windows = trace_jobs.windows(settings.arrival_steps)
    judged = trace_jobs.repeated(windows.judged, trace_jobs.DRAWS)
    if options["log"] == "alone":
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
) -> tuple[dict[str, Any], list[Point]]:
    """Train and judge an agent; return the result and the curve, kept for the next call.

    ``actor.npz`` next to them has the agent's parameters.
    """
    folder = folder_of(name, options, seed)
    kept = folder / "result.json"
    settings = variant_settings(options, seed)
    arrivals = arrivals_of(options, settings)
    if kept.exists():
        trainer = Trainer(settings, sequences=arrivals.trained, validation=arrivals.validation)
        known: dict[str, Any] = json.loads(kept.read_text())
        return known, load_progress(folder / "checkpoint.npz", trainer).curve
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
            "unplaced": int((agent.unplaced + agent.arrived - agent.jobs).sum()),
            "validation_slowdown": round(best, 3),
            "last_sampled_slowdown": round(smooth[-1][1], 3),
        },
        "played": {field: getattr(agent, field).tolist() for field in Totals._fields},
    }
    actor: dict[str, Any] = {key: np.asarray(of) for key, of in progress.result.items()}
    np.savez(folder / "actor.npz", **actor)
    kept.write_text(json.dumps(result) + "\n")
    return result, progress.curve


def running_means(values: Sequence[Sequence[float]]) -> Array:
    """Return means over all seeds and the last `_SETTLED` generations, from that generation on.

    Args:
        values: A figure of each generation, of each seed.
    """
    length = min(map(len, values))
    means = np.mean([each[:length] for each in values], axis=0)
    window = min(_SETTLED, length)
    return np.convolve(means, np.full(window, 1.0 / window), mode="valid")


def converged_at(curves: Sequence[Sequence[Point]]) -> int | None:
    """Return after how many episodes the running mean of the slowdown is near its last.

    For good, from there on; None: that is not before the last tenth.

    Args:
        curves: Of all seeds.
    """
    values = running_means([[point.mean_slowdown for point in curve] for curve in curves])
    outside = np.flatnonzero(np.abs(values / values[-1] - 1.0) > _NEAR)
    first = int(outside[-1]) + 1 if len(outside) else 0
    if first >= max(0.9 * len(values), 1):
        return None
    return curves[0][first + min(map(len, curves)) - len(values)].episodes


def same_return(variants: Mapping[str, Sequence[Sequence[Point]]], seed: int = 0) -> dict[str, Any]:
    """Return how soon each variant comes to a return that all of them reach.

    It is the lowest of the last running means. Episodes and processor time until a variant's
    running mean reaches it have 95 % intervals by a bootstrap of the seeds; the return stays. Seeds
    that never reach it count with the whole training.

    Args:
        variants: Curves of all seeds by variant.
        seed: Of the bootstrap.
    """
    wanted = min(float(_returns(curves)[-1]) for curves in variants.values())
    drawn = np.random.default_rng(seed)
    found = {}
    for label, curves in variants.items():
        draws = drawn.integers(0, len(curves), (_DRAWS, len(curves)))
        reached = [_reached(curves, wanted)]
        reached += [_reached([curves[seed] for seed in draw], wanted) for draw in draws.tolist()]
        low, high = np.quantile(reached[1:], (0.025, 0.975), axis=0)
        found[label] = {
            name: {"mean": float(value), "low": float(below), "high": float(above)}
            for name, value, below, above in zip(
                ("episodes", "cpu_s"), reached[0], low, high, strict=True
            )
        }
    return {"return": wanted, "variants": found}


def _returns(curves: Sequence[Sequence[Point]]) -> Array:
    return running_means([[point.mean_return for point in curve] for curve in curves])


def _reached(curves: Sequence[Sequence[Point]], wanted: float) -> tuple[float, float]:
    """Return episodes and processor time until the running mean of the return is so high."""
    values = _returns(curves)
    there = np.flatnonzero(values >= wanted)
    length = min(map(len, curves))
    place = int(there[0]) + length - len(values) if len(there) else length - 1
    points = [curve[place] for curve in curves]
    return float(points[0].episodes), float(np.mean([point.cpu_s for point in points]))


def smoothed(
    curve: Sequence[Point], of: Callable[[Point], float] = lambda point: point.mean_slowdown
) -> list[tuple[float, float]]:
    """Return episodes and the mean of a figure of the last generations."""
    window = max(_SMOOTHED, len(curve) // _MAX_POINTS)
    return [
        (
            float(point.episodes),
            float(np.mean([of(e) for e in curve[max(0, at + 1 - window) : at + 1]])),
        )
        for at, point in enumerate(curve)
    ]


def joined(parts: Sequence[Totals]) -> Totals:
    """Return the sums over seeds of what was played on the same sequences."""
    return Totals(
        np.sum([each.sums for each in parts], axis=0),
        np.sum([each.jobs for each in parts], axis=0),
        np.sum([each.arrived for each in parts], axis=0),
        np.sum([each.unplaced for each in parts], axis=0),
    )


def chosen_rate(name: str, options: Mapping[str, Any], rates: Sequence[float]) -> dict[str, float]:
    """Train with each learning rate, on fewer episodes; return the validation slowdowns by rate."""
    found = {}
    for rate in rates:
        tried = {**options, "actor_rate": rate, "critic_rate": rate}
        tried["label"] = f"{options['label']} rate {rate:g}"
        settings = variant_settings(tried, SWEEP_SEED)
        folder = folder_of(name, tried, SWEEP_SEED)
        _, progress = trained(settings, arrivals_of(tried, settings), folder)
        found[f"{rate:g}"] = round(progress.best_validation, 3)
    return found


def run_variant(
    name: str,
    options: Mapping[str, Any],
    seeds: Sequence[int],
    sweep: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[list[Point]]]:
    """Train and judge a variant with each seed; return its rows and curves.

    Args:
        name: Of the experiment.
        options: Of the variant.
        seeds: Of the trainings.
        sweep: ``rates`` of learning, and ``episodes`` of each training that tries one.
    """
    tried: dict[str, float] = {}
    if sweep:
        tried = chosen_rate(name, {**options, "episodes": sweep["episodes"]}, sweep["rates"])
        rate = float(min(tried, key=lambda each: tried[each]))
        options = {**options, "actor_rate": rate, "critic_rate": rate}
    played: dict[str, list[Totals]] = {"a2c": []}
    runs, curves = [], []
    for seed in seeds:
        result, curve = run_seed(name, options, seed)
        print(json.dumps({"variant": options["label"], **result["run"]}), file=sys.stderr)
        curves.append(curve)
        played["a2c"].append(Totals(*(np.array(result["played"][of]) for of in Totals._fields)))
        settings = variant_settings(options, seed)
        judged = arrivals_of(options, settings).judged
        for rule in RULES:
            played.setdefault(rule, []).append(play(settings, judged, baseline(rule, seed)))
        ratio = mean_slowdown(played["a2c"][-1]) / mean_slowdown(played["hold"][-1])
        runs.append({**result["run"], "to_hold": round(ratio, 4)})
    sums = {policy: joined(parts) for policy, parts in played.items()}
    rows = {policy: figures(policy, each, sums["sjf"]) for policy, each in sums.items()}
    to_hold = slowdown_ratio(sums["a2c"], sums["hold"])
    found = {
        "label": options["label"],
        "learning_rates": tried,
        "runs": runs,
        "converged_after_episodes": converged_at(curves),
        "to_hold": asdict(to_hold),
        "judged": [rows[policy].document for policy in rows],
    }
    return found, curves


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table of an experiment: a row for each variant, rules next to it."""
    lines = [
        "| | slowdown | `hold`, SJF, `place` | to `hold` (paired 95 %) | seeds to `hold` "
        "| unplaced | validation | learning rate |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for variant in found["variants"]:
        row, *rules = variant["judged"]
        slowdown, ratio = row["slowdown"], variant["to_hold"]
        by_rule = {rule["policy"]: f"{rule['slowdown']['mean']:.2f}" for rule in rules}
        of_seeds = ", ".join(f"{run['to_hold']:.3f}" for run in variant["runs"])
        tried = variant["learning_rates"]
        rate = min(tried, key=lambda each: tried[each]) if tried else "as configured"
        validation = np.mean([run["validation_slowdown"] for run in variant["runs"]])
        lines.append(
            f"| {variant['label']} | {slowdown['mean']:.2f} "
            f"({slowdown['low']:.2f}-{slowdown['high']:.2f}) | "
            f"{by_rule['hold']}, {by_rule['sjf']}, {by_rule['place']} | "
            f"{ratio['mean']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}) | {of_seeds} | "
            f"{row['unplaced']} | {validation:.2f} | {rate} |"
        )
    return "\n".join(lines)


def learning_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the table of when each variant converged and came to the same return."""
    same = found.get("same_return")
    if same is None:
        return []
    lines = [
        f"| | converged after episodes | episodes to a return of {same['return']:.1f} | "
        "processor time to it, s |",
        "| --- | --- | --- | --- |",
    ]
    for variant in found["variants"]:
        cells = [
            f"{each['mean']:.0f} ({each['low']:.0f}-{each['high']:.0f})"
            for each in same["variants"][variant["label"]].values()
        ]
        at = variant["converged_after_episodes"]
        lines.append(
            f"| {variant['label']} | {'not' if at is None else at} | {' | '.join(cells)} |"
        )
    return lines


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
            given.experiment, {**shared, **variant}, seeds, experiment.get("sweep")
        )
        variants.append(found)
    table: dict[str, Any] = {
        "experiment": given.experiment,
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": seeds,
        "configuration": {"all": shared, "variants": experiment["variants"]},
        "sequences": SEQUENCES,
        "variants": variants,
    }
    if given.experiment == "trace":
        best, bound = trace_jobs.best_slowdown(trace_jobs.windows(shared["arrival_steps"]).judged)
        table["best_schedule"] = {"slowdown": round(best, 3), "lower_bound": round(bound, 3)}
    if experiment.get("same_return"):
        table["same_return"] = same_return(curves)
    path = EXPERIMENTS.parent / f"a2c_{given.experiment}.json"
    path.write_text(json.dumps(table, indent=1) + "\n")
    write_images(given.experiment, curves)
    print(markdown(table))
    print("\n".join(learning_lines(table)))
    return 0


def write_images(name: str, curves: Mapping[str, Sequence[Sequence[Point]]]) -> None:
    """Write the curves of the slowdown, and those of the return, which agents learn from."""
    from edgeyard.training.cli.a2c_plots import curve_image

    for ending, label, of in (
        ("", "mean slowdown", lambda point: point.mean_slowdown),
        ("_return", "mean return of an episode", lambda point: point.mean_return),
    ):
        series = {}
        for variant, seeds in curves.items():
            shown = [smoothed(curve, of) for curve in seeds]
            series[variant] = [each[:: max(1, len(each) // _MAX_POINTS)] for each in shown]
        image = curve_image(series, y_label=label)
        (ROOT / f"docs/images/a2c_{name}{ending}.png").write_bytes(image)


if __name__ == "__main__":
    raise SystemExit(main())
