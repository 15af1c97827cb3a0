"""What the look-ahead gains on logs that nothing was chosen on: ``python -m benchmarks.lookahead``.

60 windows of 1,024 jobs, evenly spread over each whole log, on an empty machine, with EASY. The
peer is the best of five rules (fcfs, sjf, f1, smallest area, wfp3) on the windows of the log in
hindsight. Logs on which these rules differ by less than a tenth are named and left out of the mean.
Writes ``benchmarks/data/lookahead.json``.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.training.windows import (
    CARASTAN_SANTOS,
    FIFO,
    SHORTEST,
    SMALLEST_AREA,
    WINDOW_JOBS,
    lookahead_ends,
    rule_ends,
    slowdowns,
    spread_starts,
    window_of,
)
from edgeyard.training.worlds.replay import Backfilling, replay
from edgeyard.training.worlds.swf import read_swf

Floats = NDArray[np.float64]

TRACES = Path(os.environ.get("EDGEYARD_TRACES") or "../shared/traces")
LOGS = {
    "KTH": ("KTH-SP2-1996-2.1-cln.swf.gz", 100),
    "Theta": ("theta_2022.swf.gz", 4360),
    "Lublin-1": ("lublin_256.swf.gz", 256),
    "SDSC-SP2": ("SDSC-SP2-1998-4.2-cln.swf.gz", 128),
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", 240),
    "Lublin-2": ("lublin_256_new2.swf.gz", 256),
    "NASA-iPSC": ("NASA-iPSC-1993-3.1-cln.swf.gz", 128),
}
"""File and processors of each log; none is part of the project."""
TABLE = Path(__file__).parent / "data" / "lookahead.json"

RULES = {
    "fcfs": FIFO,
    "sjf": SHORTEST,
    "f1": CARASTAN_SANTOS,
    "smallest area": SMALLEST_AREA,
}
WINDOWS = 60
SAME = 1.1
"""Rules differ on a log where the worst is above the best by more than this factor."""
_RESAMPLES = 10_000


def judged(name: str, count: int = WINDOWS) -> dict[str, list[float]]:
    """Return the mean bounded slowdown of each window of a log under each rule."""
    file, processors = LOGS[name]
    log = read_swf(TRACES / file)
    found: dict[str, list[float]] = {}
    starts = spread_starts(log, count)
    windows = [window_of(log, start, processors) for start in starts]
    for rule, number in RULES.items():
        found[rule] = [float(slowdowns(each, rule_ends(each, number)).mean()) for each in windows]
    wfp3 = registry(entry_points=False).queue_policy("wfp3")
    found["wfp3"] = [
        float(
            replay(
                log.part(start, WINDOW_JOBS),
                wfp3,
                processors=processors,
                backfilling=Backfilling.EASY,
            )
            .schedule.bounded_slowdown()
            .mean()
        )
        for start in starts
    ]
    found["lookahead"] = [float(slowdowns(each, lookahead_ends(each)).mean()) for each in windows]
    print(name, {rule: round(float(np.mean(each)), 2) for rule, each in found.items()})
    sys.stdout.flush()
    return found


def ratio(means: Mapping[str, Sequence[float]]) -> tuple[float, float, float, str]:
    """Return the ratio to the best rule, its 95 % interval by a bootstrap of windows, the rule."""
    rules = {rule: np.array(each) for rule, each in means.items() if rule != "lookahead"}
    best = min(rules, key=lambda rule: float(rules[rule].mean()))
    ours = np.array(means["lookahead"])
    drawn = np.random.default_rng(0).integers(0, len(ours), (_RESAMPLES, len(ours)))
    ratios = ours[drawn].mean(axis=1) / rules[best][drawn].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(ours.mean() / rules[best].mean()), float(low), float(high), best


def geometric_mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean and its 95 % interval by a bootstrap of logs."""
    logs = np.log(ratios)
    drawn = np.random.default_rng(0).integers(0, len(logs), (_RESAMPLES, len(logs)))
    low, high = np.quantile(np.exp(logs[drawn].mean(axis=1)), (0.025, 0.975))
    return float(np.exp(logs.mean())), float(low), float(high)


def table(means: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Return the figures of all logs."""
    rows: list[dict[str, Any]] = []
    for name, each in means.items():
        rules = [float(np.mean(its)) for rule, its in each.items() if rule != "lookahead"]
        value, low, high, best = ratio(each)
        rows.append(
            {
                "log": name,
                "windows": len(each["lookahead"]),
                "differ": max(rules) > SAME * min(rules),
                "best_rule": best,
                "best": float(np.mean(each[best])),
                "mean": float(np.mean(each["lookahead"])),
                "ratio": value,
                "low": low,
                "high": high,
            }
        )
    differing = [each["ratio"] for each in rows if each["differ"]]
    return {
        "rows": rows,
        "geometric_mean": geometric_mean(differing) if differing else [math.nan] * 3,
        "means": means,
    }


def markdown(found: Mapping[str, Any]) -> str:
    """Return the rows of the documented table."""
    lines = []
    for each in found["rows"]:
        note = "" if each["differ"] else " (the rules do not differ)"
        lines.append(
            f"| {each['log']}{note} | {each['best_rule']} {each['best']:.1f} | {each['mean']:.1f} "
            f"| {each['ratio']:.2f} ({each['low']:.2f}-{each['high']:.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    """Judge, print and write."""
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as processes:
        means = dict(zip(LOGS, processes.map(judged, LOGS), strict=True))
    found = table(means)
    TABLE.write_text(json.dumps(found, indent=1) + "\n")
    print(markdown(found))
    print("geometric mean {:.3f} ({:.3f} to {:.3f})".format(*found["geometric_mean"]))


if __name__ == "__main__":
    main()
