"""Attempts whose job the cluster had before the database knew of it."""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    """Take those that are stored for attempts of this database."""
    op.add_column(
        "attempts",
        sa.Column("adopted", sa.Boolean, nullable=False, server_default=sa.false()),
    )
