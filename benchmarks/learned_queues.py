"""Rows of ``bench-learn`` on real logs: the shipped queue policies, judged again."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.lookahead import LOGS, TRACES, judged, ratio
from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.training.judgement import judge
from edgeyard.training.windows import (
    JUDGED_STARTS,
    WINDOW_JOBS,
    Window,
    judged_windows,
)
from edgeyard.training.worlds.replay import Backfilling, replay
from edgeyard.training.worlds.swf import read_swf

OWN = {
    "HPC2N": "queue_hpc2n",
    "SDSC-SP2": "queue_sdsc_sp2",
    "Lublin-1": "queue_lublin_1",
    "Lublin-2": "queue_lublin_2",
}
"""The policies that were trained on the rest of a log."""
WINDOWS = 12
"""Windows of each log; ``python -m benchmarks.lookahead`` has sixty."""


def rows() -> list[Row]:
    """Return ``bsld LOG`` and ``one policy LOG``; none where the logs are missing."""
    missing = [file for file, _ in LOGS.values() if not (TRACES / file).is_file()]
    if missing:
        print(f"skipped: no {missing[0]} in {TRACES} (set EDGEYARD_TRACES)", file=sys.stderr)
        return []
    return [*_own_logs(), *_one_policy()]


def _own_logs() -> list[Row]:
    known = registry(entry_points=False)
    found = []
    for name, policy_name in OWN.items():
        policy = known.queue_policy(policy_name)
        file, processors = LOGS[name]
        log = read_swf(TRACES / file)
        parts = iter([log.part(start, WINDOW_JOBS) for start in JUDGED_STARTS])

        def ends(window: Window) -> NDArray[np.float64]:
            part = next(parts)  # noqa: B023
            schedule = replay(
                part,
                policy,  # noqa: B023
                processors=processors,  # noqa: B023
                backfilling=Backfilling.EASY,
            ).schedule
            return schedule.end[np.lexsort((part.job, part.submit))]

        found.append(_row(f"bsld {name}", judged_windows(log, processors), ends, policy_name))
    return found


def _one_policy() -> list[Row]:
    found = []
    for name in LOGS:
        means = judged(name, WINDOWS)
        value, low, high, best = ratio(means)
        note = (
            f"look-ahead; mean bounded slowdown of {WINDOWS} windows of 1,024 jobs over the whole "
            f"log, EASY; {low:.2f} to {high:.2f}; peer: {best}, the best of five rules in hindsight"
        )
        ours, peer = (float(np.mean(means[each])) for each in ("lookahead", best))
        found.append(Row(f"one policy {name}", ours, "bsld", peer, value, note))
    return found


def _row(
    name: str, windows: list[Window], ends: Callable[[Window], NDArray[np.float64]], what: str
) -> Row:
    found = judge(windows, ends)
    note = (
        f"{what}; mean bounded slowdown of ten sequences of 1,024 jobs, EASY "
        f"({found.low:.1f}-{found.high:.1f}; median {found.median:.1f}, worst {found.worst:.1f}, "
        f"longest wait {found.max_wait_s / 3600:.0f} h); peer: the best of fcfs, sjf, f1"
    )
    return Row(name, found.mean, "bsld", found.best_rule, found.ratio, note)
