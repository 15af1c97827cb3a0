"""The leader's time, which other servers follow, and outcomes of results that came late."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0018"


def upgrade() -> None:
    """Nobody has stored a time yet, and no outcome replaces another one."""
    op.add_column("leadership", sa.Column("at", sa.BigInteger(), nullable=True))
    op.add_column("leadership", sa.Column("database_us", sa.BigInteger(), nullable=True))
    op.add_column("outcomes", sa.Column("replaces", sa.BigInteger(), nullable=True))
    op.drop_index("uq_outcomes_attempt", "outcomes")
    for name, columns, rows in (
        ("uq_outcomes_attempt", ["benchmark_id", "attempt"], "replaces IS NULL"),
        ("uq_outcomes_replaces", ["replaces"], "replaces IS NOT NULL"),
    ):
        op.create_index(
            name,
            "outcomes",
            columns,
            unique=True,
            sqlite_where=sa.text(rows),
            postgresql_where=sa.text(rows),
        )
