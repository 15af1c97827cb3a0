"""The published contract tests, over every plugin that Edgeyard brings."""

import numpy as np
import pytest

from edgeyard.plugins.aggregators.weighted_mean import WeightedMean
from edgeyard.plugins.builtin import BUILT_IN, registry
from edgeyard.plugins.testing import (
    AggregatorContract,
    FilterContract,
    QueuePolicyContract,
    ScorerContract,
)
from edgeyard.scheduler.framework.registry import Kind


class _Each:
    """Gives a contract each built-in plugin of a kind in turn."""

    factory = None

    def plugin(self):
        return self.factory()


@pytest.mark.parametrize("name", BUILT_IN[Kind.FILTER])
class TestFilters(_Each, FilterContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name):
        self.factory = BUILT_IN[Kind.FILTER][name]


@pytest.mark.parametrize("name", BUILT_IN[Kind.SCORER])
class TestScorers(_Each, ScorerContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name):
        self.factory = BUILT_IN[Kind.SCORER][name]


@pytest.mark.parametrize("name", BUILT_IN[Kind.QUEUE_POLICY])
class TestQueuePolicies(_Each, QueuePolicyContract):
    @pytest.fixture(autouse=True)
    def _choose(self, name):
        self.factory = BUILT_IN[Kind.QUEUE_POLICY][name]


class TestWeightedMean(AggregatorContract):
    def plugin(self):
        return WeightedMean()


def test_a_contract_catches_a_filter_that_breaks_it():
    class Sleepy:
        name = "sleepy"
        refusals = ()

        def admit(self, batch):
            return np.ones(batch.shape, dtype=np.uint8)

    class Broken(FilterContract):
        def plugin(self):
            return Sleepy()

    with pytest.raises(AssertionError):
        Broken().test_answers_have_the_right_form()


def test_every_built_in_plugin_goes_by_its_own_name():
    for factories in BUILT_IN.values():
        for name, factory in factories.items():
            assert factory().name == name
    assert registry().names(Kind.FILTER) == tuple(sorted(BUILT_IN[Kind.FILTER]))
