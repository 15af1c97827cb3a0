"""What is learned of schedulers during a run, in memory, by the live service's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.engine.rewards import Scorekeeper, policy_key
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.history import PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.ports import UnitOfWork


class MemoryScoring:
    """The repository of weights, rewards and ratings, in memory."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], ScorerState] = {}
        self._ratings: dict[str, PlacementRating] = {}
        self._ended: list[tuple[PlacementRating, Outcome]] = []
        self.last_rounds: list[RewardRound] = []

    def states(self, policy: str) -> Mapping[str, ScorerState]:
        return {name: each for (of, name), each in self._states.items() if of == policy}

    def policies(self) -> Sequence[str]:
        return sorted({policy for policy, _ in self._states})

    def save(self, state: ScorerState) -> None:
        self._states[state.policy, state.scorer] = state

    def add_round(self, round_: RewardRound) -> None:
        self.last_rounds.append(round_)

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        return [each for each in reversed(self.last_rounds) if each.policy == policy][:limit]

    def add_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        self._ratings.update((each.benchmark_id, each) for each in ratings)

    def end(self, outcome: Outcome) -> None:
        """Note how a placement ended; one that was not rated is passed over."""
        rating = self._ratings.get(outcome.benchmark_id)
        if rating is not None:
            self._ended.append((rating, outcome))

    def ended_ratings(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        return self._ended[:limit]

    def remove_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        gone = {each.benchmark_id for each in ratings}
        self._ended = [each for each in self._ended if each[0].benchmark_id not in gone]
        for name in gone:
            self._ratings.pop(name, None)


@dataclass(slots=True)
class MemoryUnitOfWork:
    """The part of a unit of work that scoring needs."""

    scoring: MemoryScoring = field(default_factory=MemoryScoring)

    def as_unit_of_work(self) -> UnitOfWork:
        """Return it as what `Scorekeeper` takes; it uses ``scoring`` alone."""
        return cast(UnitOfWork, self)


class SimulatedLearning:
    """Weights and suspensions of scorers, as the service learns them from cycle to cycle.

    Attributes:
        scoring: What was learned.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._work, self._scorekeeper = MemoryUnitOfWork(), Scorekeeper()

    @property
    def scoring(self) -> MemoryScoring:
        """States of the scorers after learning."""
        return self._work.scoring

    def forget(self) -> None:
        """Forget weights and placements, as for another lab."""
        self._work.scoring = MemoryScoring()

    def end(self, runs: Iterable[PastRun]) -> None:
        """Take in attempts that have ended, oldest first."""
        for each in runs:
            self._work.scoring.end(outcome_of(each))

    def recall(
        self, knowledge: Knowledge, policy: Policy, plugins: Plugins, now: datetime
    ) -> Knowledge:
        """Learn from the attempts that have ended; return what a cycle knows of the scorers."""
        unit = self._work.as_unit_of_work()
        while self._work.scoring.ended_ratings(limit=1):
            self._scorekeeper.settle(unit, policy, plugins, now)
        return self._scorekeeper.recall(unit, knowledge, policy, now)

    def keep(self, policy: Policy, plugins: Plugins, result: CycleResult, now: datetime) -> None:
        """Learn from what a cycle placed, and from who failed in it."""
        placed = {each.benchmark_id: 1 for each in result.placements}
        self._scorekeeper.keep(self._work.as_unit_of_work(), policy, plugins, result, placed, now)

    def weights(self, policy: Policy, plugins: Plugins) -> dict[str, float]:
        """Return the weight of each scorer of a policy."""
        states = self._work.scoring.states(policy_key(policy))
        return {
            role.scorer.name: role.weight
            if (state := states.get(role.scorer.name)) is None or state.weight is None
            else state.weight
            for role in plugins.scorers
        }


def outcome_of(run: PastRun) -> Outcome:
    """Return what the store would have of a run, with nothing measured."""
    return Outcome(
        benchmark_id=run.benchmark_id,
        attempt=1,
        target_uid=run.target_uid,
        family=run.family,
        engine=run.kind.engine,
        benchmark_type=run.kind.benchmark_type.value,
        model_sha256=run.kind.model_sha256,
        wait_s=run.wait_s,
        run_s=run.run_s,
        failure_category=run.failure,
        latency_p50_ms=None,
        verdict=None,
        ended_at=run.ended_at,
        user_id=run.user_id,
        nb_inference=run.kind.nb_inference,
        variant=run.kind.variant,
        energy_j=run.energy_j,
    )
