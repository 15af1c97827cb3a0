"""The ScenarioDB of the command line: a local database, or the one of a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, emit
from edgeyard.benchmark_api.cli.program import Session
from edgeyard.errors import InvalidInput
from edgeyard.simulator.scenario_db import opened_db

if TYPE_CHECKING:
    from edgeyard.benchmark_api.schemas import answers as shapes
    from edgeyard.benchmark_api.sdk import Client
    from edgeyard.scheduler.model.scenarios import StoredScenario
    from edgeyard.scheduler.ports import Store
    from edgeyard.simulator.scenario import Scenario

_LOCAL_DB_HELP = (
    "Local ScenarioDB: an SQLite file or the URL of a PostgreSQL database; default: "
    "EDGEYARD_SCENARIO_DB, or scenarios.db in the user's data folder."
)
LocalDb = Annotated[str | None, typer.Option("--db", metavar="FILE|URL", help=_LOCAL_DB_HELP)]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE|URL",
        help=f"{_LOCAL_DB_HELP} Not with --url or --profile, which name a server.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of rows, newest first.")]
StoreRuns = Annotated[
    bool | None,
    typer.Option(
        "--store/--no-store",
        help="Store scenarios and runs in the ScenarioDB, for sim list, show and report. Default: "
        "if --db or EDGEYARD_SCENARIO_DB names one.",
    ),
]


class ScenarioDb(Protocol):
    """The scenarios of a local database or of a server."""

    def add(self, scenario: Scenario, tags: Sequence[str], source: str) -> shapes.Scenario:
        """Store a scenario, and return what is stored then: what was there before stays."""
        ...

    def get(self, reference: str) -> shapes.Scenario:
        """Return a scenario by its hash, by the beginning of its hash, or by its name."""
        ...

    def content(self, reference: str) -> Scenario:
        """Return the content of a scenario, with the tags that it has now."""
        ...

    def newest(
        self, name: str | None, world: str | None, tags: Sequence[str], limit: int
    ) -> Sequence[shapes.Scenario]:
        """Return the newest scenarios, at most so many."""
        ...

    def tag(self, reference: str, add: Sequence[str], remove: Sequence[str]) -> shapes.Scenario:
        """Add and remove tags."""
        ...

    def remove(self, reference: str) -> shapes.Scenario:
        """Remove a scenario, and return what it was."""
        ...


def names_server(session: Session, db: str | None) -> bool:
    """Return whether the command line names a server rather than a local database.

    Raises:
        InvalidInput: Both are named.
    """
    if session.names_server and db is not None:
        raise InvalidInput.at("--db", "is for local databases", "--db, or --url and --profile")
    return session.names_server


def emit_newest(
    session: Session, rows: Sequence[Row], columns: Sequence[Column], limit: int, of: str
) -> None:
    """Write the newest rows, and report where there are more.

    Args:
        session: Of the command.
        rows: Newest first, up to one more than ``limit``.
        columns: Of the table.
        limit: How many are shown.
        of: What a row is, in the plural.
    """
    emit(session.output, rows[:limit], columns, f"no {of}")
    if len(rows) > limit:
        session.report(f"there are more: --limit {limit} showed the newest")


@contextmanager
def scenario_db(session: Session, db: str | None) -> Iterator[ScenarioDb]:
    """Open the server's ScenarioDB if the command line names a server, otherwise a local one.

    Raises:
        InvalidInput: Both are named, or the local one can't be opened.
    """
    if names_server(session, db):
        yield _ServerScenarios(session.client)
        return
    with opened_db(db) as store:
        yield _LocalScenarios(store)


class _LocalScenarios(ScenarioDb):
    """`ScenarioDb` in a database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, scenario: Scenario, tags: Sequence[str], source: str) -> shapes.Scenario:
        from edgeyard.simulator.stored import stored_scenario

        now = datetime.now(UTC)
        stored, body = stored_scenario(scenario, created_at=now, tags=tags, source=source)
        self._store.transact(lambda uow: uow.scenarios.add(stored, body))
        return self.get(stored.sha256)

    def get(self, reference: str) -> shapes.Scenario:
        return _answer(self._stored(reference))

    def content(self, reference: str) -> Scenario:
        from edgeyard.simulator.stored import scenario_of

        stored = self._stored(reference)
        with self._store.read() as uow:
            return scenario_of(uow.scenarios.body(stored.sha256), tags=stored.tags)

    def newest(
        self, name: str | None, world: str | None, tags: Sequence[str], limit: int
    ) -> Sequence[shapes.Scenario]:
        with self._store.read() as uow:
            found, _ = uow.scenarios.page(name=name, world=world, tags=tags, limit=limit)
        return [_answer(each) for each in found]

    def tag(self, reference: str, add: Sequence[str], remove: Sequence[str]) -> shapes.Scenario:
        sha256 = self._stored(reference).sha256
        return _answer(
            self._store.transact(lambda uow: uow.scenarios.tag(sha256, add=add, remove=remove))
        )

    def remove(self, reference: str) -> shapes.Scenario:
        stored = self._stored(reference)
        self._store.transact(lambda uow: uow.scenarios.remove(stored.sha256))
        return _answer(stored)

    def _stored(self, reference: str) -> StoredScenario:
        with self._store.read() as uow:
            return uow.scenarios.get(reference)


class _ServerScenarios(ScenarioDb):
    """`ScenarioDb` of a server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(self, scenario: Scenario, tags: Sequence[str], source: str) -> shapes.Scenario:
        from edgeyard.simulator.scenario import scenario_to_json

        return self._client.add_scenario(scenario_to_json(scenario), tags=tags, source=source)

    def get(self, reference: str) -> shapes.Scenario:
        return self._client.scenario(reference)

    def content(self, reference: str) -> Scenario:
        from edgeyard.simulator.stored import scenario_of

        stored = self._client.scenario(reference)
        body = self._client.scenario_content(stored.sha256)
        return scenario_of(body, tags=stored.tags)

    def newest(
        self, name: str | None, world: str | None, tags: Sequence[str], limit: int
    ) -> Sequence[shapes.Scenario]:
        found = self._client.scenarios(name=name, world=world, tags=tags, page_size=limit)
        return list(islice(found, limit))

    def tag(self, reference: str, add: Sequence[str], remove: Sequence[str]) -> shapes.Scenario:
        return self._client.tag_scenario(reference, add=add, remove=remove)

    def remove(self, reference: str) -> shapes.Scenario:
        stored = self._client.scenario(reference)
        self._client.remove_scenario(stored.sha256)
        return stored


def _answer(stored: StoredScenario) -> shapes.Scenario:
    import msgspec

    from edgeyard.benchmark_api.schemas import answers as shapes

    return msgspec.convert(stored, shapes.Scenario, from_attributes=True)
