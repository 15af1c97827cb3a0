"""The repositories of scenarios and of simulations: ScenarioDB."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from edgeyard.scheduler.model.scenarios import StoredScenario, StoredSimulation


class Scenarios(Protocol):
    """Stores scenarios as JSON by their hash, with names and tags."""

    def add(self, scenario: StoredScenario, body: str) -> bool:
        """Store a scenario; return False if its content is stored already.

        What is stored already stays as it is, and gets the tags of the new one, too.

        Args:
            scenario: What is known of it.
            body: Its JSON.

        Raises:
            InvalidInput: A tag is not of the form of tags, or there are too many.
        """
        ...

    def get(self, reference: str) -> StoredScenario:
        """Return a scenario by its hash, by the beginning of its hash, or by its name.

        Args:
            reference: The hash, at least `MIN_HASH_DIGITS` digits of its beginning, or a name,
                which means the newest scenario of that name. A name comes before a beginning.

        Raises:
            NotFound: There is none.
            Conflict: Several hashes begin so.
        """
        ...

    def body(self, sha256: str) -> str:
        """Return the JSON of a scenario.

        Raises:
            NotFound: There is none of this hash.
        """
        ...

    def page(
        self,
        *,
        name: str | None = None,
        world: str | None = None,
        tags: Collection[str] = (),
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Sequence[StoredScenario], str | None]:
        """Return scenarios, newest first, and the cursor of the next page, None after the last.

        Args:
            name: Only those with this name.
            world: Only those of this world.
            tags: Only those with all of these tags.
            limit: Length of a page.
            cursor: Of an earlier answer.

        Raises:
            InvalidInput: The cursor comes from no earlier answer.
        """
        ...

    def tag(
        self, sha256: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> StoredScenario:
        """Add and remove tags, and return the scenario as stored then.

        Raises:
            NotFound: There is none of this hash.
            InvalidInput: A tag is not of the form of tags, or there would be too many.
        """
        ...

    def remove(self, sha256: str) -> None:
        """Remove a scenario.

        Raises:
            NotFound: There is none of this hash.
            Conflict: Simulations of it are stored.
        """
        ...


class Simulations(Protocol):
    """Stores simulations with their metrics."""

    def save_run(self, run: StoredSimulation) -> None:
        """Store a simulation, or replace the one with its id.

        Raises:
            NotFound: Its scenario is not stored.
            InvalidInput: Its metrics hold values that JSON text cannot represent.
        """
        ...

    def run(self, run_id: str) -> StoredSimulation:
        """Return a simulation.

        Raises:
            NotFound: There is none with this id.
        """
        ...

    def runs(
        self,
        *,
        scenario: str | None = None,
        policy: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Sequence[StoredSimulation], str | None]:
        """Return simulations, newest first, and the cursor of the next page, None after the last.

        Args:
            scenario: Only those of the scenario with this hash.
            policy: Only those of this policy.
            kind: Only those of this kind.
            limit: Length of a page.
            cursor: Of an earlier answer.

        Raises:
            InvalidInput: The cursor comes from no earlier answer.
        """
        ...

    def remove(self, run_id: str) -> None:
        """Remove a simulation.

        Raises:
            NotFound: There is none with this id.
        """
        ...
