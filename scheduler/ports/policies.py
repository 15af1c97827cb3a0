"""The repository of policies, and of what is remembered of their scorers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.policies import (
    PolicyActivation,
    PolicyOverride,
    PolicySeat,
    StoredPolicy,
)
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState


class Policies(Protocol):
    """Policies by name and version, and which of them operators have put to work."""

    def activate(self, activation: PolicyActivation) -> None:
        """Put a policy to work; takes the place of the one of its seat."""
        ...

    def deactivate(self, seat: PolicySeat) -> None:
        """Leave a seat to the configured policy; the shadow's to none."""
        ...

    def activated(self) -> Mapping[PolicySeat, PolicyActivation]:
        """The policies that operators put to work."""
        ...

    def add(self, policy: StoredPolicy, *, replace: bool = False) -> None:
        """Keep a policy's text by its name and version.

        Args:
            policy: The policy.
            replace: Store it even if another text is stored under that name and version.

        Raises:
            Conflict: Another text is kept, and this is not to take its place.
        """
        ...

    def all(self) -> Sequence[StoredPolicy]:
        """All that are kept, by name and version."""
        ...

    def override(self, benchmark_id: str, override: PolicyOverride | None) -> None:
        """Have one benchmark decided by a policy of its own; None: no longer."""
        ...

    def overrides(self) -> Mapping[str, PolicyOverride]:
        """Policies of their own, of benchmarks that wait for a board; by benchmark."""
        ...


class Scoring(Protocol):
    """What is remembered of scorers, by name and version of the policy: ``default/1``."""

    def states(self, policy: str) -> Mapping[str, ScorerState]:
        """By scorer; those of which nothing is remembered are missing."""
        ...

    def policies(self) -> Sequence[str]:
        """All of which anything is remembered."""
        ...

    def save(self, state: ScorerState) -> None:
        """Replace what was remembered of the scorer."""
        ...

    def add_round(self, round_: RewardRound) -> None: ...

    def rounds(self, policy: str, *, limit: int) -> Sequence[RewardRound]:
        """The last ones, newest first."""
        ...

    def add_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """Keep what was said of placements until they end."""
        ...

    def ended_ratings(self, *, limit: int) -> Sequence[tuple[PlacementRating, Outcome]]:
        """Rated placements that have ended, in the order of their ends."""
        ...

    def remove_ratings(self, ratings: Sequence[PlacementRating]) -> None:
        """Forget them: what was said was held against how they ended."""
        ...
