"""Announced removals of content, so that no transaction is open while a file store is called."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0041"


def upgrade() -> None:
    """Begin without removals."""
    op.create_table(
        "content_removals",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("under_way", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_content_removals"),
    )
    op.create_index("ix_content_removals_at", "content_removals", ["at"])
