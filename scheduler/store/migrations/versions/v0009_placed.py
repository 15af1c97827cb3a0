"""The board of an attempt as the cluster names it, and as its report does."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0014"


def upgrade() -> None:
    """Attempts of before keep the board that they were recorded with."""
    op.add_column("attempts", sa.Column("placed_uid", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("reported_uid", sa.Text(), nullable=True))
