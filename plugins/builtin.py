"""The plugins that Edgeyard brings, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from edgeyard.plugins.aggregators.expected_cost import ExpectedCost
from edgeyard.plugins.aggregators.hedge import Hedge
from edgeyard.plugins.evaluators.answered import AnswerEvaluator
from edgeyard.plugins.evaluators.compared import ComparisonEvaluator
from edgeyard.plugins.evaluators.regret import RegretEvaluator
from edgeyard.plugins.filters import board_states, requirements
from edgeyard.plugins.filters.budget import BudgetFilter
from edgeyard.plugins.filters.constraints import ConstraintsFilter
from edgeyard.plugins.filters.deadline import DeadlineFilter
from edgeyard.plugins.filters.health import HealthFilter
from edgeyard.plugins.filters.lease import LeaseFilter
from edgeyard.plugins.filters.quarantine import QuarantineFilter
from edgeyard.plugins.filters.quota import QuotaFilter
from edgeyard.plugins.filters.user_time import UserTimeFilter
from edgeyard.plugins.queue_policies.best_score import BestScore
from edgeyard.plugins.queue_policies.carastan_santos import F1, F2, F3, F4
from edgeyard.plugins.queue_policies.earliest_deadline import EarliestDeadline
from edgeyard.plugins.queue_policies.fair_share import FairShare
from edgeyard.plugins.queue_policies.fifo import Fifo
from edgeyard.plugins.queue_policies.learned_queue import learned_queues
from edgeyard.plugins.queue_policies.lookahead import Lookahead
from edgeyard.plugins.queue_policies.priority_age import PriorityAge
from edgeyard.plugins.queue_policies.priority_response import PriorityResponse
from edgeyard.plugins.queue_policies.seeded_random import SeededRandomOrder
from edgeyard.plugins.queue_policies.shortest_first import ShortestFirst
from edgeyard.plugins.queue_policies.tetris import TetrisOrder
from edgeyard.plugins.queue_policies.unicep import Unicep
from edgeyard.plugins.queue_policies.wfp3 import Wfp3
from edgeyard.plugins.scorers.affinity import AffinityScorer
from edgeyard.plugins.scorers.best_fit import BestFit
from edgeyard.plugins.scorers.campaign_spread import CampaignSpread
from edgeyard.plugins.scorers.cheapest import Cheapest
from edgeyard.plugins.scorers.comparable import Comparable
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.scorers.frugal import Frugal
from edgeyard.plugins.scorers.host_load import HostLoad
from edgeyard.plugins.scorers.ilp import AssignmentScorer, CompletionIlp, DeadlinesIlp, FairnessIlp
from edgeyard.plugins.scorers.learned import SHIPPED, LearnedScorer, learned
from edgeyard.plugins.scorers.least_loaded import LeastLoaded
from edgeyard.plugins.scorers.locality import Locality
from edgeyard.plugins.scorers.outcome_models import FailureModel, MeasurementModel, RunTimeModel
from edgeyard.plugins.scorers.reliable import Reliable
from edgeyard.plugins.scorers.seeded_random import SeededRandom
from edgeyard.plugins.scorers.spread import Spread
from edgeyard.plugins.scorers.tetris import Tetris
from edgeyard.scheduler.framework.protocols import (
    Aggregator,
    Evaluator,
    Filter,
    QueuePolicy,
    Scorer,
)
from edgeyard.scheduler.framework.registry import Factory, Kind, OutOfProcessFactory, Registry

_QUEUE_POLICIES: Mapping[str, Callable[[], QueuePolicy]] = {
    "earliest_deadline": EarliestDeadline,
    "f1": F1,
    "f2": F2,
    "f3": F3,
    "f4": F4,
    "fair_share": FairShare,
    "fifo": Fifo,
    **learned_queues(),
    "lookahead": Lookahead,
    "priority_age": PriorityAge,
    "priority_response": PriorityResponse,
    "random": SeededRandomOrder,
    "shortest_first": ShortestFirst,
    "tetris": TetrisOrder,
    "unicep": Unicep,
    "wfp3": Wfp3,
}
_FILTERS: Mapping[str, Callable[[], Filter]] = {
    **requirements.FILTERS,
    **board_states.FILTERS,
    "budget": BudgetFilter,
    "constraints": ConstraintsFilter,
    "deadline": DeadlineFilter,
    "health": HealthFilter,
    "lease": LeaseFilter,
    "quarantine": QuarantineFilter,
    "quota": QuotaFilter,
    "user_time": UserTimeFilter,
}
_SCORERS: Mapping[str, Callable[[], Scorer]] = {
    "assignment": AssignmentScorer,
    "affinity": AffinityScorer,
    "best_fit": BestFit,
    "campaign_spread": CampaignSpread,
    "cheapest": Cheapest,
    "comparable": Comparable,
    "failure_model": FailureModel,
    "fastest": Fastest,
    "frugal": Frugal,
    "host_load": HostLoad,
    "ilp_completion": CompletionIlp,
    "ilp_deadlines": DeadlinesIlp,
    "ilp_fairness": FairnessIlp,
    "least_loaded": LeastLoaded,
    "locality": Locality,
    "measurement_model": MeasurementModel,
    "random": SeededRandom,
    "reliable": Reliable,
    "run_time_model": RunTimeModel,
    "spread": Spread,
    "tetris": Tetris,
}
_EVALUATORS: Mapping[str, Callable[[], Evaluator]] = {
    "answered": AnswerEvaluator,
    "compared": ComparisonEvaluator,
    "regret": RegretEvaluator,
}
_AGGREGATORS: Mapping[str, Callable[[], Aggregator]] = {
    "hedge": Hedge,
    "expected_cost": ExpectedCost,
}
BUILT_IN: Mapping[Kind, Mapping[str, Factory]] = {
    Kind.QUEUE_POLICY: _QUEUE_POLICIES,
    Kind.FILTER: _FILTERS,
    Kind.SCORER: _SCORERS,
    Kind.EVALUATOR: _EVALUATORS,
    Kind.AGGREGATOR: _AGGREGATORS,
}
"""Type checkers hold each plugin to the protocol of its kind here."""


def registry(
    *,
    entry_points: bool = True,
    models: Path | None = None,
    isolated: OutOfProcessFactory | None = None,
    remote: OutOfProcessFactory | None = None,
) -> Registry:
    """Return a registry of all built-in plugins and, by default, those of installed distributions.

    Args:
        entry_points: Look for those of installed distributions.
        models: Folder of ONNX models with manifests: each is a scorer or a queue policy.
        isolated: See `Registry`.
        remote: See `Registry`.

    Raises:
        ConfigError: Two plugins of one kind have the same name, or a manifest is wrong.
    """
    found = Registry(isolated=isolated, remote=remote)
    for kind, factories in BUILT_IN.items():
        for name, factory in factories.items():
            found.add(kind, name, factory)
    _add_models(found, SHIPPED, "edgeyard")
    if models is not None:
        _add_models(found, models, str(models))
        for name, queue_factory in learned_queues(models).items():
            found.add(Kind.QUEUE_POLICY, name, queue_factory, str(models))
    if entry_points:
        found.add_entry_points()
    return found


def _add_models(found: Registry, folder: Path, source: str) -> None:
    """Make the models of a folder known: as scorers, and those of scores as queue policies too."""
    for name, factory in learned(folder).items():
        found.add(Kind.SCORER, name, factory, source)
        found.add(Kind.QUEUE_POLICY, name, partial(_by_best_score, factory), source)


def _by_best_score(factory: Callable[[], LearnedScorer]) -> BestScore:
    return BestScore(factory())
