"""The repository of policies, and of what is remembered of their scorers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.ended import EndedBenchmark
from edgeyard.scheduler.model.forecast import ForecastResult
from edgeyard.scheduler.model.policies import (
    PolicyActivation,
    PolicyOverride,
    PolicyRole,
    StoredPolicy,
)
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState


class Policies(Protocol):
    """Stores policies by name and version, and which of them operators have activated."""

    def activate(self, activation: PolicyActivation) -> None:
        """Activate a policy, replacing the one of its role."""
        ...

    def deactivate(self, role: PolicyRole) -> None:
        """End an activation: the configured policy decides then, and there is no shadow."""
        ...

    def activated(self) -> Mapping[PolicyRole, PolicyActivation]:
        """Return the policies that operators have activated."""
        ...

    def add(self, policy: StoredPolicy, *, replace: bool = False) -> None:
        """Store a policy's text by its name and version.

        Args:
            replace: Store it even if another text is stored under that name and version.

        Raises:
            Conflict: Another text is stored, and it is not to be replaced.
        """
        ...

    def all(self) -> Sequence[StoredPolicy]:
        """Return all stored policies, by name and version."""
        ...

    def ended(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[EndedBenchmark]:
        """Return the benchmarks that ended in [since, until) with who decided them, newest first.

        Args:
            since: None: from the first one on.
            until: None: up to now.
            limit: How many at most.
        """
        ...

    def override(self, benchmark_id: str, override: PolicyOverride | None) -> None:
        """Let one benchmark be decided by its own policy; None: no longer."""
        ...

    def overrides(self) -> Mapping[str, PolicyOverride]:
        """Return the own policies of pending benchmarks, by benchmark id."""
        ...


class Scoring(Protocol):
    """Stores what was learned about scorers, by name and version of the policy: ``default/1``."""

    def states(self, policy: str) -> Mapping[str, ScorerState]:
        """Return the states of a policy's scorers by name; scorers without a state are missing."""
        ...

    def policies(self) -> Sequence[str]:
        """Return name and version of all policies with a state."""
        ...

    def save(self, state: ScorerState) -> None:
        """Replace the state of a scorer."""
        ...

    def add_round(self, round_: RewardRound) -> None:
        """Store a round of rewards."""
        ...

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        """Return a policy's last rounds, newest first."""
        ...

    def add_forecast_results(self, results: Sequence[ForecastResult], *, keep: int) -> None:
        """Store how forecasts turned out, once each, and remove all but the newest.

        Args:
            results: In the order in which they count.
            keep: How many of all stay.
        """
        ...

    def forecast_results(self, *, limit: int) -> Sequence[ForecastResult]:
        """Return the newest results, oldest first."""
        ...

    def add_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """Store the scores of placements until these end."""
        ...

    def ended_ratings(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        """Return ratings of placements that have ended, in the order of their ends."""
        ...

    def remove_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """Remove ratings that were compared with how their placements ended."""
        ...
