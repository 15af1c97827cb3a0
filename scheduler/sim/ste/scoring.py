"""What is learned of schedulers during a run, in memory, by the live service's own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from edgeyard.scheduler.model.attempt import Outcome
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
        """See `Scoring.states`."""
        return {name: each for (of, name), each in self._states.items() if of == policy}

    def policies(self) -> Sequence[str]:
        """See `Scoring.policies`."""
        return sorted({policy for policy, _ in self._states})

    def save(self, state: ScorerState) -> None:
        """See `Scoring.save`."""
        self._states[state.policy, state.scorer] = state

    def add_round(self, round_: RewardRound) -> None:
        """See `Scoring.add_round`."""
        self.last_rounds.append(round_)

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        """See `Scoring.rounds`."""
        return [each for each in reversed(self.last_rounds) if each.policy == policy][:limit]

    def add_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """See `Scoring.add_ratings`."""
        self._ratings.update((each.benchmark_id, each) for each in ratings)

    def end(self, outcome: Outcome) -> None:
        """Note how a placement ended; one that was not rated is passed over."""
        rating = self._ratings.get(outcome.benchmark_id)
        if rating is not None:
            self._ended.append((rating, outcome))

    def ended_ratings(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        """See `Scoring.ended_ratings`."""
        return self._ended[:limit]

    def remove_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """See `Scoring.remove_ratings`."""
        gone = {each.benchmark_id for each in ratings}
        self._ended = [each for each in self._ended if each[0].benchmark_id not in gone]
        for name in gone:
            self._ratings.pop(name, None)


@dataclass(slots=True)
class MemoryWork:
    """The part of a unit of work that scoring needs."""

    scoring: MemoryScoring = field(default_factory=MemoryScoring)

    def as_unit(self) -> UnitOfWork:
        """Return it as what `Scorekeeper` takes; it uses ``scoring`` alone."""
        return cast(UnitOfWork, self)
