"""The store on SQLite or PostgreSQL: tables, unit of work, migrations."""

from edgeyard.scheduler.store.sql_store import SqlStore

__all__ = ["SqlStore"]
