"""Attempts keep the id of the evaluation that their registration began."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    """Add the column; earlier attempts have none."""
    op.add_column("attempts", sa.Column("evaluation_id", sa.Text, nullable=True))
