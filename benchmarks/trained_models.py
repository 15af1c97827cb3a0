"""``python -m benchmarks.trained_models``: how good are models that a generated lab's runs train?

A lab of eight boards runs a benchmark a board and hour; the real decision places them
(`tests.builders.outcomes`). In the lab *with a cause* the load of a host makes runs and loading
longer, failures more frequent and numbers less comparable; in the other one nothing but model and
board makes a difference. Prints the tables of ``docs/experiments/outcome-models.md``: what the
gates measure in one lab of each, and the coverage of the intervals in several labs with a cause.
Takes some minutes.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.outcomes.gates import (
    TARGETS,
    PredictionFigures,
    compare,
    coverage_gate,
    measure_gates,
    split_by_time,
)
from edgeyard.scheduler.outcomes.intervals import Interval, group_means
from edgeyard.scheduler.outcomes.rows import OutcomeRows, read_outcome_rows
from edgeyard.scheduler.store import SqlStore
from tests.builders.outcomes import (
    End,
    Run,
    add_past,
    as_the_history_expects,
    disturbed_by_load,
    slowed_by_load,
)

BOARDS = 8
CYCLES = (60, 150)
"""Of a lab: 480 and 1,200 runs."""

SEEDS = 12


def undisturbed(run: Run) -> tuple[float | None, str | None]:
    """Loading takes as long on any host, and three numbers in ten are not comparable."""
    loading_s = 4.0 * run.slowness * math.exp(0.1 * run.normal)
    return loading_s, "suspect" if run.uniform < 0.3 else "comparable"


def lab_rows(cycles: int, seed: int, *, cause: bool) -> OutcomeRows:
    """Return the runs of a lab, with the features of their decisions.

    Args:
        cycles: One an hour, with a benchmark for each board.
        seed: Of its draws.
        cause: Whether the load of hosts makes a difference.
    """
    end: End = slowed_by_load if cause else as_the_history_expects
    quality: End = disturbed_by_load if cause else undisturbed
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
        add_past(store, cycles, boards=BOARDS, end=end, quality=quality, seed=seed)
        rows = read_outcome_rows(store)
        store.close()
    return rows


def later(kind: ModelKind, rows: OutcomeRows) -> PredictionFigures | None:
    """Return how good a model of the earlier runs is on the later ones, next to the history."""
    target = TARGETS[kind]
    past, rest = split_by_time(target.rows(rows))
    return compare(target, rest, target.fit(past).predict(rest), target.history(rest))


def gate_table(cycles: int) -> list[str]:
    """Return the rows of the table of gates: differences of the loss to the history's."""
    labs = [lab_rows(cycles, 0, cause=cause) for cause in (True, False)]
    lines = [
        "| model | lab with a cause: later | other boards | nothing to learn: later | "
        "other boards |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in ModelKind:
        cells = []
        for rows in labs:
            gates, _ = measure_gates(kind, TARGETS[kind].rows(rows), active=None)
            found = {each.name: each for each in gates}
            for name in ("later", "other_boards"):
                gate = found[name]
                if gate.figure is None or gate.low is None or gate.high is None:
                    cells.append("too few runs")
                else:
                    cells.append(str(Interval(gate.figure, gate.low, gate.high)))
        lines.append(f"| `{kind.value}` | {' | '.join(cells)} |")
    return lines


def coverage_table(
    cycles: Sequence[int], seeds: int, report: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Return the rows of the table of coverage, over labs with a cause.

    Args:
        cycles: Sizes of labs.
        seeds: Labs of each size.
        report: Called with the progress.
    """
    lines = [
        "| model, runs of a lab | error of the coverage, points | pinball loss | the history's | "
        "difference, thousandths | gate `coverage` holds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found: dict[tuple[ModelKind, int], list[PredictionFigures]] = {}
    for size in cycles:
        for seed in range(seeds):
            report(f"lab {seed + 1} of {seeds}, {size * BOARDS:,} runs")
            rows = lab_rows(size, seed, cause=True)
            for kind in (ModelKind.RUN_TIME, ModelKind.LOADING):
                figures = later(kind, rows)
                if figures is not None:
                    found.setdefault((kind, size), []).append(figures)
    for kind in (ModelKind.RUN_TIME, ModelKind.LOADING):
        for size in cycles:
            labs = found.get((kind, size), [])
            errors = [100 * each.calibration.mean for each in labs if each.calibration is not None]
            cells = (
                f"`{kind.value}`, {size * BOARDS:,}",
                _over_labs(errors, "+.1f"),
                f"{np.mean([each.loss.mean for each in labs]):.4f}",
                f"{np.mean([each.other_loss.mean for each in labs]):.4f}",
                _over_labs([1000 * each.difference.mean for each in labs], "+.2f"),
                f"{sum(coverage_gate(each).passed for each in labs)} of {len(labs)}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _over_labs(values: Sequence[float], form: str) -> str:
    """Return the mean of one value a lab, with its interval."""
    found = group_means(np.array(values), np.arange(len(values)).astype(np.str_))
    return f"{found.mean:{form}} ({found.low:{form}} to {found.high:{form}})"


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trained_models")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="labs of each size")
    options = parser.parse_args()
    print("\n".join(gate_table(CYCLES[0])), flush=True)
    print()
    lines = coverage_table(CYCLES, options.seeds, lambda line: print(line, file=sys.stderr))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
