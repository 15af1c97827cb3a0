"""Chooses the settings of the look-ahead on windows of logs: ``python -m benchmarks.lookahead``.

Each setting of a grid replays windows of each log that overlap no judged sequence. For each log the
setting that is best on the five others is judged on the log's ten sequences; the one that is best
on all six is shipped as ``learned_lookahead``. Writes ``benchmarks/data/lookahead.json``.
"""

from __future__ import annotations

import json
import math
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np

from edgeyard.scheduler.kernel.rollouts import RULES
from edgeyard.training.judgement import judge
from edgeyard.training.windows import (
    Window,
    best_rule,
    judged_windows,
    lookahead_ends,
    slowdowns,
    training_windows,
)
from edgeyard.training.worlds.swf import read_swf

TRACES = Path(os.environ.get("EDGEYARD_TRACES") or "../shared/traces")
LOGS = {
    "KTH": ("KTH-SP2-1996-2.1-cln.swf.gz", 100),
    "Theta": ("theta_2022.swf.gz", 4360),
    "Lublin-1": ("lublin_256.swf.gz", 256),
    "SDSC-SP2": ("SDSC-SP2-1998-4.2-cln.swf.gz", 128),
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", 240),
    "Lublin-2": ("lublin_256_new2.swf.gz", 256),
}
"""File and processors of each log; none is part of the project."""
TABLE = Path(__file__).parent / "data" / "lookahead.json"

REQUEST_WEIGHTS = (1.0, 3.0, 10.0, 30.0)
HORIZONS_S = (math.inf, 172800.0, 86400.0, 43200.0, 14400.0)
WINDOWS = 24
"""At most so many of a log, evenly spread."""


def windows(name: str, max_windows: int = WINDOWS) -> tuple[list[Window], list[Window]]:
    """Return windows of a log to choose by, and its judged sequences."""
    file, processors = LOGS[name]
    log = read_swf(TRACES / file)
    found = [each for part in training_windows(log, processors) for each in part]
    step = max(1, len(found) // max_windows)
    return found[::step][:max_windows], judged_windows(log, processors)


def ratio(found: list[Window], request_weight: float, horizon_s: float) -> float:
    """Return the mean bounded slowdown over that of the rule that is best on these windows."""
    rules = np.arange(len(RULES))
    means = [
        slowdowns(each, lookahead_ends(each, rules, request_weight, horizon_s)).mean()
        for each in found
    ]
    return float(np.mean(means) / best_rule(found).mean(axis=0).min())


def main() -> None:
    """Choose, judge, print and write."""
    settings = list(product(REQUEST_WEIGHTS, HORIZONS_S))
    logs = {name: windows(name) for name in LOGS}
    ratios = np.array(
        [[ratio(found, *each) for found, _ in logs.values()] for each in settings]
    )  # shape (settings, logs)
    chosen = {
        name: settings[int(np.log(np.delete(ratios, row, axis=1)).mean(axis=1).argmin())]
        for row, name in enumerate(LOGS)
    }
    shipped = settings[int(np.log(ratios).mean(axis=1).argmin())]
    rows = []
    rules = np.arange(len(RULES))
    for name, (_, sequences) in logs.items():
        setting = chosen[name]
        found = judge(sequences, lambda window: lookahead_ends(window, rules, *setting))  # noqa: B023
        rows.append(
            {
                "log": name,
                "request_weight": setting[0],
                "horizon_s": None if math.isinf(setting[1]) else setting[1],
                "mean": found.mean,
                "low": found.low,
                "high": found.high,
                "median": found.median,
                "worst": found.worst,
                "max_wait_s": found.max_wait_s,
                "best_rule": found.best_rule,
                "ratio": found.ratio,
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr)
    table = {
        "rules": RULES,
        "grid": {
            "request_weight": REQUEST_WEIGHTS,
            "horizon_s": [None if math.isinf(each) else each for each in HORIZONS_S],
        },
        "ratios": {
            f"{weight:g}, {horizon_s:g}": dict(zip(LOGS, row.round(4).tolist(), strict=True))
            for (weight, horizon_s), row in zip(settings, ratios, strict=True)
        },
        "shipped": {"request_weight": shipped[0], "horizon_s": shipped[1]},
        "left_out": rows,
        "geometric_mean": float(np.exp(np.mean([math.log(float(str(r["ratio"]))) for r in rows]))),
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
    print(json.dumps(table["geometric_mean"]), file=sys.stderr)


if __name__ == "__main__":
    main()
