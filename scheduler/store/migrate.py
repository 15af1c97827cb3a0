"""Upgrade a database to the schema of this code in one transaction, or refuse."""

from __future__ import annotations

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, inspect, select

from edgeyard.errors import ConfigError
from edgeyard.failpoints import failpoint

logger = logging.getLogger(__name__)

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK = 0x65647964  # any number that nothing else locks in our database


def migrate(connection: Connection) -> None:
    """Run the missing migrations in the open transaction.

    Both databases change their schema within a transaction: killed half-way, nothing has changed,
    and the next start begins again. A second server that starts meanwhile waits.

    Raises:
        ConfigError: The database is newer than this code, or holds foreign tables.
    """
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    head = scripts.get_current_head()
    current = MigrationContext.configure(connection).get_current_revision()
    if current == head:
        return
    known = {script.revision for script in scripts.walk_revisions()}
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
    command.upgrade(config, "head")
    failpoint("migrate:after")
    logger.info(
        "database migrated",
        extra={"event": "store.migrated", "from_schema": current, "to_schema": head},
    )
