"""How far a database has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class DatabaseState:
    """Schema and age of a database; of two copies of one database, the greater is newer.

    Attributes:
        schema: Id of its last migration.
        events: Events that were ever logged in it.
    """

    schema: str
    events: int
