"""The published contract tests, over every plugin that Edgeyard brings."""

from inspect import signature
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.plugins.builtin import BUILT_IN, registry
from edgeyard.plugins.testing import (
    AggregatorContract,
    EvaluatorContract,
    FilterContract,
    QueuePolicyContract,
    ScorerContract,
    UserFilterContract,
)
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import (
    Aggregator,
    Evaluator,
    Filter,
    QueuePolicy,
    Refusal,
    Scorer,
    UserFilter,
)
from edgeyard.scheduler.framework.registry import Kind


@pytest.mark.parametrize("name", BUILT_IN[Kind.FILTER])
class TestFilters(FilterContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.FILTER][name]

    def plugin(self) -> Filter:
        return cast(Filter, self.factory())


@pytest.mark.parametrize("name", ["budget", "quota"])
class TestUserFilters(UserFilterContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.FILTER][name]

    def plugin(self) -> UserFilter:
        return cast(UserFilter, self.factory())


@pytest.mark.parametrize("name", BUILT_IN[Kind.SCORER])
class TestScorers(ScorerContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.SCORER][name]

    def plugin(self) -> Scorer:
        # On a busy machine a solver may need longer than a second, and a greedy plan differs.
        options = {"time_s": 60.0} if "time_s" in signature(self.factory).parameters else {}
        return cast(Scorer, self.factory(**options))


@pytest.mark.parametrize(
    "name",
    [
        # In a fresh checkout the look-ahead's functions are compiled first.
        pytest.param(each, marks=pytest.mark.slow if each == "lookahead" else ())
        for each in BUILT_IN[Kind.QUEUE_POLICY]
    ],
)
class TestQueuePolicies(QueuePolicyContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.QUEUE_POLICY][name]

    def plugin(self) -> QueuePolicy:
        return cast(QueuePolicy, self.factory())


@pytest.mark.parametrize("name", BUILT_IN[Kind.EVALUATOR])
class TestEvaluators(EvaluatorContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.EVALUATOR][name]

    def plugin(self) -> Evaluator:
        return cast(Evaluator, self.factory())


@pytest.mark.parametrize("name", BUILT_IN[Kind.AGGREGATOR])
class TestAggregators(AggregatorContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.factory = BUILT_IN[Kind.AGGREGATOR][name]

    def plugin(self) -> Aggregator:
        return cast(Aggregator, self.factory())


def test_a_contract_catches_a_filter_that_breaks_it() -> None:
    class Sleepy:
        name = "sleepy"
        refusals: tuple[Refusal, ...] = ()

        def admit(self, batch: Batch) -> NDArray[np.uint8]:
            return np.ones(batch.shape, dtype=np.uint8)

        def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
            return ""

        def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
            return ""

    class Broken(FilterContract):
        def plugin(self) -> Filter:
            return Sleepy()

    with pytest.raises(AssertionError):
        Broken().test_answers_have_the_right_form()


def test_every_built_in_plugin_goes_by_its_own_name() -> None:
    for factories in BUILT_IN.values():
        for name, factory in factories.items():
            assert cast(Filter, factory()).name == name
    assert registry().names(Kind.FILTER) == tuple(sorted(BUILT_IN[Kind.FILTER]))
