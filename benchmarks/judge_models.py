"""``python -m benchmarks.judge_models [--traces FOLDER]``: does anything beat the history?

Judges predictors of run times and failures on ``benchmarks/data/sweep.csv`` and, where its file is
there, on MLPerf's latencies. Whole groups of truly equal systems are held out. Each is judged
twice: *new*, when nothing ever ran on its boards, and *known*, when every second run of each group
is in the history. Prints the tables of
``docs/experiments/models-of-boards.md``; trains nothing that is shipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.examples import Array, Examples, Run, examples, joined, sweep_runs, usable
from benchmarks.judge import HISTORY, JudgmentRow, judge_failures, judge_run_times
from benchmarks.mlperf import FILE, TRACES, read_runs
from benchmarks.predictors import (
    COLUMNS,
    Distribution,
    fit_failure_network,
    fit_lookup,
    fit_network,
    fit_rate,
    fit_ratios,
    fit_regression,
    history_distribution,
    history_failures,
    training_rows,
)

SWEEP = Path(__file__).parent / "data" / "sweep.csv"
FOLDS = 7
"""As many as the sweep has groups."""

CASES = ("new", "known")
Report = Callable[[str], None]


def folds(runs: Sequence[Run], seed: int = 0) -> Iterator[tuple[list[Run], list[Run]]]:
    """Yield the runs of the groups that are left in, and of those that are held out."""
    groups = np.random.default_rng(seed).permutation(sorted({run.group for run in runs}))
    for fold in range(min(FOLDS, len(groups))):
        held = set(groups[fold::FOLDS].tolist())
        yield [r for r in runs if r.group not in held], [r for r in runs if r.group in held]


def judge(
    runs: Sequence[Run], failures: bool, report: Report
) -> tuple[list[JudgmentRow], list[JudgmentRow]]:
    """Return the rows on run times and, if asked for, on failures.

    Args:
        runs: Usable ones.
        failures: Judge failures too.
        report: Called with the progress.
    """
    tested: dict[str, list[Examples]] = {case: [] for case in CASES}
    distributions: dict[str, dict[str, list[Distribution]]] = {case: {} for case in CASES}
    chances: dict[str, dict[str, list[Array]]] = {case: {} for case in CASES}
    for number, (past, held) in enumerate(folds(runs), start=1):
        report(f"fold {number}: {len(past)} runs to learn from, {len(held)} held out")
        rows = training_rows(past, seed=0)
        regression, network = fit_regression(rows), fit_network(rows)
        if failures:
            by_ratios, by_network = fit_ratios(rows), fit_failure_network(rows)
        for case in CASES:
            known = [*past, *held[::2]] if case == "known" else past
            of = examples(held[1::2], known, COLUMNS)
            plain = examples(known, [], COLUMNS)
            tested[case].append(of)
            for name, distribution in (
                (HISTORY, history_distribution(of)),
                ("lookup model x engine", fit_lookup(plain)(of)),
                ("regression", regression(of)),
                ("network", network(of)),
            ):
                distributions[case].setdefault(name, []).append(distribution)
            if failures:
                for name, chance in (
                    (HISTORY, history_failures(of)),
                    ("rate of all", fit_rate(plain)(of)),
                    ("logistic of three ratios", by_ratios(of)),
                    ("network", by_network(of)),
                ):
                    chances[case].setdefault(name, []).append(chance)
    run_times: list[JudgmentRow] = []
    risks: list[JudgmentRow] = []
    for case in CASES:
        whole = joined(tested[case])
        joined_distributions = {name: _joined(parts) for name, parts in distributions[case].items()}
        run_times += judge_run_times(
            case, joined_distributions, whole.log_s, whole.censored, whole.groups
        )
        if failures:
            joined_chances = {name: np.concatenate(each) for name, each in chances[case].items()}
            risks += judge_failures(case, joined_chances, whole.censored, whole.groups)
    return run_times, risks


def _joined(parts: Sequence[Distribution]) -> Distribution:
    return Distribution(
        np.concatenate([each.location for each in parts]),
        np.concatenate([each.scale for each in parts]),
        np.concatenate([each.freedom for each in parts]),
    )


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    wanted = parser.parse_args()

    def report(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(title: str, runs: Sequence[Run], found: Sequence[JudgmentRow]) -> None:
        results = sum(not run.failure for run in runs)
        groups = len({run.group for run in runs})
        print(f"\n{title}: {results} results, {len(runs) - results} runs cut short, "
              f"{groups} groups")  # fmt: skip
        for each in found:
            print(f"| {each.row()} |")

    runs = usable(sweep_runs(SWEEP))
    run_times, risks = judge(runs, True, report)
    show("Run times of the sweep", runs, run_times)
    show("Failures of the sweep", runs, risks)
    if not (wanted.traces / FILE).is_file():
        report(f"skipped: {wanted.traces / FILE} is not there; name its folder with --traces")
        return 0
    latencies = read_runs(wanted.traces)
    run_times, _ = judge(latencies, False, report)
    show("Latencies of MLPerf", latencies, run_times)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
