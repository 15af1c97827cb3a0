"""Upgrade a database to the schema of this code in one transaction, or refuse."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from sqlalchemy import Connection, func, inspect, select, text

from edgeyard.errors import ConfigError
from edgeyard.failpoints import failpoint

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION = re.compile(r'^revision = "(\w+)"', re.M)
_BELOW = re.compile(r'^down_revision = "(\w+)"', re.M)
_LOCK = 0x65647964  # any number that nothing else locks in our database


def migrate(connection: Connection) -> None:
    """Run the missing migrations in the open transaction.

    Both databases change their schema within a transaction: killed half-way, nothing has changed,
    and the next start begins again. A second server that starts meanwhile waits.

    Raises:
        ConfigError: The database is newer than this code, or holds foreign tables.
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
                f"the database has schema {current}, and this Edgeyard knows none after {head}: "
                "start the Edgeyard that it was last used with, or a newer one"
            ]
        )
    if current is None and inspect(connection).has_table("benchmarks"):
        raise ConfigError(
            [
                "the database holds a table 'benchmarks' that Edgeyard did not make: "
                "give Edgeyard a database of its own"
            ]
        )
    failpoint("migrate:before")
    _upgrade(connection)
    failpoint("migrate:after")
    logger.info(
        "database migrated",
        extra={"event": "store.migrated", "from_schema": current, "to_schema": head},
    )


def revisions() -> tuple[frozenset[str], str]:
    """Return the ids of all migrations, and the last one; a test compares it with Alembic's.

    Alembic takes longer to load than most commands on an up-to-date database take in all.
    """
    texts = [path.read_text(encoding="utf-8") for path in MIGRATIONS.glob("versions/v*.py")]
    known = {_REVISION.findall(each)[0] for each in texts}
    (head,) = known - {below for each in texts for below in _BELOW.findall(each)}
    return frozenset(known), head


def _current(connection: Connection) -> str | None:
    """Return the id of the last migration that the database has had; None: none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
