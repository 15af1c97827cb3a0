"""Boards that were cleared for a benchmark by a preemption."""

import sqlalchemy as sa
from alembic import op

revision = "0059"
down_revision = "0058"


def upgrade() -> None:
    """Add the column; no board is reserved for preemptions of before."""
    op.add_column("benchmarks", sa.Column("cleared_uid", sa.Text))
