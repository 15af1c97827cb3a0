"""The thirteen steps are observed where they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.registry import Plugins, WeightedScorer
from edgeyard.scheduler.twin.document import TwinData
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.simulator.scenario import Scenario
from edgeyard.training.ste.controller import Controller, LocalScheduling, RoundReport
from edgeyard.training.ste.scheduling import SchedulerController
from tests.builders.ste import quick_policy, scenario

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Record:
    """A clock that goes on by a second whenever it is read, and who acted when."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.acts: list[tuple[str, float]] = []

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def wall(self) -> datetime:
        return BEGIN + timedelta(seconds=self.now_s + 1.0)

    def act(self, name: str) -> None:
        self.acts.append((name, self.monotonic_s()))


class Spied:
    """An object whose method of one name is recorded."""

    def __init__(self, of: Any, method: str, record: Record) -> None:
        self._of, self._method, self._record = of, method, record

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name != self._method:
            return found

        def recorded(*arguments: Any) -> Any:
            self._record.act(name)
            return found(*arguments)

        return recorded


class SpiedScenarios:
    """A ScenarioDB that is recorded."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def scenario(self, name: str) -> Scenario:
        self._record.act("scenario")
        return scenario(60.0)


class SpiedTwin:
    """The twin, recorded, for both controllers."""

    def __init__(self, record: Record) -> None:
        self._twin, self._record = DigitalTwin(), record

    def refresh(self) -> int:
        self._record.act("refresh")
        return self._twin.refresh()

    def send(self, body: bytes) -> int:
        self._record.act("send")
        return self._twin.receive(body).version

    def pull(self, version: int) -> TwinData:
        self._record.act("pull")
        return self._twin.state(version).data


class SpiedTrainer:
    """A trainer that learns nothing, and records what it is given."""

    name = "spied"

    def __init__(self, record: Record) -> None:
        self._record = record

    def exploring_plugins(self, plugins: Plugins) -> Plugins:
        return plugins

    def evaluated_plugins(self, plugins: Plugins, state: str) -> Plugins:
        return plugins

    def add_state(self, data: TwinData) -> float:
        self._record.act("rewarded")
        return 0.0

    def finish_episode(self) -> Mapping[str, float]:
        return {}


STEP_OF = {
    "refresh": 2,
    "scenario": 3,
    "send": 4,
    "pull": 6,
    "order": 7,
    "admit": 8,
    "score": 10,
    "evaluate": 11,
    "rewarded": 12,
    "combine": 13,
}


def rounds(record: Record) -> list[RoundReport]:
    policy = replace(quick_policy(), planner=None)  # a planner asks the filters again in step 13
    plugins = registry(entry_points=False).resolve(policy)
    plugins = replace(
        plugins,
        queue_policy=Spied(plugins.queue_policy, "order", record),
        filters=tuple(Spied(each, "admit", record) for each in plugins.filters),
        scorers=tuple(
            WeightedScorer(scorer=Spied(each.scorer, "score", record), weight=each.weight)
            for each in plugins.scorers
        ),
        evaluator=Spied(plugins.evaluator, "evaluate", record),
        aggregator=Spied(plugins.aggregator, "combine", record),
    )
    twin = SpiedTwin(record)
    scheduler = SchedulerController(
        twin, policy, plugins,
        monotonic_s=record.monotonic_s, wall=record.wall, trainer=SpiedTrainer(record),
    )  # fmt: skip
    controller = Controller(
        SpiedScenarios(record), twin, LocalScheduling(scheduler),
        monotonic_s=record.monotonic_s, wall=record.wall,
    )  # fmt: skip
    found: list[RoundReport] = []
    controller.episode(
        "small", run="r", episode=0, seed=1, train="spied", max_rounds=4,
        on_round=lambda report, _: found.append(report),
    )  # fmt: skip
    return found


def test_what_belongs_to_a_step_happens_within_it() -> None:
    record = Record()
    found = rounds(record)
    spans = [
        (each.step, (each.at - BEGIN).total_seconds(), each.seconds)
        for report in found
        for each in report.steps
    ]
    seen = set()
    for name, at_s in record.acts:
        within = [
            step
            for step, began_s, seconds in spans
            if began_s <= at_s <= began_s + seconds and step != 5
        ]
        assert STEP_OF[name] in within, (name, at_s, within)
        seen.add(name)
    assert seen == set(STEP_OF)


def test_steps_begin_in_their_order() -> None:
    for report in rounds(Record()):
        assert [each.step for each in report.steps] == list(range(1, 14))
        begins = [each.at for each in report.steps]
        assert begins == sorted(begins)
        assert all(each.seconds >= 0 for each in report.steps)


def test_the_answer_comes_within_the_notification() -> None:
    for report in rounds(Record()):
        notified = report.steps[4]
        until = notified.at + timedelta(seconds=notified.seconds)
        assert all(notified.at <= each.at <= until for each in report.steps[5:])


def test_rewards_reach_the_model_before_the_decision() -> None:
    record = Record()
    rounds(record)
    names = [name for name, _ in record.acts]
    first = names.index("evaluate")
    assert names[first : first + 3] == ["evaluate", "rewarded", "combine"]
