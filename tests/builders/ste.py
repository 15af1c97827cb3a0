"""The synthetic test environment in one process, on a small scenario."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import Policy, parse_policy, read_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.simulator.scenario import Scenario, scenario_from_toml
from edgeyard.training.ste.controller import Controller, LocalScheduling, LocalTwin
from edgeyard.training.ste.scheduling import SchedulerController, Trainer

SCENARIO = """
name = "small"
world = "boards"
duration_s = {duration_s}
seed = 3
[lab]
history_jobs = 60
[[lab.boards]]
family = "rpi5"
count = 8
per_host = 2
speed_spread = 0.7
[lab.faults]
task_rate = 0.05
[lab.arrivals]
rate_per_hour = 360
[[lab.arrivals.mix]]
model = "mobilenet.onnx"
run_s = 20
[[lab.arrivals.mix]]
model = "resnet.onnx"
run_s = 60
deadline_s = 900
"""

HEURISTICS = """
[[scorers]]
name = "best_fit"
weight = 1.0
"""


def scenario(duration_s: float = 600.0) -> Scenario:
    return scenario_from_toml(SCENARIO.format(duration_s=duration_s))


def quick_policy(more: str = HEURISTICS) -> Policy:
    """The default policy with an evaluator and further scorers: no solver, no model."""
    return parse_policy(quick_policy_text(more))


def quick_policy_text(more: str = HEURISTICS) -> str:
    text = read_policy("default").replace("[priority]", more + "\n[priority]", 1)
    return text.replace("\naggregator", '\nevaluator = "compared"\naggregator', 1)


@dataclass(frozen=True)
class OneScenario:
    """A ScenarioDB with one scenario."""

    only: Scenario

    def scenario(self, name: str) -> Scenario:
        assert name == self.only.name
        return self.only


@dataclass(frozen=True)
class Environment:
    twin: DigitalTwin
    scheduler: SchedulerController
    controller: Controller
    plugins: Plugins
    policy: Policy


def environment(
    policy: Policy,
    *,
    of: Scenario | None = None,
    models: Path | None = None,
    trainer: Trainer | None = None,
    plugins: Plugins | None = None,
) -> Environment:
    twin = DigitalTwin()
    plugins = plugins or registry(entry_points=False, models=models).resolve(policy)
    scheduler = SchedulerController(
        LocalTwin(twin), policy, plugins, monotonic_s=time.monotonic, trainer=trainer
    )
    controller = Controller(
        OneScenario(of or scenario()), LocalTwin(twin), LocalScheduling(scheduler)
    )
    return Environment(twin, scheduler, controller, plugins, policy)
