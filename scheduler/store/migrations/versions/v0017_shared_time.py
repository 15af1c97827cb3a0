"""The leader's time, which other servers follow, and outcomes of results that came late."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0018"


def upgrade() -> None:
    """Nobody has stored a time yet, and no outcome replaces another one."""
    op.add_column("leadership", sa.Column("at", sa.BigInteger(), nullable=True))
    op.add_column("leadership", sa.Column("database_us", sa.BigInteger(), nullable=True))
    op.add_column(
        "outcomes", sa.Column("replaces", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.drop_index("uq_outcomes_attempt", "outcomes")
    op.create_index(
        "uq_outcomes_attempt", "outcomes", ["benchmark_id", "attempt", "replaces"], unique=True
    )
    op.create_index(
        "ix_outcomes_replaces",
        "outcomes",
        ["replaces"],
        sqlite_where=sa.text("replaces > 0"),
        postgresql_where=sa.text("replaces > 0"),
    )
