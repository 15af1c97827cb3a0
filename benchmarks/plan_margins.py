"""How sure a plan has to be before it holds a benchmark back: margins in simulated labs.

``python -m benchmarks.plan_margins SEED...`` simulates the labs of ``bench-quality`` with 20 boards
and the judged scenarios of `benchmarks.judged_labs` under the policy ``default``, with ``planner =
"none"`` and with its own, ``expected_cost``, at several values of `HOLD_ERRORS`, on the same
arrivals, run times and faults. It prints ratios over the margin in use, and of that over no plan.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.bench_quality import Lab, ratio_interval, scenario
from benchmarks.judged_labs import judged
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide import planning
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import Scenario

IN_USE = planning.HOLD_ERRORS
MARGINS = (None, IN_USE, 1.0, 0.5, 0.0)
"""Standard errors; None: without a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What one margin reached in one lab.

    Attributes:
        completion_s: Mean time from submission to result.
        p95_wait_s: 95 % of the benchmarks waited less.
        misses: Deadlines that were missed.
        failures: Attempts that failed.
    """

    completion_s: float
    p95_wait_s: float
    misses: int
    failures: int


def groups() -> Mapping[str, Mapping[str, Scenario]]:
    """Return the labs that are compared together."""
    different = {f"load {load:g}": scenario(Lab(20, load=load)) for load in (0.4, 0.6, 0.8)}
    different["faulty"] = scenario(Lab(20, faulty=True))
    different["deadlines"] = scenario(Lab(20, deadline_s=600.0, load=0.9))
    return {
        "different boards 20": different,
        "equal boards 20": {"equal": scenario(Lab(20, equal=True))},
        "judged scenarios": judged(),
    }


def planned_run(lab: Scenario, margin: float | None, seed: int) -> PlannedRun:
    """Simulate one lab; the margin stays in use in this process."""
    policy = load_policy("default")
    if margin is None:
        policy = replace(policy, planner=None)
    else:
        planning.HOLD_ERRORS = margin
    plugins = registry(entry_points=False).resolve(policy)
    found = measured(simulate_lab(lab, policy, plugins, seed=seed))
    return PlannedRun(
        completion_s=found.metrics.figures["turnaround_s"].interval.mean,
        p95_wait_s=float(np.nanquantile(found.jobs.figure("wait_s").values, 0.95)),
        misses=found.metrics.deadline_misses,
        failures=found.metrics.failed_attempts,
    )


def lines(ours: Sequence[PlannedRun], others: Sequence[PlannedRun]) -> str:
    """Return ratios of the sums with their 95 % intervals over labs and seeds, and counts."""
    parts = []
    for name in ("completion_s", "p95_wait_s"):
        both = [[float(getattr(each, name)) for each in runs] for runs in (ours, others)]
        means = f"{np.mean(both[0]):.0f} s : {np.mean(both[1]):.0f} s"
        ratio = "{:.3f} ({:.3f} to {:.3f})".format(*ratio_interval(*both)) if any(both[1]) else "-"
        parts.append(f"{name} {ratio}, {means}")
    for name in ("misses", "failures"):
        sums = [sum(getattr(each, name) for each in runs) for runs in (ours, others)]
        parts.append(f"{name} {sums[0]} : {sums[1]}")
    return "; ".join(parts)


def main(seeds: Sequence[int]) -> None:
    """Simulate all and print one line for each comparison."""
    for group, labs in groups().items():
        found: dict[float | None, list[PlannedRun]] = {each: [] for each in MARGINS}
        for name, lab in labs.items():
            for margin in MARGINS:
                runs = [planned_run(lab, margin, seed) for seed in seeds]
                found[margin] += runs
            plan, none = (found[each][-len(seeds) :] for each in (IN_USE, None))
            print(f"{group}, {name}: margin {IN_USE:g} over no plan: {lines(plan, none)}")
        print(f"{group}: margin {IN_USE:g} over no plan: {lines(found[IN_USE], found[None])}")
        for margin in MARGINS[2:]:
            compared = lines(found[margin], found[IN_USE])
            print(f"{group}: margin {margin:g} over margin {IN_USE:g}: {compared}")


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1, 2, 3])
