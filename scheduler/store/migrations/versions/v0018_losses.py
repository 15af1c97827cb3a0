"""Benchmarks count the attempts in a row that were lost with the server."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0015"


def upgrade() -> None:
    """Losses count from now on."""
    op.add_column(
        "benchmarks", sa.Column("lost_in_a_row", sa.Integer(), nullable=False, server_default="0")
    )
