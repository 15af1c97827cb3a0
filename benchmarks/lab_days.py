"""Rows of a simulated lab: one small cycle, and a day of decisions only."""

from __future__ import annotations

import time

from benchmarks.tables import Row, median_interval
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.lab.world import LabWorld
from edgeyard.simulator.scenario import Scenario, scenario_from_json, scenario_to_json

CYCLES = 200
FAMILIES = ("rpi4b", "rpi5", "jetsonorinnano", "x86")


def scenario(boards: int, benchmarks: int, days: float) -> Scenario:
    """A lab of four families at about 70 % load."""
    run_s = 0.7 * days * 86400.0 * boards / benchmarks
    group = {"count": boards // 4, "engines": {"ort": ["TYPE1", "TYPE2"]}}
    mix = [
        {"model": f"model{row}", "run_s": run_s * share, "run_spread": 0.3}
        for row, share in enumerate((0.5, 1.0, 1.5))
    ]
    return scenario_from_json(
        {
            "name": "bench",
            "world": "boards",
            "duration_s": days * 86400.0,
            "lab": {
                "boards": [{**group, "family": family} for family in FAMILIES],
                "arrivals": {"rate_per_hour": benchmarks / (24.0 * days), "mix": mix},
                "max_run_s": 10.0 * run_s,
            },
        }
    )


def lab_day(name: str = "lab day", boards: int = 100, jobs: int = 5000, days: float = 1.0) -> Row:
    """Seconds that decisions only take, on one core."""
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    began = time.process_time()
    world = LabWorld(scenario(boards, jobs, days), policy, plugins, seed=1)
    while world.step():
        pass
    took_s = time.process_time() - began
    note = f"{boards:,} boards, {world.count:,} benchmarks, {world.cycles:,} cycles; processor time"
    return Row(name, took_s, "s", note=note)


def small_cycle(pending: int = 40, boards: int = 100) -> Row:
    """Milliseconds of processor time of ``decide()`` where some boards are free, others busy."""
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    found: list[CycleInput] = []

    def watch(at_s: float, given: CycleInput, result: CycleResult) -> None:
        if len(given.pending) == pending:
            found.append(given)

    document = scenario_to_json(scenario(boards, 4 * boards, 1.0))
    del document["lab"]["arrivals"]
    document["lab"]["jobs"] = [
        {
            "job_id": f"j{row}",
            "submit_s": 0.0 if row < boards * 6 // 10 else 10.0,
            "run_s": 600.0,
            "family": FAMILIES[row % 4],
            "model": f"model{row % 3}",
        }
        for row in range(boards * 6 // 10 + pending)
    ]
    world = LabWorld(scenario_from_json(document), policy, plugins, seed=1)
    world.watch = watch
    while world.step():
        pass
    given = found[0]
    decide(given, policy, plugins)
    times = []
    for _ in range(CYCLES):
        began = time.process_time()
        decide(given, policy, plugins)
        times.append((time.process_time() - began) * 1000.0)
    value, low, high = median_interval(times)
    busy = int(given.snapshot.busy.sum())
    shape = f"{pending} x {boards}, {busy} boards busy"
    note = f"decide() alone, {shape}; processor time; median of {CYCLES} ({low:.2g}-{high:.2g})"
    return Row("small cycle", value, "ms", note=note)
