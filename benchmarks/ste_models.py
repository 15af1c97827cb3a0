"""The models of the synthetic test environment: the two that are shipped, and what training gains.

``python -m benchmarks.ste_models ship`` trains ``ste_default`` from rewards alone, each generation
on another generated lab, or on generated nodes, and writes both models to
``plugins/scorers/models``. ``rows`` judge one against the other on a shipped scenario of each
world, which neither was trained on; ``python -m benchmarks.ste_models gain WORLD [SEED...]`` prints
the same, and ``labs`` what it gains in ten drawn labs that it was not trained on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.learned import SHIPPED, load_learned
from edgeyard.scheduler.framework.policy import Policy, load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    JobKind,
    LabScenario,
    NodeGroup,
    NodesScenario,
    PaperMix,
    Scenario,
    load_scenario,
)
from edgeyard.simulator.schedules import compare
from edgeyard.training.ste import training
from edgeyard.training.ste.lab import episode_figures
from edgeyard.training.worlds.simulated_nodes import simulate_nodes

SCENARIOS = {"lab": "faster_boards", "nodes": "shared_nodes"}
_GENERATIONS = 4
_SEEDS = range(1_000_000, 1_000_008)
"""No model was trained on them."""

_UNSEEN_LABS = range(100, 110)

_JOBS = 40
"""Benchmarks of a generated lab, about."""


def generated_lab(number: int) -> Scenario:
    """Draw one to three families of unequal boards, and two to four kinds of benchmarks."""
    random = stream(number, "ste", "lab")
    boards = tuple(
        BoardGroup(
            family=f"family{row}",
            count=int(random.integers(2, 6)),
            speed=float(np.round(np.exp(random.uniform(-1.2, 1.2)), 3)),
            speed_spread=float(np.round(random.uniform(0.0, 0.8), 3)),
            cpu_cores=float(random.integers(1, 9)),
        )
        for row in range(int(random.integers(1, 4)))
    )
    mix = tuple(
        JobKind(
            model=f"model{row}",
            share=float(np.round(random.uniform(0.5, 3.0), 3)),
            run_s=float(np.round(np.exp(random.uniform(np.log(10.0), np.log(900.0))), 1)),
            run_spread=0.3,
        )
        for row in range(int(random.integers(2, 5)))
    )
    shares = np.array([kind.share for kind in mix])
    mean_s = float(np.dot(shares, [kind.run_s for kind in mix]) / shares.sum())
    load, speed = random.uniform(0.7, 1.5), sum(each.count * each.speed for each in boards)
    rate = load * speed / mean_s
    return Scenario(
        name=f"lab-{number}",
        world="boards",
        duration_s=_JOBS / rate,
        lab=LabScenario(
            boards=boards,
            history_jobs=int(random.choice([0, 100])),
            arrivals=Arrivals(rate_per_hour=3600.0 * rate, mix=mix),
        ),
    )


def generated_nodes(number: int) -> Scenario:
    """Draw nodes of one or two sizes, and short and long jobs that take parts of them."""
    random = stream(number, "ste", "nodes")
    groups = tuple(
        NodeGroup(
            count=int(random.integers(1, 4)),
            cpu_cores=int(random.choice([8, 16, 32])),
            memory_mb=int(random.choice([16, 32, 64])) * 1024,
            name=f"size{row}",
        )
        for row in range(int(random.integers(1, 3)))
    )
    smallest = min(each.cpu_cores for each in groups)
    units = sum(each.count * each.cpu_cores for each in groups) / smallest
    # At length 1 the paper's mix takes an eighth of a smallest node at a rate of 0.8.
    length = max(round(float(random.uniform(0.8, 1.4)) * units / 0.75), 1)
    steps, step_s = 80, float(random.choice([2.0, 5.0, 20.0]))
    return Scenario(
        name=f"nodes-{number}",
        world="nodes",
        duration_s=steps * step_s,
        nodes=NodesScenario(
            nodes=groups,
            mix=PaperMix(
                rate=0.8,
                steps=steps,
                step_s=step_s,
                short=(length, 3 * length),
                long=(10 * length, 15 * length),
            ),
        ),
    )


def ship() -> int:
    """Train ``ste_default`` and write both models."""
    for name in ("ste_untrained", "ste_default"):
        if not (SHIPPED / f"{name}.toml").exists():
            training.new_model(name, SHIPPED)
    path = SHIPPED / "ste_default.toml"
    manifest, _ = training.load_trainable(path)
    network = training.untrained_network(len(manifest.inputs))
    trainer = training.EpisodeEvolution(manifest, training.TrainingState(network=network))
    policy = load_policy("learned")
    plugins = registry(entry_points=False).resolve(policy)
    for episode in range(_GENERATIONS * training.CANDIDATES):
        generation = training.seed_of_episode(0, episode)
        scenario = (generated_lab, generated_nodes)[generation % 2](generation)
        run = _played(scenario, policy, trainer.exploring_plugins(plugins), generation)
        found = trainer.learn(episode_figures(run).mean_turnaround_s, run.jobs.job.size)
        print(f"episode {episode}: {found}", flush=True)
    trained_on = f"{_GENERATIONS} generated labs and nodes, {trainer.state.episodes} episodes"
    training.write_model(path, replace(manifest, trained_on=trained_on), trainer.network)
    return 0


def _played(scenario: Scenario, policy: Policy, plugins: Plugins, seed: int) -> SimulatedRun:
    """Simulate a scenario: the decisions are those of the test environment's rounds."""
    if scenario.lab is None:
        return simulate_nodes(scenario, policy, plugins, seed=seed)
    return simulate_lab(scenario, policy, plugins, seed=seed)


def gain(world: str, seeds: Sequence[int] | None = None) -> dict[str, Any]:
    """Judge the trained model against the untrained one on unseen seeds of a shipped scenario.

    Args:
        world: ``lab`` or ``nodes``.
        seeds: None: all of `_SEEDS`.
    """
    scenario, policy = load_scenario(SCENARIOS[world]), load_policy("learned")
    plugins = registry(entry_points=False).resolve(policy)
    found: dict[str, list[float]] = {}
    for name in ("ste_default", "ste_untrained"):
        with_model = training.alone(plugins, load_learned(SHIPPED / f"{name}.toml"))
        for seed in seeds or _SEEDS:
            run = _played(scenario, policy, with_model, seed)
            found.setdefault(name, []).append(episode_figures(run).mean_turnaround_s)
    trained, untrained = (np.array(found[name]) for name in ("ste_default", "ste_untrained"))
    return {"turnaround_s": found, **asdict(compare(trained, untrained))}


def labs_gain(labs: Sequence[int]) -> dict[str, Any]:
    """Judge the trained model against the untrained one: relative turnarounds in drawn labs."""
    policy = load_policy("learned")
    plugins = registry(entry_points=False).resolve(policy)
    trained, untrained = (
        training.alone(plugins, load_learned(SHIPPED / f"{name}.toml"))
        for name in ("ste_default", "ste_untrained")
    )
    ratios = []
    for number in labs:
        its, peers = (
            episode_figures(_played(generated_lab(number), policy, each, number)).mean_turnaround_s
            for each in (trained, untrained)
        )
        ratios.append(its / peers)
    return {"ratios": ratios, **asdict(compare(np.array(ratios), np.ones(len(ratios))))}


def rows() -> list[Row]:
    """Return ``ste gain lab`` and ``ste gain nodes``: the trained model against the untrained."""
    found = []
    for world, name in SCENARIOS.items():
        known = gain(world)
        change = known["difference"]
        trained, peer = (float(np.mean(each)) for each in known["turnaround_s"].values())
        note = (
            f"mean turnaround of {name}, each model alone; changed by {change['mean']:.1f} s "
            f"({change['low']:.1f} to {change['high']:.1f}) on {len(_SEEDS)} unseen seeds"
        )
        found.append(Row(f"ste gain {world}", trained, "s", peer, trained / peer, note))
    return found


def main(arguments: list[str]) -> int:
    """Do what the first argument names."""
    if arguments[:1] == ["ship"]:
        return ship()
    if arguments[:1] == ["labs"]:
        print(json.dumps(labs_gain(_UNSEEN_LABS)))
        return 0
    if arguments[:1] == ["gain"]:
        seeds = [int(each) for each in arguments[2:]]
        print(json.dumps(gain(arguments[1], seeds)))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
