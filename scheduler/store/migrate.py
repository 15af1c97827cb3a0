"""Make the tables of an empty database, or upgrade an existing one, in one transaction."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)

from edgeyard.errors import ConfigError
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store.tables import (
    event_counter,
    leadership,
    metadata,
    status_counts,
    subscription_mark,
)

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION = re.compile(r'^revision = "(\w+)"', re.M)
_BELOW = re.compile(r'^down_revision = "(\w+)"', re.M)
_LOCK = 0x65647964  # any number that nothing else locks in our database

_version = Table(  # Alembic's, which takes longer to load than all that is done without it
    "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True)
)


def migrate(connection: Connection) -> None:
    """Bring the database to the schema of this code in the open transaction.

    Both databases change their schema within a transaction: killed half-way, nothing has changed,
    and the next start begins again. A second server that starts meanwhile waits.

    Raises:
        ConfigError: The database has a schema that this code cannot upgrade, or foreign tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    known, head = revisions()
    current = _current(connection)
    if current == head:
        return
    if current is not None and current not in known:
        raise ConfigError(
            [
                f"the database has schema {current}, and this Edgeyard can use {min(known)} to "
                f"{head} only: start the Edgeyard that it was last used with, or give this one an "
                "empty database"
            ]
        )
    if current is None and inspect(connection).has_table("benchmarks"):
        raise ConfigError(
            [
                "the database has a table 'benchmarks' that Edgeyard did not create: "
                "give Edgeyard a database of its own"
            ]
        )
    failpoint("migrate:before")
    if current is None:
        _create(connection, head)
    else:
        _upgrade(connection)
    failpoint("migrate:after")
    logger.info(
        "database migrated",
        extra={"event": "store.migrated", "from_schema": current, "to_schema": head},
    )


def revisions() -> tuple[frozenset[str], str]:
    """Return the ids of all migrations, and the last one; a test compares it with Alembic's."""
    texts = [path.read_text(encoding="utf-8") for path in MIGRATIONS.glob("versions/v*.py")]
    known = {_REVISION.findall(each)[0] for each in texts}
    (head,) = known - {below for each in texts for below in _BELOW.findall(each)}
    return frozenset(known), head


def _current(connection: Connection) -> str | None:
    """Return the id of the schema that the database has; None: it is empty."""
    if not inspect(connection).has_table(_version.name):
        return None
    return connection.execute(select(_version)).scalar()


def _create(connection: Connection, head: str) -> None:
    """Make all tables with their first rows; no migration is run, because they are the newest."""
    metadata.create_all(connection, checkfirst=False)
    counts = [{"status": status.value, "stored": 0} for status in Status]
    connection.execute(insert(status_counts), counts)
    connection.execute(insert(event_counter), {"only": 1, "last_seq": 0})
    connection.execute(insert(subscription_mark), {"only": 1, "seen_seq": 0})
    nobody = {"only": 1, "epoch": 0, "renewals": 0, "server_id": "", "url": "", "clock": ""}
    connection.execute(insert(leadership), nobody)
    _version.create(connection)
    connection.execute(insert(_version), {"version_num": head})


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
