"""Policies, the registry of plugins, and the runner that minds them."""

from collections.abc import Callable
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import all_pairs, sample_batches, sample_queue
from edgeyard.scheduler.framework.batch import Batch, Pairs, Queue
from edgeyard.scheduler.framework.policy import (
    Policy,
    built_in_policies,
    load_policy,
    parse_policy,
    read_policy,
)
from edgeyard.scheduler.framework.protocols import Refusal, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Kind, Registry, WeightedScorer
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding


def test_every_policy_that_we_bring_loads_and_names_plugins_that_exist() -> None:
    assert built_in_policies() == ("default", "learned", "native", "ste")
    for name in built_in_policies():
        policy = load_policy(name)
        assert policy.name == name
        registry(entry_points=False).resolve(policy)


def test_native_leaves_the_choice_to_the_cluster() -> None:
    native = load_policy("native")
    assert native.binding is Binding.LOOSE
    assert native.scorers == ()
    assert {"ram", "storage"} <= set(native.filters)
    assert not {"busy", "progress"} & set(native.filters)
    assert native.max_preemptions == 0


def test_the_policy_with_models_refuses_the_same_boards_as_the_default() -> None:
    assert load_policy("learned").filters == load_policy("default").filters


def test_nobody_is_stopped_before_a_least_run_unless_a_policy_says_so() -> None:
    assert {load_policy(name).min_run_s for name in built_in_policies()} == {10.0}
    stated = read_policy("default")
    line = next(line for line in stated.splitlines() if line.startswith("min_run_s"))
    assert parse_policy(stated.replace(line, "")).min_run_s == 10.0
    assert parse_policy(stated.replace(line, "min_run_s = 0")).min_run_s == 0.0


def test_types_that_may_preempt_others_are_a_gap_apart() -> None:
    policy = load_policy("default")
    points = policy.priority.types
    assert policy.preempting_types[BenchmarkType.TYPE1] == {
        BenchmarkType.TYPE2,
        BenchmarkType.TYPE3,
        BenchmarkType.GENAI,
    }
    for winner, victims in policy.preempting_types.items():
        assert all(points[winner] - points[victim] >= 10 for victim in victims)


def test_language_models_count_as_training_and_preempt_nothing() -> None:
    for name in built_in_policies():
        policy = load_policy(name)
        points = policy.priority.types
        assert points[BenchmarkType.GENAI] == points[BenchmarkType.TYPE3]
        assert BenchmarkType.GENAI not in policy.preempting_types


def test_a_policy_without_language_models_gives_them_the_fewest_points() -> None:
    text = read_policy("default").replace("GENAI = 50\n", "").replace("TYPE3 = 50", "TYPE3 = 45")
    assert parse_policy(text).priority.type_points(BenchmarkType.GENAI) == 45


def test_all_mistakes_of_a_policy_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy(
            """
            name = "mine"
            version = 0
            queue_policy = 3
            filters = ["ram", "ram"]
            bindings = "strict"
            binding = "tight"
            fresh_age_s = 90
            twin_max_age_s = 60
            priority_mode = "lifo"
            strict_priority = 101
            aggregator = "expected_cost"
            [[scorers]]
            name = "a"
            weight = -1
            [[scorers]]
            name = "a"
            weight = inf
            colour = "red"
            [priority]
            user_points = 2
            age_step_s = true
            deadline_points = 10
            deadline_horizon_s = 0
            [priority.types]
            TYPE1 = 60
            TYPE2 = 55
            TYPE100 = 1
            [preemption]
            margin = 5
            [preemption.types]
            TYPE1 = ["TYPE2", "TYPE0"]
            """,
            source="mine.toml",
        )
    problems = {
        problem.removeprefix("mine.toml: ").split(": ")[0] for problem in caught.value.problems
    }
    assert problems == {
        "version",
        "queue_policy",
        "filters",
        "bindings",
        "binding",
        "fresh_age_s",
        "priority_mode",
        "strict_priority",
        "scorers",
        "scorers[0].weight",
        "scorers[1].weight",
        "scorers[1].colour",
        "priority.age_step_s",
        "priority.deadline_horizon_s",
        "priority.fifo",
        "priority.types.TYPE3",
        "priority.types.TYPE100",
        "preemption.margin",
        "preemption.types.TYPE1",
    }
    assert any("did you mean binding?" in problem for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["", "= 1", "priority = 3", "[[filters]]"])
def test_text_that_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_policy(text)


def test_a_missing_file_shows_what_there_is() -> None:
    with pytest.raises(ConfigError, match="default, learned, native, ste"):
        load_policy("/nowhere/mine.toml")


class Quarantine:
    name = "quarantine"
    refusals: tuple[Refusal, ...] = ()

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return np.zeros((1, batch.shape[1]), dtype=np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return ""

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return ""


def point(name: str, value: str = f"{__name__}:Quarantine", kind: Kind = Kind.FILTER) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=kind.value)


def with_filters(*names: str) -> Policy:
    text = (
        'name = "p"\nversion = 1\nqueue_policy = "priority_age"\nbinding = "auto"\n'
        f"filters = {list(names)}\nfresh_age_s = 1\ntwin_max_age_s = 2\n"
        'priority_mode = "fifo"\naggregator = "expected_cost"\n'
        "[priority]\nuser_points=1\nage_step_s=1\ndeadline_points=1\ndeadline_horizon_s=1\n"
        "fifo=50\n[priority.types]\nTYPE1=1\nTYPE2=1\nTYPE3=1\n[preemption]\nmargin=10\n"
    )
    return parse_policy(text)


def test_a_plugin_of_another_distribution_is_found_by_its_entry_point() -> None:
    found = registry(entry_points=False)
    found.add_entry_points([point("own_boards")])
    assert type(found.resolve(with_filters("own_boards")).filters[0]).__name__ == "Quarantine"


def test_a_second_plugin_of_one_name_is_an_error_and_all_are_reported() -> None:
    found = registry(entry_points=False)
    with pytest.raises(ConfigError) as caught:
        found.add_entry_points([point("ram"), point("family")])
    assert len(caught.value.problems) == 2
    assert "'ram'" in caught.value.problems[0]
    # The same name for two kinds of plugin is none.
    Registry().add_entry_points([point("x"), point("x", kind=Kind.SCORER)])


def test_plugins_that_are_unknown_or_can_not_be_made_are_all_reported() -> None:
    found = registry(entry_points=False)
    found.add_entry_points([point("gone", "nowhere.at.all:X"), point("empty", "builtins:object")])
    with pytest.raises(ConfigError) as caught:
        found.resolve(with_filters("gone", "unknown", "empty"))
    gone, unknown, empty = caught.value.problems
    assert "ModuleNotFoundError" in gone
    assert "it has: " in unknown
    assert "lacks refusals, admit" in empty


class Scorer:
    name = "mine"
    objective = "load"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def __init__(self, answer: Callable[[Pairs], object]) -> None:
        self.says = answer

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        return self.says(pairs)  # type: ignore[return-value]  # that is what is tested


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda pairs: 1 / 0, "raised"),
        (lambda pairs: None, "nonsense"),
        (lambda pairs: np.full(len(pairs), 1.1), "nonsense"),
        (lambda pairs: np.full(len(pairs), -np.inf), "nonsense"),
        (lambda pairs: np.where(np.arange(len(pairs)) == 0, np.inf, np.nan), "nonsense"),
        (lambda pairs: np.zeros(len(pairs), dtype=int), "nonsense"),
        (lambda pairs: np.zeros(1), "nonsense"),
        (lambda pairs: np.full(len(pairs), "1"), "nonsense"),
    ],
)
def test_a_scorer_that_fails_is_dropped_and_named(
    answer: Callable[[Pairs], object], cause: str
) -> None:
    batch = sample_batches()[0]
    runner = PluginRunner()
    assert runner.score(WeightedScorer(scorer=Scorer(answer)), 1.0, batch, all_pairs(batch)) is None
    assert [(fault.plugin, fault.cause) for fault in runner.faults] == [("mine", cause)]


def test_plugins_are_timed_by_the_clock_that_is_handed_in() -> None:
    ticks = iter([10.0, 10.25])
    batch = sample_batches()[0]
    runner = PluginRunner(lambda: next(ticks))
    scorer = Scorer(lambda pairs: np.zeros(len(pairs)))
    runner.score(WeightedScorer(scorer=scorer), 1.0, batch, all_pairs(batch))
    assert runner.seconds == {"mine": 0.25}


@pytest.mark.parametrize("ranks", [[0, 1, 1], [1, 2, 3], [0, 1], [0.0, 1.0, 2.0], None, [-1, 0, 1]])
def test_ranks_that_are_no_permutation_are_refused(ranks: list[float] | None) -> None:
    class Wild:
        name = "wild"

        def order(self, queue: Queue) -> NDArray[np.intp]:
            return None if ranks is None else np.array(ranks)  # type: ignore[return-value]

        def reason(self, queue: Queue, job: int) -> str:
            return ""

    runner = PluginRunner()
    assert runner.order(Wild(), sample_queue(3)) is None
    assert runner.faults[0].plugin == "wild"
