"""Schedules know their last benchmark, benchmarks since when their board can't be had."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """No firing was skipped yet; of boards that can't be had, the time starts now."""
    op.add_column("schedules", sa.Column("last_benchmark_id", sa.Text(), nullable=True))
    op.add_column(
        "schedules", sa.Column("skipped", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column("benchmarks", sa.Column("unavailable_since", sa.BigInteger(), nullable=True))
