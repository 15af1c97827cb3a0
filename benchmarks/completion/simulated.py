"""The comparison of the records in the simulator, on more boards."""

from __future__ import annotations

import sys
import time

from benchmarks.bench_quality import policy_of, ratio_interval
from benchmarks.completion import scenario as recorded
from benchmarks.completion.scenario import FAMILIES, LEARNED, PEER, SCENARIOS, SPEEDS, family_of
from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import Arrivals, BoardGroup, JobKind, LabScenario, Scenario

SIZES = {10: (12, 2 * 3600.0), 100: (6, 3600.0), 1000: (5, 900.0)}
"""By the number of boards: seeds, and seconds in which benchmarks arrive."""

_RUN_FACTOR = 60.0
"""Runs of minutes instead of seconds, as in a lab: the rest of a job's time counts for little."""


OF_TWO_ARMS = tuple(each for each in SCENARIOS.values() if LEARNED in each.arms)


def scenario(kind: recorded.Scenario, boards: int) -> Scenario:
    """Return a lab with the records' shares of speeds, their load and their kinds of benchmarks.

    Args:
        kind: Of a recording.
        boards: How many; the counts of the slower speeds are rounded down.
    """
    counts = {speed: boards * SPEEDS.count(speed) // len(SPEEDS) for speed in FAMILIES}
    counts[1.0] += boards - sum(counts.values())
    power = sum(speed * count for speed, count in counts.items())
    shares = {family_of(kind, speed): 0.0 for speed in counts}
    for speed, count in counts.items():
        shares[family_of(kind, speed)] += speed * count / power
    seeds_s = SIZES[boards][1]
    mean_run_s = _RUN_FACTOR * sum(each.run_s for each in kind.kinds) / len(kind.kinds)
    return Scenario(
        name="completion",
        world="boards",
        duration_s=seeds_s,
        lab=LabScenario(
            boards=tuple(
                BoardGroup(family=family_of(kind, speed), count=count, speed=speed)
                for speed, count in counts.items()
            ),
            arrivals=Arrivals(
                rate_per_hour=kind.load * power * 3600.0 / mean_run_s,
                mix=tuple(
                    JobKind(
                        model=each.model,
                        run_s=_RUN_FACTOR * each.run_s,
                        families=(family,),
                        share=share,
                    )
                    for each in kind.kinds
                    for family, share in shares.items()
                ),
            ),
            history_jobs=10 * boards,
        ),
    )


def rows() -> list[Row]:
    """Return a row for each size and scenario."""
    return [row(f"{kind.row} {boards}", kind, boards) for kind in OF_TWO_ARMS for boards in SIZES]


def row(name: str, kind: recorded.Scenario, boards: int) -> Row:
    """Return the mean completion of the learned policy and of the peer on the same arrivals."""
    seeds = SIZES[boards][0]
    ours, peer = (_completions_s(kind, boards, policy) for policy in (LEARNED.policy, PEER))
    ratio, low, high = ratio_interval(ours, peer)
    note = (
        f"{low:.2f} to {high:.2f}; {LEARNED.name} over {PEER}; simulated, "
        f"{boards} boards, {seeds} seeds"
    )
    return Row(name, sum(ours) / seeds, "s", sum(peer) / seeds, ratio, note)


def _completions_s(kind: recorded.Scenario, boards: int, policy_name: str) -> list[float]:
    """Return the mean of each seed; writes a line of progress to the standard error."""
    policy = policy_of(policy_name)
    lab, found = scenario(kind, boards), []
    for seed in range(1, SIZES[boards][0] + 1):
        plugins = registry(entry_points=False).resolve(policy)
        run = measured(simulate_lab(lab, policy, plugins, seed=seed))
        found.append(run.metrics.figures["turnaround_s"].interval.mean)
        sys.stderr.write(
            f"{boards} boards, {kind.name}, {policy_name}: seed {seed}, "
            f"{time.process_time():.0f} s of processor time so far\n"
        )
    return found
