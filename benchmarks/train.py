"""``python -m benchmarks.train``: train the shipped models from the sweep, and judge them.

Reads ``benchmarks/data/sweep.csv``, holds out whole systems to judge, trains on all of them to
ship, writes ``scheduler/learning/models/*`` and the tables of ``docs/models.md``. With the same
data it writes the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.examples import Examples, Run, examples, joined, sweep_runs
from benchmarks.judge import JudgmentRow, brier_and_auc, pinball_and_mape
from edgeyard.scheduler.learning.features import Input, normalise
from edgeyard.scheduler.learning.manifest import Manifest, Output, manifest_text
from edgeyard.scheduler.learning.network import QUANTILES, Network, merged, onnx_bytes, start, train

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "benchmarks" / "data" / "sweep.csv"
MODELS = ROOT / "scheduler" / "learning" / "models"

COLUMNS = (
    "log_history_s", "history_spread", "failure_rate", "log_nb_inference", "log_user_time_s",
    "log_model_bytes", "log_board_ram_bytes", "log_board_threads", "host_cpu",
)  # fmt: skip
MAY_MISS = ("log_history_s", "log_user_time_s", "log_model_bytes", "log_board_threads", "host_cpu")
"""Each has an input that states whether it is there."""

OFTEN_MISSING = ("log_board_threads", "host_cpu")
MISSING_SHARE = 0.3
"""Of training rows in which one of `OFTEN_MISSING` is taken away: hosts need not report them."""

HIDDEN = 16
MEMBERS = 3
"""Networks that are merged: few rows make single ones depend on their seed."""

FOLDS = 6
INNER_FOLDS = 4
PASTS = 4


def seen(runs: Sequence[Run], seed: int) -> Examples:
    """Training rows: each run as it looks with much, little and nothing known of its board.

    No run is in the past that it is seen with.
    """
    rng = np.random.default_rng(seed)
    parts = []
    systems = sorted({run.system for run in runs})
    for turn in range(PASTS):
        if turn % 2:
            group_of = {name: int(rng.integers(3)) for name in systems}  # boards never seen before
            groups = np.array([group_of[run.system] for run in runs])
        else:
            groups = rng.integers(0, 3, len(runs))  # boards with a past
        share = (1.0, 0.7, 0.5, 0.3)[turn % 4]
        for group in range(3):
            mine = [run for run, its in zip(runs, groups, strict=True) if its == group]
            rest = [run for run, its in zip(runs, groups, strict=True) if its != group]
            kept = [run for run in rest if rng.random() < share]
            if mine:
                parts.append(examples(mine, kept, COLUMNS, QUANTILES))
    parts.append(examples(runs, [], COLUMNS, QUANTILES))
    found = joined(parts)
    for name in OFTEN_MISSING:
        found.values[name][rng.random(len(found)) < MISSING_SHARE] = np.nan
    return found


def inputs_for(values: Mapping[str, NDArray[np.float64]]) -> tuple[Input, ...]:
    """Every column normalised to mean 0 and deviation 1 of the training rows."""
    inputs = []
    for name in COLUMNS:
        if np.isnan(values[name]).all():
            inputs.append(Input(column=name))  # always 0
            continue
        deviation = float(np.nanstd(values[name]))
        inputs.append(
            Input(
                column=name,
                mean=round(float(np.nanmean(values[name])), 6),
                scale=round(deviation, 6) if deviation > 1e-3 else 1.0,
            )
        )
    return (*inputs, *(Input(column=f"{name}?") for name in MAY_MISS))


def fit_run_time(rows: Examples, inputs: Sequence[Input]) -> Network:
    """Quantiles of ln seconds, of runs that led to a result; begins as the history's median.

    The outer ones are moved outwards by what they miss on systems left out, so that they hold on
    new ones (conformalised quantile regression: Romano, Patterson & Candes, NeurIPS 2019, with
    folds of whole systems).
    """
    good = rows.only(rows.failed == 0)
    systems = np.random.default_rng(0).permutation(np.unique(good.systems))
    below, above = [], []
    for fold in range(INNER_FOLDS):
        held = np.isin(good.systems, systems[fold::INNER_FOLDS])
        if held.all() or not held.any():
            continue
        found = _fit_run_time(good.only(~held), inputs, 1).predict(
            normalise(good.only(held).values, inputs).astype(np.float64)
        )
        below.append(found[:, 0] - good.log_s[held])
        above.append(good.log_s[held] - found[:, -1])
    network = _fit_run_time(good, inputs, MEMBERS)
    if below:
        misses = (np.concatenate(below), np.concatenate(above))
        low, high = (max(0.0, float(np.quantile(each, QUANTILES[-1]))) for each in misses)
        network.widened = (low, high)
    return network


def _fit_run_time(good: Examples, inputs: Sequence[Input], members: int) -> Network:
    x = normalise(good.values, inputs).astype(np.float64)
    networks = []
    for seed in range(members):
        network = start(len(inputs), len(QUANTILES), HIDDEN, seed)
        history = next(each for each in inputs if each.column == "log_history_s")
        network.weights["S"][inputs.index(history), 1] = history.scale
        network.weights["b2"][1] = history.mean
        train(network, x, good.log_s, seed=seed)
        networks.append(network)
    return merged(networks)


def fit_failure(rows: Examples, inputs: Sequence[Input]) -> Network:
    """Chance of a failure; begins at the rate of all."""
    x = normalise(rows.values, inputs).astype(np.float64)
    networks = []
    for seed in range(MEMBERS):
        network = start(len(inputs), 1, HIDDEN, seed)
        rate = float(np.clip(rows.failed.mean(), 0.01, 0.99))
        network.weights["b2"][0] = np.log(rate / (1 - rate))
        train(network, x, rows.failed, seed=seed)
        networks.append(network)
    return merged(networks)


def judge(runs: Sequence[Run], seed: int = 0) -> tuple[list[JudgmentRow], list[JudgmentRow]]:
    """Both models on systems that they never saw, next to plain baselines.

    Each fold's systems are judged twice: ``new``, when nothing ever ran on them, and ``known``,
    each run with the earlier runs of its own system known too.
    """
    systems = np.random.default_rng(seed).permutation(sorted({run.system for run in runs}))
    found: dict[str, list[tuple[Examples, NDArray[np.float64], NDArray[np.float64], Examples]]] = {}
    for fold in range(FOLDS):
        held = set(systems[fold::FOLDS].tolist())
        past = [run for run in runs if run.system not in held]
        mine = [run for run in runs if run.system in held]
        rows = seen(past, seed)
        inputs = inputs_for(rows.values)
        run_time, failure = fit_run_time(rows, inputs), fit_failure(rows, inputs)
        plain = examples(past, [], COLUMNS, QUANTILES)
        for how, tested in (
            ("new", examples(mine, past, COLUMNS, QUANTILES)),
            ("known", _one_by_one(mine, past)),
        ):
            x = normalise(tested.values, inputs).astype(np.float64)
            found.setdefault(how, []).append(
                (tested, run_time.predict(x), failure.predict(x)[:, 0], plain)
            )
    times, risks = [], []
    for how, folds in found.items():
        times += pinball_and_mape(how, folds, QUANTILES)
        risks += brier_and_auc(how, folds)
    return times, risks


def _one_by_one(mine: Sequence[Run], past: Sequence[Run]) -> Examples:
    """Runs in the order in which they were made, each knowing the earlier ones."""
    known = list(past)
    parts = []
    for run in mine:
        parts.append(examples([run], known, COLUMNS, QUANTILES))
        known.append(run)
    return joined(parts)


def ship(
    name: str, version: int, output: Output, objective: str, network: Network,
    inputs: Sequence[Input], trained_on: str, folder: Path,
) -> None:  # fmt: skip
    """Write the ONNX file and its manifest."""
    data = onnx_bytes(network)
    (folder / f"{name}.onnx").write_bytes(data)
    manifest = Manifest(
        name=name,
        version=version,
        objective=objective,
        output=output,
        onnx=f"{name}.onnx",
        sha256=hashlib.sha256(data).hexdigest(),
        inputs=tuple(inputs),
        quantiles=QUANTILES if output is Output.LOG_SECONDS else (),
        trained_on=trained_on,
    )
    (folder / f"{name}.toml").write_text(manifest_text(manifest), encoding="utf-8")


def main() -> int:
    """Judge, train, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--no-judge", action="store_true")
    parser.add_argument("--out", type=Path, default=MODELS)
    wanted = parser.parse_args()
    runs = sweep_runs(SWEEP)
    rows = seen(runs, seed=0)
    inputs = inputs_for(rows.values)
    wanted.out.mkdir(parents=True, exist_ok=True)
    said = f"benchmarks/data/sweep.csv: {len(runs)} runs"
    ship("learned_run_time", wanted.version, Output.LOG_SECONDS, "completion",
         fit_run_time(rows, inputs), inputs, said, wanted.out)  # fmt: skip
    ship("learned_risk", wanted.version, Output.FAILURE, "reliability",
         fit_failure(rows, inputs), inputs, said, wanted.out)  # fmt: skip
    if not wanted.no_judge:
        times, risks = judge(runs)
        for title, table in (("run time", times), ("failure", risks)):
            print(f"\n{title}")
            for each in table:
                print(f"| {each.row()} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
